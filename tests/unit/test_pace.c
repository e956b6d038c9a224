// SPDX-License-Identifier: BSD-3-Clause
/*
 * test_pace.c - rounds, and a window that answers marks, delay, and at last loss; in a queue that others fill, and where
 * nobody else is
 */

#include "client/worker/pace.h"
#include "tests/unit/unit.h"

/* ---- rounds of a window, as a worker would see them ---- */

static uint64_t now_us;
static struct pace pace; /* the test's */

static void pace_begin(uint32_t start, uint32_t most)
{
	pace_init(&pace, &(struct pace_config){.window_start = start, .window_max = most});
}

/* A round whose round trips take so long; the window was full in it, and half as many RESULTs came. */
static void round_of(uint64_t path_us)
{
	pace_sent(&pace, pace.cc.window);
	for (uint32_t i = 0; i < (pace.cc.window + 1) / 2; i++)
		(void)pace_result(&pace);
	for (int i = 0; i < 3 && (i == 0 || pace.round.samples > 0); i++) {
		now_us += 2 * path_us;
		pace_rtt(&pace, path_us, path_us, now_us);
	}
}

/* One that has doubled up to a window of 64, where a round trip takes 100 us. */
static void grown_to_64(uint32_t most)
{
	now_us = 1000;
	pace_begin(8, most);
	for (int i = 0; i < 3; i++)
		round_of(100);
	assert_int_equal(pace.cc.window, 64);
	assert_true(pace.cc.starting);
}

static void sent_of(uint32_t lost)
{
	pace_lost(&pace, lost);
	for (int i = 0; i < 256; i++)
		pace_sent(&pace, 0);
}

/* ---- one that nobody else is in the way of ---- */

/* A window leaves in a round trip. */
TEST(in_us)
{
	pace_begin(16, 64);
	assert_int_equal(pace_in_us(&pace, 1000), 16);
	pace_rtt(&pace, 900, 900, 1);
	assert_int_equal(pace_in_us(&pace, 1000), pace.cc.window);
	for (int i = 0; i < 200; i++)
		pace_rtt(&pace, 8000, 8000, 1);
	pace.cc.window = 64;
	assert_in_range(pace_in_us(&pace, 1000), 8, 8);
}

TEST(window_start)
{
	static const uint32_t cases[][4] = {
		/* start, most; window, least */
		{16, 64, 16, 2}, {1, 64, 2, 2},   {0, 64, 2, 2},         {5, 64, 5, 2},
		{64, 4, 4, 2},   {8, 8192, 8, 2}, {8192, 8192, 8192, 2}, {1, 1, 1, 1},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		pace_begin(cases[i][0], cases[i][1]);
		assert_int_equal(pace.cc.window, cases[i][2]);
		assert_int_equal(pace.cc.least, cases[i][3]);
		assert_int_equal(pace.cc.most, cases[i][1]);
	}
}

/*
 * Twice as much each round until the first sign; then a sixteenth while nothing queues, and one when
 * something does, but not what is allowed: 200 us and 800 / sqrt(64).
 */
TEST(growth)
{
	grown_to_64(1000);
	round_of(100 + 301);
	assert_false(pace.cc.starting);
	assert_int_equal(pace.cc.window, 32);
	round_of(100);
	assert_int_equal(pace.cc.window, 34);
	round_of(100 + 99);
	assert_int_equal(pace.cc.window, 36);
	round_of(100 + 100);
	assert_int_equal(pace.cc.window, 37);
	for (int i = 0; i < 100; i++)
		round_of(100);
	assert_int_equal(pace.cc.window, 1000);
	round_of(100);
	assert_int_equal(pace.cc.window, 1000);
}

/* Something queues, but not what is allowed: that ends doubling, and takes nothing away. */
TEST(doubling_ends)
{
	grown_to_64(1000);
	round_of(100 + 99);
	assert_int_equal(pace.cc.window, 128);
	round_of(100 + 100);
	assert_int_equal(pace.cc.window, 129);
	round_of(100);
	assert_int_equal(pace.cc.window, 137);
}

/* By what queues and half of what is allowed, of the whole round trip; a far way is not emptied. */
TEST(delay)
{
	now_us = 1000;
	pace_begin(8, 64);
	for (int i = 0; i < 3; i++)
		round_of(10000);
	round_of(10000 + 300);
	assert_int_equal(pace.cc.window, 64);
	round_of(10000 + 301);
	assert_int_equal(pace.cc.window, 62); /* 64 * (1 - 301 / 10061) */
	for (int i = 0; i < 2; i++)
		round_of(20000);
	assert_in_range(pace.cc.window, 15, 16);
	/* Of the round that has seen the queue, if the mean of them all is shorter yet. */
	pace_begin(8, 64);
	for (int i = 0; i < 3; i++)
		round_of(1000);
	round_of(1600);
	assert_int_equal(pace.cc.window, 40); /* 64 * (1 - 600 / 1600) */
}

/* Marks: by half of the share, of either direction. */
TEST(marks)
{
	uint32_t total = 0;

	grown_to_64(64);
	pace_marked(&pace, total += 1);
	round_of(100);
	assert_int_equal(pace.cc.window,
	                 37); /* the share was 1 at first: three rounds of none, one of all */
	assert_false(pace.cc.starting);
	for (int i = 0; i < 200; i++)
		round_of(100);
	assert_int_equal(pace.cc.window, 64);
	assert_in_range(pace.cc.alpha, 0, 16);
	for (int i = 0; i < 400; i++) { /* a tenth of what comes */
		for (int k = 0; k < 10; k++)
			pace_received(&pace, k == 0);
		round_of(100);
	}
	assert_in_range(pace.cc.alpha, 90, 120);
	assert_int_equal(pace.cc.window, 2);
	for (int i = 0; i < 200; i++)
		round_of(100);
	pace_marked(&pace, total); /* an old one, and one that has overtaken it */
	pace_marked(&pace, total - 1);
	round_of(100);
	assert_int_equal(pace.cc.window, 64);
}

/* Loss of up to a tenth is the path's own; more of it is a sign. */
TEST(loss)
{
	grown_to_64(64);
	for (int i = 0; i < 100; i++)
		sent_of(8 + (uint32_t)i * 7 % 18); /* 3 to 10 per cent */
	assert_int_equal(pace.cc.window, 64);
	sent_of(26);
	assert_int_equal(pace.cc.window, 44);
	pace_unanswered(&pace);
	assert_int_equal(pace.cc.window, 22);
}

/* What hosts wait may queue as well, up to 4 ms, so that a link has something to carry meanwhile; unless it overflows. */
TEST(waits_are_bridged)
{
	static const uint64_t waits[][2] = {{0, 200}, {2000, 1000}, {8000, 4000}, {90000, 4000}};

	for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
		uint64_t allowed_us = waits[i][1];

		grown_to_64(64);
		pace_rtt(&pace, 100 + waits[i][0], 100, now_us);
		pace.rtt.wait_us = waits[i][0] / 2; /* what it is after one sample */
		round_of(100 + allowed_us - allowed_us / 16);
		assert_int_equal(pace.cc.window, 64);
		round_of(100 + allowed_us + 102); /* 800 / sqrt(64) more */
		assert_in_range(pace.cc.window, 32, 63);
	}
	pace.rtt.wait_us = 90000;
	pace_lost(&pace, 1);
	round_of(100 + 3000);
	assert_in_range(pace.cc.bridge_us, 1500, 1502);
	pace_lost(&pace, 1);
	round_of(100 + 200); /* nothing queues: it was chance */
	assert_in_range(pace.cc.bridge_us, 1500, 1504);
	for (int k = 0; k < 6000; k++)
		round_of(100);
	assert_int_equal(pace.cc.bridge_us, 4000);
}

/* A way that has become longer is no queue for ever. */
TEST(longer_way)
{
	grown_to_64(64);
	for (int i = 0; i < 2000; i++)
		round_of(600);
	assert_in_range(pace.cc.window, 2, 16);
	for (uint64_t until_us = now_us + 20000000; now_us < until_us;)
		round_of(600);
	for (int i = 0; i < 100; i++)
		round_of(600);
	assert_int_equal(pace.cc.window, 64);
	assert_true(pace.cc.algorithm == &cc_swift);
}

/* Often while the window is used up, else each probe time. */
TEST(measure)
{
	pace_begin(8, 64);
	assert_int_equal(pace_measure_us(&pace), 20000);
	pace_rtt(&pace, 100, 100, 1000);
	assert_int_equal(pace_measure_us(&pace), 100 + 4 * 50 + 300);
	pace_sent(&pace, 16);
	assert_int_equal(pace_measure_us(&pace), 100);
	grown_to_64(64);
	pace_sent(&pace, 64);
	assert_int_equal(pace_measure_us(&pace), 500);
	for (int i = 0; i < 100; i++)
		pace_rtt(&pace, 9000, 9000, now_us += 9000);
	pace_sent(&pace, 64);
	assert_in_range(pace_measure_us(&pace), 2900, 3000);
}

/* ---- beside others ---- */

#define LOOK_US 10000000

/* Where others fill the queue: back to what it was, then as TCP; and once more when that is over. */
TEST(contended)
{
	grown_to_64(200);
	round_of(20000);
	round_of(20000);
	assert_int_equal(pace.cc.window, 16);
	round_of(20000);
	assert_true(pace.cc.algorithm == &cc_reno);
	assert_int_equal(pace.cc.window, 128); /* slow start, until 4 ms more queue */
	round_of(24001);
	assert_int_equal(pace.cc.window, 130);
	round_of(20000); /* longer than two round trips: that of two counts */
	assert_int_equal(pace.cc.window, 132);
	for (int i = 0; i < 20; i++) /* one and a half */
		pace_rtt(&pace, 20000, 20000, now_us + 19999);
	pace_sent(&pace, pace.cc.window);
	now_us += 30000;
	for (int i = 0; i < 3; i++)
		pace_rtt(&pace, 20000, 20000, now_us);
	assert_int_equal(pace.cc.window, 133);
	assert_in_range(pace.cc.parts, 133 * 256 + 100, 133 * 256 + 140);
	pace_lost(&pace, 1);
	round_of(30000);
	assert_int_equal(pace.cc.window, 93);
	round_of(30000);
	assert_int_equal(pace.cc.window, 95);
	pace_lost(&pace, 1);
	round_of(100 + 200); /* nothing queues: it was chance */
	assert_in_range(pace.cc.window, 95, 97);
	while (now_us < LOOK_US - 200000)
		round_of(20000);
	assert_in_range(pace.cc.window, 190, 200);
	/* A queue of our own becomes shorter. */
	grown_to_64(64);
	round_of(6400);
	for (int i = 0; i < 20; i++)
		round_of(100 * pace.cc.window);
	assert_true(pace.cc.algorithm == &cc_swift);
	assert_in_range(pace.cc.window, 2, 16);
}

/* Slow start beside TCP lasts while the queue stays, and ends with a loss. */
TEST(contended_slow)
{
	grown_to_64(1000);
	for (int i = 0; i < 3; i++)
		round_of(20000);
	round_of(24000);
	assert_int_equal(pace.cc.window, 256);
	pace_lost(&pace, 1);
	round_of(20000);
	assert_int_equal(pace.cc.window, 179);
	round_of(20000);
	assert_int_equal(pace.cc.window, 181);
}

/* A queue that bridges waits of more than a millisecond is nobody else's. */
TEST(bridges_are_ours)
{
	grown_to_64(64);
	for (int i = 0; i < 40; i++) {
		pace.rtt.wait_us = 4000;
		round_of(100 + 3500);
		assert_true(pace.cc.algorithm == &cc_swift);
	}
	assert_int_equal(pace.cc.mode.parts, 0);
	assert_int_equal(pace.cc.window, 64);
}

/* A window that answers loss alone, when it has seen no shorter queue for ten seconds. */
static void contended_at_look(void)
{
	uint64_t seen_us;

	grown_to_64(64);
	for (int i = 0; i < 100 && pace.cc.algorithm == &cc_swift; i++)
		round_of(20000);
	round_of(19000); /* the shortest */
	seen_us = now_us;
	while (pace.cc.mode.probing == 0) {
		assert_in_range(now_us, seen_us, seen_us + LOOK_US);
		assert_int_equal(pace.cc.window, 64);
		round_of(20000);
	}
	assert_in_range(now_us, seen_us + LOOK_US, seen_us + LOOK_US + 120000);
	for (int i = 0; i < 2; i++) { /* for three rounds */
		assert_int_equal(pace.cc.mode.probing, 3 - i);
		assert_int_equal(pace.cc.window, 16);
		round_of(20000);
	}
}

/* TCP is still there, or the queue was that of several windows like this one. */
TEST(look)
{
	contended_at_look();
	round_of(12000);
	assert_true(pace.cc.algorithm == &cc_reno);
	assert_int_equal(pace.cc.window, 64);
	assert_int_equal(pace.cc.mode.seen_us, now_us); /* Ten seconds begin anew. */
	contended_at_look();
	round_of(7000);
	assert_true(pace.cc.algorithm == &cc_swift);
	assert_int_equal(pace.cc.window, 8); /* there are 7 ms left */
	for (int i = 0; i < 20; i++)
		round_of(100 + 100 * pace.cc.window);
	assert_in_range(pace.cc.window, 4, 6); /* as usual */
}

/* A window that comes after TCP: the least way it knows is 13 ms of TCP's queue. At a loss the queue takes 26 ms. */
static void contended_first(void)
{
	now_us = 1000;
	pace_begin(64, 64);
	round_of(13000);
	for (int i = 0; i < 100 && pace.cc.algorithm == &cc_swift; i++)
		round_of(20000);
	round_of(26000);
	assert_true(pace.cc.algorithm == &cc_reno);
	assert_int_equal(pace.cc.window, 64);
}

/* TCP's losses do not empty the queue, though it has never been shorter. A quarter of the longest way does. */
TEST(contended_first_bottom)
{
	contended_first();
	round_of(13000);
	assert_true(pace.cc.algorithm == &cc_reno);
	round_of(6501);
	assert_true(pace.cc.algorithm == &cc_reno);
	round_of(6500);
	assert_true(pace.cc.algorithm == &cc_swift);
}

/* Room that a look makes tells of TCP where the way becomes shorter than ever; else the queue is gone. */
TEST(look_first)
{
	static const struct {
		uint64_t way_us;
		bool is_swift;
	} looks[] = {{12700, false}, {12800, true}, {13200, true}, {13201, false}};

	for (size_t i = 0; i < sizeof(looks) / sizeof(looks[0]); i++) {
		contended_first();
		while (pace.cc.mode.probing == 0)
			round_of(20000);
		round_of(20000);
		round_of(20000);
		assert_int_equal(pace.cc.mode.probing, 1);
		round_of(looks[i].way_us);
		assert_int_equal(pace.cc.algorithm == &cc_swift, looks[i].is_swift);
	}
}

/* The least limit there is: a queue must be long in two rounds, and ends doubling before. */
TEST(contended_at_least)
{
	now_us = 1000;
	pace_begin(2, 2);
	round_of(100);
	assert_true(pace.cc.starting);
	round_of(2100);
	assert_false(pace.cc.starting);
	assert_true(pace.cc.algorithm == &cc_swift);
	round_of(2100);
	assert_true(pace.cc.algorithm == &cc_reno);
}

/* A round that was marked is none with a loss: the next loss counts again. */
TEST(contended_marked)
{
	uint32_t before;

	grown_to_64(200);
	for (int i = 0; i < 100 && pace.cc.algorithm == &cc_swift; i++)
		round_of(20000);
	pace_lost(&pace, 1);
	round_of(20000);
	pace_marked(&pace, 1);
	round_of(20000);
	before = pace.cc.parts;
	pace_lost(&pace, 1);
	round_of(20000);
	assert_int_equal(pace.cc.parts, before - before * 3 / 10);
}

/* What marks and silence take while a look is under way stays taken, and a marked round is none of the three. */
TEST(look_marked)
{
	const uint32_t parts = 64 * CC_PARTS;
	uint32_t marked;

	contended_at_look();
	pace_marked(&pace, 1);
	round_of(20000);
	assert_int_equal(pace.cc.mode.probing, 1);
	marked = parts - parts * pace.cc.alpha / 2048;
	assert_in_range(marked, parts / 2, parts - CC_PARTS);
	pace_unanswered(&pace);
	round_of(12000);
	assert_true(pace.cc.algorithm == &cc_reno);
	assert_int_equal(pace.cc.parts, marked - marked / 2);
}

/* Nobody else fills a queue on a private network, and loss is chance there, or a host's. */
TEST(private)
{
	now_us = 1000;
	pace_init(&pace, &(struct pace_config){
				 .window_start = 8, .window_max = 64, .private_network = true});
	for (int i = 0; i < 3; i++)
		round_of(100);
	for (int i = 0; i < 20 * 256; i++) {
		pace_sent(&pace, 1);
		pace_lost(&pace, 1);
	}
	pace_unanswered(&pace);
	assert_int_equal(pace.cc.window, 64);
	round_of(100);        /* nothing queues: it was chance */
	round_of(100 + 4000); /* datagrams that come in bursts take less of a CPU */
	assert_int_equal(pace.cc.window, 64);
	for (int i = 0; i < 6; i++)
		round_of(100 + 10000);
	assert_int_equal(pace.cc.window, 2);
	assert_true(pace.cc.algorithm == &cc_swift);
}
