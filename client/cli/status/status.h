/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * status.h - what winnow status and winnow top share
 *
 * status_ask.c    which aggregators, and asking them all
 * status_show.c   the answers as text
 * owner.c         whose they are
 */
#ifndef CLIENT_CLI_STATUS_H
#define CLIENT_CLI_STATUS_H

#include <uv.h>

#include "client/cli/status/report.h"
#include "client/cli/table.h"

#define STATUS_TARGETS_MAX 64
#define STATUS_JOBS_MAX 1024 /* shown of one aggregator */
#define STATUS_BODY_MAX (16u << 20)
#define OWNER_NAME_BYTES 64

/* Their numbers are exit statuses, and the worst of several aggregators is the whole's. */
enum status_health { STATUS_HEALTHY, STATUS_DEGRADED, STATUS_UNREACHABLE };

struct status_target {
	char address[280]; /* "HOST:PORT" */
	enum status_health health;
	int64_t owner;   /* the user that it runs as; -1: not known */
	struct why why;  /* it is unreachable */
	json_t *report;  /* NULL: unreachable */
	json_t *earlier; /* the answer before, for rates; NULL: none */
	uint32_t problem_count;
	struct report_problem problems[REPORT_PROBLEMS_MAX];
};

struct status_targets {
	uint64_t timeout_us; /* for all to answer */
	double late_s;       /* so long may workers keep others waiting */
	uint32_t count;
	struct status_target list[STATUS_TARGETS_MAX];
};

/*
 * status_targets_read - from arguments (each may be a list with commas), or else from `fallback`.
 * 0, or 2 with one line on stderr.
 */
int status_targets_read(const char *const operands[], uint32_t count, const char *fallback,
                        struct status_targets *out);

/*
 * status_ask - ask all of them again, and call done() with the worst of their states when all have
 * answered or failed. Nothing else is asked meanwhile.
 */
void status_ask(uv_loop_t *loop, struct status_targets *targets,
                void (*done)(enum status_health worst));
void status_targets_free(struct status_targets *targets);

const char *status_health_name(enum status_health health);

struct status_view {
	bool rates;   /* differences from the answer before, not sums */
	bool workers; /* a table of workers, too */
	bool brief;   /* problems alone */
	uint32_t width;
	uint32_t *widths; /* [TABLE_COLUMNS_MAX] kept from one time to the next; NULL: not kept */
};

/* The table of jobs, to be printed; `time` begins each row, unless it is NULL. */
void status_jobs_table(const struct status_targets *targets, bool rates, const char *time,
                       struct table *out);

/* status_show - all that people want to see. */
void status_show(const struct status_targets *targets, const struct status_view *view, FILE *out);

/* owner_of - the user id of who listens where the TCP socket `fd` is connected to, if that is on this
 * machine; -1: not known. */
int64_t owner_of(int fd);

/* owner_name - its login name, or its number where it has none. */
void owner_name(int64_t uid, char name[OWNER_NAME_BYTES]);

#endif /* CLIENT_CLI_STATUS_H */
