// SPDX-License-Identifier: BSD-3-Clause
/* test_channel_ops.c - whole operations: workers that disagree, eager ones, stalls */

#include "tests/unit/test_channel.h"

/* ---- mismatch: section 11.1 ---- */

/* Worker 0 says `usual`, worker 1 says `odd`, and is told so each time; worker 2 may come later. */
static void check_mismatch(const struct announce *usual, const struct announce *odd,
                           enum wire_field field, uint64_t value_a, uint64_t value_b)
{
	struct bench *b = bench_open(3, 16, 7);

	send_announce(b, 0, usual, NULL, 0);
	for (uint32_t i = 1; i <= 2; i++) {
		struct plan plan;

		send_announce(b, 1, odd, NULL, 0);
		expect_drop(b, WIRE_DROP_OPERATION);
		plan = expect_plan(b, 1, 0);
		assert_int_equal(plan.status, WIRE_MISMATCH);
		assert_true(plan.tag == TAG);
		assert_int_equal(plan.mismatch.field, field);
		assert_true(plan.mismatch.value_a == value_a && plan.mismatch.value_b == value_b);
		assert_int_equal(plan.mismatch.rank_a, 0);
		assert_int_equal(plan.mismatch.rank_b, 1);
		assert_int_equal(channel_stats(b->channel)->mismatches, i);
		expect_nothing(b);
	}
	send_announce(b, 2, usual, NULL, 0);
	expect_drop(b, WIRE_DROP_NONE);
	expect_nothing(b);
	bench_close(b);
}

TEST(mismatch)
{
	struct announce usual = announce_of(TAG, WIRE_NONE), odd;

#define MISMATCH(field, value, name, a, b)                                                         \
	(odd = announce_of(TAG, WIRE_NONE), odd.field = (value),                                   \
	 check_mismatch(&usual, &odd, name, a, b))
	MISMATCH(count, 3201, WIRE_FIELD_COUNT, 3200, 3201);
	MISMATCH(dtype, DTYPE_I32, WIRE_FIELD_DTYPE, DTYPE_F32, DTYPE_I32);
	MISMATCH(block_elems, 64, WIRE_FIELD_BLOCK, 32, 64);
	MISMATCH(reduction, REDUCE_MAX, WIRE_FIELD_REDUCTION, REDUCE_SUM, REDUCE_MAX);
	MISMATCH(form, WIRE_FIXED32, WIRE_FIELD_FORM, WIRE_NATIVE, WIRE_FIXED32);
#undef MISMATCH
	odd = announce_of(TAG, WIRE_NONE | WIRE_SCATTER);
	odd.count = 3201; /* three workers: not the count is named */
	check_mismatch(&usual, &odd, WIRE_FIELD_SCATTER, 0, 1);
	/* Of several differences the first counts. */
	odd = announce_of(TAG, WIRE_NONE);
	odd.count = 4000;
	odd.reduction = REDUCE_MAX;
	check_mismatch(&usual, &odd, WIRE_FIELD_COUNT, 3200, 4000);
	/* All that can be seen is the same, and the cut is not. */
	usual.segment_count = odd.segment_count = 1;
	usual.block_count = odd.block_count = BLOCKS;
	odd = usual;
	odd.layout = 5;
	check_mismatch(&usual, &odd, WIRE_FIELD_LAYOUT, 0, 5);
	/* Blocks are compared where both speak of the same segment. */
	odd = usual;
	odd.layout = 5;
	odd.segment_count = 2;
	odd.segment = 1;
	odd.block_elems = 64;
	check_mismatch(&usual, &odd, WIRE_FIELD_LAYOUT, 0, 5);
	/* Not of honest workers. */
	odd.layout = 0;
	odd.block_elems = BLOCK_ELEMS;
	check_mismatch(&usual, &odd, WIRE_FIELD_LAYOUT, 1, 2);
}

/* Who differs first is named, whoever comes later. */
TEST(mismatch_ranks)
{
	static const enum dtype others[] = {DTYPE_I32, DTYPE_BF16};
	struct bench *b = bench_open(3, 16, 0);
	struct announce a = announce_of(TAG, WIRE_NONE);

	a.count = (uint64_t)BLOCK_ELEMS * 4032 * 3; /* one of three segments is enough to end it */
	send_announce(b, 2, &a, NULL, 0);
	for (uint16_t rank = 0; rank < 2; rank++) {
		struct plan plan;

		a.dtype = others[rank];
		send_announce(b, rank, &a, NULL, 0);
		expect_drop(b, WIRE_DROP_OPERATION);
		plan = expect_plan(b, rank, 0);
		assert_int_equal(plan.mismatch.rank_a, 2);
		assert_int_equal(plan.mismatch.rank_b, rank);
		assert_true(plan.mismatch.value_b == others[rank]);
	}
	bench_close(b);
}

/* ---- eager: section 4.4 ---- */

static struct announce eager_of(enum reduction reduction, uint8_t flags)
{
	struct announce a = announce_of(TAG, WIRE_EAGER | flags);

	a.count = 5;
	a.block_elems = 2;
	a.reduction = (uint8_t)reduction;
	a.set.bytes = 8;
	return a;
}

/* Neither a byte more nor less than the blocks of the bitmap. */
BENCH_TEST(eager_lengths, bench_open(1, 16, 0))
{
	const uint64_t words[4] = {5};

	for (unsigned flags = 0; flags < 3; flags++) {
		struct announce a = eager_of(REDUCE_SUM, (uint8_t)flags);
		const uint32_t good[] = {8 + 16, 24, 0};

		for (uint32_t bytes = 0; bytes <= 32; bytes++) {
			if (bytes == good[flags])
				continue;
			send_announce(b, 0, &a, words, bytes);
			expect_drop(b, WIRE_DROP_LENGTH);
		}
	}
}

/* ---- stalls: section 11.3 ---- */

static void expect_stall(struct bench *b, uint16_t rank, uint16_t missing, bool streaming)
{
	struct channel_stall stall;
	uint64_t since_us = b->now_us;

	b->now_us += b->config.stall_us - 1;
	assert_false(channel_stalled(b->channel, b->now_us, &stall));
	b->now_us++;
	assert_true(channel_stalled(b->channel, b->now_us, &stall));
	assert_true(stall.tag == TAG && stall.waited_us == b->now_us - since_us);
	assert_int_equal(stall.rank, rank);
	assert_int_equal(stall.missing, missing);
	assert_int_equal(stall.streaming, streaming);
}

BENCH_TEST(stalls, bench_open(4, 16, 0))
{
	struct announce a = announce_of(TAG, WIRE_ALL);
	struct channel_stall stall;
	uint8_t data[512] = {0};

	assert_false(channel_stalled(b->channel, UINT64_MAX / 2, &stall));
	send_announce(b, 1, &a, NULL, 0);
	send_announce(b, 3, &a, NULL, 0);
	expect_stall(b, 0, 2, false);
	send_announce(b, 0, &a, NULL, 0);
	send_announce(b, 2, &a, NULL, 0); /* now its frames count */
	pull_all(b);
	expect_stall(b, 0, 4, true);
	for (uint16_t rank = 0; rank < 3; rank++)
		send_push(b, rank, 0, data, 512);
	assert_true(channel_stalled(b->channel, b->now_us, &stall));
	assert_int_equal(stall.rank, 3);
	assert_int_equal(stall.missing, 1);
	send_push(b, 3, 0, data, 512);
	send_ack(b, 0, 1);
	send_ack(b, 2, 1);
	assert_true(channel_stalled(b->channel, b->now_us, &stall));
	assert_int_equal(stall.rank, 1);
	assert_int_equal(stall.missing, 2);
	send_ack(b, 1, 1);
	send_ack(b, 3, 1); /* base moves: the waiting begins anew */
	expect_stall(b, 0, 4, true);
	send_ack_all(b, 16);
	send_ack_all(b, FRAMES);
	assert_false(channel_stalled(b->channel, UINT64_MAX / 2, &stall));
}

/* What `winnow status` shows: the oldest operation, who keeps it, and the slots. */
BENCH_TEST(look, bench_open(4, 16, 0))
{
	struct announce a = announce_of(TAG, WIRE_ALL);
	struct channel_view view;
	uint8_t data[512] = {0};

	channel_look(b->channel, b->now_us, &view);
	assert_true(view.operations == 0 && view.wait.stall.missing == 0 &&
	            view.wait.rank_count == 0);
	assert_true(view.slots == 16 && view.slots_used == 0);
	for (uint16_t rank = 2; rank < 4; rank++)
		send_announce(b, rank, &a, NULL, 0);
	b->now_us += 3000;
	send_announce(b, 1, &a, NULL, 0);
	channel_look(b->channel, b->now_us, &view);
	assert_true(view.operations == 1 && view.tag == TAG && view.count == a.count);
	assert_true(view.age_us == 3000 && view.wait.stall.waited_us == 3000 &&
	            !view.wait.stall.streaming);
	assert_true(view.wait.stall.missing == 1 && view.wait.rank_count == 1 &&
	            view.wait.ranks[0] == 0);
	assert_true(view.dtype == a.dtype && view.reduction == a.reduction &&
	            view.form == WIRE_NATIVE);
	send_announce(b, 0, &a, NULL, 0);
	pull_all(b);
	assert_true(channel_stats(b->channel)->blocks_owned ==
	            4 * channel_stats(b->channel)->blocks_nonzero);
	send_push(b, 1, 0, data, 512);
	b->now_us += 500;
	channel_look(b->channel, b->now_us, &view);
	assert_true(view.slots_used == 16 && view.age_us == 3500);
	assert_true(view.wait.stall.waited_us == 500 && view.wait.stall.streaming);
	assert_true(view.wait.stall.missing == 3 && view.wait.stall.rank == 0);
	assert_int_equal(view.wait.rank_count, 3);
	assert_true(view.wait.ranks[0] == 0 && view.wait.ranks[1] == 2 && view.wait.ranks[2] == 3);
}

/* ---- more frames than numbers ---- */

#define HUGE_FRAMES 60800u /* of 64 blocks of 512 KiB, at the smallest payload */
#define AHEAD_MAX (1u << 30)

/* Without channel_check(), which would look at all segments each time. */
static void send_unchecked(struct bench *b, const struct wire_header *head,
                           const struct announce *a)
{
	uint8_t bytes[WIRE_HEADER_BYTES + WIRE_ANNOUNCE_BYTES];
	struct packet_out out;
	struct packet packet;

	packet_begin(&out, head);
	if (a != NULL)
		packet_put_announce(&out, a);
	else
		packet_put_status(&out, &(struct status){.stamp = 1});
	packet_flatten(&out, bytes);
	assert_int_equal(packet_parse(bytes, out.bytes, false, &packet), WIRE_DROP_NONE);
	bench_room(b, &packet);
	channel_receive(b->channel, &packet, b->now_us);
}

static struct bench *huge_open(void)
{
	struct bench *b = bench_open(1, 8192, UINT32_MAX - 5);

	channel_close(b->channel);
	b->config.op_slots = 277;
	b->config.segments_ahead = 64;
	assert_int_equal(channel_open(&b->config, &b->channel), 0);
	return b;
}

/* From base on, 2^30 frames have a number; what needs more waits until workers have acknowledged some. */
BENCH_TEST(frames_ahead, huge_open())
{
	struct wire_header head = bench_head(b, 0, WIRE_ANNOUNCE, 0);
	struct announce a = announce_of(TAG, WIRE_ALL);
	const uint32_t fit = AHEAD_MAX / HUGE_FRAMES, first = b->acks[0];
	const struct channel_stats *stats;

	a.dtype = DTYPE_F64;
	a.block_elems = WIRE_BLOCK_ELEMS_MAX;
	a.count = UINT64_C(64) * 64 * WIRE_BLOCK_ELEMS_MAX;
	a = announce_cut(b, a);
	assert_int_equal(a.segment_count, 64);
	for (uint32_t i = 0; i < 277 * 64; i++) {
		a.tag = TAG + i / 64;
		a.op_slot = (uint16_t)(i / 64);
		a.segment = i % 64;
		send_unchecked(b, &head, &a);
	}
	channel_check(b->channel);
	assert_int_equal(channel_stats(b->channel)->drops[WIRE_DROP_FULL], 277 * 64 - fit);
	assert_int_equal(expect_plan(b, WIRE_EVERYONE, first).frame_count, HUGE_FRAMES);
	assert_int_equal(b->planned, first + fit * HUGE_FRAMES);
	/* The same one again, when there is room. */
	head.kind = WIRE_STATUS;
	for (uint32_t left = HUGE_FRAMES; left > 0;) {
		uint32_t step = left < 8192 ? left : 8192;

		left -= step;
		head.edge += step;
		head.pushed = head.edge;
		send_unchecked(b, &head, NULL);
	}
	b->acks[0] = head.edge;
	head.kind = WIRE_ANNOUNCE;
	send_unchecked(b, &head, &a);
	channel_check(b->channel);
	stats = channel_stats(b->channel);
	assert_int_equal(stats->drops[WIRE_DROP_FULL], 277 * 64 - fit);
	assert_int_equal(stats->drops[WIRE_DROP_OPERATION] + stats->drops[WIRE_DROP_STALE], 0);
}
