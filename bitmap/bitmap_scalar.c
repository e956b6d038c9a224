// SPDX-License-Identifier: BSD-3-Clause
/* bitmap_scalar.c - the engine for any CPU; the others must give the same results */

#include "bitmap/bitmap_impl.h"

typedef uint64_t vector;

#include "bitmap/bitmap_finish.h"
#include "bitmap/bitmap_fold.h"
#include "bitmap/bitmap_pack.h"
#include "bitmap/bitmap_scan.h"
#include "bitmap/bitmap_sparse.h"

static inline uint64_t load_word(const unsigned char *at)
{
	uint64_t word;

	memcpy(&word, at, sizeof(word));
	return word;
}

static __always_inline bool block_any(const unsigned char *block, uint64_t bytes, uint64_t care)
{
	uint64_t at = 0;

	for (; at + 64 <= bytes; at += 64) {
		uint64_t any = 0;

		for (uint64_t i = 0; i < 64; i += 8)
			any |= load_word(block + at + i);
		if (any & care)
			return true;
	}
	for (; at + 8 <= bytes; at += 8)
		if (load_word(block + at) & care)
			return true;
	return rest_any(block + at, bytes - at, care);
}

/* Without the sign, signed lanes hold the same numbers, and SSE2 can compare only signed lanes. */
#define DEFINE_BLOCK_MAX(name, lane, below_sign)                                                   \
	static inline uint64_t name(const unsigned char *block, uint64_t bytes)                    \
	{                                                                                          \
		const lane *lanes = (const lane *)(const void *)block;                             \
		lane max = 0;                                                                      \
                                                                                                   \
		for (uint64_t i = 0; i < bytes / sizeof(lane); i++) {                              \
			lane magnitude = (lane)(lanes[i] & (below_sign));                          \
                                                                                                   \
			max = magnitude > max ? magnitude : max;                                   \
		}                                                                                  \
		return (uint64_t)max;                                                              \
	}

DEFINE_BLOCK_MAX(block_max_16, i16_any, INT16_MAX)
DEFINE_BLOCK_MAX(block_max_32, i32_any, INT32_MAX)
DEFINE_BLOCK_MAX(block_max_64, i64_any, INT64_MAX)

static __always_inline vector block_max(const unsigned char *block, uint64_t bytes,
                                        uint32_t lane_bytes)
{
	switch (lane_bytes) {
	case 2:
		return block_max_16(block, bytes);
	case 4:
		return block_max_32(block, bytes);
	}
	return block_max_64(block, bytes);
}

static __always_inline vector vector_max(vector a, vector b, uint32_t lane_bytes)
{
	(void)lane_bytes;
	return a > b ? a : b;
}

static __always_inline bool vector_any(vector v)
{
	return v != 0;
}

/* Chooses without a branch: loops with conditional float operations are not vectorised. */
static inline uint32_t choose(bool first, uint32_t a, uint32_t b)
{
	return b ^ ((a ^ b) & (0 - (uint32_t)first));
}

/*
 * binary16 has 5 bits of exponent with bias 15 and 10 bits of mantissa; binary32 has 8 with bias
 * 127, and 23. So the mantissa moves by 13 bits and the exponent grows by 112.
 */
static inline float f32_of_f16(uint16_t half)
{
	const uint32_t sign = (uint32_t)(half & 0x8000) << 16;
	const uint32_t magnitude = half & 0x7fff;
	const uint32_t normal = (magnitude << 13) + (112u << 23);
	const uint32_t subnormal = f32_bits((float)(int32_t)magnitude * 0x1p-24f);
	const uint32_t quiet = choose(magnitude > 0x7c00, 0x400000, 0);
	const uint32_t special = magnitude << 13 | 0x7f800000 | quiet;
	const uint32_t finite = choose(magnitude < 0x400, subnormal, normal);

	return f32_of(sign | choose(magnitude < 0x7c00, finite, special));
}

static inline uint16_t f16_of_f32(float value)
{
	const uint32_t sign = f32_bits(value) >> 16 & 0x8000;
	const uint32_t magnitude = f32_bits(value) & 0x7fffffff;
	/* Adds just under half of what is cut off, and 1 where a tie would end odd. */
	const uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
	/* The sum's lowest bit is worth 2^-24, like that of a subnormal, so the addition rounds. */
	const uint32_t subnormal = f32_bits(f32_of(magnitude) + 0.5f) - f32_bits(0.5f);
	const uint32_t finite = choose(magnitude < 113u << 23, subnormal, normal);
	const uint32_t nan = (magnitude >> 13 & 0x3ff) | 0x7e00;
	const uint32_t special = choose(magnitude > 0x7f800000, nan, 0x7c00);

	return (uint16_t)(sign | choose(magnitude < 143u << 23, finite, special));
}

static void f16_widen(float *restrict dst, const void *restrict src, uint64_t count)
{
	const u16_any *in = src;

	for (uint64_t i = 0; i < count; i++)
		dst[i] = f32_of_f16(in[i]);
}

static void f16_narrow(void *restrict dst, const float *restrict src, uint64_t count)
{
	u16_any *out = dst;

	for (uint64_t i = 0; i < count; i++)
		out[i] = f16_of_f32(src[i]);
}

DEFINE_ENGINE(scalar);
