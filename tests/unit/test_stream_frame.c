// SPDX-License-Identifier: BSD-3-Clause
/* test_stream_frame.c - pushes, results, credit and fixed point of a worker that is not told the truth */

#include "tests/unit/test_stream_frame.h"

static const float values[WIRE_PAYLOAD_MAX / 4];

/* ---- results ---- */

BENCH_TEST(bad_results, bench_open(16, FIRST))
{
	struct allreduce *task = task_open(b, (uint64_t)BLOCKS * BLOCK_ELEMS - 3);
	struct plan plan = plan_of(TAG, FRAMES, WIRE_ALL);

	task_begin(b, task, no_bits);
	assert_null(result_of(b, FIRST, 1));
	expect_drop(b, WIRE_DROP_FRAME); /* its plan is not known */
	assert_null(send_plan(b, FIRST, &plan, NULL, 0));
	assert_null(result_of(b, FIRST - 1, 1));
	expect_drop(b, WIRE_DROP_STALE);
	assert_null(result_of(b, FIRST + 16, 1)); /* nobody may have pushed it */
	expect_drop(b, WIRE_DROP_STALE);
	assert_null(result_of(b, FIRST + 0x80000000, 1));
	expect_drop(b, WIRE_DROP_STALE);
	for (uint32_t bytes = 0; bytes <= 552; bytes++) {
		if (bytes == FRAME_BYTES)
			continue;
		assert_null(send_result(b, FIRST + 3, values, bytes));
		expect_drop(b, WIRE_DROP_LENGTH);
	}
	assert_true(is_poison(task->recv, task->count * 4));
	assert_null(result_of(b, FIRST + 3, 2));
	expect_drop(b, WIRE_DROP_NONE);
	assert_null(result_of(b, FIRST + 3, 3));
	expect_drop(b, WIRE_DROP_DUPLICATE);
	assert_true(is_poison(task->recv, 3 * FRAME_BYTES));
	for (size_t i = 0; i < FRAME_BYTES / 4; i++)
		assert_true(((float *)task->recv)[3 * FRAME_BYTES / 4 + i] == 2);
	assert_true(is_poison((uint8_t *)task->recv + 4 * FRAME_BYTES, 1000));
	task_close(task);
}

/* ---- credit ---- */

/* Only what base + window allows, whoever says what in whatever order. */
BENCH_TEST(credit, bench_open(16, FIRST))
{
	struct allreduce *task = task_planned(b, all_bits);

	assert_int_equal(pushes(b, FIRST), 16);
	b->base = FIRST + 1; /* beyond our own ack: a lie */
	send_credit(b);
	assert_int_equal(pushes(b, 0), 0);
	b->base = FIRST + 0x80000001;
	send_credit(b);
	b->base = FIRST;
	b->window = 17; /* more than START said */
	send_credit(b);
	b->window = UINT16_MAX;
	send_credit(b);
	assert_int_equal(pushes(b, 0), 0);
	b->window = 16;
	for (uint32_t frame = 0; frame < 5; frame++)
		assert_null(result_of(b, FIRST + frame, 1));
	b->base = FIRST + 3;
	b->window = 8; /* less is taken for no news */
	send_credit(b);
	assert_int_equal(pushes(b, 0), 0);
	assert_null(result_of(b, FIRST + 15, 1));
	expect_drop(b, WIRE_DROP_NONE);
	b->window = 16;
	send_credit(b);
	assert_int_equal(pushes(b, FIRST + 16), 3);
	b->base = FIRST + 2; /* backwards: a late packet */
	send_credit(b);
	assert_int_equal(pushes(b, 0), 0);
	b->base = FIRST + 5;
	send_credit(b);
	assert_int_equal(pushes(b, FIRST + 19), 2);
	task_close(task);
}

/* ---- fixed point ---- */

/* The largest of all workers' exponents is none of a float's, or smaller than our own. */
TEST(exponents)
{
	const struct {
		int16_t own, plan;
		uint8_t own_nonfinite, flags;
		bool good;
	} cases[] = {
		{WIRE_EXPONENT_NONE, WIRE_EXPONENT_NONE, 0, 0, true},
		{WIRE_EXPONENT_NONE, -148, 0, 0, true},
		{WIRE_EXPONENT_NONE, 128, 0, 0, true},
		{WIRE_EXPONENT_NONE, -149, 0, 0, false},
		{WIRE_EXPONENT_NONE, WIRE_EXPONENT_NONE + 1, 0, 0, false},
		{WIRE_EXPONENT_NONE, 129, 0, 0, false},
		{WIRE_EXPONENT_NONE, INT16_MAX, 0, 0, false},
		{WIRE_EXPONENT_NONE, INT16_MAX, 0, WIRE_NONFINITE, true}, /* not looked at */
		{3, 3, 0, 0, true},
		{3, 2, 0, 0, false},
		{3, WIRE_EXPONENT_NONE, 0, 0, false},
		{3, 5, 1, 0, false}, /* our NaN is ignored */
		{3, 5, 1, WIRE_NONFINITE, true},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct bench *b = bench_open(64, FIRST);
		struct allreduce *task = task_open(b, (uint64_t)BLOCKS * BLOCK_ELEMS - 3);
		struct plan plan = plan_of(TAG, FRAMES, WIRE_ALL | cases[i].flags);
		struct stream_scan scan = {all_bits, cases[i].own, cases[i].own_nonfinite, NULL};

		task->form = WIRE_FIXED32;
		stream_begin(b->stream, task);
		stream_announce(b->stream, task, 0, &scan, b->now_us);
		plan.exponent = cases[i].plan;
		assert_null(send_plan(b, FIRST, &plan, NULL, 0));
		expect_drop(b, cases[i].good ? WIRE_DROP_NONE : WIRE_DROP_OPERATION);
		assert_int_equal(pushes(b, FIRST), cases[i].good ? FRAMES : 0);
		for (uint32_t frame = 0; frame < FRAMES && cases[i].good; frame++)
			assert_ptr_equal(result_of(b, FIRST + frame, 1e30f),
			                 frame == FRAMES - 1 ? task : NULL);
		task_close(task);
		bench_close(b);
	}
}
