// SPDX-License-Identifier: BSD-3-Clause
/* stream_check.c - what always holds of a stream between two calls */

#include <assert.h>

#include "client/worker/stream_state.h"
#include "tests/check/check.h"

/* Frames that we have pushed wait for their RESULT, or have it and wait for one before them. */
static void check_frames(const struct stream *s)
{
	uint32_t under_way = 0, ahead = 0;

	for (uint32_t i = 0; i < s->config.window; i++) {
		uint32_t number = s->ack + i;
		uint8_t flags = stream_frame_of(s, number)->flags;

		if (flags == 0)
			continue;
		assert(frame_before(number, s->next) ||
		       (flags == FRAME_HAVE && frame_before(number, s->credit)));
		assert(!(flags & FRAME_RESEND) ||
		       ((flags & FRAME_SENT) && frame_before(number, s->resend.to) &&
		        !frame_before(number, s->resend.from)));
		under_way += (flags & (FRAME_SENT | FRAME_HAVE)) == FRAME_SENT;
		ahead += (flags & FRAME_HAVE) != 0;
	}
	assert(under_way == s->under_way && ahead == s->ahead);
}

static void check_planned(const struct stream *s, const struct stream_segment *segment)
{
	uint32_t end = segment->first + segment->frame_count, have = 0;

	assert(segment->state == SEGMENT_PLANNED && segment->frame_count >= 1);
	assert(frame_before(s->ack, end));
	if (segment->hollow) {
		assert(segment->frame_count == 1);
		return;
	}
	assert(segment->union_count ==
	       bitmap_set_count(segment->united, (segment->cut.block_count + 63) / 64));
	for (uint32_t i = 0; i < (segment->cut.block_count + 63) / 64; i++)
		assert((segment->own[i] & ~segment->united[i]) == 0);
	for (uint32_t frame = segment->first; frame != end && frame_before(frame, s->credit);
	     frame++)
		have += frame_before(frame, s->ack) ||
		        (stream_frame_of(s, frame)->flags & FRAME_HAVE) != 0;
	assert(segment->received == have);
}

/* Known plans do not overlap; horizon is where the first gap among them begins. */
static void check_order(const struct stream *s)
{
	uint32_t next = s->ack;

	for (uint32_t i = 0; i < s->order_count; i++) {
		const struct stream_segment *segment = &s->segments[s->order[i]];

		check_planned(s, segment);
		assert(i == 0 || !frame_before(segment->first, next));
		assert(segment->first != s->horizon);
		next = segment->first + segment->frame_count;
		assert(!frame_before(segment->first, s->horizon) ||
		       !frame_before(s->horizon, next));
	}
}

static void check_op(const struct stream *s, uint32_t slot)
{
	const struct stream_op *op = &s->ops[slot];
	const struct allreduce *task = op->task;
	uint32_t announced = 0;

	for (uint32_t i = 0; i < s->config.segments_ahead; i++) {
		const struct stream_segment *segment = stream_segment_of(s, slot, i);

		assert(segment->slot == slot);
		announced += segment->state == SEGMENT_ANNOUNCED;
	}
	assert((op->state == OP_ACTIVE) == (task != NULL));
	assert((op->state == OP_FREE) == (op->generation == 0));
	assert(announced == 0 || op->state == OP_ACTIVE);
	if (task == NULL)
		return;
	assert(task->slot == slot && task->tag == op->asked.tag && task->shards_left >= 1);
	assert(op->segments_left >= 1 && op->segments_left <= task->cut.segment_count);
}

static void check_ops(const struct stream *s)
{
	uint32_t planned = 0, announced = 0;

	for (uint32_t slot = 0; slot < s->config.op_slots; slot++)
		check_op(s, slot);
	for (uint32_t i = 0; i < s->config.op_slots * s->config.segments_ahead; i++) {
		planned += s->segments[i].state == SEGMENT_PLANNED;
		announced += s->segments[i].state == SEGMENT_ANNOUNCED;
	}
	assert(planned == s->order_count && announced == s->announced_count);
	for (uint32_t i = 0; i < s->announced_count; i++)
		assert(s->segments[s->announced[i]].state == SEGMENT_ANNOUNCED);
}

void stream_check(const struct stream *stream)
{
	const struct stream *s = stream;

	stream_check_edges(s);
	assert(s->asked.answered_us <= s->asked.last_us &&
	       s->gap.answered_us <= s->asked.answered_us);
	if (!check_walks(s->config.window + s->config.op_slots * s->config.segments_ahead))
		return;
	check_frames(s);
	check_order(s);
	check_ops(s);
}
