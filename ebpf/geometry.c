// SPDX-License-Identifier: BSD-3-Clause
/* geometry.c - PROTOCOL.md section 4 */

#include "ebpf/geometry.h"

#include <assert.h>

#include "ebpf/deal.h"

#define COUNT_MAX (UINT64_C(1) << 48)
#define SHARD_BLOCKS_MAX (UINT64_C(1) << 38) /* at 64 a segment, 2^32 segments */

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Section 4.4: a small operation is one segment on one channel and needs no frames. */
static bool is_eager(const struct geometry *g, bool fixed32)
{
	uint64_t room = g->payload_bytes - WIRE_ANNOUNCE_BYTES;
	uint64_t bitmap_bytes = (g->block_count + 63) / 64 * 8;

	return !fixed32 && g->block_count <= WIRE_SEGMENT_BLOCKS_MAX &&
	       g->block_count * g->block_bytes + bitmap_bytes <= room;
}

static void cut_frames(struct geometry *g)
{
	if (g->block_bytes <= g->payload_bytes) {
		g->frame_blocks = min_u32(WIRE_FRAME_BLOCKS_MAX, g->payload_bytes / g->block_bytes);
		g->block_parts = 1;
		g->part_bytes = g->block_bytes;
		return;
	}
	g->frame_blocks = 1;
	g->part_bytes = g->payload_bytes & ~7u;
	g->block_parts = (g->block_bytes + g->part_bytes - 1) / g->part_bytes;
}

static void cut_segments(struct geometry *g)
{
	uint32_t blocks = WIRE_SEGMENT_BYTES / g->block_bytes & ~63u;

	if (blocks < 64)
		blocks = 64;
	g->segment_blocks = min_u32(blocks, WIRE_SEGMENT_BLOCKS_MAX);
	g->share_segments =
		(uint32_t)((g->shard_blocks + g->segment_blocks - 1) / g->segment_blocks);
	if (g->share_segments == 0)
		g->share_segments = 1;
}

/* Section 4.5. What is eager, or has no elements, is not worth shares. */
static void cut_shares(struct geometry *g, const struct geometry_input *input)
{
	g->share_count = 1;
	g->share_elems = input->count;
	g->share_blocks = g->block_count;
	if (input->scatter <= 1 || g->eager || input->count == 0)
		return;
	g->share_count = input->scatter;
	g->share_elems = input->count / input->scatter;
	if (g->share_elems < g->block_elems) {
		g->block_elems = (uint32_t)g->share_elems;
		g->block_bytes = g->block_elems * g->elem_bytes;
	}
	g->share_blocks = (g->share_elems + g->block_elems - 1) / g->block_elems;
	g->block_count = g->share_blocks * g->share_count;
}

bool geometry_compute(const struct geometry_input *input, struct geometry *out)
{
	struct geometry g = {0};

	if (input->count > COUNT_MAX || input->block_elems == 0 ||
	    input->block_elems > WIRE_BLOCK_ELEMS_MAX || input->shard_count == 0 ||
	    input->shard_count > WIRE_SHARDS_MAX || input->payload < WIRE_PAYLOAD_MIN ||
	    input->payload > WIRE_PAYLOAD_MAX)
		return false;
	if (input->elem_bytes != 2 && input->elem_bytes != 4 && input->elem_bytes != 8)
		return false;
	if (input->scatter > WIRE_WORKERS_MAX ||
	    (input->scatter > 1 && input->count % input->scatter != 0))
		return false;

	g.elem_bytes = input->elem_bytes;
	g.block_elems = input->block_elems;
	if (input->count < g.block_elems)
		g.block_elems = input->count > 0 ? (uint32_t)input->count : 1;
	g.block_bytes = g.block_elems * g.elem_bytes;
	g.payload_bytes = input->payload - WIRE_HEADER_BYTES;
	g.block_count = (input->count + g.block_elems - 1) / g.block_elems;
	g.eager = is_eager(&g, input->fixed32);
	cut_shares(&g, input);
	g.shard_count = g.eager ? 1 : input->shard_count;
	g.shard_blocks = (g.share_blocks + g.shard_count - 1) / g.shard_count;
	if (g.shard_blocks * g.share_count >= SHARD_BLOCKS_MAX)
		return false;
	cut_frames(&g);
	cut_segments(&g);
	g.segment_count = g.share_segments * g.share_count;
	*out = g;
	return true;
}

uint64_t geometry_gcd(uint64_t a, uint64_t b)
{
	while (b != 0) {
		uint64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/* Blocks of its share that one shard has before `segment`. */
static uint64_t before_in_share(const struct geometry *geometry, uint32_t segment)
{
	uint32_t within = segment % geometry->share_segments;

	return (uint64_t)within * geometry->segment_blocks;
}

uint32_t geometry_segment_blocks(const struct geometry *geometry, uint32_t segment)
{
	uint64_t before = before_in_share(geometry, segment);

	if (segment >= geometry->segment_count || before >= geometry->shard_blocks)
		return 0;
	if (geometry->shard_blocks - before < geometry->segment_blocks)
		return (uint32_t)(geometry->shard_blocks - before);
	return geometry->segment_blocks;
}

uint32_t geometry_frame_count(const struct geometry *geometry, uint32_t union_blocks)
{
	uint32_t frames = union_blocks * geometry->block_parts;

	if (geometry->block_parts == 1)
		frames = (union_blocks + geometry->frame_blocks - 1) / geometry->frame_blocks;
	return frames > 0 ? frames : 1;
}

uint32_t geometry_part_bytes(const struct geometry *geometry, uint32_t part)
{
	if (part + 1 < geometry->block_parts)
		return geometry->part_bytes;
	return geometry->block_bytes - part * geometry->part_bytes;
}

uint64_t geometry_block(const struct geometry *geometry, uint32_t shard, uint64_t index)
{
	uint64_t per_share, share, block;

	assert(shard < geometry->shard_count);
	if (geometry->share_count == 1)
		return deal_block(geometry->shard_count, shard, index);
	per_share = (uint64_t)geometry->share_segments * geometry->segment_blocks;
	share = index / per_share;
	block = deal_block(geometry->shard_count, shard, index - share * per_share);
	return block < geometry->share_blocks ? share * geometry->share_blocks + block
	                                      : geometry->block_count;
}

uint32_t geometry_shard(const struct geometry *geometry, uint64_t block)
{
	if (geometry->share_count > 1)
		block %= geometry->share_blocks;
	return deal_shard(geometry->shard_count, block);
}

uint32_t geometry_receiver(const struct geometry *geometry, uint32_t segment)
{
	return geometry->share_count > 1 ? segment / geometry->share_segments : WIRE_EVERYONE;
}

uint64_t geometry_span(const struct geometry *geometry, uint32_t segment, uint64_t *first)
{
	uint64_t before = before_in_share(geometry, segment) * geometry->shard_count;
	uint64_t blocks =
		(uint64_t)geometry_segment_blocks(geometry, segment) * geometry->shard_count;
	uint64_t left = geometry->share_blocks - before;

	*first = segment / geometry->share_segments * geometry->share_blocks + before;
	return blocks < left ? blocks : left;
}

uint32_t geometry_elems(const struct geometry *geometry, uint64_t block, uint64_t *first)
{
	uint64_t share = 0, left;

	if (block >= geometry->block_count)
		return 0;
	if (geometry->share_count > 1) {
		share = block / geometry->share_blocks;
		block -= share * geometry->share_blocks;
	}
	*first = block * geometry->block_elems;
	left = geometry->share_elems - *first;
	*first += share * geometry->share_elems;
	return left < geometry->block_elems ? (uint32_t)left : geometry->block_elems;
}

uint32_t geometry_eager_channel(uint64_t tag, uint32_t channel_count)
{
	return deal_mix(tag) % channel_count;
}
