// SPDX-License-Identifier: BSD-3-Clause
/* test_jobs_members.c - who continues when members or aggregators are lost, and that a membership has one successor */

#include "tests/unit/test_jobs_members.h"

static void expect_none(struct bench *b, uint32_t i, const char *why)
{
	const struct control_message *m = expect_line(b, i, CONTROL_NEXT);

	assert_string_equal(m->next, "");
	assert_non_null(strstr(m->text, why));
	assert_true(b->workers[i].closed);
}

/* Not after every end, and only where all workers know of it. */
static void test_no_successor(void **state)
{
	static const char *const codes[] = {"aborted", "stalled", "moved"};
	struct bench *b = members_open();

	(void)state;
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		struct control_message abort = {.kind = CONTROL_ABORT, .text = "that is it, now"};

		strcpy(abort.code, codes[i]);
		job_running(b, 0, "job", 3);
		say(b, 1, &abort);
		for (uint32_t k = 0; k < 3; k++)
			expect_end(b, k, codes[i], 1);
	}
	join_features = CONTROL_SCATTER;
	job_running(b, 0, "job", 3);
	stay(b, 2, 0);
	expect_end(b, 0, "lost", 2);
	expect_end(b, 2, "lost", 2);
	bench_close(b);
}

/* How many of these bits are below bit `i`? */
static int count_of(uint32_t i, uint32_t bits)
{
	return __builtin_popcount(bits & ((1u << i) - 1));
}

/*
 * Without an aggregator only a majority continues, or half of them with the first. It is one of the last membership
 * that has formed: a part of it that was named by one aggregator alone is not a whole.
 */
static void test_majority(void **state)
{
	static const struct {
		uint32_t of, world, left; /* left: as bits */
		bool may;
	} cases[] = {
		{4, 4, 0xf, true},  {4, 4, 0xe, true}, {4, 4, 0x3, true},  {4, 4, 0xc, false},
		{4, 4, 0x1, false}, {3, 3, 0x6, true}, {3, 3, 0x1, false}, {2, 2, 0x1, true},
		{2, 2, 0x2, false}, {1, 1, 0x1, true}, {6, 1, 0x1, false}, {6, 3, 0x7, true},
		{6, 3, 0x6, false}, {4, 3, 0x7, true}, {7, 3, 0x7, false}, {0, 1, 0x1, false},
	};

	(void)state;
	by_majority = true;
	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		char name[CONTROL_JOB_BYTES] = "";
		struct control_message gone = {
			.kind = CONTROL_ABORT, .code = "gone", .text = "it is gone"};
		struct bench *b = members_open();
		uint32_t last = 0, count = 0;

		members = cases[c].of;
		job_running(b, 0, "job", cases[c].world);
		for (uint32_t i = 0; i < cases[c].world; i++)
			last = cases[c].left >> i & 1 ? i : last;
		say(b, last, &gone);
		for (uint32_t i = 0; i < cases[c].world; i++)
			expect_told(b, i, "gone");
		for (uint32_t i = 0; i < cases[c].world; i++)
			if (!(cases[c].left >> i & 1))
				jobs_gone(b->jobs, b->workers[i].peer, "reset");
		for (uint32_t i = 0; i < cases[c].world; i++)
			if (cases[c].left >> i & 1)
				stay(b, i,
				     count_of(i, cases[c].left) == 0
				             ? 5
				             : 4); /* the first has lost another one before */
		for (uint32_t i = 0; i < cases[c].world; i++) {
			if (!(cases[c].left >> i & 1))
				continue;
			if (cases[c].may)
				expect_next(b, i, count++,
				            (uint32_t)__builtin_popcount(cases[c].left), 5, name);
			else
				expect_none(b, i, "no majority");
		}
		bench_close(b);
	}
	members = 4;
	by_majority = false;
}

/* Of two names for those who follow a membership an aggregator takes the first, its own included. */
static void test_one_successor(void **state)
{
	static const char other[] = "job/next.0000000000000007",
			  again[] = "job/again.0000000000000007";
	char name[CONTROL_JOB_BYTES] = "";
	struct bench *b = members_open();
	uint64_t token;

	(void)state;
	for (uint32_t i = 0; i < 3; i++)
		join(b, i, "job", i, 3);
	for (uint32_t i = 0; i < 3; i++)
		token = expect_line(b, i, CONTROL_WELCOME)->group_token;
	/* It is here: whoever says that all aggregators have been restarted errs. */
	come(b, 3, again, 0, 3, token);
	assert_non_null(strstr(expect_end(b, 3, "running", 0)->text, "the job is here"));
	jobs_gone(b->jobs, b->workers[1].peer, "reset");
	expect_told(b, 0, "lost");
	expect_told(b, 2, "lost");
	come(b, 3, again, 0, 3, token);
	expect_end(b, 3, "running", 0);
	stay(b, 0, 0);
	stay(b, 2, 0);
	expect_next(b, 0, 0, 2, 0, name);
	expect_next(b, 2, 1, 2, 0, name);
	come(b, 3, again, 0, 3, token);
	assert_non_null(strstr(expect_end(b, 3, "running", 0)->text, "others of your last one"));
	come(b, 3, other, 0, 3, token);
	expect_end(b, 3, "running", 0);
	come(b, 0, name, 0, 2, token);
	expect_silence(b, 0);

	/* Another aggregator's name comes first. */
	for (uint32_t i = 4; i < 7; i++)
		join(b, i, "job/2", i - 4, 3);
	for (uint32_t i = 4; i < 7; i++)
		token = expect_line(b, i, CONTROL_WELCOME)->group_token;
	come(b, 3, other, 0, 3, token);
	expect_silence(b, 3);
	jobs_gone(b->jobs, b->workers[4].peer, "reset");
	expect_told(b, 5, "lost");
	expect_told(b, 6, "lost");
	stay(b, 5, 1);
	stay(b, 6, 1);
	expect_none(b, 5, "others have gone on");
	expect_none(b, 6, "others have gone on");
	bench_close(b);
}

/* Rank 1 of two is lost, and the other continues: it is told the name of the next membership. */
static void expect_continues(struct bench *b, const char *job, char name[CONTROL_JOB_BYTES])
{
	name[0] = '\0';
	jobs_gone(b->jobs, b->workers[1].peer, "reset");
	expect_told(b, 0, "lost");
	stay(b, 0, 0);
	expect_next(b, 0, 0, 1, 0, name);
	assert_int_equal(strncmp(name, job, strcspn(job, "/") + 1), 0);
}

/* The longest name leaves room for the names that follow it. */
static void test_long_names(void **state)
{
	char first[CONTROL_NAME_BYTES + 4] = "", name[CONTROL_JOB_BYTES];
	struct bench *b = members_open();

	(void)state;
	memset(first, 'n', CONTROL_NAME_BYTES - 1);
	strcat(first, "/one");
	job_running(b, 0, first, 2);
	expect_continues(b, first, name);
	assert_int_equal(strlen(name), CONTROL_NAME_BYTES - 1 + sizeof("/next.") - 1 + 16);
	come(b, 0, name, 0, 1, message_name_hash(first));
	expect_line(b, 0, CONTROL_WELCOME);
	bench_close(b);
}

/* What follows a membership is said by workers of its own job alone, and only by those that are admitted. */
static void test_other_names(void **state)
{
	static const char one[] = "job/next.1", two[] = "job/next.2";
	char name[CONTROL_JOB_BYTES];
	struct bench *b = members_open();

	(void)state;
	job_running(b, 0, one, 2);
	come(b, 2, "evil/next.9", 0, 2, message_name_hash(one));
	come(b, 3, "jo/next.9", 0, 2, message_name_hash(one));
	say_kind(b, 3, CONTROL_LEAVE);
	come(b, 3, one, 1, 2, 77);
	expect_end(b, 3, "rank", 0);
	come(b, 3, "job/next.9", 0, 5, message_name_hash(one));
	expect_end(b, 3, "world", 0);
	expect_continues(b, one, name);
	come(b, 4, "foul/next.8", 0, 2, message_name_hash(one));
	say_kind(b, 4, CONTROL_LEAVE);
	assert_int_equal(totals_of(b).jobs_continued, 0);
	come(b, 0, name, 0, 2, message_name_hash(one));
	assert_int_equal(totals_of(b).jobs_continued, 1);
	/* It forms: nobody else can have ended it. */
	come(b, 3, "evil/next.9", 1, 2, message_name_hash(name));
	expect_line(b, 2, CONTROL_WELCOME);
	come(b, 1, name, 1, 2, message_name_hash(one));
	expect_line(b, 0, CONTROL_WELCOME);
	assert_int_equal(totals_of(b).jobs_continued, 1);
	/* Rank 0 is taken, whatever comes after what; and 77 has no successor yet. */
	come(b, 4, name, 0, 2, 77);
	expect_end(b, 4, "rank", 0);
	come(b, 4, two, 0, 2, 77);
	expect_silence(b, 4);
	bench_close(b);
}

/* However many memberships somebody else has, the successors of this job's are remembered. */
static void test_many_successions(void **state)
{
	static const char one[] = "job/next.1";
	char name[CONTROL_JOB_BYTES], evil[CONTROL_JOB_BYTES];
	struct bench *b = members_open();

	(void)state;
	job_running(b, 0, one, 2);
	expect_continues(b, one, name);
	for (uint32_t i = 0; i < 3000; i++) {
		snprintf(evil, sizeof(evil), "evil%u/next.%u", i % 7, i);
		come(b, 2, evil, 0, 2, 1 + i);
		expect_silence(b, 2);
		jobs_gone(b->jobs, b->workers[2].peer, "reset");
	}
	come(b, 0, one, 0, 2, 0);
	assert_non_null(strstr(expect_end(b, 0, "running", 0)->text, "it is over"));
	come(b, 2, "evil3/next.x", 0, 2, 3000); /* and its own last ones */
	assert_non_null(strstr(expect_end(b, 2, "running", 0)->text, "others of your last one"));
	bench_close(b);
}

/* A restarted aggregator knows nothing of memberships: all members have to come back. */
static void test_restarted(void **state)
{
	static const char next[] = "job/next.0000000000000007",
			  again[] = "job/again.0000000000000007";
	struct bench *b = members_open();

	(void)state;
	job_running(b, 0, again, 2);
	jobs_gone(b->jobs, b->workers[0].peer, "reset");
	expect_told(b, 1, "lost"); /* all have come: from now on it is like any other */
	for (uint32_t i = 2; i < 4; i++)
		come(b, i, i == 2 ? next : "other/again.1", 0, 2, i);
	wait(b, 4, 0xc);
	expect_told(b, 2, "join_timeout");
	expect_silence(b, 3);
	stay(b, 2, 0);
	expect_none(b, 2, "has been restarted");
	wait(b, 6, 0x8);
	expect_end(b, 3, "join_timeout", 2);
	bench_close(b);
}

/* ---- aggregators that end and return ---- */

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_successor),     cmocka_unit_test(test_majority),
		cmocka_unit_test(test_one_successor),    cmocka_unit_test(test_restarted),
		cmocka_unit_test(test_other_names),      cmocka_unit_test(test_long_names),
		cmocka_unit_test(test_many_successions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
