// SPDX-License-Identifier: BSD-3-Clause
/* test_stream_eager.c - operations that travel inside their announcements: sections 4.4, 6.5 and 8.5 */

#include "tests/unit/test_stream.h"

#define FIRST (UINT32_MAX - 9) /* frame numbers wrap in every test */

/* Five elements in three blocks of two: the last is short, in what is sent and in what is stored. */
BENCH_TEST(eager, bench_open(16, FIRST))
{
	struct allreduce *task = task_open(b, 5);
	const uint64_t bits = 5;
	const struct {
		uint64_t word;
		float sums[6];
	} rest = {7, {10, 20, 30, 40, 50, 60}};
	struct geometry_input input = {.count = 5,
	                               .block_elems = 2,
	                               .elem_bytes = 4,
	                               .shard_count = 1,
	                               .payload = WIRE_PAYLOAD_MIN};
	struct plan plan = plan_of(TAG, 1, WIRE_EAGER);
	struct announce a;

	task->block_elems = 2;
	assert_true(geometry_compute(&input, &task->cut) && task->cut.eager);
	task_begin(b, task, &bits);
	assert_int_equal(announce_parse(&b->got, &a), WIRE_DROP_NONE);
	assert_int_equal(a.flags, WIRE_EAGER);
	assert_int_equal(a.set.bytes, 1); /* the gaps are 0 and 1 */
	expect_set(&a.set, &bits, 3);
	assert_int_equal(a.set.blocks_bytes, 16);
	assert_memory_equal(a.set.blocks, ((const float[]){1, 2, 5, 0}), 16);
	plan.set.bytes = 8;
	for (uint32_t bytes = 0; bytes < 32; bytes++) {
		assert_null(send_plan(b, FIRST, &plan, &rest, bytes));
		expect_drop(b, bytes < 8 ? WIRE_DROP_LENGTH : WIRE_DROP_OPERATION);
	}
	plan.flags = 0;
	assert_null(send_plan(b, FIRST, &plan, &rest, 32));
	expect_drop(b, WIRE_DROP_OPERATION);
	assert_true(is_poison(task->recv, 20));
	plan.flags = WIRE_EAGER;
	assert_ptr_equal(send_plan(b, FIRST, &plan, &rest, 32), task);
	assert_memory_equal(task->recv, rest.sums, 20);
	task_close(task);
}
