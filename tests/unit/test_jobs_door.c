// SPDX-License-Identifier: BSD-3-Clause
/* test_jobs_door.c - newcomers wait until the members admit them, or found the job where it is not: MEMBERS.md */

#include "tests/unit/test_jobs_members.h"

static void stay_and_admit(struct bench *b, uint32_t i, const char *job, uint32_t most)
{
	struct control_message message = stay_of(job, i, 2);

	message.admit = most;
	say(b, i, &message);
}

static void expect_waiting(struct bench *b, uint32_t i, uint32_t count)
{
	assert_int_equal(expect_line(b, i, CONTROL_PING)->waiting, count);
}

/* Members hear at once that somebody waits; when all want to, they continue with those that have waited longest. */
BENCH_TEST(admit)
{
	char name[CONTROL_JOB_BYTES] = "";

	knock(b, 5, "job", 0);
	expect_silence(b, 5);
	b->now_us += 10;
	job_running(b, 0, "job/3", 2);
	expect_waiting(b, 0, 1);
	expect_waiting(b, 1, 1);
	knock(b, 4, "job", 0);
	knock(b, 3, "other", 0);
	knock(b, 6, "jobs", 0);
	expect_waiting(b, 0, 2);
	expect_waiting(b, 1, 2);
	stay_and_admit(b, 0, "job/3", 7);
	assert_int_equal(b->attached_count, 2); /* nothing has ended */
	expect_silence(b, 0);
	expect_silence(b, 1);
	stay_and_admit(b, 1, "job/3", 1);
	expect_next(b, 0, 0, 3, 0, name);
	expect_next(b, 1, 1, 3, 0, name);
	expect_next(b, 5, 2, 3, 0, name);
	expect_silence(b, 4);
	assert_int_equal(totals_of(b).jobs_failed, 0);
	/* The one that still waits is told of from the next membership's start on, also when it goes. */
	all_come(b, name, (uint32_t[]){0, 1, 5}, 3);
	expect_waiting(b, 0, 1);
	expect_waiting(b, 1, 1);
	expect_waiting(b, 5, 1);
	jobs_gone(b->jobs, b->workers[4].peer, "reset");
	tick(b, 1000000);
	expect_waiting(b, 0, 0);
}

/* Two members and two that were ranks `one` and `other` of them: which ranks do they all get? */
static void expect_ranks(uint32_t one, uint32_t other, const uint32_t want[4])
{
	struct control_message back = join_of("job", one, 0);
	char name[CONTROL_JOB_BYTES] = "";
	struct bench *b = usual_open();

	join_by(b, 4, &back);
	b->now_us += 10;
	back.rank = other;
	join_by(b, 5, &back);
	job_running(b, 0, "job/3", 2);
	expect_waiting(b, 0, 2);
	expect_waiting(b, 1, 2);
	stay_and_admit(b, 0, "job/3", 7);
	stay_and_admit(b, 1, "job/3", 7);
	expect_next(b, 0, want[0], 4, 0, name);
	expect_next(b, 1, want[1], 4, 0, name);
	expect_next(b, 4, want[2], 4, 0, name);
	expect_next(b, 5, want[3], 4, 0, name);
	bench_close(b);
}

/* A newcomer may found the job under its name alone, where no membership of it is that has been named here. */
BENCH_TEST(found)
{
	char name[CONTROL_JOB_BYTES] = "";

	join(b, 0, "job", 0, 1);
	expect_line(b, 0, CONTROL_WELCOME);
	join(b, 1, "job", 0, 1);
	expect_end(b, 1, "rank", 0);
	say_kind(b, 0, CONTROL_READY);
	expect_line(b, 0, CONTROL_START);
	stay(b, 0, "job", 0, 1);
	expect_next(b, 0, 0, 1, 0, name);
	join(b, 1, "job", 0, 1);
	assert_non_null(strstr(expect_end(b, 1, "running", 0)->text, "'job' is here"));
	join(b, 2, "jo", 0, 1);
	expect_line(b, 2, CONTROL_WELCOME);
	jobs_gone(b->jobs, b->workers[0].peer, "reset");
	/* Its members wait here, since the aggregator was restarted, say. */
	knock(b, 0, "job", 0);
	stay(b, 0, name, 0, 2);
	join(b, 1, "job", 0, 1);
	expect_end(b, 1, "running", 0);
	jobs_gone(b->jobs, b->workers[0].peer, "reset");
	join(b, 1, "job", 0, 1);
	expect_line(b, 1, CONTROL_WELCOME);
}

/* Who comes back has its rank again, and so have the others; but rank 0 is a member's, and no rank two newcomers'. */
TEST(own_rank)
{
	expect_ranks(0, 0, (uint32_t[]){0, 1, 2, 3});
	expect_ranks(1, 2, (uint32_t[]){0, 3, 1, 2});
	expect_ranks(3, 1, (uint32_t[]){0, 2, 3, 1});
	expect_ranks(1, 1, (uint32_t[]){0, 2, 1, 3});
	expect_ranks(4, 9, (uint32_t[]){0, 1, 2, 3});
}

/* After a loss no newcomers come. A newcomer must live, say nothing else, and be well spoken. */
BENCH_TEST(door)
{
	char name[CONTROL_JOB_BYTES] = "";
	struct jobs_worker worker;
	struct jobs_view view;
	struct control_message wrong = join_of("job/2", 0, 0),
			       bye = {.kind = CONTROL_ABORT, .code = "aborted", .text = "no more"};

	join_by(b, 3, &wrong);
	assert_non_null(strstr(expect_end(b, 3, "world", 0)->text, "is a membership"));
	knock(b, 3, "job", 0);
	say_kind(b, 3, CONTROL_READY);
	assert_non_null(strstr(expect_end(b, 3, "protocol", 0)->text, "not admitted"));
	knock(b, 3, "job", 0);
	say(b, 3, &bye);
	assert_true(b->workers[3].closed);
	expect_silence(b, 3);
	knock(b, 3, "job", 0);
	knock(b, 4, "job", 0);
	wait(b, 12, 8);
	assert_true(b->workers[4].closed && !b->workers[3].closed); /* it was silent */
	b->workers[3].read = b->workers[3].written;
	job_running(b, 0, "job", 3);
	for (uint32_t i = 0; i < 3; i++)
		expect_waiting(b, i, 1);
	assert_true(jobs_view(b->jobs, 0, &view) && view.newcomers == 1);
	stay_and_admit(b, 0, "job", 1);
	jobs_gone(b->jobs, b->workers[1].peer, "reset");
	expect_told(b, 2, "lost");
	assert_true(jobs_view(b->jobs, 0, &view));
	assert_int_equal(view.state, JOB_ENDING);
	jobs_worker(b->jobs, 0, 0, &worker);
	assert_string_equal(worker.state, "stays");
	jobs_worker(b->jobs, 0, 1, &worker);
	assert_string_equal(worker.state, "left");
	jobs_worker(b->jobs, 0, 2, &worker);
	assert_string_equal(worker.state, "awaited");
	stay(b, 2, "job", 2, 3);
	expect_next(b, 0, 0, 2, 0, name);
	expect_next(b, 2, 1, 2, 0, name);
	expect_silence(b, 3);
}
