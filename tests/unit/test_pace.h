/* SPDX-License-Identifier: BSD-3-Clause */
/* test_pace.h - rounds of a window, as a worker would see them */
#ifndef TESTS_UNIT_TEST_PACE_H
#define TESTS_UNIT_TEST_PACE_H

#include "client/worker/pace.h"
#include "tests/unit/unit.h"

static inline void pace_begin(struct pace *pace, uint32_t start, uint32_t most)
{
	pace_init(pace, &(struct pace_config){.window_start = start, .window_max = most});
}

static uint64_t now_us;

/* A round whose round trips take so long; the window was full in it, and half as many RESULTs came. */
static inline void round_of(struct pace *pace, uint64_t path_us)
{
	pace_sent(pace, pace->window);
	for (uint32_t i = 0; i < (pace->window + 1) / 2; i++)
		(void)pace_result(pace);
	for (int i = 0; i < 3 && (i == 0 || pace->round.samples > 0); i++) {
		now_us += 2 * path_us;
		pace_rtt(pace, path_us, path_us, now_us);
	}
}

/* One that has doubled up to a window of 64, where a round trip takes 100 us. */
static inline void grown_to_64(struct pace *pace, uint32_t most)
{
	now_us = 1000;
	pace_begin(pace, 8, most);
	for (int i = 0; i < 3; i++)
		round_of(pace, 100);
	assert_int_equal(pace->window, 64);
	assert_true(pace->doubling);
}

static inline void sent_of(struct pace *pace, uint32_t lost)
{
	pace_lost(pace, lost);
	for (int i = 0; i < 256; i++)
		pace_sent(pace, 0);
}

#endif /* TESTS_UNIT_TEST_PACE_H */
