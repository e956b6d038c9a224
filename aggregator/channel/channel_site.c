// SPDX-License-Identifier: BSD-3-Clause
/*
 * channel_site.c - the channel of a site: what it offers its parent, and what it takes from it
 *
 * See channel.h. A site's segments are planned in the order of the parent's frames, so both have the same numbers.
 */

#include "aggregator/channel/channel_state.h"

/* What the workers say of a segment that all have announced. */
static struct channel_offer offer_of(const struct channel *channel, const struct segment *segment)
{
	const struct operation *op = &channel->ops[segment->op];

	return (struct channel_offer){
		.asked = &op->asked,
		.op = segment->op,
		.segment = segment->number,
		.block_count = segment->block_count,
		.frames = segment->frames,
		.united = segment->united,
		.exponent = segment->exponent,
		.nonfinite = segment->nonfinite,
		.receiver = segment->receiver,
		.ours = segment->receiver == WIRE_EVERYONE || !is_mute(channel, segment->receiver),
	};
}

void channel_offers(struct channel *channel,
                    bool (*take)(void *context, const struct channel_offer *offer), void *context)
{
	const uint32_t count = channel->config.op_slots * channel->config.segments_ahead;

	for (uint32_t i = 0; i < count && channel->offered > 0; i++) {
		struct segment *segment = &channel->segments[i];
		struct channel_offer offer;

		if (segment->state != SEGMENT_OFFERED)
			continue;
		offer = offer_of(channel, segment);
		if (!take(context, &offer))
			continue;
		segment->state = SEGMENT_TAKEN;
		channel->offered--;
	}
}

bool channel_plan(struct channel *channel, const struct channel_planned *plan, uint64_t now_us)
{
	struct segment *segment = plan_segment_of(channel, &channel->ops[plan->op], plan->segment);
	const uint32_t words = (segment->block_count + 63) / 64;

	if (plan->first != channel->planned || segment->state != SEGMENT_TAKEN ||
	    segment->number != plan->segment)
		return false;
	memcpy(segment->united, plan->united, words * 8);
	segment->union_count = (uint32_t)bitmap_set_count(segment->united, words);
	segment->exponent = plan->exponent;
	segment->nonfinite = plan->nonfinite;
	if (op_is_eager(&channel->ops[plan->op]))
		segment->eager_bytes = segment->union_count * segment->frames.block_bytes;
	plan_number(channel, segment, now_us);
	return segment->frame_count == plan->frame_count;
}

const uint8_t *channel_eager(const struct channel *channel, uint32_t op, uint32_t segment)
{
	return eager_sums(channel, plan_segment_of(channel, &channel->ops[op], segment));
}

bool channel_eager_set(struct channel *channel, uint32_t op, uint32_t segment, const uint8_t *sums,
                       uint32_t bytes)
{
	struct segment *where = plan_segment_of(channel, &channel->ops[op], segment);

	if (where->state != SEGMENT_TAKEN || where->number != segment ||
	    bytes > channel->config.payload)
		return false;
	memcpy(eager_sums(channel, where), sums, bytes);
	return true;
}

uint32_t channel_next_plan(const struct channel *channel)
{
	return channel->planned;
}

uint32_t channel_base(const struct channel *channel)
{
	return channel->base;
}

uint32_t channel_credit(const struct channel *channel)
{
	return channel->credit;
}

void channel_above(struct channel *channel, uint32_t base)
{
	channel->above = base;
}

const uint8_t *channel_sums(const struct channel *channel, uint32_t frame)
{
	const struct slot *slot = slot_at(channel, frame);

	return slot->state == SLOT_SUMMED && slot->frame == frame ? slot->data : NULL;
}

bool channel_result(struct channel *channel, uint32_t frame, const uint8_t *data, uint32_t bytes)
{
	struct slot *slot = slot_at(channel, frame);
	const bool ours = slot->receiver == WIRE_EVERYONE || !is_mute(channel, slot->receiver);

	if (slot->frame != frame || bytes != (ours ? slot->block_count * slot->unit_bytes : 0) ||
	    (slot->state != SLOT_SUMMED && (slot->state != SLOT_OPEN || slot->expected > 0)))
		return false;
	if (bytes > 0)
		memcpy(slot->data, data, bytes);
	slot->state = SLOT_DONE;
	channel->stats.results++;
	result_put(channel, slot);
	return true;
}
