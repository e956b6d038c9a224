/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * report.h - what a winnowd says of itself in /status, read with distrust, and whether it is well
 *
 * Every number that is missing, negative or no number is 0, every text is printable ASCII, and all
 * lists have limits: whatever answered, what comes out can be shown.
 */
#ifndef CLIENT_CLI_REPORT_H
#define CLIENT_CLI_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bitmap/why.h"

#define REPORT_NAME_BYTES 65
#define REPORT_TEXT_BYTES 512
#define REPORT_JOBS_MAX 1024
#define REPORT_WORKERS_MAX 4096
#define REPORT_RANKS_MAX 8
#define REPORT_DROPS_MAX 32
#define REPORT_PROBLEMS_MAX 64

struct report_worker {
	uint32_t rank;
	char state[12], host[REPORT_NAME_BYTES], address[48];
	bool multicast;
	double silent_s;
};

struct report_drop {
	char reason[32];
	double count;
};

struct report_job {
	char name[REPORT_NAME_BYTES], state[12];
	double state_s, silence_limit_s, stall_limit_s;
	uint32_t world, members;
	bool multicast, fast;
	double density, united; /* below 0: not known yet */
	double operations, results, result_resends;
	double received_packets, received_bytes, sent_packets, sent_bytes;
	uint32_t slots, slots_used;

	uint32_t under_way; /* operations; of the oldest: */
	char dtype[8], op[8], wire[12];
	double count, age_s;

	uint32_t missing; /* workers that others wait for; 0: nobody waits */
	bool for_data;    /* else for their call */
	double waited_s;
	uint32_t rank_count;
	uint32_t ranks[REPORT_RANKS_MAX];
	char trouble[REPORT_TEXT_BYTES]; /* ""; or what is wrong with a worker's path */

	uint32_t worker_count;
	struct report_worker *workers;
};

struct report {
	char version[32], datapath[16], isa[16], xdp[REPORT_TEXT_BYTES];
	double uptime_s, memory_bytes, memory_limit_bytes, rcvbuf_bytes;
	double received, received_bytes, sent, sent_bytes, unsent, send_errors;
	double jobs_started, jobs_finished, jobs_failed, joins_refused, log_lines_lost;
	uint32_t threads;
	bool draining;
	struct {
		char job[REPORT_NAME_BYTES], text[REPORT_TEXT_BYTES];
		double age_s;
	} failure; /* of the last job that failed; text "": none */
	uint32_t drop_count, fast_count;
	struct report_drop drops[REPORT_DROPS_MAX]; /* those above 0 */
	struct report_drop fast[REPORT_DROPS_MAX];  /* what the XDP program did, by verdict */
	uint32_t job_count;
	struct report_job *jobs;
	json_t *json; /* all of it */
};

/*
 * report_parse - `text` [bytes], 0 behind it, into *out, which the caller frees. -EINVAL: it is not
 * what winnowd says at /status; -ENOMEM. One line in `why`.
 */
int report_parse(const char *text, size_t bytes, struct report **out, struct why *why);
void report_free(struct report *report); /* NULL is fine */

/* Something that a person should look into. */
struct report_problem {
	const char *code; /* "draining", "straggler", "joining", "silent", "path" */
	char job[REPORT_NAME_BYTES];
	char text[REPORT_TEXT_BYTES];
};

/*
 * report_judge - what makes the aggregator degraded; 0: it is healthy. docs/OPERATE.md has the
 * definition. `late_s`: so long may workers keep others waiting.
 */
uint32_t report_judge(const struct report *report, double late_s,
                      struct report_problem problems[REPORT_PROBLEMS_MAX]);

#endif /* CLIENT_CLI_REPORT_H */
