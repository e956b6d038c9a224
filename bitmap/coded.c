// SPDX-License-Identifier: BSD-3-Clause
/* coded.c - see coded.h */

#include "bitmap/coded.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "bitmap/bitmap.h"
#include "bitmap/places.h"

#define PARAMETER_BITS 5

/* The bits that an 8-byte load surely has from any bit on, because it begins at a whole byte. */
#define WINDOW_BITS 57

/* 6.6: "r is the largest number for which s * 2^r <= z, and 0 if there is none" */
static unsigned int parameter_of(uint64_t set, uint64_t clear)
{
	uint64_t mean = set > 0 ? clear / set : 0;

	return mean > 0 ? 63 - (unsigned int)__builtin_clzll(mean) : 0;
}

/* Numbers that determine the coding of a set. */
struct survey {
	uint64_t set, clear; /* `clear` counts the clear bits before the last set one */
	unsigned int parameter;
};

static struct survey words_survey(const uint64_t words[], size_t word_count)
{
	size_t end = word_count;
	struct survey of = {0};

	while (end > 0 && words[end - 1] == 0)
		end--;
	if (end == 0)
		return of;
	of.set = bitmap_set_count(words, end);
	of.clear = end * 64 - (uint64_t)__builtin_clzll(words[end - 1]) - of.set;
	of.parameter = parameter_of(of.set, of.clear);
	return of;
}

/* Lists the set bits of up to PLACES_WORDS words from `first` on. Returns the number of words. */
static size_t places_list(const uint64_t words[], size_t word_count, size_t first,
                          struct places *places)
{
	uint32_t found = 0;
	size_t w = first;

	for (; w < word_count && w - first < PLACES_WORDS; w++)
		found = places_add(places, found, words[w], w - first);
	places->count = found;
	return w - first;
}

/* An upper limit for the number of bits in the coding. */
static uint64_t most_bits(const struct survey *of)
{
	return PARAMETER_BITS + of->set * (1 + of->parameter) + (of->clear >> of->parameter);
}

/* Tells whether the coding takes more than `most` bytes. */
static bool is_longer(const uint64_t words[], size_t word_count, const struct survey *of,
                      size_t most)
{
	uint64_t bits = PARAMETER_BITS + of->set * (1 + of->parameter), next = 0;
	struct places places;
	size_t took;

	for (size_t w = 0; w < word_count && bits <= most * 8; w += took) {
		took = places_list(words, word_count, w, &places);
		for (uint32_t i = 0; i < places.count; i++) {
			bits += (w * 64 + places.at[i] - next) >> of->parameter;
			next = w * 64 + places.at[i] + 1;
		}
	}
	return bits > most * 8;
}

/* The end of the bytes written so far. `pending` holds `filled` more bits, fewer than 8. */
struct writer {
	uint8_t *out, *end;
	uint64_t pending;
	unsigned int filled;
};

#define WRITE_BITS_MAX 56 /* in one call of write_bits() */

/* Appends `value`, which has at most `count` bits. Everything is little-endian. */
static inline void write_bits(struct writer *to, uint64_t value, unsigned int count)
{
	const uint64_t bits = to->pending | value << to->filled;

	to->filled += count;
	if (to->end - to->out >= 8)
		memcpy(to->out, &bits, 8);
	else
		memcpy(to->out, &bits, (size_t)(to->end - to->out));
	to->out += to->filled / 8;
	to->pending = bits >> (to->filled & ~7u);
	to->filled %= 8;
}

static void write_zeros(struct writer *to, uint64_t count)
{
	for (; count > WRITE_BITS_MAX; count -= WRITE_BITS_MAX)
		write_bits(to, 0, WRITE_BITS_MAX);
	write_bits(to, 0, (unsigned int)count);
}

/* 6.6: "floor(g / 2^r) zeros, a one, and the low r bits of g, least significant first" */
static inline void write_gap(struct writer *to, uint64_t gap, unsigned int parameter)
{
	const uint64_t low = gap & ((UINT64_C(1) << parameter) - 1);
	uint64_t zeros = gap >> parameter;

	if (zeros + 1 + parameter > WRITE_BITS_MAX) {
		write_zeros(to, zeros);
		zeros = 0;
	}
	write_bits(to, (low << 1 | 1) << zeros, (unsigned int)zeros + 1 + parameter);
}

/* Returns the end of the written bytes. */
static uint8_t *write_set(const uint64_t words[], size_t word_count, const struct survey *of,
                          struct writer to)
{
	struct places places;
	uint64_t next = 0;
	size_t took;

	write_bits(&to, of->parameter, PARAMETER_BITS);
	for (size_t w = 0; w < word_count; w += took) {
		took = places_list(words, word_count, w, &places);
		for (uint32_t i = 0; i < places.count; i++) {
			write_gap(&to, w * 64 + places.at[i] - next, of->parameter);
			next = w * 64 + places.at[i] + 1;
		}
	}
	return to.out + (to.filled > 0);
}

/* 6.6: "is sent as a bitmap or, if that takes fewer bytes, as gaps" */
size_t bits_write(const uint64_t words[], size_t count, uint8_t *out)
{
	const size_t word_count = bitmap_word_count(count), raw = word_count * 8;
	struct survey of;

	assert(count <= BITS_COUNT_MAX);
	if (raw == 0)
		return 0;
	of = words_survey(words, word_count);
	/* Few sets come so close to the limit that all their gaps have to be looked at first. */
	if (most_bits(&of) > (raw - 1) * 8 && is_longer(words, word_count, &of, raw - 1)) {
		memcpy(out, words, raw);
		return raw;
	}
	return (size_t)(write_set(words, word_count, &of,
	                          (struct writer){out, out + raw - 1, 0, 0}) -
	                out);
}

/* The bytes to read, and how far they have been read. */
struct reader {
	const uint8_t *in;
	uint64_t bytes;
	uint64_t at; /* the next bit */
};

/* Returns at least WINDOW_BITS bits from `at` on, with zeros past the end. */
static inline uint64_t reader_window(const struct reader *from)
{
	uint64_t first = from->at / 8, bits = 0;

	if (first + 8 <= from->bytes)
		memcpy(&bits, from->in + first, 8);
	else if (first < from->bytes)
		memcpy(&bits, from->in + first, from->bytes - first);
	return bits >> (from->at % 8);
}

/* Counts the next gap's zeros and moves behind the one that ends them. False: no gap is left. */
static inline bool read_zeros(struct reader *from, uint64_t *zeros)
{
	uint64_t bits = reader_window(from);

	*zeros = 0;
	while (bits == 0 && from->at + WINDOW_BITS < from->bytes * 8) {
		from->at += WINDOW_BITS;
		*zeros += WINDOW_BITS;
		bits = reader_window(from);
	}
	if (bits == 0)
		return false;
	*zeros += (uint64_t)__builtin_ctzll(bits);
	from->at += (uint64_t)__builtin_ctzll(bits) + 1;
	return true;
}

/* The set as decoded so far. */
struct decoded {
	uint64_t *words;
	uint64_t count, set, next; /* `next` follows the last set bit */
};

/* Sets the bit behind the gap. Returns false if it lies past the end of the set. */
static inline bool decoded_add(struct decoded *to, uint64_t gap)
{
	to->next += gap;
	if (to->next >= to->count)
		return false;
	bit_set(to->words, to->next++);
	to->set++;
	return true;
}

/* Decodes the codes that end within one window. Returns false if one leads past the set's end. */
static inline bool read_window(struct reader *from, unsigned int parameter, struct decoded *to)
{
	const uint64_t mask = (UINT64_C(1) << parameter) - 1;
	uint64_t bits = reader_window(from), left = WINDOW_BITS;

	while (bits != 0) {
		const uint64_t zeros = (uint64_t)__builtin_ctzll(bits);
		const uint64_t length = zeros + 1 + parameter;

		if (length > left)
			return true;
		if (!decoded_add(to, zeros << parameter | (bits >> (zeros + 1) & mask)))
			return false;
		bits >>= length;
		left -= length;
		from->at += length;
	}
	return true;
}

static int gaps_read(const uint8_t *in, size_t bytes, uint64_t words[], size_t count)
{
	struct reader from = {.in = in, .bytes = bytes, .at = PARAMETER_BITS};
	struct decoded to = {.words = words, .count = count};
	uint64_t zeros, end = PARAMETER_BITS;
	unsigned int parameter;

	if (bytes == 0 || bytes > bitmap_word_count(count) * 8)
		return -EINVAL;
	parameter = in[0] & ((1u << PARAMETER_BITS) - 1);
	memset(words, 0, bitmap_word_count(count) * 8);
	for (;;) {
		if (!read_window(&from, parameter, &to))
			return -EINVAL;
		if (to.set > 0)
			end = from.at;
		if (!read_zeros(&from, &zeros))
			break;
		if (!decoded_add(&to, zeros << parameter | (reader_window(&from) &
		                                            ((UINT64_C(1) << parameter) - 1))))
			return -EINVAL;
		from.at += parameter;
		end = from.at;
	}
	/* 6.6: "No byte follows the one in which the last code ends" */
	if (parameter != parameter_of(to.set, to.next - to.set) || bytes != (end + 7) / 8)
		return -EINVAL;
	return 0;
}

int bits_read(const uint8_t *in, size_t bytes, uint64_t words[], size_t count)
{
	size_t raw = bitmap_word_count(count) * 8;

	assert(count <= BITS_COUNT_MAX);
	if (bytes != raw)
		return gaps_read(in, bytes, words, count);
	memcpy(words, in, raw);
	/* 6.6: "64-bit words, least significant bit first, one bit a block, 0 beyond" */
	return count % 64 != 0 && words[count / 64] >> (count % 64) != 0 ? -EINVAL : 0;
}
