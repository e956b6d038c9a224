// SPDX-License-Identifier: BSD-3-Clause
/* test_stream_frame.c - pushes, results, credit and timers of a worker that is not told the truth */

#include "client/worker/stream_impl.h"
#include "tests/unit/test_stream.h"

/* Frame numbers wrap in every test, or become negative to those who compare them. */
static uint32_t first_frame = UINT32_MAX - 9;
#define FIRST first_frame

static float values[WIRE_PAYLOAD_MAX / 4];

/* A result of whole blocks, all elements `value`. */
static struct allreduce *result_of(struct bench *b, uint32_t frame, float value)
{
	float data[FRAME_BYTES / 4];

	for (size_t i = 0; i < FRAME_BYTES / 4; i++)
		data[i] = value;
	return send_result(b, frame, data, FRAME_BYTES);
}

/* How far PUSHes come: the number of those that are sent now, in order. */
static uint32_t pushes(struct bench *b, uint32_t first)
{
	uint32_t count = 0;

	while (bench_pull(b))
		if (b->got.kind == WIRE_PUSH)
			assert_int_equal(b->got.frame, first + count++);
	return count;
}

/* ---- what is pushed ---- */

static void test_push(void **state)
{
	struct bench *b = bench_open(64, FIRST);
	const uint64_t own[2] = {0x8000000000000006, UINT64_C(1) << 35}; /* 1, 2, 63, 99 */
	const uint64_t united[2] = {0x800000000000000f, UINT64_C(3) << 34};
	struct allreduce *task = task_open(b, (uint64_t)BLOCKS * BLOCK_ELEMS - 3);
	struct plan plan = plan_of(TAG, 2, 0);
	const float *send = task->send;
	float want[64];

	(void)state;
	task_begin(b, task, own);
	assert_null(send_plan(b, FIRST, &plan, united, 16));
	expect_packet(b, WIRE_PUSH, FIRST);
	assert_int_equal(b->got.body_bytes, 2 * BLOCK_BYTES);
	assert_memory_equal(b->got.body, send + BLOCK_ELEMS, 2 * BLOCK_BYTES);
	expect_packet(b, WIRE_PUSH, FIRST + 1); /* blocks 63, 98, 99 */
	assert_int_equal(b->got.body_bytes, 2 * BLOCK_BYTES);
	memset(want, 0, sizeof(want)); /* the last block is short in the tensor alone */
	memcpy(want, send + (size_t)63 * BLOCK_ELEMS, BLOCK_BYTES);
	memcpy(want + 32, send + (size_t)99 * BLOCK_ELEMS, BLOCK_BYTES - 12);
	assert_memory_equal(b->got.body, want, 2 * BLOCK_BYTES);
	task_close(task);
	bench_close(b);
}

/* Blocks of 300 f32 in parts of 552, 552 and 96 bytes; the second block has 10 elements. */
static void test_parts(void **state)
{
	struct bench *b = bench_open(64, FIRST);
	struct allreduce *task = task_open(b, 310);
	struct geometry_input input = {.count = 310,
	                               .block_elems = 300,
	                               .elem_bytes = 4,
	                               .shard_count = 1,
	                               .payload = WIRE_PAYLOAD_MIN};
	const uint32_t bytes[3] = {552, 552, 96};
	struct plan plan = plan_of(TAG, 6, WIRE_ALL);
	const uint64_t bits = 3;
	uint8_t want[552];

	(void)state;
	task->block_elems = 300;
	assert_true(geometry_compute(&input, &task->cut));
	task_begin(b, task, &bits);
	assert_null(send_plan(b, FIRST, &plan, NULL, 0));
	for (uint32_t i = 0; i < 6; i++) {
		expect_packet(b, WIRE_PUSH, FIRST + i);
		assert_true(b->got.sequence == 0);
		assert_int_equal(b->got.body_bytes, bytes[i % 3]);
		memset(want, 0, sizeof(want));
		if (i < 3)
			memcpy(want, (const uint8_t *)task->send + (size_t)i * 552, bytes[i]);
		if (i == 3)
			memcpy(want, (const uint8_t *)task->send + 1200, 40);
		assert_memory_equal(b->got.body, want, bytes[i % 3]);
	}
	for (uint32_t i = 0; i < 6; i++) {
		const uint8_t *data = (const uint8_t *)values + i / 3 * 1200 + i % 3 * 552;

		assert_null(send_result(b, FIRST + i, data, bytes[i % 3] - 4));
		expect_drop(b, WIRE_DROP_LENGTH);
		assert_ptr_equal(send_result(b, FIRST + i, data, bytes[i % 3]),
		                 i == 5 ? task : NULL);
	}
	assert_memory_equal(task->recv, values, 1240);
	task_close(task);
	bench_close(b);
}

/* ---- results ---- */

static void test_bad_results(void **state)
{
	struct bench *b = bench_open(16, FIRST);
	struct allreduce *task = task_open(b, (uint64_t)BLOCKS * BLOCK_ELEMS - 3);
	struct plan plan = plan_of(TAG, FRAMES, WIRE_ALL);

	(void)state;
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
	bench_close(b);
}

/* All results, backwards within the window; the last block is short. */
static void test_results(void **state)
{
	struct bench *b = bench_open(16, FIRST);
	struct allreduce *task = task_open(b, (uint64_t)BLOCKS * BLOCK_ELEMS - 3);
	struct plan plan = plan_of(TAG, FRAMES, WIRE_ALL);

	(void)state;
	task_begin(b, task, all_bits);
	b->planned += FRAMES;
	assert_null(send_plan(b, FIRST, &plan, NULL, 0));
	assert_int_equal(pushes(b, FIRST), 16);
	for (uint32_t frame = 16; frame-- > 0;)
		assert_null(result_of(b, FIRST + frame, (float)frame));
	b->base += 12;
	send_credit(b);
	assert_int_equal(pushes(b, FIRST + 16), 9);
	for (uint32_t frame = 24; frame > 15; frame--)
		assert_ptr_equal(result_of(b, FIRST + frame, (float)frame),
		                 frame == 16 ? task : NULL);
	expect_drop(b, WIRE_DROP_NONE);
	for (uint64_t i = 0; i < task->count; i++) {
		uint64_t frame = i / (FRAME_BYTES / 4);

		assert_true(((float *)task->recv)[i] == (float)frame);
	}
	assert_null(result_of(b, FIRST + 20, 77));
	expect_drop(b, WIRE_DROP_STALE);
	task_close(task);
	bench_close(b);
}

/* ---- credit ---- */

/* Only what base + window allows, whoever says what in whatever order. */
static void test_credit(void **state)
{
	struct bench *b = bench_open(16, FIRST);
	struct allreduce *task = task_planned(b, all_bits);

	(void)state;
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
	bench_close(b);
}

/* ---- what the aggregator lacks ---- */

static void test_want(void **state)
{
	struct bench *b = bench_open(16, FIRST);
	const uint64_t own[2] = {0xffff0ffffffffff0, 0}; /* nothing in frames 0 and 11 */
	struct allreduce *task = task_planned(b, own);
	uint64_t asked = 0;

	(void)state;
	b->config.window = 16;
	while (bench_pull(b))
		;
	assert_null(result_of(b, FIRST + 2, 1));
	send_want(b, FIRST - 8, UINT64_MAX); /* -8 .. 55, of which 1..15 are ours, and 2 is done */
	while (bench_pull(b)) {
		assert_int_equal(b->got.kind, WIRE_PUSH);
		assert_int_equal(b->got.body_bytes, FRAME_BYTES);
		assert_memory_equal(b->got.body,
		                    (const uint8_t *)task->send +
		                            (size_t)(b->got.frame - FIRST) * FRAME_BYTES,
		                    FRAME_BYTES);
		asked |= UINT64_C(1) << (b->got.frame - FIRST);
	}
	assert_true(asked == 0xf7fa);
	assert_int_equal(stream_stats(b->stream)->retransmits, 13);
	assert_int_equal(b->stream->pace.loss_lost, 13);
	/* Of itself it lists each once: these have been pushed again since. */
	send_want(b, FIRST + 9, 1);
	expect_nothing(b);
	b->now_us += 300;
	send_status(b, RANK, (uint32_t)b->now_us, FIRST + 9, 1);
	send_status(b, RANK, (uint32_t)b->now_us, FIRST + 4, 1);
	send_status(b, RANK, (uint32_t)b->now_us, FIRST + 4, 1);
	expect_packet(b, WIRE_PUSH, FIRST + 4);
	expect_packet(b, WIRE_PUSH, FIRST + 9);
	assert_null(result_of(b, FIRST + 9, 1));
	b->now_us += 300;
	send_status(b, RANK, (uint32_t)b->now_us, FIRST + 6, 1);
	assert_null(result_of(b, FIRST + 6, 1)); /* here before it was sent again */
	/* What it had pushed less than `late` before the stamp may have been overtaken. */
	send_status(b, RANK, (uint32_t)b->now_us - 1, FIRST + 4, 1);
	pull_all(b);
	send_status(b, RANK, (uint32_t)b->now_us, FIRST + 4, 1);
	expect_packet(b, WIRE_PUSH, FIRST + 4);
	/* What is for everyone lists nothing. */
	send_status(b, WIRE_EVERYONE, 0, FIRST + 5, 1);
	pull_all(b);
	task_close(task);
	bench_close(b);
}

/* ---- asking ---- */

/* Frames whose plan has been made, and is not here, are asked for: the first of them. */
static void test_plan_lacks(void **state)
{
	struct bench *b = bench_open(16, FIRST);
	struct allreduce *task = task_open(b, (uint64_t)BLOCKS * BLOCK_ELEMS);
	struct plan plan = plan_of(TAG, FRAMES, WIRE_ALL);

	(void)state;
	task_begin(b, task, all_bits);
	b->planned += FRAMES;
	send_credit(b);
	assert_false(stream_quiet(b->stream));
	b->now_us += 299;
	expect_nothing(b);
	b->now_us++;
	expect_lacks(b, FIRST, 1, 0);
	assert_int_equal(b->got.pushed, FIRST);
	for (unsigned i = 0; i < 20; i++) {
		uint64_t asked_us = b->now_us;

		do {
			bench_wait(b, 1000000);
		} while (!bench_pull(b) || b->got.kind == WIRE_ANNOUNCE);
		assert_true(got_status(b).word_count == 1 && got_status(b).first == FIRST);
		assert_true(b->now_us - asked_us >= 20000);
	}
	assert_null(send_plan(b, FIRST, &plan, NULL, 0));
	b->now_us += 1000000;
	while (bench_pull(b))
		assert_true(b->got.kind != WIRE_STATUS || got_status(b).word_count == 0);
	task_close(task);
	bench_close(b);
}

/* A RESULT shows by its sequence that others were sent before it: they are asked for when they are late. */
static void lacks_at(uint64_t clock_us)
{
	struct bench *b = bench_open(16, FIRST);
	struct allreduce *task;
	uint32_t stamp;

	b->now_us = clock_us;
	task = task_planned(b, all_bits);
	assert_int_equal(pushes(b, FIRST), 16);
	b->sequence = 3;
	assert_null(result_of(b, FIRST + 5, 1));
	b->now_us += 100;
	b->sequence = 1; /* a late packet: one more is missing */
	assert_null(result_of(b, FIRST + 3, 1));
	b->sequence = 4; /* sent after the wait began */
	send_status(b, RANK, 0, 0, 0);
	b->now_us += 199;
	expect_nothing(b);
	b->now_us++;
	expect_lacks(b, FIRST, 0x17,
	             3); /* 0, 1, 2, 4: nothing before the last that came is wanting */
	assert_int_equal(b->got.pushed, FIRST + 16);
	assert_int_equal(stream_stats(b->stream)->lost, 4);
	stamp = (uint32_t)b->now_us | 1;
	/* Nothing is listed twice, until an answer shows that what was listed has not been sent. */
	b->now_us += 5000;
	pull_all(b);
	assert_int_equal(stream_stats(b->stream)->nacks, 1);
	send_status(b, RANK, stamp, 0, 0);
	b->now_us += 700;
	pull_all(b); /* that was before the answer */
	assert_int_equal(stream_stats(b->stream)->nacks, 1);
	b->now_us += 700;
	pull_all(b);
	assert_int_equal(stream_stats(b->stream)->nacks, 2);
	task_close(task);
	bench_close(b);
}

/* Whatever the clock: stamps have 32 bits of it. */
static void test_lacks(void **state)
{
	(void)state;
	lacks_at(5000000);
	lacks_at((UINT64_C(1) << 31) + 12346);
	lacks_at((UINT64_C(1) << 32) - 350); /* the second half of the test is beyond */
	lacks_at((UINT64_C(5) << 32) - 3000000);
}

static struct stream_seen seen(const struct bench *b)
{
	struct stream_seen out;

	stream_look(b->stream, &out);
	return out;
}

/* An answer measures the path when it comes, but not once more, nor after a later one; also after a long pause. */
static void answers_at(uint64_t clock_us)
{
	struct bench *b = bench_open(16, FIRST);
	struct allreduce *task;
	uint32_t first, second, window;

	b->now_us = clock_us;
	task = task_planned(b, all_bits);
	assert_int_equal(pushes(b, FIRST), 16);
	first = (uint32_t)b->now_us | 1;
	b->now_us += 60000; /* a time-out */
	second = (uint32_t)b->now_us | 1;
	expect_status(b, true);
	b->now_us += 400;
	send_status(b, RANK, second, 0, 0);
	assert_in_range(seen(b).rtt_us, 399, 401);
	window = seen(b).window;
	send_status(b, RANK, second + 800, 0, 0); /* of the future */
	for (uint32_t i = 0; i < 54; i++) {
		b->now_us += 200000000;
		send_status(b, RANK, i % 2 ? first : second, 0, 0);
	}
	assert_in_range(seen(b).rtt_us, 399, 401);
	assert_int_equal(seen(b).window, window);
	/* The next one counts, as if there had been no pause of three hours. */
	first = (uint32_t)b->now_us | 1;
	expect_status(b, true);
	b->now_us += 1200;
	send_status(b, RANK, first, 0, 0);
	assert_in_range(seen(b).rtt_us, 495, 505);
	task_close(task);
	bench_close(b);
}

static void test_answers(void **state)
{
	(void)state;
	answers_at(5000000);
	answers_at((UINT64_C(1) << 31) + 12346);
	answers_at((UINT64_C(3) << 32) - 600);
}

/* A time-out that is not answered before the next one halves the window, whatever the clock. */
static void test_unanswered(void **state)
{
	const uint64_t clocks[] = {5000000, UINT64_C(0x80001000), UINT64_C(0x1fffffff0)};

	(void)state;
	for (size_t i = 0; i < sizeof(clocks) / sizeof(clocks[0]); i++) {
		struct bench *b = bench_open(16, FIRST);
		struct allreduce *task;

		b->now_us = clocks[i];
		task = task_planned(b, all_bits);
		assert_int_equal(pushes(b, FIRST), 16);
		assert_int_equal(seen(b).window, 16);
		b->now_us += 30000;
		pull_all(b);
		assert_int_equal(seen(b).window, 16);
		b->now_us += 100000;
		pull_all(b);
		assert_int_equal(seen(b).window, 8);
		task_close(task);
		bench_close(b);
	}
}

/* RESULTs that wait for other workers' PUSHes are not asked for, whatever has overtaken them. */
static void test_not_lacks(void **state)
{
	struct bench *b = bench_open(16, FIRST);
	struct allreduce *task = task_planned(b, all_bits);

	(void)state;
	assert_int_equal(pushes(b, FIRST), 16);
	for (uint32_t i = 0; i < 8; i++) {
		b->sequence++;
		assert_null(result_of(b, FIRST + 2 * i + 1, 1));
		b->now_us += 1000;
		pull_all(b);
	}
	assert_int_equal(stream_stats(b->stream)->nacks, 0);
	task_close(task);
	bench_close(b);
}

/* Only STATUSes that ask for nothing. */
static void pull_all_status(struct bench *b)
{
	while (bench_pull(b))
		assert_false(got_status(b).asks);
}

/* To measure: at first, and every 10 ms, while something is under way; `late` after a first PUSH. */
static void test_ping(void **state)
{
	struct bench *b = bench_open(16, FIRST);
	struct allreduce *task = task_planned(b, all_bits);

	(void)state;
	for (uint32_t i = 0; i < 16; i++)
		expect_packet(b, WIRE_PUSH, FIRST + i);
	expect_status(b, true); /* nothing has been measured */
	expect_nothing(b);
	b->now_us += 1600;
	send_status(b, RANK, 5000001, 0, 0);
	for (uint32_t i = 0; i < 16; i++) {
		b->sequence++;
		assert_null(result_of(b, FIRST + i, 1));
	}
	b->now_us += 1000;
	pull_all_status(b);
	b->base += 16;
	send_credit(b);
	b->now_us = 5009800;
	assert_int_equal(pushes(b, FIRST + 16), 9); /* the first one when nothing was under way */
	b->now_us = 5010099;                        /* 10 ms after the first STATUS */
	expect_nothing(b);
	b->now_us++;
	expect_status(b, true);
	expect_nothing(b);
	b->sequence++;
	assert_null(result_of(b, FIRST + 16, 1));
	pull_all_status(b);
	task_close(task);
	bench_close(b);
}

/* It does not wait behind what may be pushed with it. */
static void test_ping_ahead(void **state)
{
	struct bench *b = bench_open(16, FIRST);
	struct allreduce *task = task_planned(b, all_bits);

	(void)state;
	assert_int_equal(pushes(b, FIRST), 16);
	b->now_us += 300;
	send_status(b, RANK, 5000001, 0, 0); /* measured: 300 us */
	for (uint32_t i = 0; i < 8; i++) {
		b->sequence++;
		assert_null(result_of(b, FIRST + i, 1));
	}
	pull_all_status(b);
	b->now_us += 10000;
	b->base += 8;
	send_credit(b);
	expect_status(b, true);
	assert_int_equal(pushes(b, FIRST + 16), 8);
	task_close(task);
	bench_close(b);
}

/* Acknowledged at once when a quarter of the window has moved, else after a millisecond. */
static void test_ack(void **state)
{
	struct bench *b = bench_open(16, FIRST);
	struct allreduce *task = task_planned(b, no_bits);

	(void)state;
	while (bench_pull(b))
		;
	for (uint32_t frame = 0; frame < 3; frame++)
		assert_null(result_of(b, FIRST + frame, 1));
	expect_nothing(b);
	assert_null(result_of(b, FIRST + 3, 1));
	expect_status(b, false);
	assert_int_equal(b->got.edge, FIRST + 4);
	assert_null(result_of(b, FIRST + 5, 1)); /* a gap */
	expect_nothing(b);
	assert_null(result_of(b, FIRST + 4, 1));
	b->now_us += 999;
	expect_nothing(b);
	b->now_us++;
	expect_status(b, false);
	assert_int_equal(b->got.edge, FIRST + 6);
	/* The aggregator does not say that it has heard: it is asked. */
	do {
		bench_wait(b, 100000);
		assert_true(b->now_us < UINT64_C(5200000));
	} while (!bench_pull(b) || !got_status(b).asks);
	task_close(task);
	bench_close(b);
}

/* The next packet is a STATUS that says so, and asks or not. */
static uint32_t expect_room(struct bench *b, bool asks, uint32_t ack, uint16_t window)
{
	expect_status(b, asks);
	assert_int_equal(b->got.edge, ack);
	assert_int_equal(b->got.window, window);
	return got_status(b).stamp;
}

/*
 * What all workers may push because of our path: twice the limit, and what has come after a gap. Nothing
 * here is ours to push: the limit grows by what comes, and half of it is told at once.
 */
static void test_room(void **state)
{
	struct bench *b = bench_open(16, FIRST);
	struct allreduce *task;
	uint32_t stamp;

	(void)state;
	stream_close(b->stream);
	b->config.window_start = 2;
	assert_int_equal(stream_open(&b->config, &b->stream), 0);
	task = task_planned(b, no_bits);
	while (bench_pull(b))
		;
	assert_int_equal(b->got.window, 4);
	assert_null(result_of(b, FIRST + 1, 1));
	expect_room(b, false, FIRST, 5);
	assert_null(result_of(b, FIRST, 1));
	expect_room(b, false, FIRST + 2, 4);
	expect_nothing(b);
	bench_wait(b, 20000); /* it measures the way of what others draw */
	stamp = expect_room(b, true, FIRST + 2, 4);
	b->now_us += 100;
	send_status(b, RANK, stamp, 0, 0);
	pull_all(b);
	assert_int_equal(b->got.window, 8);
	/* Half of the limit comes: what queues is measured a round trip later, not after 10 ms. */
	assert_null(result_of(b, FIRST + 2, 1));
	assert_null(result_of(b, FIRST + 3, 1));
	pull_all(b);
	b->now_us += 90;
	expect_nothing(b);
	b->now_us += 10;
	expect_room(b, true, FIRST + 4, 8);
	for (uint32_t frame = 4; frame < 16; frame++)
		if (frame != 5)
			assert_null(result_of(b, FIRST + frame, 1));
	pull_all(b);
	assert_int_equal(b->got.edge, FIRST + 5);
	assert_int_equal(b->got.window, 16); /* not 18: there are no more slots */
	expect_drop(b, WIRE_DROP_NONE);
	task_close(task);
	bench_close(b);
}

/* ---- fixed point ---- */

/* The largest of all workers' exponents is none of a float's, or smaller than our own. */
static void test_exponents(void **state)
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

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct bench *b = bench_open(64, FIRST);
		struct allreduce *task = task_open(b, (uint64_t)BLOCKS * BLOCK_ELEMS - 3);
		struct plan plan = plan_of(TAG, FRAMES, WIRE_ALL | cases[i].flags);
		struct stream_scan scan = {all_bits, cases[i].own, cases[i].own_nonfinite};

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

/* s = 30 - h - E with two workers and E = 12: one is 2^17, and 2^17 is one. */
static void test_fixed(void **state)
{
	struct bench *b = bench_open(64, FIRST);
	struct allreduce *task = task_open(b, (uint64_t)BLOCKS * BLOCK_ELEMS);
	struct plan plan = plan_of(TAG, FRAMES, WIRE_ALL);
	int32_t data[FRAME_BYTES / 4];

	(void)state;
	task->form = WIRE_FIXED32;
	task->reduction = REDUCE_AVG;
	task_begin(b, task, all_bits);
	plan.exponent = 12;
	assert_null(send_plan(b, FIRST, &plan, NULL, 0));
	expect_packet(b, WIRE_PUSH, FIRST);
	memcpy(data, b->got.body, FRAME_BYTES);
	for (int32_t i = 0; i < FRAME_BYTES / 4; i++)
		assert_int_equal(data[i], (i + 1) << 17);
	assert_null(send_result(b, FIRST, data, FRAME_BYTES));
	for (size_t i = 0; i < FRAME_BYTES / 4; i++) /* divided by two workers */
		assert_true(((float *)task->recv)[i] == (float)(i + 1) / 2);
	task_close(task);
	bench_close(b);
}

static void test_config(void **state)
{
	struct bench *b = bench_open(16, FIRST);
	struct stream *const untouched = b->stream;
	struct stream *stream = untouched;
	struct stream_config c;

	(void)state;
#define IMPOSSIBLE(field, value)                                                                   \
	do {                                                                                       \
		c = b->config;                                                                     \
		c.field = (value);                                                                 \
		assert_int_equal(stream_open(&c, &stream), -EINVAL);                               \
		assert_ptr_equal(stream, untouched);                                               \
	} while (0)
	IMPOSSIBLE(world, 0);
	IMPOSSIBLE(rank, 2);
	IMPOSSIBLE(shard, 1);
	IMPOSSIBLE(payload, WIRE_PAYLOAD_MIN - 1);
	IMPOSSIBLE(payload, WIRE_PAYLOAD_MAX + 1);
	IMPOSSIBLE(window, 2);
	IMPOSSIBLE(window, 12);
	IMPOSSIBLE(window, WIRE_WINDOW_MAX * 2);
	IMPOSSIBLE(op_slots, 0);
	IMPOSSIBLE(op_slots, 1025);
	IMPOSSIBLE(segments_ahead, 0);
	IMPOSSIBLE(segments_ahead, 65);
#undef IMPOSSIBLE
	stream_close(NULL);
	bench_close(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_push),        cmocka_unit_test(test_parts),
		cmocka_unit_test(test_bad_results), cmocka_unit_test(test_results),
		cmocka_unit_test(test_credit),      cmocka_unit_test(test_want),
		cmocka_unit_test(test_plan_lacks),  cmocka_unit_test(test_lacks),
		cmocka_unit_test(test_answers),     cmocka_unit_test(test_unanswered),
		cmocka_unit_test(test_not_lacks),   cmocka_unit_test(test_ping),
		cmocka_unit_test(test_ack),         cmocka_unit_test(test_exponents),
		cmocka_unit_test(test_fixed),       cmocka_unit_test(test_config),
		cmocka_unit_test(test_room),        cmocka_unit_test(test_ping_ahead),
	};

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		values[i] = (float)i;
	if (cmocka_run_group_tests(tests, NULL, NULL) != 0)
		return 1;
	first_frame = INT32_MAX - 9;
	return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
