// SPDX-License-Identifier: BSD-3-Clause
/* test_rows.c - lists of blocks: sorting, scanning, and the merged result of several shards */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/worker/rows.h"

#define LENGTH 2 /* elements of a block */
#define ELEMS 20000

static int open_list(const int64_t *index, const int32_t *values, uint64_t count, bool gather,
                     struct winnow_rows **rows, const char **why)
{
	struct rows_input input = {.values = values,
	                           .index = index,
	                           .block_count = count,
	                           .block_elems = LENGTH,
	                           .elem_bytes = 4,
	                           .elems = ELEMS,
	                           .gather = gather};

	return rows_open(&input, rows, why);
}

static void test_any_order(void **state)
{
	const int64_t index[] = {600, 0, 8};
	const int32_t values[] = {60, 61, 1, 2, 80, 81};
	const int32_t sorted[] = {1, 2, 80, 81, 60, 61};
	struct winnow_rows *rows;
	const uint8_t *from;
	const char *why = NULL;
	uint64_t bits[4];

	(void)state;
	assert_int_equal(open_list(index, values, 3, false, &rows, &why), 0);
	assert_memory_equal(rows->values, sorted, sizeof(sorted));
	assert_memory_equal(rows_send(rows, 300), &sorted[4], 8);
	assert_memory_equal(rows_send(rows, 0), &sorted[0], 8);
	assert_int_equal(rows_scan(rows, 0, 256, bits, &from), 2);
	assert_ptr_equal(from, rows->values);
	assert_int_equal(bits[0], 1 | 1 << 4);
	assert_int_equal(bits[1] | bits[2] | bits[3], 0);
	assert_int_equal(rows_scan(rows, 256, 100, bits, &from), 1);
	assert_memory_equal(from, &sorted[4], 8);
	assert_int_equal(bits[0], UINT64_C(1) << (300 - 256));
	assert_int_equal(rows_scan(rows, 356, 100, bits, &from), 0);
	rows_close(rows);
}

static void test_ascending_is_not_copied(void **state)
{
	const int64_t index[] = {0, 8};
	const int32_t values[] = {1, 2, 80, 81};
	struct winnow_rows *rows;
	const char *why = NULL;

	(void)state;
	assert_int_equal(open_list(index, values, 2, false, &rows, &why), 0);
	assert_ptr_equal(rows->values, values);
	rows_close(rows);
}

static void test_refused(void **state)
{
	static const struct {
		int64_t index[2];
		const char *why;
	} cases[] = {
		{{4, 4}, "an index is there twice"},
		{{4, -2}, "an index is outside of the tensor"},
		{{4, ELEMS}, "an index is outside of the tensor"},
		{{4, ELEMS - 1}, "an index is outside of the tensor"},
		{{4, 7}, "an index is no multiple of block_length"},
	};
	const int32_t values[4] = {0};
	struct winnow_rows *rows = NULL;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *why = NULL;

		assert_int_equal(open_list(cases[i].index, values, 2, true, &rows, &why), -EINVAL);
		assert_string_equal(why, cases[i].why);
		assert_null(rows);
	}
}

/* Every third block of a tensor comes back, whatever shards and segments it went through. */
static void receive_all(struct winnow_rows *rows, const struct geometry *cut)
{
	for (uint32_t segment = 0; segment < cut->segment_count; segment++)
		for (uint32_t shard = 0; shard < cut->shard_count; shard++) {
			uint64_t before = (uint64_t)segment * cut->segment_blocks;
			uint64_t blocks[WIRE_SEGMENT_BLOCKS_MAX];
			uint32_t count = 0;

			for (uint32_t i = 0; i < geometry_segment_blocks(cut, segment); i++) {
				uint64_t block = geometry_block(cut, shard, before + i);

				if (block < cut->block_count && block % 3 == 0)
					blocks[count++] = block;
			}
			assert_int_equal(rows_reserve(rows, segment, shard, blocks, count), 0);
			for (uint32_t i = 0; i < count; i++) {
				int32_t value[LENGTH] = {(int32_t)blocks[i], -1};

				memcpy(rows_recv(rows, shard, blocks[i]), value, sizeof(value));
			}
		}
}

static void test_result(void **state)
{
	static const uint32_t shards[] = {1, 3, 8};
	static int64_t index[ELEMS];
	static int32_t values[ELEMS];

	(void)state;
	for (size_t s = 0; s < sizeof(shards) / sizeof(shards[0]); s++) {
		struct geometry_input input = {.count = ELEMS,
		                               .block_elems = LENGTH,
		                               .elem_bytes = 4,
		                               .shard_count = shards[s],
		                               .payload = 1472};
		struct winnow_rows *rows;
		struct geometry cut;
		const char *why = NULL;

		assert_true(geometry_compute(&input, &cut));
		assert_true(cut.segment_count > 1 || shards[s] > 1);
		assert_int_equal(open_list(NULL, NULL, 0, true, &rows, &why), 0);
		assert_int_equal(rows_begin(rows, &cut), 0);
		receive_all(rows, &cut);
		assert_int_equal(rows->found, (ELEMS / LENGTH + 2) / 3);
		rows_read(rows, index, values);
		for (uint64_t i = 0; i < rows->found; i++) {
			assert_int_equal(index[i], 3 * i);
			assert_int_equal(values[2 * i], 3 * i);
			assert_int_equal(values[2 * i + 1], -1);
		}
		rows_close(rows);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_any_order),
		cmocka_unit_test(test_ascending_is_not_copied),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_result),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
