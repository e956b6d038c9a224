/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_channel.h - a channel with the workers' packets made by hand, for the tests of channel_*.c
 *
 * What is received lies in memory of exactly its size, so that sanitizers see a read past it. All
 * that is sent is checked for what every packet must say: base, window, planned, sequence.
 */
#ifndef TESTS_UNIT_TEST_CHANNEL_H
#define TESTS_UNIT_TEST_CHANNEL_H

#include "aggregator/channel/channel.h"
#include "ebpf/geometry.h"
#include "tests/unit/test_machine.h"

#define BENCH_WORKERS_MAX 4

struct bench {
	struct channel *channel;
	struct channel_config config;
	uint64_t tokens[BENCH_WORKERS_MAX];
	uint64_t drops[WIRE_DROP_COUNT]; /* as last looked at */
	uint32_t acks[BENCH_WORKERS_MAX];
	uint32_t rooms[BENCH_WORKERS_MAX]; /* up to which frame all may push, as each has said */
	uint32_t credit;
	uint16_t window; /* what all workers say of their paths */
	uint32_t planned;
	uint16_t sequence;
	uint64_t now_us;
	/* What bench_pull() last returned. */
	struct packet got;
	uint16_t dest, receiver;
	uint8_t bytes[WIRE_PAYLOAD_MAX];
	/* Of each worker: of its datagrams, and of those to it alone. */
	uint64_t said_bytes[BENCH_WORKERS_MAX], drawn_bytes[BENCH_WORKERS_MAX];
};

static inline struct bench *bench_open(uint16_t workers, uint32_t window, uint32_t first_frame)
{
	struct bench *b = calloc(1, sizeof(*b));

	assert_non_null(b);
	b->config = (struct channel_config){
		.id = CHANNEL_ID,
		.worker_count = workers,
		.payload = WIRE_PAYLOAD_MIN,
		.window = window,
		.op_slots = 2,
		.segments_ahead = 2,
		.first_frame = first_frame,
		.group_token = GROUP_TOKEN,
		.tokens = b->tokens,
		.stall_us = 1000000,
		.engine = bitmap_best(),
	};
	for (uint16_t i = 0; i < BENCH_WORKERS_MAX; i++) {
		b->tokens[i] = UINT64_C(0xabcdef0100000000) + i;
		b->acks[i] = b->rooms[i] = first_frame;
	}
	b->planned = b->credit = first_frame;
	b->now_us = 5000000;
	assert_int_equal(channel_open(&b->config, &b->channel), 0);
	return b;
}

static inline void bench_close(struct bench *b)
{
	channel_close(b->channel);
	free(b);
}

#define expect_drop(b, reason)                                                                     \
	drops_expect((b)->drops, channel_stats((b)->channel)->drops, reason, __FILE__, __LINE__)

/* Section 8.4. A worker without a window takes whatever has a slot. */
static inline void bench_room(struct bench *b, const struct packet *packet)
{
	uint32_t window = b->config.window;

	if (packet->window > 0 && packet->window < window)
		window = packet->window;
	if (packet->worker < b->config.worker_count && packet->token == b->tokens[packet->worker] &&
	    packet->edge == b->acks[packet->worker] &&
	    frame_before(b->rooms[packet->worker], packet->edge + window))
		b->rooms[packet->worker] = packet->edge + window;
}

/* Hand a packet over, header and body, as it would come from the network. */
static inline void bench_send(struct bench *b, const struct packet_out *out)
{
	uint8_t *copy = malloc(out->bytes);
	struct packet packet;

	assert_non_null(copy);
	packet_flatten(out, copy);
	assert_int_equal(packet_parse(copy, out->bytes, false, &packet), WIRE_DROP_NONE);
	bench_room(b, &packet);
	if (packet.worker < BENCH_WORKERS_MAX)
		b->said_bytes[packet.worker] += out->bytes;
	channel_receive(b->channel, &packet, b->now_us);
	channel_check(b->channel);
	free(copy);
}

static inline struct wire_header bench_head(const struct bench *b, uint16_t rank, uint8_t kind,
                                            uint32_t frame)
{
	return (struct wire_header){
		.kind = kind,
		.channel = CHANNEL_ID,
		.worker = rank,
		.seal = b->tokens[rank],
		.frame = frame,
		.edge = b->acks[rank],
		.window = b->window,
		.pushed = b->acks[rank],
	};
}

/* `sequence`, and what has been pushed, as the worker says. */
static inline void send_status(struct bench *b, uint16_t rank, const struct status *status,
                               uint16_t sequence, uint32_t pushed)
{
	struct wire_header head = bench_head(b, rank, WIRE_STATUS, status->first);
	struct packet_out out;

	head.sequence = sequence;
	head.pushed = pushed;
	packet_begin(&out, &head);
	packet_put_status(&out, status);
	bench_send(b, &out);
}

static inline void send_ack(struct bench *b, uint16_t rank, uint32_t ack)
{
	struct status status = {.stamp = 1};

	b->acks[rank] = ack;
	send_status(b, rank, &status, 0, ack);
}

/* All frames before `pushed` are sent; how are things? */
static inline void send_ask(struct bench *b, uint16_t rank, uint32_t stamp, uint32_t pushed)
{
	struct status status = {.stamp = stamp, .asks = true};

	send_status(b, rank, &status, 0, pushed);
}

/* Lacks the RESULTs of these frames, though it has seen this sequence. */
static inline void send_lacks(struct bench *b, uint16_t rank, uint32_t first, uint64_t word,
                              uint16_t sequence)
{
	struct status status = {.stamp = 1, .first = first, .word_count = 1, .words = {word}};

	send_status(b, rank, &status, sequence, first + 64);
}

/* Lacks the plan of this frame. */
static inline void send_lacks_plan(struct bench *b, uint16_t rank, uint32_t frame)
{
	struct status status = {.stamp = 1, .first = frame, .word_count = 1, .words = {1}};

	send_status(b, rank, &status, 0, frame);
}

static inline void send_ack_all(struct bench *b, uint32_t ack)
{
	for (uint16_t rank = 0; rank < b->config.worker_count; rank++)
		send_ack(b, rank, ack);
}

static inline void send_push(struct bench *b, uint16_t rank, uint32_t frame, const void *data,
                             uint32_t bytes)
{
	struct wire_header head = bench_head(b, rank, WIRE_PUSH, frame);
	struct packet_out out;

	packet_begin(&out, &head);
	packet_point(&out, data, bytes);
	bench_send(b, &out);
}

/* 100 blocks of f32 to be summed. What it lacks a worker adds when it has cut its tensor: announce_cut(). */
static inline struct announce announce_of(uint64_t tag, uint8_t flags)
{
	return (struct announce){
		.tag = tag,
		.count = (uint64_t)BLOCKS * BLOCK_ELEMS,
		.block_elems = BLOCK_ELEMS,
		.generation = 1,
		.exponent = WIRE_EXPONENT_NONE,
		.dtype = DTYPE_F32,
		.reduction = REDUCE_SUM,
		.flags = flags,
	};
}

/* In a job with one channel; nothing changes if it has been cut, or cannot be. */
static inline struct announce announce_cut(const struct bench *b, struct announce a)
{
	struct geometry_input input = {
		.count = a.count,
		.block_elems = a.block_elems,
		.elem_bytes = dtype_bytes(a.dtype) > 0 ? dtype_bytes(a.dtype) : 4,
		.shard_count = 1,
		.payload = b->config.payload,
		.converted = a.form != WIRE_NATIVE,
		.scatter = a.flags & WIRE_SCATTER ? b->config.worker_count : 0,
	};
	struct geometry cut;

	if (a.segment_count != 0 || !geometry_compute(&input, &cut))
		return a;
	a.layout = geometry_layout(&cut, 0, 1);
	a.segment_count = cut.segment_count;
	a.block_elems = cut.one.tile_columns;
	if (a.segment < a.segment_count)
		a.block_count = (uint16_t)geometry_segment(&cut, a.segment).block_count;
	return a;
}

static inline void send_announce(struct bench *b, uint16_t rank, const struct announce *a,
                                 const void *rest, uint32_t bytes)
{
	struct wire_header head = bench_head(b, rank, WIRE_ANNOUNCE, 0);
	const struct announce whole = announce_cut(b, *a);
	struct packet_out out;

	packet_begin(&out, &head);
	packet_put_announce(&out, &whole);
	packet_point(&out, rest, bytes);
	bench_send(b, &out);
}

static inline void announce_all(struct bench *b, const struct announce *a)
{
	for (uint16_t rank = 0; rank < b->config.worker_count; rank++) {
		send_announce(b, rank, a, NULL, 0);
		expect_drop(b, WIRE_DROP_NONE);
	}
}

/* The smallest of the acks that were sent, all of which the test means to be taken. */
static inline uint32_t bench_base(const struct bench *b)
{
	uint32_t base = b->acks[0];

	for (uint16_t rank = 1; rank < b->config.worker_count; rank++)
		if (frame_before(b->acks[rank], base))
			base = b->acks[rank];
	return base;
}

static inline uint32_t bench_credit(struct bench *b)
{
	uint32_t base = bench_base(b), least = base + b->config.window;

	for (uint16_t rank = 0; rank < b->config.worker_count; rank++)
		if (frame_before(b->rooms[rank], least))
			least = b->rooms[rank];
	if (!frame_before(base, least))
		least = base + 1;
	if (frame_before(b->credit, least))
		b->credit = least;
	return b->credit;
}

/* The next packet, into b->got; false when there is none. */
static inline bool bench_pull(struct bench *b)
{
	struct packet_out out;

	if (!channel_pull(b->channel, b->now_us, &out))
		return false;
	channel_check(b->channel);
	assert_true(out.bytes <= b->config.payload);
	packet_flatten(&out, b->bytes);
	assert_int_equal(packet_parse(b->bytes, out.bytes, true, &b->got), WIRE_DROP_NONE);
	b->dest = out.dest;
	if (out.dest < BENCH_WORKERS_MAX)
		b->drawn_bytes[out.dest] += out.bytes;
	b->receiver = out.receiver;
	assert_int_equal(b->got.channel, CHANNEL_ID);
	assert_int_equal(b->got.worker, out.dest);
	assert_true(b->got.token == GROUP_TOKEN);
	assert_int_equal(b->got.edge, bench_base(b));
	assert_int_equal(b->got.edge + b->got.window, bench_credit(b));
	assert_false(frame_before(b->got.planned, b->planned));
	b->planned = b->got.planned;
	b->sequence =
		(uint16_t)(b->sequence + (b->got.kind == WIRE_RESULT && out.dest == WIRE_EVERYONE));
	assert_int_equal(b->got.sequence, b->sequence);
	return true;
}

/* The next packet is of this kind, for `dest`, about `frame`. */
static inline void expect_packet(struct bench *b, uint8_t kind, uint16_t dest, uint32_t frame)
{
	assert_true(bench_pull(b));
	assert_int_equal(b->got.kind, kind);
	assert_int_equal(b->dest, dest);
	assert_int_equal(b->got.frame, frame);
}

static inline struct plan expect_plan(struct bench *b, uint16_t dest, uint32_t first)
{
	struct plan plan;

	expect_packet(b, WIRE_PLAN, dest, first);
	assert_int_equal(plan_parse(&b->got, &plan), WIRE_DROP_NONE);
	return plan;
}

static inline struct status expect_status(struct bench *b, uint16_t dest, uint32_t stamp)
{
	struct status status;

	assert_true(bench_pull(b));
	assert_int_equal(b->got.kind, WIRE_STATUS_BACK);
	assert_int_equal(b->dest, dest);
	assert_int_equal(status_parse(&b->got, &status), WIRE_DROP_NONE);
	assert_int_equal(status.stamp, stamp);
	assert_false(status.asks);
	return status;
}

/* To everyone: new credit. */
static inline void expect_credit(struct bench *b)
{
	assert_int_equal(expect_status(b, WIRE_EVERYONE, 0).word_count, 0);
}

/* In answer to one with this stamp: nothing is missing. */
static inline void expect_answer(struct bench *b, uint16_t dest, uint32_t stamp)
{
	assert_int_equal(expect_status(b, dest, stamp).word_count, 0);
}

static inline void expect_nothing(struct bench *b)
{
	assert_false(bench_pull(b));
}

static inline void pull_all(struct bench *b)
{
	while (bench_pull(b))
		;
}

/* ---- whole frames in which every element has one value ---- */

static const float zeros[WIRE_PAYLOAD_MAX / 4];

/* All workers announce all 100 blocks: 25 frames of four from `first` on. */
static inline struct bench *dense_open(uint16_t workers, uint32_t window, uint32_t first)
{
	struct bench *b = bench_open(workers, window, first);
	struct announce a = announce_of(TAG, WIRE_ALL);

	announce_all(b, &a);
	assert_int_equal(expect_plan(b, WIRE_EVERYONE, first).frame_count, FRAMES);
	return b;
}

/* A whole frame in which every element is `value`. */
static inline void push_value(struct bench *b, uint16_t rank, uint32_t frame, float value)
{
	float data[FRAME_BYTES / 4];

	for (size_t i = 0; i < FRAME_BYTES / 4; i++)
		data[i] = value;
	send_push(b, rank, frame, data, FRAME_BYTES);
}

/* The next packet is the RESULT of `frame`, and every element is `value`. */
static inline void expect_result(struct bench *b, uint16_t dest, uint32_t frame, float value)
{
	expect_packet(b, WIRE_RESULT, dest, frame);
	assert_int_equal(b->got.body_bytes, FRAME_BYTES);
	for (size_t i = 0; i < FRAME_BYTES / 4; i++) {
		float got;

		memcpy(&got, b->got.body + i * 4, 4);
		assert_true(got == value);
	}
}

#endif /* TESTS_UNIT_TEST_CHANNEL_H */
