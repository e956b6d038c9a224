/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * http_state.h - shared by http.c (requests), http_metrics.c and http_status.c (pages),
 * http_numbers.c (their numbers) and http_snapshot.c (their data); private to them
 */
#ifndef AGGREGATOR_HTTP_STATE_H
#define AGGREGATOR_HTTP_STATE_H

#include <stdio.h>
#include <string.h>

#include "aggregator/http/http.h"

struct job_snapshot {
	struct jobs_view view;
	char name[CONTROL_JOB_BYTES];      /* the job's name without the membership */
	bool series;                       /* /metrics shows this membership; see below */
	const struct jobs_worker *workers; /* [view.world] */
	uint32_t here;                     /* Workers but those that are at other sites. */
	struct channel_stats stats;        /* added up for its channels */
	struct channel_view busy;   /* the oldest operation and the longest wait of all channels */
	uint32_t slots, slots_used; /* of all channels */
	uint64_t operations;        /* whole ones, however many channels they took */
	uint64_t blocks_zero;
	/* of the first channel and of eager operations */
	uint64_t times[CHANNEL_TIMES + 1], times_us;
	struct channel_waits *waits; /* [view.world] */
};

/* A worker's numbers in /metrics. */
struct worker_snapshot {
	struct control_seen seen;
	struct channel_waits waits;
};

/* The state of control and data threads. */
struct snapshot {
	struct jobs_copy *copy;
	uint32_t job_count;
	struct job_snapshot *jobs;
	struct jobs_totals totals;
	struct data_stats data;
	uint64_t log_lines_lost;
	uint64_t drops[WIRE_DROP_COUNT];   /* of data threads, XDP program and jobs */
	uint64_t fast[FAST_COUNTER_COUNT]; /* of the XDP program */
};

/*
 * snapshot_take - false if memory is short or the control loop does not answer. A job's series go
 * on in its next membership. Of several memberships, a running one has them, else the youngest.
 */
bool snapshot_take(const struct http_sources *sources, struct snapshot *out);
void snapshot_free(struct snapshot *snapshot);

/* At a site: the worker joins through another one, or is not known yet. */
static inline bool worker_elsewhere(const struct jobs_worker *worker)
{
	return strcmp(worker->state, "elsewhere") == 0;
}

/* snapshot_worker - false if the worker has not reported on its path. */
bool snapshot_worker(const struct job_snapshot *job, uint32_t rank, struct worker_snapshot *out);

/* Return the pages in allocated memory, or NULL if memory is short. */
char *http_metrics(const struct http_sources *sources, const struct snapshot *now);
char *http_status(const struct http_sources *sources, const struct snapshot *now);

/* One number, for both pages. */
struct http_number {
	enum {
		NUMBER_COUNTER,
		NUMBER_GAUGE,
		NUMBER_BOOL,
		NUMBER_SECONDS, /* a gauge */
		NUMBER_TIME,    /* seconds that are counted */
	} kind;
	size_t at, bytes; /* Its place in the struct of its list, where seconds are in us. */
	const char *key;  /* Its name in /status, or NULL. */
	const char *metric, *label; /* Its name in /metrics and a second label, or NULL. */
	const char *help;           /* NULL if name and help are those of the entry before. */
};

/* Each list ends with a number of 0 bytes. Those of packets form an object of their own in /status. */
extern const struct http_number http_job_numbers[], http_numbers[], http_packet_numbers[],
	http_worker_numbers[];

uint64_t http_number(const struct http_number *number, const void *of);

const char *http_datapath(const struct http_sources *sources);

#endif /* AGGREGATOR_HTTP_STATE_H */
