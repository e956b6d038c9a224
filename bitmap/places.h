/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * places.h - the set bits of some words as a list; private to bitmap/
 *
 * Where one bit in fifty is set, the number of set bits differs from word to word, and a loop
 * that ends with a word's last bit mispredicts that end. So four places are listed for each word,
 * whether it has four or not; the next word's places overwrite those in excess.
 */
#ifndef BITMAP_PLACES_H
#define BITMAP_PLACES_H

#include <stdint.h>
#include <string.h>

#define PLACES_WORDS 64
#define PLACES_AT_ONCE 4

struct places {
	uint32_t count;
	uint16_t at[PLACES_WORDS * 64 + PLACES_AT_ONCE]; /* ascending; garbage from `count` on */
};

/* Removes and returns the lowest set bit. A word without any gives a meaningless place. */
static inline uint64_t place_take(uint64_t *word)
{
	const uint64_t place = (uint64_t)__builtin_ctzll(*word | UINT64_C(1) << 63);

	*word &= *word - 1;
	return place;
}

/*
 * places_add - lists the set bits of `word`, which is word number `index`, behind the `count`
 * places that are listed. Returns the new count.
 */
static inline uint32_t places_add(struct places *places, uint32_t count, uint64_t word,
                                  uint64_t index)
{
	const uint32_t end = count + (uint32_t)__builtin_popcountll(word);

	do {
		uint64_t four = index * 64 * UINT64_C(0x0001000100010001);

		four += place_take(&word);
		four += place_take(&word) << 16;
		four += place_take(&word) << 32;
		four += place_take(&word) << 48;
		memcpy(places->at + count, &four, sizeof(four)); /* little-endian */
		count += PLACES_AT_ONCE;
	} while (__builtin_expect(count < end, 0));
	return end;
}

#endif /* BITMAP_PLACES_H */
