// SPDX-License-Identifier: BSD-3-Clause
/* test_jobs_members.c - the decider: which workers are in the next membership, MEMBERS.md */

#include "tests/unit/test_jobs_members.h"

/* Rank 1 of four is lost, the others continue. */
static void shrink(struct bench *b, char name[CONTROL_JOB_BYTES])
{
	name[0] = '\0';
	job_running(b, 0, "job", 4);
	jobs_gone(b->jobs, b->workers[1].peer, "reset");
	for (uint32_t i = 0; i < 4; i++)
		if (i != 1)
			expect_told(b, i, "lost");
	assert_int_equal(b->attached_count, 0);
	stay(b, 3, "job", 3, 4);
	stay(b, 0, "job", 0, 4);
	expect_silence(b, 0);
	stay(b, 2, "job", 2, 4);
	expect_next(b, 0, 0, 3, 0, name);
	expect_next(b, 2, 1, 3, 0, name);
	expect_next(b, 3, 2, 3, 0, name);
}

/* Nobody waits for ever for one that lives and does not want; nobody wants: nothing is left. */
TEST(patience)
{
	char name[CONTROL_JOB_BYTES] = "";

	for (uint32_t wants = 0; wants < 2; wants++) {
		struct bench *b = usual_open();

		job_running(b, 0, "job", 3);
		jobs_gone(b->jobs, b->workers[1].peer, "reset");
		expect_told(b, 0, "lost");
		expect_told(b, 2, "lost");
		say_kind(b, 2, CONTROL_READY); /* it was on its way */
		if (wants)
			stay(b, 0, "job", 0, 3);
		wait(b, 59, 5);
		assert_int_equal(totals_of(b).jobs, 1);
		wait(b, 1, 5);
		assert_true(b->workers[2].closed);
		if (wants)
			expect_next(b, 0, 0, 1, 0, name);
		else
			assert_int_equal(totals_of(b).jobs, 0);
		bench_close(b);
	}
}

/* Those who stay leave out what any of them does, but never this aggregator. */
BENCH_TEST(without)
{
	struct control_message one = stay_of("job", 0, 2), other = stay_of("job", 1, 2);
	char name[CONTROL_JOB_BYTES] = "";

	one.without = 5;
	other.without = 8;
	job_running(b, 0, "job", 2);
	say(b, 0, &one);
	expect_silence(b, 0);
	say(b, 1, &other);
	expect_next(b, 0, 0, 2, 12, name);
	expect_next(b, 1, 1, 2, 12, name);
	assert_int_equal(totals_of(b).jobs_failed, 0);
}

/* A member that is named and does not come: the others are told after the silence time, and continue. */
BENCH_TEST(does_not_come)
{
	char name[CONTROL_JOB_BYTES], next[CONTROL_JOB_BYTES] = "";

	shrink(b, name);
	come(b, 0, name, 0, 3);
	come(b, 3, name, 2, 3);
	wait(b, 4, 0xd);
	expect_told(b, 0, "join_timeout");
	expect_told(b, 3, "join_timeout");
	stay(b, 0, name, 0, 4);
	stay(b, 3, name, 2, 4);
	expect_next(b, 0, 0, 2, 0, next);
	expect_next(b, 3, 1, 2, 0, next);
}

/* NEXT is lost with a connection: the worker's STAY at the door, of the membership before, is still a member's. */
BENCH_TEST(next_lost)
{
	char name[CONTROL_JOB_BYTES], next[CONTROL_JOB_BYTES] = "";

	shrink(b, name);
	come(b, 0, name, 0, 3);
	knock(b, 5, "job", 0); /* its earlier connection may stand, half open */
	stay(b, 5, "job", 2, 4);
	assert_true(b->workers[2].closed);
	expect_told(b, 0, "lost");
	expect_told(b, 3, "lost");
	stay(b, 0, name, 0, 4);
	stay(b, 3, "job", 3, 4);
	expect_next(b, 0, 0, 3, 0, next);
	expect_next(b, 5, 1, 3, 0, next);
	expect_next(b, 3, 2, 3, 0, next);
	all_come(b, next, (uint32_t[]){0, 5, 3}, 3);
	/* All have joined: who says that it comes from before is not one of them. */
	knock(b, 4, "job", 0);
	stay(b, 4, "job", 2, 4);
	expect_end(b, 4, "running", 0);
	knock(b, 4, "job", 0);
	stay(b, 4, name, 1, 3);
	expect_end(b, 4, "running", 0);
	wait(b, 1, 0x29);
	expect_silence(b, 0);
	/* But who is in the present one is. */
	knock(b, 4, "job", 0);
	stay(b, 4, next, 1, 3);
	assert_true(b->workers[5].closed);
	expect_line(b, 0, CONTROL_PING); /* it came as a newcomer would */
	expect_told(b, 0, "lost");
}

/* NEXT is lost to all, and the clock is behind: the name is not given twice, since elsewhere one may have joined by it. */
BENCH_TEST(another_name)
{
	static const char last[] = "job/next.00000000ffffffff";
	char name[CONTROL_JOB_BYTES] = "", next[CONTROL_JOB_BYTES] = "";

	job_running(b, 0, last, 2);
	for (uint32_t i = 0; i < 2; i++)
		stay(b, i, last, i, 2);
	for (uint32_t i = 0; i < 2; i++)
		expect_next(b, i, i, 2, 0, name);
	for (uint32_t i = 0; i < 2; i++) {
		knock(b, 2 + i, "job", 0);
		stay(b, 2 + i, last, i, 2);
	}
	for (uint32_t i = 0; i < 2; i++)
		expect_next(b, 2 + i, i, 2, 0, next);
	assert_true(message_name_number(next) > message_name_number(name));
}

/* Only those whom NEXT has named come, by the connection by which it came. */
BENCH_TEST(named_only)
{
	char name[CONTROL_JOB_BYTES];

	shrink(b, name);
	join(b, 4, name, 1, 3);
	expect_end(b, 4, "rank", 0);
	come(b, 0, name, 1, 3); /* another one's rank */
	assert_true(b->workers[0].closed);
	expect_told(b, 2, "lost");
}

/* ---- IDLE ---- */

static void at_door(struct bench *b, uint32_t i, const struct control_message *stays)
{
	knock(b, i, "job", 0);
	say(b, i, stays);
}

/* The aggregator has been restarted: it waits for as many as the newest membership had, or for some time. */
TEST(restarted)
{
	static const char last[] = "job/next.0000000000000005";
	struct control_message a = stay_of(last, 0, 3), c = stay_of(last, 2, 3),
			       older = stay_of("job/next.0000000000000004", 1, 4),
			       later = stay_of("job/next.0000000000000006", 7, 3);

	for (uint32_t late = 0; late < 2; late++) {
		char name[CONTROL_JOB_BYTES] = "";
		struct bench *b = usual_open();

		strcpy(later.begun,
		       older.begun); /* it has joined, and begun none since the fourth */
		later.of = 4;
		at_door(b, 0, &older);
		at_door(b, 1, &a);
		at_door(b, 2, &c);
		at_door(b, 4, &c); /* once more, by another connection */
		assert_true(b->workers[2].closed);
		expect_silence(b, 1);
		if (late)
			wait(b, 10, 0x13);
		else
			at_door(b, 3, &later);
		expect_next(b, 1, 0, late ? 2 : 3, 0, name);
		expect_next(b, 4, 1, late ? 2 : 3, 0, name);
		if (!late)
			expect_next(b, 3, 2, 3, 0, name);
		expect_end(b, 0, "running", 0);
		assert_true(message_name_number(name) > 6);
		knock(b, 0, "job", 0);
		stay(b, 0, last, 1, 3);
		expect_end(b, 0, "running", 0);
		bench_close(b);
	}
}

/* More say that they were members than a job may have workers: the others are refused. */
BENCH_TEST(too_many)
{
	char name[CONTROL_JOB_BYTES] = "";

	for (uint32_t i = 0; i < 5; i++) {
		const struct control_message one = stay_of("job", i, 5);

		at_door(b, i, &one);
	}
	for (uint32_t i = 0; i < 4; i++)
		expect_next(b, i, i, 4, 0, name);
	expect_end(b, 4, "running", 0);
}

/* There is no place for a job that wants to continue: all its members are told so. */
BENCH_TEST(no_place)
{
	static const char *const others[] = {"a", "b", "c"};

	for (uint32_t i = 0; i < 3; i++)
		job_running(b, i, others[i], 1);
	for (uint32_t i = 3; i < 5; i++) {
		const struct control_message one = stay_of("job", i - 3, 2);

		at_door(b, i, &one);
	}
	expect_end(b, 3, "jobs", 0);
	expect_end(b, 4, "jobs", 0);
}

/* Those who have not got the state of the job wait for one that has it, and do not continue alone. */
BENCH_TEST(holds)
{
	struct control_message one = stay_of("job", 0, 2), other = stay_of("job", 0, 1);
	char name[CONTROL_JOB_BYTES] = "";

	one.holds = other.holds = false;
	job_running(b, 0, "job", 2);
	jobs_gone(b->jobs, b->workers[1].peer, "reset");
	expect_told(b, 0, "lost");
	say(b, 0, &one);
	expect_silence(b, 0);
	knock(b, 1, "job", 0);
	stay(b, 1, "job", 1, 2);
	expect_next(b, 0, 0, 2, 0, name);
	jobs_gone(b->jobs, b->workers[1].peer, "reset");
	expect_told(b, 0, "lost");
	say(b, 0, &one);
	wait(b, 9, 1);
	assert_false(b->workers[0].closed);
	wait(b, 1, 1);
	expect_end(b, 0, "orphaned", 0);
	at_door(b, 0, &other);
	wait(b, 10, 1);
	expect_end(b, 0, "orphaned", 0);
	assert_int_equal(totals_of(b).jobs, 0);
}

/* What somebody says of another job, or another way, is no STAY. */
BENCH_TEST(strangers)
{
	job_running(b, 0, "job", 2);
	stay(b, 0, "jobs", 0, 2);
	expect_line(b, 0, CONTROL_FAILED);
	assert_true(b->workers[0].closed);
	expect_told(b, 1, "lost");
	stay(b, 1, "job", 0, 2); /* the other one's rank */
	assert_true(b->workers[1].closed);
	knock(b, 2, "job", 0);
	stay(b, 2, "jobs", 0, 2);
	expect_end(b, 2, "protocol", 0);
	knock(b, 2, "job", 0);
	stay(b, 2, "job/next.ffffffffffffffff", 0, 2); /* nothing could follow */
	expect_end(b, 2, "protocol", 0);
}
