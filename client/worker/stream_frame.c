// SPDX-License-Identifier: BSD-3-Clause
/* stream_frame.c - data out of the tensor and into it: PROTOCOL.md sections 8 to 10 */

#include "client/worker/stream_state.h"

/* ---- what a frame holds ---- */

/* The word of the union bitmap that holds its block number `rank`. */
static uint32_t word_of_rank(const struct stream_segment *segment, uint32_t rank)
{
	uint32_t low = 0, high = (segment->cut.block_count + 63) / 64;

	while (high - low > 1) {
		uint32_t middle = (low + high) / 2;

		if (segment->rank_before[middle] <= rank)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* Where its blocks are: `count` of the union, from number `rank` on. */
static void frame_find(const struct stream_segment *segment, uint32_t rank,
                       struct access_frame *frame)
{
	uint32_t word = word_of_rank(segment, rank), want = frame->count;
	uint64_t bits = segment->united[word];

	frame->first = word * 64 + bitmap_select(bits, rank - segment->rank_before[word]);
	bits &= UINT64_MAX << (frame->first % 64);
	for (uint32_t here; (here = (uint32_t)__builtin_popcountll(bits)) < want; want -= here)
		bits = segment->united[++word];
	frame->end = word * 64 + bitmap_select(bits, want - 1) + 1;
	frame->own_count = bitmap_count_between(segment->own, frame->first, frame->end);
}

struct access_frame frames_from(const struct stream *s, const struct allreduce *task,
                                const struct stream_segment *segment, uint32_t number)
{
	const bool nonfinite = segment->plan_flags & WIRE_NONFINITE;
	const uint32_t form = task->form == WIRE_FIXED32 && nonfinite ? WIRE_NATIVE : task->form;

	return (struct access_frame){.segment = segment->number,
	                             .shard = task->cut.eager ? 0 : s->config.shard,
	                             .number = task->cut.eager ? segment->number : number,
	                             .edge = task->cut.eager ? 0 : s->ack,
	                             .cut = &segment->cut,
	                             .united = segment->united,
	                             .own = segment->own,
	                             .count = segment->union_count,
	                             .wire = dtype_in_form(form, (enum dtype)task->dtype),
	                             .shift = segment->shift,
	                             .nonfinite = nonfinite,
	                             .world = s->config.world,
	                             .engine = s->config.engine};
}

/* The frame with this number on the channel. */
static struct access_frame frame_of(const struct stream *s, const struct allreduce *task,
                                    const struct stream_segment *segment, uint32_t number)
{
	const struct geometry_frames *cut = &segment->cut.frames;
	uint32_t index = number - segment->first;
	uint32_t rank = index / cut->block_parts * cut->frame_blocks;
	struct access_frame frame = frames_from(s, task, segment, number);

	frame.count -= rank;
	if (frame.count > cut->frame_blocks)
		frame.count = cut->frame_blocks;
	frame.part = index % cut->block_parts;
	frame.unit_bytes = geometry_part_bytes(cut, frame.part);
	frame_find(segment, rank, &frame);
	return frame;
}

struct access_frame eager_frame(const struct stream *s, const struct allreduce *task,
                                const struct stream_segment *segment, const uint64_t *bits)
{
	const uint64_t words = bitmap_word_count(segment->cut.block_count);
	struct access_frame frame = frames_from(s, task, segment, 0);

	frame.end = segment->cut.block_count;
	frame.united = bits;
	frame.count = (uint32_t)bitmap_set_count(bits, words);
	frame.own_count = (uint32_t)bitmap_set_count(segment->own, words);
	frame.unit_bytes = segment->cut.frames.block_bytes;
	return frame;
}

/* ---- pushing ---- */

/* False: not yet (*waits), or nothing. 8.1: "in which it has announced a block, a worker sends one PUSH" */
static bool push_build(struct stream *s, const struct stream_segment *segment, uint32_t number,
                       struct packet_out *out, bool *waits)
{
	const struct allreduce *task = s->ops[segment->slot].task;
	struct access_frame frame;

	frame = frame_of(s, task, segment, number);
	if (frame.own_count == 0)
		return false;
	*waits = task->access->pushable != NULL && !task->access->pushable(task, &frame);
	if (*waits)
		return false;
	stream_head(s, out, WIRE_PUSH, number);
	task->access->push(task, &frame, out);
	s->stats.pushes++;
	return true;
}

static void frame_passed(struct stream *s, uint64_t now_us)
{
	struct stream_frame *frame = stream_frame_of(s, s->next);

	if (s->base == s->next) {
		s->asked.since_us = now_us;
		if (s->pace.rtt.srtt_us != 0)
			s->due.ask_us = now_us + rtt_probe_us(&s->pace.rtt);
	}
	frame->sent_us = (uint32_t)now_us;
	s->next++;
}

/* 8.1: "PUSHes go out for the first time in the order of the frames, and for none after one whose plan is not known" */
static bool push_next(struct stream *s, uint64_t now_us, struct packet_out *out)
{
	bool waits = false;

	while (frame_before(s->next, s->credit) && frame_before(s->next, s->horizon)) {
		struct stream_segment *segment = stream_find(s, s->next);
		struct stream_frame *frame = stream_frame_of(s, s->next);

		if (segment == NULL || segment->hollow) {
			s->next++; /* acknowledged with its plan */
			continue;
		}
		if (frame->flags & FRAME_HAVE) {
			frame_passed(s, now_us); /* needed nothing from us */
			continue;
		}
		/* CONGESTION.md 1: "at most limit frames of a channel under way: pushed, and without a RESULT" */
		if (s->under_way >= s->pace.cc.window)
			return false;
		if (!push_build(s, segment, s->next, out, &waits)) {
			if (waits)
				return false;
			frame_passed(s, now_us);
			continue;
		}
		frame->flags |= FRAME_SENT;
		frame_passed(s, now_us);
		s->under_way++;
		pace_sent(&s->pace, s->under_way);
		if (s->under_way == s->pace.cc.window)
			sooner(&s->due.ask_us, now_us + pace_measure_us(&s->pace));
		return true;
	}
	return false;
}

/* What holds it is known when there is nothing to push; it has held since the time before. */
static void held_note(struct stream *s, uint64_t now_us)
{
	s->held.us[s->held.by] += now_us - s->held.since_us;
	s->held.since_us = now_us;
	if (!frame_before(s->next, s->horizon))
		s->held.by = STREAM_IDLE;
	else if (!frame_before(s->next, s->credit))
		s->held.by = STREAM_HELD_CREDIT;
	else if (s->under_way >= s->pace.cc.window)
		s->held.by = STREAM_HELD_WINDOW;
	else
		s->held.by = STREAM_IDLE; /* the tensor is not ready */
}

bool push_pull(struct stream *s, uint64_t now_us, struct packet_out *out)
{
	if (push_next(s, now_us, out))
		return true;
	held_note(s, now_us);
	return false;
}

bool resend_pull(struct stream *s, uint64_t now_us, struct packet_out *out)
{
	bool waits = false; /* it was sent once, so it does not */

	if (frame_before(s->resend.from, s->ack))
		s->resend.from = s->ack;
	/* 2^31 frames later an old end would seem to lie ahead. */
	if (frame_before(s->resend.to, s->resend.from))
		s->resend.to = s->resend.from;
	while (frame_before(s->resend.from, s->resend.to)) {
		uint32_t number = s->resend.from++;
		struct stream_frame *frame = stream_frame_of(s, number);
		struct stream_segment *segment;

		if (!(frame->flags & FRAME_RESEND))
			continue;
		frame->flags &= (uint8_t)~FRAME_RESEND;
		segment = stream_find(s, number);
		if ((frame->flags & FRAME_HAVE) || !push_build(s, segment, number, out, &waits))
			continue;
		frame->flags |= FRAME_AGAIN;
		frame->sent_us = (uint32_t)now_us;
		s->stats.retransmits++;
		return true;
	}
	return false;
}

/*
 * 10.3: "The worker sends again the PUSHes listed that it has no RESULT of, and has last sent late or more before the
 * stamp". 10.3: "one that it has sent again it sends once more only if that was srtt + 2*rttvar before the stamp": more
 * would fill a queue that is full before the window has shrunk.
 */
void resend_take(struct stream *s, const struct status *status)
{
	uint32_t late_us = (uint32_t)rtt_late_us(&s->pace.rtt);
	const uint32_t least_us = (uint32_t)(s->pace.rtt.srtt_us + 2 * s->pace.rtt.rttvar_us);

	for (uint32_t bit = 0; bit < status->word_count * 64; bit++) {
		uint32_t number = status->first + bit;
		struct stream_frame *frame = stream_frame_of(s, number);

		if (!bit_test(status->words, bit) || frame_before(number, s->ack) ||
		    !frame_before(number, s->next))
			continue;
		if (!(frame->flags & FRAME_SENT) || (frame->flags & (FRAME_HAVE | FRAME_RESEND)))
			continue;
		if ((frame->flags & FRAME_AGAIN) &&
		    frame_before(status->stamp, frame->sent_us + least_us))
			continue;
		if (frame_before(status->stamp, frame->sent_us + late_us))
			continue;
		frame->flags |= FRAME_RESEND;
		if (!frame_before(s->resend.from, s->resend.to))
			s->resend.from = s->resend.to = number;
		if (frame_before(number, s->resend.from))
			s->resend.from = number;
		if (!frame_before(number, s->resend.to))
			s->resend.to = number + 1;
		pace_lost(&s->pace, 1);
	}
}

/* ---- results ---- */

/* 8.2: "The head, the same header and nothing after it, goes to the others, perhaps by the group": then to all. */
static bool is_head(const struct packet *packet)
{
	return packet->body_bytes == 0 && packet->worker == WIRE_EVERYONE;
}

/* What the RESULT holds, if it is this worker's. False: it is dropped. */
static bool result_store(struct stream *s, struct allreduce *task,
                         const struct stream_segment *segment, const struct packet *packet)
{
	struct access_frame which = frame_of(s, task, segment, packet->frame);
	bool received = is_received(s, segment);

	if (received && is_head(packet) && segment->cut.receiver != WIRE_EVERYONE)
		return false; /* 8.2: "takes from it only what every header says" */
	if (packet->body_bytes != (received ? which.count * which.unit_bytes : 0)) {
		stream_drop(s, WIRE_DROP_LENGTH);
		return false;
	}
	if ((received || s->config.passes_on) &&
	    !task->access->store(task, &which, received ? packet->body : NULL)) {
		stream_drop(s, WIRE_DROP_STALE);
		return false;
	}
	return true;
}

/* 10.4: "if that of ack is missing, which the worker has pushed, and it has not asked since late after that PUSH" */
static bool is_overtaken(const struct stream *s, uint32_t frame, uint64_t now_us)
{
	const struct stream_frame *first = stream_frame_of(s, s->ack);
	const uint32_t since_push_us = (uint32_t)now_us - first->sent_us;

	return frame != s->ack && (first->flags & (FRAME_SENT | FRAME_HAVE)) == FRAME_SENT &&
	       now_us - s->asked.last_us + rtt_late_us(&s->pace.rtt) > since_push_us;
}

struct allreduce *result_take(struct stream *s, const struct packet *packet, uint64_t now_us)
{
	struct stream_frame *frame = stream_frame_of(s, packet->frame);
	struct stream_segment *segment;
	struct allreduce *task;

	if (is_head(packet) && frame_before(packet->frame, s->ack))
		return NULL; /* see is_head() */
	if (frame_before(packet->frame, s->ack) || !frame_before(packet->frame, s->credit)) {
		stream_drop(s, WIRE_DROP_STALE);
		return NULL;
	}
	segment = stream_find(s, packet->frame);
	if (segment == NULL || segment->hollow) {
		/* 8.2: "A worker drops a RESULT whose plan it lacks" */
		stream_drop(s, WIRE_DROP_FRAME);
		return NULL;
	}
	if (frame->flags & FRAME_HAVE) {
		if (!is_head(packet))
			stream_drop(s, WIRE_DROP_DUPLICATE);
		return NULL;
	}
	task = s->ops[segment->slot].task;
	if (!result_store(s, task, segment, packet))
		return NULL;
	if (frame->flags & FRAME_SENT)
		s->under_way--;
	frame->flags |= FRAME_HAVE;
	s->stored++;
	s->ahead++;
	if (pace_result(&s->pace))
		sooner(&s->due.ask_us, now_us + pace_measure_us(&s->pace));
	if (is_overtaken(s, packet->frame, now_us))
		sooner(&s->due.ask_us, now_us + rtt_late_us(&s->pace.rtt));
	if (!frame_before(packet->frame, s->highest))
		s->highest = packet->frame + 1;
	if (packet->worker != WIRE_EVERYONE && s->gap.asked > 0)
		s->gap.asked--;
	if (++segment->received < segment->frame_count)
		return NULL;
	return stream_segment_done(s, segment);
}
