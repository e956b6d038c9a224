// SPDX-License-Identifier: BSD-3-Clause
/* test_coded.c - sets in few bytes against a coder that writes bit by bit; sizes; hostile bytes */

#include "bitmap/coded.h"

#include <errno.h>

#include "tests/unit/test_bitmap.h"

#define COUNT_MAX 16384
#define WORDS_MAX (COUNT_MAX / 64)
#define BYTES_MAX (COUNT_MAX / 8)

static struct arena coded_arena, decoded_arena;

static void arenas_open(void)
{
	coded_arena = arena_open(BYTES_MAX);
	decoded_arena = arena_open(BYTES_MAX);
}

static void arenas_close(void)
{
	arena_close(&coded_arena);
	arena_close(&decoded_arena);
}

/* ---- the reference ---- */

struct plain {
	uint8_t bytes[BYTES_MAX * 2];
	uint64_t bits;
};

static void plain_put(struct plain *plain, uint64_t value, unsigned count)
{
	for (unsigned i = 0; i < count && plain->bits < sizeof(plain->bytes) * 8; i++) {
		if (i < 64 && value >> i & 1)
			plain->bytes[plain->bits / 8] |= (uint8_t)(1u << plain->bits % 8);
		plain->bits++;
	}
}

static void plain_code(const uint64_t words[], size_t count, struct plain *plain)
{
	uint64_t set = 0, clear = 0, gap = 0;
	unsigned parameter = 0;

	memset(plain, 0, sizeof(*plain));
	for (size_t i = 0; i < count; i++)
		if (bit_test(words, i))
			clear = i + 1 - ++set;
	while (set > 0 && set * (UINT64_C(2) << parameter) <= clear)
		parameter++;
	plain_put(plain, parameter, 5);
	for (size_t i = 0; i < count; i++, gap++) {
		if (!bit_test(words, i))
			continue;
		plain_put(plain, 0, (unsigned)(gap >> parameter));
		plain_put(plain, 1, 1);
		plain_put(plain, gap, parameter);
		gap = UINT64_MAX; /* and one more */
	}
}

static size_t plain_bytes(const struct plain *plain)
{
	return (plain->bits + 7) / 8;
}

/* ---- sets ---- */

static void set_random(uint64_t words[], size_t count, double density)
{
	for (size_t i = 0; i < count; i++)
		if ((double)(random_bits() >> 11) * 0x1p-53 < density)
			bit_set(words, i);
}

static void set_some(uint64_t words[], size_t count)
{
	size_t words_count = bitmap_word_count(count), first, last;

	memset(words, 0, words_count * 8);
	switch (random_below(4)) {
	case 0: /* runs */
		for (size_t n = random_below(6); n > 0; n--) {
			first = random_below(count);
			last = first + random_below(300);
			for (size_t i = first; i < last && i < count; i++)
				bit_set(words, i);
		}
		break;
	case 1: /* a few, so that gaps are long, and runs of zeros longer than a word */
		for (size_t n = random_below(4); n > 0; n--)
			bit_set(words, random_below(count));
		if (random_below(2) == 0)
			for (size_t i = 0; i < count && i < 70; i++)
				bit_set(words, i);
		break;
	default:
		set_random(words, count, pow(2, -(double)random_below(14)));
	}
}

static size_t count_some(void)
{
	const size_t likely[] = {0, 1, 63, 64, 65, 100, 127, 128, 4096, 11000, 16384};

	return random_below(2) ? likely[random_below(11)] : random_below(COUNT_MAX + 1);
}

/* ---- there and back ---- */

/* What is written is the shorter of the two, and is read as the set. */
static void check_written(const uint64_t words[], size_t count)
{
	const size_t map_bytes = bitmap_word_count(count) * 8;
	uint64_t *decoded = arena_place(&decoded_arena, map_bytes, 8);
	uint8_t *bytes = arena_place(&coded_arena, map_bytes, 1);
	static struct plain plain;
	bool shorter;
	size_t want;

	plain_code(words, count, &plain);
	shorter = plain_bytes(&plain) < map_bytes;
	want = shorter ? plain_bytes(&plain) : map_bytes;
	assert_int_equal(bits_write(words, count, bytes), want);
	arena_check(&coded_arena, bytes, map_bytes, "bits_write");
	assert_memory_equal(bytes, shorter ? (const void *)plain.bytes : words, want);
	assert_int_equal(bits_read(bytes, want, decoded, count), 0);
	arena_check(&decoded_arena, decoded, map_bytes, "bits_read");
	assert_memory_equal(decoded, words, map_bytes);
}

TEST(round)
{
	arenas_open();
	for (int i = 0; i < 6000; i++) {
		const size_t count = count_some();
		uint64_t words[WORDS_MAX];

		if (count > 0)
			set_some(words, count);
		check_written(words, count);
	}
	arenas_close();
}

/* Up to the largest segments that anybody may think of, and gaps of more than 2^19. */
TEST(large)
{
	const size_t count = 1u << 20;
	uint64_t *words = test_calloc(count / 64, 8), *decoded = test_malloc(count / 8);
	uint8_t *bytes = test_malloc(count / 8);
	size_t size;

	for (int i = 0; i < 12; i++) {
		memset(words, 0, count / 8);
		if (i == 0)
			bit_set(words, count - 1);
		else if (i == 1)
			for (size_t at = 0; at < 1000; at++)
				bit_set(words, at == 500 ? count - 1 : at);
		else
			set_random(words, count, pow(2, -2 - i));
		size = bits_write(words, count, bytes);
		assert_true(size < count / 8);
		assert_int_equal(bits_read(bytes, size, decoded, count), 0);
		assert_memory_equal(words, decoded, count / 8);
	}
	test_free(bytes);
	test_free(decoded);
	test_free(words);
}

/* ---- sizes ---- */

static double entropy_bits(double density)
{
	return -density * log2(density) - (1 - density) * log2(1 - density);
}

/* Bytes of so many random sets beside their entropy. */
static double measured_ratio(size_t count, double density)
{
	const int sets = 4000;
	static uint64_t words[WORDS_MAX];
	uint8_t written[BYTES_MAX];
	double bytes = 0;

	for (int i = 0; i < sets; i++) {
		memset(words, 0, sizeof(words));
		set_random(words, count, density);
		bytes += (double)bits_write(words, count, written);
	}
	return bytes * 8 / ((double)count * entropy_bits(density) * sets);
}

TEST(size)
{
	const size_t counts[] = {4096, 11000, 16384};
	const double densities[] = {.001, .002, .003, .005, .01, .02, .03, .05};
	double ratio;

	for (size_t d = 0; d < sizeof(densities) / sizeof(densities[0]); d++) {
		printf("%5.1f %%:", 100 * densities[d]);
		for (size_t c = 0; c < 3; c++) {
			ratio = measured_ratio(counts[c], densities[d]);
			printf(" %.3f", ratio);
			assert_true(ratio >= 0.9 && ratio <= 1.2);
		}
		printf("\n");
	}
}

/* ---- hostile bytes ---- */

/* Whatever is taken is what the set it stands for is coded as. */
static void check_hostile(const uint8_t *from, size_t size, size_t count)
{
	const size_t map_bytes = bitmap_word_count(count) * 8;
	uint64_t *decoded = arena_place(&decoded_arena, map_bytes, 8);
	uint8_t *bytes = arena_place(&coded_arena, size, 1), again[BYTES_MAX];
	int result;

	memcpy(bytes, from, size);
	result = bits_read(bytes, size, decoded, count);
	arena_check(&decoded_arena, decoded, map_bytes, "bits_read");
	if (result != 0) {
		assert_int_equal(result, -EINVAL);
		return;
	}
	if (count % 64 != 0)
		assert_int_equal(decoded[count / 64] >> count % 64, 0);
	if (size == map_bytes) /* a bitmap, whose set may have a shorter form */
		return;
	assert_int_equal(bits_write(decoded, count, again), size);
	assert_memory_equal(again, bytes, size);
}

TEST(hostile)
{
	uint64_t words[WORDS_MAX], decoded[WORDS_MAX];
	uint8_t bytes[BYTES_MAX + 16] = {0};
	size_t count, size;

	arenas_open();
	for (uint32_t i = 0; i < 65536; i++) { /* all of two bytes */
		memcpy(bytes, &i, 2);
		check_hostile(bytes, 2, 64 + i % 300);
	}
	for (int i = 0; i < 4000; i++) {
		count = 64 + random_below(COUNT_MAX - 64);
		set_some(words, count);
		size = bits_write(words, count, bytes);
		bytes[size] = 0;
		if (size + 1 != bitmap_word_count(count) * 8) /* a byte too many, one too few */
			assert_int_equal(bits_read(bytes, size + 1, decoded, count), -EINVAL);
		check_hostile(bytes, size - 1, count);
		check_hostile(bytes, size, 1 + random_below(count));
		bytes[random_below(size)] ^= (uint8_t)(1u << random_below(8));
		check_hostile(bytes, size, count);
		for (size_t at = 1; at < size; at++)
			bytes[at] = (uint8_t)random_bits();
		check_hostile(bytes, size, count);
	}
	arenas_close();
}

/* {0, 7}: z = 6, r = 1, so 10000, 1 0, 000 1 0; and each rule of the form broken alone. */
TEST(refused)
{
	const uint8_t right[3] = {0x21, 0x04, 0}; /* and a byte too many */
	const uint8_t parameter[2] = {0x20, 0x10};
	const uint8_t cut[2] = {0x21, 0x80}; /* the code at the end lacks its low bit */
	uint64_t words[2];

	assert_int_equal(bits_read(right, 2, words, 64), 0);
	assert_int_equal(words[0], 0x81);
	assert_int_equal(bits_read(right, 2, words, 8), 0);
	assert_int_equal(bits_read(right, 2, words, 7), -EINVAL);
	assert_int_equal(bits_read(right, 3, words, 64), -EINVAL);
	assert_int_equal(bits_read(right, 0, words, 64), -EINVAL);
	assert_int_equal(bits_read(right, 2, words, 0), -EINVAL);
	assert_int_equal(bits_read(parameter, 2, words, 64), -EINVAL);
	assert_int_equal(bits_read(cut, 2, words, 64), -EINVAL);
}
