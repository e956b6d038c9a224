/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_bitmap.h - what the tests of bitmap/ share: guarded memory and random elements
 *
 * Expected answers come byte by byte or from doubles, and share no code with bitmap/.
 */
#ifndef TESTS_UNIT_TEST_BITMAP_H
#define TESTS_UNIT_TEST_BITMAP_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bitmap/bitmap.h"
#include "tests/unit/test_elements.h"
#include "tests/unit/unit.h"

#define PAGE_BYTES 4096
#define POISON 0xa5
#define POISON_BYTES 512 /* on either side of what arena_place() gives out */

/* Memory between two pages that may not be touched. */
struct arena {
	unsigned char *start;
	size_t bytes;
};

static inline struct arena arena_open(size_t bytes)
{
	size_t rounded = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
	unsigned char *map =
		mmap(NULL, rounded + 2 * PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(map, MAP_FAILED);
	assert_int_equal(mprotect(map + PAGE_BYTES, rounded, PROT_READ | PROT_WRITE), 0);
	return (struct arena){.start = map + PAGE_BYTES, .bytes = rounded};
}

static inline void arena_close(const struct arena *arena)
{
	munmap(arena->start - PAGE_BYTES, arena->bytes + 2 * PAGE_BYTES);
}

static inline void arena_protect(const struct arena *arena, int protection)
{
	assert_int_equal(mprotect(arena->start, arena->bytes, protection), 0);
}

/* From `at`, up to POISON_BYTES back and forth, as far as the arena goes. */
static inline size_t poison_before(const struct arena *arena, const unsigned char *at)
{
	size_t room = (size_t)(at - arena->start);

	return room < POISON_BYTES ? room : POISON_BYTES;
}

static inline size_t poison_behind(const struct arena *arena, const unsigned char *at)
{
	size_t room = arena->bytes - (size_t)(at - arena->start);

	return room < POISON_BYTES ? room : POISON_BYTES;
}

/*
 * Room for `bytes` bytes at a multiple of `align`, it and its surroundings poisoned:
 * flush with the guard behind it, or with the one before it, or anywhere.
 */
static inline void *arena_place(const struct arena *arena, size_t bytes, size_t align)
{
	const size_t room = arena->bytes - bytes;
	unsigned char *data = arena->start + room;

	assert_true(bytes <= arena->bytes);
	if (random_below(4) == 0)
		data = arena->start;
	else if (random_below(3) == 0)
		data = arena->start + random_below(room < 256 ? room + 1 : 256);
	data -= (size_t)(data - arena->start) % align;
	memset(data - poison_before(arena, data), POISON,
	       poison_before(arena, data) + bytes + poison_behind(arena, data + bytes));
	return data;
}

/* Fails when a byte near data[bytes], but outside, lost its poison. */
static inline void arena_check(const struct arena *arena, const void *data, size_t bytes,
                               const char *what)
{
	const unsigned char *start = data;

	for (size_t i = 1; i <= poison_before(arena, start); i++)
		if (start[-(ptrdiff_t)i] != POISON)
			fail_msg("%s wrote %zu bytes before its output", what, i);
	for (size_t i = 0; i < poison_behind(arena, start + bytes); i++)
		if (start[bytes + i] != POISON)
			fail_msg("%s wrote %zu bytes behind its output", what, i);
}

static inline uint64_t fetch_element(const void *at, enum dtype dtype)
{
	uint64_t element = 0;

	memcpy(&element, at, dtype_bytes(dtype));
	return element;
}

/* What it is summed in, of a tensor's types. */
static inline enum dtype acc_dtype_of(enum dtype dtype)
{
	return dtype_bytes(dtype) == 2 ? DTYPE_F32 : dtype;
}

/* The value of a float, by the definition of its format. */
static inline double plain_value(uint64_t element, enum dtype dtype)
{
	const unsigned bits = dtype_bytes(dtype) * 8;
	const int m = (int)mantissa_bits(dtype);
	const int bias = dtype == DTYPE_F64 ? 1023 : dtype == DTYPE_F16 ? 15 : 127;
	const double sign = element >> (bits - 1) ? -1 : 1;
	const int biased = (int)(element >> m) & (2 * bias + 1);
	const double mantissa = (double)(element & ((UINT64_C(1) << m) - 1));

	if (biased == 2 * bias + 1)
		return mantissa == 0 ? sign * INFINITY : NAN;
	if (biased == 0)
		return sign * ldexp(mantissa, 1 - bias - m);
	return sign * ldexp(mantissa + ldexp(1, m), biased - bias - m);
}

/* The engine of that index among those this machine can run; NULL past the last. */
static inline const struct bitmap_engine *usable_engine(size_t index)
{
	for (size_t i = 0; bitmap_engines[i] != NULL; i++)
		if (bitmap_engines[i]->usable() && index-- == 0)
			return bitmap_engines[i];
	return NULL;
}

#endif /* TESTS_UNIT_TEST_BITMAP_H */
