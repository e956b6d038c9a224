// SPDX-License-Identifier: BSD-3-Clause
/* test_reports.c - what data threads report is kept until it is taken, by whoever listens then */

#include <poll.h>
#include <string.h>

#include "aggregator/control.h"
#include "tests/unit/unit.h"

static struct reports reports;
static struct report report;
static void stall(uint16_t id)
{
	const struct report one = {.kind = REPORT_STALL, .id = id, .stall = {.tag = id, .rank = 1}};

	reports_put(&reports, &one);
}

static int begin(void **state)
{
	return reports_open(&reports);
}

static int end(void **state)
{
	reports_close(&reports);
	return 0;
}

static bool readable(void)
{
	struct pollfd fd = {.fd = reports.read_fd, .events = POLLIN};

	return poll(&fd, 1, 0) == 1;
}

/* All kinds, in the order in which they came. */
TEST_BETWEEN(kinds, begin, end)
{
	const struct report trouble = {
		.kind = REPORT_TROUBLE, .id = 6, .trouble = {.rank = 3, .error = 90, .count = 17}};
	struct report lost = {.kind = REPORT_LOST};

	assert_false(readable());
	assert_false(reports_take(&reports, &report));
	stall(5);
	reports_put(&reports, &trouble);
	why_set(&lost.lost, 0, "unplugged");
	reports_put(&reports, &lost);
	assert_true(readable());
	assert_true(reports_take(&reports, &report));
	assert_true(report.kind == REPORT_STALL && report.id == 5 && report.stall.tag == 5);
	assert_true(reports_take(&reports, &report));
	assert_true(report.kind == REPORT_TROUBLE && report.id == 6);
	assert_memory_equal(&report.trouble, &trouble.trouble, sizeof(trouble.trouble));
	assert_true(reports_take(&reports, &report));
	assert_int_equal(report.kind, REPORT_LOST);
	assert_string_equal(report.lost.text, "unplugged");
	assert_false(readable());
}

/* A channel's number may be another job's soon. */
TEST_BETWEEN(forget, begin, end)
{
	for (uint16_t id = 0; id < 6; id++)
		stall(id);
	reports_forget(&reports);
	assert_false(readable());
	stall(7);
	assert_true(reports_take(&reports, &report) && report.id == 7);
}

/* Nobody takes them: the first are kept, whole, and nobody waits for room. */
TEST_BETWEEN(limit, begin, end)
{
	uint16_t kept = 0;

	for (uint16_t id = 0; id < 2000; id++)
		stall(id);
	for (; reports_take(&reports, &report); kept++)
		assert_true(report.id == kept && report.stall.tag == kept);
	assert_in_range(kept, 1, 1999);
}
