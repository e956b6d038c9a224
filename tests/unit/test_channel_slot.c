// SPDX-License-Identifier: BSD-3-Clause
/* test_channel_slot.c - pushes, results, acknowledgements and credit */

#include "tests/unit/test_channel.h"

/* ---- pushes ---- */

BENCH_TEST(closed_frames, bench_open(1, 16, 100))
{
	struct announce a = announce_of(TAG, WIRE_ALL);

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

BENCH_TEST(wrong_lengths, sparse_open(REDUCE_SUM))
{
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
}

/* ---- acknowledgements and credit ---- */

BENCH_TEST(acks, dense_open(2, 16, UINT32_MAX - 3))
{
	const uint32_t first = UINT32_MAX - 3;

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
}

/* RESULTs that nobody fetches while the window moves on: the oldest stay, the rest can be asked for. */
BENCH_TEST(result_table_full, dense_open(1, 4, 0))
{
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
}
