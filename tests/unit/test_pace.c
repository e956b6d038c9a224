// SPDX-License-Identifier: BSD-3-Clause
/* test_pace.c - the round trip's estimate, time-outs, and a window that answers loss */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "client/worker/pace.h"

/* RFC 6298 with shifts of integers, written down by hand. */
static void test_round_trip(void **state)
{
	struct pace pace;

	(void)state;
	pace_init(&pace, 16, 64);
	assert_int_equal(pace_base_us(&pace), 20000);
	pace_rtt(&pace, 1000);
	assert_int_equal(pace.srtt_us, 1000);
	assert_int_equal(pace.rttvar_us, 500);
	assert_int_equal(pace_base_us(&pace), 3000);
	pace_rtt(&pace, 2000); /* var (3 * 500 + 1000) / 4, srtt (7 * 1000 + 2000) / 8 */
	assert_int_equal(pace.rttvar_us, 625);
	assert_int_equal(pace.srtt_us, 1125);
	assert_int_equal(pace_base_us(&pace), 3625);
	pace_rtt(&pace, 125); /* var (3 * 625 + 1000) / 4, srtt (7 * 1125 + 125) / 8 */
	assert_int_equal(pace.rttvar_us, 718);
	assert_int_equal(pace.srtt_us, 1000);
	for (int i = 0; i < 200; i++)
		pace_rtt(&pace, 400);
	assert_in_range(pace.srtt_us, 400, 410);
	assert_int_equal(pace_base_us(&pace), 2000); /* the least */
	for (int i = 0; i < 200; i++)
		pace_rtt(&pace, 300000);
	assert_in_range(pace.srtt_us, 299900, 300000);
	pace_rtt(&pace, UINT32_MAX); /* what a forged CREDIT may make of it */
	assert_int_equal(pace_base_us(&pace), 400000);
	for (int i = 0; i < 500; i++)
		pace_rtt(&pace, 0);
	assert_in_range(pace.srtt_us, 1, 10);
}

/* The first sample counts, even of nothing. */
static void test_round_trip_zero(void **state)
{
	struct pace pace;

	(void)state;
	pace_init(&pace, 16, 64);
	pace_rtt(&pace, 0);
	assert_int_equal(pace.srtt_us, 1);
	assert_int_equal(pace_base_us(&pace), 2000);
}

static void test_timeouts(void **state)
{
	struct pace pace;

	(void)state;
	pace_init(&pace, 16, 64);
	pace_rtt(&pace, 1000);
	for (uint64_t want_us = 3000; want_us < 12000; want_us *= 2) {
		assert_int_equal(pace_rto_us(&pace), want_us);
		pace_timeout(&pace);
	}
	for (int i = 0; i < 100; i++) {
		assert_int_equal(pace_rto_us(&pace), 12000);
		assert_int_equal(pace_base_us(&pace), 3000);
		pace_timeout(&pace);
	}
	pace_progress(&pace);
	assert_int_equal(pace_rto_us(&pace), 3000);
}

static void test_window_start(void **state)
{
	static const uint32_t cases[][4] = {
		/* start, most; window, least */
		{16, 64, 16, 8}, {1, 64, 8, 8}, {0, 64, 8, 8},         {100, 64, 64, 8},
		{64, 64, 64, 8}, {1, 4, 4, 4},  {8192, 8192, 8192, 8},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct pace pace;

		pace_init(&pace, cases[i][0], cases[i][1]);
		assert_int_equal(pace.window, cases[i][2]);
		assert_int_equal(pace.window_min, cases[i][3]);
		assert_int_equal(pace.window_max, cases[i][1]);
	}
}

/* A round of `sent` packets, of which `lost` were. */
static void round_of(struct pace *pace, uint32_t sent, uint32_t lost)
{
	if (pace->round_start_us == 0)
		pace_sent(pace, 0, 1);
	pace_lost(pace, lost);
	pace_sent(pace, sent, pace->round_start_us + 1000);
}

static void test_growth(void **state)
{
	struct pace pace;

	(void)state;
	pace_init(&pace, 16, 1000);
	pace_sent(&pace, 100, 5000); /* the first round begins */
	assert_int_equal(pace.window, 16);
	pace_sent(&pace, 100, 5999); /* and is not over */
	assert_int_equal(pace.window, 16);
	pace_sent(&pace, 1, 6000);
	assert_int_equal(pace.window, 32);
	round_of(&pace, 1, 0); /* few packets without loss are enough to double */
	assert_int_equal(pace.window, 64);
	round_of(&pace, 200, 20); /* the first sign of congestion: 3 tenths less */
	assert_int_equal(pace.window, 45);
	round_of(&pace, 63, 0); /* too few to tell from now on: the round goes on */
	assert_int_equal(pace.window, 45);
	pace_sent(&pace, 1, pace.round_start_us + 1000);
	assert_int_equal(pace.window, 50); /* an eighth */
	round_of(&pace, 64, 0);
	assert_int_equal(pace.window, 56);
	for (int i = 0; i < 50; i++)
		round_of(&pace, 64, 0);
	assert_int_equal(pace.window, 1000);
	round_of(&pace, 64, 0);
	assert_int_equal(pace.window, 1000);
}

/* A round lasts a round trip, or a millisecond. */
static void test_round_length(void **state)
{
	struct pace pace;

	(void)state;
	pace_init(&pace, 16, 1000);
	pace_rtt(&pace, 5000);
	pace_sent(&pace, 1, 1);
	pace_sent(&pace, 100, 5000);
	assert_int_equal(pace.window, 16);
	pace_sent(&pace, 1, 5001);
	assert_int_equal(pace.window, 32);
	pace_sent(&pace, 1, 10000);
	assert_int_equal(pace.window, 32);
	pace_sent(&pace, 1, 10001);
	assert_int_equal(pace.window, 64);
}

/* One per cent is no sign; above it is. */
static void test_slack(void **state)
{
	struct pace pace;

	(void)state;
	pace_init(&pace, 100, 1000);
	round_of(&pace, 1024, 10);
	assert_int_equal(pace.window, 200);
	round_of(&pace, 1024, 11);
	assert_int_equal(pace.window, 140);
	assert_true(pace.grown && pace.shrinking);
}

/* Loss that halving does not lower is the path's own: back to where it was, and up. */
static void test_random_loss(void **state)
{
	struct pace pace;

	(void)state;
	pace_init(&pace, 100, 128);
	for (int i = 0; i < 3; i++)
		round_of(&pace, 1024, 51); /* 70, 49, then enough is known */
	assert_int_equal(pace.window, 100);
	assert_int_equal(pace.loss_base, 51);
	assert_false(pace.shrinking);
	for (int i = 0; i < 3; i++)
		round_of(&pace, 1024, 51);
	assert_int_equal(pace.window, 128);
	round_of(&pace, 1024, 51 + 25 + 10);
	assert_int_equal(pace.window, 128);
	round_of(&pace, 1024, 51 + 25 + 11);
	assert_int_equal(pace.window, 90);
	/* When the path recovers, the base line sinks by and by. */
	round_of(&pace, 1024, 0);
	assert_int_equal(pace.loss_base, 47);
	round_of(&pace, 1024, 31);
	assert_int_equal(pace.loss_base, 46);
	for (int i = 0; i < 40; i++)
		round_of(&pace, 1024, 0);
	assert_in_range(pace.loss_base, 0, 15);
}

/* What a calm round ends is forgotten: the next loss is a new sign. */
static void test_calm(void **state)
{
	struct pace pace;

	(void)state;
	pace_init(&pace, 100, 128);
	round_of(&pace, 1024, 100);
	assert_int_equal(pace.window, 70);
	round_of(&pace, 1024, 0);
	assert_int_equal(pace.window, 78);
	round_of(&pace, 1024, 100);
	assert_int_equal(pace.mark, 78);
	round_of(&pace, 1024, 100);
	assert_int_equal(pace.window, 39);
	assert_int_equal(pace.loss_base, 0);
}

/* A quarter less loss at half the window is an answer; less than that is none. */
static void test_quarter(void **state)
{
	struct pace pace;

	(void)state;
	for (uint32_t lost = 799; lost <= 800; lost++) {
		pace_init(&pace, 100, 128);
		round_of(&pace, 2048, 1066);
		assert_int_equal(pace.mark_ratio, 533);
		round_of(&pace, 2048, 1066);
		assert_int_equal(pace.window, 49);
		round_of(&pace, 2048, lost);
		assert_int_equal(pace.window, lost == 800 ? 100 : 35);
	}
}

/* Loss that sinks with the window goes on being answered, down to the least. */
static void test_congestion(void **state)
{
	struct pace pace;
	uint32_t lost = 500;

	(void)state;
	pace_init(&pace, 1000, 1000);
	for (int i = 0; i < 12; i++) {
		round_of(&pace, 1024, lost);
		lost = lost * 3 / 4;
		if (lost < 20)
			break;
	}
	assert_in_range(pace.window, 8, 60);
	assert_int_equal(pace.loss_base, 0);
	pace_init(&pace, 9, 1000);
	round_of(&pace, 1024, 500);
	assert_int_equal(pace.window, 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip), cmocka_unit_test(test_round_trip_zero),
		cmocka_unit_test(test_timeouts),   cmocka_unit_test(test_window_start),
		cmocka_unit_test(test_growth),     cmocka_unit_test(test_round_length),
		cmocka_unit_test(test_slack),      cmocka_unit_test(test_random_loss),
		cmocka_unit_test(test_congestion), cmocka_unit_test(test_quarter),
		cmocka_unit_test(test_calm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
