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

/* Of each block the largest magnitude; returns how many blocks. */
static uint64_t block_sizes(const float *values, uint64_t count, uint32_t block, float *sizes)
{
	const uint64_t blocks = (count + block - 1) / block;

	memset(sizes, 0, blocks * sizeof(sizes[0]));
	for (uint64_t i = 0; i < count; i++)
		sizes[i / block] = fmaxf(sizes[i / block], fabsf(values[i]));
	return blocks;
}

/* A chunk of f32: the k largest blocks, the first of equals, nothing that is zero. */
static void check_chunk(const float *gradient, const float *memory, const float *values,
                        uint64_t count, uint32_t block, uint64_t k)
{
	static float sizes[COUNT_MAX], sorted[COUNT_MAX];
	const uint64_t blocks = block_sizes(values, count, block, sizes);
	uint64_t ties = 0;
	float least;

	memcpy(sorted, sizes, blocks * sizeof(sizes[0]));
	qsort(sorted, blocks, sizeof(sorted[0]), by_size);
	least = sorted[k - 1];
	for (uint64_t i = 0; i < k; i++)
		ties += sorted[i] == least;
	for (uint64_t i = 0; i < blocks; i++) {
		bool take = sizes[i] > least;

		if (sizes[i] == least && ties > 0 && least > 0) {
			take = true;
			ties--;
		}
		for (uint64_t at = i * block; at < count && at < (i + 1) * block; at++) {
			assert_true(gradient[at] == (take ? values[at] : 0));
			assert_true(memory[at] == (take ? 0 : values[at]));
		}
	}
}

static float gradient[COUNT_MAX], memory[COUNT_MAX], values[COUNT_MAX];

/* values: what there is to choose of. */
static void draw_values(uint64_t count, float decay)
{
	for (uint64_t i = 0; i < count; i++) {
		gradient[i] = random_value();
		memory[i] = random_value();
		values[i] = decay * memory[i] + gradient[i];
	}
}

TEST(largest)
{
	for (int round = 0; round < 900; round++) {
		const uint64_t count = random_below(random_below(4) == 0 ? COUNT_MAX : 200);
		const uint32_t block =
			round % 3 > 0
				? 1
				: 1 + (uint32_t)random_below(random_below(2) == 0 ? 40 : 1024);
		struct topk topk = {.block = block, .decay = 0.5f};
		uint64_t taken, sent = 0, blocks;

		topk.chunk = (1 + random_below(5000 / block)) * block;
		blocks = topk.chunk / block;
		topk.k = 1 +
		         random_below((uint32_t)(random_below(2) == 0 ? blocks : blocks / 50 + 1));
		draw_values(count, 0.5f);
		taken = topk_take(gradient, memory, count, DTYPE_F32, &topk);
		for (uint64_t at = 0; at < count; at += topk.chunk) {
			const uint64_t n = count - at < topk.chunk ? count - at : topk.chunk;
			const uint64_t k =
				(topk.k * ((n + block - 1) / block) + blocks - 1) / blocks;

			check_chunk(gradient + at, memory + at, values + at, n, block, k);
		}
		for (uint64_t i = 0; i < count; i++)
			sent += gradient[i] != 0;
		assert_true(block == 1 ? sent == taken : sent <= taken);
	}
}

TEST(limits)
{
	const struct topk good = {.chunk = 64, .k = 4, .block = 16, .decay = 1},
			  bad[] = {
				  {.chunk = 64, .k = 5, .block = 16, .decay = 1},
				  {.chunk = 65, .k = 4, .block = 16, .decay = 1},
				  {.chunk = 8, .k = 1, .block = 16, .decay = 1},
				  {.chunk = 0, .k = 1, .block = 16, .decay = 1},
				  {.chunk = 64, .k = 4, .block = 0, .decay = 1},
				  {.chunk = 2050, .k = 1, .block = 1025, .decay = 1},
				  {.chunk = 64, .k = 4, .block = 16, .decay = 1.5f},
				  {.chunk = 64, .k = 4, .block = 16, .decay = NAN},
				  {.chunk = 64, .k = 0, .block = 16, .decay = 1},
			  };

	assert_null(topk_wrong(&good));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_non_null(topk_wrong(&bad[i]));
}

static float bf16_value(uint16_t bits)
{
	const uint32_t wide = (uint32_t)bits << 16;
	float value;

	memcpy(&value, &wide, sizeof(value));
	return value;
}

/* What is rounded off is remembered as well: nothing that was ever given is lost. */
TEST(rounding)
{
	static uint16_t halves[COUNT_MAX];
	static double given[COUNT_MAX], got[COUNT_MAX];
	const struct topk topk = {.chunk = 1000, .k = 30, .block = 1, .decay = 1};

	memset(memory, 0, sizeof(memory));
	for (int step = 0; step < 200; step++) {
		for (uint64_t i = 0; i < COUNT_MAX; i++) {
			halves[i] = (uint16_t)(0x3e00 + random_below(0x100));
			given[i] += (double)bf16_value(halves[i]);
		}
		topk_take(halves, memory, COUNT_MAX, DTYPE_BF16, &topk);
		for (uint64_t i = 0; i < COUNT_MAX; i++)
			got[i] += (double)bf16_value(halves[i]);
	}
	for (uint64_t i = 0; i < COUNT_MAX; i++) {
		assert_true(got[i] > 0); /* everyone's turn comes */
		assert_true(fabs(given[i] - got[i] - (double)memory[i]) < 1e-3 * given[i]);
	}
}

/* All that is not finite goes, beyond k, and leaves no trace. */
TEST(not_finite)
{
	const struct topk topk = {.chunk = 100, .k = 2, .block = 1, .decay = 1},
			  pairs = {.chunk = 100, .k = 2, .block = 2, .decay = 1};
	uint64_t taken;

	memset(memory, 0, sizeof(memory));
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
	for (uint32_t i = 0; i < 100; i++)
		gradient[i] = i == 11 ? INFINITY : (float)i;
	memset(memory, 0, sizeof(memory));
	assert_int_equal(topk_take(gradient, memory, 100, DTYPE_F32, &pairs), 6);
	assert_true(gradient[10] == 10 && memory[10] == 0);
	assert_true(isinf(gradient[11]) && memory[11] == 0);
	assert_true(gradient[9] == 0 && memory[9] == 9);
}

/* What only the sum with the memory makes too large for the type is sent as its largest, and the rest is kept. */
TEST(too_large)
{
	const struct topk topk = {.chunk = 4, .k = 1, .block = 1, .decay = 1};
	uint16_t f16[4] = {0x78e2, 0, 0, 0}, bf16[4] = {0xff7f, 0, 0, 0}; /* 40000; -3.39e38 */

	memset(memory, 0, sizeof(memory));
	memory[0] = 40000;
	assert_int_equal(topk_take(f16, memory, 4, DTYPE_F16, &topk), 1);
	assert_int_equal(f16[0], 0x7bff); /* 65504 */
	assert_true(memory[0] == 80000 - 65504);
	memory[0] = -1e36f;
	assert_int_equal(topk_take(bf16, memory, 4, DTYPE_BF16, &topk), 1);
	assert_int_equal(bf16[0], 0xff7f);
	assert_true(memory[0] < -0.9e36f && memory[0] > -1.1e36f);
}
