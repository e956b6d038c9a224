/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * status.h - what winnow status and winnow top share
 *
 * status_ask.c    which aggregators, and asking them all
 * status_show.c   the answers as text
 */
#ifndef CLIENT_CLI_STATUS_H
#define CLIENT_CLI_STATUS_H

#include "client/cli/status/report.h"
#include "client/cli/table.h"

#define STATUS_TARGETS_MAX 64

/* Their numbers are exit statuses, and the worst of several aggregators is the whole's. */
enum status_health { STATUS_HEALTHY, STATUS_DEGRADED, STATUS_UNREACHABLE };

struct status_target {
	char address[280]; /* "HOST:PORT" */
	enum status_health health;
	int64_t owner;          /* the user that it runs as; -1: not known */
	struct why why;         /* it is unreachable */
	struct report *report;  /* NULL: unreachable */
	struct report *earlier; /* the answer before, for rates; NULL: none */
	uint32_t problem_count;
	struct report_problem problems[REPORT_PROBLEMS_MAX];
};

struct status_targets {
	uint32_t count;
	struct status_target list[STATUS_TARGETS_MAX];
};

/*
 * status_targets_read - from arguments (each may be a list with commas), or else from `fallback`.
 * 0, or 2 with one line on stderr.
 */
int status_targets_read(const char *const operands[], uint32_t count, const char *fallback,
                        struct status_targets *out);

/* status_ask - ask all of them again; the worst of their states. */
enum status_health status_ask(struct status_targets *targets, uint64_t timeout_us, double late_s,
                              bool (*stop)(void));
void status_targets_free(struct status_targets *targets);

const char *status_health_name(enum status_health health);

struct status_view {
	bool rates;   /* differences from the answer before, not sums */
	bool workers; /* a table of workers, too */
	bool brief;   /* problems alone */
	uint32_t width;
	uint32_t *widths; /* [TABLE_COLUMNS_MAX] kept from one time to the next; NULL: not kept */
};

/* The table of jobs, to the caller's taste; rows and columns are added. */
void status_jobs_table(const struct status_targets *targets, bool rates, struct table *out);

/* status_show - all that people want to see. */
void status_show(const struct status_targets *targets, const struct status_view *view, FILE *out);

#endif /* CLIENT_CLI_STATUS_H */
