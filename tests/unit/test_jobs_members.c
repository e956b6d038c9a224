// SPDX-License-Identifier: BSD-3-Clause
/* test_jobs_members.c - who continues when members or aggregators are lost, and that a membership has one successor */

#include "tests/unit/test_jobs.h"

static struct bench *usual_open(void)
{
	struct jobs_config config = config_usual();

	join_features = CONTROL_FEATURES;
	return bench_open(&config);
}

static void tick(struct bench *b, uint64_t us)
{
	b->now_us += us;
	jobs_tick(b->jobs, b->now_us);
	jobs_check(b->jobs);
}

/* For so many seconds; these are alive, as bits. */
static void wait(struct bench *b, uint32_t seconds, uint32_t alive)
{
	for (; seconds > 0; seconds--) {
		tick(b, 1000000);
		for (uint32_t i = 0; alive >> i != 0; i++) {
			struct worker *w = &b->workers[i];

			while (w->read != w->written &&
			       w->inbox[w->read % INBOX_MAX].kind == CONTROL_PING)
				w->read++;
			if (alive >> i & 1 && !w->closed)
				say_kind(b, i, CONTROL_PING);
		}
	}
}

/* The job has ended for this worker, and its connection stands. */
static void expect_told(struct bench *b, uint32_t i, const char *code)
{
	const struct control_message *m = expect_line(b, i, CONTROL_FAILED);

	assert_string_equal(m->code, code);
	assert_false(b->workers[i].closed);
}

static uint32_t members = 4; /* of the membership that these workers come from */

static void stay(struct bench *b, uint32_t i, uint64_t without)
{
	struct control_message message = {.kind = CONTROL_STAY,
	                                  .without = without,
	                                  .fewer = without != 0,
	                                  .of = members,
	                                  .first = i == 0};

	say(b, i, &message);
}

/* Out: the name of the membership, "" for none. */
static void expect_next(struct bench *b, uint32_t i, uint32_t rank, uint32_t world,
                        uint64_t without, char name[CONTROL_NAME_BYTES])
{
	const struct control_message *m = expect_line(b, i, CONTROL_NEXT);

	assert_int_equal(m->next_rank, rank);
	assert_int_equal(m->next_world, world);
	assert_true(m->without == without);
	assert_true(b->workers[i].closed);
	if (name[0] != '\0')
		assert_string_equal(m->next, name);
	strcpy(name, m->next);
}

static void expect_none(struct bench *b, uint32_t i, const char *why)
{
	const struct control_message *m = expect_line(b, i, CONTROL_NEXT);

	assert_string_equal(m->next, "");
	assert_non_null(strstr(m->text, why));
	assert_true(b->workers[i].closed);
}

/* Rank 1 of four is lost, the others want to continue. */
static void shrink(struct bench *b, const char *job, char name[CONTROL_NAME_BYTES])
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
	char name[CONTROL_NAME_BYTES], before[CONTROL_NAME_BYTES];
	struct bench *b = usual_open();

	(void)state;
	shrink(b, "job", before);
	shrink(b, "job/7", name);
	assert_string_not_equal(before, name);
	bench_close(b);
}

/* While some are awaited others die, say other things, or are silent; who is busy is waited for. */
static void test_roll(void **state)
{
	char name[CONTROL_NAME_BYTES] = "";
	struct bench *b = usual_open();
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
	char name[CONTROL_NAME_BYTES] = "";

	(void)state;
	for (uint32_t wants = 0; wants < 2; wants++) {
		struct bench *b = usual_open();

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
	char name[CONTROL_NAME_BYTES] = "";
	struct bench *b = usual_open();
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
	struct bench *b = usual_open();

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
	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		char name[CONTROL_NAME_BYTES] = "";
		struct control_message gone = {
			.kind = CONTROL_ABORT, .code = "gone", .text = "it is gone"};
		struct bench *b = usual_open();
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
}

/* Worker `i` joins, and says from where it comes. */
static void come(struct bench *b, uint32_t i, const char *job, uint32_t rank, uint32_t world,
                 uint64_t after)
{
	struct control_message message = join_of(job, rank, world);

	message.after = after;
	connect_worker(b, i);
	say(b, i, &message);
}

/* In such a membership the dead are not waited for long, and the rest continues; who comes then comes too late. */
static void test_dies_meanwhile(void **state)
{
	char name[CONTROL_NAME_BYTES], next[CONTROL_NAME_BYTES] = "";
	struct bench *b = usual_open();

	(void)state;
	shrink(b, "job", name);
	come(b, 0, name, 0, 3, 0);
	come(b, 2, name, 2, 3, 0);
	stay(b, 0, 0); /* elsewhere it is over */
	wait(b, 3, 5);
	assert_int_equal(totals_of(b).jobs, 1);
	wait(b, 1, 5);
	expect_told(b, 0, "join_timeout");
	expect_told(b, 2, "join_timeout");
	stay(b, 2, 0);
	expect_next(b, 0, 0, 2, 0, next);
	expect_next(b, 2, 1, 2, 0, next);
	come(b, 1, name, 1, 3, 0);
	assert_non_null(strstr(expect_end(b, 1, "running", 0)->text, "it is over"));
	/* All have come, but one knows that it is over. */
	come(b, 0, next, 0, 2, message_name_hash(name));
	stay(b, 0, 0);
	come(b, 2, next, 1, 2, message_name_hash(name));
	expect_told(b, 0, "join_timeout");
	expect_told(b, 2, "join_timeout");
	bench_close(b);
}

/* Of two names for those who follow a membership an aggregator takes the first, its own included. */
static void test_one_successor(void **state)
{
	static const char other[] = "job/next.0000000000000007",
			  again[] = "job/again.0000000000000007";
	char name[CONTROL_NAME_BYTES] = "";
	struct bench *b = usual_open();
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

/* A restarted aggregator knows nothing of memberships: all members have to come back. */
static void test_restarted(void **state)
{
	static const char next[] = "job/next.0000000000000007",
			  again[] = "job/again.0000000000000007";
	struct bench *b = usual_open();

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

/* ---- newcomers ---- */

static void knock(struct bench *b, uint32_t i, const char *job)
{
	struct control_message message = join_of(job, 0, 0);

	connect_worker(b, i);
	say(b, i, &message);
}

static void stay_and_admit(struct bench *b, uint32_t i, uint32_t most)
{
	struct control_message message = {.kind = CONTROL_STAY, .most = most, .of = 2};

	say(b, i, &message);
}

static void expect_waiting(struct bench *b, uint32_t i, uint32_t count)
{
	assert_int_equal(expect_line(b, i, CONTROL_PING)->waiting, count);
}

/* Members hear at once that somebody waits; when all want to, they continue with those that have waited longest. */
static void test_admit(void **state)
{
	char name[CONTROL_NAME_BYTES] = "";
	struct bench *b = usual_open();

	(void)state;
	knock(b, 5, "job");
	expect_silence(b, 5);
	b->now_us += 10;
	job_running(b, 0, "job/3", 2);
	expect_waiting(b, 0, 1);
	expect_waiting(b, 1, 1);
	knock(b, 4, "job");
	knock(b, 3, "other");
	knock(b, 6, "jobs");
	expect_waiting(b, 0, 2);
	expect_waiting(b, 1, 2);
	stay_and_admit(b, 0, 7);
	assert_int_equal(b->attached_count, 2); /* nothing has ended */
	expect_silence(b, 0);
	expect_silence(b, 1);
	stay_and_admit(b, 1, 1);
	expect_next(b, 0, 0, 3, 0, name);
	expect_next(b, 1, 1, 3, 0, name);
	expect_next(b, 5, 2, 3, 0, name);
	expect_silence(b, 4);
	assert_int_equal(totals_of(b).jobs, 0);
	assert_int_equal(totals_of(b).jobs_failed, 0);
	/* The one that still waits is told of from the next membership's start on, also when it goes. */
	job_running(b, 0, name, 3);
	expect_waiting(b, 0, 1);
	expect_waiting(b, 1, 1);
	expect_waiting(b, 2, 1);
	jobs_gone(b->jobs, b->workers[4].peer, "reset");
	tick(b, 1000000);
	expect_waiting(b, 0, 0);
	bench_close(b);
}

/* Two members and two that were ranks `one` and `other` of them: which ranks do they all get? */
static void expect_ranks(uint32_t one, uint32_t other, const uint32_t want[4])
{
	struct control_message back = join_of("job", one, 0);
	char name[CONTROL_NAME_BYTES] = "";
	struct bench *b = usual_open();

	connect_worker(b, 4);
	say(b, 4, &back);
	b->now_us += 10;
	back.rank = other;
	connect_worker(b, 5);
	say(b, 5, &back);
	job_running(b, 0, "job/3", 2);
	expect_waiting(b, 0, 2);
	expect_waiting(b, 1, 2);
	stay_and_admit(b, 0, 7);
	stay_and_admit(b, 1, 7);
	expect_next(b, 0, want[0], 4, 0, name);
	expect_next(b, 1, want[1], 4, 0, name);
	expect_next(b, 4, want[2], 4, 0, name);
	expect_next(b, 5, want[3], 4, 0, name);
	bench_close(b);
}

/* A newcomer may found the job while no membership of it is here, not even one that ends. */
static void test_first(void **state)
{
	struct bench *b = usual_open();

	(void)state;
	join(b, 0, "job/first.1", 0, 1);
	expect_line(b, 0, CONTROL_WELCOME);
	join(b, 1, "job/first.2", 0, 1);
	assert_non_null(strstr(expect_end(b, 1, "running", 0)->text, "the job is here"));
	join(b, 2, "jo/first.1", 0, 1);
	expect_line(b, 2, CONTROL_WELCOME);
	join(b, 3, "job2/first.1", 0, 1);
	expect_line(b, 3, CONTROL_WELCOME);
	jobs_gone(b->jobs, b->workers[0].peer, "reset");
	job_running(b, 4, "job/2", 2);
	jobs_gone(b->jobs, b->workers[4].peer, "reset");
	expect_told(b, 5, "lost");
	join(b, 6, "job/first.3", 0, 1);
	expect_end(b, 6, "running", 0);
	say_kind(b, 5, CONTROL_LEAVE);
	join(b, 7, "job/first.3", 0, 1);
	expect_line(b, 7, CONTROL_WELCOME);
	bench_close(b);
}

/* On an aggregator that has been restarted either the members continue, or the founder. */
static void test_founded_anew(void **state)
{
	struct bench *b = usual_open();

	(void)state;
	join(b, 0, "job/first.1", 0, 1);
	expect_line(b, 0, CONTROL_WELCOME);
	come(b, 1, "job/again.1", 0, 2, 1);
	assert_non_null(strstr(expect_end(b, 1, "running", 0)->text, "the job is here"));
	come(b, 2, "other/again.1", 0, 2, 1);
	come(b, 3, "other/again.1", 1, 2, 1);
	expect_line(b, 3, CONTROL_WELCOME);
	join(b, 4, "other/first.1", 0, 1);
	expect_end(b, 4, "running", 0);
	bench_close(b);
}

/* Who comes back has its rank again, and so have the others; but rank 0 is a member's, and no rank two newcomers'. */
static void test_own_rank(void **state)
{
	(void)state;
	expect_ranks(0, 0, (uint32_t[]){0, 1, 2, 3});
	expect_ranks(1, 2, (uint32_t[]){0, 3, 1, 2});
	expect_ranks(3, 1, (uint32_t[]){0, 2, 3, 1});
	expect_ranks(1, 1, (uint32_t[]){0, 2, 1, 3});
	expect_ranks(4, 9, (uint32_t[]){0, 1, 2, 3});
}

/* Those who continue after a loss have not asked for more. A newcomer must live, say nothing else, and be well spoken. */
static void test_door(void **state)
{
	char name[CONTROL_NAME_BYTES] = "";
	struct jobs_worker worker;
	struct jobs_view view;
	struct bench *b = usual_open();
	struct control_message wrong = join_of("job/2", 0, 0),
			       bye = {.kind = CONTROL_ABORT, .code = "aborted", .text = "no more"};

	(void)state;
	connect_worker(b, 3);
	say(b, 3, &wrong);
	assert_non_null(strstr(expect_end(b, 3, "world", 0)->text, "is a membership"));
	knock(b, 3, "job");
	say_kind(b, 3, CONTROL_READY);
	assert_non_null(strstr(expect_end(b, 3, "protocol", 0)->text, "not admitted"));
	knock(b, 3, "job");
	say(b, 3, &bye);
	assert_true(b->workers[3].closed);
	expect_silence(b, 3);
	knock(b, 3, "job");
	knock(b, 4, "job");
	wait(b, 12, 8);
	assert_true(b->workers[4].closed && !b->workers[3].closed); /* it was silent */
	b->workers[3].read = b->workers[3].written;
	job_running(b, 0, "job", 3);
	for (uint32_t i = 0; i < 3; i++)
		expect_waiting(b, i, 1);
	assert_true(jobs_view(b->jobs, 0, &view) && view.newcomers == 1);
	stay_and_admit(b, 0, 1);
	jobs_gone(b->jobs, b->workers[1].peer, "reset");
	expect_told(b, 0, "lost");
	expect_told(b, 2, "lost");
	assert_true(jobs_view(b->jobs, 0, &view));
	assert_string_equal(view.state, "ending");
	jobs_worker(b->jobs, 0, 0, &worker);
	assert_string_equal(worker.state, "stays");
	jobs_worker(b->jobs, 0, 1, &worker);
	assert_string_equal(worker.state, "left");
	jobs_worker(b->jobs, 0, 2, &worker);
	assert_string_equal(worker.state, "awaited");
	stay(b, 2, 0);
	expect_next(b, 0, 0, 2, 0, name);
	expect_next(b, 2, 1, 2, 0, name);
	expect_silence(b, 3);
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
	char name[CONTROL_NAME_BYTES] = "";
	struct bench *b = usual_open();

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
		char name[CONTROL_NAME_BYTES] = "";
		struct bench *b = usual_open();

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
}

/* ---- what an operator wants ---- */

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
	struct bench *b = usual_open();
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

/* A pause does not outlive its job for ever, and is no other job's. */
static void test_pause_ends(void **state)
{
	struct bench *b = usual_open();

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

/* It hears why, as the others do, who continue. */
static void test_expel(void **state)
{
	char name[CONTROL_NAME_BYTES] = "";
	struct bench *b = usual_open();

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
		cmocka_unit_test(test_shrink),         cmocka_unit_test(test_roll),
		cmocka_unit_test(test_patience),       cmocka_unit_test(test_gives_up),
		cmocka_unit_test(test_no_successor),   cmocka_unit_test(test_majority),
		cmocka_unit_test(test_dies_meanwhile), cmocka_unit_test(test_one_successor),
		cmocka_unit_test(test_restarted),      cmocka_unit_test(test_admit),
		cmocka_unit_test(test_door),           cmocka_unit_test(test_own_rank),
		cmocka_unit_test(test_drains),         cmocka_unit_test(test_agreed),
		cmocka_unit_test(test_pause),          cmocka_unit_test(test_pause_ends),
		cmocka_unit_test(test_expel),          cmocka_unit_test(test_first),
		cmocka_unit_test(test_founded_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
