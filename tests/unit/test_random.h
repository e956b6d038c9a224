/* SPDX-License-Identifier: BSD-3-Clause */
/* test_random.h - random numbers that a seed repeats */
#ifndef TESTS_UNIT_TEST_RANDOM_H
#define TESTS_UNIT_TEST_RANDOM_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* xorshift64*, one for all of a program's files; WINNOW_SEED in the environment replays another run. */
__attribute__((weak)) uint64_t random_state = UINT64_C(0x9e3779b97f4a7c15);

static inline void random_seed(void)
{
	const char *seed = getenv("WINNOW_SEED");

	if (seed != NULL)
		random_state = strtoull(seed, NULL, 0);
	printf("WINNOW_SEED=%#llx\n", (unsigned long long)random_state);
}

static inline uint64_t random_bits(void)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return random_state * UINT64_C(2685821657736338717);
}

/* 0 .. limit - 1 */
static inline uint64_t random_below(uint64_t limit)
{
	return random_bits() % limit;
}

#endif /* TESTS_UNIT_TEST_RANDOM_H */
