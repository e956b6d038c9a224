// SPDX-License-Identifier: BSD-3-Clause
/* test_stream_eager.c - operations that travel inside their announcements: sections 4.4, 6.5 and 8.5 */

#include "tests/unit/test_stream.h"

#define FIRST (UINT32_MAX - 9) /* frame numbers wrap in every test */

/* Five elements in three blocks of two: the last is short, in what is sent and in what is stored. */
static void test_eager(void **state)
{
	struct bench *b = bench_open(16, FIRST);
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

	(void)state;
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
	bench_close(b);
}

/* A stream of which so many segments of an operation may be under way, in a window of so many. */
static struct bench *eager_open(uint32_t segments_ahead, uint32_t window_start)
{
	struct bench *b = bench_open(16, FIRST);

	stream_close(b->stream);
	b->config.segments_ahead = segments_ahead;
	b->config.window_start = window_start;
	assert_int_equal(stream_open(&b->config, &b->stream), 0);
	return b;
}

/* There is room, and all blocks of the segment are announced. */
static void announce_all(struct bench *b, struct allreduce *task, uint32_t number)
{
	const uint32_t blocks = geometry_segment(&task->cut, number).block_count;
	const uint64_t all = (UINT64_C(1) << blocks) - 1,
		       left = task->count * 4 - 3 * BLOCK_BYTES * number;
	const struct stream_scan scan = {.bits = &all, .exponent = WIRE_EXPONENT_NONE};
	const float *send = task->send;
	struct announce a;

	assert_true(stream_ask_room(b->stream, task, number));
	stream_announce(b->stream, task, number, &scan, b->now_us);
	expect_packet(b, WIRE_ANNOUNCE, 0);
	assert_int_equal(announce_parse(&b->got, &a), WIRE_DROP_NONE);
	assert_int_equal(a.segment, number);
	assert_int_equal(a.block_count, blocks);
	assert_int_equal(a.set.blocks_bytes, blocks * BLOCK_BYTES);
	assert_memory_equal(a.set.blocks, send + 3 * BLOCK_ELEMS * number,
	                    left < a.set.blocks_bytes ? left : a.set.blocks_bytes);
}

/* Three blocks fit an announcement: seven make three segments. Each has its place; two may be under way. */
static void test_eager_segments(void **state)
{
	struct bench *b = bench_open(16, FIRST);
	struct allreduce *task = task_open(b, (uint64_t)7 * BLOCK_ELEMS - 5);
	float sums[7 * BLOCK_ELEMS];
	struct plan plan = plan_of(TAG, 1, WIRE_EAGER | WIRE_ALL);

	(void)state;
	assert_true(task->cut.eager && task->cut.segment_count == 3);
	for (uint32_t i = 0; i < 7 * BLOCK_ELEMS; i++)
		sums[i] = (float)(10 * i);
	stream_begin(b->stream, task);
	announce_all(b, task, 0);
	announce_all(b, task, 1);
	assert_false(stream_ask_room(b->stream, task, 2));
	plan.segment = 1;
	assert_null(send_plan(b, FIRST, &plan, sums + 3 * BLOCK_ELEMS, FRAME_BYTES - BLOCK_BYTES));
	assert_true(is_poison(task->recv, 3 * BLOCK_BYTES));
	plan.segment = 0;
	assert_null(send_plan(b, FIRST + 1, &plan, sums, 3 * BLOCK_BYTES));
	assert_memory_equal(task->recv, sums, 6 * BLOCK_BYTES);
	assert_false(stream_ask_room(b->stream, task, 2));
	b->base += 2;
	b->planned += 2;
	send_credit(b);
	announce_all(b, task, 2);
	plan.segment = 2;
	assert_ptr_equal(send_plan(b, FIRST + 2, &plan, sums + 6 * BLOCK_ELEMS, BLOCK_BYTES), task);
	assert_memory_equal(task->recv, sums, 7 * BLOCK_BYTES - 20);
	task_close(task);
	bench_close(b);
}

/* When base alone keeps it from announcing more, an acknowledgement that moves does not wait. */
static void test_eager_ack(void **state)
{
	struct bench *b = bench_open(16, FIRST);
	struct allreduce *task = task_open(b, (uint64_t)9 * BLOCK_ELEMS);
	struct plan plan = plan_of(TAG, 1, WIRE_EAGER | WIRE_ALL);

	(void)state;
	stream_begin(b->stream, task);
	for (uint32_t i = 0; i < 2; i++)
		announce_all(b, task, i);
	assert_null(send_plan(b, FIRST, &plan, task->send, 3 * BLOCK_BYTES));
	expect_nothing(b);
	assert_false(stream_ask_room(b->stream, task, 2));
	expect_status(b, false);
	plan.segment = 1;
	assert_null(send_plan(b, FIRST + 1, &plan, task->send, 3 * BLOCK_BYTES));
	expect_status(b, false);
	assert_int_equal(b->got.edge, FIRST + 2);
	task_close(task);
	bench_close(b);
}

/*
 * As many as may be pushed; what has no elements does not wait for them. When the window is used the way is
 * measured, and the window grows.
 */
static void test_eager_window(void **state)
{
	struct bench *b = eager_open(4, 2);
	struct allreduce *task, *barrier;
	struct plan plan = plan_of(TAG, 1, WIRE_EAGER | WIRE_ALL);
	struct control_seen seen = {0};
	uint32_t stamp;

	(void)state;
	task = task_open(b, (uint64_t)12 * BLOCK_ELEMS);
	barrier = task_open(b, 0);
	barrier->slot = 1;
	stream_begin(b->stream, task);
	stream_begin(b->stream, barrier);
	announce_all(b, task, 0);
	expect_nothing(b);
	announce_all(b, task, 1);
	expect_status(b, true);
	stamp = got_status(b).stamp;
	expect_nothing(b);
	assert_false(stream_ask_room(b->stream, task, 2));
	assert_true(stream_ask_room(b->stream, barrier, 0));
	b->now_us += 300;
	assert_null(send_plan(b, FIRST, &plan, task->send, 3 * BLOCK_BYTES));
	send_status(b, RANK, stamp, 0, 0);
	stream_look(b->stream, &seen);
	assert_int_equal(seen.frames, 4);
	announce_all(b, task, 2);
	announce_all(b, task, 3);
	task_close(barrier);
	task_close(task);
	bench_close(b);
}

/* A plan of a later one: what has none after `late` was lost; once. One of an earlier one says nothing. */
static void test_eager_overtaken(void **state)
{
	struct bench *b = eager_open(4, 16);
	struct allreduce *task;
	struct plan plan = plan_of(TAG, 1, WIRE_EAGER | WIRE_ALL);
	struct announce a;

	(void)state;
	task = task_open(b, (uint64_t)12 * BLOCK_ELEMS);
	stream_begin(b->stream, task);
	for (uint32_t i = 0; i < 4; i++)
		announce_all(b, task, i);
	b->now_us += 100;
	assert_null(send_plan(b, FIRST, &plan, task->send, 3 * BLOCK_BYTES));
	expect_nothing(b);
	b->now_us += 500;
	expect_nothing(b);
	plan.segment = 2;
	assert_null(send_plan(b, FIRST + 1, &plan, task->send, 3 * BLOCK_BYTES));
	b->now_us += 299;
	expect_nothing(b);
	b->now_us += 1 + 299 / 2; /* waits are spread */
	expect_packet(b, WIRE_ANNOUNCE, 0);
	assert_int_equal(announce_parse(&b->got, &a), WIRE_DROP_NONE);
	assert_int_equal(a.segment, 1);
	plan.segment = 3;
	assert_null(send_plan(b, FIRST + 2, &plan, task->send, 3 * BLOCK_BYTES));
	b->now_us += 900;
	while (bench_pull(b))
		assert_int_equal(b->got.kind, WIRE_STATUS);
	task_close(task);
	bench_close(b);
}

/* They have been repeated, so they do not hold back others. */
static void test_eager_unanswered(void **state)
{
	struct bench *b = eager_open(4, 2);
	struct allreduce *task;

	(void)state;
	task = task_open(b, (uint64_t)12 * BLOCK_ELEMS);
	stream_begin(b->stream, task);
	announce_all(b, task, 0);
	announce_all(b, task, 1);
	b->now_us += 1000;
	pull_all(b);
	assert_false(stream_ask_room(b->stream, task, 2));
	b->now_us += 40000;
	pull_all(b);
	announce_all(b, task, 2);
	task_close(task);
	bench_close(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_eager),           cmocka_unit_test(test_eager_segments),
		cmocka_unit_test(test_eager_ack),       cmocka_unit_test(test_eager_window),
		cmocka_unit_test(test_eager_overtaken), cmocka_unit_test(test_eager_unanswered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
