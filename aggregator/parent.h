/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * parent.h - the connections of a site's links to its parent (site/upward.h)
 *
 * Each has its own, with TLS by the job's key, on the control thread's loop. KNOCKs leave from the data
 * threads' sockets, which all later datagrams come from.
 */
#ifndef AGGREGATOR_PARENT_H
#define AGGREGATOR_PARENT_H

#include <uv.h>

#include "aggregator/data.h"
#include "aggregator/site/upward.h"
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

/* parent_open - returns 0, or -errno with one line in `why`. */
int parent_open(const struct parent_config *config, uv_loop_t *loop, struct parent **out,
                struct why *why);
struct upwards *parent_links(const struct parent *parent);
void parent_keys_set(struct parent *parent, const struct job_keys *keys);
/* parent_end - cuts all links. The loop must run once more before parent_close(). */
void parent_end(struct parent *parent);
void parent_close(struct parent *parent); /* after jobs_close() */

#endif /* AGGREGATOR_PARENT_H */
