/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bitmap_pack.h - pack(), unpack() and clear() of an engine; private to bitmap/
 *
 * Each engine's file includes it once, so that the copies use that engine's registers.
 */
#ifndef BITMAP_BITMAP_PACK_H
#define BITMAP_BITMAP_PACK_H

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "bitmap/bitmap_impl.h"
#include "bitmap/places.h"

/* Up to this size, a call of memcpy() costs more than the copy itself. */
#define COPY_INLINE_BYTES_MAX 1024

static inline void piece_copy(unsigned char *restrict dst, const unsigned char *restrict src,
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

/* ---- stretches of a bitmap ---- */

/* 64 * `words` whole blocks from word `first` on: either all of them, or those that are listed. */
struct stretch {
	uint64_t first, words;
	bool all;
	struct places places; /* counted from the stretch's first block */
};

#define FIRST_STRETCH(stretch) ((stretch).first = (stretch).words = 0)

static inline uint64_t stretch_blocks(const struct stretch *stretch)
{
	return stretch->all ? stretch->words * 64 : stretch->places.count;
}

/*
 * Moves on to the next stretch: a run of full words, or up to `most` words (at most PLACES_WORDS)
 * of which none is full. Returns false if there is none.
 */
static inline bool next_stretch(struct stretch *stretch, const uint64_t bits[], uint64_t blocks,
                                uint64_t most)
{
	const uint64_t first = stretch->first + stretch->words, end = blocks / 64;
	uint64_t at = first;
	uint32_t count = 0;

	while (at < end && bits[at] == UINT64_MAX)
		at++;
	stretch->all = at > first;
	if (!stretch->all) {
		for (; at < end && at - first < most && bits[at] != UINT64_MAX; at++)
			count = places_add(&stretch->places, count, bits[at], at - first);
		if (at == end && at - first < most && blocks % 64 != 0) {
			count = places_add(&stretch->places, count,
			                   bits[at] & ((UINT64_C(1) << blocks % 64) - 1),
			                   at - first);
			at++;
		}
	}
	stretch->places.count = count;
	stretch->first = first;
	stretch->words = at - first;
	return at > first;
}

/* Moves blocks of `bytes` bytes between their places in a tensor and a packed row of them. */
static __always_inline void move_each(unsigned char *restrict to,
                                      const unsigned char *restrict from,
                                      const struct places *places, uint64_t bytes, bool out)
{
	for (uint32_t i = 0; i < places->count; i++) {
		const uint64_t there = places->at[i] * bytes, packed = i * bytes;

		piece_copy(to + (out ? packed : there), from + (out ? there : packed), bytes);
	}
}

static __always_inline void move_listed(unsigned char *restrict to,
                                        const unsigned char *restrict from,
                                        const struct places *places, uint64_t bytes, bool out)
{
	switch (bytes) {
		KNOWN(2, move_each(to, from, places, 2, out));
		KNOWN(4, move_each(to, from, places, 4, out));
		KNOWN(8, move_each(to, from, places, 8, out));
		KNOWN(16, move_each(to, from, places, 16, out));
		KNOWN(32, move_each(to, from, places, 32, out));
	default:
		move_each(to, from, places, bytes, out);
	}
}

/* Moves the blocks of a stretch. Returns the number of bytes. */
static __always_inline uint64_t move_stretch(unsigned char *to, const unsigned char *from,
                                             const struct stretch *stretch, uint64_t block_bytes,
                                             bool out)
{
	const uint64_t bytes = stretch_blocks(stretch) * block_bytes;

	if (stretch->all)
		memcpy(to, from, bytes);
	else
		move_listed(to, from, &stretch->places, block_bytes, out);
	return bytes;
}

/* Moves the set blocks of a tensor. Returns the number of elements. */
static __always_inline uint64_t move_set(unsigned char *to, const unsigned char *from,
                                         const struct bitmap_tensor *shape, const uint64_t bits[],
                                         bool out)
{
	const struct cut cut = cut_of(shape);
	const uint64_t whole = cut.block_count > 0 ? cut.bytes / cut.block_bytes : 0;
	struct stretch stretch;
	uint64_t packed = 0, there;

	FIRST_STRETCH(stretch);
	while (next_stretch(&stretch, bits, whole, PLACES_WORDS)) {
		there = stretch.first * 64 * cut.block_bytes;
		packed += move_stretch(to + (out ? packed : there), from + (out ? there : packed),
		                       &stretch, cut.block_bytes, out);
	}
	if (whole < cut.block_count && bit_test(bits, whole)) { /* a short last block */
		there = whole * cut.block_bytes;
		memcpy(to + (out ? packed : there), from + (out ? there : packed),
		       last_bytes(&cut));
		packed += last_bytes(&cut);
	}
	return packed / cut.elem_bytes;
}

static uint64_t pack(const struct bitmap_tensor *tensor, const uint64_t bits[], void *dst)
{
	return move_set(dst, tensor->data, tensor, bits, true);
}

static uint64_t unpack(const struct bitmap_tensor *shape, const uint64_t bits[], const void *src,
                       void *dst)
{
	return move_set(dst, src, shape, bits, false);
}

/* ---- past the cache ---- */

#ifdef __x86_64__

/* A smaller area is better left in the cache. */
#define CLEAR_STREAM_BYTES_MIN 8192

/* Clears 64 aligned bytes in few stores: a line that arrives in four pieces takes longer. */
static inline void clear_line(unsigned char *at)
{
#if defined __AVX512F__
	_mm512_stream_si512((void *)at, _mm512_setzero_si512());
#else
	for (int i = 0; i < 64; i += 16)
		_mm_stream_si128((__m128i *)(void *)(at + i), _mm_setzero_si128());
#endif
}

static void clear(void *dst, uint64_t bytes)
{
	unsigned char *at = dst;

	if (bytes >= CLEAR_STREAM_BYTES_MIN) {
		const uint64_t head = -(uintptr_t)at & 63;

		memset(at, 0, head);
		at += head;
		for (bytes -= head; bytes >= 64; bytes -= 64, at += 64)
			clear_line(at);
		_mm_sfence(); /* streaming stores are not ordered with others */
	}
	if (bytes > 0)
		memset(at, 0, bytes);
}

#else

/* On Arm memset() zeroes whole lines without reading them (DC ZVA). */
static void clear(void *dst, uint64_t bytes)
{
	if (bytes > 0)
		memset(dst, 0, bytes);
}

#endif

#endif /* BITMAP_BITMAP_PACK_H */
