// SPDX-License-Identifier: BSD-3-Clause
/* test_breaker.c - loss ends a job when it is heavy and does not pause, and not before */

#include "client/worker/breaker.h"
#include "tests/unit/unit.h"

static struct breaker breaker;
static struct control_seen seen;
static struct breaker_verdict found;
static uint64_t now_us;

static int begin(void **state)
{
	breaker = (struct breaker){0};
	seen = (struct control_seen){.pushes = 5000, .out_lost = 4000, .in = 7000, .in_lost = 6000};
	now_us = 123;
	return breaker_look(&breaker, &seen, now_us, &found); /* what was before does not count */
}

/* A second in which so many went out, of which so many were lost, and so many came, or should have. */
static bool second(uint64_t out, uint64_t out_lost, uint64_t in, uint64_t in_lost)
{
	now_us += 1000000;
	seen.pushes += out;
	seen.out_lost += out_lost;
	seen.in += in - in_lost;
	seen.in_lost += in_lost;
	return breaker_look(&breaker, &seen, now_us, &found);
}

TEST_BETWEEN(out, begin, NULL)
{
	for (uint32_t i = 0; i < 9; i++)
		assert_false(second(1000, 201 + i, 1000, 200));
	assert_true(second(1000, 300, 1000, 200));
	assert_true(!found.in && found.packets == 10000 && found.lost == 9 * 201 + 36 + 300);
	assert_int_equal(found.for_us, 10000000);
}

/* What did not come is no part of what came. */
TEST_BETWEEN(in, begin, NULL)
{
	for (uint32_t i = 0; i < 9; i++)
		assert_false(second(100, 0, 1000, 210));
	assert_true(second(100, 0, 1000, 210));
	assert_true(found.in && found.packets == 10000 && found.lost == 2100);
}

/* A fifth is borne for ever; a second with less than that begins anew. */
TEST_BETWEEN(borne, begin, NULL)
{
	for (uint32_t i = 0; i < 1000; i++)
		assert_false(second(1000, 200, 1000, 200));
	for (uint32_t k = 0; k < 20; k++) {
		for (uint32_t i = 0; i < 9; i++)
			assert_false(second(1000, 900, 1000, 900));
		assert_false(second(1000, 200, 1000, 200));
	}
}

/* Few datagrams say nothing in a second, but in several: then it takes as much longer. */
TEST_BETWEEN(few, begin, NULL)
{
	uint32_t seconds = 0;

	while (!second(10, 5, 0, 0))
		assert_in_range(++seconds, 1, 69);
	assert_int_equal(seconds, 69);
	assert_int_equal(found.packets, 700);
	assert_int_equal(begin(state), 0);
	for (uint32_t i = 0; i < 1000; i++) /* an idle worker */
		assert_false(second(0, 0, 0, 0));
}

/* However often it is looked at. */
TEST_BETWEEN(often, begin, NULL)
{
	for (uint32_t i = 0; i < 9999; i++) {
		now_us += 1000;
		seen.pushes += 10;
		seen.out_lost += 3;
		assert_false(breaker_look(&breaker, &seen, now_us, &found));
	}
	now_us += 1000;
	seen.pushes += 10;
	seen.out_lost += 3;
	assert_true(breaker_look(&breaker, &seen, now_us, &found));
	assert_true(found.packets == 100000 && found.lost == 30000);
}
