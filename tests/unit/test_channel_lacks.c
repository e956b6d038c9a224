// SPDX-License-Identifier: BSD-3-Clause
/* test_channel_lacks.c - what workers lack and ask for again, and what of it they get */

#include <time.h>

#include "tests/flatten.h"
#include "tests/unit/test_channel_slot.h"

/* 70,000 results: sequences pass 65,535 and go on from 0. */
static void test_sequence_wraps(void **state)
{
	struct bench *b = bench_open(1, 16, UINT32_MAX - 1000);
	struct announce a = announce_of(TAG, WIRE_ALL);
	uint32_t frame = UINT32_MAX - 1000;

	(void)state;
	for (uint32_t round = 1; round <= 70000 / FRAMES; round++) {
		a.generation = round;
		announce_all(b, &a);
		expect_plan(b, WIRE_EVERYONE, frame);
		for (uint32_t i = 0; i < FRAMES; i++, frame++) {
			push_value(b, 0, frame, 1);
			expect_result(b, WIRE_EVERYONE, frame, 1);
			if (round > 1 && b->sequence == 1) { /* sent just after the wrap */
				send_lacks(b, 0, frame - 1, 3, 0);
				expect_result(b, 0, frame - 1, 1);
				expect_nothing(b);
				send_lacks(b, 0, frame - 1, 3, 0xffff);
				expect_nothing(b);
			}
			if (i != FRAMES - 1 && b->sequence > 1)
				send_ack(b, 0, frame);
			pull_all(b);
		}
		send_ack(b, 0, frame);
		pull_all(b);
	}
	assert_int_equal(b->sequence, (uint16_t)70000);
	assert_int_equal(channel_stats(b->channel)->results, 70000);
	assert_int_equal(channel_stats(b->channel)->passed_through, 70000);
	expect_drop(b, WIRE_DROP_NONE);
	bench_close(b);
}

/* STATUSes that list all 16 frames, `count` of them: how many RESULTs they draw. */
static uint32_t flood(struct bench *b, uint16_t rank, uint32_t count)
{
	uint32_t drawn = 0;

	while (count-- > 0) {
		send_lacks(b, rank, 0, 0xffff, b->sequence);
		while (bench_pull(b)) {
			assert_true(b->got.kind == WIRE_RESULT && b->dest == rank);
			drawn++;
		}
	}
	return drawn;
}

/*
 * What is asked for again is sent again, but to each worker no more than a window a round; and as long
 * as its ack stands still, rounds grow, from 2 ms to 400. What it acknowledges, it may have once more at any time.
 */
static void test_lacks_flood(void **state)
{
	struct bench *b = dense_open(2, 16, 0);
	uint32_t length_us = 2000;

	(void)state;
	for (uint32_t frame = 0; frame < 16; frame++)
		for (uint16_t rank = 0; rank < 2; rank++)
			push_value(b, rank, frame, 1);
	pull_all(b);
	assert_int_equal(flood(b, 0, 8000), 16);
	assert_int_equal(flood(b, 1, 1), 16); /* each for itself */
	for (uint32_t round = 0; round < 12; round++) {
		b->now_us += length_us - 1;
		assert_int_equal(flood(b, 0, 100), 0);
		b->now_us++;
		assert_int_equal(flood(b, 0, 100), 16);
		length_us = length_us < 200000 ? 2 * length_us : 400000;
	}
	send_ack(b, 0, 3);
	assert_int_equal(flood(b, 0, 100), 3);
	b->now_us += 399999;
	assert_int_equal(flood(b, 0, 100), 0);
	b->now_us++;
	assert_int_equal(flood(b, 0, 100), 16);
	bench_close(b);
}

/* ---- plans among many ---- */

/* An operation without frames for each slot and segment, from frame 0 on. */
static struct bench *hollow_open(uint32_t op_slots)
{
	struct bench *b = bench_open(1, 16, 0);
	struct announce a = announce_of(TAG, WIRE_NONE);

	channel_close(b->channel);
	b->config.op_slots = op_slots;
	b->config.segments_ahead = 64;
	assert_int_equal(channel_open(&b->config, &b->channel), 0);
	a.count = (uint64_t)BLOCK_ELEMS * 4032 * 64;
	for (uint32_t i = 0; i < op_slots * 64; i++) {
		a.tag = TAG + i / 64;
		a.op_slot = (uint16_t)(i / 64);
		a.segment = i % 64;
		send_announce(b, 0, &a, NULL, 0);
	}
	expect_drop(b, WIRE_DROP_NONE);
	pull_all(b);
	return b;
}

/* The worker lacks the plans of 1024 frames from `first` on: the CPU time of such a STATUS, at best. */
static uint64_t cost_of_lacks(struct bench *b, uint32_t first)
{
	struct wire_header head = bench_head(b, 0, WIRE_STATUS, first);
	struct status status = {.stamp = 1, .first = first, .word_count = WIRE_STATUS_WORDS_MAX};
	uint8_t bytes[WIRE_PAYLOAD_MIN];
	uint64_t best_ns = UINT64_MAX;
	struct packet_out out;
	struct packet packet;

	memset(status.words, 0xff, sizeof(status.words));
	packet_begin(&out, &head);
	packet_put_status(&out, &status);
	packet_flatten(&out, bytes);
	assert_int_equal(packet_parse(bytes, out.bytes, false, &packet), WIRE_DROP_NONE);
	for (uint32_t i = 0; i < 20; i++) {
		struct timespec from, to;
		uint64_t ns;

		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
		channel_receive(b->channel, &packet, b->now_us);
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
		ns = (uint64_t)((to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec - from.tv_nsec);
		best_ns = ns < best_ns ? ns : best_ns;
		pull_all(b);
	}
	return best_ns;
}

/* Plans are found among many, and what looks for them does not take the longer the more there are. */
static void test_lacks_plans(void **state)
{
	struct bench *few = hollow_open(1), *many = hollow_open(32);

	(void)state;
	for (uint32_t frame = 0; frame < 32 * 64; frame += 31) {
		send_lacks_plan(many, 0, frame);
		assert_int_equal(expect_plan(many, 0, frame).segment, frame % 64);
		expect_nothing(many);
		many->now_us += 400000;
	}
	send_lacks_plan(many, 0, 32 * 64);
	send_lacks_plan(many, 0, UINT32_MAX);
	expect_nothing(many);
	for (uint32_t first = 0; first <= 2048; first += 1024)
		assert_true(cost_of_lacks(many, first) < 10 * cost_of_lacks(few, first));
	bench_close(few);
	bench_close(many);
}

/* ---- PUSHes ---- */

/* Nonsense about what has been pushed and acknowledged does not make it look for long. */
static void test_wants_nonsense(void **state)
{
	struct bench *b = dense_open(2, 16, 0);

	(void)state;
	for (uint32_t i = 0; i < 200; i++) {
		b->now_us += 5000;
		send_ask(b, (uint16_t)(i % 2), 1 + i, (uint32_t)random_bits());
		while (bench_pull(b))
			assert_int_equal(b->got.kind, WIRE_STATUS_BACK);
	}
	bench_close(b);
}

/* An answer says for how long its STATUS has been here, and how many of the worker's came marked. */
static void test_answer_of_path(void **state)
{
	struct bench *b = dense_open(2, 16, 0);
	struct packet packet = {
		.kind = WIRE_PUSH, .worker = 1, .token = b->tokens[1], .marked = true};
	struct wire_header head = bench_head(b, 1, WIRE_STATUS, 0);
	struct packet_out out;
	struct status status;
	uint8_t bytes[64];

	(void)state;
	for (uint32_t i = 0; i < 3; i++)
		channel_receive(b->channel, &packet, b->now_us);
	packet_begin(&out, &head);
	packet_put_status(&out, &(struct status){.stamp = 77, .asks = true});
	packet_flatten(&out, bytes);
	assert_int_equal(packet_parse(bytes, out.bytes, false, &packet), WIRE_DROP_NONE);
	assert_true(packet.came_us == 0 && !packet.marked);
	packet.came_us = b->now_us - 500;
	packet.marked = true;
	channel_receive(b->channel, &packet, b->now_us);
	packet.came_us = 0; /* then since now */
	packet.marked = false;
	channel_receive(b->channel, &packet, b->now_us);
	b->now_us += 40;
	status = expect_status(b, 1, 77);
	assert_int_equal(status.held, 540);
	assert_int_equal(status.marked, 4);
	status = expect_status(b, 1, 77);
	assert_int_equal(status.held, 40);
	assert_int_equal(status.marked, 4);
	send_ask(b, 0, 5, 0);
	assert_int_equal(expect_status(b, 0, 5).marked, 0);
	bench_close(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lacks_plans),    cmocka_unit_test(test_lacks_flood),
		cmocka_unit_test(test_sequence_wraps), cmocka_unit_test(test_wants_nonsense),
		cmocka_unit_test(test_answer_of_path),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
