// SPDX-License-Identifier: BSD-3-Clause
/*
 * channel_slot.c - frames: opening slots, adding PUSHes, finding missing ones (PROTOCOL.md, section 8)
 *
 * A slot is opened for a stretch of the union, with the number of workers that own a block of it.
 * 8.2: "The aggregator adds the PUSH of each worker that has announced a block of the frame once, in any order".
 */

#include "aggregator/channel/channel_state.h"

/* ---- opening ---- */

/* Takes the next blocks of the union. */
static void take_blocks(struct channel *channel, const struct segment *segment, struct slot *slot)
{
	uint32_t left = segment->union_count - channel->open.rank;
	uint32_t most = segment->frames.frame_blocks, want = most < left ? most : left;
	uint32_t word = channel->open.bit / 64;
	uint64_t bits = segment->united[word] & UINT64_MAX << (channel->open.bit % 64);

	while (bits == 0)
		bits = segment->united[++word];
	slot->block_count = want;
	slot->first = word * 64 + (uint32_t)__builtin_ctzll(bits);
	for (uint32_t here; (here = (uint32_t)__builtin_popcountll(bits)) < want; want -= here)
		bits = segment->united[++word];
	slot->end = word * 64 + bitmap_select(bits, want - 1) + 1;
	if (slot->part + 1 < segment->frames.block_parts)
		return; /* the next frame takes the next part of the same block */
	channel->open.bit = slot->end;
	channel->open.rank += slot->block_count;
}

/* The sum that is computed in the slot. */
static struct sum slot_sum(const struct channel *channel, const struct slot *slot)
{
	return sum_of(channel, &channel->segments[slot->segment], slot->unit_bytes,
	              slot->block_count, fast_data(slot));
}

/* The kernel only adds int32. */
static bool kernel_adds(const struct channel *channel, const struct slot *slot)
{
	struct sum sum = slot_sum(channel, slot);

	return channel->config.fast != NULL && sum.dtype == DTYPE_I32 &&
	       sum.reduction == REDUCE_SUM && sum.block_count <= FAST_BLOCKS_MAX;
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
	slot->sent = slot->queued = false;
	slot->arrived = 0;
	slot->expected = 0;
	memset(slot->came, 0, channel->rank_words * 8);
	take_blocks(channel, segment, slot);
	for (uint32_t rank = 0; rank < channel->config.worker_count; rank++)
		slot->expected += slot_owns(channel, slot, rank);
	if (kernel_adds(channel, slot))
		fast_open(channel, slot);
	else
		fast_close(channel, slot);
	channel->opened++;
}

/* 8.3: "When base passes a frame, its slot is free for frame + window. Hollow frames have no slot" */
void slot_open_more(struct channel *channel)
{
	while (channel->opened != channel->planned) {
		struct segment *segment = segment_planned(channel, channel->open.segment);

		if (segment->hollow)
			channel->opened++;
		else if (channel->opened - channel->base < channel->config.window)
			open_slot(channel, segment);
		else
			return;
		if (channel->opened - segment->first == segment->frame_count) {
			channel->open.segment++;
			channel->open.rank = 0;
			channel->open.bit = 0;
		}
	}
}

/* ---- adding ---- */

static void slot_add_zeros(const struct channel *channel, const struct slot *slot,
                           const struct sum *sum)
{
	const struct segment *segment = &channel->segments[slot->segment];
	uint64_t all_have[SEGMENT_WORDS], lanes[SEGMENT_WORDS];

	segment_all_have(channel, segment, slot->first / 64, (slot->end + 63) / 64, all_have);
	(void)sum->engine->within(all_have, segment->united, slot->first, slot->block_count, lanes);
	sum_add_zeros(sum, lanes);
}

/* 8.2: "After the last one it applies zeros for the blocks that some worker did not send" */
static void slot_finish(struct channel *channel, struct slot *slot, const struct sum *sum)
{
	if (sum_sees_zeros(sum))
		slot_add_zeros(channel, slot, sum);
	(void)sum_finish(sum, NULL, channel->config.worker_count);
	if (channel->config.sited) {
		slot->state = SLOT_SUMMED;
		return;
	}
	slot->state = SLOT_DONE;
	channel->stats.results++;
	channel->stats.passed_through += slot->expected == 1;
	result_put(channel, slot);
}

/*
 * The kernel may have added this PUSH, and completed the frame, before it passed the packet up to
 * wake us or to have us send the RESULT.
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
	/* 8.1: "A PUSH of another length is dropped (bad_length)" */
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
	/* 8.2: "adds the PUSH of each worker that has announced a block of the frame once" */
	if (bit_test(slot->came, packet->worker)) {
		count_drop(channel, WIRE_DROP_DUPLICATE);
		return;
	}
	bit_set(slot->came, packet->worker);
	sum_add(&sum, lanes, own, packet->body, slot->arrived == 0);
	channel->stats.pushes++;
	if (++slot->arrived == slot->expected)
		slot_finish(channel, slot, &sum);
}

/* ---- missing packets ---- */

/*
 * Sends what a worker lacks. 10.2: "before pushed, the RESULT, if it was sent, and its sequence is
 * not after the STATUS's", else it is on its way. 10.2: "from pushed on, the PLAN that has this
 * frame".
 */
static void send_again(struct channel *channel, const struct packet *packet, uint32_t frame)
{
	struct reply reply = {.kind = REPLY_RESULT, .rank = packet->worker, .number = frame};
	struct slot *slot = slot_at(channel, frame);
	const struct segment *segment;

	if (!frame_before(frame, packet->pushed)) {
		segment = segment_find(channel, frame);
		if (segment != NULL)
			reply_put_plan(channel, segment, packet->worker);
		return;
	}
	if (frame_before(frame, channel->base) || slot->frame != frame)
		return;
	fast_look(slot);
	if (slot->sent && !sequence_before(packet->sequence, slot->sequence))
		reply_put(channel, &reply);
}

/*
 * missing_find - 10.3: "It lists the frames that it lacks from the worker". Frames for which there
 * is no room or account are found another time. A RESULT is sent now if the kernel left it to us
 * and the packet that should have told us was lost.
 */
static void missing_find(struct channel *channel, const struct packet *packet, struct status *out)
{
	const uint16_t rank = packet->worker;
	const uint32_t from = channel->members[rank].ack;

	if (packet->pushed - from > channel->opened - from)
		return; /* an old STATUS, or a wrong one: these frames have no slot */
	for (uint32_t frame = from; frame != packet->pushed; frame++) {
		struct slot *slot = slot_at(channel, frame);

		if (slot->frame != frame)
			continue; /* hollow */
		fast_look(slot);
		if (slot->state == SLOT_DONE && !slot->sent && fast_unsent(slot))
			result_put(channel, slot);
		if (slot->state == SLOT_OPEN && slot_lacks(channel, slot, rank) &&
		    !(repeats_spend(channel, rank, channel->config.payload / LISTED_SHARE) &&
		      status_list(out, frame)))
			return;
	}
}

void slot_status(struct channel *channel, const struct packet *packet)
{
	struct reply reply = {.kind = REPLY_STATUS,
	                      .rank = packet->worker,
	                      .came_us = packet->came_us != 0 ? packet->came_us : channel->now_us};
	enum wire_drop drop = status_parse(packet, &reply.status);
	struct status *status = &reply.status;

	if (drop != WIRE_DROP_NONE) {
		count_drop(channel, drop);
		return;
	}
	for (uint32_t word = 0; word < status->word_count; word++) {
		for (uint64_t left = status->words[word]; left != 0; left &= left - 1) {
			uint32_t bit = word * 64 + (uint32_t)__builtin_ctzll(left);

			send_again(channel, packet, status->first + bit);
		}
	}
	if (!status->asks)
		return;
	/* 10.3: "An aggregator answers each STATUS that asks with one STATUS, with the same stamp" */
	*status = (struct status){.stamp = status->stamp};
	if (reply_room(channel))
		missing_find(channel, packet, status);
	reply_put(channel, &reply);
}
