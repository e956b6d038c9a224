// SPDX-License-Identifier: BSD-3-Clause
/* channel_state.c - where things are in a channel: the ground that all channel_*.c stand on */

#include <assert.h>

#include "aggregator/channel/channel_impl.h"

struct segment *segment_planned(const struct channel *channel, uint32_t place)
{
	return &channel->segments[channel->order[place & (channel->segment_count - 1)]];
}

struct segment *segment_find(const struct channel *channel, uint32_t frame)
{
	for (uint32_t i = channel->order_head; i != channel->order_tail; i++) {
		struct segment *segment = segment_planned(channel, i);

		if (frame - segment->first < segment->frame_count)
			return segment;
	}
	return NULL;
}

struct slot *slot_at(const struct channel *channel, uint32_t frame)
{
	return &channel->slots[frame & (channel->config.window - 1)];
}

/* Which of the slot's blocks did `rank` announce? Neighbouring blocks are a shift away. */
uint64_t slot_owned(const struct segment *segment, const struct slot *slot, uint32_t rank)
{
	const uint64_t *bits = segment_bits(segment, rank);
	uint32_t count = slot->block_count;
	uint32_t first = slot->blocks[0];
	uint64_t mask = 0;

	assert(count >= 1 && count <= WIRE_FRAME_BLOCKS_MAX);
	if (slot->blocks[count - 1] - first == count - 1) {
		uint32_t word = first / 64, shift = first % 64;

		mask = bits[word] >> shift;
		if (shift > 0 && word + 1 < SEGMENT_WORDS)
			mask |= bits[word + 1] << (64 - shift);
		return count < 64 ? mask & ((UINT64_C(1) << count) - 1) : mask;
	}
	for (uint32_t i = 0; i < count; i++)
		mask |= (bits[slot->blocks[i] / 64] >> (slot->blocks[i] % 64) & 1) << i;
	return mask;
}

bool slot_lacks(const struct channel *channel, const struct slot *slot, uint32_t rank)
{
	return !bit_test(slot->came, rank) &&
	       slot_owned(&channel->segments[slot->segment], slot, rank) != 0;
}
