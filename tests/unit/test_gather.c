// SPDX-License-Identifier: BSD-3-Clause
/* test_gather.c - how long datagrams may gather; what it does to operations is in the simulation */

#include "client/worker/gather.h"
#include "tests/unit/unit.h"

static struct gather gather; /* the test's */
static uint64_t now_us;

/* A thread sleeps, and then so many datagrams have come in as many microseconds each. */
static uint32_t sleeps(uint32_t datagrams, uint32_t each_us, uint32_t most)
{
	now_us += (uint64_t)datagrams * each_us;
	gather.datagrams += datagrams;
	return gather_us(&gather, most, now_us);
}

TEST(for_64_datagrams)
{
	now_us = 5000000;
	gather = (struct gather){.since_us = now_us};
	assert_int_equal(sleeps(10, 10, 1000), 50); /* at first no longer */
	assert_int_equal(sleeps(5, 10, 1000), 150);
	assert_int_equal(sleeps(15, 10, 1000), 350);
	assert_int_equal(sleeps(35, 10, 1000), 640);
	assert_int_equal(sleeps(64, 10, 1000), 640);
	assert_int_equal(sleeps(64, 10, 20), 200); /* a part of what is under way */
	assert_int_equal(sleeps(20, 10, 4), 0);    /* 40 us are too short */
}

TEST(at_most_2_ms)
{
	now_us = 0;
	gather = (struct gather){.last_us = 1500};
	assert_int_equal(sleeps(12, 120, 1000), 2000);
	assert_int_equal(sleeps(1, 2000000, 1000), 2000);
}

TEST(not_at_all)
{
	now_us = 1000;
	gather = (struct gather){.since_us = 900, .last_us = 100};
	assert_int_equal(sleeps(0, 0, 1000), 0); /* nothing has come: the next one wakes it */
	now_us += 100;
	assert_int_equal(sleeps(2, 50, 1000), 250);
	assert_int_equal(sleeps(5, 50, 0), 0); /* the operation ends soon */
	assert_int_equal(sleeps(5, 50, 1000), 50);
}
