/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * http.h - /metrics (Prometheus), /status (JSON), /healthz and /readyz
 *
 * libmicrohttpd runs on a thread of its own, so that no client holds up the control loop or a data
 * thread. The thread asks the control loop for a copy of its state, and the data threads for copies
 * that they make between packets. A page is reused for some time, so that making the two pages takes
 * at most a tenth of the time. Only GET is allowed.
 */
#ifndef AGGREGATOR_HTTP_H
#define AGGREGATOR_HTTP_H

#include <stdatomic.h>

#include "aggregator/data.h"
#include "aggregator/jobs/jobs.h"
#include "aggregator/offload.h"

#define HTTP_CONNECTIONS_MAX 128 /* at a time; a further one pushes out an old one */
#define HTTP_PAGE_US 100000      /* a page is reused for at least this time */
#define HTTP_PULSE_US 5000000    /* a control loop that does not turn for this time is stuck */

struct http;
struct snapshot;

/* What probes ask about the control loop, which writes this at each tick. */
struct http_pulse {
	_Atomic uint64_t turned_us; /* when the loop last turned, by uv_hrtime() */
	atomic_bool draining;
};

/* The sources of the numbers. */
struct http_sources {
	/* Calls jobs_copy() in the control loop. NULL: no memory, or the loop does not answer. */
	struct jobs_copy *(*copy)(void *context);
	void *context;
	const struct http_pulse *pulse;
	struct data *data;
	const struct offload *offload; /* or NULL */
	struct net_addr listen;
	uint32_t threads;
	/* Room for datagrams in each thread's socket: half of what the kernel reports. */
	uint32_t rcvbuf_bytes;
	const char *bytes_from;    /* as in struct control_config */
	const char *parent, *site; /* Also; NULL if this is no site. */
	uint64_t start_us;         /* when winnowd began, by uv_hrtime() */
	uint64_t epoch_us;         /* from uv_hrtime() to the time since 1970 */
};

/* http_open - binds the port and starts the thread. Returns 0, or -errno with one line in `why`. */
int http_open(const struct net_addr *listen, const struct http_sources *sources, struct http **out,
              struct why *why);

/* http_close - needs a copy() that returns at once, even if with NULL. `http` may be NULL. */
void http_close(struct http *http);

#endif /* AGGREGATOR_HTTP_H */
