// SPDX-License-Identifier: BSD-3-Clause
/* test_report.c - /status from a winnowd that is well, one that is not, and one that is none */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/status/status.h"
#include "tests/unit/unit.h"

static json_t *problems; /* of the last report */

static size_t judged(const json_t *report, double late_s)
{
	json_decref(problems);
	problems = json_array();
	report_judge(report, late_s, problems);
	return json_array_size(problems);
}

static const char *said(size_t index, const char *name)
{
	return report_text(json_array_get(problems, index), name);
}

static json_t *parsed(const char *text)
{
	struct why why = {""};
	json_t *report = report_parse(text, strlen(text), &why);

	if (report == NULL)
		fail_msg("%s: %s", text, why.text);
	return report;
}

/* A job whose other fields are `more`. */
static json_t *job_of(const char *more)
{
	char text[4096];

	snprintf(text, sizeof(text),
	         "{\"version\":\"1\",\"jobs\":[{\"name\":\"j\",\"state\":\"running\",\"world\":4,"
	         "\"members\":4%s%s}]}",
	         *more != '\0' ? "," : "", more);
	return parsed(text);
}

/* Degraded once, with this code and a text that has `pattern`; NULL: healthy. */
static void expect(json_t *report, double late_s, const char *code, const char *pattern)
{
	size_t count = judged(report, late_s);

	if (code == NULL) {
		assert_int_equal(count, 0);
	} else {
		assert_int_equal(count, 1);
		assert_string_equal(said(0, "code"), code);
		if (strstr(said(0, "text"), pattern) == NULL)
			fail_msg("'%s' lacks '%s'", said(0, "text"), pattern);
	}
	json_decref(report);
}

TEST(fields)
{
	json_t *r = parsed("{\"version\":\"0.1\",\"uptime_s\":1.5,\"threads\":2,\"unsent\":-1,"
	                   "\"isa\":3,\"world\":9999999999999,\"jobs\":[]}");

	assert_true(report_number(r, "uptime_s") == 1.5);
	assert_int_equal(report_whole(r, "threads"), 2);
	assert_true(report_number(r, "unsent") == 0 && report_number(r, "version") == 0);
	assert_true(report_number(r, "none") == 0 && report_number(NULL, "none") == 0);
	assert_int_equal(report_whole(r, "world"), UINT32_MAX);
	assert_string_equal(report_text(r, "version"), "0.1");
	assert_string_equal(report_text(r, "isa"), "");
	assert_string_equal(report_text(NULL, "isa"), "");
	json_decref(r);
}

TEST(refused)
{
	const char *const texts[] = {"",
	                             "[]",
	                             "null",
	                             "{}",
	                             "not json",
	                             "{\"version\":1,\"jobs\":[]}",
	                             "{\"version\":\"1\"}",
	                             "{\"version\":\"1\",\"jobs\":{}}",
	                             "{\"version\":\"1\",\"jobs\":[]",
	                             "\xff\xfe",
	                             "{\"version\":\"\xff\",\"jobs\":[]}"};
	struct why why;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		assert_null(report_parse(texts[i], strlen(texts[i]), &why));
		assert_non_null(strstr(why.text, "not winnowd"));
	}
}

/* Every type in every place, negative and vast numbers: never more than a strange picture. */
TEST(absurd)
{
	const char *const values[] = {"null",  "true", "-1",  "1e308", "9999999999999",
	                              "\"x\"", "[]",   "[1]", "{}",    "[[{}]]"};
	const char *const names[] = {"name",    "state",   "world",     "members",
	                             "density", "union",   "slots",     "operation",
	                             "waiting", "workers", "under_way", "silence_limit_s",
	                             "state_s"};
	char more[200];

	for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
		for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
			json_t *report;

			snprintf(more, sizeof(more), "\"%s\":%s", names[n], values[v]);
			report = job_of(more);
			(void)judged(report, 5);
			json_decref(report);
		}
	}
	json_decref(parsed("{\"version\":\"1\",\"jobs\":[1,null,\"x\",[]]}"));
}

/* What is said of a job can be shown, whatever it is called. */
TEST(escapes)
{
	json_t *r = parsed("{\"version\":\"1\",\"jobs\":[{\"name\":\"\\u001b]0;x\\u0007\\u00e9\","
	                   "\"state\":\"running\",\"trouble\":\"\\u001b[2J\"}]}");

	assert_int_equal(judged(r, 5), 1);
	assert_string_equal(said(0, "job"), "?]0;x???");
	assert_string_equal(said(0, "text"), "?[2J");
	json_decref(r);
}

/* More than the limits: cut, not overrun. */
TEST(limits)
{
	const uint32_t jobs = REPORT_PROBLEMS_MAX + 10;
	char *text = malloc(jobs * 1200 + 4000), *at = text;
	json_t *r;

	assert_non_null(text);
	at += sprintf(at, "{\"version\":\"1\",\"jobs\":[");
	for (uint32_t i = 0; i < jobs; i++) {
		at += sprintf(at, "%s{\"workers\":[{\"rank\":1,\"host\":\"", i > 0 ? "," : "");
		memset(at, 'h', 500);
		at += 500;
		at += sprintf(at, "\"}],\"name\":\"");
		memset(at, 'n', 500);
		at += 500;
		at += sprintf(at, "\",\"waiting\":{\"missing\":99,\"waited_s\":9,\"ranks\":"
		                  "[1,2,3,4,5,6,7,8,9,10,11,12]}}");
	}
	strcpy(at, "]}");
	r = parsed(text);
	assert_int_equal(judged(r, 5), REPORT_PROBLEMS_MAX);
	assert_int_equal(strlen(said(0, "job")), REPORT_NAME_BYTES - 1);
	assert_non_null(strstr(said(1, "text"), "h), 2, 3, 4 and 95 more, which did not call"));
	json_decref(r);
	free(text);
}

/* ---- docs/status.md: when is it degraded? ---- */

#define WORKERS                                                                                    \
	"\"workers\":[{\"rank\":0,\"state\":\"ready\",\"host\":\"h0\",\"silent_s\":%s},"           \
	"{\"rank\":1,\"state\":\"%s\",\"host\":\"h1\",\"silent_s\":0}]"

static json_t *with_workers(const char *silent, const char *state, const char *more)
{
	char text[1000];

	snprintf(text, sizeof(text), WORKERS "%s%s", silent, state, *more != '\0' ? "," : "", more);
	return job_of(text);
}

TEST(judge)
{
	const char *wait =
		"\"waiting\":{\"for\":\"call\",\"waited_s\":6,\"missing\":1,\"ranks\":[1]}";
	const char *many = "\"waiting\":{\"for\":\"data\",\"waited_s\":6,\"missing\":20,"
			   "\"ranks\":[0,1,2,3,4,5,6,7]}";

	expect(parsed("{\"version\":\"1\",\"jobs\":[]}"), 5, NULL, NULL);
	expect(parsed("{\"version\":\"1\",\"draining\":true,\"jobs\":[]}"), 5, "draining", "drain");
	expect(job_of(""), 5, NULL, NULL);
	expect(with_workers("0", "ready", wait), 6.1, NULL, NULL);
	expect(with_workers("0", "ready", wait), 6, "straggler",
	       "waited 6.0s for rank 1 (h1), which did not call the operation");
	expect(with_workers("0", "ready", many), 5, "straggler",
	       "rank 0 (h0), 1 (h1), 2, 3 and 16 more, which sent no data");
	expect(with_workers("4.9", "ready", "\"silence_limit_s\":10"), 5, NULL, NULL);
	expect(job_of("\"trouble\":\"rank 1 is not reached\""), 5, "path", "rank 1 is not reached");
	expect(job_of("\"trouble\":null"), 5, NULL, NULL);
	expect(with_workers("5", "ready", "\"silence_limit_s\":10"), 5, "silent",
	       "for 5.0s from rank 0 (h0), which counts as lost after 10s");
	expect(with_workers("99", "ready", ""), 5, NULL, NULL); /* a winnowd that tells no limit */
	expect(with_workers("0", "missing", "\"state\":\"forming\",\"state_s\":4"), 5, NULL, NULL);
}

TEST(judge_joining)
{
	static const char form[] = "{\"version\":\"1\",\"jobs\":[{\"name\":\"j\",\"state\":\"%s\","
				   "\"state_s\":7," WORKERS "}]}";
	char text[1000];

	snprintf(text, sizeof(text), form, "forming", "0", "missing");
	expect(parsed(text), 7.5, NULL, NULL);
	expect(parsed(text), 5, "joining", "forming for 7.0s: waits for rank 1 (h1)");
	snprintf(text, sizeof(text), form, "probing", "0", "joined");
	expect(parsed(text), 5, "joining", "probing for 7.0s: no UDP answer from rank 1 (h1)");
	/* At a site, which does not know the others. */
	snprintf(text, sizeof(text), form, "forming", "0", "elsewhere");
	expect(parsed(text), 5, "joining", "forming for 7.0s: its parent waits for other workers");
	snprintf(text, sizeof(text), form, "probing", "0", "elsewhere");
	expect(parsed(text), 5, "joining", "probing for 7.0s: its parent waits for other workers");
	snprintf(text, sizeof(text), form, "ending", "0", "awaited");
	expect(parsed(text), 7.5, NULL, NULL);
	expect(parsed(text), 5, "ending",
	       "its membership ended 7.0s ago; it waits for rank 1 (h1) to continue");
	snprintf(text, sizeof(text), form, "ending", "0", "stays");
	expect(parsed(text), 5, NULL, NULL);
}
