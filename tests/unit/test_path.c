// SPDX-License-Identifier: BSD-3-Clause
/* test_path.c - when a worker asks whether its datagrams still pass, and what it makes of the answers */

#include "client/worker/knock.h"
#include "tests/unit/unit.h"

#define SILENCE_US 6400000 /* a round is 100 ms, and a check comes after 1.6 s */
#define ROUND_US (SILENCE_US / 64)
#define CHECK_US (16 * ROUND_US)
#define START_US 1000000
#define PAYLOAD 3470

static uint64_t now_us;

static struct path opened(uint32_t channels)
{
	struct path path;

	now_us = START_US;
	path_init(&path, channels, PAYLOAD, SILENCE_US);
	assert_true(path_deadline(&path) == NEVER);
	return path;
}

/* KNOCKs that are due now: how many of the job's size, and the smaller size beside them, if any. */
static uint32_t knocks(struct path *path, uint32_t *smaller)
{
	uint32_t channel, bytes, count = 0;

	*smaller = 0;
	while (path_pull(path, now_us, &channel, &bytes)) {
		assert_true(channel < path->channel_count);
		if (bytes == PAYLOAD)
			count++;
		else
			*smaller = bytes;
	}
	return count;
}

static void next_round(struct path *path)
{
	assert_true(path_deadline(path) == now_us + ROUND_US);
	now_us += ROUND_US;
}

/* Begin one: operations have waited since START_US. */
static void check_begins(struct path *path)
{
	now_us = START_US + CHECK_US - 1;
	path_waits(path, START_US, now_us);
	assert_false(path->checking);
	assert_true(path_deadline(path) == ++now_us);
	path_waits(path, START_US, now_us);
	assert_true(path->checking);
}

/* An answer by every channel, and nothing more until a quarter of the silence time has passed. */
TEST(answered)
{
	struct path path = opened(2);
	struct path_verdict verdict;
	uint32_t smaller;

	check_begins(&path);
	for (int check = 0; check < 50; check++) {
		assert_int_equal(knocks(&path, &smaller), 2);
		assert_int_equal(smaller, 0);
		path_answer(&path, 1, PAYLOAD, now_us);
		next_round(&path);
		assert_int_equal(knocks(&path, &smaller), 1); /* who has answered is left alone */
		path_answer(&path, 0, PAYLOAD - 1, now_us);
		assert_true(path.checking);
		path_answer(&path, 0, PAYLOAD, now_us);
		assert_false(path.checking);
		assert_int_equal(knocks(&path, &smaller), 0);
		assert_true(path_deadline(&path) == now_us + CHECK_US);
		now_us = path_deadline(&path);
		assert_false(path_failed(&path, now_us, &verdict));
		path_waits(&path, START_US, now_us);
	}
}

/* News by the channel that waits ends a check; news by another, which then waits longer than it, does not. */
TEST(news_meanwhile)
{
	struct path path = opened(2);
	uint32_t smaller;

	check_begins(&path);
	assert_int_equal(knocks(&path, &smaller), 2);
	path_waits(&path, START_US + 5, now_us + 10);
	assert_true(path.checking);
	path_waits(&path, now_us + 5, now_us + 10);
	assert_false(path.checking);
	path_waits(&path, NEVER, now_us + 10);
	assert_true(path_deadline(&path) == NEVER);
}

/* One channel of two is dead: so it is said when the silence time is over, and not before. */
TEST(dead)
{
	struct path path = opened(2);
	struct path_verdict verdict;
	uint32_t smaller;

	check_begins(&path);
	for (uint32_t round = 0; round < 48; round++) {
		assert_int_equal(knocks(&path, &smaller), round == 0 ? 2 : 1);
		assert_true((smaller != 0) == (round >= 16));
		path_answer(&path, 0, PAYLOAD, now_us);
		assert_false(path_failed(&path, now_us, &verdict));
		next_round(&path);
	}
	assert_true(now_us == START_US + SILENCE_US);
	assert_true(path_failed(&path, now_us, &verdict));
	assert_int_equal(verdict.channel, 1);
	assert_int_equal(verdict.passing, 0);
	assert_int_equal(verdict.sent, 48);
	assert_int_equal(knocks(&path, &smaller), 0);
}

/* Each smaller size is tried, and the smallest each other time; the largest that is answered is the verdict. */
TEST(narrow)
{
	static const uint32_t sizes[] = {1472, 1452, 1432, 1372, 1232, 584};
	struct path path = opened(1);
	struct path_verdict verdict;
	uint32_t smaller;

	check_begins(&path);
	for (uint32_t round = 0; round < 48; round++) {
		assert_int_equal(knocks(&path, &smaller), 1);
		assert_int_equal(smaller, round < 16       ? 0
		                          : round % 2 == 1 ? 584
		                                           : sizes[(round - 16) / 2 % 6]);
		if (smaller <= 1400 && smaller > 0)
			path_answer(&path, 0, smaller, now_us);
		next_round(&path);
	}
	assert_true(path_failed(&path, now_us, &verdict));
	assert_int_equal(verdict.passing, 1372);
	/* With the smallest payload there is no smaller one to try. */
	path_init(&path, 1, 584, SILENCE_US);
	check_begins(&path);
	for (uint32_t round = 0; round < 48; round++) {
		uint32_t channel, bytes;

		assert_true(path_pull(&path, now_us, &channel, &bytes) && bytes == 584);
		assert_false(path_pull(&path, now_us, &channel, &bytes));
		next_round(&path);
	}
	assert_true(path_failed(&path, now_us, &verdict));
}

/* A worker that was stopped in the middle of a check has asked too little to say anything. */
TEST(stopped)
{
	struct path path = opened(1);
	struct path_verdict verdict;
	uint32_t smaller;

	check_begins(&path);
	assert_int_equal(knocks(&path, &smaller), 1);
	now_us += 10 * SILENCE_US;
	path_waits(&path, START_US, now_us);
	assert_false(path_failed(&path, now_us, &verdict));
	assert_int_equal(knocks(&path, &smaller), 1);
	path_answer(&path, 0, PAYLOAD, now_us);
	assert_false(path.checking);
}

TEST(smaller)
{
	assert_int_equal(knock_smaller(65000), 8972);
	assert_int_equal(knock_smaller(8972), 3470);
	assert_int_equal(knock_smaller(1473), 1472);
	assert_int_equal(knock_smaller(585), 584);
	assert_int_equal(knock_smaller(584), 0);
}
