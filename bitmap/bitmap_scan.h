/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bitmap_scan.h - scan() and scan_range() of an engine, except the hooks; private to bitmap/
 *
 * Floats without their sign sort like unsigned integers. The largest of them tells whether a
 * block is zero, whether the tensor is finite, and the exponent, so scan_range() only has to find
 * the largest, for each block and for the tensor.
 */
#ifndef BITMAP_BITMAP_SCAN_H
#define BITMAP_BITMAP_SCAN_H

#include "bitmap/bitmap_impl.h"

/*
 * Hooks. The including file defines the type `vector` first: one maximum in each lane of 2, 4 or 8
 * bytes. No hook may read a byte outside the block.
 */
static __always_inline bool block_any(const unsigned char *block, uint64_t bytes, uint64_t care);
/* Returns which of 64 lanes of 2, 4 or 8 bytes are not zero. OWN_LANES_ANY replaces it. */
static __always_inline uint64_t lanes_any(const unsigned char *at, uint32_t lane_bytes,
                                          uint64_t care);
static __always_inline vector block_max(const unsigned char *block, uint64_t bytes,
                                        uint32_t lane_bytes);
static __always_inline vector vector_max(vector a, vector b, uint32_t lane_bytes);
static __always_inline bool vector_any(vector v);

/* block_any() for blocks of less than a vector. */
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

#ifndef OWN_LANES_ANY

/* A loop that writes bytes of 0 or 1 becomes vector instructions. */
#define DEFINE_FLAGS(name, lane)                                                                   \
	static inline void name(const unsigned char *at, uint64_t care, uint8_t flags[64])         \
	{                                                                                          \
		const lane *lanes = (const lane *)(const void *)at;                                \
                                                                                                   \
		for (unsigned int i = 0; i < 64; i++)                                              \
			flags[i] = (lanes[i] & (lane)care) != 0;                                   \
	}

DEFINE_FLAGS(flags_16, u16_any)
DEFINE_FLAGS(flags_32, u32_any)
DEFINE_FLAGS(flags_64, u64_any)

static __always_inline uint64_t lanes_any(const unsigned char *at, uint32_t lane_bytes,
                                          uint64_t care)
{
	uint8_t flags[64];
	uint64_t word = 0;

	if (lane_bytes == 2)
		flags_16(at, care, flags);
	else if (lane_bytes == 4)
		flags_32(at, care, flags);
	else
		flags_64(at, care, flags);
	/* The product moves eight flags side by side into the highest byte; no terms meet. */
	for (unsigned int i = 0; i < 64; i += 8) {
		uint64_t eight;

		memcpy(&eight, flags + i, sizeof(eight));
		word |= eight * UINT64_C(0x0102040810204080) >> 56 << i;
	}
	return word;
}

#endif /* OWN_LANES_ANY */

/* Bits 2i and 2i + 1 are combined into bit i. */
static inline uint64_t pairs_any(uint64_t word)
{
	word = (word | word >> 1) & UINT64_C(0x5555555555555555);
	word = (word | word >> 1) & UINT64_C(0x3333333333333333);
	word = (word | word >> 2) & UINT64_C(0x0f0f0f0f0f0f0f0f);
	word = (word | word >> 4) & UINT64_C(0x00ff00ff00ff00ff);
	word = (word | word >> 8) & UINT64_C(0x0000ffff0000ffff);
	return (word | word >> 16) & UINT32_MAX;
}

/* Blocks of these sizes are compared lane by lane, 64 blocks at once. */
static inline bool is_fine(uint64_t block_bytes)
{
	return block_bytes <= 32 && block_bytes >= 2 && (block_bytes & (block_bytes - 1)) == 0;
}

/* One word for blocks of 2 to 32 bytes: a block is one lane, or two or four of 8 bytes. */
static __always_inline uint64_t fine_word(const unsigned char *block, uint64_t block_bytes,
                                          uint64_t care)
{
	const uint64_t lanes = block_bytes / 8;
	uint64_t word = 0;

	if (lanes <= 1)
		return lanes_any(block, (uint32_t)block_bytes, care);
	for (uint64_t i = 0; i < lanes; i++) {
		uint64_t any = pairs_any(lanes_any(block + 512 * i, 8, care));

		word |= (lanes == 4 ? pairs_any(any) : any) << 64 / lanes * i;
	}
	return word;
}

/* block_bytes is cut->block_bytes, and a constant where the caller knows it. */
static __always_inline void scan_words(const struct cut *cut, uint64_t block_bytes, uint64_t bits[])
{
	const unsigned char *block = cut->data;
	uint64_t whole = cut->block_count - 1; /* the last block may be short */

	for (; whole >= 64; whole -= 64, block += 64 * block_bytes)
		*bits++ = is_fine(block_bytes) ? fine_word(block, block_bytes, cut->care)
		                               : scan_word(cut, block, block_bytes, 64);
	*bits = scan_word(cut, block, block_bytes, whole);
	block += whole * block_bytes;
	*bits |= (uint64_t)block_any(block, last_bytes(cut), cut->care) << whole;
}

static void scan(const struct bitmap_tensor *tensor, uint64_t bits[])
{
	const struct cut cut = cut_of(tensor);

	if (cut.block_count == 0)
		return;
	/* For small blocks of a known size the compiler makes code without loops. */
	switch (cut.block_bytes) {
		KNOWN(2, scan_words(&cut, 2, bits));
		KNOWN(4, scan_words(&cut, 4, bits));
		KNOWN(8, scan_words(&cut, 8, bits));
		KNOWN(16, scan_words(&cut, 16, bits));
		KNOWN(32, scan_words(&cut, 32, bits));
		KNOWN(64, scan_words(&cut, 64, bits));
		KNOWN(128, scan_words(&cut, 128, bits));
		KNOWN(256, scan_words(&cut, 256, bits));
	default:
		scan_words(&cut, cut.block_bytes, bits);
	}
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

	for (; whole >= 64; whole -= 64, block += 64 * block_bytes) {
		if (!is_fine(block_bytes)) {
			*bits++ = range_word(&top, block, block_bytes, 64, lane_bytes);
			continue;
		}
		top = vector_max(top, block_max(block, 64 * block_bytes, lane_bytes), lane_bytes);
		*bits++ = fine_word(block, block_bytes, cut->care);
	}
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
