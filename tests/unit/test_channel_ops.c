// SPDX-License-Identifier: BSD-3-Clause
/* test_channel_ops.c - whole operations: workers that disagree, eager ones, stalls */

#include "tests/unit/test_channel.h"

/* ---- reduce-scatter: section 4.5 ---- */

/* Worker 1 asks for the frame again, and then worker 0; the sum is 3 everywhere. */
static void check_share(struct bench *b, uint32_t frame, uint16_t receiver)
{
	static const float three = 3;

	expect_packet(b, WIRE_RESULT, WIRE_EVERYONE, frame);
	assert_int_equal(b->receiver, receiver);
	assert_int_equal(b->got.body_bytes, FRAME_BLOCKS * BLOCK_BYTES);
	assert_memory_equal(b->got.body, &three, 4);
	for (uint16_t rank = 0; rank < 2; rank++) {
		send_lacks(b, rank, frame, 1, b->sequence);
		expect_packet(b, WIRE_RESULT, rank, frame);
		assert_int_equal(b->receiver, WIRE_EVERYONE);
		assert_int_equal(b->got.body_bytes,
		                 rank == receiver ? FRAME_BLOCKS * BLOCK_BYTES : 0);
	}
}

/* Two shares of 8 blocks, each a segment of two frames: its data goes to one worker, now and later. */
static void test_scatter(void **state)
{
	struct bench *b = bench_open(2, 16, 7);
	struct announce a = announce_of(TAG, WIRE_ALL | WIRE_SCATTER);
	float ones[2][FRAME_BLOCKS * BLOCK_ELEMS];

	(void)state;
	for (uint32_t i = 0; i < FRAME_BLOCKS * BLOCK_ELEMS; i++)
		ones[0][i] = 1, ones[1][i] = 2;
	a.count = UINT64_C(2) * 8 * BLOCK_ELEMS;
	announce_all(b, &a);
	assert_int_equal(expect_plan(b, WIRE_EVERYONE, 7).frame_count, 2);
	a.segment = 1;
	announce_all(b, &a);
	assert_int_equal(expect_plan(b, WIRE_EVERYONE, 9).segment, 1);
	for (uint32_t frame = 7; frame < 11; frame++) {
		for (uint16_t rank = 0; rank < 2; rank++)
			send_push(b, rank, frame, ones[rank], sizeof(ones[0]));
		check_share(b, frame, frame < 9 ? 0 : 1);
	}
	expect_drop(b, WIRE_DROP_NONE);
	send_ack_all(b, 11);
	pull_all(b);
	assert_true(channel_idle(b->channel));
	assert_int_equal(channel_stats(b->channel)->tensor_bytes, 16 * BLOCK_BYTES);
	/* The workers do not divide this number of segments; there is no third share. */
	a.generation = 2;
	a.segment = 0;
	a = announce_cut(b, a);
	a.segment_count = 3;
	send_announce(b, 0, &a, NULL, 0);
	expect_drop(b, WIRE_DROP_OPERATION);
	a.segment_count = 2;
	a.segment = 2;
	send_announce(b, 0, &a, NULL, 0);
	expect_drop(b, WIRE_DROP_OPERATION);
	bench_close(b);
}

/* All announce the segment with its first block alone, so it has one frame. */
static void announce_first(struct bench *b, struct announce a)
{
	static const uint64_t first[SEGMENT_WORDS] = {1};
	uint8_t set[SEGMENT_WORDS * 8];

	a = announce_cut(b, a);
	a.set.bytes = (uint32_t)bits_write(first, a.block_count, set);
	for (uint16_t rank = 0; rank < b->config.worker_count; rank++) {
		send_announce(b, rank, &a, set, a.set.bytes);
		expect_drop(b, WIRE_DROP_NONE);
	}
}

/* Shares of several segments, one behind the other: the segments of a share have one receiver. */
static void test_scatter_segments(void **state)
{
	static const uint16_t workers = 3;
	enum { SEGMENTS = 4 };
	const struct geometry_input input = {.count = UINT64_C(3) * SEGMENTS * 16384,
	                                     .block_elems = 1,
	                                     .elem_bytes = 4,
	                                     .shard_count = 1,
	                                     .payload = WIRE_PAYLOAD_MIN,
	                                     .scatter = workers};
	struct bench *b = bench_open(workers, 16, 7);
	struct announce a = announce_of(TAG, WIRE_SCATTER);
	const float one = 1, sum = workers;
	struct geometry cut;
	uint32_t frame = 7;

	(void)state;
	assert_true(geometry_compute(&input, &cut));
	assert_int_equal(cut.segment_count % workers, 0);
	assert_true(cut.segment_count / workers >= SEGMENTS);
	a.count = input.count;
	a.block_elems = 1;
	for (uint32_t i = 0; i < cut.segment_count; i++, frame++) {
		struct announce segment = a;

		segment.segment = i;
		announce_first(b, segment);
		assert_int_equal(expect_plan(b, WIRE_EVERYONE, frame).segment, i);
		for (uint16_t rank = 0; rank < workers; rank++)
			send_push(b, rank, frame, &one, sizeof(one));
		expect_packet(b, WIRE_RESULT, WIRE_EVERYONE, frame);
		assert_int_equal(b->receiver, i / (cut.segment_count / workers));
		assert_memory_equal(b->got.body, &sum, sizeof(sum));
		send_ack_all(b, frame + 1);
		pull_all(b);
	}
	expect_drop(b, WIRE_DROP_NONE);
	assert_true(channel_idle(b->channel));
	bench_close(b);
}

/* ---- mismatch: section 11.1 ---- */

/* Worker 0 says `usual`, worker 1 says `odd`, worker 2 as worker 0. */
static void check_mismatch(const struct announce *usual, const struct announce *odd,
                           enum wire_field field, uint64_t value_a, uint64_t value_b)
{
	struct bench *b = bench_open(3, 16, 7);
	struct announce a = *usual;
	struct plan plan;

	send_announce(b, 0, &a, NULL, 0);
	send_announce(b, 1, odd, NULL, 0);
	expect_drop(b, WIRE_DROP_NONE);
	expect_nothing(b); /* one has not spoken */
	send_announce(b, 1, odd, NULL, 0);
	expect_nothing(b);
	send_announce(b, 2, &a, NULL, 0);
	plan = expect_plan(b, WIRE_EVERYONE, 7);
	assert_int_equal(plan.status, WIRE_MISMATCH);
	assert_true(plan.tag == TAG);
	assert_int_equal(plan.frame_count, 1);
	assert_int_equal(plan.mismatch.field, field);
	assert_true(plan.mismatch.value_a == value_a && plan.mismatch.value_b == value_b);
	assert_int_equal(plan.mismatch.rank_a, 0);
	assert_int_equal(plan.mismatch.rank_b, 1);
	assert_int_equal(channel_stats(b->channel)->mismatches, 1);
	expect_nothing(b);
	/* It is said again to who asks, and over when all have heard it. */
	send_announce(b, 2, &a, NULL, 0);
	assert_int_equal(expect_plan(b, 2, 7).status, WIRE_MISMATCH);
	expect_drop(b, WIRE_DROP_DUPLICATE);
	send_ack_all(b, 8);
	pull_all(b);
	assert_true(channel_idle(b->channel));
	assert_int_equal(channel_stats(b->channel)->operations, 0);
	assert_int_equal(channel_stats(b->channel)->tensor_bytes, 0);
	/* The job goes on. */
	a.generation = 2;
	announce_all(b, &a);
	assert_int_equal(expect_plan(b, WIRE_EVERYONE, 8).status, WIRE_OK);
	bench_close(b);
}

static void test_mismatch(void **state)
{
	struct announce usual = announce_of(TAG, WIRE_NONE), odd;

	(void)state;
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
static void test_mismatch_ranks(void **state)
{
	struct bench *b = bench_open(3, 16, 0);
	struct announce a = announce_of(TAG, WIRE_NONE);
	struct plan plan;

	(void)state;
	a.count = (uint64_t)BLOCK_ELEMS * 4032 * 3; /* one of three segments is enough to end it */
	send_announce(b, 2, &a, NULL, 0);
	a.dtype = DTYPE_I32;
	send_announce(b, 1, &a, NULL, 0);
	a.dtype = DTYPE_BF16;
	send_announce(b, 0, &a, NULL, 0);
	plan = expect_plan(b, WIRE_EVERYONE, 0);
	assert_int_equal(plan.mismatch.rank_a, 2);
	assert_int_equal(plan.mismatch.rank_b, 1);
	assert_true(plan.mismatch.value_b == DTYPE_I32);
	send_ack_all(b, 1);
	pull_all(b);
	assert_true(channel_idle(b->channel));
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

static void eager_once(struct bench *b, uint32_t first, enum reduction reduction,
                       const float want[4])
{
	struct announce a = eager_of(reduction, 0);
	const struct {
		uint64_t word;
		float data[4];
	} said[2] = {{5, {1, 2, 3, 0}}, {4, {-10, 20}}};
	const uint64_t united = 5;
	struct plan plan;

	a.generation = first + 1;
	send_announce(b, 1, &a, &said[1], 8 + 8);
	send_announce(b, 1, &a, &said[1], 8 + 8); /* not added again */
	expect_drop(b, WIRE_DROP_DUPLICATE);
	send_announce(b, 0, &a, &said[0], 8 + 16);
	expect_drop(b, WIRE_DROP_NONE);
	for (unsigned times = 0; times < 2; times++) {
		plan = expect_plan(b, times == 0 ? WIRE_EVERYONE : 1, first);
		assert_int_equal(plan.flags, WIRE_EAGER);
		assert_int_equal(plan.frame_count, 1);
		expect_set(&plan, &united, 3);
		assert_int_equal(plan.set.blocks_bytes, 16);
		assert_memory_equal(plan.set.blocks, want, 16);
		send_announce(b, 1, &a, &said[1], 8 + 8);
		expect_drop(b, WIRE_DROP_DUPLICATE);
	}
	pull_all(b);
	/* It is a hollow frame like any other. */
	send_push(b, 1, first, said, 8);
	expect_drop(b, WIRE_DROP_FRAME);
	send_lacks_plan(b, 0, first);
	expect_plan(b, 0, first);
	send_ack_all(b, first + 1);
	pull_all(b);
}

/* Twice in the same place, then one that is not eager: nothing stays behind. */
static void check_eager(enum reduction reduction, const float want[4])
{
	struct bench *b = bench_open(2, 16, 0);
	struct announce a = announce_of(TAG, WIRE_NONE);

	eager_once(b, 0, reduction, want);
	eager_once(b, 1, reduction, want);
	a.generation = 3;
	announce_all(b, &a);
	assert_int_equal(expect_plan(b, WIRE_EVERYONE, 2).set.blocks_bytes, 0);
	bench_close(b);
}

static void test_eager(void **state)
{
	(void)state;
	check_eager(REDUCE_SUM, (const float[]){1, 2, -7, 20});
	check_eager(REDUCE_AVG, (const float[]){0.5f, 1, -3.5f, 10});
	check_eager(REDUCE_MIN, (const float[]){0, 0, -10, 0});
	check_eager(REDUCE_MAX, (const float[]){1, 2, 3, 20});
	check_eager(REDUCE_PROD, (const float[]){0, 0, -30, 0});
}

/* Neither a byte more nor less than the blocks of the bitmap. */
static void test_eager_lengths(void **state)
{
	struct bench *b = bench_open(1, 16, 0);
	const uint64_t words[4] = {5};

	(void)state;
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
	bench_close(b);
}

/* f16 sums take more room than the wire: blocks must not run into each other. */
static void test_eager_narrow(void **state)
{
	struct bench *b = bench_open(2, 16, 0);
	struct announce a = announce_of(TAG, WIRE_EAGER | WIRE_ALL);
	uint16_t data[121];
	struct plan plan;

	(void)state;
	a.block_elems = 1;
	a.dtype = DTYPE_F16;
	a.count = 121; /* as f32, with bitmap, its length and head 552 bytes */
	for (uint16_t i = 0; i < 121; i++)
		data[i] = (uint16_t)(0x3c00 + i); /* 1 + i / 1024 */
	for (uint16_t rank = 0; rank < 2; rank++)
		send_announce(b, rank, &a, data, 242);
	plan = expect_plan(b, WIRE_EVERYONE, 0);
	assert_int_equal(plan.set.blocks_bytes, 242);
	for (uint16_t i = 0; i < 121; i++)
		assert_int_equal(plan.set.blocks[i * 2] + plan.set.blocks[i * 2 + 1] * 256,
		                 0x4000 + i);
	bench_close(b);
}

/* Three blocks fit an announcement: five make two segments, which end in any order, and keep their own sums. */
static void test_eager_segments(void **state)
{
	struct bench *b = bench_open(2, 16, 0);
	struct announce a = announce_of(TAG, WIRE_EAGER | WIRE_ALL);
	const uint32_t blocks[] = {3, 2}, order[] = {1, 0};
	float data[3 * BLOCK_ELEMS], want[3 * BLOCK_ELEMS];

	(void)state;
	a.count = 5 * BLOCK_ELEMS;
	for (uint32_t i = 0; i < 4; i++) {
		const uint16_t rank = (uint16_t)(i / 2);

		a.segment = rank == 0 ? i % 2 : order[i % 2];
		for (uint32_t k = 0; k < 3 * BLOCK_ELEMS; k++)
			data[k] = (float)(1000 * a.segment + k + rank);
		send_announce(b, rank, &a, data, blocks[a.segment] * BLOCK_BYTES);
		expect_drop(b, WIRE_DROP_NONE);
	}
	for (uint32_t times = 0; times < 2; times++) {
		for (uint32_t frame = 0; frame < 2; frame++) {
			struct plan plan = expect_plan(b, times == 0 ? WIRE_EVERYONE : 0, frame);

			assert_int_equal(plan.segment, order[frame]);
			assert_int_equal(plan.set.blocks_bytes, blocks[plan.segment] * BLOCK_BYTES);
			for (uint32_t k = 0; k < 3 * BLOCK_ELEMS; k++)
				want[k] = (float)(2000 * plan.segment + 2 * k + 1);
			assert_memory_equal(plan.set.blocks, want, plan.set.blocks_bytes);
		}
		pull_all(b);
		send_lacks_plan(b, 0, 0);
		if (times == 0)
			send_lacks_plan(b, 0, 1);
	}
	bench_close(b);
}

/* ---- fixed point ---- */

/* The aggregator adds int32 and does not divide; f32, and does, when a NaN is about. */
static void test_fixed(void **state)
{
	(void)state;
	for (unsigned nonfinite = 0; nonfinite < 2; nonfinite++) {
		struct bench *b = bench_open(2, 16, 0);
		struct announce a = announce_of(TAG, 0);
		const uint64_t words[2] = {1, 0};
		const int32_t bits[2] = {0x3f800000, 0x40400000}; /* 1 and 3 */
		int32_t data[32], got;

		a.form = WIRE_FIXED32;
		a.reduction = REDUCE_AVG;
		a.flags = nonfinite ? WIRE_NONFINITE : 0;
		for (uint16_t rank = 0; rank < 2; rank++)
			send_announce(b, rank, &a, words, 16);
		expect_plan(b, WIRE_EVERYONE, 0);
		for (uint16_t rank = 0; rank < 2; rank++) {
			for (unsigned i = 0; i < 32; i++)
				data[i] = bits[rank];
			send_push(b, rank, 0, data, sizeof(data));
		}
		expect_packet(b, WIRE_RESULT, WIRE_EVERYONE, 0);
		memcpy(&got, b->got.body + 124, 4);
		assert_int_equal(got, nonfinite ? 0x40000000 : 0x7fc00000); /* 2; their sum */
		bench_close(b);
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

static void test_stalls(void **state)
{
	struct bench *b = bench_open(4, 16, 0);
	struct announce a = announce_of(TAG, WIRE_ALL);
	struct channel_stall stall;
	uint8_t data[512] = {0};

	(void)state;
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
	bench_close(b);
}

/* The second segment waits for a worker that takes part, but is silent. */
static void test_stall_later_segment(void **state)
{
	struct bench *b = bench_open(2, 16, 0);
	struct announce a = announce_of(TAG, WIRE_NONE);
	struct channel_stall stall;

	(void)state;
	a.count = (uint64_t)BLOCK_ELEMS * 4032 * 2;
	announce_all(b, &a);
	send_ack_all(b, 1);
	pull_all(b);
	a.segment = 1;
	send_announce(b, 1, &a, NULL, 0);
	expect_stall(b, 0, 1, false);
	/* He is busy with something else: that is no stall. */
	a = announce_of(TAG + 1, WIRE_NONE);
	a.op_slot = 1;
	send_announce(b, 0, &a, NULL, 0);
	assert_false(channel_stalled(b->channel, b->now_us + b->config.stall_us - 1, &stall));
	bench_close(b);
}

/* He pushes frames of another operation, which goes on. */
static void test_stall_pushing(void **state)
{
	struct bench *b = bench_open(2, 16, 0);
	struct announce a = announce_of(TAG, WIRE_NONE), other = announce_of(TAG + 1, WIRE_ALL);
	const uint64_t stall_us = b->config.stall_us;
	struct channel_stall stall;
	uint8_t data[512] = {0};

	(void)state;
	a.count = (uint64_t)BLOCK_ELEMS * 4032 * 2;
	announce_all(b, &a);
	send_ack_all(b, 1);
	other.op_slot = 1;
	announce_all(b, &other);
	a.segment = 1;
	send_announce(b, 1, &a, NULL, 0);
	for (uint16_t rank = 0; rank < 2; rank++)
		send_push(b, rank, 1, data, sizeof(data));
	pull_all(b);
	send_ack(b, 0, 2);
	b->now_us += stall_us * 6 / 10;
	send_ack(b, 1, 2);
	b->now_us += stall_us / 10;
	send_push(b, 0, 2, data, sizeof(data));
	b->now_us += stall_us * 4 / 10;
	assert_false(channel_stalled(b->channel, b->now_us, &stall));
	b->now_us += stall_us * 6 / 10;
	assert_true(channel_stalled(b->channel, b->now_us, &stall));
	bench_close(b);
}

/* An operation that he has no part in at all is one, however busy he is. */
static void test_stall_busy(void **state)
{
	struct bench *b = bench_open(2, 16, 0);
	struct announce a = announce_of(TAG, WIRE_NONE);
	struct channel_stall stall;

	(void)state;
	send_announce(b, 1, &a, NULL, 0);
	b->now_us += b->config.stall_us - 1;
	a.tag++;
	send_announce(b, 0, &a, NULL, 0);
	assert_false(channel_stalled(b->channel, b->now_us, &stall));
	b->now_us++;
	assert_true(channel_stalled(b->channel, b->now_us, &stall));
	assert_true(stall.tag == TAG && stall.rank == 0);
	bench_close(b);
}

/* What `winnow status` shows: the oldest operation, who keeps it, and the slots. */
static void test_look(void **state)
{
	struct bench *b = bench_open(4, 16, 0);
	struct announce a = announce_of(TAG, WIRE_ALL);
	struct channel_view view;
	uint8_t data[512] = {0};

	(void)state;
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
	bench_close(b);
}

/* No frame beyond the window, and credit each time that a quarter of it is free. */
static void test_window(void **state)
{
	struct bench *b = bench_open(1, 8, 0);
	struct announce a = announce_of(TAG, WIRE_ALL);

	(void)state;
	expect_nothing(b);
	announce_all(b, &a);
	assert_int_equal(expect_plan(b, WIRE_EVERYONE, 0).frame_count, FRAMES);
	expect_nothing(b);
	send_push(b, 0, 7, NULL, 0);
	expect_drop(b, WIRE_DROP_LENGTH);
	send_push(b, 0, 8, NULL, 0);
	expect_drop(b, WIRE_DROP_FRAME);
	send_ack(b, 0, 1);
	expect_nothing(b);
	send_ack(b, 0, 2);
	expect_credit(b);
	bench_close(b);
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
static void test_frames_ahead(void **state)
{
	struct bench *b = huge_open();
	struct wire_header head = bench_head(b, 0, WIRE_ANNOUNCE, 0);
	struct announce a = announce_of(TAG, WIRE_ALL);
	const uint32_t fit = AHEAD_MAX / HUGE_FRAMES, first = b->acks[0];
	const struct channel_stats *stats;

	(void)state;
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
	bench_close(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mismatch),
		cmocka_unit_test(test_mismatch_ranks),
		cmocka_unit_test(test_eager),
		cmocka_unit_test(test_eager_lengths),
		cmocka_unit_test(test_eager_narrow),
		cmocka_unit_test(test_eager_segments),
		cmocka_unit_test(test_fixed),
		cmocka_unit_test(test_stalls),
		cmocka_unit_test(test_stall_later_segment),
		cmocka_unit_test(test_stall_pushing),
		cmocka_unit_test(test_stall_busy),
		cmocka_unit_test(test_window),
		cmocka_unit_test(test_look),
		cmocka_unit_test(test_scatter),
		cmocka_unit_test(test_scatter_segments),
		cmocka_unit_test(test_frames_ahead),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
