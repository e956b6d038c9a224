// SPDX-License-Identifier: BSD-3-Clause
/* test_stream.c - announcing, and plans from an aggregator that is wrong, odd or hostile */

#include "tests/unit/test_stream_frame.h"

#define WORD_BYTES 16

/* ---- announcing ---- */

BENCH_TEST(announce, bench_open(16, FIRST))
{
	struct allreduce *task = task_open(b, (uint64_t)BLOCKS * BLOCK_ELEMS - 5);
	const uint64_t bits[2] = {0x8000000000000001, 4};
	struct announce a;

	task->slot = 1;
	task_begin(b, task, bits);
	assert_int_equal(b->got.edge, FIRST);
	assert_true(b->got.sequence == 0);
	assert_int_equal(announce_parse(&b->got, &a), WIRE_DROP_NONE);
	assert_true(a.tag == TAG && a.count == BLOCKS * BLOCK_ELEMS - 5);
	assert_int_equal(a.block_elems, BLOCK_ELEMS);
	assert_int_equal(a.segment, 0);
	assert_int_equal(a.generation, 1);
	assert_int_equal(a.op_slot, 1);
	assert_int_equal(a.segment_count, 1);
	assert_int_equal(a.block_count, BLOCKS);
	assert_true(a.layout == geometry_layout(&task->cut, 0, 1));
	assert_int_equal(a.exponent, WIRE_EXPONENT_NONE);
	assert_int_equal(a.dtype, DTYPE_F32);
	assert_int_equal(a.reduction, REDUCE_SUM);
	assert_int_equal(a.form, WIRE_NATIVE);
	assert_int_equal(a.flags, 0);
	expect_set(&a.set, bits, BLOCKS);
	assert_false(stream_slot_free(b->stream, 1));
	assert_true(stream_slot_free(b->stream, 0));
	task_close(task);
}

/* ---- who may speak ---- */

BENCH_TEST(strangers, bench_open(16, FIRST))
{
	struct wire_header head;

	b->planned += 5; /* nothing of a stranger's header is believed */
	head = bench_head(b, WIRE_STATUS_BACK, 0);
	head.seal ^= UINT64_C(1) << 63;
	assert_null(send_head(b, &head, NULL, 0));
	expect_drop(b, WIRE_DROP_SEAL);
	head.seal = TOKEN;
	assert_null(send_head(b, &head, NULL, 0));
	expect_drop(b, WIRE_DROP_SEAL);
	head.seal = GROUP_TOKEN;
	head.worker = RANK + 1;
	assert_null(send_head(b, &head, NULL, 0));
	expect_drop(b, WIRE_DROP_WORKER);
	assert_true(stream_deadline(b->stream) == UINT64_MAX);
	head.worker = WIRE_EVERYONE;
	head.kind = WIRE_PROBE;
	head.planned = FIRST;
	assert_null(send_head(b, &head, NULL, 0));
	expect_drop(b, WIRE_DROP_KIND);
	assert_int_equal(stream_stats(b->stream)->received, 4);
	assert_int_equal(stream_stats(b->stream)->received_bytes, 4 * 32);
}

/* ---- plans that are none ---- */

struct bad_plan {
	uint32_t first; /* from FIRST */
	struct plan plan;
	uint64_t words[3];
	uint32_t bytes;
	enum wire_drop reason;
};

/* This worker has blocks 1 and 70; the union is blocks 1, 2, 3, 4, 70: two frames. */
TEST(bad_plans)
{
	const uint64_t own[2] = {2, UINT64_C(1) << 6}, good[2] = {0x1e, UINT64_C(1) << 6};
	const struct plan plan = plan_of(TAG, 2, 0);
	struct bad_plan cases[] = {
		{0, plan, {0x1e, 1 << 6}, 8, WIRE_DROP_OPERATION},
		{0, plan, {0x1e, 1 << 6}, 15, WIRE_DROP_OPERATION},
		{0, plan, {0x1e, 1 << 6}, 17, WIRE_DROP_OPERATION},
		{0, plan, {0x1e, 1 << 6}, 24, WIRE_DROP_OPERATION},
		{0, plan, {0x1e, 1 << 6}, 0, WIRE_DROP_OPERATION},
		{0, plan, {0x1c, 3 << 6}, 16, WIRE_DROP_OPERATION}, /* lacks block 1 */
		{0, plan, {0x3e, 1 << 5}, 16, WIRE_DROP_OPERATION}, /* lacks block 70 */
		{0, plan, {0x1e, UINT64_C(1) << 36 | 1 << 6}, 16, WIRE_DROP_OPERATION},
		{0, plan, {0x1e, UINT64_C(1) << 63 | 1 << 6}, 16, WIRE_DROP_OPERATION},
		{0, plan_of(TAG, 1, 0), {0x1e, 1 << 6}, 16, WIRE_DROP_OPERATION},
		{0, plan_of(TAG, 3, 0), {0x1e, 1 << 6}, 16, WIRE_DROP_OPERATION},
		{0, plan_of(TAG, UINT32_MAX, 0), {0x1e, 1 << 6}, 16, WIRE_DROP_OPERATION},
		{0, plan_of(TAG, 0, 0), {0x1e, 1 << 6}, 16, WIRE_DROP_LENGTH},
		{0, plan_of(TAG, 2, WIRE_EAGER), {0x1e, 1 << 6}, 16, WIRE_DROP_OPERATION},
		{0, plan_of(TAG, 1, WIRE_NONE), {0}, 0, WIRE_DROP_OPERATION},
		{0, plan_of(TAG, 24, WIRE_ALL), {0}, 0, WIRE_DROP_OPERATION},
		{0, plan_of(TAG, 25, WIRE_ALL), {0}, 8, WIRE_DROP_OPERATION},
		{0, plan_of(TAG, 25, WIRE_ALL | WIRE_NONE), {0}, 0, WIRE_DROP_LENGTH},
		{0, plan_of(TAG + 1, 2, 0), {0x1e, 1 << 6}, 16, WIRE_DROP_DUPLICATE},
		{(uint32_t)-1, plan, {0x1e, 1 << 6}, 16, WIRE_DROP_DUPLICATE},
		{0x80000000, plan, {0x1e, 1 << 6}, 16, WIRE_DROP_DUPLICATE},
	};
	struct bench *b = bench_open(16, FIRST);
	struct allreduce *task = task_open(b, (uint64_t)BLOCKS * BLOCK_ELEMS);
	struct plan other = plan;

	task_begin(b, task, own);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t news_us = stream_news_us(b->stream);

		b->now_us++;
		assert_null(send_plan(b, FIRST + cases[i].first, &cases[i].plan, cases[i].words,
		                      cases[i].bytes));
		assert_int_equal(stream_news_us(b->stream),
		                 cases[i].reason == WIRE_DROP_DUPLICATE ? b->now_us : news_us);
		expect_drop(b, cases[i].reason);
		expect_nothing(b);
	}
	for (other.segment = 1; other.segment < 4; other.segment++) {
		assert_null(send_plan(b, FIRST, &other, good, WORD_BYTES));
		expect_drop(b, WIRE_DROP_OPERATION);
	}
	assert_true(is_poison(task->recv, task->count * 4));
	assert_true(stream_deadline(b->stream) != UINT64_MAX);
	assert_null(send_plan(b, FIRST, &plan, good, WORD_BYTES));
	expect_drop(b, WIRE_DROP_NONE);
	assert_int_equal(task->blocks_union, 5);
	expect_packet(b, WIRE_PUSH, FIRST);
	expect_packet(b, WIRE_PUSH, FIRST + 1);
	assert_null(send_plan(b, FIRST, &plan, good, WORD_BYTES));
	expect_drop(b, WIRE_DROP_DUPLICATE);
	task_close(task);
	bench_close(b);
}

/* Two operations, so that two plans are known: no plan may overlap another. */
TEST(overlaps)
{
	const struct plan second = plan_of(TAG + 1, FRAMES, WIRE_ALL);
	struct bench *b = bench_open(64, FIRST);
	struct allreduce *one = task_open(b, (uint64_t)BLOCKS * BLOCK_ELEMS), *two;
	const uint64_t few[2] = {0xff};
	struct plan plan = plan_of(TAG, 2, 0);

	task_begin(b, one, no_bits);
	assert_null(send_plan(b, FIRST + 30, &plan, few, WORD_BYTES)); /* frames 30 and 31 */
	expect_drop(b, WIRE_DROP_NONE);
	two = task_open(b, (uint64_t)BLOCKS * BLOCK_ELEMS);
	two->slot = 1;
	two->tag = TAG + 1;
	task_begin(b, two, no_bits);
	for (uint32_t first = 0; first < 60; first++) {
		if (first + FRAMES <= 30 || first >= 32)
			continue;
		assert_null(send_plan(b, FIRST + first, &second, NULL, 0));
		expect_drop(b, WIRE_DROP_DUPLICATE);
	}
	assert_null(send_plan(b, FIRST + 5, &second, NULL, 0)); /* 5 to 29 */
	expect_drop(b, WIRE_DROP_NONE);
	task_close(one);
	task_close(two);
	bench_close(b);
}

/* ---- mismatch: section 11.1 ---- */

static struct plan mismatch_of(uint64_t tag)
{
	struct plan plan = plan_of(tag, 1, 0);

	plan.status = WIRE_MISMATCH;
	plan.mismatch = (struct wire_mismatch){.value_a = 1, .value_b = 2, .rank_b = 1, .field = 2};
	return plan;
}

/* It says nothing of frames, and the engine ends all. */
BENCH_TEST(mismatch, bench_open(16, FIRST))
{
	struct allreduce *task = task_open(b, (uint64_t)BLOCKS * BLOCK_ELEMS);
	struct plan plan = mismatch_of(TAG), other = mismatch_of(TAG + 1);

	task_begin(b, task, all_bits);
	assert_null(send_plan(b, 0, &other, NULL, 0));
	expect_drop(b, WIRE_DROP_DUPLICATE);
	assert_ptr_equal(send_plan(b, 0, &plan, NULL, 0), task);
	assert_int_equal(task->status, WINNOW_ERR_MISMATCH);
	assert_memory_equal(&task->mismatch.value_a, &plan.mismatch.value_a, 16);
	assert_int_equal(task->mismatch.field, 2);
	assert_true(is_poison(task->recv, task->count * 4));
	task_close(task);
}
