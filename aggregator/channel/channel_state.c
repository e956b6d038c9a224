// SPDX-License-Identifier: BSD-3-Clause
/* channel_state.c - finds segments and slots; all other channel_*.c files stand on this one */

#include <assert.h>

#include "aggregator/channel/channel_state.h"

struct segment *segment_planned(const struct channel *channel, uint32_t place)
{
	return &channel->segments[channel->order.places[place & (channel->segment_count - 1)]];
}

/* Planned segments follow each other without a gap. */
struct segment *segment_find(const struct channel *channel, uint32_t frame)
{
	uint32_t place = channel->order.head, count = channel->order.tail - place;

	if (count == 0 || !frame_before(frame, channel->planned) ||
	    frame_before(frame, segment_planned(channel, place)->first))
		return NULL;
	for (uint32_t half = count / 2; half > 0; half = count / 2) {
		bool below = frame_before(frame, segment_planned(channel, place + half)->first);

		place += below ? 0 : half;
		count = below ? half : count - half;
	}
	return segment_planned(channel, place);
}

struct slot *slot_at(const struct channel *channel, uint32_t frame)
{
	return &channel->slots[frame & (channel->config.window - 1)];
}

bool slot_owns(const struct channel *channel, const struct slot *slot, uint32_t rank)
{
	const uint64_t *bits = segment_bits(channel, &channel->segments[slot->segment], rank);

	for (uint32_t word = slot->first / 64; word * 64 < slot->end; word++)
		if (bitmap_word_between(bits, word, slot->first, slot->end) != 0)
			return true;
	return false;
}

uint32_t slot_lanes(const struct channel *channel, const struct slot *slot, uint32_t rank,
                    uint64_t lanes[SEGMENT_WORDS])
{
	const struct segment *segment = &channel->segments[slot->segment];

	return (uint32_t)channel->config.engine->within(segment_bits(channel, segment, rank),
	                                                segment->united, slot->first,
	                                                slot->block_count, lanes);
}

void segment_all_have(const struct channel *channel, const struct segment *segment, uint32_t from,
                      uint32_t to, uint64_t words[SEGMENT_WORDS])
{
	for (uint32_t i = from; i < to; i++)
		words[i] = segment->united[i];
	for (uint32_t rank = 0; rank < channel->config.worker_count; rank++)
		for (uint32_t i = from; i < to && !is_mute(channel, rank); i++)
			words[i] &= segment_bits(channel, segment, rank)[i];
}

bool slot_lacks(const struct channel *channel, const struct slot *slot, uint32_t rank)
{
	return !bit_test(slot->came, rank) && slot_owns(channel, slot, rank);
}

void channel_check_edges(const struct channel *c)
{
	assert(frames_in_order(c->base, c->opened, c->planned));
	assert(frames_in_order(c->base + 1, c->credit, c->base + c->config.window));
	assert(!frame_before(c->credit, c->told.credit) && !frame_before(c->base, c->told.base));
	assert(frames_in_order(c->order.head, c->plans_sent, c->order.tail));
	assert(frames_in_order(c->order.head, c->open.segment, c->order.tail));
	assert(c->order.tail - c->order.head <= c->segment_count);
	assert(c->replies.tail - c->replies.head <= REPLIES_MAX);
	assert(c->results.tail - c->results.head <= c->config.window);
}
