// SPDX-License-Identifier: BSD-3-Clause
/* stream_state.c - the ground that all stream_*.c stand on */

#include <assert.h>

#include "client/worker/stream_state.h"

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
	uint32_t frames = s->ahead + 2 * s->pace.cc.window;
	uint32_t room = s->ack + (frames < s->config.window ? frames : s->config.window);

	if (s->config.passes_on && frame_before(s->hold_room, room))
		room = frame_before(s->ack, s->hold_room) ? s->hold_room : s->ack + 1;
	return room;
}

/* 8.3: "Every packet from a worker except KNOCK carries it" */
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
		.sequence = s->gap.sequence,
		.pushed = s->next,
	};

	out->dest = s->config.rank;
	packet_begin(out, &head);
	s->told.ack = s->ack;
	s->told.room = room;
	s->due.ack_us = NEVER;
}

uint64_t stream_news_us(const struct stream *stream)
{
	return stream->news_us;
}

uint64_t stream_waits_us(const struct stream *stream)
{
	bool waits = stream->announced_count > 0 || stream->base != stream->ack ||
	             frame_before(stream->ack, stream->planned);

	return waits ? stream->news_us : NEVER;
}

void stream_check_edges(const struct stream *s)
{
	assert(frames_in_order(s->base, s->ack, s->next) && !frame_before(s->horizon, s->next));
	assert(frames_in_order(s->base, s->told.ack, s->ack) || frame_before(s->told.ack, s->base));
	assert(!frame_before(s->base + s->config.window, s->credit));
	assert(s->under_way <= s->next - s->ack && s->next - s->ack <= s->config.window);
	assert(s->order_count + s->announced_count <=
	       s->config.op_slots * s->config.segments_ahead);
	assert(!frame_before(s->resend.to, s->resend.from));
}
