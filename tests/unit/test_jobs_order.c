// SPDX-License-Identifier: BSD-3-Clause
/* test_jobs_order.c - an operator pauses a job, lets it go on, or expels a worker */

#include "tests/unit/test_jobs_members.h"

static const struct control_message *ordered(struct bench *b, const char *job, const char *order,
                                             uint32_t rank, enum control_kind answer)
{
	struct control_message message = {
		.kind = CONTROL_ORDER, .version = WIRE_VERSION, .rank = rank, .text = "so be it"};

	snprintf(message.job, sizeof(message.job), "%s", job);
	snprintf(message.order, sizeof(message.order), "%s", order);
	connect_worker(b, 7);
	say(b, 7, &message);
	assert_true(b->workers[7].closed);
	return expect_line(b, 7, answer);
}

static void expect_paused(struct bench *b, uint32_t count, bool paused)
{
	for (uint32_t i = 0; i < count; i++)
		assert_true(expect_line(b, i, CONTROL_PING)->paused == paused);
}

/* All are told at once, and after the next membership's start; meanwhile nobody counts as late. */
static void test_pause(void **state)
{
	struct channel_stall stall = {.missing = 1, .rank = 1, .waited_us = 100000000};
	struct bench *b = members_open();
	struct jobs_view view;

	(void)state;
	ordered(b, "job", "pause", 0, CONTROL_FAILED);
	job_running(b, 0, "job/1", 3);
	for (uint32_t i = 0; i < 2; i++)
		ordered(b, i == 0 ? "job" : "job/1", "pause", 0, CONTROL_DONE);
	expect_paused(b, 3, true);
	assert_true(jobs_view(b->jobs, 0, &view));
	assert_string_equal(view.state, "paused");
	jobs_stalled(b->jobs, b->attached[0].id, &stall);
	for (uint32_t i = 0; i < 3; i++)
		expect_silence(b, i);
	tick(b, 1000000);
	expect_paused(b, 3, true);
	jobs_gone(b->jobs, b->workers[2].peer, "reset");
	for (uint32_t i = 0; i < 2; i++)
		expect_told(b, i, "lost");
	wait(b, 2, 3);
	say_kind(b, 0, CONTROL_LEAVE);
	say_kind(b, 1, CONTROL_LEAVE);
	assert_int_equal(totals_of(b).jobs, 0);
	tick(b, 50000000);
	job_running(b, 0, "job/next.1", 2);
	expect_paused(b, 2, true);
	b->now_us += 1000;
	ordered(b, "job", "resume", 0, CONTROL_DONE);
	expect_paused(b, 2, false);
	jobs_stalled(b->jobs, b->attached[0].id, &stall); /* it has waited since before */
	ordered(b, "job", "resume", 0, CONTROL_DONE);
	expect_silence(b, 0);
	wait(b, 59, 3);
	jobs_stalled(b->jobs, b->attached[0].id, &stall);
	assert_int_equal(totals_of(b).jobs_failed, 1);
	wait(b, 1, 3);
	jobs_stalled(b->jobs, b->attached[0].id, &stall);
	assert_int_equal(totals_of(b).jobs_failed, 2);
	bench_close(b);
}

/* Of a job with several memberships at a time all are told at once, and none has waited. */
static void test_pause_of_several(void **state)
{
	struct channel_stall stall = {.missing = 1, .rank = 1, .waited_us = 100000000};
	struct bench *b = members_open();

	(void)state;
	job_running(b, 0, "job/1", 2);
	job_running(b, 2, "job/2", 2);
	ordered(b, "job", "pause", 0, CONTROL_DONE);
	expect_paused(b, 4, true);
	b->now_us += 1000;
	ordered(b, "job", "resume", 0, CONTROL_DONE);
	expect_paused(b, 4, false);
	for (uint32_t i = 0; i < 2; i++)
		jobs_stalled(b->jobs, b->attached[i].id, &stall);
	for (uint32_t i = 0; i < 4; i++)
		expect_silence(b, i);
	bench_close(b);
}

/* A pause does not outlive its job for ever, and is no other job's. */
static void test_pause_ends(void **state)
{
	struct bench *b = members_open();

	(void)state;
	job_running(b, 0, "job", 1);
	ordered(b, "job", "pause", 0, CONTROL_DONE);
	expect_paused(b, 1, true);
	say_kind(b, 0, CONTROL_LEAVE);
	job_running(b, 0, "jo", 1);
	job_running(b, 1, "job2", 1);
	expect_silence(b, 0);
	expect_silence(b, 1);
	say_kind(b, 0, CONTROL_LEAVE);
	say_kind(b, 1, CONTROL_LEAVE);
	tick(b, 59000000);
	job_running(b, 0, "job", 1);
	expect_paused(b, 1, true);
	say_kind(b, 0, CONTROL_LEAVE);
	tick(b, 59000000);
	tick(b, 1000000);
	job_running(b, 0, "job", 1);
	expect_silence(b, 0);
	bench_close(b);
}

/* However many jobs of another one have been paused, and have gone, this one's pause is kept and can be given. */
static void test_pauses_of_others(void **state)
{
	char evil[CONTROL_JOB_BYTES];
	struct bench *b = members_open();

	(void)state;
	job_running(b, 0, "job", 1);
	ordered(b, "job", "pause", 0, CONTROL_DONE);
	expect_paused(b, 1, true);
	say_kind(b, 0, CONTROL_LEAVE); /* between two memberships */
	for (uint32_t i = 0; i < 20; i++) {
		snprintf(evil, sizeof(evil), "evil%u", i);
		job_running(b, 1, evil, 1);
		ordered(b, evil, "pause", 0, CONTROL_DONE);
		if (i < 19)
			say_kind(b, 1, CONTROL_LEAVE);
	}
	job_running(b, 2, "job2", 1);
	ordered(b, "job2", "pause", 0, CONTROL_DONE);
	job_running(b, 0, "job", 1);
	expect_paused(b, 1, true);
	assert_true(expect_line(b, 2, CONTROL_PING)->paused);
	tick(b, 1000000);
	for (uint32_t i = 0; i < 3; i++) {
		b->workers[i].read = b->workers[i].written - 1;
		assert_true(expect_line(b, i, CONTROL_PING)->paused);
	}
	bench_close(b);
}

/* It hears why, as the others do, who continue. */
static void test_expel(void **state)
{
	char name[CONTROL_JOB_BYTES] = "";
	struct bench *b = members_open();

	(void)state;
	job_running(b, 0, "job", 3);
	assert_non_null(
		strstr(ordered(b, "job", "expel", 3, CONTROL_FAILED)->text, "no such rank"));
	assert_non_null(
		strstr(ordered(b, "job", "dance", 0, CONTROL_FAILED)->text, "no such order"));
	assert_non_null(strstr(ordered(b, "jo", "expel", 0, CONTROL_FAILED)->text, "not run here"));
	ordered(b, "job", "expel", 1, CONTROL_DONE);
	assert_non_null(strstr(expect_end(b, 1, "lost", 1)->text,
	                       "was taken out by an operator: so be it"));
	expect_told(b, 0, "lost");
	expect_told(b, 2, "lost");
	stay(b, 0, 0);
	stay(b, 2, 0);
	expect_next(b, 0, 0, 2, 0, name);
	expect_next(b, 2, 1, 2, 0, name);
	join_features = CONTROL_SCATTER;
	job_running(b, 0, "old", 2);
	ordered(b, "old", "expel", 1, CONTROL_FAILED);
	assert_int_equal(totals_of(b).jobs, 1);
	bench_close(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pause),      cmocka_unit_test(test_pause_of_several),
		cmocka_unit_test(test_pause_ends), cmocka_unit_test(test_pauses_of_others),
		cmocka_unit_test(test_expel),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
