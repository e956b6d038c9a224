// SPDX-License-Identifier: BSD-3-Clause
/* test_rtt.c - the round trip's estimate, the times that follow from it, and what hosts wait */

#include "client/worker/rtt.h"
#include "tests/unit/unit.h"

static struct rtt rtt; /* the test's */

static void rtts(uint32_t count, uint64_t us)
{
	while (count-- > 0)
		rtt_take(&rtt, us, us, 1);
}

/* RFC 6298 with shifts of integers, written down by hand. */
TEST(round_trip)
{
	rtt_init(&rtt);
	assert_int_equal(rtt_probe_us(&rtt), 20000);
	rtts(1, 1000);
	assert_int_equal(rtt.srtt_us, 1000);
	assert_int_equal(rtt.rttvar_us, 500);
	assert_int_equal(rtt_probe_us(&rtt), 3000 + 300);
	rtts(1, 2000); /* var (3 * 500 + 1000) / 4, srtt (7 * 1000 + 2000) / 8 */
	assert_int_equal(rtt.rttvar_us, 625);
	assert_int_equal(rtt.srtt_us, 1125);
	assert_int_equal(rtt_probe_us(&rtt), 3625 + 300);
	rtts(1, 125); /* var (3 * 625 + 1000) / 4, srtt (7 * 1125 + 125) / 8 */
	assert_int_equal(rtt.rttvar_us, 718);
	assert_int_equal(rtt.srtt_us, 1000);
	rtts(200, 400);
	assert_in_range(rtt.srtt_us, 400, 410);
	assert_in_range(rtt_probe_us(&rtt), 700, 710 + 4 * 4);
	rtts(200, 300000);
	assert_in_range(rtt.srtt_us, 299900, 300000);
	rtts(1, UINT32_MAX); /* what a forged STATUS may make of it */
	assert_int_equal(rtt_probe_us(&rtt), 400000);
	rtts(500, 0);
	assert_in_range(rtt.srtt_us, 1, 10);
}

/* As long again as it has lasted, up to 32 probe times, and to 400 ms. */
TEST(silence)
{
	rtt_init(&rtt);
	rtts(1, 1000);
	assert_int_equal(rtt_silence_us(&rtt, 3300), 3300);
	assert_int_equal(rtt_silence_us(&rtt, 32 * 3300 - 1), 32 * 3300 - 1);
	assert_int_equal(rtt_silence_us(&rtt, UINT64_MAX), 32 * 3300);
	rtts(200, 50000);
	assert_int_equal(rtt_silence_us(&rtt, UINT64_MAX), 400000);
}

/* A wait is learned at once, and forgotten in some hundred round trips: it is near the longest, not the usual one. */
TEST(waits)
{
	rtt_init(&rtt);
	rtt_take(&rtt, 2100, 100, 1);
	assert_int_equal(rtt.wait_us, 1000);
	rtt_take(&rtt, 2100, 90, 1);
	assert_int_equal(rtt.wait_us, 1505);
	rtt_take(&rtt, 100, 100, 1);
	assert_int_equal(rtt.wait_us, 1505 - 23);
	assert_int_equal(rtt.best_us, 90);
	for (int i = 0; i < 1000; i++)
		rtt_take(&rtt, i % 4 == 0 ? 1100 : 100, 100, 1);
	assert_in_range(rtt.wait_us, 900, 1000);
	rtts(300, 100);
	assert_in_range(rtt.wait_us, 0, 64);
}

/* Ways may become longer: the shortest one is forgotten after ten to twenty seconds. */
TEST(shortest_way)
{
	const uint64_t s = 1000000;

	rtt_init(&rtt);
	rtt_take(&rtt, 100, 100, s);
	rtt_take(&rtt, 600, 600, 11 * s - 1);
	assert_int_equal(rtt.best_us, 100);
	rtt_take(&rtt, 700, 700, 11 * s);
	assert_int_equal(rtt.best_us, 100);
	rtt_take(&rtt, 600, 600, 21 * s - 1);
	assert_int_equal(rtt.best_us, 100);
	rtt_take(&rtt, 700, 700, 21 * s);
	assert_int_equal(rtt.best_us, 600);
	rtt_take(&rtt, 50, 50, 21 * s + 1);
	assert_int_equal(rtt.best_us, 50);
	rtt_take(&rtt, 900, 900,
	         60 * s); /* after a pause nothing is forgotten that has no successor */
	assert_int_equal(rtt.best_us, 50);
}
