// SPDX-License-Identifier: BSD-3-Clause
/* test_trace_format.c - the format of traces: heads, records and bitmaps as bytes, and bytes that are none of these */

#include <stdlib.h>
#include <string.h>

#include "bitmap/bitmap.h"
#include "bitmap/dtype.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_trace.h"
#include "tests/unit/unit.h"

static struct trace_record a_record(uint64_t count, uint32_t fine)
{
	struct trace_record record = {
		.kind = TRACE_OPERATION,
		.dtype = DTYPE_F32,
		.reduction = REDUCE_SUM,
		.block = 256,
		.fine = fine,
		.tag = 77,
		.count = count,
	};

	return record;
}

TEST(head)
{
	struct trace_head head = a_head(1, UINT64_MAX), back;
	uint8_t bytes[TRACE_HEAD_BYTES];

	trace_head_put(&head, bytes);
	assert_null(trace_head_take(bytes, sizeof(bytes), &back));
	assert_string_equal(back.job, "job-a");
	assert_int_equal(back.run, UINT64_MAX);
	assert_int_equal(back.channels, 3);
	assert_int_equal(back.multicast, 1);
	assert_non_null(trace_head_take(bytes, sizeof(bytes) - 1, &back));
	bytes[8]++;
	assert_non_null(strstr(trace_head_take(bytes, sizeof(bytes), &back), "another version"));
	head.rank = 2;
	trace_head_put(&head, bytes);
	assert_non_null(strstr(trace_head_take(bytes, sizeof(bytes), &back), "damaged"));
	head = a_head(0, 1);
	head.channels = 0;
	trace_head_put(&head, bytes);
	assert_non_null(trace_head_take(bytes, sizeof(bytes), &back));
	head = a_head(0, 1);
	strcpy(head.job, "../x");
	trace_head_put(&head, bytes);
	assert_non_null(trace_head_take(bytes, sizeof(bytes), &back));
	bytes[0] = 'X';
	assert_non_null(strstr(trace_head_take(bytes, sizeof(bytes), &back), "not a trace"));
}

static const char *taken(const struct trace_record *record)
{
	uint8_t bytes[TRACE_RECORD_BYTES];
	struct trace_record back;

	trace_record_put(record, bytes);
	return trace_record_take(bytes, sizeof(bytes), &back);
}

TEST(records)
{
	struct trace_record record = a_record(1000, 4);

	assert_null(taken(&record));
#define WRONG(field, value, text)                                                                  \
	(record = a_record(1000, 4), record.field = (value),                                       \
	 assert_non_null(strstr(taken(&record), text)))
	WRONG(fine, 0, "");
	WRONG(block, 0, "");
	WRONG(count, (UINT64_C(1) << 48) + 1, "");
	WRONG(count, UINT64_C(1) << 48, "too large"); /* 2^46 bits */
	WRONG(first, (UINT64_C(1) << 48) + 1, "");
	WRONG(dtype, 7, "");
	WRONG(kind, 3, "");
#undef WRONG
}

/* The encoding gives the same bits back, and never takes more than the words. */
static void bitmap_check(const uint64_t *bitmap, uint64_t bits)
{
	struct trace_record record = a_record(bits, 1);
	uint64_t words = (bits + 63) / 64;
	uint8_t *bytes = malloc(bitmap_word_count(bits) * 8 + 1);
	uint64_t *back = malloc(words * 8);

	assert_non_null(bytes);
	assert_non_null(back);
	bytes[bitmap_word_count(bits) * 8] = 0xa5;
	trace_bitmap_put(bitmap, &record, back, bytes);
	assert_true(record.body_bytes <= bitmap_word_count(bits) * 8);
	assert_int_equal(bytes[bitmap_word_count(bits) * 8], 0xa5);
	assert_true(trace_bitmap_take(bytes, &record, back));
	for (uint64_t i = 0; i < bits; i++)
		assert_int_equal(back[i / 64] >> (i % 64) & 1, bitmap[i / 64] >> (i % 64) & 1);
	record.body_bytes = 0;
	assert_false(trace_bitmap_take(bytes, &record, back));
	free(bytes);
	free(back);
}

TEST(bitmaps)
{
	uint64_t bitmap[64];

	for (uint32_t turn = 0; turn < 3000; turn++) {
		uint64_t bits = 1 + random_below(4096), value = 0;
		uint64_t mean = UINT64_C(1) << random_below(12);

		for (uint64_t i = 0; i < 4096; i++) {
			value ^= random_below(mean) == 0;
			bitmap[i / 64] &= ~(UINT64_C(1) << (i % 64));
			bitmap[i / 64] |= value << (i % 64);
		}
		bitmap_check(bitmap, bits);
	}
	memset(bitmap, 0, sizeof(bitmap));
	bitmap_check(bitmap, 4096);
	memset(bitmap, 0xff, sizeof(bitmap));
	bitmap_check(bitmap, 4095);
}
