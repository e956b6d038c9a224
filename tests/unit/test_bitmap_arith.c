// SPDX-License-Identifier: BSD-3-Clause
/*
 * test_bitmap_arith.c - reduce of every engine against double precision
 *
 * A double holds the sum or product of two floats well enough to round to the same
 * float. The answers for f64 come from the plain operator.
 */

#include "bitmap/bitmap.h"
#include "tests/unit/test_bitmap.h"

#define ROUNDS 3000
#define COUNT_MAX 1100

/* One number of any type: integers exactly, floats as their value. */
struct number {
	int64_t integer;
	double value;
};

static struct number number_of(const void *at, enum dtype dtype)
{
	uint64_t element = fetch_element(at, dtype);

	switch (dtype) {
	case DTYPE_I32:
		return (struct number){.integer = (int32_t)(uint32_t)element};
	case DTYPE_I64:
		return (struct number){.integer = (int64_t)element};
	default:
		return (struct number){.value = plain_value(element, dtype)};
	}
}

static double fold_value(double a, double b, enum dtype acc, enum reduction op)
{
	double result;

	switch (op) {
	case REDUCE_PROD:
		result = a * b;
		break;
	case REDUCE_MIN:
		result = isnan(a) || isnan(b) ? NAN : a < b ? a : b;
		break;
	case REDUCE_MAX:
		result = isnan(a) || isnan(b) ? NAN : a > b ? a : b;
		break;
	default:
		result = a + b;
	}
	return acc == DTYPE_F32 ? (double)(float)result : result;
}

__extension__ typedef __int128 int128;

/* In 128 bits, cut to the type afterwards: that is what wrapping means. */
static int64_t fold_integer(int64_t a, int64_t b, enum dtype dtype, enum reduction op)
{
	int128 result;

	switch (op) {
	case REDUCE_PROD:
		result = (int128)a * b;
		break;
	case REDUCE_MIN:
		result = a < b ? a : b;
		break;
	case REDUCE_MAX:
		result = a > b ? a : b;
		break;
	default:
		result = (int128)a + b;
	}
	return dtype == DTYPE_I32 ? (int32_t)(uint32_t)result : (int64_t)(uint64_t)result;
}

static struct number fold(struct number a, struct number b, enum dtype dtype, enum reduction op)
{
	return (struct number){
		.integer = fold_integer(a.integer, b.integer, dtype, op),
		.value = fold_value(a.value, b.value, acc_dtype_of(dtype), op),
	};
}

/* -0 and +0 are the same here: which one a minimum gives is not defined. */
static bool same(struct number a, struct number b)
{
	return a.integer == b.integer && (a.value == b.value || (isnan(a.value) && isnan(b.value)));
}

/* Random elements, some of them zeros or equal to their neighbours. */
static void fill_random(unsigned char *data, uint64_t count, enum dtype dtype)
{
	const size_t size = dtype_bytes(dtype);
	const bool tame = random_below(2) == 0; /* floats near 1, whose sums are finite */

	for (uint64_t i = 0; i < count; i++) {
		uint64_t element = random_below(8) == 0 ? 0 : random_element(dtype);
		double value = ldexp((double)random_below(1 << 20) - (1 << 19), -18);

		if (tame && dtype == DTYPE_F64) {
			memcpy(&element, &value, 8);
		} else if (tame && (dtype == DTYPE_F32 || dtype == DTYPE_BF16)) {
			float f32 = (float)value;

			memcpy(&element, &f32, 4);
			element = (uint32_t)element >> (dtype == DTYPE_F32 ? 0 : 16);
		}
		store_element(data + i * size, dtype, element);
	}
}

/* Equal but for the bits of NaNs. */
static bool same_bits(const unsigned char *a, const unsigned char *b, enum dtype dtype)
{
	return memcmp(a, b, dtype_bytes(dtype)) == 0 ||
	       (isnan(number_of(a, dtype).value) && isnan(number_of(b, dtype).value));
}

struct buffers {
	struct arena src;
	struct arena acc;
	unsigned char first[COUNT_MAX * DTYPE_BYTES_MAX]; /* what the first engine gave */
	unsigned char before[COUNT_MAX * DTYPE_BYTES_MAX];
};

static void *buffers_open(void)
{
	struct buffers *buffers = malloc(sizeof(*buffers));

	assert_non_null(buffers);
	buffers->src = arena_open(COUNT_MAX * DTYPE_BYTES_MAX);
	buffers->acc = arena_open(COUNT_MAX * DTYPE_BYTES_MAX);
	return buffers;
}

static void buffers_close(struct buffers *buffers)
{
	arena_close(&buffers->src);
	arena_close(&buffers->acc);
	free(buffers);
}

static uint64_t random_count(void)
{
	const uint64_t limits[] = {4, 40, 300, COUNT_MAX};

	return random_below(limits[random_below(4)] + 1);
}

/* All engines on the same numbers. */
static void check_fold(struct buffers *buffers, const unsigned char *src, uint64_t count,
                       enum dtype dtype, enum reduction op)
{
	const enum dtype wide = acc_dtype_of(dtype);
	const size_t src_size = dtype_bytes(dtype), size = dtype_bytes(wide);
	const struct bitmap_engine *engine;

	fill_random(buffers->before, count, wide);
	for (size_t e = 0; (engine = usable_engine(e)) != NULL; e++) {
		unsigned char *acc = arena_place(&buffers->acc, count * size, size);

		memcpy(acc, buffers->before, count * size);
		engine->reduce(acc, src, count, dtype, op);
		arena_check(&buffers->acc, acc, count * size, engine->name);
		for (uint64_t i = 0; i < count; i++) {
			struct number a = number_of(buffers->before + i * size, wide);
			struct number b = number_of(src + i * src_size, dtype);

			if (!same(number_of(acc + i * size, wide), fold(a, b, dtype, op)) ||
			    (e > 0 && !same_bits(acc + i * size, buffers->first + i * size, wide)))
				fail_msg("%s %s of %s differs at %llu of %llu", engine->name,
				         reduction_name(op), dtype_name(dtype),
				         (unsigned long long)i, (unsigned long long)count);
		}
		if (e == 0)
			memcpy(buffers->first, acc, count * size);
	}
}

TEST(reduce)
{
	struct buffers *buffers = buffers_open();

	for (unsigned round = 0; round < ROUNDS; round++) {
		enum dtype dtype = (enum dtype)(1 + round % DTYPE_COUNT);
		enum reduction op = (enum reduction)(1 + round / DTYPE_COUNT % REDUCE_COUNT);
		uint64_t count = random_count();
		unsigned char *src;

		arena_protect(&buffers->src, PROT_READ | PROT_WRITE);
		src = arena_place(&buffers->src, count * dtype_bytes(dtype), 1);
		fill_random(src, count, dtype);
		arena_protect(&buffers->src, PROT_READ);
		check_fold(buffers, src, count, dtype, op);
		arena_protect(&buffers->src, PROT_READ | PROT_WRITE);
		memset(src, 0, count * dtype_bytes(dtype)); /* of workers that lack a block */
		arena_protect(&buffers->src, PROT_READ);
		check_fold(buffers, src, count, dtype, op);
	}
	buffers_close(buffers);
}
