// SPDX-License-Identifier: BSD-3-Clause
/* channel_check.c - what always holds of a channel between two calls */

#include <assert.h>

#include "aggregator/channel/channel_state.h"
#include "tests/check/check.h"

static void check_members(const struct channel *c)
{
	uint32_t at_base = 0, speakers = 0;

	for (uint32_t rank = 0; rank < c->config.worker_count; rank++) {
		const struct member *member = &c->members[rank];

		if (is_mute(c, rank))
			continue;
		speakers++;
		assert(frames_in_order(c->base, member->ack, c->opened));
		assert(!frame_before(member->room, member->ack));
		assert(member->earned <= c->config.window * c->config.payload);
		at_base += member->ack == c->base;
	}
	assert(at_base > 0 && at_base == c->at_base);
	assert(speakers == c->speaker_count);
}

static void check_operation(const struct channel *c, uint32_t index)
{
	const struct operation *op = &c->ops[index];
	uint32_t binds = 0;

	assert(op->bound_count == bitmap_set_count(op->bound, c->rank_words));
	assert(op->used == (op->bound_count > 0));
	assert(op->used || op->segments_done == 0);
	if (!op->used)
		return;
	assert(op->serial <= c->op_serial && op->bound_count <= c->speaker_count);
	assert(bit_test(op->bound, op->asked_by) && op->started_us <= op->bound_us);
	assert(op->segments_done < op->asked.segment_count);
	for (uint32_t i = 0; i < c->config.worker_count * c->config.op_slots; i++) {
		const struct bind *bind = &c->binds[i];

		if (bind->generation == 0 || bind->op != index || bind->op_serial != op->serial)
			continue;
		assert(bit_test(op->bound, i / c->config.op_slots));
		binds++;
	}
	assert(binds == op->bound_count); /* one slot of each worker */
}

static void check_segment(const struct channel *c, uint32_t index)
{
	const struct segment *segment = &c->segments[index];
	const struct operation *op = &c->ops[segment->op];
	uint32_t ahead = c->config.segments_ahead, words = (segment->block_count + 63) / 64;

	assert(segment->op == index / ahead && segment->number % ahead == index % ahead);
	assert(segment->joined_count == bitmap_set_count(segment->joined, c->rank_words));
	assert(op->used || segment->state == SEGMENT_IDLE);
	if (segment->state == SEGMENT_IDLE) {
		assert(segment->joined_count == 0);
		return;
	}
	assert(segment->number < op->asked.segment_count);
	for (uint32_t i = 0; i < c->rank_words; i++)
		assert((segment->joined[i] & ~op->bound[i]) == 0);
	if (segment->state == SEGMENT_GATHERING) {
		assert(segment->joined_count >= 1);
		assert(segment->joined_count < c->speaker_count);
		return;
	}
	assert(c->config.sited || segment->state == SEGMENT_PLANNED);
	assert(segment->joined_count == c->speaker_count);
	assert(segment->union_count == bitmap_set_count(segment->united, words));
	if (segment->state != SEGMENT_PLANNED)
		return; /* its frames are the parent's business */
	assert(segment->set_bytes <= words * 8);
	assert(segment->hollow == (op_is_eager(op) || segment->union_count == 0));
	assert(op_is_eager(op) || segment->eager_bytes == 0);
	assert(segment->frame_count ==
	       (segment->hollow ? 1
	                        : geometry_frame_count(&segment->frames, segment->union_count)));
}

/* Where the kernel adds, too; nothing else touches it while this looks. */
static void check_shared(const struct channel *c, const struct slot *slot)
{
	const struct fast_slot *shared = slot->fast;

	assert(shared == &c->config.fast_slots[slot->frame & (c->config.window - 1)]);
	assert(shared->lock == 0 && shared->state != FAST_CLOSED && shared->frame == slot->frame);
	assert(shared->expected == slot->expected && shared->unit_bytes == slot->unit_bytes);
	assert(slot->block_count <= FAST_BLOCKS_MAX && shared->block_count == slot->block_count);
	assert(shared->arrived <= shared->expected);
	assert(shared->private == (slot->receiver != WIRE_EVERYONE));
	assert(shared->arrived == __builtin_popcountll(shared->came));
	assert((shared->state == FAST_DONE) == (shared->arrived == shared->expected));
	assert(slot->state != SLOT_DONE || shared->state == FAST_DONE);
	assert((slot->came[0] & ~shared->came) == 0);
}

static void check_slot(const struct channel *c, const struct segment *segment, uint32_t frame)
{
	const struct slot *slot = slot_at(c, frame);

	assert(slot->frame == frame && slot->state != SLOT_EMPTY);
	assert(&c->segments[slot->segment] == segment);
	assert(slot->block_count >= 1);
	assert(slot->block_count <= segment->frames.frame_blocks);
	assert(slot->block_count * slot->unit_bytes <= c->config.payload - WIRE_HEADER_BYTES);
	assert(slot->part < segment->frames.block_parts);
	assert(slot->receiver == WIRE_EVERYONE || slot->receiver < c->config.worker_count);
	assert(slot->first < slot->end && slot->end <= segment->block_count);
	assert(bit_test(segment->united, slot->first) && bit_test(segment->united, slot->end - 1));
	assert(bitmap_count_between(segment->united, slot->first, slot->end) == slot->block_count);
	assert(slot->expected <= c->speaker_count && (slot->expected >= 1 || c->config.sited));
	assert(!slot->sent || slot->state == SLOT_DONE);
	if (slot->fast != NULL) {
		check_shared(c, slot);
		return;
	}
	assert(slot->arrived == bitmap_set_count(slot->came, c->rank_words));
	assert(slot->arrived <= slot->expected);
	if (!c->config.sited)
		assert((slot->state == SLOT_DONE) == (slot->arrived == slot->expected));
	else if (slot->arrived < slot->expected)
		assert(slot->state == SLOT_OPEN);
	else if (slot->expected > 0)
		assert(slot->state == SLOT_SUMMED || slot->state == SLOT_DONE);
}

/* Planned segments follow each other without a gap, from the one that base lies in to `planned`. */
static void check_frames(const struct channel *c)
{
	uint32_t next = c->order.head != c->order.tail ? segment_planned(c, c->order.head)->first
	                                               : c->planned;

	assert(frames_in_order(next, c->base, c->planned));
	for (uint32_t i = c->order.head; i != c->order.tail; i++) {
		const struct segment *segment = segment_planned(c, i);
		uint32_t end = segment->first + segment->frame_count;

		assert(segment->state == SEGMENT_PLANNED && segment->first == next);
		assert(frame_before(c->base, end));
		assert((i == c->open.segment) ==
		       (c->opened - segment->first < segment->frame_count));
		assert(i != c->open.segment || c->open.rank <= segment->union_count);
		next = end;
		if (segment->hollow || !frame_before(segment->first, c->opened))
			continue;
		for (uint32_t frame = frame_before(segment->first, c->base) ? c->base
		                                                            : segment->first;
		     frame != end && frame != c->opened; frame++)
			check_slot(c, segment, frame);
	}
	assert(next == c->planned);
}

static void check_fast(const struct channel *c)
{
	const struct fast_channel *fast = c->config.fast;

	assert(fast->base == channel_edge(c) && fast->planned == c->planned);
}

static void check_ops(const struct channel *c)
{
	uint32_t used = 0, planned = 0, offered = 0;

	for (uint32_t i = 0; i < c->config.op_slots; i++) {
		check_operation(c, i);
		used += c->ops[i].used;
	}
	assert(used == c->ops_used);
	for (uint32_t i = 0; i < c->config.op_slots * c->config.segments_ahead; i++) {
		check_segment(c, i);
		planned += c->segments[i].state == SEGMENT_PLANNED;
		offered += c->segments[i].state == SEGMENT_OFFERED;
	}
	assert(planned == c->order.tail - c->order.head && offered == c->offered);
}

void channel_check(const struct channel *channel)
{
	const struct channel_config *config = &channel->config;

	channel_check_edges(channel);
	assert(channel->planned - channel->base <= FRAMES_AHEAD_MAX);
	check_members(channel);
	if (config->fast != NULL)
		check_fast(channel);
	if (!check_walks(config->window + config->op_slots * config->segments_ahead))
		return;
	check_ops(channel);
	check_frames(channel);
}
