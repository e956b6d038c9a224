// SPDX-License-Identifier: BSD-3-Clause
/* test_stream_ops.c - operations of several segments, plans beyond gaps, and narrow windows */

#include "tests/unit/test_stream.h"

#define FIRST (UINT32_MAX - 9) /* frame numbers wrap in every test */
#define LARGE_BLOCK 16384      /* f32: a segment holds 64 blocks, each of 119 frames */
#define LARGE_FRAMES 119

/* ---- segments ---- */

/* Five segments of 64 blocks; this worker has none of them, so that nothing is pushed. */
static struct allreduce *large_open(struct bench *b)
{
	struct allreduce *task = task_open(b, (uint64_t)LARGE_BLOCK * 64 * 5);
	struct geometry_input input = {.count = task->count,
	                               .block_elems = LARGE_BLOCK,
	                               .elem_bytes = 4,
	                               .shard_count = 1,
	                               .payload = WIRE_PAYLOAD_MIN};

	task->block_elems = LARGE_BLOCK;
	assert_true(geometry_compute(&input, &task->cut));
	assert_int_equal(task->cut.segment_count, 5);
	stream_begin(b->stream, task);
	return task;
}

static void large_announce(struct bench *b, struct allreduce *task, uint32_t number)
{
	struct stream_scan scan = {.bits = no_bits, .exponent = WIRE_EXPONENT_NONE};

	assert_true(stream_ask_room(b->stream, task, number));
	stream_announce(b->stream, task, number, &scan, b->now_us);
}

static void acknowledge(struct bench *b, uint32_t base)
{
	b->now_us += 1000;
	pull_all(b);
	b->base = base;
	send_credit(b);
}

/* Two under way; a third when base has passed the first. The task is done with the fifth, not before. */
static void test_segments(void **state)
{
	struct bench *b = bench_open(256, FIRST);
	struct allreduce *task = large_open(b);
	struct plan plan = plan_of(TAG, LARGE_FRAMES, 0);
	const uint64_t one = 2;
	uint8_t data[552] = {1};
	uint32_t frame = FIRST;

	(void)state;
	large_announce(b, task, 0);
	large_announce(b, task, 1);
	for (uint32_t number = 0; number < 5; number++) {
		struct allreduce *done = NULL;

		pull_all(b);
		assert_false(stream_ask_room(b->stream, task, number + 2));
		plan.segment = number;
		b->planned += LARGE_FRAMES;
		assert_null(send_plan(b, frame, &plan, &one, 8));
		for (uint32_t i = 0; i < LARGE_FRAMES; i++) {
			bool last = i == LARGE_FRAMES - 1;

			assert_null(done);
			done = send_result(b, frame + i, data,
			                   last ? LARGE_BLOCK * 4 - 552 * (LARGE_FRAMES - 1) : 552);
		}
		expect_drop(b, WIRE_DROP_NONE);
		assert_ptr_equal(done, number == 4 ? task : NULL);
		frame += LARGE_FRAMES;
		assert_false(stream_ask_room(b->stream, task, number + 2));
		acknowledge(b, frame - 1);
		assert_false(stream_ask_room(b->stream, task, number + 2));
		acknowledge(b, frame);
		if (number < 3)
			large_announce(b, task, number + 2);
		assert_int_equal(
			((uint8_t *)task->recv)[((size_t)number * 64 + 1) * LARGE_BLOCK * 4], 1);
		assert_int_equal(((uint8_t *)task->recv)[(size_t)number * 64 * LARGE_BLOCK * 4], 0);
	}
	assert_true(stream_slot_free(b->stream, 0));
	task_close(task);
	bench_close(b);
}

/*
 * Everything planned is here and nothing is left to push: whoever wants to announce more, and may not
 * because of base, acknowledges at once. Nobody else does.
 */
static void test_base_wanted(void **state)
{
	struct bench *b = bench_open(256, FIRST);
	struct allreduce *task = large_open(b);
	struct plan plan = plan_of(TAG, LARGE_FRAMES, 0);
	const uint64_t one = 2;
	uint8_t data[552] = {1};

	(void)state;
	large_announce(b, task, 0);
	large_announce(b, task, 1);
	pull_all(b);
	b->planned += LARGE_FRAMES;
	assert_null(send_plan(b, FIRST, &plan, &one, 8));
	for (uint32_t i = 0; i < LARGE_FRAMES; i++) {
		bool last = i == LARGE_FRAMES - 1;

		if (last)
			pull_all(b); /* what is due in any case */
		send_result(b, FIRST + i, data,
		            last ? LARGE_BLOCK * 4 - 552 * (LARGE_FRAMES - 1) : 552);
	}
	expect_nothing(b);
	assert_false(stream_ask_room(b->stream, task, 2));
	assert_in_range(stream_deadline(b->stream), 0, b->now_us);
	expect_status(b, false);
	assert_int_equal(b->got.edge, FIRST + LARGE_FRAMES);
	assert_false(stream_ask_room(b->stream, task, 2));
	expect_nothing(b);
	task_close(task);
	bench_close(b);
}

/* Withdrawn with two announced: the second is no longer announced, the first has no blocks. */
static void test_withdraw_two(void **state)
{
	struct bench *b = bench_open(256, FIRST);
	struct allreduce *task = large_open(b);

	(void)state;
	large_announce(b, task, 0);
	large_announce(b, task, 1);
	pull_all(b);
	stream_withdraw(b->stream, task, b->now_us);
	task_close(task);
	for (unsigned i = 0; i < 20; i++) {
		struct announce a;

		expect_packet(b, WIRE_ANNOUNCE, 0);
		assert_int_equal(announce_parse(&b->got, &a), WIRE_DROP_NONE);
		assert_int_equal(a.segment, 0);
		assert_int_equal(a.flags, WIRE_NONE);
		expect_nothing(b);
		bench_wait(b, 300000);
	}
	bench_close(b);
}

/* ---- gaps ---- */

/* A hollow plan beyond frames whose plan is missing: known, finished, but not acknowledged. */
static void test_hollow_beyond_gap(void **state)
{
	struct bench *b = bench_open(16, FIRST);
	struct allreduce *task = task_open(b, (uint64_t)BLOCKS * BLOCK_ELEMS);
	struct allreduce *other = task_open(b, (uint64_t)BLOCKS * BLOCK_ELEMS);
	struct plan plan = plan_of(TAG, 1, WIRE_NONE);

	(void)state;
	other->slot = 1;
	other->tag = TAG + 1;
	task_begin(b, task, no_bits);
	task_begin(b, other, no_bits);
	b->planned += 3;
	assert_ptr_equal(send_plan(b, FIRST + 2, &plan, NULL, 0), task);
	assert_null(send_result(b, FIRST + 2, NULL, 0));
	expect_drop(b, WIRE_DROP_FRAME);
	assert_int_equal(task->shards_left, 0);
	b->now_us += 300;
	expect_lacks(b, FIRST, 1, 0); /* the first that it knows no plan of */
	assert_int_equal(b->got.pushed, FIRST);
	assert_int_equal(b->got.edge, FIRST);
	plan = plan_of(TAG + 1, 2, 0);
	assert_null(send_plan(b, FIRST, &plan, (const uint64_t[]){0xff, 0}, 16));
	expect_drop(b, WIRE_DROP_NONE);
	for (uint32_t i = 0; i < 2; i++)
		send_result(b, FIRST + i, other->send, FRAME_BYTES);
	b->now_us += 1000;
	expect_status(b, false);
	assert_int_equal(b->got.edge, FIRST + 3);
	task_close(task);
	task_close(other);
	bench_close(b);
}

/* The aggregator does not say that it has heard the last acknowledgement: it is asked to. */
static void test_quiet(void **state)
{
	struct bench *b = bench_open(16, FIRST);
	struct allreduce *task = task_open(b, (uint64_t)BLOCKS * BLOCK_ELEMS);
	struct plan plan = plan_of(TAG, 1, WIRE_NONE);

	(void)state;
	task_begin(b, task, no_bits);
	assert_ptr_equal(send_plan(b, FIRST, &plan, NULL, 0), task);
	b->now_us += 1000;
	expect_status(b, false);
	for (uint64_t i = 0, rto_us = 20000; i < 10; i++) {
		uint64_t asked_us = b->now_us;

		assert_false(stream_quiet(b->stream));
		expect_nothing(b);
		do {
			bench_wait(b, 600000); /* a time-out, spread */
		} while (!bench_pull(b));
		assert_true(got_status(b).asks);
		if (i > 0) /* the first waits for news that came before */
			assert_in_range(b->now_us - asked_us, rto_us, rto_us * 3 / 2);
		rto_us = rto_us < 80000 ? 2 * rto_us : 80000;
	}
	b->base = b->planned = FIRST + 1;
	send_credit(b);
	assert_true(stream_quiet(b->stream));
	assert_true(stream_deadline(b->stream) == UINT64_MAX);
	task_close(task);
	bench_close(b);
}

/* ---- bitmaps and windows ---- */

/* Union blocks 0 and 290: whole words between them are empty. */
static void test_empty_words(void **state)
{
	struct bench *b = bench_open(16, FIRST);
	struct allreduce *task = task_open(b, (uint64_t)300 * BLOCK_ELEMS);
	const uint64_t bits[5] = {1, 0, 0, 0, UINT64_C(1) << 34};
	struct plan plan = plan_of(TAG, 1, 0);
	const float *send = task->send, *recv = task->recv;

	(void)state;
	task_begin(b, task, bits);
	assert_null(send_plan(b, FIRST, &plan, bits, 40));
	expect_packet(b, WIRE_PUSH, FIRST);
	assert_memory_equal(b->got.body, send, BLOCK_BYTES);
	assert_memory_equal(b->got.body + BLOCK_BYTES, send + (size_t)290 * BLOCK_ELEMS,
	                    BLOCK_BYTES);
	assert_ptr_equal(send_result(b, FIRST, send, 2 * BLOCK_BYTES), task);
	for (size_t i = 0; i < 300; i++)
		assert_true(recv[i * BLOCK_ELEMS] == (i == 0 ? 1 : i == 290 ? 33 : 0));
	task_close(task);
	bench_close(b);
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
static void test_held(void **state)
{
	struct bench *b = bench_open(16, FIRST);
	struct allreduce *task;
	struct control_seen seen = {.rtt_least_us = UINT32_MAX};
	float data[FRAME_BYTES / 4] = {0};

	(void)state;
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
	            seen.rtt_least_us == UINT32_MAX);
	task_close(task);
	bench_close(b);
}

/* Eight may be under way: no more are pushed, nor asked for; what is here needs no PUSH. */
static void test_under_way(void **state)
{
	struct bench *b = bench_open(32, FIRST);
	struct allreduce *task;
	float data[FRAME_BYTES / 4] = {0};

	(void)state;
	stream_close(b->stream);
	b->config.window_start = 8;
	assert_int_equal(stream_open(&b->config, &b->stream), 0);
	task = task_planned(b, all_bits);
	for (uint32_t frame = 0; frame < 8; frame++)
		expect_packet(b, WIRE_PUSH, FIRST + frame);
	pull_all(b);
	b->sequence = 9;
	assert_null(send_result(b, FIRST + 9, data, FRAME_BYTES));
	b->now_us += 300;
	expect_lacks(b, FIRST, 0xff, 9);
	for (uint32_t frame = 0; frame < 3; frame++)
		assert_null(send_result(b, FIRST + frame, data, FRAME_BYTES));
	expect_packet(b, WIRE_PUSH, FIRST + 8);
	expect_packet(b, WIRE_PUSH, FIRST + 10);
	expect_packet(b, WIRE_PUSH, FIRST + 11);
	pull_all(b);
	task_close(task);
	bench_close(b);
}

/* fixed32: what a short last block lacks is zero whatever was in the scratch memory. */
static void test_fixed_padding(void **state)
{
	struct bench *b = bench_open(16, FIRST);
	struct allreduce *task = task_open(b, (uint64_t)BLOCKS * BLOCK_ELEMS - 3);
	const uint64_t last[2] = {0, UINT64_C(1) << 35};

	(void)state;
	for (unsigned nonfinite = 0; nonfinite < 2; nonfinite++) {
		struct stream_scan scan = {last, 13, nonfinite};
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
	bench_close(b);
}

/* ---- reduce-scatter: section 4.5 ---- */

/* Two shares of 8 blocks. This worker is rank 1: the second share is its own. */
static struct allreduce *scatter_open(struct bench *b, const uint64_t *bits)
{
	struct allreduce *task = task_open(b, UINT64_C(2) * 8 * BLOCK_ELEMS);
	struct geometry_input input = {.count = task->count,
	                               .block_elems = BLOCK_ELEMS,
	                               .elem_bytes = 4,
	                               .shard_count = 1,
	                               .payload = WIRE_PAYLOAD_MIN,
	                               .scatter = 2};
	struct stream_scan scan = {.bits = bits, .exponent = WIRE_EXPONENT_NONE};

	assert_true(geometry_compute(&input, &task->cut));
	assert_int_equal(task->cut.segment_count, 2);
	task->scatter = true;
	task->share_first = task->share_count = UINT64_C(8) * BLOCK_ELEMS;
	stream_begin(b->stream, task);
	for (uint32_t number = 0; number < 2; number++) {
		struct announce a;

		stream_announce(b->stream, task, number, &scan, b->now_us);
		expect_packet(b, WIRE_ANNOUNCE, 0);
		assert_int_equal(announce_parse(&b->got, &a), WIRE_DROP_NONE);
		assert_int_equal(a.flags & WIRE_SCATTER, WIRE_SCATTER);
	}
	return task;
}

/* Only its own share's sums are taken and only it is cleared; of the other's frames their heads. */
static void test_scatter(void **state)
{
	struct bench *b = bench_open(16, FIRST);
	const uint64_t some = 0x0f, united = 0x3f; /* 6 of 8 blocks of each share */
	struct allreduce *task = scatter_open(b, &some);
	struct plan plan = plan_of(TAG, 2, 0);
	const uint8_t *recv = task->recv;
	uint8_t sums[FRAME_BYTES];

	(void)state;
	memset(sums, 9, sizeof(sums));
	b->planned += 4;
	assert_null(send_plan(b, FIRST, &plan, &united, 8));
	plan.segment = 1;
	assert_null(send_plan(b, FIRST + 2, &plan, &united, 8));
	assert_true(is_poison(recv, 6 * BLOCK_BYTES));
	assert_memory_equal(recv + 6 * BLOCK_BYTES, (uint8_t[2 * BLOCK_BYTES]){0}, 2 * BLOCK_BYTES);
	assert_true(is_poison(recv + 8 * BLOCK_BYTES, 8 * BLOCK_BYTES)); /* beyond its share */
	expect_packet(b, WIRE_PUSH, FIRST); /* what it has of all shares */
	expect_packet(b, WIRE_PUSH, FIRST + 2);
	/* The other's, of which it must not get data; twice is no harm. */
	assert_null(send_result(b, FIRST, sums, FRAME_BYTES));
	expect_drop(b, WIRE_DROP_LENGTH);
	assert_null(send_result(b, FIRST, NULL, 0));
	assert_null(send_result(b, FIRST, NULL, 0));
	assert_null(send_result(b, FIRST + 1, NULL, 0));
	/* Its own: a head for all others tells it nothing. */
	assert_null(send_result(b, FIRST + 2, NULL, 0));
	expect_drop(b, WIRE_DROP_NONE);
	assert_true(is_poison(recv, 6 * BLOCK_BYTES));
	assert_null(send_result(b, FIRST + 2, sums, FRAME_BYTES));
	assert_null(send_result(b, FIRST + 2, NULL, 0));
	expect_drop(b, WIRE_DROP_NONE);
	assert_ptr_equal(send_result(b, FIRST + 3, sums, 2 * BLOCK_BYTES), task);
	assert_null(send_result(b, FIRST + 3, NULL, 0));
	expect_drop(b, WIRE_DROP_NONE);
	assert_memory_equal(recv, sums, FRAME_BYTES);
	assert_memory_equal(recv + FRAME_BYTES, sums, 2 * BLOCK_BYTES);
	assert_int_equal(task->blocks_union, 6);
	task_close(task);
	bench_close(b);
}

/* In what was sent again to it alone, too, data is for the receiver, and the others have none. */
static void test_scatter_again(void **state)
{
	struct bench *b = bench_open(16, FIRST);
	struct allreduce *task = scatter_open(b, no_bits);
	struct wire_header head = bench_head(b, WIRE_RESULT, FIRST + 1);
	struct plan plan = plan_of(TAG, 1, 0);
	const uint64_t one = 1;
	uint8_t sums[BLOCK_BYTES] = {9};

	(void)state;
	b->planned += 2;
	assert_null(send_plan(b, FIRST, &plan, &one, 8));
	plan.segment = 1;
	assert_null(send_plan(b, FIRST + 1, &plan, &one, 8));
	head.worker = RANK;
	assert_null(send_head(b, &head, NULL, 0)); /* its own frame */
	expect_drop(b, WIRE_DROP_LENGTH);
	assert_null(send_head(b, &head, sums, BLOCK_BYTES));
	head.frame = FIRST;
	assert_null(send_head(b, &head, sums, BLOCK_BYTES));
	expect_drop(b, WIRE_DROP_LENGTH);
	assert_ptr_equal(send_head(b, &head, NULL, 0), task);
	expect_drop(b, WIRE_DROP_NONE);
	assert_memory_equal(task->recv, sums, BLOCK_BYTES);
	task_close(task);
	bench_close(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_segments),          cmocka_unit_test(test_withdraw_two),
		cmocka_unit_test(test_hollow_beyond_gap), cmocka_unit_test(test_quiet),
		cmocka_unit_test(test_empty_words),       cmocka_unit_test(test_held),
		cmocka_unit_test(test_under_way),         cmocka_unit_test(test_fixed_padding),
		cmocka_unit_test(test_scatter),           cmocka_unit_test(test_scatter_again),
		cmocka_unit_test(test_base_wanted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
