/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bitmap.h - find the non-zero blocks of a tensor, pack them, unpack them, add them
 *
 * A tensor of `count` elements is cut into blocks of `block_elems`; the last one
 * may be shorter. Bit b of a bitmap is 1 when block b holds an element that is
 * not zero. +0 and -0 are both zero, every NaN is non-zero, an integer is zero
 * when all its bits are. Bits are numbered from the least significant bit of
 * word 0; bits past the last block are written 0.
 *
 * Rules that hold for every function here
 * - Tensors are aligned as C asks of their element type, no more, with one
 *   exception: `src` of unpack(), reduce(), reduce_at(), load() and the fixed-point
 *   functions and `dst` of pack() and finish() may have any address, because they point into packets.
 * - No byte outside the given elements is read or written, not even within the
 *   same cache line. Inputs are const and stay as they were.
 * - All counts may be 0. All engines give bit-identical results, except that the
 *   sign and payload of a NaN that comes out of arithmetic are not defined.
 * - Bits past the last block of a bitmap that is given to us do not matter.
 * - Any thread may call any function; nothing is kept between calls; nothing
 *   blocks, allocates or fails. Out-of-range enums are a caller's bug (assert).
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

/* What scan_range() learns beside the bitmap; only float types have it. */
struct bitmap_range {
	/*
	 * 9.1: "the smallest E with |x| < 2^E for all elements" that are finite (what frexp
	 * calls the exponent; 1.0 has 1, subnormals have their true one), or
	 * BITMAP_EXPONENT_NONE when all are zero or there are none. Not defined
	 * when nonfinite is set.
	 */
	int32_t exponent;
	bool nonfinite; /* an infinity or a NaN occurs */
};

#define BITMAP_EXPONENT_NONE INT32_MIN

/*
 * bitmap_range_of - the range of a tensor whose largest element is `magnitude`: its bits
 * without the sign as an integer, 0 when all are zero or there are none. Float types only.
 */
struct bitmap_range bitmap_range_of(uint64_t magnitude, enum dtype dtype);

/* bitmap_range_both - the range of two tensors together. */
struct bitmap_range bitmap_range_both(struct bitmap_range a, struct bitmap_range b);

/* Blocks of a tensor of `count` elements. */
static inline uint64_t bitmap_block_count(uint64_t count, uint64_t block_elems)
{
	return count / block_elems + (count % block_elems != 0);
}

/* Words of a bitmap over so many blocks. */
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

/* Bits that are set in so many words. */
static inline uint64_t bitmap_set_count(const uint64_t *words, uint64_t word_count)
{
	uint64_t count = 0;

	for (uint64_t i = 0; i < word_count; i++)
		count += (uint64_t)__builtin_popcountll(words[i]);
	return count;
}

/* bitmap_fill - sets so many bits, and clears those after them in the last word. */
static inline void bitmap_fill(uint64_t *words, uint64_t count)
{
	for (uint64_t i = 0; i < bitmap_word_count(count); i++)
		words[i] = UINT64_MAX;
	if (count % 64 != 0)
		words[count / 64] = (UINT64_C(1) << (count % 64)) - 1;
}

/* bitmap_word_between - word `index`, but only its bits from `first` to before `end`. */
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

/* bitmap_count_between - bits that are set from `first` to before `end`. */
static inline uint32_t bitmap_count_between(const uint64_t *words, uint64_t first, uint64_t end)
{
	uint32_t count = 0;

	for (uint64_t i = first / 64; i * 64 < end; i++)
		count += (uint32_t)__builtin_popcountll(bitmap_word_between(words, i, first, end));
	return count;
}

/* bitmap_select - the place of a word's set bit number `rank`, counted from 0; it has that many. */
static inline uint32_t bitmap_select(uint64_t word, uint32_t rank)
{
	for (; rank > 0; rank--)
		word &= word - 1;
	return (uint32_t)__builtin_ctzll(word);
}

/* One tensor and how it is cut. */
struct bitmap_tensor {
	const void *data; /* [count] elements; may be NULL when count is 0 */
	uint64_t count;
	uint64_t block_elems; /* >= 1; any number, not only powers of two */
	enum dtype dtype;
};

/* Blocks of sums, side by side, and some of them. */
struct bitmap_lanes {
	const uint64_t *bits; /* [block_count]: which */
	uint64_t block_count;
	uint32_t block_elems; /* >= 1 */
};

struct bitmap_engine {
	const char *name; /* "scalar", "avx2", "avx512": for logs and options */

	/* Can this process run it? Cheap; the answer never changes. */
	bool (*usable)(void);

	/*
	 * scan - bits[bitmap_word_count(blocks)] = the bitmap of `tensor`. Stops reading a
	 * large block at its first non-zero element, so dense tensors cost next to nothing.
	 */
	void (*scan)(const struct bitmap_tensor *tensor, uint64_t bits[]);

	/* scan_range - scan(), and *range, in one pass over all elements. Float types only. */
	void (*scan_range)(const struct bitmap_tensor *tensor, uint64_t bits[],
	                   struct bitmap_range *range);

	/*
	 * pack - copy the blocks whose bit is set, in order and without gaps, to dst.
	 * A short last block is copied short. Returns the elements written. dst has room
	 * for them and does not overlap the tensor.
	 */
	uint64_t (*pack)(const struct bitmap_tensor *tensor, const uint64_t bits[], void *dst);

	/*
	 * unpack - the reverse: fill the blocks of `dst` whose bit is set from `src`; the
	 * others stay. `shape->data` is not used. Returns the elements read from src.
	 */
	uint64_t (*unpack)(const struct bitmap_tensor *shape, const uint64_t bits[],
	                   const void *src, void *dst);

	/*
	 * clear - dst[0 .. bytes) = 0, for any address. Areas of many pages are written past
	 * the cache: for results that nobody reads soon.
	 */
	void (*clear)(void *dst, uint64_t bytes);

	/*
	 * reduce - acc[i] = acc[i] (op) src[i]. acc holds dtype_acc_bytes() each and is
	 * aligned for them; src holds the wire type at any address. REDUCE_AVG adds, like
	 * REDUCE_SUM; finish() divides. Integers wrap. 3: "Minimum and maximum of a NaN and any
	 * value are NaN"; which zero min and max give for -0 and +0 is not defined.
	 * acc and src do not overlap, here and in load().
	 */
	void (*reduce)(void *acc, const void *src, uint64_t count, enum dtype dtype,
	               enum reduction op);

	/* load - acc[i] = src[i]: a block's first contribution. Same layout as reduce(). */
	void (*load)(void *acc, const void *src, uint64_t count, enum dtype dtype);

	/*
	 * within - where one worker's blocks lie among those of the union: lane i is 1 when `mine`
	 * has block number i of `united`, counted from bit `first` of both, for block_count
	 * blocks; lanes[bitmap_word_count(block_count)] ends in zeros. From `first` on `united`
	 * has so many blocks. Returns the number of ones.
	 */
	uint64_t (*within)(const uint64_t mine[], const uint64_t united[], uint64_t first,
	                   uint64_t block_count, uint64_t lanes[]);

	/*
	 * neutral - acc[i] = the number that reduce() turns into src[i]; only -0 may become +0.
	 * Same layout as reduce().
	 */
	void (*neutral)(void *acc, uint64_t count, enum dtype dtype, enum reduction op);

	/*
	 * reduce_at - reduce() for some blocks of acc: those lanes that are 1 take the blocks of
	 * src in order. acc and src do not overlap.
	 */
	void (*reduce_at)(void *acc, const struct bitmap_lanes *lanes, const void *src,
	                  enum dtype dtype, enum reduction op);

	/*
	 * finish - dst[i] = acc[i] in the wire type (round to nearest even). REDUCE_AVG: 3: "the sum
	 * divided by the number of workers, in the type of the sum; integers are truncated towards zero". For
	 * DTYPE_I16 and DTYPE_I8: 9.2: "divides the sum by 2^h, to nearest even, so that it fits again".
	 * dst == acc is allowed; otherwise they do not overlap.
	 */
	void (*finish)(void *dst, const void *acc, uint64_t count, enum dtype dtype,
	               enum reduction op, uint32_t workers);

	/*
	 * fixed_encode - dst[i] = src[i] * 2^shift, rounded to nearest even. `dtype` is that of
	 * dst: DTYPE_I32, or DTYPE_I16 and DTYPE_I8, whose results are clamped to 32767 and 127.
	 * The caller picks shift so that no |result| exceeds 2^30 before that (docs/PROTOCOL.md
	 * section 9); -200 <= shift <= 200. src (f32) and dst may have any address. dst == src is
	 * allowed for DTYPE_I32, here and in fixed_decode(); otherwise they do not overlap.
	 */
	void (*fixed_encode)(void *dst, const void *src, uint64_t count, enum dtype dtype,
	                     int shift);

	/*
	 * fixed_decode - dst[i] = (float)src[i] * 2^-shift, divided by `divisor` (>= 1)
	 * after that. src (of `dtype`, as above) and dst (f32) may have any address.
	 */
	void (*fixed_decode)(void *dst, const void *src, uint64_t count, enum dtype dtype,
	                     int shift, uint32_t divisor);
};

/*
 * The engines in this binary, slowest first; ends with NULL. Tests walk this list
 * and compare every usable engine with a reference of their own.
 */
extern const struct bitmap_engine *const bitmap_engines[];

/*
 * bitmap_best - the fastest usable engine, never NULL; or the one that the
 * environment variable WINNOW_ISA names, when that is usable.
 */
const struct bitmap_engine *bitmap_best(void);

/* bitmap_isa_check - 0, or -EINVAL if WINNOW_ISA names an engine that is unknown, or not usable here. */
int bitmap_isa_check(struct why *why);

/* bitmap_named - the engine called `name`; NULL when it is unknown or not usable here. */
const struct bitmap_engine *bitmap_named(const char *name);

#ifdef __cplusplus
}
#endif

#endif /* BITMAP_BITMAP_H */
