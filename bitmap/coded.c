// SPDX-License-Identifier: BSD-3-Clause
/* coded.c - sets of blocks in few bytes */

#include "bitmap/coded.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "bitmap/bitmap.h"

#define PARAMETER_BITS 5

/* Bits that a load at any bit is sure to have: its 8 bytes begin at a whole byte. */
#define WINDOW_BITS 57

/* Word `index`, without bits past `count`. */
static uint64_t word_of(const uint64_t words[], size_t count, size_t index)
{
	size_t left = count - index * 64;

	return left >= 64 ? words[index] : words[index] & ((UINT64_C(1) << left) - 1);
}

/* The parameter for so many set bits, and so many clear ones before the last of those. */
static unsigned int parameter_of(uint64_t set, uint64_t clear)
{
	uint64_t mean = set > 0 ? clear / set : 0;

	return mean > 0 ? 63 - (unsigned int)__builtin_clzll(mean) : 0;
}

/* The set's parameter; *code_bits is how many bits its codes have at least. */
static unsigned int survey(const uint64_t words[], size_t count, uint64_t *code_bits)
{
	uint64_t set = 0, end = 0;
	unsigned int parameter;

	for (size_t w = 0; w < bitmap_word_count(count); w++) {
		uint64_t word = word_of(words, count, w);

		set += (uint64_t)__builtin_popcountll(word);
		end = word != 0 ? w * 64 + 64 - (uint64_t)__builtin_clzll(word) : end;
	}
	parameter = parameter_of(set, end - set);
	*code_bits = set * (1 + parameter);
	return parameter;
}

size_t bits_coded_bytes(const uint64_t words[], size_t count)
{
	uint64_t bits, next = 0;
	unsigned int parameter;
	size_t bytes;

	assert(count <= BITS_COUNT_MAX);
	parameter = survey(words, count, &bits);
	if (bits >= bitmap_word_count(count) * 64)
		return 0;
	for (size_t w = 0; w < bitmap_word_count(count); w++) {
		for (uint64_t word = word_of(words, count, w); word != 0; word &= word - 1) {
			uint64_t at = w * 64 + (uint64_t)__builtin_ctzll(word);

			bits += (at - next) >> parameter;
			next = at + 1;
		}
	}
	bytes = (PARAMETER_BITS + bits + 7) / 8;
	return bytes < bitmap_word_count(count) * 8 ? bytes : 0;
}

/* Bits on their way out: `filled` of them wait in `pending`, fewer than 64. */
struct writer {
	uint8_t *out;
	uint64_t pending;
	unsigned int filled;
};

/* All is little-endian. */
static inline void writer_flush(struct writer *to)
{
	memcpy(to->out, &to->pending, 8);
	to->out += 8;
	to->pending = 0;
}

static inline void write_zeros(struct writer *to, uint64_t count)
{
	uint64_t filled = to->filled + count;

	for (; filled >= 64; filled -= 64)
		writer_flush(to);
	to->filled = (unsigned int)filled;
}

/* 1 to 32 bits; `value` has no others. */
static inline void write_bits(struct writer *to, uint64_t value, unsigned int count)
{
	to->pending |= value << to->filled;
	to->filled += count;
	if (to->filled >= 64) {
		to->filled -= 64;
		writer_flush(to);
		to->pending = value >> (count - to->filled);
	}
}

size_t bits_code(const uint64_t words[], size_t count, uint8_t *out, size_t room)
{
	size_t bytes = bits_coded_bytes(words, count);
	struct writer to = {.out = out};
	unsigned int parameter;
	uint64_t bits, next = 0;

	if (bytes == 0 || bytes > room)
		return 0;
	parameter = survey(words, count, &bits);
	write_bits(&to, parameter, PARAMETER_BITS);
	for (size_t w = 0; w < bitmap_word_count(count); w++) {
		for (uint64_t word = word_of(words, count, w); word != 0; word &= word - 1) {
			uint64_t at = w * 64 + (uint64_t)__builtin_ctzll(word);
			uint64_t low = (at - next) & ((UINT64_C(1) << parameter) - 1);

			write_zeros(&to, (at - next) >> parameter);
			write_bits(&to, low << 1 | 1, 1 + parameter);
			next = at + 1;
		}
	}
	memcpy(to.out, &to.pending, (to.filled + 7) / 8);
	assert((size_t)(to.out - out) + (to.filled + 7) / 8 == bytes);
	return bytes;
}

/* What is left to read. */
struct reader {
	const uint8_t *in;
	uint64_t bytes;
	uint64_t at; /* in bits */
};

/* WINDOW_BITS bits from `at` on, and more; zeros past the end. */
static inline uint64_t window(const struct reader *from)
{
	uint64_t first = from->at / 8, bits = 0;

	if (first + 8 <= from->bytes)
		memcpy(&bits, from->in + first, 8);
	else if (first < from->bytes)
		memcpy(&bits, from->in + first, from->bytes - first);
	return bits >> (from->at % 8);
}

/* The next gap's zeros, and whether there is another gap. Leaves `from` behind the one. */
static inline bool read_zeros(struct reader *from, uint64_t *zeros)
{
	uint64_t bits = window(from);

	*zeros = 0;
	while (bits == 0 && from->at + WINDOW_BITS < from->bytes * 8) {
		from->at += WINDOW_BITS;
		*zeros += WINDOW_BITS;
		bits = window(from);
	}
	if (bits == 0)
		return false;
	*zeros += (uint64_t)__builtin_ctzll(bits);
	from->at += (uint64_t)__builtin_ctzll(bits) + 1;
	return true;
}

int bits_decode(const uint8_t *in, size_t bytes, uint64_t words[], size_t count)
{
	struct reader from = {.in = in, .bytes = bytes, .at = PARAMETER_BITS};
	uint64_t set = 0, next = 0, zeros, end = PARAMETER_BITS;
	unsigned int parameter;

	assert(count <= BITS_COUNT_MAX);
	if (bytes == 0 || bytes >= bitmap_word_count(count) * 8)
		return -EINVAL;
	parameter = in[0] & ((1u << PARAMETER_BITS) - 1);
	memset(words, 0, bitmap_word_count(count) * 8);
	while (read_zeros(&from, &zeros)) {
		uint64_t low = window(&from) & ((UINT64_C(1) << parameter) - 1);

		next += zeros << parameter | low;
		from.at += parameter;
		if (next >= count)
			return -EINVAL;
		bit_set(words, next++);
		set++;
		end = from.at;
	}
	if (parameter != parameter_of(set, next - set) || bytes != (end + 7) / 8)
		return -EINVAL;
	return 0;
}

size_t bits_write(const uint64_t words[], size_t count, uint8_t *out)
{
	size_t raw = bitmap_word_count(count) * 8;
	size_t bytes = bits_code(words, count, out, raw);

	if (bytes > 0)
		return bytes;
	memcpy(out, words, raw);
	return raw;
}

int bits_read(const uint8_t *in, size_t bytes, uint64_t words[], size_t count)
{
	size_t raw = bitmap_word_count(count) * 8;

	if (bytes != raw)
		return bits_decode(in, bytes, words, count);
	memcpy(words, in, raw);
	return count % 64 != 0 && words[count / 64] >> (count % 64) != 0 ? -EINVAL : 0;
}
