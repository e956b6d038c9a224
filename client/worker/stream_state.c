// SPDX-License-Identifier: BSD-3-Clause
/* stream_state.c - the ground that all stream_*.c stand on, and what always holds of it */

#include <assert.h>

#include "client/worker/stream_impl.h"

/* The segment whose frames hold `frame`, if its plan is known; the common case is the first. */
struct stream_segment *stream_find(const struct stream *s, uint32_t frame)
{
	for (uint32_t i = 0; i < s->order_count; i++) {
		struct stream_segment *segment = &s->segments[s->order[i]];

		if (frame - segment->first < segment->frame_count)
			return segment;
	}
	return NULL;
}

/* All frames of the segment are here. Returns the task if that finished its shard. */
struct allreduce *stream_segment_done(struct stream *s, struct stream_segment *segment)
{
	struct stream_op *op = &s->ops[segment->slot];
	struct allreduce *task = op->task;

	if (--op->segments_left > 0)
		return NULL;
	op->state = OP_LINGERING;
	op->task = NULL;
	task->shards_left--;
	return task;
}

uint32_t stream_room(const struct stream *s)
{
	uint32_t frames = s->ahead + 2 * s->pace.window;

	return s->ack + (frames < s->config.window ? frames : s->config.window);
}

void stream_head(struct stream *s, struct packet_out *out, enum wire_kind kind, uint32_t frame)
{
	uint32_t room = stream_room(s);
	struct wire_header head = {
		.kind = (uint8_t)kind,
		.channel = s->config.channel,
		.worker = s->config.rank,
		.seal = s->config.token,
		.frame = frame,
		.edge = s->ack,
		.window = (uint16_t)(room - s->ack),
		.sequence = s->gap_sequence,
		.pushed = s->next,
	};

	out->dest = s->config.rank;
	packet_begin(out, &head);
	s->ack_sent = s->ack;
	s->room_sent = room;
	s->ack_due_us = NEVER;
}

uint64_t stream_waits_us(const struct stream *stream)
{
	bool waits = stream->announced_count > 0 || stream->base != stream->ack ||
	             frame_before(stream->ack, stream->planned);

	return waits ? stream->news_us : NEVER;
}

/* ---- what always holds ---- */

/* a <= b <= c, as frames. */
static bool in_order(uint32_t a, uint32_t b, uint32_t c)
{
	return !frame_before(b, a) && !frame_before(c, b);
}

void stream_check_edges(const struct stream *s)
{
	assert(in_order(s->base, s->ack, s->next) && !frame_before(s->horizon, s->next));
	assert(in_order(s->base, s->ack_sent, s->ack) || frame_before(s->ack_sent, s->base));
	assert(!frame_before(s->base + s->config.window, s->credit));
	assert(s->under_way <= s->next - s->ack && s->next - s->ack <= s->config.window);
	assert(s->order_count + s->announced_count <=
	       s->config.op_slots * s->config.segments_ahead);
	assert(s->base == s->next || s->quiet_due_us != NEVER);
}

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
		       ((flags & FRAME_SENT) && frame_before(number, s->resend_to) &&
		        !frame_before(number, s->resend_from)));
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
	assert(announced == 0 || op->state == OP_ACTIVE || op->state == OP_LEFT);
	if (task == NULL)
		return;
	assert(task->slot == slot && task->tag == op->asked.tag && task->shards_left >= 1);
	assert(op->segments_left >= 1 && op->segments_left <= task->cut.segment_count);
}

void stream_check(const struct stream *stream)
{
	const struct stream *s = stream;
	uint32_t planned = 0, announced = 0;

	stream_check_edges(s);
	check_frames(s);
	check_order(s);
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
