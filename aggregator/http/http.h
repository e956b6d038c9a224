/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * http.h - /metrics (Prometheus), /status (JSON), /healthz and /readyz
 *
 * libmicrohttpd on the control thread's loop: no thread, no lock. GET only.
 */
#ifndef AGGREGATOR_HTTP_H
#define AGGREGATOR_HTTP_H

#include <uv.h>

#include "aggregator/data.h"
#include "aggregator/jobs/jobs.h"
#include "aggregator/offload.h"

#define HTTP_CONNECTIONS_MAX 128 /* at a time; one more pushes out an old one */

struct http;

/* Where the numbers come from. */
struct http_sources {
	const struct jobs *jobs;
	struct data *data;
	const struct offload *offload; /* NULL: none */
	struct net_addr listen;
	uint32_t threads;
	uint32_t
		rcvbuf_bytes; /* of each thread's socket: what datagrams may take, half of what the kernel says */
	const char *bytes_from; /* as in struct control_config */
	double start_s;         /* of http_process_start() */
};

/* When this process began, in seconds since 1970; 0: not known. */
double http_process_start(void);

/*
 * http_open - 0, or -errno with one line in `why`. Its handles are on `loop`; the
 * loop's owner closes them, with no callback, and calls http_close() when the loop is done.
 */
int http_open(const struct net_addr *listen, uv_loop_t *loop, const struct http_sources *sources,
              struct http **out, struct why *why);
void http_close(struct http *http); /* NULL is fine */

/* The bodies, in malloc'ed memory; NULL when out of memory. Also for tests. */
char *http_metrics(const struct http_sources *sources);
char *http_status(const struct http_sources *sources, uint64_t uptime_us);

#endif /* AGGREGATOR_HTTP_H */
