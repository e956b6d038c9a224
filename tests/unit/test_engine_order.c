// SPDX-License-Identifier: BSD-3-Clause
/*
 * test_engine_order.c - which operation is announced when: by age, and by priority
 *
 * One worker, one channel, and an aggregator by hand that plans what it wants to and answers
 * each PUSH with the RESULT. All tensors are dense.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/worker/array.h"
#include "client/worker/engine.h"
#include "client/winnow.h"
#include "tests/check/check.h"
#include "tests/flatten.h"
#include "tests/unit/unit.h"

#define BLOCK 32
#define SEGMENT_BLOCKS 4032 /* with the smallest payload */
#define SEGMENT_ELEMS (SEGMENT_BLOCKS * BLOCK)
#define SEGMENT_FRAMES (SEGMENT_BLOCKS / 4) /* four blocks to a frame */
#define SEGMENTS_MAX 24
#define AHEAD 4
#define WINDOW 64
#define TOKEN 1
#define GROUP_TOKEN 99
#define A 1
#define B 2
#define C 3

struct bench {
	struct engine *engine;
	struct bitmap_pool *pool;
	uint64_t now_us;
	uint32_t base, planned, late; /* late: a tag that the other worker has not announced */
	uint32_t done[C + 1];
	char announced[512]; /* "A0 A1 B0 ": for the first time */
	uint32_t segments[C + 1];
	int32_t *data;
};

static int bench_open(void **state)
{
	struct bench *b = calloc(1, sizeof(*b));
	struct stream_config stream = {.shard_count = 1,
	                               .world = 1,
	                               .payload = WIRE_PAYLOAD_MIN,
	                               .window = WINDOW,
	                               .window_start = WINDOW,
	                               .op_slots = 4,
	                               .segments_ahead = AHEAD,
	                               .token = TOKEN,
	                               .group_token = GROUP_TOKEN,
	                               .engine = bitmap_best()};

	assert_non_null(b);
	assert_int_equal(bitmap_pool_open(bitmap_best(), 1, &b->pool), 0);
	assert_int_equal(engine_open(&stream, 1, b->pool, &b->engine), 0);
	b->now_us = 1000000;
	b->data = calloc(SEGMENTS_MAX * SEGMENT_ELEMS, sizeof(*b->data));
	assert_non_null(b->data);
	for (uint32_t i = 0; i < SEGMENTS_MAX * SEGMENT_ELEMS; i++)
		b->data[i] = 1;
	*state = b;
	return 0;
}

static int bench_close(void **state)
{
	struct bench *b = *state;

	engine_close(b->engine);
	bitmap_pool_close(b->pool);
	free(b->data);
	free(b);
	return 0;
}

static void done(struct allreduce *task)
{
	struct bench *b = task->context;

	b->done[task->tag]++;
}

static void submit(struct bench *b, struct allreduce *task, uint64_t tag, uint32_t segments,
                   uint32_t priority)
{
	*task = (struct allreduce){.send = b->data,
	                           .recv = b->data,
	                           .count = (uint64_t)segments * SEGMENT_ELEMS,
	                           .tag = tag,
	                           .priority = priority,
	                           .block_elems = BLOCK,
	                           .dtype = DTYPE_I32,
	                           .reduction = REDUCE_SUM,
	                           .access = &array_access,
	                           .done = done,
	                           .context = b};
	assert_int_equal(engine_submit(b->engine, task, b->now_us), WINNOW_OK);
	engine_check(b->engine);
}

/* ---- the aggregator ---- */

static void deliver(struct bench *b, struct packet_out *out)
{
	uint8_t bytes[WIRE_PAYLOAD_MIN];
	struct packet packet;

	packet_flatten(out, bytes);
	assert_int_equal(packet_parse(bytes, out->bytes, true, &packet), WIRE_DROP_NONE);
	engine_receive(b->engine, 0, &packet, b->now_us);
	engine_check(b->engine);
}

static struct wire_header head_of(const struct bench *b, uint8_t kind, uint32_t frame)
{
	return (struct wire_header){.kind = kind,
	                            .worker = WIRE_EVERYONE,
	                            .seal = GROUP_TOKEN,
	                            .frame = frame,
	                            .edge = b->base,
	                            .window = WINDOW,
	                            .planned = b->planned};
}

static void plan(struct bench *b, const struct packet *packet)
{
	struct plan plan = {.frame_count = SEGMENT_FRAMES, .flags = WIRE_ALL};
	struct wire_header head;
	struct announce announce;
	struct packet_out out;

	assert_int_equal(announce_parse(packet, &announce), WIRE_DROP_NONE);
	if (announce.segment == b->segments[announce.tag]) {
		size_t used = strlen(b->announced);

		snprintf(b->announced + used, sizeof(b->announced) - used, "%c%u ",
		         (char)('A' + announce.tag - A), announce.segment);
		b->segments[announce.tag]++;
	}
	if (announce.tag == b->late)
		return;
	plan.tag = announce.tag;
	plan.segment = announce.segment;
	head = head_of(b, WIRE_PLAN, b->planned);
	b->planned += SEGMENT_FRAMES;
	head.planned = b->planned;
	packet_begin(&out, &head);
	packet_put_plan(&out, &plan);
	deliver(b, &out);
}

static void answer(struct bench *b, const struct packet *packet)
{
	struct wire_header head = head_of(b, WIRE_RESULT, packet->frame);
	uint8_t body[WIRE_PAYLOAD_MIN];
	struct packet_out out;

	memcpy(body, packet->body, packet->body_bytes);
	b->base = packet->frame; /* the only worker has all before it */
	head.edge = b->base;
	packet_begin(&out, &head);
	packet_point(&out, body, packet->body_bytes);
	deliver(b, &out);
}

/* Let the engine and the aggregator talk, until so many PUSHes are answered. */
static void run(struct bench *b, uint32_t pushes)
{
	uint8_t scratch[WIRE_PAYLOAD_MIN], bytes[WIRE_PAYLOAD_MIN];
	struct packet_out out = {.scratch = scratch};
	struct packet packet;

	while (pushes > 0) {
		bool worked = engine_work(b->engine, b->now_us);

		if (!engine_pull(b->engine, 0, 1, b->now_us, &out)) {
			if (!worked)
				return;
			continue;
		}
		packet_flatten(&out, bytes);
		assert_int_equal(packet_parse(bytes, out.bytes, false, &packet), WIRE_DROP_NONE);
		if (packet.kind == WIRE_ANNOUNCE)
			plan(b, &packet);
		if (packet.kind != WIRE_PUSH)
			continue;
		answer(b, &packet);
		pushes--;
	}
}

/* ---- the tests ---- */

TEST_BETWEEN(oldest_first, bench_open, bench_close)
{
	struct bench *b = *state;
	struct allreduce a, c;

	submit(b, &a, A, 6, 0);
	submit(b, &c, C, 6, 0);
	run(b, UINT32_MAX);
	/* As much as may be announced, at once; then what has room again. */
	assert_memory_equal(b->announced, "A0 A1 A2 A3 C0 C1 C2 C3 ", 24);
	assert_int_equal(b->done[A] + b->done[C], 2);
}

TEST_BETWEEN(highest_first, bench_open, bench_close)
{
	struct bench *b = *state;
	struct allreduce a, c, other;

	submit(b, &a, A, 3, 1);
	submit(b, &other, B, 3, 2);
	submit(b, &c, C, 3, 2);
	run(b, UINT32_MAX);
	assert_string_equal(b->announced, "B0 B1 B2 C0 C1 C2 A0 A1 A2 ");
	assert_int_equal(b->done[A] + b->done[B] + b->done[C], 3);
}

/* What comes late overtakes all but what was needed to keep the channel busy. */
TEST_BETWEEN(latest_overtakes, bench_open, bench_close)
{
	struct bench *b = *state;
	struct allreduce a, other, c;

	submit(b, &a, A, 6, 1);
	run(b, 10);
	assert_string_equal(b->announced, "A0 ");
	submit(b, &other, B, 6, 2);
	run(b, SEGMENT_FRAMES);
	submit(b, &c, C, 3, 3);
	run(b, UINT32_MAX);
	assert_memory_equal(b->announced, "A0 B0 C0 C1 C2 B1 B2 ", 21);
	assert_int_equal(b->done[A] + b->done[B] + b->done[C], 3);
}

/* Another worker has not come to the first; nobody waits for it longer than a time-out. */
TEST_BETWEEN(late_worker_holds_up_nobody, bench_open, bench_close)
{
	struct bench *b = *state;
	struct allreduce a, c;

	b->late = C;
	submit(b, &c, C, 6, 9);
	submit(b, &a, A, 6, 1);
	run(b, UINT32_MAX);
	assert_string_equal(b->announced, "C0 ");
	for (uint32_t turn = 0; turn < 100 && b->done[A] == 0; turn++) {
		b->now_us += 50000;
		run(b, UINT32_MAX);
	}
	assert_string_equal(b->announced, "C0 C1 C2 C3 A0 A1 A2 A3 A4 A5 ");
	assert_int_equal(b->done[A], 1);
	b->late = 0;
	b->segments[C] = 0;
	for (uint32_t turn = 0; turn < 10; turn++) {
		b->now_us += 500000;
		run(b, UINT32_MAX);
	}
	assert_int_equal(b->done[C], 1);
}

TEST_BETWEEN(lowest_gets_a_turn, bench_open, bench_close)
{
	struct bench *b = *state;
	struct allreduce a, c;

	submit(b, &a, A, 2, 0);
	submit(b, &c, C, 24, 1);
	run(b, UINT32_MAX);
	assert_non_null(strstr(b->announced, "C15 A0 C16 "));
	assert_non_null(strstr(b->announced, "C23 A1 "));
	assert_int_equal(b->done[A] + b->done[C], 2);
}
