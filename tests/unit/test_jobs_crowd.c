// SPDX-License-Identifier: BSD-3-Clause
/* test_jobs_crowd.c - strangers who take up connections and jobs: others get in all the same */

#include <unistd.h>

#include "tests/unit/test_jobs.h"

#define STRANGER 0x0a0000ff
#define OTHER 0x0a0000fe

/* With so many keys, places for jobs and for connections. */
static struct bench *keyed_open(uint32_t keys, uint32_t jobs_max, uint32_t peers_max)
{
	struct jobs_config config = config_usual();

	config.keys = keys;
	config.jobs_max = jobs_max;
	config.peers_max = peers_max;
	return bench_open(&config);
}

#define CROWD_TEST(name, keys, jobs_max, peers_max)                                                \
	TEST_ON(name, struct bench *, b, keyed_open(keys, jobs_max, peers_max), bench_close(b))

static void connect_idle(struct bench *b, uint32_t i, uint32_t ip)
{
	assert_true(connect_from(b, i, ip));
	if (b->config.keys == 0)
		expect_line(b, i, CONTROL_HELLO);
}

/* Worker `i` joins, from this address. */
static void join_from(struct bench *b, uint32_t i, uint32_t ip, const char *job, uint32_t world)
{
	struct control_message message = join_of(job, 0, world);

	connect_idle(b, i, ip);
	say(b, i, &message);
}

/* ---- connections ---- */

/* It is the oldest of those of the one address that has most. */
BENCH_TEST(oldest_of_most)
{
	connect_idle(b, 0, OTHER);
	for (uint32_t i = 1; i < 6; i++)
		connect_idle(b, i, STRANGER);
	connect_idle(b, 6, OTHER);
	expect_end(b, 1, "connections", 0);
	connect_idle(b, 7, STRANGER);
	expect_end(b, 2, "connections", 0);
	assert_int_equal(totals_of(b).peers, 6);
	assert_int_equal(totals_of(b).refused[11], 2);
	assert_string_equal(jobs_refusals[11], "connections");
	for (uint32_t i = 0; i < 8; i++) {
		struct control_message message = join_of("job", i, 4);

		if (i % 6 != 0)
			continue;
		say(b, i, &message); /* 0 and 6: still here, refused for their ranks alone */
		if (i == 6)
			expect_end(b, i, "rank", 0);
		else
			expect_silence(b, i);
	}
}

/* Who has joined stays. Who has not goes, even the newcomer itself when there is no other. */
BENCH_TEST(joined_stay)
{
	job_running(b, 0, "one", 3);
	join(b, 3, "two", 0, 3);
	join(b, 4, "two", 1, 3);
	connect_idle(b, 5, OTHER);
	connect_idle(b, 6, STRANGER);
	expect_end(b, 5, "connections", 0);
	assert_true(jobs_crowd_out(b->jobs));
	expect_end(b, 6, "connections", 0);
	assert_false(jobs_crowd_out(b->jobs));
	join(b, 5, "two", 2, 3); /* so many are allowed */
	expect_line(b, 5, CONTROL_WELCOME);
	assert_false(connect_from(b, 6, STRANGER));
	expect_end(b, 6, "connections", 0);
	for (uint32_t i = 0; i < 3; i++)
		expect_silence(b, i);
	jobs_gone(b->jobs, b->workers[1].peer, "reset");
	connect_idle(b, 7, STRANGER);
}

/* Every place is looked after, whichever of them the newcomers have got. */
BENCH_TEST(places)
{
	for (uint32_t i = 0; i < 7; i++)
		connect_idle(b, i, STRANGER);
	expect_end(b, 0, "connections", 0);
	b->now_us += b->config.hello_us;
	jobs_tick(b->jobs, b->now_us);
	for (uint32_t i = 1; i < 7; i++)
		expect_end(b, i, "timeout", 0);
	assert_int_equal(totals_of(b).peers, 0);
}

BENCH_TEST(turned_away)
{
	struct control_message message;
	char *line = jobs_turn_away(b->jobs);
	struct why why;

	assert_non_null(line);
	line[strlen(line) - 1] = '\0';
	assert_int_equal(message_parse(line, &message, &why), 0);
	assert_int_equal(message.kind, CONTROL_FAILED);
	assert_string_equal(message.code, "connections");
	assert_non_null(strstr(message.text, "connects too often"));
	assert_int_equal(totals_of(b).refused[11], 1);
	free(line);
}

/* ---- jobs ---- */

/* One address has opened jobs that nobody else comes to: they give way to others', one by one, down to its share. */
BENCH_TEST(jobs_share)
{
	join_from(b, 0, STRANGER, "s0", 2);
	join_from(b, 1, STRANGER, "s1", 2);
	join_from(b, 2, STRANGER, "s2", 1); /* it waits for datagrams */
	expect_line(b, 2, CONTROL_WELCOME);
	join_from(b, 3, STRANGER, "s3", 2);
	expect_end(b, 3, "jobs", 0); /* its own do not give way to its own */
	join_from(b, 3, OTHER, "o0", 2);
	expect_end(b, 0, "jobs", 2);
	expect_silence(b, 3);
	/* Two of three places are more than half, but the other would have as many. */
	join_from(b, 4, OTHER, "o1", 2);
	expect_end(b, 4, "jobs", 0);
	/* A third one has a right to a place. */
	join_from(b, 4, 77, "t0", 2);
	expect_end(b, 1, "jobs", 2);
	/* Now each has one: a fourth has not. */
	join_from(b, 5, 78, "u0", 2);
	expect_end(b, 5, "jobs", 0);
	expect_silence(b, 2);
	expect_silence(b, 3);
	expect_silence(b, 4);
}

/* Jobs that run are not in question, and do not count. */
BENCH_TEST(running_stay)
{
	for (uint32_t i = 0; i < 2; i++) {
		const char *const names[] = {"r0", "r1"};

		join_from(b, i, STRANGER, names[i], 1);
		expect_running(b, i, 1);
	}
	join_from(b, 2, STRANGER, "s0", 2);
	join_from(b, 3, OTHER, "o0", 2);
	expect_end(b, 3, "jobs", 0);
	for (uint32_t i = 0; i < 3; i++)
		expect_silence(b, i);
	/* A job that has ended is forgotten. */
	jobs_gone(b->jobs, b->workers[2].peer, "reset");
	join_from(b, 3, OTHER, "o0", 2);
	expect_silence(b, 3);
}

/* Nor do they make two that wait too many: those are below its share of all places. */
CROWD_TEST(share_is_of_all, 0, 6, 8)
{
	const char *const names[] = {"r0", "r1", "r2", "r3", "s0", "s1"};

	for (uint32_t i = 0; i < 6; i++) {
		join_from(b, i, STRANGER, names[i], i < 4 ? 1 : 2);
		if (i >= 4)
			continue;
		expect_running(b, i, 1);
	}
	join_from(b, 6, OTHER, "o0", 2);
	expect_end(b, 6, "jobs", 0);
	for (uint32_t i = 0; i < 6; i++)
		expect_silence(b, i);
}

/* ---- keys ---- */

/* Worker `i` joins with the key of a tenant, 'a' to 'c'; it has it, whatever the job's name. */
static void join_with(struct bench *b, uint32_t i, char tenant, const char *job, uint32_t world)
{
	struct control_message message = join_of(job, 0, world);
	char name[CONTROL_NAME_BYTES];

	snprintf(name, sizeof(name), "%.*s", (int)message_name_base(job), job);
	connect_secured(b, i, name, (uint64_t)tenant);
	say(b, i, &message);
}

/* The tenant is the first letter of the job's name. */
static void join_proven(struct bench *b, uint32_t i, const char *job, uint32_t world)
{
	join_with(b, i, job[0], job, world);
}

/* Who waits at a job's door has proved its key, and does not give way to strangers; but they find room. */
CROWD_TEST(newcomers, 2, 3, 6)
{
	join_proven(b, 0, "a", 0);
	for (uint32_t i = 1; i < 8; i++)
		connect_idle(b, i, OTHER - i);
	expect_end(b, 1, "connections", 0);
	expect_end(b, 2, "connections", 0);
	expect_silence(b, 0);
	jobs_end(b->jobs, "all anew");
	/* A tenant with many newcomers loses its own, before it keeps out somebody who has just come. */
	join_proven(b, 0, "a", 0);
	for (uint32_t i = 1; i < 6; i++)
		join_proven(b, i, "b", 0);
	connect_idle(b, 6, STRANGER);
	assert_non_null(strstr(expect_end(b, 1, "connections", 0)->text, "5 newcomers"));
	connect_idle(b, 7, STRANGER);
	expect_end(b, 6, "connections", 0);
	jobs_gone(b->jobs, b->workers[7].peer, "reset");
	join_proven(b, 7, "b", 0);
	assert_true(jobs_crowd_out(b->jobs)); /* for lack of descriptors */
	expect_end(b, 2, "connections", 0);
	expect_silence(b, 0);
}

/* With keys it is the key that counts, not the address. */
CROWD_TEST(jobs_by_key, 2, 3, 6)
{
	for (uint32_t i = 0; i < 5; i++) {
		const char *const names[] = {"a0", "a1", "a2", "a3", "b0"};

		join_proven(b, i, names[i], 2);
	}
	expect_end(b, 3, "jobs", 0); /* tenant a's fourth, from yet another address */
	expect_end(b, 0, "jobs", 2);
	for (uint32_t i = 1; i < 5; i++)
		if (i != 3)
			expect_silence(b, i);
}

/* The jobs of one worker stand for those that run: they wait for datagrams, and do not give way. */
CROWD_TEST(places_are_kept, 3, 7, 8)
{
	/* one for each key, four for whoever comes first */
	const char *const names[] = {"a/0", "a/1", "b0", "b1", "b2", "b3"};

	for (uint32_t i = 0; i < 6; i++) {
		join_proven(b, i, names[i], 1);
		expect_line(b, i, CONTROL_WELCOME);
	}
	join_proven(b, 6, "b4", 1);
	assert_non_null(strstr(expect_end(b, 6, "jobs", 0)->text, "1 of 7 places"));
	join_proven(b, 6, "c", 1);
	expect_line(b, 6, CONTROL_WELCOME);
	join_proven(b, 7, "b4", 1);
	assert_non_null(strstr(expect_end(b, 7, "jobs", 0)->text, "7 jobs are here"));
	for (uint32_t i = 0; i < 7; i++)
		expect_silence(b, i);
}

/* Keys that are new after a reload share what is left, and the first of them does not wait for the second. */
CROWD_TEST(new_keys, 1, 6, 8)
{
	const char *const names[] = {"b0", "b1", "b2", "b3", "b4", "a", "c"};

	for (uint32_t i = 0; i < 7; i++) {
		if (i == 5)
			jobs_keys_set(b->jobs, 3, true);
		if (i == 6)
			expect_silence(b, 0);
		join_proven(b, i, names[i], 1);
		if (i < 6)
			expect_line(b, i, CONTROL_WELCOME);
	}
	expect_end(b, 0, "jobs", 1); /* it has not begun, and c has none */
	expect_line(b, 6, CONTROL_WELCOME);
	for (uint32_t i = 1; i < 6; i++)
		expect_silence(b, i);
}

/* The keys change while a job forms: a worker with another, or with none, is not let in. */
CROWD_TEST(other_key, 1, 3, 6)
{
	join_with(b, 0, 'a', "job", 2);
	join_with(b, 1, 'b', "job", 2);
	assert_non_null(strstr(expect_end(b, 1, "key", 0)->text, "was opened with another key"));
	jobs_keys_set(b->jobs, 0, true);
	join(b, 2, "job", 1, 2);
	assert_non_null(strstr(expect_end(b, 2, "key", 0)->text, "was opened with another key"));
	expect_silence(b, 0);
}

/* Of two keys each has a quarter for itself, and the half that is left is for both. */
TEST(memory_is_kept)
{
	const char *const names[] = {"b0", "b1", "b2", "b3", "b4", "a/1", "b5"};
	struct jobs_config config = config_usual();
	struct bench *b;

	config.keys = 2;
	config.jobs_max = 16;
	config.peers_max = 8;
	b = bench_open(&config);
	join_proven(b, 0, "a", 1);
	config.bytes_max = 8 * totals_of(b).bytes;
	bench_close(b);
	b = bench_open(&config);
	for (uint32_t i = 0; i < 7; i++) {
		join_proven(b, i, names[i], 1);
		expect_line(b, i, CONTROL_WELCOME);
	}
	join_proven(b, 7, "b6", 1);
	assert_non_null(strstr(expect_end(b, 7, "memory", 1)->text, "are kept for other keys"));
	join_proven(b, 7, "a/2", 1);
	expect_line(b, 7, CONTROL_WELCOME);
	assert_int_equal(totals_of(b).bytes, config.bytes_max);
	bench_close(b);
}
