// SPDX-License-Identifier: BSD-3-Clause
/* test_stream_status.c - what a worker asks for, answers, measures and acknowledges, and when */

#include "tests/unit/test_stream_frame.h"

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

static struct control_seen seen(const struct bench *b)
{
	struct control_seen out = {0};

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
	window = seen(b).frames;
	send_status(b, RANK, second + 800, 0, 0); /* of the future */
	for (uint32_t i = 0; i < 54; i++) {
		b->now_us += 200000000;
		send_status(b, RANK, i % 2 ? first : second, 0, 0);
	}
	assert_in_range(seen(b).rtt_us, 399, 401);
	assert_int_equal(seen(b).frames, window);
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
		assert_int_equal(seen(b).frames, 16);
		b->now_us += 30000;
		pull_all(b);
		assert_int_equal(seen(b).frames, 16);
		b->now_us += 100000;
		pull_all(b);
		assert_int_equal(seen(b).frames, 8);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_want),       cmocka_unit_test(test_plan_lacks),
		cmocka_unit_test(test_lacks),      cmocka_unit_test(test_answers),
		cmocka_unit_test(test_unanswered), cmocka_unit_test(test_not_lacks),
		cmocka_unit_test(test_ping),       cmocka_unit_test(test_ack),
		cmocka_unit_test(test_room),       cmocka_unit_test(test_ping_ahead),
	};

	if (cmocka_run_group_tests(tests, NULL, NULL) != 0)
		return 1;
	first_frame = INT32_MAX - 9;
	return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
