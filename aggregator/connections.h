/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * connections.h - the control connections: TCP between jobs.c and its peers
 *
 * Incoming bytes become lines for jobs.c, and its lines go out; a peer may leave a limited amount
 * of them unread. All of it runs on the control thread's loop. If there are keys, lines travel
 * inside TLS (bitmap/control/tls.h); only the conversion between bytes and lines differs.
 *
 * No peer can hold the loop up. The time that handshakes and lines take is charged to an account of
 * their owner: the key that the peer has proved, or its address. An account has a budget. While it
 * is used up, the owner's connections are not read and take turns, so that each is served in the
 * end. One turn of the loop takes a few lines of a connection, and only some connections; the
 * others come next.
 */
#ifndef AGGREGATOR_CONNECTIONS_H
#define AGGREGATOR_CONNECTIONS_H

#include <sys/queue.h>
#include <uv.h>

#include "aggregator/jobs/jobs.h"
#include "aggregator/listener.h"
#include "bitmap/control/job_keys.h"

#define CONNECTIONS_QUEUE_BYTES (256u * 1024) /* a peer that leaves more unread is lost */
#define CONNECTIONS_LINGER_US 2000000         /* how long the last line may take to reach a peer */
#define CONNECTIONS_TURN_US 2000              /* for lines in one turn of the loop */
#define CONNECTIONS_TURN_LINES 16             /* lines of one connection in its turn */

/*
 * A budget limits how much of the thread's time one owner gets. A share of the time flows in
 * steadily and is kept up to a limit, so that an owner that comes rarely does not wait. Time is
 * counted after it was spent, so more than the limit may have been spent; then the owner waits.
 */
#define BUDGET_SHARE 5        /* A fifth of the time flows in. */
#define BUDGET_MOST_US 400000 /* The most that is kept, and may be spent at once. */

/* All zero means full. */
struct budget {
	int64_t spent_us;    /* What was spent, less what has flowed in since; never below zero. */
	uint64_t counted_us; /* What flowed in until then is counted. */
};

/* Returns true if the owner may spend. */
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
	const struct job_keys *keys; /* NULL if anyone may join, without TLS. */
	struct tls_context *tls;     /* NULL without keys. */
	char sealed[16 * 1024];      /* TLS bytes that have come, until they are fed. */
	LIST_HEAD(connection_list, connection) open;
	struct connection_list shut; /* Closed by us once all written bytes are sent. */

	struct account *accounts; /* By owner; several owners may share one. */
	struct account *keyless;  /* For connections that wait for connections_keys_made(). */
	uint64_t salt;            /* Keeps owners from choosing which account to share. */
	/* Accounts with connections that wait for their turn. */
	TAILQ_HEAD(account_list, account) waiting;
	uv_timer_t again; /* Fires at the next turn of `waiting`. */
	uint64_t turn_us; /* Time spent in this turn. */
};

/*
 * connections_open - serves the port of `fd` (see listener_open()). `keys` are set before. Returns
 * 0, or -errno with one line in `why`.
 */
int connections_open(struct connections *connections, uv_loop_t *loop, struct jobs *jobs, int fd,
                     const struct net_addr *listen, struct why *why);

/*
 * connections_end - closes all connections and the port at once. jobs.c must have ended before,
 * because it is responsible for the peers that it knows.
 */
void connections_end(struct connections *connections);

bool connections_none(const struct connections *connections);

/* connections_tick - call it now and then: gives up connections that do not take their last lines. */
void connections_tick(struct connections *connections, uint64_t now_us);

/* connections_keys_made - call it now and then, and with new keys: waiting handshakes look again. */
void connections_keys_made(struct connections *connections, const struct job_keys *keys);

/* connections_write - writes a copy of the bytes. Returns 0, -ENOMEM, or -EPIPE: the connection is broken. */
int connections_write(uv_tcp_t *tcp, const void *from, size_t bytes);

/* For struct jobs_ports. */
void connections_send(void *unused, struct jobs_peer *peer, const char *line);
void connections_shut(void *unused, struct jobs_peer *peer);
int connections_seal_key(struct jobs_peer *peer, const char *membership, struct seal_key *out);

#endif /* AGGREGATOR_CONNECTIONS_H */
