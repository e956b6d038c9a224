// SPDX-License-Identifier: BSD-3-Clause
/* test_stream_ops.c - what holds a stream back, numbers in fixed point, and what travels inside announcements */

#include "tests/unit/test_stream.h"

#define FIRST (UINT32_MAX - 9) /* frame numbers wrap in every test */

static void acknowledge(struct bench *b, uint32_t base)
{
	b->now_us += 1000;
	pull_all(b);
	b->base = base;
	send_credit(b);
}

static void expect_held(const struct bench *b, uint64_t window_us, uint64_t credit_us)
{
	struct control_seen seen = {0};

	stream_look(b->stream, &seen);
	if (seen.held_window_us != window_us || seen.held_credit_us != credit_us)
		fail_msg("held by the window for %u us, by credit for %u",
		         (unsigned)seen.held_window_us, (unsigned)seen.held_credit_us);
}

static void push_all(struct bench *b)
{
	while (bench_pull(b))
		;
}

/* What keeps it from pushing, and how long: its window, others' acknowledgements, or nothing. */
BENCH_TEST(held, bench_open(16, FIRST))
{
	struct allreduce *task;
	struct control_seen seen = {0};
	float data[FRAME_BYTES / 4] = {0};

	stream_close(b->stream);
	b->config.window_start = 12;
	assert_int_equal(stream_open(&b->config, &b->stream), 0);
	push_all(b);
	b->now_us += 5000; /* there is nothing to do */
	task = task_planned(b, all_bits);
	push_all(b);
	expect_held(b, 0, 0);
	b->now_us += 700; /* 12 are under way */
	b->sequence = 6;
	for (uint32_t frame = 0; frame < 6; frame++)
		assert_null(send_result(b, FIRST + frame, data, FRAME_BYTES));
	push_all(b);
	expect_held(b, 700, 0);
	b->now_us += 1100; /* 16 have been pushed, of 25, and rank 0 has acknowledged none */
	push_all(b);
	expect_held(b, 700, 1100);
	b->now_us += 50;
	b->base += 16;
	b->sequence = 16;
	for (uint32_t frame = 6; frame < 16; frame++)
		assert_null(send_result(b, FIRST + frame, data, FRAME_BYTES));
	send_credit(b);
	push_all(b);
	b->now_us += 3000; /* all have been pushed */
	push_all(b);
	expect_held(b, 700, 1150);
	stream_look(b->stream, &seen);
	assert_true(seen.frames >= 2 && seen.frames <= 16 && seen.rtt_us == 0 &&
	            seen.rtt_least_us == 0);
	task_close(task);
}

/* fixed32: what a short last block lacks is zero whatever was in the scratch memory. */
BENCH_TEST(fixed_padding, bench_open(16, FIRST))
{
	struct allreduce *task = task_open(b, (uint64_t)BLOCKS * BLOCK_ELEMS - 3);
	const uint64_t last[2] = {0, UINT64_C(1) << 35};

	for (unsigned nonfinite = 0; nonfinite < 2; nonfinite++) {
		struct stream_scan scan = {last, 13, nonfinite, NULL};
		struct plan plan = plan_of(TAG, 1, nonfinite ? WIRE_NONFINITE : 0);
		uint32_t want;

		task->form = WIRE_FIXED32;
		task->shards_left = 1;
		stream_begin(b->stream, task);
		stream_announce(b->stream, task, 0, &scan, b->now_us);
		expect_packet(b, WIRE_ANNOUNCE, 0);
		plan.exponent = 13;
		assert_null(send_plan(b, FIRST + nonfinite, &plan, last, 16));
		memset(b->scratch, POISON, sizeof(b->scratch));
		expect_packet(b, WIRE_PUSH, FIRST + nonfinite);
		assert_int_equal(b->got.body_bytes, BLOCK_BYTES);
		memcpy(&want, b->got.body, 4); /* 3169, times 2^16 or as it is */
		assert_int_equal(want, nonfinite ? 0x45461000 : 3169 << 16);
		assert_memory_equal(b->got.body + BLOCK_BYTES - 12, ((const uint8_t[12]){0}), 12);
		assert_ptr_equal(send_result(b, FIRST + nonfinite, task->send, BLOCK_BYTES), task);
		acknowledge(b, FIRST + nonfinite + 1);
	}
	assert_true(((float *)task->recv)[3168] == 1); /* f32, as it came */
	task_close(task);
}

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
