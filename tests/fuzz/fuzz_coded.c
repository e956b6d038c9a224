// SPDX-License-Identifier: BSD-3-Clause
/*
 * fuzz_coded.c - coded sets: what is taken is what the set it stands for is coded as, and any set
 * comes back; the first three bytes say how many bits there are and which of the two to do
 */

#include "bitmap/bitmap.h"
#include "bitmap/coded.h"
#include "tests/fuzz/fuzz.h"

static void decode(const uint8_t *from, size_t bytes, uint64_t *words, size_t count)
{
	size_t map_bytes = bitmap_word_count(count) * 8;
	uint8_t *in = exact_copy(from, bytes), *coded = malloc(map_bytes + 1);

	assert(coded != NULL);
	if (bits_read(in, bytes, words, count) == 0) {
		assert(count % 64 == 0 || words[count / 64] >> count % 64 == 0);
		/* What came as a bitmap may have a shorter form. */
		assert(bits_write(words, count, coded) == bytes || bytes == map_bytes);
		assert(bytes == map_bytes || memcmp(coded, in, bytes) == 0);
	}
	free(coded);
	free(in);
}

static void code(struct script *script, uint64_t *words, size_t count)
{
	size_t map_bytes = bitmap_word_count(count) * 8, bytes;
	uint64_t *back = malloc(map_bytes + 1);
	uint8_t *coded = malloc(map_bytes + 1);

	assert(back != NULL && coded != NULL);
	script_fill(script, words, map_bytes);
	for (size_t i = script_u8(script) % 4; i > 0; i--) /* thinner */
		for (size_t w = 0; w < bitmap_word_count(count); w++)
			words[w] &= words[w] >> script_u8(script) % 64;
	if (count % 64 != 0)
		words[count / 64] &= (UINT64_C(1) << count % 64) - 1;
	bytes = bits_write(words, count, coded);
	assert(bytes <= map_bytes && bits_read(coded, bytes, back, count) == 0);
	assert(memcmp(words, back, map_bytes) == 0);
	free(coded);
	free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct script script = {data, bytes};
	size_t count = script_below(&script, 16385);
	uint8_t flags = script_u8(&script);
	uint64_t *words;

	if (flags >> 1 == 127)
		count *= 64; /* up to 2^20, which takes milliseconds */
	words = malloc(bitmap_word_count(count) * 8 + 1);
	assert(words != NULL);
	if (flags & 1)
		code(&script, words, count);
	else
		decode(script.at, script.left, words, count);
	free(words);
	return 0;
}
