/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm_world.h - what the tests of a communicator's thread share: a session, sockets and GPUs that only take notes
 *
 * The thread and the clock are real. Nets are queues, a session is what `w` says of it.
 */
#ifndef TESTS_UNIT_COMM_WORLD_H
#define TESTS_UNIT_COMM_WORLD_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/comm/comm.h"

#define PEERS 3
#define QUEUE 16384
#define LIMIT_MS 20000

struct net {
	struct net_facts facts;
	bool ready;
	uint32_t refusals; /* so often it is not, and then it is */
	uint32_t first, end;
	struct datagram {
		struct net_addr from;
		uint8_t byte;
	} queue[QUEUE];
};

extern struct world {
	pthread_mutex_t lock;
	struct net shared, group;
	/* what the session says */
	enum session_state state;
	bool busy, quiet, hears_quiet;
	uint64_t deadline_us;
	uint32_t own_queue;
	uint32_t to_send[PEERS];
	bool has_group, has_next;
	int line;      /* for the second aggregator: 1: does not fit its socket, -1: has gone out */
	int submit[4]; /* results, in turn */
	/* what it was told */
	uint32_t turns, ticks, lines, opened, no_multicast, left, moved, submitted, completed,
		traced, limit_count;
	uint32_t limits[4];
	uint32_t heard_count, batch_count;
	struct {
		uint32_t index;
		uint8_t byte;
	} heard[QUEUE];
	struct {
		struct net_path to;
		uint32_t count, bytes;
	} batches[64];
	char aborted[128], failed[128];
	struct net_config group_config;
	int done[4];
} w;

/* Read or written by both threads; what a macro is given is looked at under the lock. */
#define told(value)                                                                                \
	__extension__({                                                                            \
		pthread_mutex_lock(&w.lock);                                                       \
		__auto_type told_ = (value);                                                       \
		pthread_mutex_unlock(&w.lock);                                                     \
		told_;                                                                             \
	})
#define say(what)                                                                                  \
	do {                                                                                       \
		pthread_mutex_lock(&w.lock);                                                       \
		what;                                                                              \
		pthread_mutex_unlock(&w.lock);                                                     \
	} while (0)
#define await(sign)                                                                                \
	do {                                                                                       \
		uint64_t until_us_ = clock_us() + LIMIT_MS * 1000;                                 \
		while (!told(sign)) {                                                              \
			if (clock_us() > until_us_)                                                \
				fail_msg("never: %s", #sign);                                      \
			usleep(500);                                                               \
		}                                                                                  \
	} while (0)

extern const struct net_addr address[PEERS];
extern int far_ends[PEERS]; /* of control connections, which nobody reads */

void world_put(struct net *net, struct net_addr from, uint8_t byte);
void world_ring(int fd);

/* Of each test: *state is a struct winnow_comm whose thread has not started. */
int world_begin(void **state);
int world_end(void **state);

void world_start(struct winnow_comm *comm);
void world_wake(struct winnow_comm *comm);
void world_stop(struct winnow_comm *comm);

/* It has no more to do and ends, within LIMIT_MS. */
void world_ends(struct winnow_comm *comm);

/* Turns in a tenth of a second in which nothing happens: one that sleeps has few. */
uint32_t world_turns_at_rest(void);

#endif /* TESTS_UNIT_COMM_WORLD_H */
