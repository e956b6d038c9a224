// SPDX-License-Identifier: BSD-3-Clause
/* test_topk.c - the largest elements against a sort, and what is remembered of the others */

#include "bitmap/topk.h"

#include <math.h>
#include <stdlib.h>

#include "tests/unit/test_bitmap.h"

#define COUNT_MAX 9000

static int by_size(const void *a, const void *b)
{
	const float x = fabsf(*(const float *)a), y = fabsf(*(const float *)b);

	return (x < y) - (x > y);
}

static float random_value(void)
{
	switch (random_below(8)) {
	case 0:
		return 0;
	case 1: /* many alike */
		return (float)random_below(5) - 2;
	case 2: /* far below the others */
		return ldexpf((float)random_below(1000), -150);
	default:
		return ldexpf((float)random_below(1 << 24) - (1 << 23), (int)random_below(30) - 40);
	}
}

/* A chunk of f32: the k largest, the first of equals, nothing that is zero. */
static void check_chunk(const float *gradient, const float *memory, const float *values,
                        uint64_t count, uint64_t k)
{
	static float sorted[COUNT_MAX];
	uint64_t ties = 0;
	float least;

	memcpy(sorted, values, count * sizeof(values[0]));
	qsort(sorted, count, sizeof(sorted[0]), by_size);
	least = fabsf(sorted[k - 1]);
	for (uint64_t i = 0; i < k; i++)
		ties += fabsf(sorted[i]) == least;
	for (uint64_t i = 0; i < count; i++) {
		bool take = fabsf(values[i]) > least;

		if (fabsf(values[i]) == least && ties > 0 && least > 0) {
			take = true;
			ties--;
		}
		assert_true(gradient[i] == (take ? values[i] : 0));
		assert_true(memory[i] == (take ? 0 : values[i]));
	}
}

static void test_largest(void **state)
{
	static float gradient[COUNT_MAX], memory[COUNT_MAX], values[COUNT_MAX];

	(void)state;
	for (int round = 0; round < 600; round++) {
		const uint64_t count = random_below(random_below(4) == 0 ? COUNT_MAX : 200);
		struct topk topk = {.chunk = 1 + random_below(5000), .decay = 0.5f};
		uint64_t taken, sent = 0;

		topk.k = 1 + random_below(random_below(2) == 0 ? topk.chunk : topk.chunk / 50 + 1);
		for (uint64_t i = 0; i < count; i++) {
			gradient[i] = random_value();
			memory[i] = random_value();
			values[i] = 0.5f * memory[i] + gradient[i];
		}
		taken = topk_take(gradient, memory, count, DTYPE_F32, &topk);
		for (uint64_t at = 0; at < count; at += topk.chunk) {
			const uint64_t n = count - at < topk.chunk ? count - at : topk.chunk;
			const uint64_t k = (topk.k * n + topk.chunk - 1) / topk.chunk;

			check_chunk(gradient + at, memory + at, values + at, n, k);
		}
		for (uint64_t i = 0; i < count; i++)
			sent += gradient[i] != 0;
		assert_int_equal(sent, taken);
	}
}

static float bf16_value(uint16_t bits)
{
	const uint32_t wide = (uint32_t)bits << 16;
	float value;

	memcpy(&value, &wide, sizeof(value));
	return value;
}

/* What is rounded off is remembered as well: nothing that was ever given is lost. */
static void test_rounding(void **state)
{
	static uint16_t gradient[COUNT_MAX];
	static float memory[COUNT_MAX];
	static double given[COUNT_MAX], got[COUNT_MAX];
	const struct topk topk = {.chunk = 1000, .k = 30, .decay = 1};

	(void)state;
	memset(memory, 0, sizeof(memory));
	for (int step = 0; step < 200; step++) {
		for (uint64_t i = 0; i < COUNT_MAX; i++) {
			gradient[i] = (uint16_t)(0x3e00 + random_below(0x100));
			given[i] += (double)bf16_value(gradient[i]);
		}
		topk_take(gradient, memory, COUNT_MAX, DTYPE_BF16, &topk);
		for (uint64_t i = 0; i < COUNT_MAX; i++)
			got[i] += (double)bf16_value(gradient[i]);
	}
	for (uint64_t i = 0; i < COUNT_MAX; i++) {
		assert_true(got[i] > 0); /* everyone's turn comes */
		assert_true(fabs(given[i] - got[i] - (double)memory[i]) < 1e-3 * given[i]);
	}
}

/* All that is not finite goes, beyond k, and leaves no trace. */
static void test_not_finite(void **state)
{
	const struct topk topk = {.chunk = 100, .k = 2, .decay = 1};
	float gradient[100], memory[100] = {0};
	uint64_t taken;

	(void)state;
	for (uint32_t i = 0; i < 100; i++)
		gradient[i] = (float)i;
	for (uint32_t i = 10; i < 40; i += 10)
		gradient[i] = i == 20 ? NAN : -INFINITY;
	memory[50] = NAN;
	taken = topk_take(gradient, memory, 100, DTYPE_F32, &topk);
	assert_int_equal(taken, 6);
	for (uint32_t i = 0; i < 100; i++) {
		const bool odd = i == 10 || i == 20 || i == 30 || i == 50;

		assert_true(odd ? !isfinite(gradient[i]) : gradient[i] == (i >= 98 ? (float)i : 0));
		assert_true(memory[i] == (odd || i >= 98 ? 0 : (float)i));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_largest),
		cmocka_unit_test(test_rounding),
		cmocka_unit_test(test_not_finite),
	};

	random_seed();
	return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
