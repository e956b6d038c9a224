/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * report.h - what a winnowd says of itself in /status, read with distrust, and whether it is well
 *
 * The report is the JSON that has arrived. Whatever answered: every number that is missing, negative
 * or no number is 0, and every text that is missing is "". Texts and lists are as they came: those
 * who show them make them printable and limit them.
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
#define REPORT_PROBLEMS_MAX 64

/*
 * report_parse - of text[bytes]; the caller frees it with json_decref(). NULL: it is not what winnowd
 * says at /status, and one line in `why`.
 */
json_t *report_parse(const char *text, size_t bytes, struct why *why);

/* A field of an object, or of what is no object at all. */
double report_number(const json_t *object, const char *name);
uint32_t report_whole(const json_t *object, const char *name);
const char *report_text(const json_t *object, const char *name);

/* Something that a person should look into; printable ASCII. */
struct report_problem {
	const char *code; /* "draining", "straggler", "joining", "silent", "path" */
	char job[REPORT_NAME_BYTES];
	char text[REPORT_TEXT_BYTES];
};

/*
 * report_judge - what makes the aggregator degraded; 0: it is healthy. docs/OPERATE.md has the
 * definition. `late_s`: so long may workers keep others waiting.
 */
uint32_t report_judge(const json_t *report, double late_s,
                      struct report_problem problems[REPORT_PROBLEMS_MAX]);

#endif /* CLIENT_CLI_REPORT_H */
