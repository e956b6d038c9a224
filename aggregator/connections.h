/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * connections.h - the control connections: TCP between jobs.c and its peers
 *
 * Incoming bytes become lines for jobs.c. Its lines go out; a peer may leave a limited amount of
 * them unread. On the control thread's loop.
 *
 * Where there are keys a connection speaks TLS (bitmap/control/tls.h), and its lines are inside: all
 * that differs is how bytes become lines, and lines bytes.
 *
 * Nobody holds the loop up. The time that handshakes and lines take is counted on the account of their owner: the key
 * that the peer has proved, or its address. An account has a budget; while it is used up the
 * owner's connections are not read, and take turns, so that each is heard in the end. A turn of the
 * loop takes a few lines of a connection, and only so many connections; the others come next.
 */
#ifndef AGGREGATOR_CONNECTIONS_H
#define AGGREGATOR_CONNECTIONS_H

#include <sys/queue.h>
#include <uv.h>

#include "aggregator/jobs/jobs.h"
#include "aggregator/listener.h"
#include "bitmap/control/job_keys.h"

#define CONNECTIONS_QUEUE_BYTES (256u * 1024) /* that a peer may leave unread before it is lost */
#define CONNECTIONS_LINGER_US 2000000         /* for the last line to reach a peer */
#define CONNECTIONS_TURN_US 2000  /* for lines, before all else on the loop has its turn */
#define CONNECTIONS_TURN_LINES 16 /* of one connection, before others have theirs */

/*
 * How much of the thread's time goes to one of those who want some: a share of the time comes in steadily and is kept up
 * to a limit, so that somebody who comes rarely does not wait. Time is spent first and then counted: more than the limit
 * may have been spent, and then its owner waits.
 */
#define BUDGET_SHARE 5        /* One part in so many of the time comes in. */
#define BUDGET_MOST_US 400000 /* So much is kept, and may be spent at once. */

/* All zero: full. */
struct budget {
	int64_t spent_us; /* What has been spent, less what has come in since; never below zero. */
	uint64_t counted_us; /* What had come in by this time is counted. */
};

/* True: it may spend. */
static inline bool budget_open(struct budget *budget, uint64_t now_us)
{
	const int64_t in_us = (int64_t)((now_us - budget->counted_us) / BUDGET_SHARE);

	budget->spent_us = budget->spent_us > in_us ? budget->spent_us - in_us : 0;
	budget->counted_us += (uint64_t)in_us * BUDGET_SHARE;
	return budget->spent_us < BUDGET_MOST_US;
}

static inline void budget_spend(struct budget *budget, uint64_t us)
{
	budget->spent_us += (int64_t)us;
}

/* Part of its owner, which may stop the listener. */
struct connections {
	uv_loop_t *loop;
	struct jobs *jobs;
	struct listener listener;
	const struct job_keys *keys; /* NULL: anyone may join, and TLS is not spoken. */
	struct tls_context *tls;     /* NULL if so. */
	char sealed[16 * 1024];      /* What has come of TLS, until it is fed. */
	LIST_HEAD(connection_list, connection) open;
	struct connection_list shut; /* They wait until what was written has gone. */

	struct account *accounts; /* By owner; a few owners may share one. */
	struct account *keyless;  /* Its connections wait for connections_keys_made(). */
	uint64_t salt;            /* It keeps owners from choosing an account to share. */
	/* These accounts have connections that wait for their turn. */
	TAILQ_HEAD(account_list, account) waiting;
	uv_timer_t again; /* It fires at the next turn of `waiting`. */
	uint64_t turn_us; /* The time spent in this turn. */
};

/* connections_open - of the port that listener_open() has `fd` of, with the `keys` that are set. 0, or -errno with one line in `why`. */
int connections_open(struct connections *connections, uv_loop_t *loop, struct jobs *jobs, int fd,
                     const struct net_addr *listen, struct why *why);

/*
 * connections_end - close all, and the port, at once. Before, jobs.c must have ended: until then it is
 * responsible for those of the peers that it knows.
 */
void connections_end(struct connections *connections);

bool connections_none(const struct connections *connections);

/*
 * connections_tick - call it now and then: gives up connections that do not take their last lines.
 */
void connections_tick(struct connections *connections, uint64_t now_us);

/* connections_keys_made - call it now and then, and with other keys: handshakes that wait for one look again. */
void connections_keys_made(struct connections *connections, const struct job_keys *keys);

/* For struct jobs_ports. */
void connections_send(void *unused, struct jobs_peer *peer, const char *line);
void connections_shut(void *unused, struct jobs_peer *peer);
int connections_seal_key(struct jobs_peer *peer, const char *membership, struct seal_key *out);

#endif /* AGGREGATOR_CONNECTIONS_H */
