// SPDX-License-Identifier: BSD-3-Clause
/*
 * test_pace.c - the round trip's estimate, the probe time, and a window that answers marks, delay, and at last loss; in
 * a queue that others fill, and where nobody else is
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
	pace_sent(&pace, pace.window);
	for (uint32_t i = 0; i < (pace.window + 1) / 2; i++)
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
	assert_int_equal(pace.window, 64);
	assert_true(pace.doubling);
}

static void sent_of(uint32_t lost)
{
	pace_lost(&pace, lost);
	for (int i = 0; i < 256; i++)
		pace_sent(&pace, 0);
}

/* ---- one that nobody else is in the way of ---- */

/* RFC 6298 with shifts of integers, written down by hand. */
TEST(round_trip)
{
	pace_begin(16, 64);
	assert_int_equal(pace_probe_us(&pace), 20000);
	pace_rtt(&pace, 1000, 1000, 1);
	assert_int_equal(pace.srtt_us, 1000);
	assert_int_equal(pace.rttvar_us, 500);
	assert_int_equal(pace_probe_us(&pace), 3000 + 300);
	pace_rtt(&pace, 2000, 2000, 1); /* var (3 * 500 + 1000) / 4, srtt (7 * 1000 + 2000) / 8 */
	assert_int_equal(pace.rttvar_us, 625);
	assert_int_equal(pace.srtt_us, 1125);
	assert_int_equal(pace_probe_us(&pace), 3625 + 300);
	pace_rtt(&pace, 125, 125, 1); /* var (3 * 625 + 1000) / 4, srtt (7 * 1125 + 125) / 8 */
	assert_int_equal(pace.rttvar_us, 718);
	assert_int_equal(pace.srtt_us, 1000);
	for (int i = 0; i < 200; i++)
		pace_rtt(&pace, 400, 400, 1);
	assert_in_range(pace.srtt_us, 400, 410);
	assert_in_range(pace_probe_us(&pace), 700, 710 + 4 * 4);
	for (int i = 0; i < 200; i++)
		pace_rtt(&pace, 300000, 300000, 1);
	assert_in_range(pace.srtt_us, 299900, 300000);
	pace_rtt(&pace, UINT32_MAX, UINT32_MAX, 1); /* what a forged STATUS may make of it */
	assert_int_equal(pace_probe_us(&pace), 400000);
	for (int i = 0; i < 500; i++)
		pace_rtt(&pace, 0, 0, 1);
	assert_in_range(pace.srtt_us, 1, 10);
}

/* A window leaves in a round trip. */
TEST(in_us)
{
	pace_begin(16, 64);
	assert_int_equal(pace_in_us(&pace, 1000), 16);
	pace_rtt(&pace, 900, 900, 1);
	assert_int_equal(pace_in_us(&pace, 1000), pace.window);
	for (int i = 0; i < 200; i++)
		pace_rtt(&pace, 8000, 8000, 1);
	pace.window = 64;
	assert_in_range(pace_in_us(&pace, 1000), 8, 8);
}

/* As long again as it has lasted, up to 32 probe times, and to 400 ms. */
TEST(silence)
{
	pace_begin(16, 64);
	pace_rtt(&pace, 1000, 1000, 1);
	assert_int_equal(pace_silence_us(&pace, 3300), 3300);
	assert_int_equal(pace_silence_us(&pace, 32 * 3300 - 1), 32 * 3300 - 1);
	assert_int_equal(pace_silence_us(&pace, UINT64_MAX), 32 * 3300);
	for (int i = 0; i < 200; i++)
		pace_rtt(&pace, 50000, 50000, 1);
	assert_int_equal(pace_silence_us(&pace, UINT64_MAX), 400000);
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
		assert_int_equal(pace.window, cases[i][2]);
		assert_int_equal(pace.window_min, cases[i][3]);
		assert_int_equal(pace.window_max, cases[i][1]);
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
	assert_false(pace.doubling);
	assert_int_equal(pace.window, 32);
	round_of(100);
	assert_int_equal(pace.window, 34);
	round_of(100 + 99);
	assert_int_equal(pace.window, 36);
	round_of(100 + 100);
	assert_int_equal(pace.window, 37);
	for (int i = 0; i < 100; i++)
		round_of(100);
	assert_int_equal(pace.window, 1000);
	round_of(100);
	assert_int_equal(pace.window, 1000);
}

/* Something queues, but not what is allowed: that ends doubling, and takes nothing away. */
TEST(doubling_ends)
{
	grown_to_64(1000);
	round_of(100 + 99);
	assert_int_equal(pace.window, 128);
	round_of(100 + 100);
	assert_int_equal(pace.window, 129);
	round_of(100);
	assert_int_equal(pace.window, 137);
}

/* By what queues and half of what is allowed, of the whole round trip; a far way is not emptied. */
TEST(delay)
{
	now_us = 1000;
	pace_begin(8, 64);
	for (int i = 0; i < 3; i++)
		round_of(10000);
	round_of(10000 + 300);
	assert_int_equal(pace.window, 64);
	round_of(10000 + 301);
	assert_int_equal(pace.window, 62); /* 64 * (1 - 301 / 10061) */
	for (int i = 0; i < 2; i++)
		round_of(20000);
	assert_in_range(pace.window, 15, 16);
	/* Of the round that has seen the queue, if the mean of them all is shorter yet. */
	pace_begin(8, 64);
	for (int i = 0; i < 3; i++)
		round_of(1000);
	round_of(1600);
	assert_int_equal(pace.window, 40); /* 64 * (1 - 600 / 1600) */
}

/* Marks: by half of the share, of either direction. */
TEST(marks)
{
	uint32_t total = 0;

	grown_to_64(64);
	pace_marked(&pace, total += 1);
	round_of(100);
	assert_int_equal(pace.window,
	                 37); /* the share was 1 at first: three rounds of none, one of all */
	assert_false(pace.doubling);
	for (int i = 0; i < 200; i++)
		round_of(100);
	assert_int_equal(pace.window, 64);
	assert_in_range(pace.marked_share, 0, 16);
	for (int i = 0; i < 400; i++) { /* a tenth of what comes */
		for (int k = 0; k < 10; k++)
			pace_received(&pace, k == 0);
		round_of(100);
	}
	assert_in_range(pace.marked_share, 90, 120);
	assert_int_equal(pace.window, 2);
	for (int i = 0; i < 200; i++)
		round_of(100);
	pace_marked(&pace, total); /* an old one, and one that has overtaken it */
	pace_marked(&pace, total - 1);
	round_of(100);
	assert_int_equal(pace.window, 64);
}

/* Loss of the path's own, however it varies by chance, is no sign; much more of it is. */
TEST(loss)
{
	grown_to_64(64);
	for (int i = 0; i < 100; i++)
		sent_of(8 + (uint32_t)i * 7 % 11); /* 3 to 7 per cent */
	assert_int_equal(pace.window, 64);
	sent_of(32);
	assert_int_equal(pace.window, 44);
	for (int i = 0; i < 50; i++)
		sent_of(0);
	sent_of(12);
	assert_int_equal(pace.window, 44);
	sent_of(13); /* 51 of 1024 */
	assert_int_equal(pace.window, 31);
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

#define LOOK_US 16000000

/* Where others fill the queue: back to what it was, then as TCP; and once more when that is over. */
TEST(contended)
{
	grown_to_64(200);
	round_of(20000);
	round_of(20000);
	assert_int_equal(pace.window, 16);
	round_of(20000);
	assert_true(pace.rivals.contending);
	assert_int_equal(pace.window, 66);
	round_of(20000); /* longer than two round trips: that of two counts */
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
	round_of(30000);
	assert_int_equal(pace.window, 48);
	round_of(30000);
	assert_int_equal(pace.window, 50);
	pace_lost(&pace, 1);
	round_of(100 + 200); /* nothing queues: it was chance */
	assert_in_range(pace.window, 50, 52);
	while (now_us < LOOK_US - 200000)
		round_of(20000);
	assert_int_equal(pace.window, 200);
	/* A queue of our own becomes shorter. */
	grown_to_64(64);
	round_of(6400);
	for (int i = 0; i < 20; i++)
		round_of(100 * pace.window);
	assert_false(pace.rivals.contending);
	assert_in_range(pace.window, 2, 16);
}

/* A window that answers loss alone, at the time when all look whether the queue is theirs. */
static void contended_at_look(void)
{
	grown_to_64(64);
	while (!pace.rivals.contending)
		round_of(20000);
	while (now_us < LOOK_US - 1000000)
		round_of(20000);
	now_us = LOOK_US;
	round_of(20000);
	assert_int_equal(pace.window, 16); /* a quarter, */
	for (int i = 0; i < 2; i++) {      /* for three rounds */
		assert_int_equal(pace.empty.rounds, 3 - i);
		round_of(20000);
	}
	assert_int_equal(pace.window, 16);
}

/* TCP is still there, or the queue was that of several windows like this one. */
TEST(look)
{
	contended_at_look();
	round_of(12000);
	assert_true(pace.rivals.contending);
	assert_int_equal(pace.window, 64);
	for (int i = 0; i < 100; i++) /* and so it is for sixteen seconds */
		round_of(20000);
	assert_int_equal(pace.window, 64);
	contended_at_look();
	round_of(7000);
	assert_int_equal(pace.window, 4); /* there are 7 ms left */
	round_of(1000);
	round_of(1000);
	assert_int_equal(pace.window, 4);
	round_of(1000);
	assert_int_equal(pace.empty.rounds, 0);
	assert_false(pace.rivals.contending);
	assert_in_range(pace.window, 4, 6); /* as usual */
}

/* A round trip in whose round a window's packets were sent, and one of them was lost. */
static void lossy_round_of(uint64_t rtt_us)
{
	pace_lost(&pace, 1);
	round_of(rtt_us);
}

/* Queues are nobody else's: they may take 4 ms, until one overflows. Loss where nothing queues is chance. */
TEST(private)
{
	now_us = 1000;
	pace_init(&pace, &(struct pace_config){
				 .window_start = 8, .window_max = 64, .private_network = true});
	for (int i = 0; i < 3; i++)
		round_of(10000);
	round_of(10000 + 4100);
	assert_int_equal(pace.window, 64);
	round_of(10000 + 4101);
	assert_int_equal(pace.window, 45); /* 64 * (1 - 4101 / 14101) */
	while (pace.window < 64)
		round_of(10000 + 1999); /* by a sixteenth */
	lossy_round_of(10000 + 200);
	assert_int_equal(pace.window, 64);
	lossy_round_of(10000 + 201);
	assert_int_equal(pace.window, 44); /* by 3 tenths */
	round_of(10000 + 201);
	assert_int_equal(pace.window, 47);
	for (int i = 0; i < 20 * 256; i++) {
		pace_sent(&pace, 1);
		pace_lost(&pace, 1);
	}
	pace_unanswered(&pace);
	assert_int_equal(pace.window, 47);
	/* Nobody else fills a queue there, however little it shortens. */
	for (int i = 0; i < 3; i++)
		round_of(1000);
	for (int i = 0; i < 6; i++)
		round_of(1000 + 10000);
	assert_in_range(pace.window, 2, 4);
	assert_false(pace.rivals.contending);
}
