/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * http.h - /metrics (Prometheus), /status (JSON), /healthz and /readyz
 *
 * libmicrohttpd on a thread of its own, so that nobody who asks holds up the control loop or a
 * data thread: it asks the first for a copy, and the others for copies that they make between packets. A
 * page answers all who ask for it in the time after it was made, so the two take at most a tenth of the time. GET only.
 */
#ifndef AGGREGATOR_HTTP_H
#define AGGREGATOR_HTTP_H

#include <stdatomic.h>

#include "aggregator/data.h"
#include "aggregator/jobs/jobs.h"
#include "aggregator/offload.h"

#define HTTP_CONNECTIONS_MAX 128 /* at a time; one more pushes out an old one */
#define HTTP_PAGE_US 100000      /* a page is given to all who ask in this time, at least */
#define HTTP_PULSE_US 5000000    /* a control loop that has not turned for so long is ill */

struct http;
struct snapshot;

/* What probes ask about the control loop; it writes this at each tick. */
struct http_pulse {
	_Atomic uint64_t turned_us; /* the last turn of the loop, as uv_hrtime() */
	atomic_bool draining;
};

/* Where the numbers come from. */
struct http_sources {
	/* In the control thread's loop: jobs_copy(). NULL: no memory, or it does not turn, or ends. */
	struct jobs_copy *(*copy)(void *context);
	void *context;
	const struct http_pulse *pulse;
	struct data *data;
	const struct offload *offload; /* NULL: none */
	struct net_addr listen;
	uint32_t threads;
	/* Of each thread's socket: what datagrams may take, half of what the kernel says. */
	uint32_t rcvbuf_bytes;
	const char *bytes_from; /* as in struct control_config */
	uint64_t start_us;      /* winnowd began then, as uv_hrtime(), */
	uint64_t epoch_us;      /* to which this adds what makes it the time since 1970 */
};

/* http_open - bind the port, and start the thread. 0, or -errno with one line in `why`. */
int http_open(const struct net_addr *listen, const struct http_sources *sources, struct http **out,
              struct why *why);

/* http_close - when copy() returns at once, if only NULL. NULL is fine. */
void http_close(struct http *http);

#endif /* AGGREGATOR_HTTP_H */
