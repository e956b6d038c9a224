/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * parent.h - a site's links to its parent: one for each of its workers, over a connection of its own
 *
 * Each is a worker's link (client/worker/link.h), with TLS by the job's key, and joins in the worker's name. It runs on
 * the control thread's loop. Its KNOCKs leave from the data threads' sockets, which all later datagrams come from.
 */
#ifndef AGGREGATOR_PARENT_H
#define AGGREGATOR_PARENT_H

#include <uv.h>

#include "aggregator/data.h"
#include "bitmap/control/job_keys.h"

struct parent;

struct parent_config {
	const char *text;        /* the address as it was given, for people */
	const char *site;        /* the name of this site */
	struct net_addr address; /* its TCP and UDP port */
	uint32_t rcvbuf; /* bytes of a data thread's receive buffer, as the kernel counts them */
	uint32_t payload_max;
	struct data *data;
	const struct job_keys *keys; /* NULL: no keys */
};

/* parent_open - returns 0, or -errno with one line in `why`. `jobs` may be set later: see parent_serve(). */
int parent_open(const struct parent_config *config, uv_loop_t *loop, struct parent **out,
                struct why *why);
void parent_serve(struct parent *parent, struct jobs *jobs);
/* parent_end - cuts all links. The loop must run once more before parent_close(). Both take NULL. */
void parent_end(struct parent *parent);
void parent_close(struct parent *parent);
bool parent_none(const struct parent *parent); /* no link is left; also if it is NULL */

void parent_keys_set(struct parent *parent, const struct job_keys *keys);

/* A datagram of the parent that answers a KNOCK. */
void parent_answer(struct parent *parent, const uint8_t *data, uint32_t bytes);

/* For struct jobs_ports; their context is the struct parent. */
int parent_up_join(void *parent, struct jobs_peer *peer, const struct control_message *join);
void parent_up_ready(void *parent, const struct jobs_peer *peer, uint32_t payload);
int parent_up_relay(void *parent, const struct jobs_peer *peer, uint16_t id,
                    struct channel *channel);
void parent_up_late(void *parent, const struct jobs_peer *peer, char text[CONTROL_TEXT_BYTES]);
void parent_up_end(void *parent, const struct jobs_peer *peer, enum jobs_up_end how,
                   const char *code, const char *text);

#endif /* AGGREGATOR_PARENT_H */
