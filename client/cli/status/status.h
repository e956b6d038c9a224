/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * status.h - what the files of winnow status share
 *
 * report.c        what winnowd says, and whether it is well
 * status_ask.c    which aggregators, and asking them all
 * status_show.c   the answers as text
 * owner.c         whose they are
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
#define STATUS_JOBS_MAX 1024 /* shown of one aggregator */
#define STATUS_BODY_MAX (16u << 20)
#define OWNER_NAME_BYTES 64

/* Their numbers are exit statuses, and the worst of several aggregators is the whole's. */
enum status_health { STATUS_HEALTHY, STATUS_DEGRADED, STATUS_UNREACHABLE };
extern const char *const status_health_names[];

struct status_target {
	char address[STATUS_ADDRESS_BYTES]; /* "HOST:PORT" */
	enum status_health health;
	int64_t owner;    /* the user that it runs as; -1: not known */
	struct why why;   /* it is unreachable */
	json_t *report;   /* NULL: unreachable */
	json_t *problems; /* see report_judge() */
	pthread_t thread; /* asks it */
	const struct status_targets *all;
};

struct status_targets {
	uint64_t timeout_us; /* for all to answer */
	double late_s;       /* workers may keep others waiting for this long */
	uint32_t count;
	struct status_target list[STATUS_TARGETS_MAX];
};

/* ---- report.c: what a winnowd says of itself, read with distrust ---- */

/*
 * A report is the JSON that has arrived. Whatever answered: a number that is missing, negative or no
 * number is 0, a text that is missing is "". Texts and lists are as they came: those who show them
 * make them printable and limit them.
 */

/*
 * report_parse - of text[bytes]; the caller frees it with json_decref(). NULL: it is not what winnowd
 * says at /status, and one line in `why`.
 */
json_t *report_parse(const char *text, size_t bytes, struct why *why);

/* A field of an object; also of something that is not an object. */
double report_number(const json_t *object, const char *name);
uint32_t report_whole(const json_t *object, const char *name);
const char *report_text(const json_t *object, const char *name);

/*
 * report_judge - add what makes the aggregator degraded, if anything does, to a list of objects: `code` (a
 * word), `job` and `text`, printable ASCII for people. docs/status.md has the definition. `late_s`:
 * workers may keep others waiting for this long.
 */
void report_judge(const json_t *report, double late_s, json_t *problems);

/* ---- status_ask.c ---- */

/*
 * status_targets_read - from arguments (each may be a list with commas), or else from `fallback`.
 * 0, or 2 with one line on stderr.
 */
int status_targets_read(const char *const operands[], uint32_t count, const char *fallback,
                        struct status_targets *out);

/* status_ask - ask all of them again, at once. Returns the worst of their states when all have answered or failed. */
enum status_health status_ask(struct status_targets *targets);
void status_targets_free(struct status_targets *targets);

struct status_view {
	bool workers; /* show a table of workers */
	bool brief;   /* show problems alone */
};

/* status_show - all that people want to see. */
void status_show(const struct status_targets *targets, const struct status_view *view, FILE *out);

/*
 * owner_of - the user id of the process at the other end of the TCP socket `fd`, if that is on this
 * machine; -1: not known.
 */
int64_t owner_of(int fd);

/* owner_name - its login name, or its number where it has none. */
void owner_name(int64_t uid, char name[OWNER_NAME_BYTES]);

#endif /* CLIENT_CLI_STATUS_H */
