// SPDX-License-Identifier: BSD-3-Clause
/* test_channel.c - announcements and plans, from workers that are wrong, odd or hostile */

#include "tests/unit/test_channel.h"

#define WORD_BYTES 16 /* of a bitmap of BLOCKS */

/* ---- who may speak ---- */

BENCH_TEST(strangers, bench_open(2, 16, 0))
{
	struct announce a = announce_of(TAG, WIRE_ALL);
	struct wire_header knock;
	struct packet_out out;

	b->tokens[2] = b->tokens[0];
	send_announce(b, 2, &a, NULL, 0);
	expect_drop(b, WIRE_DROP_WORKER);
	send_announce(b, 3, &a, NULL, 0);
	expect_drop(b, WIRE_DROP_WORKER);
	b->tokens[0] ^= 1;
	send_announce(b, 0, &a, NULL, 0);
	expect_drop(b, WIRE_DROP_SEAL);
	b->tokens[0] = b->tokens[1];
	send_announce(b, 0, &a, NULL, 0);
	expect_drop(b, WIRE_DROP_SEAL);
	send_announce(b, 1, &a, NULL, 0);
	expect_drop(b, WIRE_DROP_NONE);
	/* A stranger's acknowledgement is not taken either. */
	b->tokens[0] = 0;
	send_ack(b, 0, 1000);
	expect_drop(b, WIRE_DROP_SEAL);
	knock = bench_head(b, 1, WIRE_KNOCK, 0);
	packet_begin(&out, &knock);
	bench_send(b, &out);
	expect_drop(b, WIRE_DROP_KIND);
	assert_int_equal(channel_stats(b->channel)->received, 7);
	assert_int_equal(channel_stats(b->channel)->received_bytes, 5 * 80 + 48 + 32);
	expect_nothing(b);
}

/* ---- impossible announcements ---- */

static void refuse(struct bench *b, const struct announce *a, enum wire_drop reason)
{
	static const uint8_t words[WORD_BYTES] = {1};

	send_announce(b, 0, a, words, a->flags & (WIRE_ALL | WIRE_NONE) ? 0 : WORD_BYTES);
	expect_drop(b, reason);
	if (reason == WIRE_DROP_OPERATION) {
		struct plan plan = expect_plan(b, 0, 0);

		assert_int_equal(plan.status, WIRE_MISMATCH);
		assert_true(plan.tag == a->tag && plan.mismatch.field != 0);
		assert_true(plan.mismatch.rank_a == 0 && plan.mismatch.rank_b == 0);
	}
	expect_nothing(b);
}

BENCH_TEST(impossible, bench_open(2, 16, 0))
{
	const struct announce good = announce_cut(b, announce_of(TAG, WIRE_ALL));
	struct announce a;

#define REFUSE(field, value) (a = good, a.field = (value), refuse(b, &a, WIRE_DROP_OPERATION))
	REFUSE(dtype, 0);
	REFUSE(dtype, DTYPE_COUNT + 1);
	REFUSE(dtype, 255);
	REFUSE(reduction, 0);
	REFUSE(reduction, REDUCE_COUNT + 1);
	REFUSE(form, 2);
	REFUSE(block_count, 4033);
	REFUSE(block_count, UINT16_MAX);
	REFUSE(segment, 1);
	REFUSE(segment, UINT32_MAX);
	REFUSE(op_slot, 2);
	REFUSE(op_slot, UINT16_MAX);
	REFUSE(generation, 0);
	REFUSE(flags, WIRE_ALL | WIRE_EAGER);   /* more than fits a packet */
	REFUSE(flags, WIRE_ALL | WIRE_SCATTER); /* two workers, but one segment */
#undef REFUSE
	a = good;
	a.flags = WIRE_NONE | WIRE_EAGER;
	a.block_count = 3;
	a.segment_count = WIRE_EAGER_SEGMENTS + 1;
	refuse(b, &a, WIRE_DROP_OPERATION);
	a.segment_count = 1;
	a.form = WIRE_FIXED32;
	refuse(b, &a, WIRE_DROP_OPERATION);
	a = good;
	a.form = WIRE_FIXED32;
	a.dtype = DTYPE_I32;
	refuse(b, &a, WIRE_DROP_OPERATION);
	a.dtype = DTYPE_F32;
	a.reduction = REDUCE_MIN;
	refuse(b, &a, WIRE_DROP_OPERATION);
	a.reduction = REDUCE_AVG;
	a.exponent = WIRE_EXPONENT_MAX + 1;
	refuse(b, &a, WIRE_DROP_OPERATION);
	a.exponent = WIRE_EXPONENT_MIN - 1;
	refuse(b, &a, WIRE_DROP_OPERATION);
	a.flags |= WIRE_NONFINITE; /* it means nothing */
	refuse(b, &a, WIRE_DROP_NONE);
}

/* Section 4.3: of blocks of `block_bytes` a segment has at most so many. */
static void check_longest(struct bench *b, struct announce a, uint32_t most)
{
	a.block_count = (uint16_t)(most + 1);
	refuse(b, &a, WIRE_DROP_OPERATION);
	a.block_count = (uint16_t)most;
	refuse(b, &a, WIRE_DROP_NONE); /* but the other worker is still missing */
}

TEST(longest_segments)
{
	const struct {
		uint32_t block_elems, most;
		uint8_t dtype, form;
	} cases[] = {
		{65536, 64, DTYPE_F64, WIRE_NATIVE},  {8192, 128, DTYPE_F32, WIRE_NATIVE},
		{520, 1984, DTYPE_F32, WIRE_NATIVE},  {1024, 2048, DTYPE_F32, WIRE_FIXED16},
		{1024, 4032, DTYPE_F32, WIRE_FIXED8}, {1, 4032, DTYPE_F32, WIRE_NATIVE},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct bench *b = bench_open(2, 16, 0);
		struct announce a = announce_cut(b, announce_of(TAG, WIRE_ALL));

		a.block_elems = cases[i].block_elems;
		a.dtype = cases[i].dtype;
		a.form = cases[i].form;
		check_longest(b, a, cases[i].most);
		bench_close(b);
	}
}

/* Flags, bitmap and length must fit each other; the worker may then try again. */
BENCH_TEST(bitmap_lengths, bench_open(2, 16, 0))
{
	struct announce a = announce_of(TAG, 0);
	uint64_t words[3] = {UINT64_MAX, (UINT64_C(1) << (BLOCKS - 64)) - 1, 0};

	for (uint32_t bytes = 0; bytes <= 24; bytes++) {
		if (bytes == WORD_BYTES)
			continue;
		send_announce(b, 0, &a, words, bytes);
		expect_drop(b, WIRE_DROP_LENGTH);
	}
	for (unsigned bit = BLOCKS - 64; bit < 64; bit++) {
		uint64_t beyond[2] = {1, UINT64_C(1) << bit};

		send_announce(b, 0, &a, beyond, WORD_BYTES);
		expect_drop(b, WIRE_DROP_LENGTH);
	}
	for (unsigned flags = 1; flags <= 3; flags++) {
		a.flags = (uint8_t)flags;
		send_announce(b, 0, &a, words, flags == 3 ? 0 : WORD_BYTES);
		expect_drop(b, WIRE_DROP_LENGTH);
	}
	a.flags = 0;
	send_announce(b, 1, &a, words, WORD_BYTES);
	expect_drop(b, WIRE_DROP_NONE);
	expect_nothing(b);
	send_announce(b, 0, &a, words, WORD_BYTES);
	expect_drop(b, WIRE_DROP_NONE);
	assert_int_equal(expect_plan(b, WIRE_EVERYONE, 0).flags, WIRE_ALL);
}

/* ---- operations and their slots ---- */

BENCH_TEST(generations, bench_open(1, 64, 0))
{
	struct announce a = announce_of(TAG, WIRE_NONE);
	const uint32_t generations[] = {0x90000000, 0xffffffff, 5, 0x80000004};
	uint32_t frame = 0;

	for (unsigned i = 0; i < 4; i++, frame++) {
		a.generation = generations[i];
		announce_all(b, &a);
		expect_plan(b, WIRE_EVERYONE, frame);
		/* Not before this one is over. */
		a.generation++;
		send_announce(b, 0, &a, NULL, 0);
		expect_drop(b, WIRE_DROP_OPERATION);
		a.generation -= 2;
		send_announce(b, 0, &a, NULL, 0);
		expect_drop(b, WIRE_DROP_STALE);
		send_ack(b, 0, frame + 1);
		expect_drop(b, WIRE_DROP_NONE);
		a.generation++;
		send_announce(b, 0, &a, NULL, 0);
		expect_drop(b, WIRE_DROP_STALE);
		pull_all(b);
		assert_true(channel_idle(b->channel));
		assert_int_equal(channel_stats(b->channel)->operations, i + 1);
	}
}

/*
 * Whoever can send a worker's datagrams once more does so, with all announcements that there have been: none is
 * refused, which would end the job. Frames and generations pass the end of their numbers meanwhile.
 */
BENCH_TEST(replays, bench_open(2, 64, UINT32_MAX - 6))
{
	enum { OPERATIONS = 6, SEGMENTS = 3 };
	struct announce sent[OPERATIONS * SEGMENTS];
	uint32_t count = 0;

	for (uint32_t i = 0; i < OPERATIONS * SEGMENTS; i++) {
		struct announce a = announce_of(TAG + i / SEGMENTS % 2, WIRE_NONE);

		a.op_slot = (uint16_t)(i / SEGMENTS % 2);
		a.generation = UINT32_MAX - 1 + i / SEGMENTS / 2;
		a.generation += a.generation < 2; /* 0 is none */
		a.count = (uint64_t)BLOCK_ELEMS * 4032 * SEGMENTS;
		a.segment = i % SEGMENTS;
		sent[count++] = a;
		announce_all(b, &a);
		for (uint32_t round = 0; round < 2; round++) {
			for (uint32_t k = 0; k < count; k++)
				send_announce(b, (uint16_t)(k % 2), &sent[k], NULL, 0);
			while (bench_pull(b)) {
				struct plan plan;

				if (b->got.kind != WIRE_PLAN)
					continue;
				assert_int_equal(plan_parse(&b->got, &plan), WIRE_DROP_NONE);
				assert_int_equal(plan.status, WIRE_OK);
			}
			if (round == 0)
				send_ack_all(b, UINT32_MAX - 6 + i + 1);
			memcpy(b->drops, channel_stats(b->channel)->drops, sizeof(b->drops));
		}
	}
	assert_int_equal(channel_stats(b->channel)->mismatches, 0);
	assert_int_equal(channel_stats(b->channel)->operations, OPERATIONS);
	assert_true(channel_idle(b->channel));
}

/* Two segments of an operation may be under way, from its first on. */
BENCH_TEST(segment_out_of_turn, bench_open(2, 16, 0))
{
	struct announce a = announce_of(TAG, WIRE_NONE);

	a.count = (uint64_t)BLOCK_ELEMS * 4032 * 3;
	a.segment = 2;
	refuse(b, &a, WIRE_DROP_OPERATION);
}

/* The same slot and generation, but another operation; or the same layout, but another segment. */
BENCH_TEST(contradiction, bench_open(2, 64, 0))
{
	const struct announce good = announce_cut(b, announce_of(TAG, WIRE_ALL));
	struct announce a = good;

	send_announce(b, 0, &good, NULL, 0);
	a.count += 1;
	refuse(b, &a, WIRE_DROP_OPERATION);
	a = good;
	a.dtype = DTYPE_I32;
	refuse(b, &a, WIRE_DROP_OPERATION);
	a = good;
	a.tag++;
	refuse(b, &a, WIRE_DROP_OPERATION);
	a = good;
	a.layout++;
	refuse(b, &a, WIRE_DROP_OPERATION);
	a = good;
	a.block_count--;
	send_announce(b, 1, &a, NULL, 0);
	expect_drop(b, WIRE_DROP_OPERATION);
	assert_int_equal(expect_plan(b, 1, 0).mismatch.field, WIRE_FIELD_LAYOUT);
	send_announce(b, 1, &good, NULL, 0);
	expect_drop(b, WIRE_DROP_NONE);
	expect_plan(b, WIRE_EVERYONE, 0);
}

BENCH_TEST(table_full, bench_open(2, 64, 0))
{
	struct announce a = announce_of(TAG, WIRE_NONE);

	send_announce(b, 0, &a, NULL, 0);
	a.op_slot = 1;
	a.tag = TAG + 1;
	send_announce(b, 0, &a, NULL, 0);
	expect_drop(b, WIRE_DROP_NONE);
	a.op_slot = 0;
	a.tag = TAG + 2;
	send_announce(b, 1, &a, NULL, 0);
	expect_drop(b, WIRE_DROP_FULL);
	a.tag = TAG + 1;
	send_announce(b, 1, &a, NULL, 0);
	expect_drop(b, WIRE_DROP_NONE);
	expect_plan(b, WIRE_EVERYONE, 0);
	send_ack_all(b, 1);
	a.op_slot = 1;
	a.tag = TAG + 2;
	send_announce(b, 1, &a, NULL, 0);
	expect_drop(b, WIRE_DROP_NONE);
	assert_false(channel_idle(b->channel));
}

BENCH_TEST(memory, bench_open(2, 16, 0))
{
	struct channel *untouched = b->channel, *channel = untouched;
	struct channel_config c;

#define IMPOSSIBLE(field, value)                                                                   \
	do {                                                                                       \
		c = b->config;                                                                     \
		c.field = (value);                                                                 \
		assert_int_equal(channel_memory(&c), 0);                                           \
		assert_int_equal(channel_open(&c, &channel), -EINVAL);                             \
		assert_ptr_equal(channel, untouched);                                              \
	} while (0)
	IMPOSSIBLE(worker_count, 0);
	IMPOSSIBLE(worker_count, WIRE_WORKERS_MAX + 1);
	IMPOSSIBLE(payload, WIRE_PAYLOAD_MIN - 1);
	IMPOSSIBLE(payload, WIRE_PAYLOAD_MAX + 1);
	IMPOSSIBLE(window, 2);
	IMPOSSIBLE(window, 24);
	IMPOSSIBLE(window, WIRE_WINDOW_MAX * 2);
	IMPOSSIBLE(op_slots, 0);
	IMPOSSIBLE(op_slots, 1025);
	IMPOSSIBLE(segments_ahead, 0);
	IMPOSSIBLE(segments_ahead, 65);
#undef IMPOSSIBLE
	c = b->config;
	c.window *= 2;
	assert_true(channel_memory(&c) >=
	            channel_memory(&b->config) + (size_t)16 * 2 * WIRE_PAYLOAD_MIN);
	assert_true(channel_memory(&b->config) > (size_t)16 * 2 * WIRE_PAYLOAD_MIN);
}
