// SPDX-License-Identifier: BSD-3-Clause
/* test_reports.c - what data threads report is kept until it is taken, by whoever listens then */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "aggregator/reports.h"

static struct reports reports;
static struct report stalls[REPORTS_MAX];
static struct why lost;

static void wake(void *context)
{
	++*(uint32_t *)context;
}

static void stall(uint16_t id)
{
	struct channel_stall one = {.tag = id, .rank = 1};

	reports_stalled(&reports, id, &one);
}

static int begin(void **state)
{
	(void)state;
	reports_init(&reports);
	return 0;
}

static int end(void **state)
{
	(void)state;
	reports_destroy(&reports);
	return 0;
}

/* Data threads start before anybody listens, and may end after it. */
static void test_before_and_after(void **state)
{
	uint32_t woken = 0;

	(void)state;
	reports_lost(&reports, "unplugged");
	reports_listen(&reports, wake, &woken);
	assert_int_equal(woken, 1);
	assert_int_equal(reports_take(&reports, stalls, &lost), 0);
	assert_string_equal(lost.text, "unplugged");
	stall(7);
	assert_int_equal(woken, 2);
	reports_listen(&reports, NULL, NULL);
	stall(8);
	assert_int_equal(woken, 2);
	assert_int_equal(reports_take(&reports, stalls, &lost), 2);
	assert_true(stalls[0].id == 7 && stalls[0].stall.tag == 7 && stalls[1].id == 8);
	assert_int_equal(reports_take(&reports, stalls, &lost), 0);
}

/* Both kinds, in the order in which they came. */
static void test_kinds(void **state)
{
	const struct jobs_trouble trouble = {.rank = 3, .error = 90, .count = 17};

	(void)state;
	stall(5);
	reports_trouble(&reports, 6, &trouble);
	stall(7);
	assert_int_equal(reports_take(&reports, stalls, &lost), 3);
	assert_true(stalls[0].kind == REPORT_STALL && stalls[2].kind == REPORT_STALL);
	assert_true(stalls[1].kind == REPORT_TROUBLE && stalls[1].id == 6);
	assert_memory_equal(&stalls[1].trouble, &trouble, sizeof(trouble));
}

static void test_nothing_to_take(void **state)
{
	uint32_t woken = 0;

	(void)state;
	reports_listen(&reports, wake, &woken);
	assert_int_equal(woken, 0);
}

/* A channel's number may be another job's soon. */
static void test_forget(void **state)
{
	(void)state;
	for (uint16_t id = 0; id < 6; id++)
		stall(id % 3);
	reports_forget(&reports, 1);
	assert_int_equal(reports_take(&reports, stalls, &lost), 4);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(stalls[i].id, i % 2 * 2);
}

static void test_limit(void **state)
{
	(void)state;
	for (uint16_t id = 0; id < REPORTS_MAX + 3; id++)
		stall(id);
	assert_int_equal(reports_take(&reports, stalls, &lost), REPORTS_MAX);
	assert_int_equal(stalls[REPORTS_MAX - 1].id, REPORTS_MAX - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_before_and_after, begin, end),
		cmocka_unit_test_setup_teardown(test_nothing_to_take, begin, end),
		cmocka_unit_test_setup_teardown(test_forget, begin, end),
		cmocka_unit_test_setup_teardown(test_kinds, begin, end),
		cmocka_unit_test_setup_teardown(test_limit, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
