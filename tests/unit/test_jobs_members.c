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

/* Rank 1 of four is lost, the others want to continue. */
static void shrink(struct bench *b, const char *job, char name[CONTROL_JOB_BYTES])
{
	name[0] = '\0';
	job_running(b, 0, job, 4);
	jobs_gone(b->jobs, b->workers[1].peer, "reset");
	for (uint32_t i = 0; i < 4; i++)
		if (i != 1)
			expect_told(b, i, "lost");
	stay(b, 3, 0);
	stay(b, 0, 0);
	assert_int_equal(totals_of(b).jobs, 1);
	expect_silence(b, 0);
	stay(b, 2, 0);
	expect_next(b, 0, 0, 3, 0, name);
	expect_next(b, 2, 1, 3, 0, name);
	expect_next(b, 3, 2, 3, 0, name);
	assert_int_equal(strncmp(name, "job/next.", 9), 0);
	assert_int_equal(strlen(name), 9 + 16);
	assert_int_equal(totals_of(b).jobs, 0);
	assert_int_equal(totals_of(b).bytes, 0);
	assert_int_equal(b->attached_count, 0);
}

static void test_shrink(void **state)
{
	char name[CONTROL_JOB_BYTES], before[CONTROL_JOB_BYTES];
	struct bench *b = members_open();

	(void)state;
	shrink(b, "job", before);
	shrink(b, "job/7", name);
	assert_string_not_equal(before, name);
	bench_close(b);
}

/* While some are awaited others die, say other things, or are silent; who is busy is waited for. */
static void test_roll(void **state)
{
	char name[CONTROL_JOB_BYTES] = "";
	struct bench *b = members_open();
	struct control_message lost = {.kind = CONTROL_ABORT, .code = "lost", .text = "rank 1"};

	(void)state;
	job_running(b, 0, "job", 4);
	say(b, 0, &lost); /* by another aggregator's word: rank 1 has not been seen to die here */
	for (uint32_t i = 0; i < 4; i++)
		expect_told(b, i, "lost");
	assert_int_equal(b->attached_count, 0);
	assert_int_equal(totals_of(b).bytes, 0);
	say(b, 2, &lost);
	say_kind(b, 2, CONTROL_READY);
	say_kind(b, 2, CONTROL_MOVE);
	stay(b, 0, 0);
	stay(b, 2, 0);
	stay(b, 2, 0);
	for (uint32_t i = 0; i < 4; i++)
		wait(b, 1, 0xd); /* rank 3 is alive, rank 1 is not */
	assert_true(b->workers[1].closed);
	wait(b, 8, 0xd);
	assert_int_equal(totals_of(b).jobs, 1);
	stay(b, 3, 0);
	expect_next(b, 0, 0, 3, 0, name);
	expect_next(b, 2, 1, 3, 0, name);
	expect_next(b, 3, 2, 3, 0, name);
	bench_close(b);
}

/* Nobody waits for ever for one that lives and does not want; nobody wants: nothing is left. */
static void test_patience(void **state)
{
	char name[CONTROL_JOB_BYTES] = "";

	(void)state;
	for (uint32_t wants = 0; wants < 2; wants++) {
		struct bench *b = members_open();

		job_running(b, 0, "job", 3);
		jobs_gone(b->jobs, b->workers[1].peer, "reset");
		expect_told(b, 0, "lost");
		expect_told(b, 2, "lost");
		if (wants)
			stay(b, 0, 0);
		wait(b, 59, 5);
		assert_int_equal(totals_of(b).jobs, 1);
		wait(b, 1, 5);
		assert_int_equal(totals_of(b).jobs, 0);
		assert_int_equal(totals_of(b).peers, 0);
		if (wants)
			expect_next(b, 0, 0, 1, 0, name);
		bench_close(b);
	}
}

/* One that gives up meanwhile does not count; another job of that name may begin. */
static void test_gives_up(void **state)
{
	char name[CONTROL_JOB_BYTES] = "";
	struct bench *b = members_open();
	struct control_message abort = {
		.kind = CONTROL_ABORT, .code = "aborted", .text = "no more"};

	(void)state;
	job_running(b, 0, "job", 3);
	jobs_gone(b->jobs, b->workers[1].peer, "reset");
	expect_told(b, 0, "lost");
	expect_told(b, 2, "lost");
	job_running(b, 3, "job", 2);
	assert_int_equal(totals_of(b).jobs, 2);
	say(b, 2, &abort);
	assert_true(b->workers[2].closed);
	stay(b, 0, 0);
	expect_next(b, 0, 0, 1, 0, name);
	assert_int_equal(totals_of(b).jobs, 1);
	expect_silence(b, 3);
	bench_close(b);
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

/*
 * Others may be accepted to what these are not: then it takes a majority of that one as well, newcomers included. None
 * come to what a majority begins.
 */
static void test_named(void **state)
{
	static const struct {
		uint32_t of[4],
			named[4]; /* of workers that may be newcomers; named 0: it is gone */
		bool may;
	} cases[] = {
		{{3, 3, 3, 0}, {4, 4, 4, 4}, true},  {{3, 3, 0, 0}, {4, 4, 0, 0}, true},
		{{0, 3, 3, 0}, {0, 4, 4, 0}, false}, {{0, 3, 3, 0}, {0, 4, 4, 4}, true},
		{{3, 0, 0, 0}, {4, 0, 0, 4}, false}, {{2, 0, 0, 0}, {4, 0, 4, 4}, true},
		{{0, 2, 0, 0}, {0, 4, 4, 4}, false}, {{3, 3, 3, 0}, {3, 3, 3, 5}, false},
		{{3, 3, 3, 0}, {8, 8, 8, 0}, false}, {{3, 3, 3, 0}, {8, 8, 8, 8}, true},
	};

	(void)state;
	by_majority = true;
	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		char name[CONTROL_JOB_BYTES] = "";
		struct bench *b = members_open();
		uint32_t count = 0, rank = 0, last = 3;

		job_running(b, 0, "job", 4);
		come(b, 6, "job", 0, 0, 0); /* somebody at the door */
		while (cases[c].named[last] == 0)
			last--;
		say(b, last,
		    &(struct control_message){
			    .kind = CONTROL_ABORT, .code = "gone", .text = "it is gone"});
		for (uint32_t i = 0; i < 4; i++) {
			const struct control_message stay = {.kind = CONTROL_STAY,
			                                     .fewer = true,
			                                     .most = 3,
			                                     .of = cases[c].of[i],
			                                     .first = i == 0,
			                                     .named = cases[c].named[i]};

			b->workers[i].read = b->workers[i].written;
			count += stay.named > 0;
			if (stay.named > 0)
				say(b, i, &stay);
			else
				jobs_gone(b->jobs, b->workers[i].peer, "reset");
		}
		for (uint32_t i = 0; i < 4; i++) {
			if (cases[c].named[i] == 0)
				continue;
			if (cases[c].may)
				expect_next(b, i, rank++, count, 0, name);
			else
				expect_none(b, i, "no majority");
		}
		bench_close(b);
	}
	by_majority = false;
}

/* If one of them was accepted everywhere, all of the membership count, newcomers too: else they are none of any. */
static void test_newcomers_count(void **state)
{
	(void)state;
	for (int fewer = 0; fewer < 2; fewer++) {
		struct control_message stay = {.kind = CONTROL_STAY, .fewer = fewer != 0, .of = 3};
		char name[CONTROL_JOB_BYTES] = "";
		struct bench *b = members_open();

		by_majority = true;
		job_running(b, 0, "job", 3);
		jobs_gone(b->jobs, b->workers[0].peer, "reset");
		expect_told(b, 1, "lost");
		expect_told(b, 2, "lost");
		say(b, 1, &stay);
		stay.fewer = true;
		stay.of = 0;
		say(b, 2, &stay);
		for (uint32_t i = 1; i < 3; i++) {
			if (fewer)
				expect_none(b, i, "no majority");
			else
				expect_next(b, i, i - 1, 2, 0, name);
		}
		bench_close(b);
	}
	by_majority = false;
}

/* In such a membership the dead are not waited for long, and the rest continues; who comes then comes too late. */
static void test_dies_meanwhile(void **state)
{
	char name[CONTROL_JOB_BYTES], next[CONTROL_JOB_BYTES] = "";
	struct bench *b = members_open();

	(void)state;
	shrink(b, "job", name);
	come(b, 0, name, 0, 3, 77);
	come(b, 2, name, 2, 3, 0); /* it was new */
	stay(b, 0, 0);             /* elsewhere it is over */
	wait(b, 3, 5);
	assert_int_equal(totals_of(b).jobs, 1);
	wait(b, 1, 5);
	expect_told(b, 0, "join_timeout");
	expect_told(b, 2, "join_timeout");
	stay(b, 2, 0);
	expect_next(b, 0, 0, 2, 0, next);
	expect_next(b, 2, 1, 2, 0, next);
	come(b, 1, name, 1, 3, 77);
	assert_non_null(strstr(expect_end(b, 1, "running", 0)->text, "it is over"));
	/* All have come, but one knows that it is over. */
	come(b, 0, next, 0, 2, message_name_hash(name));
	stay(b, 0, 0);
	come(b, 2, next, 1, 2, message_name_hash(name));
	expect_told(b, 0, "join_timeout");
	expect_told(b, 2, "join_timeout");
	bench_close(b);
}

/*
 * If only newcomers have come, those of before may not know that there is such a membership, and may begin the one
 * before once more: so these do not go on.
 */
static void test_newcomers_alone(void **state)
{
	char name[CONTROL_JOB_BYTES];
	struct bench *b = members_open();

	(void)state;
	shrink(b, "job", name);
	come(b, 1, name, 1, 3, 0);
	come(b, 2, name, 2, 3, 0);
	stay(b, 1, 0); /* elsewhere it is over */
	wait(b, 3, 6);
	wait(b, 1, 6);
	for (uint32_t i = 1; i < 3; i++)
		expect_told(b, i, "join_timeout");
	stay(b, 2, 0);
	expect_none(b, 1, "of its members of before none has come");
	expect_none(b, 2, "of its members of before none has come");
	bench_close(b);
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

static void stay_agreed(struct bench *b, uint32_t i, uint64_t agreed, bool fewer)
{
	struct control_message message = {.kind = CONTROL_STAY,
	                                  .without = 8,
	                                  .agreed = agreed,
	                                  .most = 9,
	                                  .fewer = fewer,
	                                  .of = 3,
	                                  .first = i == 0};

	say(b, i, &message);
}

/* Those who are there are told at once; they, and nobody else, may begin something new. */
static void test_drains(void **state)
{
	char name[CONTROL_JOB_BYTES] = "";
	struct bench *b = members_open();

	(void)state;
	job_running(b, 0, "job", 2);
	jobs_drain(b->jobs);
	for (uint32_t i = 0; i < 2; i++)
		assert_true(expect_line(b, i, CONTROL_PING)->drains);
	wait(b, 1, 3);
	tick(b, 1000000);
	for (uint32_t i = 0; i < 2; i++)
		assert_true(expect_line(b, i, CONTROL_PING)->drains);
	assert_true(connect_from(b, 2, 0x0a000003));
	assert_true(expect_line(b, 2, CONTROL_HELLO)->drains);
	say(b, 2, &(struct control_message){.kind = CONTROL_LEAVE});
	join(b, 2, "job2", 0, 1);
	expect_end(b, 2, "draining", 0);
	join(b, 2, "job/3", 0, 1);
	expect_end(b, 2, "draining", 0);
	stay_agreed(b, 0, 1, false);
	stay_agreed(b, 1, 1, false);
	assert_true(b->workers[0].inbox[b->workers[0].read % INBOX_MAX].drains);
	expect_next(b, 0, 0, 2, 1, name);
	expect_next(b, 1, 1, 2, 1, name);
	assert_int_equal(totals_of(b).jobs + totals_of(b).jobs_failed, 0);
	/* A death meanwhile does not end it. */
	job_running(b, 0, "job/next.5", 2);
	for (uint32_t i = 0; i < 2; i++)
		assert_true(expect_line(b, i, CONTROL_PING)->drains);
	jobs_gone(b->jobs, b->workers[1].peer, "reset");
	expect_told(b, 0, "lost");
	stay(b, 0, 0);
	assert_false(b->workers[0].inbox[b->workers[0].read % INBOX_MAX].drains);
	name[0] = '\0';
	expect_next(b, 0, 0, 1, 0, name);
	bench_close(b);
}

/* It holds only what all have agreed on, and only if all of them are there, and none lacks an aggregator. */
static void test_agreed(void **state)
{
	(void)state;
	for (uint32_t way = 0; way < 4; way++) {
		char name[CONTROL_JOB_BYTES] = "";
		struct bench *b = members_open();

		by_majority = way == 1;
		job_running(b, 0, "job", 3);
		stay_agreed(b, 0, 5, way == 1);
		stay_agreed(b, 1, 5, false);
		if (way == 2) {
			jobs_gone(b->jobs, b->workers[2].peer, "reset");
			expect_line(b, 0, CONTROL_FAILED);
			expect_line(b, 1, CONTROL_FAILED);
		} else {
			stay_agreed(b, 2, way == 3 ? 4 : 5, false);
		}
		for (uint32_t i = 0; i < (way == 2 ? 2 : 3); i++) {
			assert_false(b->workers[i].inbox[b->workers[i].read % INBOX_MAX].drains);
			expect_next(b, i, i, way == 2 ? 2 : 3, way == 0 ? 5 : 8, name);
		}
		bench_close(b);
	}
	by_majority = false;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shrink),           cmocka_unit_test(test_roll),
		cmocka_unit_test(test_patience),         cmocka_unit_test(test_gives_up),
		cmocka_unit_test(test_no_successor),     cmocka_unit_test(test_majority),
		cmocka_unit_test(test_newcomers_count),  cmocka_unit_test(test_named),
		cmocka_unit_test(test_dies_meanwhile),   cmocka_unit_test(test_one_successor),
		cmocka_unit_test(test_restarted),        cmocka_unit_test(test_drains),
		cmocka_unit_test(test_agreed),           cmocka_unit_test(test_other_names),
		cmocka_unit_test(test_long_names),       cmocka_unit_test(test_newcomers_alone),
		cmocka_unit_test(test_many_successions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
