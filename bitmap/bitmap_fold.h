/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bitmap_fold.h - load() and reduce() of an engine; private to bitmap/
 *
 * The compiler turns the loops into the engine's instructions. The loops are IEEE 754 or
 * wrapping arithmetic, element by element, so all engines agree. Only f16 needs instructions
 * that compilers do not make of a loop; the two hooks have them.
 */
#ifndef BITMAP_BITMAP_FOLD_H
#define BITMAP_BITMAP_FOLD_H

#include "bitmap/bitmap_impl.h"

/*
 * Hooks: binary16 to binary32, and back with rounding to nearest even. A NaN keeps its sign and the
 * upper bits of its payload and becomes quiet, as in the F16C instructions. The 16-bit side may
 * have any address.
 */
static void f16_widen(float *restrict dst, const void *restrict src, uint64_t count);
static void f16_narrow(void *restrict dst, const float *restrict src, uint64_t count);

/* 16-bit floats are widened into a buffer of this size on the stack. */
#define CHUNK_ELEMS 256

static inline uint64_t chunk_of(uint64_t left)
{
	return left < CHUNK_ELEMS ? left : CHUNK_ELEMS;
}

static inline uint32_t f32_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float f32_of(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static void bf16_widen(float *restrict dst, const void *restrict src, uint64_t count)
{
	const u16_any *in = src;

	for (uint64_t i = 0; i < count; i++)
		dst[i] = f32_of((uint32_t)in[i] << 16);
}

static void bf16_narrow(void *restrict dst, const float *restrict src, uint64_t count)
{
	u16_any *out = dst;

	for (uint64_t i = 0; i < count; i++) {
		uint32_t bits = f32_bits(src[i]);
		uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
		bool nan = (bits & 0x7fffffff) > 0x7f800000;

		out[i] = (uint16_t)((nan ? bits | 0x400000 : rounded) >> 16);
	}
}

/* acc[i] = acc[i] (op) src[i], where `result` is the operation on a and b. */
#define DEFINE_FOLD(name, type, result)                                                            \
	static void name(void *restrict acc, const void *restrict src, uint64_t count)             \
	{                                                                                          \
		type *restrict as = acc;                                                           \
		const type *restrict bs = src;                                                     \
                                                                                                   \
		for (uint64_t i = 0; i < count; i++) {                                             \
			const type a = as[i];                                                      \
			const type b = bs[i];                                                      \
                                                                                                   \
			as[i] = (result);                                                          \
		}                                                                                  \
	}

/*
 * Integers add and multiply unsigned, because that wraps. In the minimum and maximum of floats a
 * NaN in b wins because the comparison fails, a NaN in a because of a != a.
 */
#define DEFINE_FOLDS(t, any, wrapping, less, greater)                                              \
	DEFINE_FOLD(t##_sum, wrapping, a + b)                                                      \
	DEFINE_FOLD(t##_prod, wrapping, (a * b))                                                   \
	DEFINE_FOLD(t##_min, any, less ? a : b)                                                    \
	DEFINE_FOLD(t##_max, any, greater ? a : b)                                                 \
	static const fold_fn t##_folds[] = {                                                       \
		[REDUCE_SUM] = t##_sum, [REDUCE_AVG] = t##_sum,   [REDUCE_MIN] = t##_min,          \
		[REDUCE_MAX] = t##_max, [REDUCE_PROD] = t##_prod,                                  \
	};

typedef void (*fold_fn)(void *restrict acc, const void *restrict src, uint64_t count);

DEFINE_FOLDS(f32, f32_any, f32_any, (a < b || a != a), (a > b || a != a))
DEFINE_FOLDS(f64, f64_any, f64_any, (a < b || a != a), (a > b || a != a))
DEFINE_FOLDS(i32, i32_any, u32_any, (a < b), (a > b))
DEFINE_FOLDS(i64, i64_any, u64_any, (a < b), (a > b))

/* acc[i] += src[i], where acc is twice as wide; there are too few workers for it to overflow. */
#define DEFINE_ADD(name, narrow, wide, wide_any)                                                   \
	static void name(void *restrict acc, const void *restrict src, uint64_t count)             \
	{                                                                                          \
		wide_any *restrict sums = acc;                                                     \
		const narrow *restrict in = src;                                                   \
                                                                                                   \
		for (uint64_t i = 0; i < count; i++)                                               \
			sums[i] = (wide)(sums[i] + (wide)in[i]);                                   \
	}                                                                                          \
                                                                                                   \
	static void name##_widen(void *restrict acc, const void *restrict src, uint64_t count)     \
	{                                                                                          \
		wide_any *restrict sums = acc;                                                     \
		const narrow *restrict in = src;                                                   \
                                                                                                   \
		for (uint64_t i = 0; i < count; i++)                                               \
			sums[i] = (wide)in[i];                                                     \
	}

DEFINE_ADD(add_i16, i16_any, int32_t, i32_any)
DEFINE_ADD(add_i8, int8_t, int16_t, i16_any)

/* The 16-bit floats have no entry, because they are widened to f32 first. */
static const fold_fn *const folds_of[] = {
	[DTYPE_F32] = f32_folds,
	[DTYPE_F64] = f64_folds,
	[DTYPE_I32] = i32_folds,
	[DTYPE_I64] = i64_folds,
	[DTYPE_I16] = (const fold_fn[]){[REDUCE_SUM] = add_i16},
	[DTYPE_I8] = (const fold_fn[]){[REDUCE_SUM] = add_i8},
};

static inline bool in_range(enum dtype dtype, enum reduction op)
{
	return dtype >= 1 && op >= 1 && op <= REDUCE_COUNT &&
	       (dtype <= DTYPE_COUNT || (dtype <= DTYPE_WIRE_COUNT && op == REDUCE_SUM));
}

static void load(void *acc, const void *src, uint64_t count, enum dtype dtype)
{
	assert(dtype_bytes(dtype) > 0);
	if (dtype == DTYPE_F16)
		f16_widen(acc, src, count);
	else if (dtype == DTYPE_BF16)
		bf16_widen(acc, src, count);
	else if (dtype == DTYPE_I16)
		add_i16_widen(acc, src, count);
	else if (dtype == DTYPE_I8)
		add_i8_widen(acc, src, count);
	else if (count > 0)
		memcpy(acc, src, count * dtype_bytes(dtype));
}

static void reduce(void *acc, const void *src, uint64_t count, enum dtype dtype, enum reduction op)
{
	const unsigned char *in = src;
	f32_any *sums = acc;
	float widened[CHUNK_ELEMS];
	uint64_t n;

	assert(in_range(dtype, op));
	if (dtype != DTYPE_F16 && dtype != DTYPE_BF16) {
		folds_of[dtype][op](acc, src, count);
		return;
	}
	for (uint64_t at = 0; at < count; at += n) {
		n = chunk_of(count - at);
		load(widened, in + 2 * at, n, dtype);
		f32_folds[op](sums + at, widened, n);
	}
}

#endif /* BITMAP_BITMAP_FOLD_H */
