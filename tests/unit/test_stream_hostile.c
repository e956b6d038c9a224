// SPDX-License-Identifier: BSD-3-Clause
/*
 * test_stream_hostile.c - packets that are right, nearly right and wrong, in any order
 *
 * Whatever comes: nothing is written but the result, what is sent keeps within the credit that was
 * given, and as long as an operation is under way the stream has a time at which it acts again.
 */

#include "tests/unit/test_stream.h"

#define OPS 2
#define SEGMENTS_MAX 3
#define SEGMENT_WORDS_MAX (WIRE_SEGMENT_BLOCKS_MAX / 64)

struct hostile {
	struct bench *b;
	struct allreduce *tasks[OPS];
	uint32_t announced[OPS]; /* segments */

	uint32_t ack;
	uint64_t finished, failed;
};

/* One of a few sizes: one segment, one and a bit, and three; parts; eager; nothing. */
static struct allreduce *hostile_task(const struct hostile *h, uint32_t slot)
{
	const struct {
		uint64_t count;
		uint32_t block_elems;
	} sizes[] = {{3200, 32}, {3197, 32}, {70000, 16384}, {1310720, 16384}, {5, 2}, {0, 8}};
	size_t which = random_below(6);
	struct allreduce *task = task_open(h->b, sizes[which].count);
	struct geometry_input input = {
		.count = task->count,
		.block_elems = sizes[which].block_elems,
		.elem_bytes = 4,
		.shard_count = 1,
		.payload = WIRE_PAYLOAD_MIN,
	};

	task->form = random_below(3) == 0 && task->count > 5 ? WIRE_FIXED32 : WIRE_NATIVE;
	input.converted = task->form == WIRE_FIXED32;
	task->block_elems = input.block_elems;
	task->reduction = random_below(2) ? REDUCE_SUM : REDUCE_AVG;
	assert_true(geometry_compute(&input, &task->cut));
	task->slot = slot;
	task->tag = TAG + slot;
	return task;
}

static void random_words(uint64_t words[SEGMENT_WORDS_MAX], uint32_t count)
{
	uint64_t style = random_below(4);

	memset(words, 0, SEGMENT_WORDS_MAX * 8);
	for (uint32_t i = 0; i < count; i++)
		if (style == 0 || (style < 3 && random_below(3) == 0))
			words[i / 64] |= UINT64_C(1) << (i % 64);
}

/* The engine's part: begin what can begin, announce what has room. */
static void hostile_submit(struct hostile *h)
{
	uint64_t words[SEGMENT_WORDS_MAX];

	for (uint32_t slot = 0; slot < OPS; slot++) {
		struct stream_scan scan = {words, (int16_t)(5 - random_below(10)), false, NULL};
		struct allreduce *task = h->tasks[slot];

		if (task == NULL && stream_slot_free(h->b->stream, slot)) {
			task = h->tasks[slot] = hostile_task(h, slot);
			h->announced[slot] = 0;
			stream_begin(h->b->stream, task);
		}
		if (task == NULL || h->announced[slot] == task->cut.segment_count ||
		    !stream_ask_room(h->b->stream, task, h->announced[slot]))
			continue;
		random_words(words, geometry_segment(&task->cut, h->announced[slot]).block_count);
		stream_announce(h->b->stream, task, h->announced[slot]++, &scan, h->b->now_us);
	}
}

static void hostile_end(struct hostile *h, struct allreduce *task)
{
	if (task->status != 0) { /* that would end the job: the stream is as it was */
		task->status = 0;
		h->failed++;
		return;
	}
	h->tasks[task->slot] = NULL;
	h->finished++;
	task_close(task);
}

/* ---- what comes ---- */

static uint64_t hostile_drops(const struct hostile *h)
{
	uint64_t count = 0;

	for (unsigned i = 0; i < WIRE_DROP_COUNT; i++)
		count += stream_stats(h->b->stream)->drops[i];
	return count;
}

/* The union is often all: then it holds what was announced. */
static void random_plan(struct hostile *h)
{
	uint32_t slot = (uint32_t)random_below(OPS);
	const struct allreduce *task = h->tasks[slot];
	uint32_t segment = (uint32_t)random_below(SEGMENTS_MAX), blocks, frames;
	uint32_t first = h->b->planned + (uint32_t)(random_below(60) == 0 ? random_below(40) : 0);
	struct plan plan = plan_of(TAG + slot, 1, WIRE_ALL);
	static uint8_t rest[WIRE_PAYLOAD_MAX];
	uint32_t bytes = random_below(8) == 0 ? (uint32_t)random_below(500) : 0;
	struct allreduce *done;
	uint64_t drops;

	if (task == NULL)
		return;
	blocks = segment < task->cut.segment_count
	                 ? geometry_segment(&task->cut, segment).block_count
	                 : 0;
	frames = geometry_frame_count(&task->cut.one.frames, blocks);
	plan.segment = segment;
	plan.frame_count = random_below(8) == 0 ? 1 + (uint32_t)random_below(300) : frames;
	plan.exponent = (int16_t)(random_below(8) == 0 ? random_bits() : 5);
	if (random_below(40) == 0)
		plan.status = WIRE_MISMATCH;
	if (task->cut.eager) {
		plan.frame_count = 1;
		plan.flags = WIRE_EAGER | (blocks > 0 ? WIRE_ALL : WIRE_NONE);
		bytes = blocks * task->cut.one.frames.block_bytes;
	}
	if (random_below(8) == 0)
		plan.flags = (uint8_t)random_below(16);
	if (plan.status == WIRE_MISMATCH)
		bytes = 0;
	drops = hostile_drops(h);
	done = send_plan(h->b, first, &plan, rest, bytes);
	if (hostile_drops(h) == drops)
		h->b->planned = first + plan.frame_count;
	if (done != NULL)
		hostile_end(h, done);
}

static void random_result(struct hostile *h)
{
	static uint8_t data[WIRE_PAYLOAD_MAX];
	uint32_t frame = h->ack + (uint32_t)random_below(random_below(4) == 0 ? 24 : 4) - 2;
	uint32_t bytes = (uint32_t)random_below(553), end = bytes;
	struct allreduce *done = NULL;

	if (random_below(4) != 0) { /* one of all lengths will be right */
		bytes = 0;
		end = 552;
	}
	data[random_below(552)] = (uint8_t)random_bits();
	h->b->sequence = (uint16_t)(h->b->sequence + random_below(3));
	for (; bytes <= end && done == NULL; bytes += 8)
		done = send_result(h->b, frame, data, bytes);
	if (done != NULL)
		hostile_end(h, done);
}

/* The header lies about base, window and planned. */
static void random_credit(struct hostile *h)
{
	struct wire_header head = bench_head(h->b, WIRE_STATUS_BACK, (uint32_t)random_bits());
	uint64_t body[4] = {random_bits() & 0xffffffff, 0, random_bits(), random_bits()};

	head.worker = random_below(2) ? RANK : WIRE_EVERYONE;
	if (random_below(2))
		h->b->base = h->ack;
	head.edge = h->b->base - (uint32_t)random_below(8);
	if (random_below(4) == 0)
		head.edge = (uint32_t)random_bits();
	if (random_below(4) == 0)
		head.window = (uint16_t)random_bits();
	if (random_below(20) == 0)
		head.planned += (uint32_t)random_below(1000);
	send_head(h->b, &head, body, (uint32_t)random_below(5) * 8);
}

static void hostile_step(struct hostile *h)
{
	switch (random_below(8)) {
	case 0:
	case 1:
		random_plan(h);
		break;
	case 2:
	case 3:
	case 4:
		random_result(h);
		break;
	case 5:
		random_credit(h);
		break;
	case 6:
		send_want(h->b, h->ack + (uint32_t)random_below(80) - 64, random_bits());
		break;
	}
}

/* ---- what must hold ---- */

static void hostile_pull(struct hostile *h)
{
	for (unsigned i = 0; bench_pull(h->b); i++) {
		assert_true(i < 10000);
		assert_false(frame_before(h->b->got.edge, h->ack));
		h->ack = h->b->got.edge;
		if (h->b->got.kind != WIRE_PUSH)
			continue;
		assert_true(h->b->got.body_bytes != 0);
		assert_true(h->b->got.frame - h->ack < h->b->config.window);
	}
}

TEST(hostile)
{
	uint64_t finished = 0, failed = 0;

	for (unsigned round = 0; round < 400; round++) {
		struct hostile h = {.b = bench_open(16, (uint32_t)random_bits())};

		h.ack = h.b->base;
		for (unsigned step = 0; step < 600; step++) {
			hostile_submit(&h);
			hostile_step(&h);
			hostile_pull(&h);
			if (h.tasks[0] != NULL || h.tasks[1] != NULL)
				assert_true(stream_deadline(h.b->stream) != UINT64_MAX);
			h.b->now_us += random_below(500);
		}
		for (uint32_t slot = 0; slot < OPS; slot++)
			if (h.tasks[slot] != NULL)
				task_close(h.tasks[slot]);
		bench_close(h.b);
		finished += h.finished;
		failed += h.failed;
	}
	/* The packets are not so wrong that nothing comes of them. */
	print_message("%u finished, %u mismatches\n", (unsigned)finished, (unsigned)failed);
	assert_true(finished > 400 && failed > 100);
}
