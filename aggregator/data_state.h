/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * data_state.h - shared by data_thread.c (threads, orders), data_packets.c (packets in and out, and
 * to other threads), data_above.c (a site's, from and to its parent) and data_trouble.c (workers that
 * cannot be reached); private to them
 */
#ifndef AGGREGATOR_DATA_STATE_H
#define AGGREGATOR_DATA_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>

#include "aggregator/data.h"
#include "aggregator/jobs/knocks.h"
#include "bitmap/net/clock.h"

#define DATA_PROBE_SIZES 8
#define STRAYS_BYTES (256u * 1024)

/* Trouble with a worker, while it lasts. */
struct outlet_trouble {
	uint64_t since_us, last_us, told_us;
	uint64_t received;        /* The channel's count when it began. */
	struct jobs_trouble what; /* A count of 0 means that there is none. */
};

/* A channel and its workers' addresses. */
struct outlet {
	struct jobs_channel info;
	struct channel *channel; /* NULL before START. */
	bool dirty;              /* It may have something to send. */
	bool some_multicast;
	bool all_multicast; /* Of those that are not mute. */
	struct {
		uint32_t bytes;
		uint64_t sent_us;
	} probes[DATA_PROBE_SIZES]; /* The last PROBE of each size. */
	struct outlet_trouble trouble;
	struct relay *relay; /* NULL if there is no parent */
	bool refused;        /* the parent has refused an operation, and that is reported */
	/* When they were last looked at, and their values. */
	uint64_t fast_us, fast_added, fast_missed;
	struct outlet_worker {
		struct net_path path; /* Port 0 until it is known. */
		bool multicast;
		bool mute; /* What goes to all comes to it with another worker's. */
		struct knocker knocker;
	} workers[]; /* [worker_count] */
};

/*
 * Marks the path to a worker of a channel, or to WIRE_EVERYONE, because the address of a failed
 * datagram alone does not tell the worker. Never 0.
 */
#define MARK_RANK_BITS 13

static inline uint32_t mark_of(uint16_t id, uint16_t rank)
{
	return (id + 1u) << MARK_RANK_BITS | (rank & ((1u << MARK_RANK_BITS) - 1));
}

/* Datagrams for this thread that others have received. They fill one box, and it empties the other. */
struct data_strays {
	pthread_mutex_t lock;
	atomic_bool waiting; /* The box that is being filled is not empty. */
	uint32_t filling;    /* owner: rw under the lock, others: ro under it */
	struct stray_box {
		uint32_t count, bytes;
		struct net_in in[NET_BURST_MAX];
		uint8_t memory[STRAYS_BYTES];
	} boxes[2];
};

struct order;

/* One other thread asks this one through it, and waits for the answer. */
struct data_mailbox {
	pthread_mutex_t lock;
	pthread_cond_t carried_out;
	struct order *order; /* The asker: wo, thread: rw, then NULL again. */
	atomic_bool full;    /* The asker: wo, thread: ro; there is an order. */
};

/* The datagrams of the current turn, received and to be sent. */
struct data_burst {
	struct net_in in[NET_BURST_MAX];
	struct packet_out packets[NET_BURST_MAX];
	struct net_out out[NET_BURST_MAX];
	struct net_path to[WIRE_WORKERS_MAX + 1];
	struct net_trouble troubles[NET_TROUBLES_MAX];
	uint8_t knock[WIRE_PAYLOAD_MAX];
};

struct data_thread {
	struct data *data;
	pthread_t thread;
	struct net *net;
	int wake_fd;
	struct data_mailbox orders, looks; /* for the control thread; for data_look() */
	struct data_strays strays;

	/* Only this thread uses what follows. */
	struct outlet *outlets[JOBS_MAX];
	uint32_t outlet_count;
	struct outlet *last; /* The last packet's, because packets come in runs. */
	struct outlet *dirty[JOBS_MAX];
	uint32_t dirty_count;
	struct data_stats stats;
	bool stopped;
	bool stuck;           /* The network has been full for SEND_WAIT_MS. */
	uint32_t relay_count; /* outlets with a relay */
	uint8_t *scratch; /* [NET_BURST_MAX][payload_max], for relays; NULL if there is no parent */
	struct data_burst burst;
};

struct data {
	struct data_config config;
	struct outlet *attached[1 << 16]; /* control: rw, by number */
	uint32_t thread_count;
	struct data_thread *threads[JOBS_THREADS_MAX];
};

/* A short sleep, for when the system wrongly says that there is something to do. */
static inline void data_nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

/* Makes the thread look at orders and strays. */
static inline void data_wake(const struct data_thread *t)
{
	if (eventfd_write(t->wake_fd, 1) != 0)
		abort(); /* an eventfd takes 2^64 - 1 of these */
}

/* The thread that has channel `id`, if there is such a channel. */
static inline struct data_thread *data_owner(const struct data *data, uint16_t id)
{
	return data->threads[(id & 0xff) % data->thread_count];
}

/* data_trouble.c */
void data_troubles(struct data_thread *t, uint64_t now_us); /* a few times a second */

/* data_above.c */
bool above_take(struct data_thread *t, const struct net_in *in,
                uint64_t now_us); /* it is from the parent */
void above_work(struct outlet *outlet, uint64_t now_us);
void above_drain(struct data_thread *t, struct outlet *outlet, uint64_t now_us);
uint64_t above_deadline(const struct data_thread *t);
void above_due(struct data_thread *t, uint64_t now_us); /* marks those whose time has come */

/* data_packets.c */
void outlet_dirty(struct data_thread *t, struct outlet *outlet);
void send_to(struct data_thread *t, const struct net_path *path, uint32_t count);
bool hand_over(const struct data_thread *t, uint16_t id, const struct net_in *in);
struct outlet **outlet_place(struct data_thread *t, uint16_t id); /* NULL: not here */
void outlet_address_tell(struct outlet *outlet, uint32_t rank);
struct outlet *outlet_named(struct data_thread *t, uint16_t id);
uint32_t data_turn(struct data_thread *t);

#endif /* AGGREGATOR_DATA_STATE_H */
