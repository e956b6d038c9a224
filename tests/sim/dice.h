/* SPDX-License-Identifier: BSD-3-Clause */
/* dice.h - numbers from a seed, for the making of scenarios */
#ifndef TESTS_SIM_DICE_H
#define TESTS_SIM_DICE_H

#include <stdbool.h>
#include <stdint.h>

struct dice {
	uint64_t state;
};

static inline uint64_t roll(struct dice *dice)
{
	uint64_t z = dice->state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static inline uint32_t between(struct dice *dice, uint32_t low, uint32_t high)
{
	return low + (uint32_t)(roll(dice) % (high - low + 1));
}

static inline bool one_in(struct dice *dice, uint32_t n)
{
	return roll(dice) % n == 0;
}

#define PICK(dice, ...)                                                                            \
	((const uint32_t[]){                                                                       \
		__VA_ARGS__}[roll(dice) % (sizeof((const uint32_t[]){__VA_ARGS__}) / 4)])

#endif /* TESTS_SIM_DICE_H */
