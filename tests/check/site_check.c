// SPDX-License-Identifier: BSD-3-Clause
/* site_check.c - what always holds of a site's channel, of its stream to the parent, and of the parent's channel */

#include <assert.h>
#include <string.h>

#include "aggregator/channel/channel_state.h"
#include "client/worker/stream.h"
#include "tests/check/check.h"

/* Both have the same segment under the same frames. */
static void check_same(const struct channel *site, const struct segment *here,
                       const struct channel *parent, const struct segment *there)
{
	const struct operation *op = &site->ops[here->op], *other = &parent->ops[there->op];
	const uint32_t words = (here->block_count + 63) / 64;

	assert(there->first == here->first && there->frame_count == here->frame_count);
	assert(there->number == here->number && other->asked.tag == op->asked.tag);
	assert(there->block_count == here->block_count && there->hollow == here->hollow);
	assert(memcmp(there->united, here->united, words * sizeof(here->united[0])) == 0);
	assert(there->exponent == here->exponent && there->nonfinite == here->nonfinite);
	assert(there->eager_bytes == here->eager_bytes);
	assert(memcmp(eager_sums(parent, there), eager_sums(site, here), here->eager_bytes) == 0);
}

/* What a site passes on as the sums of a frame is what the parent has. */
static void check_sums(const struct channel *site, const struct channel *parent, uint32_t frame)
{
	const struct slot *here = slot_at(site, frame), *there = slot_at(parent, frame);

	if (here->frame != frame || here->state != SLOT_DONE || there->frame != frame)
		return;
	assert(there->state == SLOT_DONE && there->block_count == here->block_count &&
	       there->unit_bytes == here->unit_bytes);
	if (here->receiver != WIRE_EVERYONE && is_mute(site, here->receiver))
		return; /* only that they are complete */
	assert(memcmp(fast_data(there), here->data, (size_t)here->block_count * here->unit_bytes) ==
	       0);
}

static void check_parent(const struct channel *site, const struct channel *parent)
{
	assert(!frame_before(parent->planned, site->planned));
	assert(!frame_before(site->base, parent->base));
	/* A worker that has nothing more to do leaves, so the others must have all of it. */
	assert(site->told.base != site->planned || !frame_before(parent->base, site->told.base));
	if (!check_walks(site->config.window + site->segment_count))
		return;
	for (uint32_t i = site->order.head; i != site->order.tail; i++) {
		const struct segment *here = segment_planned(site, i);

		if (frame_before(here->first, parent->base))
			continue; /* it may be no more there */
		check_same(site, here, parent, segment_find(parent, here->first));
		if (here->hollow)
			continue;
		for (uint32_t frame = here->first;
		     frame != here->first + here->frame_count && frame_before(frame, site->opened);
		     frame++)
			check_sums(site, parent, frame);
	}
}

void site_check(const struct channel *site, const struct stream *up, const struct channel *parent)
{
	struct stream_plan plan;

	/* The plans that follow each other without a gap are passed on, so what follows them finds slots. */
	assert(!stream_plan_at(up, site->planned, &plan));
	/* What a worker here lacks is not acknowledged, so the parent keeps its own base before it. */
	assert(!frame_before(site->base, (uint32_t)stream_edge(up)));
	if (parent != NULL)
		check_parent(site, parent);
}
