/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bitmap.h - find the non-zero blocks of a tensor, pack them, unpack them, add them
 *
 * A tensor of `count` elements is cut into blocks of `block_elems`; the last one may be shorter.
 * Bit b of a bitmap is 1 when block b holds an element that is not zero. +0 and -0 are both zero,
 * every NaN is non-zero, and an integer is zero when all its bits are. Bits are numbered from the
 * least significant bit of word 0; bits past the last block are written as 0.
 *
 * Rules for every function here:
 * - Tensors are aligned as C requires for their element type. Only `src` of unpack(), reduce(),
 *   reduce_at(), load() and the fixed-point functions, and `dst` of pack() and finish(), may have
 *   any address, because they point into packets.
 * - No function reads or writes a byte outside the given elements, not even within the same cache
 *   line. Inputs are const.
 * - All counts may be 0. All engines give bit-identical results, except that the sign and payload
 *   of a NaN that arithmetic produces are undefined.
 * - Bits past the last block of a bitmap that the caller passes are ignored.
 * - Any thread may call any function. No function keeps state between calls, blocks, allocates or
 *   fails. Out-of-range enums are a caller's bug (assert).
 */
#ifndef BITMAP_BITMAP_H
#define BITMAP_BITMAP_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/dtype.h"
#include "bitmap/why.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What scan_range() finds in addition to the bitmap; float types only. */
struct bitmap_range {
	/*
	 * 9.1: "the smallest E with |x| < 2^E for all elements" that are finite: frexp's exponent
	 * (1.0 has 1, subnormals have their true one). It is BITMAP_EXPONENT_NONE when all elements
	 * are zero or there are none, and undefined when nonfinite is set.
	 */
	int32_t exponent;
	bool nonfinite; /* an infinity or a NaN occurs */
};

#define BITMAP_EXPONENT_NONE INT32_MIN

/*
 * bitmap_range_of - the range of a float tensor whose largest element has the bits `magnitude`,
 * without its sign. `magnitude` is 0 when all elements are zero or there are none.
 */
struct bitmap_range bitmap_range_of(uint64_t magnitude, enum dtype dtype);

/* bitmap_range_both - the range of two tensors together. */
struct bitmap_range bitmap_range_both(struct bitmap_range a, struct bitmap_range b);

static inline uint64_t bitmap_block_count(uint64_t count, uint64_t block_elems)
{
	return count / block_elems + (count % block_elems != 0);
}

static inline uint64_t bitmap_word_count(uint64_t block_count)
{
	return block_count / 64 + (block_count % 64 != 0);
}

static inline bool bit_test(const uint64_t *words, uint64_t bit)
{
	return words[bit / 64] >> (bit % 64) & 1;
}

static inline void bit_set(uint64_t *words, uint64_t bit)
{
	words[bit / 64] |= UINT64_C(1) << (bit % 64);
}

static inline uint64_t bitmap_set_count(const uint64_t *words, uint64_t word_count)
{
	uint64_t count = 0;

	for (uint64_t i = 0; i < word_count; i++)
		count += (uint64_t)__builtin_popcountll(words[i]);
	return count;
}

/* bitmap_fill - sets the first `count` bits, and clears the rest of the last word. */
static inline void bitmap_fill(uint64_t *words, uint64_t count)
{
	for (uint64_t i = 0; i < bitmap_word_count(count); i++)
		words[i] = UINT64_MAX;
	if (count % 64 != 0)
		words[count / 64] = (UINT64_C(1) << (count % 64)) - 1;
}

/* bitmap_word_between - word `index` with only its bits in [first, end). */
static inline uint64_t bitmap_word_between(const uint64_t *words, uint64_t index, uint64_t first,
                                           uint64_t end)
{
	uint64_t word = words[index];

	if (index == first / 64)
		word &= UINT64_MAX << (first % 64);
	if (index == end / 64)
		word &= ~(UINT64_MAX << (end % 64));
	return word;
}

/* bitmap_count_between - the number of set bits in [first, end). */
static inline uint32_t bitmap_count_between(const uint64_t *words, uint64_t first, uint64_t end)
{
	uint32_t count = 0;

	for (uint64_t i = first / 64; i * 64 < end; i++)
		count += (uint32_t)__builtin_popcountll(bitmap_word_between(words, i, first, end));
	return count;
}

/* bitmap_select - the place of a word's set bit number `rank`, counted from 0; it must exist. */
static inline uint32_t bitmap_select(uint64_t word, uint32_t rank)
{
	for (; rank > 0; rank--)
		word &= word - 1;
	return (uint32_t)__builtin_ctzll(word);
}

/* A tensor, and how it is cut into blocks. */
struct bitmap_tensor {
	const void *data; /* [count] elements; may be NULL when count is 0 */
	uint64_t count;
	uint64_t block_elems; /* >= 1; any number, not only powers of two */
	enum dtype dtype;
};

/* A row of blocks of sums, and which of them are selected. */
struct bitmap_lanes {
	const uint64_t *bits; /* [block_count] bits: the selected blocks */
	uint64_t block_count;
	uint32_t block_elems; /* >= 1 */
};

struct bitmap_engine {
	const char *name; /* "scalar", "avx2", "avx512" or "neon", for logs and options */

	/* Tells whether this process can run the engine. Cheap; the answer never changes. */
	bool (*usable)(void);

	/*
	 * scan - writes the bitmap of `tensor` to bits[bitmap_word_count(blocks)]. It stops reading
	 * a large block at its first non-zero element, so dense tensors cost next to nothing.
	 */
	void (*scan)(const struct bitmap_tensor *tensor, uint64_t bits[]);

	/* scan_range - scan() that also sets *range, in one pass. Float types only. */
	void (*scan_range)(const struct bitmap_tensor *tensor, uint64_t bits[],
	                   struct bitmap_range *range);

	/*
	 * pack - copies the blocks whose bit is set to dst, in order and without gaps. A short last
	 * block is copied short. Returns the number of elements written. dst has room for them and
	 * does not overlap the tensor.
	 */
	uint64_t (*pack)(const struct bitmap_tensor *tensor, const uint64_t bits[], void *dst);

	/*
	 * unpack - the reverse: fills the blocks of `dst` whose bit is set from `src` and leaves
	 * the others alone. `shape->data` is not used. Returns the number of elements read from
	 * src.
	 */
	uint64_t (*unpack)(const struct bitmap_tensor *shape, const uint64_t bits[],
	                   const void *src, void *dst);

	/*
	 * clear - sets `bytes` bytes at any address to 0. Areas of many pages bypass the cache,
	 * because nobody reads such a result soon.
	 */
	void (*clear)(void *dst, uint64_t bytes);

	/*
	 * reduce - acc[i] = acc[i] (op) src[i]. Each element of acc takes dtype_acc_bytes() and is
	 * aligned for that; src holds the wire type at any address. REDUCE_AVG adds, like
	 * REDUCE_SUM; finish() divides. Integers wrap. 3: "Minimum and maximum of a NaN and any
	 * value are NaN"; the sign of a zero that min or max gives for -0 and +0 is undefined. acc
	 * and src do not overlap, here and in load().
	 */
	void (*reduce)(void *acc, const void *src, uint64_t count, enum dtype dtype,
	               enum reduction op);

	/* load - acc[i] = src[i], for a block's first contribution. Same layout as reduce(). */
	void (*load)(void *acc, const void *src, uint64_t count, enum dtype dtype);

	/*
	 * within - finds one worker's blocks among those of the union. It looks at the next
	 * block_count blocks of `united` from bit `first` on, which `united` must have: lane i
	 * becomes 1 when `mine` also has the i-th of them. The rest of
	 * lanes[bitmap_word_count(block_count)] is zero. Returns the number of ones.
	 */
	uint64_t (*within)(const uint64_t mine[], const uint64_t united[], uint64_t first,
	                   uint64_t block_count, uint64_t lanes[]);

	/*
	 * neutral - sets acc[i] to the number that leaves any src[i] unchanged in reduce(), except
	 * that -0 may become +0. Same layout as reduce().
	 */
	void (*neutral)(void *acc, uint64_t count, enum dtype dtype, enum reduction op);

	/*
	 * reduce_at - reduce() for some blocks of acc: the blocks of src, in order, go to the lanes
	 * that are 1. acc and src do not overlap.
	 */
	void (*reduce_at)(void *acc, const struct bitmap_lanes *lanes, const void *src,
	                  enum dtype dtype, enum reduction op);

	/*
	 * finish - dst[i] = acc[i] in the wire type, rounded to nearest even. For REDUCE_AVG, 3:
	 * "the sum divided by the number of workers, in the type of the sum; integers are truncated
	 * towards zero". For DTYPE_I16 and DTYPE_I8, 9.2: "divides the sum by 2^h, to nearest even,
	 * so that it fits again". dst == acc is allowed; otherwise they do not overlap.
	 */
	void (*finish)(void *dst, const void *acc, uint64_t count, enum dtype dtype,
	               enum reduction op, uint32_t workers);

	/*
	 * fixed_encode - dst[i] = src[i] * 2^shift, rounded to nearest even. `dtype` is the type of
	 * dst: DTYPE_I32, DTYPE_I16 or DTYPE_I8. Results of the last two are clamped to 32767 and
	 * 127. The caller chooses shift, from -200 to 200, so that no |result| exceeds 2^30 before
	 * that (PROTOCOL.md, section 9). src (f32) and dst may have any address. dst == src is
	 * allowed for DTYPE_I32, here and in fixed_decode(); otherwise they do not overlap.
	 */
	void (*fixed_encode)(void *dst, const void *src, uint64_t count, enum dtype dtype,
	                     int shift);

	/*
	 * fixed_decode - dst[i] = (float)src[i] * 2^-shift, then divided by `divisor` (>= 1). src
	 * (of type `dtype`, as above) and dst (f32) may have any address.
	 */
	void (*fixed_decode)(void *dst, const void *src, uint64_t count, enum dtype dtype,
	                     int shift, uint32_t divisor);
};

/*
 * The engines in this binary, slowest first, ending with NULL. Tests compare every usable engine
 * with a reference of their own.
 */
extern const struct bitmap_engine *const bitmap_engines[];

/*
 * bitmap_best - the engine that the environment variable WINNOW_ISA names, if it is usable;
 * otherwise the fastest usable engine. Never NULL.
 */
const struct bitmap_engine *bitmap_best(void);

/* bitmap_isa_check - 0, or -EINVAL if WINNOW_ISA names an engine that is unknown or unusable. */
int bitmap_isa_check(struct why *why);

/* bitmap_named - the engine called `name`, or NULL when it is unknown or not usable here. */
const struct bitmap_engine *bitmap_named(const char *name);

#ifdef __cplusplus
}
#endif

#endif /* BITMAP_BITMAP_H */
