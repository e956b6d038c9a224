// SPDX-License-Identifier: BSD-3-Clause
/* test_channel_ops.c - whole operations: workers that disagree, eager ones, stalls, a hostile crowd */

#include "tests/unit/test_channel.h"

/* ---- mismatch: section 11.1 ---- */

/* Worker 0 says `a`, worker 1 says `odd`, worker 2 as worker 0. */
static void check_mismatch(const struct announce *odd, enum wire_field field, uint64_t value_a,
                           uint64_t value_b)
{
	struct bench *b = bench_open(3, 16, 7);
	struct announce a = announce_of(TAG, WIRE_NONE);
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
	struct announce odd;

	(void)state;
#define MISMATCH(field, value, name, a, b)                                                         \
	(odd = announce_of(TAG, WIRE_NONE), odd.field = (value), check_mismatch(&odd, name, a, b))
	MISMATCH(count, 3201, WIRE_FIELD_COUNT, 3200, 3201);
	MISMATCH(dtype, DTYPE_I32, WIRE_FIELD_DTYPE, DTYPE_F32, DTYPE_I32);
	MISMATCH(block_elems, 64, WIRE_FIELD_BLOCK, 32, 64);
	MISMATCH(reduction, REDUCE_MAX, WIRE_FIELD_REDUCTION, REDUCE_SUM, REDUCE_MAX);
	MISMATCH(form, WIRE_FIXED32, WIRE_FIELD_FORM, WIRE_NATIVE, WIRE_FIXED32);
	MISMATCH(shard_count, 3, WIRE_FIELD_SHARDS, 0x10000, 0x30000);
#undef MISMATCH
	odd = announce_of(TAG, WIRE_NONE);
	odd.shard_count = 3;
	odd.shard = 2;
	check_mismatch(&odd, WIRE_FIELD_SHARDS, 0x10000, 0x30002);
	/* Of several differences the first counts. */
	odd.count = 4000;
	odd.reduction = REDUCE_MAX;
	check_mismatch(&odd, WIRE_FIELD_COUNT, 3200, 4000);
}

/* Who differs first is named, whoever comes later. */
static void test_mismatch_ranks(void **state)
{
	struct bench *b = bench_open(3, 16, 0);
	struct announce a = announce_of(TAG, WIRE_NONE);
	struct plan plan;

	(void)state;
	send_announce(b, 2, &a, NULL, 0);
	a.dtype = DTYPE_I32;
	send_announce(b, 1, &a, NULL, 0);
	a.dtype = DTYPE_BF16;
	send_announce(b, 0, &a, NULL, 0);
	plan = expect_plan(b, WIRE_EVERYONE, 0);
	assert_int_equal(plan.mismatch.rank_a, 2);
	assert_int_equal(plan.mismatch.rank_b, 1);
	assert_true(plan.mismatch.value_b == DTYPE_I32);
	bench_close(b);
}

/* ---- eager: section 4.4 ---- */

static struct announce eager_of(enum reduction reduction, uint8_t flags)
{
	struct announce a = announce_of(TAG, WIRE_EAGER | flags);

	a.count = 5;
	a.block_elems = 2;
	a.reduction = (uint8_t)reduction;
	return a;
}

static void check_eager(enum reduction reduction, const float want[4])
{
	struct bench *b = bench_open(2, 16, 0);
	struct announce a = eager_of(reduction, 0);
	const struct {
		uint64_t word;
		float data[4];
	} said[2] = {{5, {1, 2, 3, 0}}, {4, {-10, 20}}};
	const uint64_t united = 5;
	struct plan plan;

	send_announce(b, 1, &a, &said[1], 8 + 8);
	send_announce(b, 1, &a, &said[1], 8 + 8); /* not added again */
	expect_drop(b, WIRE_DROP_DUPLICATE);
	send_announce(b, 0, &a, &said[0], 8 + 16);
	expect_drop(b, WIRE_DROP_NONE);
	for (unsigned times = 0; times < 2; times++) {
		plan = expect_plan(b, times == 0 ? WIRE_EVERYONE : 1, 0);
		assert_int_equal(plan.flags, WIRE_EAGER);
		assert_int_equal(plan.frame_count, 1);
		assert_int_equal(plan.rest_bytes, 8 + 16);
		assert_memory_equal(plan.rest, &united, 8);
		assert_memory_equal(plan.rest + 8, want, 16);
		send_announce(b, 1, &a, &said[1], 8 + 8);
		expect_drop(b, WIRE_DROP_DUPLICATE);
	}
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
	uint16_t data[270];
	struct plan plan;

	(void)state;
	a.count = 270;
	a.block_elems = 1;
	a.dtype = DTYPE_F16;
	a.count = 240; /* with bitmap and head 552 bytes */
	for (uint16_t i = 0; i < 240; i++)
		data[i] = (uint16_t)(0x3c00 + i); /* 1 + i / 1024 */
	for (uint16_t rank = 0; rank < 2; rank++)
		send_announce(b, rank, &a, data, 480);
	plan = expect_plan(b, WIRE_EVERYONE, 0);
	assert_int_equal(plan.rest_bytes, 480);
	for (uint16_t i = 0; i < 240; i++)
		assert_int_equal(plan.rest[i * 2] + plan.rest[i * 2 + 1] * 256, 0x4000 + i);
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
			send_push(b, rank, 0, 1, data, sizeof(data));
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
		send_push(b, rank, 0, 0xf, data, 512);
	assert_true(channel_stalled(b->channel, b->now_us, &stall));
	assert_int_equal(stall.rank, 3);
	assert_int_equal(stall.missing, 1);
	send_push(b, 3, 0, 0xf, data, 512);
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

	(void)state;
	a.count = (uint64_t)BLOCK_ELEMS * 4096 * 2;
	announce_all(b, &a);
	send_ack_all(b, 1);
	pull_all(b);
	a.segment = 1;
	send_announce(b, 1, &a, NULL, 0);
	expect_stall(b, 0, 1, false);
	bench_close(b);
}

/* START may lower what a frame carries, and the window. */
static void test_set_payload(void **state)
{
	struct bench *b = bench_open(1, 64, 0);
	struct announce a = announce_of(TAG, WIRE_ALL);

	(void)state;
	channel_close(b->channel);
	b->config.payload = 1472;
	assert_int_equal(channel_open(&b->config, &b->channel), 0);
	b->config.window = 8;
	b->config.payload = WIRE_PAYLOAD_MIN;
	channel_set_payload(b->channel, WIRE_PAYLOAD_MIN, 8);
	announce_all(b, &a);
	assert_int_equal(expect_plan(b, WIRE_EVERYONE, 0).frame_count, FRAMES);
	expect_nothing(b);
	send_bare(b, 0, WIRE_PUSH, 7, 0xf);
	expect_drop(b, WIRE_DROP_LENGTH);
	send_bare(b, 0, WIRE_PUSH, 8, 0xf);
	expect_drop(b, WIRE_DROP_FRAME);
	send_ack(b, 0, 1);
	expect_nothing(b);
	send_ack(b, 0, 2);
	expect_packet(b, WIRE_CREDIT, WIRE_EVERYONE, 0);
	bench_close(b);
}

/* ---- a crowd ---- */

struct crowd {
	struct bench *b;
	uint64_t words[3][2], united[2];
	int32_t tensor[3][BLOCKS]; /* all elements of a block are alike */
	uint32_t frame_blocks[FRAMES][FRAME_BLOCKS];
	uint32_t frame_count, counts[FRAMES];
	uint32_t first;
	bool done[FRAMES];
};

static uint64_t crowd_mask(const struct crowd *c, uint16_t rank, uint32_t frame)
{
	uint64_t mask = 0;

	for (uint32_t i = 0; i < c->counts[frame]; i++) {
		uint32_t block = c->frame_blocks[frame][i];

		mask |= (c->words[rank][block / 64] >> (block % 64) & 1) << i;
	}
	return mask;
}

static void crowd_push(struct crowd *c, uint16_t rank, uint32_t frame, uint64_t mask)
{
	int32_t data[FRAME_BLOCKS * BLOCK_ELEMS];
	uint32_t used = 0;

	for (uint32_t i = 0; i < c->counts[frame]; i++)
		for (uint32_t e = 0; e < BLOCK_ELEMS && (mask >> i & 1); e++)
			data[used++] = c->tensor[rank][c->frame_blocks[frame][i]];
	send_push(c->b, rank, c->first + frame, mask, data, used * 4);
}

static void crowd_result(struct crowd *c)
{
	uint32_t frame = c->b->got.frame - c->first;

	assert_true(frame < c->frame_count);
	assert_int_equal(c->b->got.body_bytes, c->counts[frame] * BLOCK_BYTES);
	for (uint32_t i = 0; i < c->counts[frame] * BLOCK_ELEMS; i++) {
		uint32_t block = c->frame_blocks[frame][i / BLOCK_ELEMS];
		int32_t got, want = 0;

		for (uint16_t rank = 0; rank < 3; rank++)
			want += c->words[rank][block / 64] >> (block % 64) & 1
			                ? c->tensor[rank][block]
			                : 0;
		memcpy(&got, c->b->got.body + (size_t)i * 4, 4);
		assert_int_equal(got, want);
	}
	c->done[frame] = true;
}

static void crowd_begin(struct crowd *c, uint32_t generation)
{
	struct announce a = announce_of(TAG, 0);
	uint32_t blocks = 0;

	*c = (struct crowd){.b = c->b, .first = c->b->planned};
	a.dtype = DTYPE_I32;
	a.generation = generation;
	for (uint16_t rank = 0; rank < 3; rank++) {
		for (unsigned i = 0; i < BLOCKS; i++) {
			c->tensor[rank][i] = (int32_t)random_bits();
			if (random_below(1 + generation % 4) == 0)
				c->words[rank][i / 64] |= UINT64_C(1) << (i % 64);
		}
		c->words[rank][0] |= 1;
		c->united[0] |= c->words[rank][0];
		c->united[1] |= c->words[rank][1];
		send_announce(c->b, rank, &a, c->words[rank], 16);
	}
	for (uint32_t i = 0; i < BLOCKS; i++) {
		if (!(c->united[i / 64] >> (i % 64) & 1))
			continue;
		c->frame_blocks[blocks / FRAME_BLOCKS][blocks % FRAME_BLOCKS] = i;
		c->counts[blocks++ / FRAME_BLOCKS]++;
	}
	c->frame_count = (blocks + FRAME_BLOCKS - 1) / FRAME_BLOCKS;
	assert_int_equal(expect_plan(c->b, WIRE_EVERYONE, c->first).frame_count, c->frame_count);
}

/* Right pushes in any order and number; between them wrong ones, acks and NACKs at random. */
static void crowd_step(struct crowd *c)
{
	uint16_t rank = (uint16_t)random_below(3);
	uint32_t frame = (uint32_t)random_below(c->frame_count);
	uint64_t mask = crowd_mask(c, rank, frame);
	uint32_t ack = c->b->acks[rank] - c->first;

	switch (random_below(6)) {
	case 0:
		crowd_push(c, rank, frame, random_below(16));
		if (channel_stats(c->b->channel)->drops[WIRE_DROP_LENGTH] > 0)
			fail();
		return;
	case 1:
		send_nack(c->b, rank, c->first + frame - 20, random_bits(),
		          random_bits() & 0x1ffff);
		return;
	case 2:
		send_push(c->b, rank, (uint32_t)random_bits(), mask, c->tensor, 128);
		return;
	case 3:
		if (ack < c->frame_count && c->done[ack])
			send_ack(c->b, rank, c->b->acks[rank] + 1);
		return;
	default:
		if (mask != 0)
			crowd_push(c, rank, frame, mask);
	}
}

static void test_crowd(void **state)
{
	struct crowd c = {.b = bench_open(3, 8, 0xfffff000)};

	(void)state;
	for (uint32_t generation = 1; generation < 300; generation++) {
		crowd_begin(&c, generation);
		while (!channel_idle(c.b->channel)) {
			crowd_step(&c);
			if (random_below(3) == 0)
				while (bench_pull(c.b))
					if (c.b->got.kind == WIRE_RESULT)
						crowd_result(&c);
		}
		for (uint32_t frame = 0; frame < c.frame_count; frame++)
			assert_true(c.done[frame]);
		pull_all(c.b);
	}
	assert_int_equal(channel_stats(c.b->channel)->operations, 299);
	bench_close(c.b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mismatch),     cmocka_unit_test(test_mismatch_ranks),
		cmocka_unit_test(test_eager),        cmocka_unit_test(test_eager_lengths),
		cmocka_unit_test(test_eager_narrow), cmocka_unit_test(test_fixed),
		cmocka_unit_test(test_stalls),       cmocka_unit_test(test_stall_later_segment),
		cmocka_unit_test(test_set_payload),  cmocka_unit_test(test_crowd),
	};

	random_seed();
	return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
