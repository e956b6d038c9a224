// SPDX-License-Identifier: BSD-3-Clause
/* bitmap_avx2.c - the AVX2 engine, 32 bytes a step; compiled with -mavx2, -mf16c, -mbmi, -mbmi2 */

#include <immintrin.h>

#include "bitmap/bitmap_impl.h"

typedef __m256i vector;

#include "bitmap/bitmap_finish.h"
#include "bitmap/bitmap_fold.h"
#include "bitmap/bitmap_pack.h"
#include "bitmap/bitmap_scan.h"
#include "bitmap/bitmap_sparse.h"

static inline __m256i load_vector(const unsigned char *at)
{
	return _mm256_loadu_si256((const __m256i *)(const void *)at);
}

static inline __m256i load_four(const unsigned char *at)
{
	return _mm256_or_si256(_mm256_or_si256(load_vector(at), load_vector(at + 32)),
	                       _mm256_or_si256(load_vector(at + 64), load_vector(at + 96)));
}

static __always_inline bool block_any(const unsigned char *block, uint64_t bytes, uint64_t care)
{
	const __m256i cares = _mm256_set1_epi64x((long long)care);
	__m256i any = _mm256_setzero_si256();
	uint64_t at = 0;

	if (bytes < 32)
		return rest_any(block, bytes, care);
	if (bytes > 256) {
		/* In a dense tensor the first cache line of each block decides. */
		if (!_mm256_testz_si256(
			    _mm256_or_si256(load_vector(block), load_vector(block + 32)), cares))
			return true;
		for (; at + 128 <= bytes; at += 128)
			if (!_mm256_testz_si256(load_four(block + at), cares))
				return true;
	}
	for (; at + 32 < bytes; at += 32)
		any = _mm256_or_si256(any, load_vector(block + at));
	any = _mm256_or_si256(any, load_vector(block + bytes - 32)); /* reads some bytes twice */
	return !_mm256_testz_si256(any, cares);
}

static __always_inline vector vector_max(vector a, vector b, uint32_t lane_bytes)
{
	switch (lane_bytes) {
	case 2:
		return _mm256_max_epu16(a, b);
	case 4:
		return _mm256_max_epu32(a, b);
	}
	/* AVX2 compares 64-bit lanes only as signed; ours are below the sign bit. */
	return _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(b, a));
}

static __always_inline vector block_max(const unsigned char *block, uint64_t bytes,
                                        uint32_t lane_bytes)
{
	const __m256i cares = lane_bytes == 2   ? _mm256_set1_epi16(INT16_MAX)
	                      : lane_bytes == 4 ? _mm256_set1_epi32(INT32_MAX)
	                                        : _mm256_set1_epi64x(INT64_MAX);
	__m256i max = _mm256_setzero_si256();
	unsigned char rest[32] = {0};

	if (bytes < 32) {
		memcpy(rest, block, bytes);
		return _mm256_and_si256(load_vector(rest), cares);
	}
	for (uint64_t at = 0; at + 32 < bytes; at += 32)
		max = vector_max(max, _mm256_and_si256(load_vector(block + at), cares), lane_bytes);
	return vector_max(max, _mm256_and_si256(load_vector(block + bytes - 32), cares),
	                  lane_bytes);
}

static __always_inline bool vector_any(vector v)
{
	return !_mm256_testz_si256(v, v);
}

static void f16_widen(float *restrict dst, const void *restrict src, uint64_t count)
{
	const u16_any *in = src;
	uint64_t i = 0;

	for (; i + 8 <= count; i += 8) {
		__m128i halves = _mm_loadu_si128((const __m128i *)(const void *)(in + i));

		_mm256_storeu_ps(dst + i, _mm256_cvtph_ps(halves));
	}
	for (; i < count; i++)
		dst[i] = _cvtsh_ss(in[i]);
}

static void f16_narrow(void *restrict dst, const float *restrict src, uint64_t count)
{
	u16_any *out = dst;
	uint64_t i = 0;

	for (; i + 8 <= count; i += 8) {
		__m128i halves =
			_mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT);

		_mm_storeu_si128((__m128i *)(void *)(out + i), halves);
	}
	for (; i < count; i++)
		out[i] = _cvtss_sh(src[i], _MM_FROUND_TO_NEAREST_INT);
}

DEFINE_ENGINE(avx2);
