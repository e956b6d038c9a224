// SPDX-License-Identifier: BSD-3-Clause
/*
 * channel_slot.c - frames: which worker owes what, adding, handing out the sums
 *
 * A slot is opened for a stretch of the union, with the number of workers that own a block of it. A
 * PUSH is accepted once from each of them, in any order, and must be as long as the blocks that its
 * sender announced. PROTOCOL.md section 8.
 */

#include "aggregator/channel/channel_impl.h"

/* ---- opening ---- */

/* The next blocks of the union. */
static void take_blocks(struct channel *channel, const struct segment *segment, struct slot *slot)
{
	uint32_t left = segment->union_count - channel->open_rank;
	uint32_t most = segment->frames.frame_blocks, want = most < left ? most : left;
	uint32_t word = channel->open_bit / 64;
	uint64_t bits = segment->united[word] & UINT64_MAX << (channel->open_bit % 64);

	while (bits == 0)
		bits = segment->united[++word];
	slot->block_count = want;
	slot->first = word * 64 + (uint32_t)__builtin_ctzll(bits);
	for (uint32_t here; (here = (uint32_t)__builtin_popcountll(bits)) < want; want -= here)
		bits = segment->united[++word];
	slot->end = word * 64 + bitmap_select(bits, want - 1) + 1;
	if (slot->part + 1 < segment->frames.block_parts)
		return; /* the next frame takes the next part of the same block */
	channel->open_bit = slot->end;
	channel->open_rank += slot->block_count;
}

/* The kernel adds int32, and nothing else. */
static bool kernel_adds(const struct channel *channel, const struct segment *segment)
{
	struct sum sum = sum_of(channel, segment);

	return channel->config.fast != NULL && sum.dtype == DTYPE_I32 &&
	       sum.reduction == REDUCE_SUM;
}

static void open_slot(struct channel *channel, struct segment *segment)
{
	struct slot *slot = slot_at(channel, channel->opened);

	slot->frame = channel->opened;
	slot->state = SLOT_OPEN;
	slot->segment = (uint32_t)(segment - channel->segments);
	slot->part = (channel->opened - segment->first) % segment->frames.block_parts;
	slot->unit_bytes = geometry_part_bytes(&segment->frames, slot->part);
	slot->receiver = segment->receiver;
	slot->sent = false;
	slot->arrived = 0;
	slot->expected = 0;
	memset(slot->came, 0, channel->rank_words * 8);
	take_blocks(channel, segment, slot);
	for (uint32_t rank = 0; rank < channel->config.worker_count; rank++)
		slot->expected += slot_owns(channel, slot, rank);
	if (kernel_adds(channel, segment) && slot->block_count <= FAST_BLOCKS_MAX)
		fast_open(channel, slot);
	else
		fast_close(channel, slot);
	channel->opened++;
}

void slot_open_more(struct channel *channel)
{
	while (channel->opened != channel->planned) {
		struct segment *segment = segment_planned(channel, channel->open_segment);

		if (segment->hollow)
			channel->opened++;
		else if (channel->opened - channel->base < channel->config.window)
			open_slot(channel, segment);
		else
			return;
		if (channel->opened - segment->first == segment->frame_count) {
			channel->open_segment++;
			channel->open_rank = 0;
			channel->open_bit = 0;
		}
	}
}

/* ---- adding ---- */

/* What is added up in the slot. */
static struct sum slot_sum(const struct channel *channel, struct slot *slot)
{
	struct sum sum = sum_of(channel, &channel->segments[slot->segment]);

	sum.unit_elems = slot->unit_bytes / dtype_bytes(sum.dtype);
	sum.block_count = slot->block_count;
	sum.sums = fast_data(slot);
	return sum;
}

static void slot_add_zeros(const struct channel *channel, const struct slot *slot,
                           const struct sum *sum)
{
	const struct segment *segment = &channel->segments[slot->segment];
	uint64_t all_have[SEGMENT_WORDS], lanes[SEGMENT_WORDS];

	segment_all_have(channel, segment, slot->first / 64, (slot->end + 63) / 64, all_have);
	(void)sum->engine->within(all_have, segment->united, slot->first, slot->block_count, lanes);
	sum_add_zeros(sum, lanes);
}

static void slot_finish(struct channel *channel, struct slot *slot, const struct sum *sum)
{
	if (sum_sees_zeros(sum))
		slot_add_zeros(channel, slot, sum);
	(void)sum_finish(sum, NULL, channel->config.worker_count);
	slot->state = SLOT_DONE;
	channel->stats.results++;
	channel->stats.passed_through += slot->expected == 1;
	result_put(channel, slot);
}

static void push_again(struct channel *channel, const struct slot *slot, uint16_t rank)
{
	struct reply reply = {.kind = REPLY_RESULT, .rank = rank, .number = slot->frame};

	count_drop(channel, WIRE_DROP_DUPLICATE);
	if (slot->state == SLOT_DONE && !frame_before(slot->frame, channel->members[rank].ack))
		reply_put(channel, &reply);
}

/*
 * The kernel may have added this PUSH, and completed the frame, before it passed the packet up: for
 * its acknowledgement, or because we are to send the RESULT. The kernel answers duplicates of what
 * it sent itself, if it can; a NACK asks for the rest.
 */
static void push_fast(struct channel *channel, struct slot *slot, const struct sum *sum,
                      const struct packet *packet)
{
	enum fast_push push = fast_push(channel, slot, sum, packet);

	if (push == FAST_PUSH_AGAIN)
		return;
	channel->stats.pushes += push != FAST_PUSH_UNSENT;
	channel->stats.results += push == FAST_PUSH_COMPLETED;
	channel->stats.passed_through += push == FAST_PUSH_COMPLETED && slot->expected == 1;
	if (push != FAST_PUSH_ADDED)
		result_put(channel, slot);
}

void slot_push(struct channel *channel, const struct packet *packet, uint64_t now_us)
{
	struct slot *slot = slot_at(channel, packet->frame);
	uint64_t lanes[SEGMENT_WORDS];
	struct sum sum;
	uint32_t own;

	if (frame_before(packet->frame, channel->base)) {
		count_drop(channel, WIRE_DROP_STALE);
		return;
	}
	if (slot->state == SLOT_EMPTY || slot->frame != packet->frame) {
		count_drop(channel, WIRE_DROP_FRAME);
		return;
	}
	own = slot_lanes(channel, slot, packet->worker, lanes);
	if (own == 0 || packet->body_bytes != own * slot->unit_bytes) {
		count_drop(channel, WIRE_DROP_LENGTH);
		return;
	}
	channel->members[packet->worker].progress_us = now_us;
	sum = slot_sum(channel, slot);
	if (slot->fast != NULL) {
		push_fast(channel, slot, &sum, packet);
		return;
	}
	if (bit_test(slot->came, packet->worker)) {
		push_again(channel, slot, packet->worker);
		return;
	}
	bit_set(slot->came, packet->worker);
	sum_add(&sum, lanes, own, packet->body, slot->arrived == 0);
	channel->stats.pushes++;
	if (++slot->arrived == slot->expected)
		slot_finish(channel, slot, &sum);
}

/* ---- asking again ---- */

/*
 * Is the RESULT lost, or still on its way? It is lost if the worker has seen something that was
 * sent later (section 10.2).
 */
static bool result_lost(const struct slot *slot, const struct packet *nack)
{
	if (nack->mask & WIRE_NACK_FORCE)
		return true;
	return slot->sent && !sequence_before((uint16_t)nack->mask, slot->sequence);
}

/*
 * Handles one frame that a worker lacks: true when the cause is that its own PUSH is missing here.
 */
static bool nack_frame(struct channel *channel, const struct packet *nack, uint32_t frame)
{
	uint16_t rank = nack->worker;
	struct slot *slot = slot_at(channel, frame);
	struct reply reply = {.kind = REPLY_RESULT, .rank = rank, .number = frame};
	const struct segment *segment;

	if (frame_before(frame, channel->base) || !frame_before(frame, channel->opened))
		return false;
	fast_look(slot);
	if (slot->frame == frame && slot->state == SLOT_DONE) {
		if (fast_unsent(slot)) { /* we never saw the PUSH that completed it */
			result_put(channel, slot);
		} else if (result_lost(slot, nack)) {
			reply_put(channel, &reply);
		}
		return false;
	}
	if (slot->frame == frame && slot->state == SLOT_OPEN)
		return slot_lacks(channel, slot, rank);
	segment = segment_find(channel, frame);
	if (segment != NULL && segment->hollow)
		reply_put_plan(channel, segment, rank);
	return false;
}

void slot_nack(struct channel *channel, const struct packet *packet)
{
	struct reply want = {.kind = REPLY_WANT, .rank = packet->worker, .number = packet->frame};
	uint64_t words[WIRE_NACK_WORDS_MAX];
	uint64_t any = 0;

	want.word_count = nack_parse(packet, words);
	if (want.word_count == 0) {
		count_drop(channel, WIRE_DROP_LENGTH);
		return;
	}
	for (uint32_t word = 0; word < want.word_count; word++) {
		for (uint64_t left = words[word]; left != 0; left &= left - 1) {
			uint32_t bit = (uint32_t)__builtin_ctzll(left);

			if (nack_frame(channel, packet, packet->frame + word * 64 + bit))
				want.words[word] |= UINT64_C(1) << bit;
		}
		any |= want.words[word];
	}
	if (any != 0)
		reply_put(channel, &want);
}
