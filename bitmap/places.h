/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * places.h - the set bits of some words as a list; private to bitmap/
 *
 * Where one bit in fifty is set, each word has another number of them, and a loop that ends with the
 * word's last bit mispredicts that end. So four are listed from each word, whether it has them or not;
 * what works on the list then runs from its one end to the other.
 */
#ifndef BITMAP_PLACES_H
#define BITMAP_PLACES_H

#include <stdint.h>
#include <string.h>

#define PLACES_WORDS 64
#define PLACES_AT_ONCE 4

struct places {
	uint32_t count;
	uint16_t at[PLACES_WORDS * 64 + PLACES_AT_ONCE]; /* ascending; the last ones are void */
};

/* Its lowest bit, which it then lacks; of a word without any, whatever. */
static inline uint64_t place_take(uint64_t *word)
{
	const uint64_t place = (uint64_t)__builtin_ctzll(*word | UINT64_C(1) << 63);

	*word &= *word - 1;
	return place;
}

/*
 * places_add - those of `word`, number `index` of the words, to the `count` that are listed.
 * Returns how many there are then.
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
