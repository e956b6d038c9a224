// SPDX-License-Identifier: BSD-3-Clause
/* bitmap_avx512.c - the AVX-512 engine, 64 bytes a step; compiled with -mavx512f, bw, dq, vl */

#include <immintrin.h>

#include "bitmap/bitmap_impl.h"

typedef __m512i vector;
#define OWN_LANES_ANY

#include "bitmap/bitmap_finish.h"
#include "bitmap/bitmap_fold.h"
#include "bitmap/bitmap_pack.h"
#include "bitmap/bitmap_scan.h"
#include "bitmap/bitmap_sparse.h"

/* Loads 1 to 63 bytes, and zeros; a masked load does not touch what it leaves out. */
static inline __m512i load_rest(const unsigned char *at, uint64_t bytes)
{
	return _mm512_maskz_loadu_epi8((UINT64_C(1) << bytes) - 1, at);
}

static inline __m512i load_two(const unsigned char *at)
{
	return _mm512_or_si512(_mm512_loadu_si512(at), _mm512_loadu_si512(at + 64));
}

static __always_inline bool block_any(const unsigned char *block, uint64_t bytes, uint64_t care)
{
	const __m512i cares = _mm512_set1_epi64((long long)care);
	__m512i any = _mm512_setzero_si512();
	uint64_t at = 0;

	if (bytes > 256) {
		/* In a dense tensor the first cache line of each block decides. */
		if (_mm512_test_epi64_mask(_mm512_loadu_si512(block), cares))
			return true;
		for (; at + 128 <= bytes; at += 128)
			if (_mm512_test_epi64_mask(load_two(block + at), cares))
				return true;
	}
	for (; at + 64 <= bytes; at += 64)
		any = _mm512_or_si512(any, _mm512_loadu_si512(block + at));
	if (at < bytes)
		any = _mm512_or_si512(any, load_rest(block + at, bytes - at));
	return _mm512_test_epi64_mask(any, cares) != 0;
}

static __always_inline uint64_t lanes_any(const unsigned char *at, uint32_t lane_bytes,
                                          uint64_t care)
{
	const __m512i cares = _mm512_set1_epi64((long long)care);
	uint64_t word = 0;

	for (unsigned i = 0; i < lane_bytes; i++) {
		__m512i v = _mm512_loadu_si512(at + 64 * i);
		uint64_t any = lane_bytes == 2   ? _mm512_test_epi16_mask(v, cares)
		               : lane_bytes == 4 ? _mm512_test_epi32_mask(v, cares)
		                                 : _mm512_test_epi64_mask(v, cares);

		word |= any << 64 / lane_bytes * i;
	}
	return word;
}

static __always_inline vector vector_max(vector a, vector b, uint32_t lane_bytes)
{
	switch (lane_bytes) {
	case 2:
		return _mm512_max_epu16(a, b);
	case 4:
		return _mm512_max_epu32(a, b);
	}
	return _mm512_max_epu64(a, b);
}

static __always_inline vector block_max(const unsigned char *block, uint64_t bytes,
                                        uint32_t lane_bytes)
{
	const __m512i cares = lane_bytes == 2   ? _mm512_set1_epi16(INT16_MAX)
	                      : lane_bytes == 4 ? _mm512_set1_epi32(INT32_MAX)
	                                        : _mm512_set1_epi64(INT64_MAX);
	__m512i max = _mm512_setzero_si512();
	uint64_t at = 0;

	for (; at + 64 <= bytes; at += 64)
		max = vector_max(max, _mm512_and_si512(_mm512_loadu_si512(block + at), cares),
		                 lane_bytes);
	if (at < bytes)
		max = vector_max(max, _mm512_and_si512(load_rest(block + at, bytes - at), cares),
		                 lane_bytes);
	return max;
}

static __always_inline bool vector_any(vector v)
{
	return _mm512_test_epi64_mask(v, v) != 0;
}

static void f16_widen(float *restrict dst, const void *restrict src, uint64_t count)
{
	const u16_any *in = src;
	uint64_t i = 0;
	__mmask16 rest;

	for (; i + 16 <= count; i += 16) {
		__m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)(in + i));

		_mm512_storeu_ps(dst + i, _mm512_cvtph_ps(halves));
	}
	rest = (__mmask16)((1u << (count - i)) - 1);
	if (rest != 0)
		_mm512_mask_storeu_ps(dst + i, rest,
		                      _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(rest, in + i)));
}

static void f16_narrow(void *restrict dst, const float *restrict src, uint64_t count)
{
	u16_any *out = dst;
	uint64_t i = 0;
	__mmask16 rest;

	for (; i + 16 <= count; i += 16)
		_mm256_storeu_si256(
			(__m256i *)(void *)(out + i),
			_mm512_cvtps_ph(_mm512_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
	rest = (__mmask16)((1u << (count - i)) - 1);
	if (rest != 0)
		_mm256_mask_storeu_epi16(out + i, rest,
		                         _mm512_cvtps_ph(_mm512_maskz_loadu_ps(rest, src + i),
		                                         _MM_FROUND_TO_NEAREST_INT));
}

DEFINE_ENGINE(avx512);
