// SPDX-License-Identifier: BSD-3-Clause
/* test_rows.c - lists of blocks: sorting, scanning, and the merged result of several shards */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/worker/rows.h"
#include "tests/unit/unit.h"

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

/* The operation that the list is of, cut and begun. */
static struct allreduce task_of(struct winnow_rows *rows, uint32_t shard_count)
{
	struct allreduce task = {.count = ELEMS,
	                         .dtype = DTYPE_I32,
	                         .access = rows_access(rows),
	                         .access_state = rows};
	struct geometry_input input = {.count = ELEMS,
	                               .block_elems = LENGTH,
	                               .elem_bytes = 4,
	                               .shard_count = shard_count,
	                               .payload = WIRE_PAYLOAD_MIN};

	assert_true(geometry_compute(&input, &task.cut));
	assert_true(task.cut.segment_count > 1 || shard_count > 1);
	assert_int_equal(task.access->begin(&task), 0);
	return task;
}

/* A frame of one block of the first segment, of one shard: where a PUSH points. */
static const uint8_t *pushed(const struct allreduce *task, uint16_t block)
{
	struct geometry_segment cut = geometry_segment(&task->cut, 0);
	uint64_t own[SEGMENT_WORDS] = {0};
	struct access_frame frame = {.cut = &cut,
	                             .first = block,
	                             .end = block + 1u,
	                             .own = own,
	                             .count = 1,
	                             .own_count = 1,
	                             .wire = DTYPE_I32,
	                             .unit_bytes = 8};
	struct packet_out out;

	bit_set(own, block);
	packet_begin(&out, &(struct wire_header){0});
	task->access->push(task, &frame, &out);
	assert_int_equal(out.piece_count, 2);
	assert_int_equal(out.bytes - out.pieces[0].iov_len, 8);
	return out.pieces[1].iov_base;
}

TEST(any_order)
{
	const int64_t index[] = {600, 0, 8};
	const int32_t values[] = {60, 61, 1, 2, 80, 81};
	const int32_t sorted[] = {1, 2, 80, 81, 60, 61};
	struct winnow_rows *rows;
	struct access_scan scan;
	const char *why = NULL;
	uint64_t bits[SEGMENT_WORDS];
	struct allreduce task;

	assert_int_equal(open_list(index, values, 3, false, &rows, &why), 0);
	assert_memory_equal(rows->values, sorted, sizeof(sorted));
	task = task_of(rows, 1);
	scan = (struct access_scan){.bits = bits};
	assert_int_equal(task.access->scan(&task, 0, &scan), 3);
	assert_int_equal(bits[0], 1 | 1 << 4);
	assert_int_equal(bits[4], UINT64_C(1) << (300 - 256));
	assert_int_equal(bits[1] | bits[2] | bits[3] | bits[5], 0);
	assert_int_equal(task.access->scan(&task, 1, &scan), 0);
	assert_ptr_equal(pushed(&task, 300), rows->values + 16);
	assert_ptr_equal(pushed(&task, 0), rows->values);
	rows_close(rows);
}

TEST(ascending_is_not_copied)
{
	const int64_t index[] = {0, 8};
	const int32_t values[] = {1, 2, 80, 81};
	struct winnow_rows *rows;
	const char *why = NULL;

	assert_int_equal(open_list(index, values, 2, false, &rows, &why), 0);
	assert_ptr_equal(rows->values, values);
	rows_close(rows);
}

TEST(refused)
{
	static const struct {
		int64_t index[2];
		const char *why;
	} cases[] = {
		{{4, 4}, "an index is given twice"},
		{{4, -2}, "an index is outside the tensor"},
		{{4, ELEMS}, "an index is outside the tensor"},
		{{4, ELEMS - 1}, "an index is outside the tensor"},
		{{4, 7}, "an index is not a multiple of block_length"},
	};
	const int32_t values[4] = {0};
	struct winnow_rows *rows = NULL;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *why = NULL;

		assert_int_equal(open_list(cases[i].index, values, 2, true, &rows, &why), -EINVAL);
		assert_string_equal(why, cases[i].why);
		assert_null(rows);
	}
}

/* Every third block of a segment of one shard. */
static void receive_part(struct allreduce *task, uint32_t segment, uint32_t shard)
{
	struct geometry_segment cut = geometry_segment(&task->cut, segment);
	uint64_t united[SEGMENT_WORDS] = {0};
	struct access_frame plan = {
		.segment = segment, .shard = shard, .cut = &cut, .united = united};

	for (uint32_t i = 0; i < cut.block_count; i++) {
		uint64_t block = geometry_block(&task->cut, &cut, shard, i);

		if (block >= task->cut.block_count || block % 3 != 0)
			continue;
		bit_set(united, i);
		plan.count++;
	}
	assert_int_equal(task->access->plan(task, &plan), 0);
	for (uint32_t i = 0; i < cut.block_count; i++) {
		int32_t value[LENGTH] = {(int32_t)geometry_block(&task->cut, &cut, shard, i), -1};
		struct access_frame frame = {.segment = segment,
		                             .shard = shard,
		                             .cut = &cut,
		                             .first = i,
		                             .end = i + 1,
		                             .united = united,
		                             .count = 1,
		                             .wire = DTYPE_I32,
		                             .unit_bytes = sizeof(value)};

		if (bit_test(united, i))
			assert_true(task->access->store(task, &frame, (const uint8_t *)value));
	}
}

/* They come back, whatever shards and segments they went through. */
TEST(result)
{
	static const uint32_t shards[] = {1, 3, 8};
	static int64_t index[ELEMS];
	static int32_t values[ELEMS];

	for (size_t s = 0; s < sizeof(shards) / sizeof(shards[0]); s++) {
		struct winnow_rows *rows;
		struct allreduce task;
		const char *why = NULL;

		assert_int_equal(open_list(NULL, NULL, 0, true, &rows, &why), 0);
		task = task_of(rows, shards[s]);
		for (uint32_t segment = 0; segment < task.cut.segment_count; segment++)
			for (uint32_t shard = 0; shard < shards[s]; shard++)
				receive_part(&task, segment, shard);
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
