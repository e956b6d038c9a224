// SPDX-License-Identifier: BSD-3-Clause
/* test_pace_others.c - a window in a queue that others fill, and one where nobody else is */

#include "tests/unit/test_pace.h"

#define LOOK_US 16000000

/* Where others fill the queue: back to what it was, then as TCP; and once more when that is over. */
TEST(contended)
{
	struct pace pace;

	grown_to_64(&pace, 200);
	round_of(&pace, 20000);
	round_of(&pace, 20000);
	assert_int_equal(pace.window, 16);
	round_of(&pace, 20000);
	assert_true(pace.rivals.contending);
	assert_int_equal(pace.window, 66);
	round_of(&pace, 20000); /* longer than two round trips: that of two counts */
	assert_int_equal(pace.window, 68);
	for (int i = 0; i < 20; i++) /* one and a half */
		pace_rtt(&pace, 20000, 20000, now_us + 19999);
	pace_sent(&pace, pace.window);
	now_us += 30000;
	for (int i = 0; i < 3; i++)
		pace_rtt(&pace, 20000, 20000, now_us);
	assert_int_equal(pace.window, 69);
	assert_in_range(pace.parts, 69 * 256 + 100, 69 * 256 + 140);
	pace_lost(&pace, 1);
	round_of(&pace, 30000);
	assert_int_equal(pace.window, 48);
	round_of(&pace, 30000);
	assert_int_equal(pace.window, 50);
	pace_lost(&pace, 1);
	round_of(&pace, 100 + 200); /* nothing queues: it was chance */
	assert_in_range(pace.window, 50, 52);
	while (now_us < LOOK_US - 200000)
		round_of(&pace, 20000);
	assert_int_equal(pace.window, 200);
	/* A queue of our own becomes shorter. */
	grown_to_64(&pace, 64);
	round_of(&pace, 6400);
	for (int i = 0; i < 20; i++)
		round_of(&pace, 100 * pace.window);
	assert_false(pace.rivals.contending);
	assert_in_range(pace.window, 2, 16);
}

/* A window that answers loss alone, at the time when all look whether the queue is theirs. */
static void contended_at_look(struct pace *pace)
{
	grown_to_64(pace, 64);
	while (!pace->rivals.contending)
		round_of(pace, 20000);
	while (now_us < LOOK_US - 1000000)
		round_of(pace, 20000);
	now_us = LOOK_US;
	round_of(pace, 20000);
	assert_int_equal(pace->window, 16); /* a quarter, */
	for (int i = 0; i < 2; i++) {       /* for three rounds */
		assert_int_equal(pace->empty.rounds, 3 - i);
		round_of(pace, 20000);
	}
	assert_int_equal(pace->window, 16);
}

/* TCP is still there, or the queue was that of several windows like this one. */
TEST(look)
{
	struct pace pace;

	contended_at_look(&pace);
	round_of(&pace, 12000);
	assert_true(pace.rivals.contending);
	assert_int_equal(pace.window, 64);
	for (int i = 0; i < 100; i++) /* and so it is for sixteen seconds */
		round_of(&pace, 20000);
	assert_int_equal(pace.window, 64);
	contended_at_look(&pace);
	round_of(&pace, 7000);
	assert_int_equal(pace.window, 4); /* there are 7 ms left */
	round_of(&pace, 1000);
	round_of(&pace, 1000);
	assert_int_equal(pace.window, 4);
	round_of(&pace, 1000);
	assert_int_equal(pace.empty.rounds, 0);
	assert_false(pace.rivals.contending);
	assert_in_range(pace.window, 4, 6); /* as usual */
}

/* A round trip in whose round a window's packets were sent, and one of them was lost. */
static void lossy_round_of(struct pace *pace, uint64_t rtt_us)
{
	pace_lost(pace, 1);
	round_of(pace, rtt_us);
}

/* Queues are nobody else's: they may take 4 ms, until one overflows. Loss where nothing queues is chance. */
TEST(private)
{
	struct pace pace;

	now_us = 1000;
	pace_init(&pace, &(struct pace_config){
				 .window_start = 8, .window_max = 64, .private_network = true});
	for (int i = 0; i < 3; i++)
		round_of(&pace, 10000);
	round_of(&pace, 10000 + 4100);
	assert_int_equal(pace.window, 64);
	round_of(&pace, 10000 + 4101);
	assert_int_equal(pace.window, 45); /* 64 * (1 - 4101 / 14101) */
	while (pace.window < 64)
		round_of(&pace, 10000 + 1999); /* by a sixteenth */
	lossy_round_of(&pace, 10000 + 200);
	assert_int_equal(pace.window, 64);
	lossy_round_of(&pace, 10000 + 201);
	assert_int_equal(pace.window, 44); /* by 3 tenths */
	round_of(&pace, 10000 + 201);
	assert_int_equal(pace.window, 47);
	for (int i = 0; i < 20 * 256; i++) {
		pace_sent(&pace, 1);
		pace_lost(&pace, 1);
	}
	pace_unanswered(&pace);
	assert_int_equal(pace.window, 47);
	/* Nobody else fills a queue there, however little it shortens. */
	for (int i = 0; i < 3; i++)
		round_of(&pace, 1000);
	for (int i = 0; i < 6; i++)
		round_of(&pace, 1000 + 10000);
	assert_in_range(pace.window, 2, 4);
	assert_false(pace.rivals.contending);
}
