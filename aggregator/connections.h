/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * connections.h - the control connections: TCP between jobs.c and its peers
 *
 * Incoming bytes become lines for jobs.c. Its lines go out; a peer may leave a limited amount of
 * them unread. On the control thread's loop.
 */
#ifndef AGGREGATOR_CONNECTIONS_H
#define AGGREGATOR_CONNECTIONS_H

#include <sys/queue.h>
#include <uv.h>

#include "aggregator/jobs/jobs.h"
#include "aggregator/listener.h"

#define CONNECTIONS_QUEUE_BYTES (256u * 1024) /* that a peer may leave unread before it is lost */
#define CONNECTIONS_LINGER_US 2000000         /* for the last line to reach a peer */

/* Part of its owner, which may stop the listener. */
struct connections {
	uv_loop_t *loop;
	struct jobs *jobs;
	struct listener listener;
	LIST_HEAD(connection_list, connection) open;
	struct connection_list shut; /* they only wait for what was written to go */
};

/* connections_open - of the port that listener_open() has `fd` of. 0, or -errno with one line in `why`. */
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

/* For struct jobs_ports. */
void connections_send(void *unused, struct jobs_peer *peer, const char *line);
void connections_shut(void *unused, struct jobs_peer *peer);

#endif /* AGGREGATOR_CONNECTIONS_H */
