// SPDX-License-Identifier: BSD-3-Clause
/* stream_frame.c - what leaves the tensor and what comes to it: PROTOCOL.md sections 8 to 10 */

#include <assert.h>

#include "client/worker/stream_impl.h"

static const uint8_t zeros[WIRE_PAYLOAD_MAX];

/* Where a block's bytes begin in an array, and how many it has: fewer in a short last block. */
static uint64_t block_place(const struct allreduce *task, uint64_t block, uint32_t *bytes)
{
	uint64_t first = block * task->cut.block_elems;
	uint64_t left = first < task->count ? task->count - first : 0;

	*bytes = task->cut.block_bytes;
	if (left < task->cut.block_elems)
		*bytes = (uint32_t)left * task->cut.elem_bytes;
	return first * task->cut.elem_bytes;
}

/* Where block `index` of `shard` goes, and how many bytes of it the tensor has: 0 past the end. */
uint8_t *recv_address(const struct allreduce *task, uint32_t shard, uint64_t index, uint32_t *bytes)
{
	uint64_t block = geometry_block(&task->cut, shard, index);
	uint64_t place;

	if (task->access != NULL && task->access->recv != NULL) {
		*bytes = task->cut.block_bytes;
		return task->access->recv(task, shard, block);
	}
	place = block_place(task, block, bytes);
	return *bytes > 0 ? (uint8_t *)task->recv + place : NULL;
}

/* Where block `index` of this segment is that we announced, and how many bytes of it there are. */
static const uint8_t *send_address(const struct allreduce *task, uint32_t shard,
                                   const struct stream_segment *segment, uint32_t index,
                                   uint32_t *bytes)
{
	uint64_t before = (uint64_t)segment->number * task->cut.segment_blocks;
	uint64_t block = geometry_block(&task->cut, shard, before + index);
	uint64_t place;

	if (task->access != NULL) {
		*bytes = task->cut.block_bytes;
		return task->access->send(task, segment->number, block);
	}
	place = block_place(task, block, bytes);
	return *bytes > 0 ? (const uint8_t *)task->send + place : NULL;
}

/* ---- what a frame holds ---- */

struct frame_blocks {
	uint32_t count; /* union blocks in the frame */
	uint32_t part;  /* of a block that takes several frames */
	uint32_t unit_bytes;
	uint16_t blocks[WIRE_FRAME_BLOCKS_MAX]; /* of the segment */
};

/* The word of the union bitmap that holds its block number `rank`. */
static uint32_t word_of_rank(const struct stream_segment *segment, uint32_t rank)
{
	uint32_t low = 0, high = (segment->block_count + 63) / 64;

	while (high - low > 1) {
		uint32_t middle = (low + high) / 2;

		if (segment->rank_before[middle] <= rank)
			low = middle;
		else
			high = middle;
	}
	return low;
}

static void frame_list(const struct stream_segment *segment, const struct geometry *cut,
                       uint32_t frame, struct frame_blocks *out)
{
	uint32_t number = frame - segment->first;
	uint32_t rank = number / cut->block_parts * cut->frame_blocks;
	uint32_t word = word_of_rank(segment, rank);
	uint64_t left = segment->united[word];

	out->part = number % cut->block_parts;
	out->unit_bytes = geometry_part_bytes(cut, out->part);
	out->count = segment->union_count - rank;
	if (out->count > cut->frame_blocks)
		out->count = cut->frame_blocks;
	for (uint32_t skip = rank - segment->rank_before[word]; skip > 0; skip--)
		left &= left - 1;
	for (uint32_t i = 0; i < out->count; i++) {
		while (left == 0)
			left = segment->united[++word];
		out->blocks[i] = (uint16_t)(word * 64 + (uint32_t)__builtin_ctzll(left));
		left &= left - 1;
	}
}

/* One block, or one part of it, straight from the tensor; what the tensor lacks is zero. */
static void point_at_block(const struct stream *s, struct packet_out *out,
                           const struct allreduce *task, const struct stream_segment *segment,
                           const struct frame_blocks *list, uint32_t index)
{
	uint32_t bytes, offset = list->part * task->cut.part_bytes, have = 0;
	const uint8_t *address = send_address(task, s->config.shard, segment, index, &bytes);

	if (bytes > offset)
		have = bytes - offset < list->unit_bytes ? bytes - offset : list->unit_bytes;
	if (have > 0)
		packet_point(out, address + offset, have);
	packet_point(out, zeros, list->unit_bytes - have);
}

/* The same as int32, converted into the packet's scratch memory (section 9). */
static void encode_block(const struct stream *s, struct packet_out *out,
                         const struct allreduce *task, const struct stream_segment *segment,
                         const struct frame_blocks *list, uint32_t index)
{
	uint32_t bytes, offset = list->part * task->cut.part_bytes, have = 0;
	const uint8_t *address = send_address(task, s->config.shard, segment, index, &bytes);
	uint8_t *to = (uint8_t *)out->scratch + packet_body_bytes(out);

	if (bytes > offset)
		have = bytes - offset < list->unit_bytes ? bytes - offset : list->unit_bytes;
	if (have > 0)
		s->config.engine->fixed_encode(to, address + offset, have / 4, segment->shift);
	memset(to + have, 0, list->unit_bytes - have);
	packet_point(out, to, list->unit_bytes);
}

static uint64_t own_mask(const struct stream_segment *segment, const struct frame_blocks *list)
{
	uint64_t mask = 0;

	for (uint32_t i = 0; i < list->count; i++)
		mask |= (uint64_t)bit_test(segment->own, list->blocks[i]) << i;
	return mask;
}

static struct access_frame access_frame_of(const struct stream *s, const struct allreduce *task,
                                           const struct stream_segment *segment, uint32_t frame)
{
	return (struct access_frame){.segment = segment->number,
	                             .shard = shard_of(s, task),
	                             .number = frame,
	                             .edge = s->ack};
}

/* False when this worker has nothing in the frame, or, *waits, not yet. */
static bool push_build(struct stream *s, struct stream_segment *segment, uint32_t frame,
                       struct packet_out *out, bool *waits)
{
	const struct allreduce *task = s->ops[segment->slot].task;
	const uint8_t *ready = NULL;
	struct frame_blocks list;
	uint64_t mask;

	if (task == NULL)
		return false; /* withdrawn: the tensor is no longer ours to read */
	frame_list(segment, &task->cut, frame, &list);
	mask = own_mask(segment, &list);
	if (mask == 0)
		return false;
	if (task->access != NULL && task->access->push != NULL) {
		struct access_frame which = access_frame_of(s, task, segment, frame);

		ready = task->access->push(task, &which);
		*waits = ready == NULL;
		if (ready == NULL)
			return false;
	}
	stream_head(s, out, WIRE_PUSH, frame, mask);
	if (ready != NULL) {
		packet_point(out, ready, (uint32_t)__builtin_popcountll(mask) * list.unit_bytes);
		return true;
	}
	for (uint32_t i = 0; i < list.count; i++) {
		if (!(mask >> i & 1))
			continue;
		if (travels_fixed(task, segment))
			encode_block(s, out, task, segment, &list, list.blocks[i]);
		else
			point_at_block(s, out, task, segment, &list, list.blocks[i]);
	}
	return true;
}

/* ---- pushing ---- */

static void frame_passed(struct stream *s, uint64_t now_us)
{
	struct stream_frame *frame = stream_frame_of(s, s->next);

	frame->sent_us = (uint32_t)now_us;
	s->next++;
	if (s->rto_due_us == NEVER)
		s->rto_due_us = now_us + pace_rto_us(&s->pace);
}

bool push_pull(struct stream *s, uint64_t now_us, struct packet_out *out)
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
		if (s->under_way >= s->pace.window)
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
		pace_sent(&s->pace, 1, now_us);
		return true;
	}
	return false;
}

bool resend_pull(struct stream *s, uint64_t now_us, struct packet_out *out)
{
	bool waits = false; /* it was sent once, so it does not */

	if (frame_before(s->resend_from, s->ack))
		s->resend_from = s->ack;
	while (frame_before(s->resend_from, s->resend_to)) {
		uint32_t number = s->resend_from++;
		struct stream_frame *frame = stream_frame_of(s, number);
		struct stream_segment *segment;

		if (!(frame->flags & FRAME_RESEND))
			continue;
		frame->flags &= (uint8_t)~FRAME_RESEND;
		segment = stream_find(s, number);
		if ((frame->flags & FRAME_HAVE) || !push_build(s, segment, number, out, &waits))
			continue;
		frame->sent_us = (uint32_t)now_us;
		s->stats.retransmits++;
		return true;
	}
	return false;
}

void want_take(struct stream *s, const struct packet *packet)
{
	uint64_t words[WIRE_NACK_WORDS_MAX];
	uint32_t word_count = nack_parse(packet, words);

	for (uint32_t bit = 0; bit < word_count * 64; bit++) {
		uint32_t number = packet->frame + bit;
		struct stream_frame *frame = stream_frame_of(s, number);

		if (!bit_test(words, bit) || frame_before(number, s->ack) ||
		    !frame_before(number, s->next))
			continue;
		if (!(frame->flags & FRAME_SENT) || (frame->flags & (FRAME_HAVE | FRAME_RESEND)))
			continue;
		frame->flags |= FRAME_RESEND;
		if (!frame_before(s->resend_from, s->resend_to))
			s->resend_from = s->resend_to = number;
		if (frame_before(number, s->resend_from))
			s->resend_from = number;
		if (!frame_before(number, s->resend_to))
			s->resend_to = number + 1;
		pace_lost(&s->pace, 1);
	}
}

/* ---- results ---- */

/* False: there is no room for it yet. */
static bool store(const struct stream *s, struct allreduce *task,
                  const struct stream_segment *segment, const struct frame_blocks *list,
                  uint32_t frame, const uint8_t *data)
{
	uint64_t before = (uint64_t)segment->number * task->cut.segment_blocks;
	uint32_t divisor = task->reduction == REDUCE_AVG ? s->config.world : 1;
	uint32_t offset = list->part * task->cut.part_bytes;

	if (task->access != NULL && task->access->store != NULL) {
		struct access_frame which = access_frame_of(s, task, segment, frame);

		return task->access->store(task, &which, data, list->count * list->unit_bytes);
	}
	for (uint32_t i = 0; i < list->count; i++, data += list->unit_bytes) {
		uint32_t bytes, have = 0;
		uint8_t *address =
			recv_address(task, s->config.shard, before + list->blocks[i], &bytes);

		if (bytes > offset)
			have = bytes - offset < list->unit_bytes ? bytes - offset
			                                         : list->unit_bytes;
		if (have == 0)
			continue;
		if (travels_fixed(task, segment))
			s->config.engine->fixed_decode(address + offset, data, have / 4,
			                               segment->shift, divisor);
		else
			memcpy(address + offset, data, have);
	}
	return true;
}

/* RESULTs that this one has overtaken may be lost: ask when they are late. */
static void result_timers(struct stream *s, struct stream_frame *frame, uint32_t number,
                          uint64_t now_us)
{
	uint64_t reorder_us = s->pace.srtt_us / 8;

	if (frame->flags & FRAME_SENT)
		s->under_way--;
	pace_progress(&s->pace);
	if (!frame_before(number, s->highest))
		s->highest = number + 1;
	reorder_us = reorder_us < REORDER_US_MIN ? REORDER_US_MIN : reorder_us;
	reorder_us = reorder_us > REORDER_US_MAX ? REORDER_US_MAX : reorder_us;
	if (s->gap_due_us == NEVER && s->highest - s->ack > 1) {
		s->gap_due_us = now_us + reorder_us;
		s->gap_edge = s->highest;
	}
	s->rto_due_us = now_us + pace_rto_us(&s->pace);
}

struct allreduce *result_take(struct stream *s, const struct packet *packet, uint64_t now_us)
{
	struct stream_frame *frame = stream_frame_of(s, packet->frame);
	struct stream_segment *segment;
	struct frame_blocks list;
	struct allreduce *task;

	if (frame_before(packet->frame, s->ack) || !frame_before(packet->frame, s->credit)) {
		stream_drop(s, WIRE_DROP_STALE);
		return NULL;
	}
	segment = stream_find(s, packet->frame);
	if (segment == NULL || segment->hollow) {
		stream_drop(s, WIRE_DROP_FRAME); /* its plan was lost; edges_take() asks for it */
		return NULL;
	}
	if (frame->flags & FRAME_HAVE) {
		stream_drop(s, WIRE_DROP_DUPLICATE);
		return NULL;
	}
	task = s->ops[segment->slot].task;
	if (task == NULL) {
		stream_drop(s, WIRE_DROP_OPERATION);
		return NULL;
	}
	frame_list(segment, &task->cut, packet->frame, &list);
	if (packet->body_bytes != list.count * list.unit_bytes) {
		stream_drop(s, WIRE_DROP_LENGTH);
		return NULL;
	}
	if (!store(s, task, segment, &list, packet->frame, packet->body)) {
		stream_drop(s, WIRE_DROP_STALE);
		return NULL;
	}
	result_timers(s, frame, packet->frame, now_us);
	frame->flags |= FRAME_HAVE;
	if (++segment->received < segment->frame_count)
		return NULL;
	return stream_segment_done(s, segment);
}

/* ---- operations without frames ---- */

/* There is one. */
static uint64_t first_bit(const uint64_t *words)
{
	uint64_t word = 0;

	while (words[word] == 0)
		word++;
	return word * 64 + (uint64_t)__builtin_ctzll(words[word]);
}

/* The blocks of an eager operation follow its bitmap: packed, whole, padded with zeros. */
void eager_point(struct packet_out *out, const struct allreduce *task,
                 const struct stream_segment *segment, const struct bitmap_engine *engine)
{
	struct bitmap_tensor tensor = {
		.data = task->send,
		.count = task->count,
		.block_elems = task->cut.block_elems,
		.dtype = task->dtype,
	};
	uint32_t bytes, whole;

	if (task->access != NULL) {
		packet_point(out, task->access->send(task, 0, first_bit(segment->own)),
		             (uint32_t)task->blocks_nonzero * task->cut.block_bytes);
		return;
	}
	bytes = (uint32_t)engine->pack(&tensor, segment->own, out->scratch) * task->cut.elem_bytes;
	whole = (bytes + task->cut.block_bytes - 1) / task->cut.block_bytes * task->cut.block_bytes;
	memset((uint8_t *)out->scratch + bytes, 0, whole - bytes);
	packet_point(out, out->scratch, whole);
}

void eager_store(struct allreduce *task, const struct stream_segment *segment, const uint8_t *sums)
{
	if (task->access != NULL && task->access->store != NULL) {
		(void)task->access->store(task, &(struct access_frame){0}, sums,
		                          segment->union_count * task->cut.block_bytes);
		return;
	}
	for (uint32_t b = 0; b < segment->block_count; b++) {
		uint32_t bytes;
		uint8_t *address;

		if (!bit_test(segment->united, b))
			continue;
		address = recv_address(task, 0, b, &bytes);
		memcpy(address, sums, bytes);
		sums += task->cut.block_bytes;
	}
}
