// SPDX-License-Identifier: BSD-3-Clause
/* stream_plan.c - announcing segments and taking plans; PROTOCOL.md sections 6 and 7 */

#include <assert.h>
#include <errno.h>

#include "bitmap/coded.h"
#include "client/worker/stream_state.h"
#include "client/winnow.h"

/* 6.2: "the base that it has received (8.3) has passed the last frame of the old operation" */
bool stream_slot_free(const struct stream *stream, uint32_t slot)
{
	const struct stream_op *op = &stream->ops[slot];

	return op->state == OP_FREE ||
	       (op->state == OP_LINGERING && !frame_before(stream->base, op->end_frame));
}

void stream_begin_as(struct stream *s, struct allreduce *task, uint64_t layout)
{
	struct stream_op *op = &s->ops[task->slot];

	assert(stream_slot_free(s, task->slot));
	op->state = OP_ACTIVE;
	if (++op->generation == 0)
		op->generation = 1; /* 6.1: "counting up, skipping 0 when it wraps" */
	op->task = task;
	op->segments_left = task->cut.segment_count;
	op->end_frame = s->ack;
	op->asked = (struct announce){
		.tag = task->tag,
		.count = task->count,
		.layout = layout,
		.segment_count = task->cut.segment_count,
		.generation = op->generation,
		.op_slot = (uint16_t)task->slot,
		.exponent = WIRE_EXPONENT_NONE,
		.dtype = task->dtype,
		.reduction = task->reduction,
		.form = task->form,
		.flags = (uint8_t)((task->cut.eager ? WIRE_EAGER : 0) |
	                           (task->scatter ? WIRE_SCATTER : 0)),
	};
	for (uint32_t i = 0; i < s->config.segments_ahead; i++) {
		struct stream_segment *segment = stream_segment_of(s, task->slot, i);

		segment->state = SEGMENT_IDLE;
		segment->first = s->base;
		segment->frame_count = 0;
	}
}

void stream_begin(struct stream *s, struct allreduce *task)
{
	stream_begin_as(s, task,
	                geometry_layout(&task->cut, s->config.shard, s->config.shard_count));
}

/* 6.2: "when base there has passed segment n's frames" */
static bool has_room(const struct stream *stream, const struct stream_segment *segment)
{
	return segment->state == SEGMENT_IDLE &&
	       !frame_before(stream->base, segment->first + segment->frame_count);
}

static bool is_eager(const struct stream *s, const struct stream_segment *segment)
{
	return (s->ops[segment->slot].asked.flags & WIRE_EAGER) != 0;
}

uint32_t eager_under_way(const struct stream *s)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < s->announced_count; i++) {
		const struct stream_segment *segment = &s->segments[s->announced[i]];

		count += segment->tries <= 1 && is_eager(s, segment);
	}
	return count;
}

bool stream_ask_room(struct stream *stream, const struct allreduce *task, uint32_t number)
{
	const struct stream_segment *segment = stream_segment_of(stream, task->slot, number);
	bool room = has_room(stream, segment);

	/* They are held back like PUSHes; but not what has no elements, as a barrier. */
	if (task->cut.eager && task->cut.block_count > 0 &&
	    eager_under_way(stream) >= stream->pace.cc.window)
		return false;
	if (!room && segment->state == SEGMENT_IDLE)
		stream->wants_base = true;
	if (stream_ack_urgent(stream))
		stream->due.ack_us = 0;
	return room;
}

/* ---- announcing ---- */

/* 6.1: "all and none are set whenever they are true" */
static uint8_t set_flags(uint32_t set, uint32_t block_count)
{
	if (set == 0)
		return WIRE_NONE;
	return set == block_count ? WIRE_ALL : 0;
}

static void segment_queue(struct stream *s, struct stream_segment *segment, uint64_t now_us)
{
	if (stream_waits_us(s) == NEVER)
		s->news_us = now_us;
	if (s->base == s->next && segment->own_frames > CALM_FRAMES_MIN)
		s->calm = true;
	s->announced[s->announced_count++] = (uint32_t)(segment - s->segments);
	segment->state = SEGMENT_ANNOUNCED;
	segment->tries = 0;
	segment->announce_due_us = now_us;
	sooner(&s->due.announce_us, now_us);
}

/* Nothing more to announce: it has a plan, or its operation is over. */
static void segment_unqueue(struct stream *s, struct stream_segment *segment)
{
	uint32_t index = (uint32_t)(segment - s->segments), place = 0;

	if (segment->state != SEGMENT_ANNOUNCED)
		return;
	segment->state = SEGMENT_IDLE;
	while (s->announced[place] != index)
		place++;
	s->announced[place] = s->announced[--s->announced_count];
	s->calm = s->calm && s->announced_count > 0;
}

void stream_announce(struct stream *stream, struct allreduce *task, uint32_t number,
                     const struct stream_scan *scan, uint64_t now_us)
{
	struct stream_segment *segment = stream_segment_of(stream, task->slot, number);
	uint32_t words, set;

	assert(has_room(stream, segment));
	segment->number = number;
	segment->cut = scan->cut != NULL ? *scan->cut : geometry_segment(&task->cut, number);
	words = (segment->cut.block_count + 63) / 64;
	memcpy(segment->own, scan->bits, words * 8);
	segment->exponent = scan->exponent;
	set = (uint32_t)bitmap_set_count(segment->own, words);
	segment->own_frames = task->cut.eager ? 0 : geometry_frame_count(&segment->cut.frames, set);
	segment->announce_flags = set_flags(set, segment->cut.block_count);
	if (scan->nonfinite)
		segment->announce_flags |= WIRE_NONFINITE;
	segment_queue(stream, segment, now_us);
}

static void announce_build(struct stream *s, struct stream_segment *segment, struct packet_out *out)
{
	const struct stream_op *op = &s->ops[segment->slot];
	struct announce a = op->asked;
	struct access_frame ours;

	a.segment = segment->number;
	a.block_count = (uint16_t)segment->cut.block_count;
	a.block_elems = segment->cut.frames.block_bytes /
	                dtype_bytes(dtype_in_form(a.form, (enum dtype)a.dtype));
	a.exponent = segment->exponent;
	a.flags |= segment->announce_flags;
	stream_head(s, out, WIRE_ANNOUNCE, 0);
	if (!(a.flags & (WIRE_ALL | WIRE_NONE)))
		a.set.bytes =
			(uint32_t)bits_write(segment->own, segment->cut.block_count, out->scratch);
	packet_put_announce(out, &a);
	packet_point(out, out->scratch, a.set.bytes);
	if ((a.flags & WIRE_EAGER) && !(a.flags & WIRE_NONE)) {
		ours = eager_frame(s, op->task, segment, segment->own);
		op->task->access->push(op->task, &ours, out);
	}
}

/* 10.4: "at least 5 ms unless it is eager; doubled each time, to 200 ms": in training, others are late by seconds. */
static uint64_t announce_wait_us(struct stream *s, const struct stream_segment *segment)
{
	uint64_t wait_us = rtt_probe_us(&s->pace.rtt);

	if (wait_us < ANNOUNCE_US_MIN && !is_eager(s, segment))
		wait_us = ANNOUNCE_US_MIN;
	wait_us <<= segment->tries;
	return stream_spread(s, wait_us < ANNOUNCE_US_MAX ? wait_us : ANNOUNCE_US_MAX);
}

bool announce_pull(struct stream *s, uint64_t now_us, struct packet_out *out)
{
	struct stream_segment *due = NULL;
	uint64_t next_us = NEVER;

	if (now_us < s->due.announce_us)
		return false;
	for (uint32_t i = 0; i < s->announced_count; i++) {
		struct stream_segment *segment = &s->segments[s->announced[i]];

		if (due == NULL && segment->announce_due_us <= now_us)
			due = segment;
		else
			sooner(&next_us, segment->announce_due_us);
	}
	if (due != NULL) {
		due->announce_due_us = now_us + announce_wait_us(s, due);
		if (due->tries < 10)
			due->tries++;
		if (is_eager(s, due))
			pace_eager(&s->pace, eager_under_way(s));
		announce_build(s, due, out);
		sooner(&next_us, due->announce_due_us);
	}
	s->due.announce_us = next_us;
	return due != NULL;
}

/* ---- plans ---- */

bool stream_plan_at(const struct stream *s, uint32_t first, struct stream_plan *out)
{
	for (uint32_t i = 0; i < s->order_count; i++) {
		const struct stream_segment *segment = &s->segments[s->order[i]];

		if (segment->first != first)
			continue;
		*out = (struct stream_plan){.slot = segment->slot,
		                            .segment = segment->number,
		                            .frame_count = segment->frame_count,
		                            .united = segment->united,
		                            .exponent = segment->plan_exponent,
		                            .nonfinite = segment->plan_flags & WIRE_NONFINITE};
		return true;
	}
	return false;
}

static struct stream_op *op_named(struct stream *s, uint64_t tag)
{
	for (uint32_t i = 0; i < s->config.op_slots; i++) {
		struct stream_op *op = &s->ops[i];

		if (op->state == OP_ACTIVE && op->asked.tag == tag)
			return op;
	}
	return NULL;
}

/*
 * Into the list of known plans, sorted by first frame; then find out how far it reaches without a
 * gap.
 */
static void order_insert(struct stream *s, struct stream_segment *segment)
{
	uint32_t place = s->order_count++;

	assert(place < s->config.op_slots * s->config.segments_ahead);
	s->asked.plan_us = 0;
	while (place > 0 && frame_before(segment->first, s->segments[s->order[place - 1]].first)) {
		s->order[place] = s->order[place - 1];
		place--;
	}
	s->order[place] = (uint32_t)(segment - s->segments);
	for (; place < s->order_count; place++) {
		const struct stream_segment *known = &s->segments[s->order[place]];

		if (known->first == s->horizon)
			s->horizon += known->frame_count;
	}
}

/* Not seen yet, and does it start where it may? A plan overlaps no other. */
static bool plan_is_news(const struct stream *s, uint32_t first, uint32_t frame_count)
{
	if (frame_before(first, s->horizon))
		return false;
	for (uint32_t i = 0; i < s->order_count; i++) {
		const struct stream_segment *known = &s->segments[s->order[i]];

		if (first - known->first < known->frame_count || known->first - first < frame_count)
			return false;
	}
	return true;
}

static bool set_take(const struct plan *plan, uint64_t *bits, uint32_t block_count)
{
	if (plan->flags & WIRE_ALL)
		bitmap_fill(bits, block_count);
	else if (plan->flags & WIRE_NONE)
		memset(bits, 0, bitmap_word_count(block_count) * 8);
	else
		return bits_read(plan->set.data, plan->set.bytes, bits, block_count) == 0;
	return true;
}

/* 7: "that lacks a block that it announced, has one that does not exist, or another frame_count than 4.3 says" */
static bool union_take(const struct allreduce *task, const struct plan *plan,
                       struct stream_segment *segment)
{
	uint32_t words = (segment->cut.block_count + 63) / 64, count = 0, frames;

	if (!set_take(plan, segment->united, segment->cut.block_count))
		return false;
	for (uint32_t i = 0; i < words; i++) {
		segment->rank_before[i] = (uint16_t)count;
		count += (uint32_t)__builtin_popcountll(segment->united[i]);
		if (segment->own[i] & ~segment->united[i])
			return false;
	}
	segment->union_count = count;
	segment->hollow = task->cut.eager || count == 0;
	frames = segment->hollow ? 1 : geometry_frame_count(&segment->cut.frames, count);
	return frames == plan->frame_count &&
	       ((plan->flags & WIRE_EAGER) != 0) == task->cut.eager &&
	       plan->set.blocks_bytes ==
	               (task->cut.eager ? count * segment->cut.frames.block_bytes : 0);
}

/* 7: "with a smaller exponent than its own announcement's, or if that was nonfinite" */
static bool exponent_fits(const struct allreduce *task, const struct stream_segment *segment,
                          const struct plan *plan)
{
	if (task->form < WIRE_FIXED32 || (plan->flags & WIRE_NONFINITE))
		return true;
	return !(segment->announce_flags & WIRE_NONFINITE) && exponent_possible(plan->exponent) &&
	       plan->exponent >= segment->exponent;
}

/* Tells the tensor what will arrive. False: the union has blocks that the tensor lacks. */
static bool access_told(const struct stream *s, struct allreduce *task,
                        const struct stream_segment *segment, uint32_t first)
{
	const struct access_frame plan = frames_from(s, task, segment, first);
	int err = task->access->plan(task, &plan);

	if (err == -ENOMEM)
		task->status = WINNOW_ERR_MEMORY;
	return err != -EINVAL;
}

/* 9.2: "s is 30 - h - E in form fixed32, 15 - E in fixed16, 7 - E in fixed8" */
static int fixed_shift(const struct stream *s, uint8_t form, int16_t exponent)
{
	const int bits = form == WIRE_FIXED32   ? 30 - dtype_headroom(s->config.world)
	                 : form == WIRE_FIXED16 ? 15
	                                        : 7;

	return exponent == WIRE_EXPONENT_NONE ? 0 : bits - exponent;
}

struct allreduce *plan_take(struct stream *s, const struct packet *packet)
{
	struct stream_segment *segment;
	struct access_frame sums;
	struct allreduce *task;
	struct stream_op *op;
	struct plan plan;

	if (plan_parse(packet, &plan) != WIRE_DROP_NONE) {
		stream_drop(s, WIRE_DROP_LENGTH);
		return NULL;
	}
	op = op_named(s, plan.tag);
	if (op != NULL && plan.status == WIRE_MISMATCH) {
		op->task->status = WINNOW_ERR_MISMATCH;
		op->task->mismatch = plan.mismatch;
		return op->task;
	}
	/* 7: "that it has, by its frame, or for a segment that it has not announced" */
	if (op == NULL || !plan_is_news(s, packet->frame, plan.frame_count)) {
		stream_drop(s, WIRE_DROP_DUPLICATE);
		return NULL;
	}
	segment = stream_segment_of(s, (uint32_t)(op - s->ops), plan.segment);
	task = op->task;
	if (segment->state != SEGMENT_ANNOUNCED || segment->number != plan.segment ||
	    !exponent_fits(task, segment, &plan) || !union_take(task, &plan, segment)) {
		stream_drop(s, WIRE_DROP_OPERATION);
		return NULL;
	}
	segment->plan_flags = plan.flags;
	segment->plan_exponent = plan.exponent;
	segment->shift = fixed_shift(s, task->form, plan.exponent);
	if (!access_told(s, task, segment, packet->frame)) {
		stream_drop(s, WIRE_DROP_OPERATION);
		return NULL;
	}
	if (task->status != 0)
		return task;
	segment_unqueue(s, segment);
	segment->state = SEGMENT_PLANNED;
	segment->first = packet->frame;
	segment->frame_count = plan.frame_count;
	segment->received = 0;
	op->end_frame = frame_before(op->end_frame, packet->frame + plan.frame_count)
	                        ? packet->frame + plan.frame_count
	                        : op->end_frame;
	if (is_received(s, segment))
		task->blocks_union += segment->union_count;
	order_insert(s, segment);
	if (!segment->hollow)
		return NULL;
	segment->received = 1;
	if (task->cut.eager) {
		(void)pace_result(&s->pace);
		sums = eager_frame(s, task, segment, segment->united);
		if (sums.count > 0)
			(void)task->access->store(task, &sums, plan.set.blocks);
	}
	return stream_segment_done(s, segment);
}
