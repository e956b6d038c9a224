// SPDX-License-Identifier: BSD-3-Clause
/* array.c - see array.h */

#include "client/worker/array.h"

#include <assert.h>
#include <string.h>

static const uint8_t zeros[WIRE_PAYLOAD_MAX];

/* ---- by the block ---- */

static uint64_t block_of(const struct allreduce *task, const struct access_frame *frame,
                         uint32_t index)
{
	return geometry_block(&task->cut, frame->shard,
	                      (uint64_t)frame->segment * task->cut.segment_blocks +
	                              frame->blocks[index]);
}

/* Of the `bytes` of a block, those that belong to the frame, from `offset` on. */
static uint32_t part_bytes(const struct access_frame *frame, uint32_t offset, uint32_t bytes)
{
	if (bytes <= offset)
		return 0;
	return bytes - offset < frame->unit_bytes ? bytes - offset : frame->unit_bytes;
}

/* As int32, converted into the packet's scratch memory (PROTOCOL.md section 9). */
static void encode(const struct access_frame *frame, const uint8_t *from, uint32_t bytes,
                   struct packet_out *out)
{
	uint8_t *to = (uint8_t *)out->scratch + packet_body_bytes(out);

	if (bytes > 0)
		frame->engine->fixed_encode(to, from, bytes / 4, frame->shift);
	memset(to + bytes, 0, frame->unit_bytes - bytes);
	packet_point(out, to, frame->unit_bytes);
}

void blocks_push(const struct allreduce *task, const struct access_frame *frame, uint64_t mask,
                 struct packet_out *out,
                 const uint8_t *(*place)(const struct allreduce *task, uint64_t block,
                                         uint32_t *bytes))
{
	uint32_t offset = frame->part * task->cut.part_bytes;

	for (; mask != 0; mask &= mask - 1) {
		uint32_t index = (uint32_t)__builtin_ctzll(mask), bytes;
		const uint8_t *from = place(task, block_of(task, frame, index), &bytes);

		bytes = part_bytes(frame, offset, bytes);
		from = bytes > 0 ? from + offset : NULL;
		if (frame->fixed) {
			encode(frame, from, bytes, out);
			continue;
		}
		if (bytes > 0)
			packet_point(out, from, bytes);
		packet_point(out, zeros, frame->unit_bytes - bytes);
	}
}

void blocks_store(const struct allreduce *task, const struct access_frame *frame,
                  const uint8_t *data,
                  uint8_t *(*place)(const struct allreduce *task, uint64_t block, uint32_t *bytes))
{
	uint32_t offset = frame->part * task->cut.part_bytes;
	uint32_t divisor = task->reduction == REDUCE_AVG ? frame->world : 1;

	for (uint32_t i = 0; i < frame->count; i++, data += frame->unit_bytes) {
		uint32_t bytes;
		uint8_t *to = place(task, block_of(task, frame, i), &bytes);

		bytes = part_bytes(frame, offset, bytes);
		if (bytes == 0)
			continue;
		if (frame->fixed)
			frame->engine->fixed_decode(to + offset, data, bytes / 4, frame->shift,
			                            divisor);
		else
			memcpy(to + offset, data, bytes);
	}
}

/* ---- the arrays ---- */

static uint32_t elem_bytes(const struct allreduce *task)
{
	return task->cut.elem_bytes;
}

static const uint8_t *array_from(const struct allreduce *task, uint64_t block, uint32_t *bytes)
{
	uint64_t first = 0;

	*bytes = geometry_elems(&task->cut, block, &first) * elem_bytes(task);
	return *bytes > 0 ? (const uint8_t *)task->send + first * elem_bytes(task) : NULL;
}

/* Of a reduce-scatter, one of this worker's share. */
static uint8_t *array_to(const struct allreduce *task, uint64_t block, uint32_t *bytes)
{
	uint64_t first = 0;

	*bytes = geometry_elems(&task->cut, block, &first) * elem_bytes(task);
	if (*bytes > 0 && task->scatter)
		first -= task->share_first;
	return *bytes > 0 ? (uint8_t *)task->recv + first * elem_bytes(task) : NULL;
}

static int array_begin(struct allreduce *task)
{
	(void)task;
	return 0;
}

bool array_ready(struct allreduce *task, uint32_t number)
{
	(void)task, (void)number;
	return true;
}

static uint64_t array_scan(struct allreduce *task, uint32_t number, const struct access_scan *scan)
{
	const struct geometry *cut = &task->cut;
	uint64_t first, blocks = geometry_span(cut, number, &first);
	struct bitmap_tensor tensor = {.block_elems = cut->block_elems, .dtype = task->dtype};

	if (blocks > 0) {
		uint64_t last_first = 0;
		uint32_t last = geometry_elems(cut, first + blocks - 1, &last_first), bytes;

		tensor.count = (blocks - 1) * cut->block_elems + last;
		tensor.data = array_from(task, first, &bytes);
	}
	bitmap_pool_scan(scan->pool, &tensor, scan->bits, scan->range);
	return bitmap_set_count(scan->bits, bitmap_word_count(blocks));
}

/* Packed, and padded with zeros. */
static void array_eager(const struct allreduce *task, const uint64_t *own,
                        const struct bitmap_engine *engine, struct packet_out *out)
{
	struct bitmap_tensor tensor = {
		.data = task->send,
		.count = task->count,
		.block_elems = task->cut.block_elems,
		.dtype = task->dtype,
	};
	uint32_t bytes, whole;

	bytes = (uint32_t)engine->pack(&tensor, own, out->scratch) * task->cut.elem_bytes;
	whole = (bytes + task->cut.block_bytes - 1) / task->cut.block_bytes * task->cut.block_bytes;
	memset((uint8_t *)out->scratch + bytes, 0, whole - bytes);
	packet_point(out, out->scratch, whole);
}

/* A result of this many bytes or more does not stay in a cache until it is read. */
#define STREAM_BYTES_MIN (8u << 20)

/* Neighbours in the shard are neighbours in the tensor only when it is the only one. */
static uint32_t absent_run(const struct allreduce *task, const struct access_plan *plan,
                           uint32_t first)
{
	uint32_t end = first + 1;

	while (task->cut.shard_count == 1 && end < plan->block_count &&
	       !bit_test(plan->united, end))
		end++;
	return end - first;
}

static bool in_place(const struct allreduce *task)
{
	const uint8_t *own = task->send;

	if (task->scatter && own != NULL)
		own += task->share_first * task->cut.elem_bytes;
	return own == task->recv;
}

static void clear_absent(struct allreduce *task, const struct access_plan *plan)
{
	uint64_t before = (uint64_t)plan->segment * task->cut.segment_blocks;
	bool large = task->count * task->cut.elem_bytes >= STREAM_BYTES_MIN;
	uint32_t run;

	for (uint32_t b = 0; b < plan->block_count; b += run) {
		uint64_t first = geometry_block(&task->cut, plan->shard, before + b), bytes;
		uint32_t last_bytes;

		run = 1;
		if (bit_test(plan->united, b))
			continue;
		run = absent_run(task, plan, b);
		(void)array_to(task, first + run - 1, &last_bytes);
		bytes = (uint64_t)(run - 1) * task->cut.block_bytes + last_bytes;
		if (bytes == 0)
			continue;
		if (large)
			plan->engine->clear(array_to(task, first, &last_bytes), bytes);
		else
			memset(array_to(task, first, &last_bytes), 0, bytes);
	}
}

/* In place, blocks that no worker has are zero already. */
int array_plan(struct allreduce *task, const struct access_plan *plan)
{
	uint32_t receiver = geometry_receiver(&task->cut, plan->segment);

	if (in_place(task) || task->count == 0)
		return 0;
	if (task->scatter && task->cut.eager) /* blocks may lie across the share's borders */
		memset(task->recv, 0, task->share_count * task->cut.elem_bytes);
	else if (receiver == WIRE_EVERYONE || receiver == task->share_first / task->cut.share_elems)
		clear_absent(task, plan);
	return 0;
}

bool array_pushable(const struct allreduce *task, const struct access_frame *frame)
{
	(void)task, (void)frame;
	return true;
}

static void array_push(const struct allreduce *task, const struct access_frame *frame,
                       uint64_t mask, struct packet_out *out)
{
	blocks_push(task, frame, mask, out, array_from);
}

/* Of an eager reduce-scatter everything comes, in blocks that know of no shares: section 4.5. */
static void store_own(struct allreduce *task, const struct access_frame *frame, const uint8_t *data)
{
	uint64_t own = task->share_first, own_end = own + task->share_count;

	for (uint32_t i = 0; i < frame->count; i++, data += frame->unit_bytes) {
		uint64_t first = 0, from, end;

		end = geometry_elems(&task->cut, block_of(task, frame, i), &first);
		end += first;
		from = first > own ? first : own;
		end = end < own_end ? end : own_end;
		if (from < end)
			memcpy((uint8_t *)task->recv + (from - own) * elem_bytes(task),
			       data + (from - first) * elem_bytes(task),
			       (end - from) * elem_bytes(task));
	}
}

bool array_store(struct allreduce *task, const struct access_frame *frame, const uint8_t *data)
{
	if (task->scatter && task->cut.eager)
		store_own(task, frame, data);
	else
		blocks_store(task, frame, data, array_to);
	return true;
}

void array_received(struct allreduce *task, uint32_t shard, uint32_t segment)
{
	(void)task, (void)shard, (void)segment;
}

const struct access array_access = {
	.begin = array_begin,
	.ready = array_ready,
	.scan = array_scan,
	.eager = array_eager,
	.plan = array_plan,
	.pushable = array_pushable,
	.push = array_push,
	.store = array_store,
	.received = array_received,
};
