// SPDX-License-Identifier: BSD-3-Clause
/* test_channel_lacks.c - what workers lack and ask for again, and what of it they get */

#include <time.h>

#include "aggregator/channel/channel_state.h"
#include "tests/flatten.h"
#include "tests/unit/test_channel.h"

/* By sequence: sent to all before the latest that the worker has seen, or not. */
BENCH_TEST(lacks_sequence, dense_open(2, 16, 0))
{
	for (uint32_t frame = 0; frame < 3; frame++)
		for (uint16_t rank = 0; rank < 2; rank++)
			push_value(b, rank, frame, 1);
	send_lacks(b, 1, 0, 7, 0xffff); /* none has been sent: all are on their way */
	send_lacks(b, 1, 0, 7, 0);
	expect_drop(b, WIRE_DROP_NONE);
	for (uint32_t frame = 0; frame < 3; frame++)
		expect_result(b, WIRE_EVERYONE, frame, 2);
	expect_nothing(b);
	send_lacks(b, 1, 0, 7, 0);
	expect_nothing(b);
	send_lacks(b, 1, 0, 7, 2);
	expect_result(b, 1, 0, 2);
	expect_result(b, 1, 1, 2);
	expect_nothing(b);
	send_lacks(b, 1, 1, 3, 0x8004); /* far behind, by serial numbers */
	expect_nothing(b);
	send_lacks(b, 1, 0, 4, 3);
	expect_result(b, 1, 2, 2);
	expect_nothing(b);
	/* What all have is not sent again; what has not been sent is on its way in its slot, too. */
	send_ack_all(b, 1);
	send_lacks(b, 1, 0, 1, 3);
	expect_nothing(b);
	push_value(b, 0, 16, 3);
	push_value(b, 1, 16, 4);
	send_lacks(b, 1, 16, 1, 3);
	expect_result(b, WIRE_EVERYONE, 16, 7);
	expect_nothing(b);
}

/* What all have acknowledged is over, even while it still lies in its slot. */
BENCH_TEST(lacks_before_base, dense_open(1, 64, 0))
{
	push_value(b, 0, 0, 1);
	expect_result(b, WIRE_EVERYONE, 0, 1);
	send_lacks(b, 0, 0, 1, 1);
	expect_result(b, 0, 0, 1);
	send_ack(b, 0, 1);
	send_lacks(b, 0, 0, 1, 1);
	expect_nothing(b);
}

/* 70,000 results: sequences pass 65,535 and go on from 0. */
BENCH_TEST(sequence_wraps, bench_open(1, 16, UINT32_MAX - 1000))
{
	struct announce a = announce_of(TAG, WIRE_ALL);
	uint32_t frame = UINT32_MAX - 1000;

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

/* All 16 frames of the window are complete, and nobody has acknowledged any. */
static struct bench *complete_open(uint16_t workers)
{
	struct bench *b = dense_open(workers, 16, 0);

	for (uint32_t frame = 0; frame < 16; frame++)
		for (uint16_t rank = 0; rank < workers; rank++)
			push_value(b, rank, frame, 1);
	pull_all(b);
	return b;
}

/*
 * What is asked for again is sent again: to each worker a window, then as much as it earns by what it sends, however
 * long it waits, and by what it acknowledges.
 */
TEST(lacks_flood)
{
	const uint32_t lacks_bytes = WIRE_HEADER_BYTES + WIRE_STATUS_BYTES + 8;
	const uint32_t result_bytes = WIRE_HEADER_BYTES + FRAME_BLOCKS * BLOCK_BYTES;
	const uint32_t left_bytes = 16 * (WIRE_PAYLOAD_MIN - result_bytes);
	struct bench *b = complete_open(2);
	uint32_t earned = 0;

	assert_int_equal(flood(b, 0, 1), 16);
	assert_int_equal(flood(b, 1, 1), 16); /* each for itself */
	for (uint32_t i = 1; i <= 1000; i++) {
		b->now_us += 400000;
		earned += flood(b, 0, 1);
		assert_int_equal(earned,
		                 (left_bytes + EARNED_BY_BYTE * i * lacks_bytes) / result_bytes);
	}
	/* What it has earned beyond whole RESULTs stays; its ack has bytes too. */
	send_ack(b, 0, 3);
	assert_in_range(flood(b, 0, 1), 3 * EARNED_BY_ACK, 3 * EARNED_BY_ACK + 2);
	assert_true(channel_stats(b->channel)->drops[WIRE_DROP_FULL] > 1000);
	bench_close(b);
}

/* What is asked for again while the table of replies is full is not sent, and costs nothing. */
BENCH_TEST(lacks_table_full, complete_open(1))
{
	for (uint32_t stamp = 1; stamp <= 1024; stamp++)
		send_ask(b, 0, stamp, 0);
	expect_drop(b, WIRE_DROP_NONE);
	send_lacks(b, 0, 0, 0xffff, b->sequence);
	assert_int_equal(channel_stats(b->channel)->drops[WIRE_DROP_FULL], 16);
	pull_all(b);
	assert_int_equal(flood(b, 0, 1), 16);
}

/* Nor do PUSHes cost anything that an answer would list, while there is no room for the answer. */
BENCH_TEST(wants_table_full, dense_open(2, 16, 0))
{
	for (uint32_t stamp = 1; stamp <= 1024; stamp++)
		send_ask(b, 0, stamp, 0);
	send_ask(b, 1, 1, 16);
	expect_drop(b, WIRE_DROP_FULL);
	assert_int_equal(b->channel->members[1].earned, 16 * WIRE_PAYLOAD_MIN);
}

/*
 * A worker that never acknowledges sends whatever draws most, a little or much of it, at any time. Over any span it
 * draws a window and eight bytes for each of its own at the most, STATUSes to it included.
 */
BENCH_TEST(draws_little, complete_open(2))
{
	const uint64_t window_bytes = 16 * WIRE_PAYLOAD_MIN;
	uint64_t said = b->said_bytes[0], drawn = b->drawn_bytes[0];
	int64_t above = 0; /* of the span that ends now, the one in which most was drawn */
	struct announce a = announce_of(TAG, WIRE_ALL);
	uint64_t all_drawn;

	for (uint32_t i = 0; i < 20000; i++) {
		switch (random_bits() % 6) {
		case 0:
			send_lacks(b, 0, 0, random_bits(), b->sequence);
			break;
		case 1:
			send_lacks_plan(b, 0, (uint32_t)(random_bits() % 16));
			break;
		case 2:
			a.count = BLOCKS * BLOCK_ELEMS + random_bits() % 2; /* one more: refused */
			send_announce(b, 0, &a, NULL, 0);
			break;
		case 3:
			send_ask(b, 0, i, 16);
			break;
		case 4:
			push_value(b, 0, (uint32_t)(random_bits() % 16), 1);
			break;
		default:
			b->now_us += random_bits() % 2 == 0 ? 100 : 10000000;
		}
		if (random_bits() % 20 > 0)
			continue;
		pull_all(b);
		above += (int64_t)(b->drawn_bytes[0] - drawn) -
		         8 * (int64_t)(b->said_bytes[0] - said);
		above = above > 0 ? above : 0;
		assert_true(above <= (int64_t)window_bytes);
		said = b->said_bytes[0];
		drawn = b->drawn_bytes[0];
	}
	all_drawn = b->drawn_bytes[0];
	assert_true(all_drawn > window_bytes);
	assert_int_equal(b->drawn_bytes[1], 0);
}

/* The same of PUSHes that it is asked for again: none of them arrives, and it asks without end. */
BENCH_TEST(wants_little, dense_open(1, 16, 0))
{
	uint64_t listed = 0;

	for (uint32_t i = 1; i <= 5000; i++) {
		b->now_us += 1000;
		send_ask(b, 0, i, 16);
		while (bench_pull(b)) {
			struct status status;

			assert_int_equal(status_parse(&b->got, &status), WIRE_DROP_NONE);
			for (uint32_t word = 0; word < status.word_count; word++)
				listed += (uint64_t)__builtin_popcountll(status.words[word]);
		}
	}
	assert_in_range(listed * WIRE_PAYLOAD_MIN / LISTED_SHARE, 16 * WIRE_PAYLOAD_MIN,
	                16 * WIRE_PAYLOAD_MIN + EARNED_BY_BYTE * b->said_bytes[0]);
}

/* Nothing that was sent again has arrived, and it has used up what it had; then the path is good again. */
BENCH_TEST(lacks_recovers, complete_open(1))
{
	uint32_t ack = 0, asks = 0;

	flood(b, 0, 100);
	while (ack < 16) {
		send_lacks(b, 0, ack, 0xffffu >> ack, b->sequence);
		asks++;
		while (bench_pull(b))
			if (b->got.kind == WIRE_RESULT && b->got.frame == ack)
				ack++;
		send_ack(b, 0, ack);
	}
	assert_in_range(asks, 4, 10);
}

/* Who gets on has as much sent again as it has lost. */
BENCH_TEST(lacks_honest, bench_open(1, 16, 0))
{
	struct announce a = announce_of(TAG, WIRE_ALL);

	a.count = UINT64_C(1000) * FRAME_BLOCKS * BLOCK_ELEMS;
	announce_all(b, &a);
	pull_all(b);
	for (uint32_t frame = 0; frame < 1000; frame++) {
		push_value(b, 0, frame, 1);
		pull_all(b);
		for (uint32_t i = 0; i < 2; i++) { /* the first is lost once more */
			send_lacks(b, 0, frame, 1, b->sequence);
			expect_result(b, 0, frame, 1);
			expect_nothing(b);
			b->now_us += 10;
		}
		send_ack(b, 0, frame + 1);
		pull_all(b);
	}
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
TEST(lacks_plans)
{
	struct bench *few = hollow_open(1), *many = hollow_open(32);

	for (uint32_t frame = 0; frame < 32 * 64; frame += 31) {
		send_lacks_plan(many, 0, frame);
		assert_int_equal(expect_plan(many, 0, frame).segment, frame % 64);
		expect_nothing(many);
		for (uint32_t i = 0; i < 2; i++) /* it earns the next one */
			send_ask(many, 0, 1, 0);
		pull_all(many);
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

static void expect_wants(struct bench *b, uint16_t dest, uint32_t stamp, uint32_t first,
                         uint64_t word)
{
	struct status status = expect_status(b, dest, stamp);

	assert_int_equal(status.word_count, 1);
	assert_int_equal(status.first, first);
	assert_true(status.words[0] == word);
}

/* Who asks is told what is missing of its own PUSHes, as far as it has pushed; nothing of others'. */
BENCH_TEST(wants, dense_open(2, 16, UINT32_MAX - 1))
{
	const uint32_t first = UINT32_MAX - 1;

	push_value(b, 0, first + 1, 1);
	push_value(b, 1, first + 2, 1);
	send_ask(b, 0, 5, first + 4);
	expect_wants(b, 0, 5, first, 0xd);
	send_ask(b, 0, 6, first + 3);
	expect_wants(b, 0, 6, first, 5);
	send_ask(b, 1, 7, first + 1);
	expect_wants(b, 1, 7, first, 1);
	send_ask(b, 1, 8, first + 17); /* only 16 have a slot: that cannot be */
	assert_int_equal(expect_status(b, 1, 8).word_count, 0);
	send_ask(b, 1, 9, first + 16);
	expect_wants(b, 1, 9, first, 0xfffb);
	/* From its ack on. */
	b->acks[1] = first + 4;
	send_ask(b, 1, 10, first + 16);
	expect_wants(b, 1, 10, first + 4, 0xfff);
	assert_int_equal(channel_stats(b->channel)->wants, 5);
	expect_drop(b, WIRE_DROP_NONE);
	expect_nothing(b);
}

/* What fits one STATUS; the rest when it is asked for again. */
BENCH_TEST(wants_many, bench_open(1, 2048, 0))
{
	struct announce a = announce_of(TAG, WIRE_ALL);
	struct status status;

	a.count = UINT64_C(1100) * FRAME_BLOCKS * BLOCK_ELEMS;
	announce_all(b, &a);
	pull_all(b);
	send_ask(b, 0, 3, 1000);
	status = expect_status(b, 0, 3);
	assert_int_equal(status.word_count, 16);
	assert_true(status.first == 0 && status.words[0] == UINT64_MAX);
}

/* Nonsense about what has been pushed and acknowledged does not make it look for long. */
BENCH_TEST(wants_nonsense, dense_open(2, 16, 0))
{
	for (uint32_t i = 0; i < 200; i++) {
		b->now_us += 5000;
		send_ask(b, (uint16_t)(i % 2), 1 + i, (uint32_t)random_bits());
		while (bench_pull(b))
			assert_int_equal(b->got.kind, WIRE_STATUS_BACK);
	}
}

/* Of a frame's parts and owners: who has no block in it is not asked for one. */
BENCH_TEST(want_owners, bench_open(2, 16, 0))
{
	struct announce a = announce_of(TAG, 0);
	const uint64_t words[2][2] = {{1, 0}, {0, 1}};
	uint8_t body[20] = {0xff};
	struct packet packet = {.kind = WIRE_STATUS, .token = b->tokens[0], .body = body};

	a.count = 300 * 100;
	a.block_elems = 300; /* 1200 bytes: three parts */
	for (uint16_t rank = 0; rank < 2; rank++)
		send_announce(b, rank, &a, words[rank], 16);
	assert_int_equal(expect_plan(b, WIRE_EVERYONE, 0).frame_count, 6);
	send_ask(b, 0, 1, 6);
	expect_wants(b, 0, 1, 0, 7);
	send_ask(b, 1, 1, 6);
	expect_wants(b, 1, 1, 3, 7);
	packet.body_bytes = 20;
	channel_receive(b->channel, &packet, b->now_us);
	expect_drop(b, WIRE_DROP_LENGTH);
	/* Each part has its own length. */
	send_push(b, 0, 2, zeros, 552);
	expect_drop(b, WIRE_DROP_LENGTH);
	send_push(b, 0, 2, zeros, 1200 - 2 * 552);
	expect_drop(b, WIRE_DROP_NONE);
	expect_packet(b, WIRE_RESULT, WIRE_EVERYONE, 2);
	assert_int_equal(b->got.body_bytes, 1200 - 2 * 552);
}

/* An answer says for how long its STATUS has been here, and how many of the worker's came marked. */
BENCH_TEST(answer_of_path, dense_open(2, 16, 0))
{
	struct packet packet = {
		.kind = WIRE_PUSH, .worker = 1, .token = b->tokens[1], .marked = true};
	struct wire_header head = bench_head(b, 1, WIRE_STATUS, 0);
	struct packet_out out;
	struct status status;
	uint8_t bytes[64];

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
}
