// SPDX-License-Identifier: BSD-3-Clause
/* test_report.c - /status from a winnowd that is well, one that is not, and one that is none */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/cli/status/report.h"

static struct report_problem problems[REPORT_PROBLEMS_MAX];

static struct report *parsed(const char *text)
{
	struct report *report = NULL;
	struct why why = {""};

	if (report_parse(text, strlen(text), &report, &why) != 0)
		fail_msg("%s: %s", text, why.text);
	return report;
}

/* A job whose other fields are `more`. */
static struct report *job_of(const char *more)
{
	char text[4096];

	snprintf(text, sizeof(text),
	         "{\"version\":\"1\",\"jobs\":[{\"name\":\"j\",\"state\":\"running\",\"world\":4,"
	         "\"members\":4%s%s}]}",
	         *more != '\0' ? "," : "", more);
	return parsed(text);
}

/* Degraded once, with this code and a text that has `pattern`; NULL: healthy. */
static void expect(struct report *report, double late_s, const char *code, const char *pattern)
{
	uint32_t count = report_judge(report, late_s, problems);

	if (code == NULL) {
		assert_int_equal(count, 0);
	} else {
		assert_int_equal(count, 1);
		assert_string_equal(problems[0].code, code);
		if (strstr(problems[0].text, pattern) == NULL)
			fail_msg("'%s' lacks '%s'", problems[0].text, pattern);
	}
	report_free(report);
}

static void test_fields(void **state)
{
	struct report *r = parsed(
		"{\"version\":\"0.1\",\"datapath\":\"xdp\",\"xdp\":\"native\",\"uptime_s\":1.5,"
		"\"threads\":2,\"drops\":{\"stale\":3,\"duplicate\":0},\"xdp_packets\":{\"added\":"
		"9},"
		"\"last_failure\":{\"job\":\"x\",\"text\":\"why\",\"age_s\":2},\"packets\":{"
		"\"sent\":7},"
		"\"jobs\":[{\"name\":\"j\",\"state\":\"running\",\"fast\":true,\"density\":0.25,"
		"\"union\":null,\"slots\":{\"used\":3,\"total\":8},\"under_way\":2,\"operation\":"
		"{\"dtype\":\"f32\",\"op\":\"sum\",\"wire\":\"fixed32\",\"count\":100,\"age_s\":0."
		"5},"
		"\"waiting\":{\"for\":\"data\",\"waited_s\":6.5,\"missing\":2,\"ranks\":[1,3]},"
		"\"workers\":[{\"rank\":1,\"state\":\"ready\",\"host\":\"h\",\"address\":\"a:1\","
		"\"silent_s\":0.5,\"multicast\":true}]}]}");
	const struct report_job *j = &r->jobs[0];

	(void)state;
	assert_true(r->uptime_s == 1.5 && r->threads == 2 && r->sent == 7 && !r->draining);
	assert_int_equal(r->drop_count, 1);
	assert_string_equal(r->drops[0].reason, "stale");
	assert_true(r->drops[0].count == 3 && r->fast_count == 1);
	assert_string_equal(r->failure.text, "why");
	assert_int_equal(r->job_count, 1);
	assert_true(j->fast && j->density == 0.25 && j->united < 0);
	assert_true(j->slots_used == 3 && j->slots == 8 && j->under_way == 2 && j->count == 100);
	assert_true(j->for_data && j->waited_s == 6.5 && j->missing == 2);
	assert_true(j->rank_count == 2 && j->ranks[0] == 1 && j->ranks[1] == 3);
	assert_int_equal(j->worker_count, 1);
	assert_string_equal(j->workers[0].host, "h");
	assert_true(j->workers[0].multicast && j->workers[0].silent_s == 0.5);
	report_free(r);
}

static void test_refused(void **state)
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
	struct report *report = NULL;
	struct why why;

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		assert_int_equal(report_parse(texts[i], strlen(texts[i]), &report, &why), -EINVAL);
		assert_non_null(strstr(why.text, "not winnowd"));
		assert_null(report);
	}
}

/* Every type in every place, negative and vast numbers: never more than a strange picture. */
static void test_absurd(void **state)
{
	const char *const values[] = {"null",  "true", "-1",  "1e308", "9999999999999",
	                              "\"x\"", "[]",   "[1]", "{}",    "[[{}]]"};
	const char *const names[] = {"name",    "state",   "world",     "members",
	                             "density", "union",   "slots",     "operation",
	                             "waiting", "workers", "under_way", "silence_limit_s",
	                             "state_s"};
	char more[200];

	(void)state;
	for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
		for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
			struct report *report;

			snprintf(more, sizeof(more), "\"%s\":%s", names[n], values[v]);
			report = job_of(more);
			(void)report_judge(report, 5, problems);
			report_free(report);
		}
	}
	report_free(parsed("{\"version\":\"1\",\"jobs\":[1,null,\"x\",[]]}"));
}

static void test_escapes(void **state)
{
	struct report *r =
		parsed("{\"version\":\"\\u001b[2J\",\"datapath\":\"u\\nd\",\"jobs\":[{"
	               "\"name\":\"\\u001b]0;x\\u0007\\u00e9\"}],\"drops\":{\"\\u001bA\":1}}");

	(void)state;
	assert_string_equal(r->version, "?[2J");
	assert_string_equal(r->datapath, "u?d");
	assert_string_equal(r->jobs[0].name, "?]0;x???");
	assert_string_equal(r->drops[0].reason, "?A");
	report_free(r);
}

/* More than the limits: cut, not overrun. */
static void test_limits(void **state)
{
	const uint32_t jobs = REPORT_JOBS_MAX + 10;
	char *text = malloc(jobs * 700 + 4000), *at = text;
	struct report *r;

	(void)state;
	assert_non_null(text);
	at += sprintf(at, "{\"version\":\"1\",\"drops\":{");
	for (int i = 0; i < 2 * REPORT_DROPS_MAX; i++)
		at += sprintf(at, "%s\"reason%d\":%d", i > 0 ? "," : "", i, i + 1);
	at += sprintf(at, "},\"jobs\":[");
	for (uint32_t i = 0; i < jobs; i++) {
		at += sprintf(at, "%s{\"name\":\"", i > 0 ? "," : "");
		memset(at, 'n', 500);
		at += 500;
		at += sprintf(at, "\",\"waiting\":{\"missing\":99,\"waited_s\":9,\"ranks\":"
		                  "[1,2,3,4,5,6,7,8,9,10,11,12]}}");
	}
	strcpy(at, "]}");
	r = parsed(text);
	assert_int_equal(r->job_count, REPORT_JOBS_MAX);
	assert_int_equal(r->drop_count, REPORT_DROPS_MAX);
	assert_int_equal(strlen(r->jobs[0].name), REPORT_NAME_BYTES - 1);
	assert_int_equal(r->jobs[0].rank_count, REPORT_RANKS_MAX);
	assert_int_equal(report_judge(r, 5, problems), REPORT_PROBLEMS_MAX);
	report_free(r);
	free(text);
}

/* More workers than any job has: read up to the limit, the others left out. */
static void test_many_workers(void **state)
{
	const uint32_t workers = REPORT_WORKERS_MAX + 10;
	char *text = malloc(workers * 16 + 200), *at = text;
	struct report *r;

	(void)state;
	assert_non_null(text);
	at += sprintf(at, "{\"version\":\"1\",\"jobs\":[{\"name\":\"j\",\"workers\":[{\"rank\":0}");
	for (uint32_t i = 1; i < workers; i++)
		at += sprintf(at, ",{\"rank\":%u}", i);
	strcpy(at, "]}]}");
	r = parsed(text);
	assert_int_equal(r->jobs[0].worker_count, REPORT_WORKERS_MAX);
	assert_int_equal(r->jobs[0].workers[REPORT_WORKERS_MAX - 1].rank, REPORT_WORKERS_MAX - 1);
	report_free(r);
	free(text);
}

/* ---- docs/OPERATE.md: when is it degraded? ---- */

#define WORKERS                                                                                    \
	"\"workers\":[{\"rank\":0,\"state\":\"ready\",\"host\":\"h0\",\"silent_s\":%s},"           \
	"{\"rank\":1,\"state\":\"%s\",\"host\":\"h1\",\"silent_s\":0}]"

static struct report *with_workers(const char *silent, const char *state, const char *more)
{
	char text[1000];

	snprintf(text, sizeof(text), WORKERS "%s%s", silent, state, *more != '\0' ? "," : "", more);
	return job_of(text);
}

static void test_judge(void **state)
{
	const char *wait =
		"\"waiting\":{\"for\":\"call\",\"waited_s\":6,\"missing\":1,\"ranks\":[1]}";
	const char *many = "\"waiting\":{\"for\":\"data\",\"waited_s\":6,\"missing\":20,"
			   "\"ranks\":[0,1,2,3,4,5,6,7]}";

	(void)state;
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
	       "for 5.0s from rank 0 (h0): lost, and the job with it, after 10s");
	expect(with_workers("99", "ready", ""), 5, NULL, NULL); /* a winnowd that tells no limit */
	expect(with_workers("0", "missing", "\"state\":\"forming\",\"state_s\":4"), 5, NULL, NULL);
}

static void test_judge_joining(void **state)
{
	static const char form[] = "{\"version\":\"1\",\"jobs\":[{\"name\":\"j\",\"state\":\"%s\","
				   "\"state_s\":7," WORKERS "}]}";
	char text[1000];

	(void)state;
	snprintf(text, sizeof(text), form, "forming", "0", "missing");
	expect(parsed(text), 7.5, NULL, NULL);
	expect(parsed(text), 5, "joining", "forming for 7.0s: waits for rank 1 (h1)");
	snprintf(text, sizeof(text), form, "probing", "0", "joined");
	expect(parsed(text), 5, "joining", "probing for 7.0s: no UDP answer from rank 1 (h1)");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields),        cmocka_unit_test(test_refused),
		cmocka_unit_test(test_absurd),        cmocka_unit_test(test_escapes),
		cmocka_unit_test(test_limits),        cmocka_unit_test(test_judge),
		cmocka_unit_test(test_judge_joining), cmocka_unit_test(test_many_workers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
