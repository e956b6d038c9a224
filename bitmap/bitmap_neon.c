// SPDX-License-Identifier: BSD-3-Clause
/* bitmap_neon.c - the engine for 64-bit Arm, 16 bytes a step; every such CPU has NEON */

#include <arm_neon.h>

#include "bitmap/bitmap_impl.h"

typedef uint64x2_t vector;
#define OWN_LANES_ANY

#include "bitmap/bitmap_finish.h"
#include "bitmap/bitmap_fold.h"
#include "bitmap/bitmap_pack.h"
#include "bitmap/bitmap_scan.h"
#include "bitmap/bitmap_sparse.h"

static inline vector load_vector(const unsigned char *at)
{
	return vreinterpretq_u64_u8(vld1q_u8(at));
}

static inline vector load_four(const unsigned char *at)
{
	return vorrq_u64(vorrq_u64(load_vector(at), load_vector(at + 16)),
	                 vorrq_u64(load_vector(at + 32), load_vector(at + 48)));
}

static __always_inline bool vector_any(vector v)
{
	return vmaxvq_u32(vreinterpretq_u32_u64(v)) != 0;
}

static __always_inline bool block_any(const unsigned char *block, uint64_t bytes, uint64_t care)
{
	const vector cares = vdupq_n_u64(care);
	vector any = vdupq_n_u64(0);
	uint64_t at = 0;

	if (bytes < 16)
		return rest_any(block, bytes, care);
	if (bytes > 256) {
		/* In a dense tensor the first cache line of each block decides. */
		if (vector_any(vandq_u64(load_four(block), cares)))
			return true;
		for (; at + 128 <= bytes; at += 128)
			if (vector_any(vandq_u64(
				    vorrq_u64(load_four(block + at), load_four(block + at + 64)),
				    cares)))
				return true;
	}
	for (; at + 16 < bytes; at += 16)
		any = vorrq_u64(any, load_vector(block + at));
	any = vorrq_u64(any, load_vector(block + bytes - 16)); /* reads some bytes twice */
	return vector_any(vandq_u64(any, cares));
}

/* Returns all ones or zeros for each of 16 lanes of 2, 4 or 8 bytes: the lowest byte of each. */
static __always_inline uint8x16_t sixteen_any(const unsigned char *at, uint32_t lane_bytes,
                                              vector cares)
{
	uint16x8_t halves[2];

	for (unsigned int h = 0; h < 2; h++, at += (size_t)lane_bytes * 8) {
		uint32x4_t words[2];

		if (lane_bytes == 2) {
			halves[h] = vtstq_u16(vreinterpretq_u16_u64(load_vector(at)),
			                      vreinterpretq_u16_u64(cares));
			continue;
		}
		for (unsigned int w = 0; w < 2; w++) {
			const unsigned char *four = at + (size_t)lane_bytes * 4 * w;

			if (lane_bytes == 4)
				words[w] = vtstq_u32(vreinterpretq_u32_u64(load_vector(four)),
				                     vreinterpretq_u32_u64(cares));
			else
				words[w] = vuzp1q_u32(
					vreinterpretq_u32_u64(vtstq_u64(load_vector(four), cares)),
					vreinterpretq_u32_u64(
						vtstq_u64(load_vector(four + 16), cares)));
		}
		halves[h] = vuzp1q_u16(vreinterpretq_u16_u32(words[0]),
		                       vreinterpretq_u16_u32(words[1]));
	}
	return vuzp1q_u8(vreinterpretq_u8_u16(halves[0]), vreinterpretq_u8_u16(halves[1]));
}

static __always_inline uint64_t lanes_any(const unsigned char *at, uint32_t lane_bytes,
                                          uint64_t care)
{
	static const uint8_t places[16] = {1, 2, 4, 8, 16, 32, 64, 128,
	                                   1, 2, 4, 8, 16, 32, 64, 128};
	const uint8x16_t place = vld1q_u8(places);
	const vector cares = vdupq_n_u64(care);
	uint8x16_t bits[4];

	for (unsigned int i = 0; i < 4; i++)
		bits[i] = vandq_u8(sixteen_any(at + (size_t)lane_bytes * 16 * i, lane_bytes, cares),
		                   place);
	/* Adding neighbours three times makes one byte of eight bits out of eight bytes. */
	bits[0] = vpaddq_u8(vpaddq_u8(bits[0], bits[1]), vpaddq_u8(bits[2], bits[3]));
	bits[0] = vpaddq_u8(bits[0], bits[0]);
	return vgetq_lane_u64(vreinterpretq_u64_u8(bits[0]), 0);
}

static __always_inline vector vector_max(vector a, vector b, uint32_t lane_bytes)
{
	switch (lane_bytes) {
	case 2:
		return vreinterpretq_u64_u16(
			vmaxq_u16(vreinterpretq_u16_u64(a), vreinterpretq_u16_u64(b)));
	case 4:
		return vreinterpretq_u64_u32(
			vmaxq_u32(vreinterpretq_u32_u64(a), vreinterpretq_u32_u64(b)));
	}
	return vbslq_u64(vcgtq_u64(a, b), a, b);
}

static __always_inline vector block_max(const unsigned char *block, uint64_t bytes,
                                        uint32_t lane_bytes)
{
	const vector cares = lane_bytes == 2   ? vreinterpretq_u64_u16(vdupq_n_u16(INT16_MAX))
	                     : lane_bytes == 4 ? vreinterpretq_u64_u32(vdupq_n_u32(INT32_MAX))
	                                       : vdupq_n_u64(INT64_MAX);
	vector max = vdupq_n_u64(0);
	unsigned char rest[16] = {0};

	if (bytes < 16) {
		memcpy(rest, block, bytes);
		return vandq_u64(load_vector(rest), cares);
	}
	for (uint64_t at = 0; at + 16 < bytes; at += 16)
		max = vector_max(max, vandq_u64(load_vector(block + at), cares), lane_bytes);
	return vector_max(max, vandq_u64(load_vector(block + bytes - 16), cares), lane_bytes);
}

static void f16_widen(float *restrict dst, const void *restrict src, uint64_t count)
{
	const u16_any *in = src;
	uint64_t i = 0;

	for (; i + 4 <= count; i += 4) {
		uint16x4_t halves;

		memcpy(&halves, in + i, sizeof(halves));
		vst1q_f32(dst + i, vcvt_f32_f16(vreinterpret_f16_u16(halves)));
	}
	for (; i < count; i++)
		dst[i] = vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(in[i]))), 0);
}

static void f16_narrow(void *restrict dst, const float *restrict src, uint64_t count)
{
	u16_any *out = dst;
	uint64_t i = 0;

	for (; i + 4 <= count; i += 4) {
		const uint16x4_t halves = vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(src + i)));

		memcpy(out + i, &halves, sizeof(halves));
	}
	for (; i < count; i++)
		out[i] = vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(src[i]))), 0);
}

DEFINE_ENGINE(neon);
