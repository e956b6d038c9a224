// SPDX-License-Identifier: BSD-3-Clause
/* test_jobs_crowd.c - strangers who take up connections: others get in all the same */

#include "tests/unit/test_jobs.h"

#define STRANGER 0x0a0000ff
#define OTHER 0x0a0000fe

static struct bench *usual_open(void)
{
	struct jobs_config config = config_usual(); /* 6 connections, 3 jobs */

	return bench_open(&config);
}

static void connect_idle(struct bench *b, uint32_t i, uint32_t ip)
{
	assert_true(connect_from(b, i, ip));
	expect_line(b, i, CONTROL_HELLO);
}

/* ---- connections ---- */

/* It is the oldest of those of the one address that has most. */
static void test_oldest_of_most(void **state)
{
	struct bench *b = usual_open();

	(void)state;
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
	bench_close(b);
}

/* Who has joined stays. Who has not goes, even the newcomer itself when there is no other. */
static void test_joined_stay(void **state)
{
	struct bench *b = usual_open();

	(void)state;
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
	bench_close(b);
}

/* Every place is looked after, whichever of them the newcomers have got. */
static void test_places(void **state)
{
	struct bench *b = usual_open();

	(void)state;
	for (uint32_t i = 0; i < 7; i++)
		connect_idle(b, i, STRANGER);
	expect_end(b, 0, "connections", 0);
	b->now_us += b->config.hello_us;
	jobs_tick(b->jobs, b->now_us);
	for (uint32_t i = 1; i < 7; i++)
		expect_end(b, i, "timeout", 0);
	assert_int_equal(totals_of(b).peers, 0);
	bench_close(b);
}

static void test_no_room(void **state)
{
	struct bench *b = usual_open();
	struct control_message message;
	char *line = jobs_no_room(b->jobs), why[128];

	(void)state;
	assert_non_null(line);
	line[strlen(line) - 1] = '\0';
	assert_int_equal(message_parse(line, &message, why), 0);
	assert_int_equal(message.kind, CONTROL_FAILED);
	assert_string_equal(message.code, "connections");
	assert_int_equal(totals_of(b).refused[11], 1);
	free(line);
	bench_close(b);
}

static int init(void **state)
{
	(void)state;
	return proof_init();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_oldest_of_most),
		cmocka_unit_test(test_joined_stay),
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_no_room),
	};

	return cmocka_run_group_tests(tests, init, NULL);
}
