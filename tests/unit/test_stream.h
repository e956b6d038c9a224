/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_stream.h - a stream with the aggregator's packets made by hand, for the tests of stream*.c
 *
 * Rank 1 of 2, one channel, the smallest payload: blocks of 32 f32 travel four to a frame. Packets
 * and buffers have exactly their sizes, so that sanitizers see what goes beyond them.
 */
#ifndef TESTS_UNIT_TEST_STREAM_H
#define TESTS_UNIT_TEST_STREAM_H

#include "client/worker/array.h"
#include "client/worker/stream.h"
#include "client/winnow.h"
#include "tests/unit/test_machine.h"

#define TOKEN UINT64_C(0x7070707070707070)
#define RANK 1
#define POISON 0xa5

struct bench {
	struct stream *stream;
	struct stream_config config;
	uint64_t drops[WIRE_DROP_COUNT]; /* as last looked at */
	uint64_t now_us;
	/* What the aggregator says in every packet. */
	uint32_t base, planned;
	uint16_t window, sequence;
	/* What bench_pull() last returned. */
	struct packet got;
	uint8_t bytes[WIRE_PAYLOAD_MAX];
	uint8_t scratch[WIRE_PAYLOAD_MAX];
};

static inline struct bench *bench_open(uint32_t window, uint32_t first_frame)
{
	struct bench *b = calloc(1, sizeof(*b));

	assert_non_null(b);
	b->config = (struct stream_config){
		.channel = CHANNEL_ID,
		.shard_count = 1,
		.rank = RANK,
		.world = 2,
		.payload = WIRE_PAYLOAD_MIN,
		.window = window,
		.window_start = window,
		.op_slots = 2,
		.segments_ahead = 2,
		.first_frame = first_frame,
		.token = TOKEN,
		.group_token = GROUP_TOKEN,
		.engine = bitmap_best(),
	};
	memset(b->scratch, POISON, sizeof(b->scratch));
	b->now_us = 5000000;
	b->base = b->planned = first_frame;
	b->window = (uint16_t)window;
	assert_int_equal(stream_open(&b->config, &b->stream), 0);
	return b;
}

static inline void bench_close(struct bench *b)
{
	stream_close(b->stream);
	free(b);
}

#define expect_drop(b, reason)                                                                     \
	drops_expect((b)->drops, stream_stats((b)->stream)->drops, reason, __FILE__, __LINE__)

/* ---- what the aggregator sends ---- */

static inline struct wire_header bench_head(const struct bench *b, uint8_t kind, uint32_t frame)
{
	return (struct wire_header){
		.kind = kind,
		.channel = CHANNEL_ID,
		.worker = WIRE_EVERYONE,
		.seal = GROUP_TOKEN,
		.frame = frame,
		.edge = b->base,
		.window = b->window,
		.sequence = b->sequence,
		.planned = b->planned,
	};
}

static inline struct allreduce *bench_send(struct bench *b, const struct packet_out *out)
{
	uint8_t *copy = malloc(out->bytes);
	struct allreduce *task;
	struct packet packet;

	assert_non_null(copy);
	packet_flatten(out, copy);
	assert_int_equal(packet_parse(copy, out->bytes, true, &packet), WIRE_DROP_NONE);
	task = stream_receive(b->stream, &packet, b->now_us);
	stream_check(b->stream);
	free(copy);
	return task;
}

static inline struct allreduce *send_head(struct bench *b, const struct wire_header *head,
                                          const void *data, uint32_t bytes)
{
	struct packet_out out;

	packet_begin(&out, head);
	packet_point(&out, data, bytes);
	return bench_send(b, &out);
}

/* A STATUS in answer to the one with this stamp, or of itself, that lists these frames. */
static inline void send_status(struct bench *b, uint16_t worker, uint32_t stamp, uint32_t first,
                               uint64_t word)
{
	struct status status = {
		.stamp = stamp, .first = first, .word_count = word != 0, .words = {word}};
	struct wire_header head = bench_head(b, WIRE_STATUS_BACK, first);
	struct packet_out out;

	head.worker = worker;
	packet_begin(&out, &head);
	packet_put_status(&out, &status);
	assert_null(bench_send(b, &out));
}

static inline void send_credit(struct bench *b)
{
	send_status(b, WIRE_EVERYONE, 0, 0, 0);
}

static inline struct allreduce *send_result(struct bench *b, uint32_t frame, const void *data,
                                            uint32_t bytes)
{
	struct wire_header head = bench_head(b, WIRE_RESULT, frame);

	return send_head(b, &head, data, bytes);
}

static inline void send_want(struct bench *b, uint32_t first, uint64_t word)
{
	send_status(b, RANK, 0, first, word);
}

static inline struct plan plan_of(uint64_t tag, uint32_t frame_count, uint8_t flags)
{
	return (struct plan){
		.tag = tag,
		.frame_count = frame_count,
		.exponent = WIRE_EXPONENT_NONE,
		.flags = flags,
	};
}

static inline struct allreduce *send_plan(struct bench *b, uint32_t first, const struct plan *plan,
                                          const void *rest, uint32_t bytes)
{
	struct wire_header head = bench_head(b, WIRE_PLAN, first);
	struct packet_out out;

	packet_begin(&out, &head);
	packet_put_plan(&out, plan);
	packet_point(&out, rest, bytes);
	return bench_send(b, &out);
}

/* ---- what the stream sends ---- */

static inline bool bench_pull(struct bench *b)
{
	struct packet_out out = {.scratch = b->scratch};

	if (!stream_pull(b->stream, b->now_us, &out))
		return false;
	stream_check(b->stream);
	assert_true(out.bytes <= b->config.payload);
	packet_flatten(&out, b->bytes);
	assert_int_equal(packet_parse(b->bytes, out.bytes, false, &b->got), WIRE_DROP_NONE);
	assert_int_equal(b->got.channel, CHANNEL_ID);
	assert_int_equal(b->got.worker, RANK);
	assert_true(b->got.token == TOKEN);
	return true;
}

static inline void expect_packet(struct bench *b, uint8_t kind, uint32_t frame)
{
	assert_true(bench_pull(b));
	assert_int_equal(b->got.kind, kind);
	assert_int_equal(b->got.frame, frame);
}

/* The STATUS in b->got. */
static inline struct status got_status(const struct bench *b)
{
	struct status status;

	assert_int_equal(b->got.kind, WIRE_STATUS);
	assert_int_equal(status_parse(&b->got, &status), WIRE_DROP_NONE);
	assert_int_equal(status.stamp, (uint32_t)b->now_us | 1);
	return status;
}

/* The next packet is a STATUS that lists nothing. */
static inline void expect_status(struct bench *b, bool asks)
{
	struct status status;

	assert_true(bench_pull(b));
	status = got_status(b);
	assert_int_equal(status.word_count, 0);
	assert_int_equal(status.asks, asks);
}

/* It lists these frames, and asks. */
static inline void expect_lacks(struct bench *b, uint32_t first, uint64_t word, uint16_t sequence)
{
	struct status status;

	assert_true(bench_pull(b));
	status = got_status(b);
	assert_true(status.asks);
	assert_int_equal(status.word_count, 1);
	assert_int_equal(status.first, first);
	assert_true(status.words[0] == word);
	assert_int_equal(b->got.sequence, sequence);
}

static inline void expect_nothing(struct bench *b)
{
	assert_false(bench_pull(b));
}

/* Whatever there is to send now, but no PUSH. */
static inline void pull_all(struct bench *b)
{
	while (bench_pull(b))
		assert_int_not_equal(b->got.kind, WIRE_PUSH);
}

/* ---- operations ---- */

/* `count` f32 that are 1, 2, 3..; the result is poisoned. */
static inline struct allreduce *task_open(const struct bench *b, uint64_t count)
{
	struct allreduce *task = calloc(1, sizeof(*task));
	struct geometry_input input = {
		.count = count,
		.block_elems = BLOCK_ELEMS,
		.elem_bytes = 4,
		.shard_count = b->config.shard_count,
		.payload = b->config.payload,
	};
	float *send = malloc(count > 0 ? count * 4 : 1);

	assert_true(task != NULL && send != NULL);
	for (uint64_t i = 0; i < count; i++)
		send[i] = (float)(i + 1);
	task->send = send;
	task->recv = malloc(count > 0 ? count * 4 : 1);
	assert_non_null(task->recv);
	memset(task->recv, POISON, count * 4);
	task->count = count;
	task->tag = TAG;
	task->block_elems = BLOCK_ELEMS;
	task->dtype = DTYPE_F32;
	task->reduction = REDUCE_SUM;
	task->access = &array_access;
	task->shards_left = 1;
	assert_true(geometry_compute(&input, &task->cut));
	return task;
}

static inline void task_close(struct allreduce *task)
{
	free((void *)(uintptr_t)task->send);
	free(task->recv);
	free(task);
}

/* Announce segment 0 with this bitmap, and take the announcement. */
static inline void task_begin(struct bench *b, struct allreduce *task, const uint64_t *bits)
{
	struct stream_scan scan = {.bits = bits, .exponent = WIRE_EXPONENT_NONE};

	stream_begin(b->stream, task);
	stream_announce(b->stream, task, 0, &scan, b->now_us);
	expect_packet(b, WIRE_ANNOUNCE, 0);
}

/* A hundred blocks, of which this worker has those in `bits`, and the union all. */
static inline struct allreduce *task_planned(struct bench *b, const uint64_t *bits)
{
	struct allreduce *task = task_open(b, (uint64_t)BLOCKS * BLOCK_ELEMS);
	struct plan plan = plan_of(TAG, FRAMES, WIRE_ALL);

	task_begin(b, task, bits);
	assert_null(send_plan(b, b->planned, &plan, NULL, 0));
	expect_drop(b, WIRE_DROP_NONE);
	b->planned += FRAMES;
	return task;
}

static const uint64_t all_bits[2] = {UINT64_MAX, (UINT64_C(1) << (BLOCKS - 64)) - 1};
static const uint64_t no_bits[2];

static inline bool is_poison(const void *data, size_t bytes)
{
	const uint8_t *at = data;

	for (size_t i = 0; i < bytes; i++)
		if (at[i] != POISON)
			return false;
	return true;
}

#endif /* TESTS_UNIT_TEST_STREAM_H */
