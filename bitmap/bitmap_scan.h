/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bitmap_scan.h - scan() and scan_range() of an engine, but for the hooks; private to bitmap/
 *
 * Floats without their sign order like unsigned integers, and the largest of those
 * tells zero from non-zero, finite from not, and the exponent. So that is all
 * scan_range() has to find, for a block and for the tensor.
 */
#ifndef BITMAP_BITMAP_SCAN_H
#define BITMAP_BITMAP_SCAN_H

#include "bitmap/bitmap_impl.h"

/*
 * Hooks. `vector` is a type that the including file defines first: one maximum in
 * each lane of 2, 4 or 8 bytes. No hook may read a byte outside the block.
 */
static __always_inline bool block_any(const unsigned char *block, uint64_t bytes, uint64_t care);
static __always_inline vector block_max(const unsigned char *block, uint64_t bytes,
                                        uint32_t lane_bytes);
static __always_inline vector vector_max(vector a, vector b, uint32_t lane_bytes);
static __always_inline bool vector_any(vector v);

/* block_any() for the few bytes that are no vector. */
static inline bool rest_any(const unsigned char *rest, uint64_t bytes, uint64_t care)
{
	unsigned char cares[8];
	unsigned char any = 0;

	memcpy(cares, &care, sizeof(cares));
	for (uint64_t i = 0; i < bytes; i++)
		any |= rest[i] & cares[i % 8];
	return any != 0;
}

static __always_inline uint64_t scan_word(const struct cut *cut, const unsigned char *block,
                                          uint64_t block_bytes, uint64_t block_count)
{
	uint64_t word = 0;

#pragma GCC unroll 4
	for (uint64_t b = 0; b < block_count; b++, block += block_bytes)
		word |= (uint64_t)block_any(block, block_bytes, cut->care) << b;
	return word;
}

/* block_bytes is cut->block_bytes, and a constant where the caller knows it. */
static __always_inline void scan_words(const struct cut *cut, uint64_t block_bytes, uint64_t bits[])
{
	const unsigned char *block = cut->data;
	uint64_t whole = cut->block_count - 1; /* the last one may be short */

	for (; whole >= 64; whole -= 64, block += 64 * block_bytes)
		*bits++ = scan_word(cut, block, block_bytes, 64);
	*bits = scan_word(cut, block, block_bytes, whole);
	block += whole * block_bytes;
	*bits |= (uint64_t)block_any(block, last_bytes(cut), cut->care) << whole;
}

static void scan(const struct bitmap_tensor *tensor, uint64_t bits[])
{
	const struct cut cut = cut_of(tensor);

	if (cut.block_count == 0)
		return;
	/* Small blocks of a known size become straight code. */
	if (cut.block_bytes == 64)
		scan_words(&cut, 64, bits);
	else if (cut.block_bytes == 128)
		scan_words(&cut, 128, bits);
	else if (cut.block_bytes == 256)
		scan_words(&cut, 256, bits);
	else
		scan_words(&cut, cut.block_bytes, bits);
}

static __always_inline uint64_t range_word(vector *top, const unsigned char *block,
                                           uint64_t block_bytes, uint64_t block_count,
                                           uint32_t lane_bytes)
{
	uint64_t word = 0;

	for (uint64_t b = 0; b < block_count; b++, block += block_bytes) {
		vector max = block_max(block, block_bytes, lane_bytes);

		*top = vector_max(*top, max, lane_bytes);
		word |= (uint64_t)vector_any(max) << b;
	}
	return word;
}

static inline uint64_t largest_lane(vector v, uint32_t lane_bytes)
{
	uint64_t largest = 0;

	for (size_t at = 0; at < sizeof(v); at += lane_bytes) {
		uint64_t lane = 0;

		memcpy(&lane, (const unsigned char *)&v + at, lane_bytes); /* little-endian */
		largest = lane > largest ? lane : largest;
	}
	return largest;
}

/* Returns the bits of the largest magnitude. */
static __always_inline uint64_t range_words(const struct cut *cut, uint64_t bits[],
                                            uint32_t lane_bytes)
{
	const uint64_t block_bytes = cut->block_bytes;
	const unsigned char *block = cut->data;
	uint64_t whole = cut->block_count - 1;
	vector top = {0};

	for (; whole >= 64; whole -= 64, block += 64 * block_bytes)
		*bits++ = range_word(&top, block, block_bytes, 64, lane_bytes);
	*bits = range_word(&top, block, block_bytes, whole, lane_bytes);
	block += whole * block_bytes;
	*bits |= range_word(&top, block, last_bytes(cut), 1, lane_bytes) << whole;
	return largest_lane(top, lane_bytes);
}

static void scan_range(const struct bitmap_tensor *tensor, uint64_t bits[],
                       struct bitmap_range *range)
{
	const struct cut cut = cut_of(tensor);
	uint64_t magnitude = 0;

	assert(dtype_is_float(tensor->dtype));
	if (cut.block_count > 0)
		magnitude = cut.elem_bytes == 2   ? range_words(&cut, bits, 2)
		            : cut.elem_bytes == 4 ? range_words(&cut, bits, 4)
		                                  : range_words(&cut, bits, 8);
	*range = bitmap_range_of(magnitude, tensor->dtype);
}

#endif /* BITMAP_BITMAP_SCAN_H */
