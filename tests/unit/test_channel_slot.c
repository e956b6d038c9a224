// SPDX-License-Identifier: BSD-3-Clause
/* test_channel_slot.c - pushes, results, acknowledgements and credit */

#include "tests/unit/test_channel_slot.h"

/* ---- pushes ---- */

static void test_closed_frames(void **state)
{
	struct bench *b = bench_open(1, 16, 100);
	struct announce a = announce_of(TAG, WIRE_ALL);

	(void)state;
	push_value(b, 0, 100, 1); /* nothing is planned */
	expect_drop(b, WIRE_DROP_FRAME);
	announce_all(b, &a);
	expect_plan(b, WIRE_EVERYONE, 100);
	assert_int_equal(b->got.planned, 100 + FRAMES);
	push_value(b, 0, 116, 1); /* beyond the window */
	expect_drop(b, WIRE_DROP_FRAME);
	push_value(b, 0, 100 + FRAMES, 1); /* beyond the plan */
	expect_drop(b, WIRE_DROP_FRAME);
	push_value(b, 0, 99, 1);
	expect_drop(b, WIRE_DROP_STALE);
	push_value(b, 0, 0, 1); /* slot 0 has never had a frame, nor has it this number */
	expect_drop(b, WIRE_DROP_STALE);
	push_value(b, 0, 115, 1);
	expect_drop(b, WIRE_DROP_NONE);
	expect_result(b, WIRE_EVERYONE, 115, 1);
	send_ack(b, 0, 101);
	push_value(b, 0, 116, 2); /* the slot of frame 100 is free for it now */
	expect_drop(b, WIRE_DROP_NONE);
	push_value(b, 0, 100, 2);
	expect_drop(b, WIRE_DROP_STALE);
	push_value(b, 0, 117, 2);
	expect_drop(b, WIRE_DROP_FRAME);
	bench_close(b);
}

/* Hollow frames take no slot: there is nothing to push. */
static void test_hollow(void **state)
{
	struct bench *b = bench_open(2, 4, 0);
	struct announce a = announce_of(TAG, WIRE_NONE);

	(void)state;
	announce_all(b, &a);
	expect_plan(b, WIRE_EVERYONE, 0);
	send_push(b, 0, 0, zeros, BLOCK_BYTES);
	expect_drop(b, WIRE_DROP_FRAME);
	send_lacks(b, 1, 0, 3, 0); /* no such frame has a RESULT */
	expect_nothing(b);
	send_lacks_plan(b, 1, 0);
	send_lacks_plan(b, 1, 1); /* this one does not exist */
	expect_plan(b, 1, 0);
	expect_nothing(b);
	bench_close(b);
}

/* Workers 0 and 1 own blocks 0, 1 and 1, 2; of 3 in one frame. */
static struct bench *sparse_open(enum reduction reduction)
{
	struct bench *b = bench_open(2, 16, 0);
	struct announce a = announce_of(TAG, 0);
	const uint64_t words[2][2] = {{0x3, 0}, {0x6, 0}};

	a.reduction = (uint8_t)reduction;
	for (uint16_t rank = 0; rank < 2; rank++)
		send_announce(b, rank, &a, words[rank], sizeof(words[rank]));
	assert_int_equal(expect_plan(b, WIRE_EVERYONE, 0).frame_count, 1);
	return b;
}

static void test_wrong_lengths(void **state)
{
	struct bench *b = sparse_open(REDUCE_SUM);

	(void)state;
	for (uint32_t bytes = 0; bytes < BLOCK_BYTES * 4; bytes++) {
		if (bytes == BLOCK_BYTES * 2)
			continue;
		send_push(b, 0, 0, zeros, bytes);
		expect_drop(b, WIRE_DROP_LENGTH);
	}
	assert_int_equal(channel_stats(b->channel)->pushes, 0);
	send_push(b, 0, 0, zeros, BLOCK_BYTES * 2);
	expect_drop(b, WIRE_DROP_NONE);
	assert_int_equal(channel_stats(b->channel)->pushes, 1);
	bench_close(b);
}

/* A block that one worker did not send counts as its zeros; blocks are found by their bits. */
static void test_absent_are_zeros(void **state)
{
	const struct {
		enum reduction reduction;
		float want[3];
	} cases[] = {
		{REDUCE_SUM, {-2, 3, 8}}, {REDUCE_AVG, {-1, 1.5f, 4}}, {REDUCE_MIN, {-2, -4, 0}},
		{REDUCE_MAX, {0, 7, 8}},  {REDUCE_PROD, {0, -28, 0}},
	};

	(void)state;
	for (size_t c = 0; c < 5; c++) {
		struct bench *b = sparse_open(cases[c].reduction);
		float data[2][64];

		for (size_t i = 0; i < 64; i++) {
			data[0][i] = i < 32 ? -2 : -4;
			data[1][i] = i < 32 ? 7 : 8;
		}
		send_push(b, 1, 0, data[1], sizeof(data[1]));
		expect_nothing(b);
		send_push(b, 0, 0, data[0], sizeof(data[0]));
		expect_packet(b, WIRE_RESULT, WIRE_EVERYONE, 0);
		assert_int_equal(b->got.body_bytes, 3 * BLOCK_BYTES);
		for (size_t i = 0; i < 96; i++) {
			float got;

			memcpy(&got, b->got.body + i * 4, 4);
			assert_true(got == cases[c].want[i / 32]);
		}
		assert_int_equal(channel_stats(b->channel)->passed_through, 0);
		bench_close(b);
	}
}

/* Nothing is added twice, before or after the sum is whole. */
static void test_doubles(void **state)
{
	struct bench *b = dense_open(3, 16, 0);

	(void)state;
	push_value(b, 0, 3, 1);
	expect_drop(b, WIRE_DROP_NONE);
	push_value(b, 0, 3, 1);
	expect_drop(b, WIRE_DROP_DUPLICATE);
	push_value(b, 1, 3, 10);
	push_value(b, 1, 3, 10);
	expect_drop(b, WIRE_DROP_DUPLICATE);
	expect_nothing(b);
	push_value(b, 2, 3, 100);
	expect_drop(b, WIRE_DROP_NONE);
	push_value(b, 1, 3, 1000);
	expect_drop(b, WIRE_DROP_DUPLICATE);
	expect_result(b, WIRE_EVERYONE, 3, 111);
	push_value(b, 1, 3, 1000); /* draws nothing: who lacks the RESULT says so */
	expect_drop(b, WIRE_DROP_DUPLICATE);
	expect_nothing(b);
	assert_int_equal(channel_stats(b->channel)->pushes, 3);
	bench_close(b);
}

/* ---- acknowledgements and credit ---- */

static void test_acks(void **state)
{
	struct bench *b = dense_open(2, 16, UINT32_MAX - 3);
	const uint32_t first = UINT32_MAX - 3;

	(void)state;
	send_ack(b, 0, first + 2);
	expect_nothing(b); /* the other is still at the first */
	send_ack(b, 1, first + 3);
	send_ask(b, 0, 77, first + 2);
	expect_answer(b, 0, 77);
	assert_int_equal(b->got.edge, first + 2);
	/* Backwards, and beyond what has a slot: no news. */
	b->acks[0] = first;
	send_ask(b, 0, 78, first + 2);
	b->acks[0] = first + 19;
	send_ask(b, 0, 79, first + 2);
	b->acks[0] = first + 0x90000000;
	send_ask(b, 0, 80, first + 2);
	b->acks[0] = first + 2;
	for (uint32_t stamp = 78; stamp <= 80; stamp++)
		expect_answer(b, 0, stamp);
	expect_nothing(b);
	/* The last slot that is open may be acknowledged. */
	send_ack(b, 0, first + 18);
	send_ack(b, 1, first + 18);
	expect_credit(b);
	expect_nothing(b);
	bench_close(b);
}

/* Alone after a quarter of the window, sooner when nothing else will carry it, never twice. */
static void test_credit(void **state)
{
	struct bench *b = dense_open(1, 16, 0);

	(void)state;
	for (uint32_t ack = 1; ack < FRAMES; ack++) {
		send_ack(b, 0, ack);
		if (ack % 4 == 0)
			expect_credit(b);
		expect_nothing(b);
	}
	send_ack(b, 0, FRAMES);
	expect_credit(b);
	expect_nothing(b);
	assert_true(channel_idle(b->channel));
	bench_close(b);
}

/* A RESULT to all carries the credit: it does not go alone. */
static void test_credit_rides(void **state)
{
	struct bench *b = dense_open(1, 16, 0);

	(void)state;
	send_ack(b, 0, 3);
	push_value(b, 0, 5, 1);
	expect_result(b, WIRE_EVERYONE, 5, 1);
	send_ack(b, 0, 6);
	expect_nothing(b);
	send_ack(b, 0, 7);
	expect_credit(b);
	bench_close(b);
}

static void send_room(struct bench *b, uint16_t rank, uint32_t ack, uint16_t window)
{
	struct wire_header head = bench_head(b, rank, WIRE_STATUS, 0);
	struct packet_out out;

	head.edge = ack;
	head.window = window;
	packet_begin(&out, &head);
	packet_put_status(&out, &(struct status){.stamp = 1});
	bench_send(b, &out);
}

static void expect_room(struct bench *b, uint16_t window)
{
	expect_credit(b);
	assert_int_equal(b->got.window, window);
}

/* As the worker takes that takes least; never back, never nothing, never more than has a slot. */
static void test_credit_of_rooms(void **state)
{
	struct bench *b = bench_open(2, 16, 0);
	struct announce a = announce_of(TAG, WIRE_ALL);

	(void)state;
	send_room(b, 0, 0, 4);
	announce_all(b, &a); /* rank 0 says "whatever has a slot" now, which is more */
	expect_plan(b, WIRE_EVERYONE, 0);
	assert_int_equal(b->got.window, 16);
	bench_close(b);

	b = bench_open(2, 16, 0);
	b->window = 6;
	announce_all(b, &a);
	expect_plan(b, WIRE_EVERYONE, 0);
	assert_int_equal(b->got.window, 6);
	send_room(b, 0, 0, 9);
	expect_nothing(b); /* the other one takes 6 */
	send_room(b, 1, 0, 7);
	expect_nothing(b); /* less than a quarter */
	send_room(b, 1, 0, 8);
	expect_room(b, 8);
	send_room(b, 1, 0, 2);
	send_room(b, 0, 30, 2); /* an ack may be a lie */
	send_room(b, 1, UINT32_MAX / 2, 2);
	expect_nothing(b);
	b->window = 1;
	send_ack_all(b, 8); /* 9, and at least one beyond base */
	expect_room(b, 1);
	send_room(b, 0, 8, 17); /* more than there are slots */
	send_room(b, 1, 8, 65535);
	expect_room(b, 16);
	expect_drop(b, WIRE_DROP_NONE);
	bench_close(b);
}

static void test_reply_table_full(void **state)
{
	struct bench *b = bench_open(1, 16, 0);

	(void)state;
	for (uint32_t stamp = 1; stamp <= 1024; stamp++)
		send_ask(b, 0, stamp, 0);
	expect_drop(b, WIRE_DROP_NONE);
	send_ask(b, 0, 1025, 0);
	expect_drop(b, WIRE_DROP_FULL);
	for (uint32_t stamp = 1; stamp <= 1024; stamp++)
		expect_answer(b, 0, stamp);
	expect_nothing(b);
	bench_close(b);
}

/* RESULTs that nobody fetches while the window moves on: the oldest stay, the rest can be asked for. */
static void test_result_table_full(void **state)
{
	struct bench *b = dense_open(1, 4, 0);

	(void)state;
	for (uint32_t frame = 0; frame < 4; frame++)
		push_value(b, 0, frame, 1);
	expect_drop(b, WIRE_DROP_NONE);
	send_ack(b, 0, 4);
	push_value(b, 0, 4, 5);
	expect_drop(b, WIRE_DROP_FULL);
	expect_credit(b); /* frame 0's slot holds frame 4 */
	send_ask(b, 0, 9, 5);
	expect_answer(b, 0, 9);
	expect_result(b, WIRE_EVERYONE, 4, 5);
	expect_nothing(b);
	bench_close(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_closed_frames),    cmocka_unit_test(test_hollow),
		cmocka_unit_test(test_wrong_lengths),    cmocka_unit_test(test_absent_are_zeros),
		cmocka_unit_test(test_doubles),          cmocka_unit_test(test_acks),
		cmocka_unit_test(test_credit),           cmocka_unit_test(test_credit_rides),
		cmocka_unit_test(test_reply_table_full), cmocka_unit_test(test_result_table_full),
		cmocka_unit_test(test_credit_of_rooms),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
