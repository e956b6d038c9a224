/* SPDX-License-Identifier: BSD-3-Clause */
/* bitmap_finish.h - finish() and the fixed-point functions of an engine; private to bitmap/ */
#ifndef BITMAP_BITMAP_FINISH_H
#define BITMAP_BITMAP_FINISH_H

#include "bitmap/bitmap_fold.h"

/* In the functions below, dst may be acc. */

#define DEFINE_DIVIDE(name, any, type, by_type)                                                    \
	static void divide_##name(void *dst, const void *acc, uint64_t count, uint32_t divisor)    \
	{                                                                                          \
		const by_type by = (by_type)divisor;                                               \
		const any *in = acc;                                                               \
		any *out = dst;                                                                    \
                                                                                                   \
		for (uint64_t i = 0; i < count; i++)                                               \
			out[i] = (type)((by_type)in[i] / by);                                      \
	}

DEFINE_DIVIDE(f32, f32_any, float, float)
DEFINE_DIVIDE(f64, f64_any, double, double)
/* A double holds every int32, and no quotient of 32-bit integers rounds up to a whole number. */
DEFINE_DIVIDE(i32, i32_any, int32_t, double)
DEFINE_DIVIDE(i64, i64_any, int64_t, int64_t)

static void finish_half(void *dst, const float *acc, uint64_t count, enum dtype dtype,
                        uint32_t divisor)
{
	unsigned char *out = dst;
	float quotients[CHUNK_ELEMS];
	uint64_t n;

	for (uint64_t at = 0; at < count; at += n) {
		n = chunk_of(count - at);
		/* This copies even where nothing is divided, because dst may be acc. */
		if (divisor > 1)
			divide_f32(quotients, acc + at, n, divisor);
		else
			memcpy(quotients, acc + at, n * sizeof(quotients[0]));
		if (dtype == DTYPE_F16)
			f16_narrow(out + 2 * at, quotients, n);
		else
			bf16_narrow(out + 2 * at, quotients, n);
	}
}

/* Divides the sums of i16 and i8 by 2^bits and rounds to nearest even. */
static void finish_fixed(void *dst, const void *acc, uint64_t count, enum dtype dtype, int bits)
{
	const int32_t half = bits > 0 ? 1 << (bits - 1) : 1;
	const i32_any *in32 = acc;
	const i16_any *in16 = acc;
	i16_any *out16 = dst;
	int8_t *out8 = dst;
	int32_t sums[CHUNK_ELEMS];
	uint64_t n;

	for (uint64_t at = 0; at < count; at += n) {
		n = chunk_of(count - at);
		for (uint64_t i = 0; i < n; i++) {
			const int32_t sum = dtype == DTYPE_I16 ? in32[at + i] : in16[at + i];
			const int32_t floor = sum >> bits;
			const int32_t rest = sum - (int32_t)((uint32_t)floor << bits);

			sums[i] = floor + (rest + (floor & 1) > half);
		}
		if (dtype == DTYPE_I16)
			for (uint64_t i = 0; i < n; i++)
				out16[at + i] = (int16_t)sums[i];
		else
			for (uint64_t i = 0; i < n; i++)
				out8[at + i] = (int8_t)sums[i];
	}
}

static void finish(void *dst, const void *acc, uint64_t count, enum dtype dtype, enum reduction op,
                   uint32_t workers)
{
	const uint32_t divisor = op == REDUCE_AVG ? workers : 1;

	assert(in_range(dtype, op) && workers > 0);
	if (dtype == DTYPE_I16 || dtype == DTYPE_I8)
		finish_fixed(dst, acc, count, dtype, dtype_headroom(workers));
	else if (dtype_bytes(dtype) == 2)
		finish_half(dst, acc, count, dtype, divisor);
	else if (divisor == 1 && dst != acc && count > 0)
		memcpy(dst, acc, count * dtype_bytes(dtype));
	else if (divisor > 1 && dtype == DTYPE_F32)
		divide_f32(dst, acc, count, divisor);
	else if (divisor > 1 && dtype == DTYPE_F64)
		divide_f64(dst, acc, count, divisor);
	else if (divisor > 1 && dtype == DTYPE_I32)
		divide_i32(dst, acc, count, divisor);
	else if (divisor > 1 && dtype == DTYPE_I64)
		divide_i64(dst, acc, count, divisor);
}

/* `exponent` is from -126 to 127. */
static inline float power_of_two(int exponent)
{
	return f32_of((uint32_t)(exponent + 127) << 23);
}

/*
 * 2^shift comes as two factors because one float cannot hold 2^-200 .. 2^200. The product is still
 * rounded at most once: after the first factor a value is either exact or so small that it ends as
 * 0.
 */
static void encode_i32(i32_any *out, const f32_any *in, uint64_t count, int shift)
{
	const float first = power_of_two(shift / 2);
	const float second = power_of_two(shift - shift / 2);

	for (uint64_t i = 0; i < count; i++) {
		/* At this size a double's lowest bit is worth 1, so the addition rounds to even. */
		double sum = (double)(in[i] * first * second) + 0x1.8p52;
		uint64_t bits;

		memcpy(&bits, &sum, sizeof(bits));
		out[i] = (int32_t)(uint32_t)bits;
	}
}

static void decode_i32(f32_any *out, const i32_any *in, uint64_t count, int shift, uint32_t divisor)
{
	const float first = power_of_two(-(shift / 2));
	const float second = power_of_two(-(shift - shift / 2));
	const float by = (float)divisor;

	if (divisor == 1)
		for (uint64_t i = 0; i < count; i++)
			out[i] = (float)in[i] * first * second;
	else
		for (uint64_t i = 0; i < count; i++)
			out[i] = (float)in[i] * first * second / by;
}

/* 9.2: "in fixed16 and fixed8 as 32767 or 127, or their negatives, where it would be beyond" */
static inline int32_t within_limit(int32_t value, int32_t limit)
{
	return value > limit ? limit : value < -limit ? -limit : value;
}

static void fixed_encode(void *dst, const void *src, uint64_t count, enum dtype dtype, int shift)
{
	int32_t numbers[CHUNK_ELEMS];
	const f32_any *in = src;
	i16_any *out16 = dst;
	int8_t *out8 = dst;
	uint64_t n;

	assert(shift >= -200 && shift <= 200);
	if (dtype == DTYPE_I32) {
		encode_i32(dst, src, count, shift);
		return;
	}
	assert(dtype == DTYPE_I16 || dtype == DTYPE_I8);
	for (uint64_t at = 0; at < count; at += n) {
		n = chunk_of(count - at);
		encode_i32(numbers, in + at, n, shift);
		if (dtype == DTYPE_I16)
			for (uint64_t i = 0; i < n; i++)
				out16[at + i] = (int16_t)within_limit(numbers[i], INT16_MAX);
		else
			for (uint64_t i = 0; i < n; i++)
				out8[at + i] = (int8_t)within_limit(numbers[i], INT8_MAX);
	}
}

static void fixed_decode(void *dst, const void *src, uint64_t count, enum dtype dtype, int shift,
                         uint32_t divisor)
{
	int32_t numbers[CHUNK_ELEMS];
	const i16_any *in16 = src;
	const int8_t *in8 = src;
	f32_any *out = dst;
	uint64_t n;

	assert(shift >= -200 && shift <= 200 && divisor > 0);
	if (dtype == DTYPE_I32) {
		decode_i32(dst, src, count, shift, divisor);
		return;
	}
	assert(dtype == DTYPE_I16 || dtype == DTYPE_I8);
	for (uint64_t at = 0; at < count; at += n) {
		n = chunk_of(count - at);
		for (uint64_t i = 0; i < n; i++)
			numbers[i] = dtype == DTYPE_I16 ? in16[at + i] : in8[at + i];
		decode_i32(out + at, numbers, n, shift, divisor);
	}
}

#endif /* BITMAP_BITMAP_FINISH_H */
