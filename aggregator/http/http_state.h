/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * http_state.h - what http.c (answering), http_metrics.c and http_status.c (the bodies), http_numbers.c (what they show)
 * and http_snapshot.c (where it comes from) share; private to them
 */
#ifndef AGGREGATOR_HTTP_STATE_H
#define AGGREGATOR_HTTP_STATE_H

#include <stdio.h>

#include "aggregator/http/http.h"

struct job_snapshot {
	struct jobs_view view;
	char name[CONTROL_JOB_BYTES];      /* the job's alone, without the membership */
	bool series;                       /* /metrics shows it, as below */
	const struct jobs_worker *workers; /* [view.world] */
	struct channel_stats stats;        /* its channels', added up */
	struct channel_view busy;   /* the oldest operation and the longest wait of all channels */
	uint32_t slots, slots_used; /* of all channels */
	uint64_t operations;        /* whole ones, however many channels they took */
	uint64_t blocks_zero;
	uint64_t times[CHANNEL_TIMES + 1], times_us; /* of the eager ones and the first channel's */
	struct channel_waits *waits;                 /* [view.world] */
};

/* A worker, as /metrics shows what it sees of its path. */
struct worker_snapshot {
	struct control_seen seen;
	struct channel_waits waits;
};

/* What control and data threads say. */
struct snapshot {
	struct jobs_copy *copy;
	uint32_t job_count;
	struct job_snapshot *jobs;
	struct jobs_totals totals;
	struct data_stats data;
	uint64_t log_lines_lost;
	uint64_t drops[WIRE_DROP_COUNT]; /* of the data threads, of the XDP program, and of jobs */
	uint64_t fast[FAST_COUNTER_COUNT]; /* of the XDP program */
};

/*
 * False: out of memory, or the control loop gives no answer. Series go on from one membership of a job to the next: of
 * several memberships of a job that are here at a time one has them, a running one rather than another, then the youngest.
 */
bool snapshot_take(const struct http_sources *sources, struct snapshot *out);
void snapshot_free(struct snapshot *snapshot);

/* A worker of a job. False: it has not said what it sees. */
bool snapshot_worker(const struct job_snapshot *job, uint32_t rank, struct worker_snapshot *out);

/* The bodies, in malloc'ed memory; NULL when out of memory. */
char *http_metrics(const struct http_sources *sources, const struct snapshot *now);
char *http_status(const struct http_sources *sources, const struct snapshot *now);

/* One number, for both pages. */
struct http_number {
	enum {
		NUMBER_COUNTER,
		NUMBER_GAUGE,
		NUMBER_BOOL,
		NUMBER_SECONDS, /* a gauge */
		NUMBER_TIME,    /* seconds, counted */
	} kind;
	size_t at, bytes; /* Its place in the struct of its list; seconds are in us there. */
	const char *key;  /* Its name in /status; NULL: it is not there. */
	const char *metric, *label; /* Its name in /metrics, and a second label; NULL: none. */
	const char *help;           /* NULL: the one before has the same name and help. */
};

/* Each ends with 0 bytes. Those of packets are an object of their own in /status. */
extern const struct http_number http_job_numbers[], http_numbers[], http_packet_numbers[],
	http_worker_numbers[];

uint64_t http_number(const struct http_number *number, const void *of);

const char *http_datapath(const struct http_sources *sources);

#endif /* AGGREGATOR_HTTP_STATE_H */
