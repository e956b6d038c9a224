// SPDX-License-Identifier: BSD-3-Clause
/*
 * bench_data.c - makes tensors with the wanted non-zero blocks, and checks results
 *
 * Each worker can compute all other workers' tensors, so it checks its result by itself. Values are
 * small whole numbers, whose sums are exact in f32 and wider types in any order.
 */

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bitmap/bitmap.h"
#include "client/cli/bench/bench_state.h"
#include "client/cli/cli.h"

#define VALUE_MAX 8

/* ---- which blocks ---- */

/* Reads a recorded bitmap, least significant bit first, and repeats it if it is too short. */
static bool choose_from_file(uint64_t *bits, uint64_t total, const char *pattern, uint32_t rank)
{
	const char *place = strstr(pattern, "%r");
	uint64_t wanted = total / 8 + 1, got = 0;
	uint8_t *bytes = (uint8_t *)bits;
	char path[BENCH_NAME_MAX + 16];
	FILE *file;

	snprintf(path, sizeof(path), "%s", pattern);
	if (place != NULL)
		snprintf(path, sizeof(path), "%.*s%u%s", (int)(place - pattern), pattern, rank,
		         place + 2);
	file = fopen(path, "rbe");
	if (file != NULL)
		got = fread(bytes, 1, wanted, file);
	if (got == 0)
		cli_error(1, "cannot read bitmap %s: %s", path,
		          file == NULL || ferror(file) ? strerror(errno) : "it is empty");
	for (uint64_t i = got; got > 0 && i < wanted; i++)
		bytes[i] = bytes[i - got];
	if (file != NULL)
		fclose(file);
	return got > 0;
}

static bool choose_blocks(struct bench_data *data, uint32_t rank, double density)
{
	const struct bench_settings *s = data->settings;
	const struct pattern pattern = {.units = data->block_count,
	                                .seed = s->seed,
	                                .density = density,
	                                .overlap = s->overlap,
	                                .world = s->comm.world};
	uint64_t *bits = data->bits + rank * data->words;

	if (s->overlap == PATTERN_FILE)
		return choose_from_file(bits, data->block_count, s->text.overlap + 5, rank);
	pattern_bits(&pattern, rank, 1, data->block_count, bits);
	return true;
}

/* ---- which values ---- */

/* The value of an element in a non-zero block: -8 .. 8 except 0; for products 1 or -1. */
static int value_at(const struct bench_data *data, uint32_t rank, uint64_t index)
{
	uint64_t h = pattern_hash(pattern_hash(data->settings->seed, rank + 77), index);
	int value = (int)(h % (2 * VALUE_MAX)) - VALUE_MAX;

	if (data->settings->op == WINNOW_PROD)
		return h & 1024 ? 1 : -1;
	return value >= 0 ? value + 1 : value;
}

struct bench_data *bench_data_make(const struct bench_settings *settings, uint64_t count,
                                   double density)
{
	struct bench_data *data = cli_memory(1, sizeof(*data), "a tensor");
	const uint64_t *own;

	data->settings = settings;
	data->count = count;
	data->block_elems = settings->comm.block < count ? settings->comm.block
	                    : count > 0                  ? count
	                                                 : 1;
	data->block_count = bitmap_block_count(count, data->block_elems);
	data->elem_bytes = dtype_bytes((enum dtype)settings->dtype);
	data->words = bitmap_word_count(data->block_count) + 1;
	data->bits = cli_memory(settings->comm.world * data->words, sizeof(*data->bits), "bitmaps");
	data->tensor = cli_tensor(count * data->elem_bytes);
	for (uint32_t rank = 0; rank < settings->comm.world; rank++) {
		if (choose_blocks(data, rank, density))
			continue;
		bench_data_free(data);
		return NULL;
	}
	memset(data->tensor, 0, count * data->elem_bytes);
	own = data->bits + settings->comm.rank * data->words;
	for (uint64_t i = 0; i < count; i++)
		if (bit_test(own, i / data->block_elems))
			pattern_put(data->tensor, i, (enum dtype)settings->dtype,
			            value_at(data, settings->comm.rank, i));
	return data;
}

void bench_data_free(struct bench_data *data)
{
	free(data->bits);
	free(data->tensor);
	free(data);
}

/* ---- right or wrong ---- */

static double element_get(const struct bench_data *data, const void *tensor, uint64_t index)
{
	uint32_t half = 0, bits;
	float single;

	switch (data->settings->dtype) {
	case WINNOW_F32:
		return (double)((const float *)tensor)[index];
	case WINNOW_F16:
		half = ((const uint16_t *)tensor)[index];
		if ((half & 0x7c00) == 0)
			return ldexp(half & 1023, -24) * (half & 0x8000 ? -1 : 1);
		return ldexp((half & 1023) + 1024, (int)(half >> 10 & 31) - 25) *
		       (half & 0x8000 ? -1 : 1);
	case WINNOW_BF16:
		bits = (uint32_t)((const uint16_t *)tensor)[index] << 16;
		memcpy(&single, &bits, sizeof(single));
		return (double)single;
	case WINNOW_F64:
		return ((const double *)tensor)[index];
	case WINNOW_I32:
		return ((const int32_t *)tensor)[index];
	default:
		return (double)((const int64_t *)tensor)[index];
	}
}

static double element_expected(const struct bench_data *data, uint64_t index)
{
	const struct bench_settings *s = data->settings;
	uint64_t block = index / data->block_elems;
	double result = 0;

	for (uint32_t rank = 0; rank < s->comm.world; rank++) {
		double x = 0;

		if (bit_test(data->bits + rank * data->words, block))
			x = value_at(data, rank, index);
		if (rank == 0)
			result = x;
		else if (s->op == WINNOW_MIN)
			result = x < result ? x : result;
		else if (s->op == WINNOW_MAX)
			result = x > result ? x : result;
		else
			result = s->op == WINNOW_PROD ? result * x : result + x;
	}
	if (s->op != WINNOW_AVG)
		return result;
	result /= (double)s->comm.world;
	return s->dtype >= WINNOW_I32 ? trunc(result) : result;
}

/* The error that narrow wire formats may have in sums of whole numbers, from winnow.h. */
static double error_bound(const struct bench_settings *s)
{
	double bound = s->comm.wire == WINNOW_WIRE_FIXED16  ? ldexp(VALUE_MAX, -13)
	               : s->comm.wire == WINNOW_WIRE_FIXED8 ? ldexp(VALUE_MAX, -5)
	               : s->comm.wire == WINNOW_WIRE_BF16   ? ldexp(VALUE_MAX, -7) * 1.01
	                                                    : 0;

	return s->op == WINNOW_AVG ? bound : bound * s->comm.world;
}

uint64_t bench_data_check(const struct bench_data *data, const void *result)
{
	static const int digits[] = {
		[WINNOW_F32] = 24, [WINNOW_F16] = 11, [WINNOW_BF16] = 8, [WINNOW_F64] = 53};
	enum winnow_dtype dtype = data->settings->dtype;
	double unit = dtype < WINNOW_I32 ? ldexp(1, -digits[dtype]) : 0;
	double bound = error_bound(data->settings);
	uint64_t wrong = 0;

	for (uint64_t i = 0; i < data->count; i++) {
		double want = element_expected(data, i);

		/* Only averages, long 16-bit sums and narrow wire formats round. */
		wrong += !(fabs(element_get(data, result, i) - want) <= fabs(want) * unit + bound);
	}
	return wrong;
}
