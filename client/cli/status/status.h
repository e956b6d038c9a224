/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * status.h - what the files of winnow status share
 *
 * report.c        reads a winnowd's report and finds its problems
 * status_ask.c    chooses the aggregators and asks them all
 * status_show.c   prints the answers as text
 * owner.c         finds the user that a winnowd runs as
 */
#ifndef CLIENT_CLI_STATUS_H
#define CLIENT_CLI_STATUS_H

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>

#include "bitmap/why.h"
#include "client/cli/table.h"

#define REPORT_NAME_BYTES 65
#define REPORT_TEXT_BYTES 512
#define REPORT_PROBLEMS_MAX 64
#define STATUS_ADDRESS_BYTES 280
#define STATUS_TARGETS_MAX 64
#define STATUS_JOBS_MAX 1024 /* The most jobs that are shown of one aggregator. */
#define STATUS_BODY_MAX (16u << 20)
#define OWNER_NAME_BYTES 64

/* The numbers are exit statuses. The exit status for several aggregators is the largest. */
enum status_health { STATUS_HEALTHY, STATUS_DEGRADED, STATUS_UNREACHABLE };
extern const char *const status_health_names[];

struct status_target {
	char address[STATUS_ADDRESS_BYTES]; /* "HOST:PORT" */
	enum status_health health;
	int64_t owner;    /* The user that it runs as, or -1 if unknown. */
	struct why why;   /* The reason why it is unreachable. */
	json_t *report;   /* NULL if it is unreachable. */
	json_t *problems; /* The list that report_judge() has filled. */
	pthread_t thread; /* The thread that asks it. */
	const struct status_targets *all;
};

struct status_targets {
	uint64_t timeout_us; /* How long to wait for answers. */
	double late_s;       /* Workers that keep others waiting this long are a problem. */
	uint32_t count;
	struct status_target list[STATUS_TARGETS_MAX];
};

/* ---- report.c ---- */

/*
 * A report is JSON from the network, and is not trusted. A number that is missing, negative or not a
 * number reads as 0, and a missing text as "". Texts and lists are unchecked: code that shows them
 * must make them printable and limit them.
 */

/*
 * Parses text[bytes]; the caller frees the result with json_decref(). Returns NULL and a line in
 * `why` if it is not the /status of a winnowd.
 */
json_t *report_parse(const char *text, size_t bytes, struct why *why);

/* Return a field of an object. They also accept NULL and JSON that is not an object. */
double report_number(const json_t *object, const char *name);
uint32_t report_whole(const json_t *object, const char *name);
const char *report_text(const json_t *object, const char *name);

/*
 * Adds each problem that makes the aggregator degraded to a list of objects with `code` (a word), `job` and `text`
 * (printable ASCII). docs/status.md defines the problems. Workers may keep others waiting for `late_s`.
 */
void report_judge(const json_t *report, double late_s, json_t *problems);

/* ---- status_ask.c ---- */

/*
 * Reads targets from arguments (each may be a list with commas), or from `fallback` if there are none. Returns 0, or 2
 * after a line on stderr.
 */
int status_targets_read(const char *const operands[], uint32_t count, const char *fallback,
                        struct status_targets *out);

/* Asks all of them at the same time, and returns the worst state when all have answered or failed. */
enum status_health status_ask(struct status_targets *targets);
void status_targets_free(struct status_targets *targets);

struct status_view {
	bool workers; /* Also show a table of workers. */
	bool brief;   /* Show only problems. */
};

void status_show(const struct status_targets *targets, const struct status_view *view, FILE *out);

/* Returns the user of the process at the other end of the TCP socket `fd`, or -1 if it is unknown or remote. */
int64_t owner_of(int fd);

/* Writes the user's login name, or the number if there is no name. */
void owner_name(int64_t uid, char name[OWNER_NAME_BYTES]);

#endif /* CLIENT_CLI_STATUS_H */
