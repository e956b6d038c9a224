/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bitmap_pack.h - pack() and unpack(), the same source for every engine; private to bitmap/
 *
 * Included once by each engine's file, so that the copies use that engine's registers.
 */
#ifndef BITMAP_BITMAP_PACK_H
#define BITMAP_BITMAP_PACK_H

#include "bitmap/bitmap_impl.h"

/* Calling memcpy() costs more than copying a block as small as this. */
#define COPY_INLINE_BYTES_MAX 1024

static inline void copy(unsigned char *restrict dst, const unsigned char *restrict src,
                        uint64_t bytes)
{
	if (bytes < 64 || bytes > COPY_INLINE_BYTES_MAX) {
		memcpy(dst, src, bytes);
		return;
	}
	for (uint64_t at = 0; at + 64 < bytes; at += 64)
		memcpy(dst + at, src + at, 64);
	memcpy(dst + bytes - 64, src + bytes - 64, 64); /* some bytes twice, none past the end */
}

/* Word `index` of a bitmap, without bits past the last block. */
static inline uint64_t word_of(const struct cut *cut, const uint64_t bits[], uint64_t index)
{
	const uint64_t left = cut->block_count - index * 64;

	return left >= 64 ? bits[index] : bits[index] & ((UINT64_C(1) << left) - 1);
}

/* Blocks that lie side by side, in bytes from the start of the tensor. */
struct run {
	uint64_t start;
	uint64_t end;
};

/*
 * Take the first blocks out of *word, which is not 0: all 64 or just one. Longer
 * runs than one are not worth the mispredicted branches it takes to find them.
 */
static inline struct run take_run(const struct cut *cut, uint64_t index, uint64_t *word)
{
	const uint64_t first = index * 64 + (uint64_t)__builtin_ctzll(*word);
	const uint64_t end = *word == UINT64_MAX ? first + 64 : first + 1;

	*word = *word == UINT64_MAX ? 0 : *word & (*word - 1);
	return (struct run){
		.start = first * cut->block_bytes,
		.end = end == cut->block_count ? cut->bytes : end * cut->block_bytes,
	};
}

static uint64_t pack(const struct bitmap_tensor *tensor, const uint64_t bits[], void *dst)
{
	const struct cut cut = cut_of(tensor);
	const uint64_t words = bitmap_word_count(cut.block_count);
	unsigned char *out = dst;
	uint64_t packed = 0;

	for (uint64_t w = 0; w < words; w++) {
		uint64_t word = word_of(&cut, bits, w);

		while (word != 0) {
			struct run run = take_run(&cut, w, &word);

			copy(out + packed, cut.data + run.start, run.end - run.start);
			packed += run.end - run.start;
		}
	}
	return packed / cut.elem_bytes;
}

static uint64_t unpack(const struct bitmap_tensor *shape, const uint64_t bits[], const void *src,
                       bool clear_others, void *dst)
{
	const struct cut cut = cut_of(shape);
	const uint64_t words = bitmap_word_count(cut.block_count);
	const unsigned char *in = src;
	unsigned char *out = dst;
	uint64_t unpacked = 0;
	uint64_t cleared = 0; /* up to here dst is done */

	for (uint64_t w = 0; w < words; w++) {
		uint64_t word = word_of(&cut, bits, w);

		while (word != 0) {
			struct run run = take_run(&cut, w, &word);

			if (clear_others && run.start > cleared)
				memset(out + cleared, 0, run.start - cleared);
			copy(out + run.start, in + unpacked, run.end - run.start);
			unpacked += run.end - run.start;
			cleared = run.end;
		}
	}
	if (clear_others && cut.bytes > cleared)
		memset(out + cleared, 0, cut.bytes - cleared);
	return unpacked / cut.elem_bytes;
}

/* Below this, what is cleared is better left in the cache. */
#define CLEAR_STREAM_BYTES_MIN 8192

/* Hooks: clear_line() writes 64 aligned bytes, clear_end() makes such writes seen in order. */
static inline void clear_line(unsigned char *at);
static inline void clear_end(void);

static void clear(void *dst, uint64_t bytes)
{
	unsigned char *at = dst;
	uint64_t head = -(uintptr_t)dst & 63;

	if (bytes < CLEAR_STREAM_BYTES_MIN) {
		if (bytes > 0)
			memset(at, 0, bytes);
		return;
	}
	memset(at, 0, head);
	for (at += head, bytes -= head; bytes >= 64; at += 64, bytes -= 64)
		clear_line(at);
	clear_end();
	memset(at, 0, bytes);
}

#endif /* BITMAP_BITMAP_PACK_H */
