// SPDX-License-Identifier: BSD-3-Clause
/* geometry.c - see geometry.h */

#include "ebpf/geometry.h"

#include <assert.h>
#include <stddef.h>

#define COUNT_MAX (UINT64_C(1) << 48)
#define SHARD_BLOCKS_MAX (UINT64_C(1) << 38) /* 4: "fewer than 2^38 blocks in a shard" */

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint64_t divide_up(uint64_t a, uint64_t b)
{
	return a / b + (a % b != 0);
}

/* ---- cutting ---- */

/* 4.4: "with E*s + 8*ceil(E/64) + 50 <= P; s: bytes of a block in the type in which it is summed" */
uint32_t geometry_eager_blocks(uint32_t block_bytes, uint32_t elem_bytes, uint32_t payload)
{
	uint32_t room = payload - WIRE_HEADER_BYTES - WIRE_ANNOUNCE_BYTES - WIRE_SET_BYTES;
	uint32_t sum_bytes = elem_bytes == 2 ? 2 * block_bytes : block_bytes;
	uint32_t word = 64 * sum_bytes + 8, rest = room % word;
	uint32_t blocks = room / word * 64 + (rest > 8 ? (rest - 8) / sum_bytes : 0);

	return min_u32(blocks, WIRE_SEGMENT_BLOCKS_MAX);
}

struct geometry_frames geometry_frames(uint32_t block_bytes, uint32_t payload)
{
	const uint32_t payload_bytes = payload - WIRE_HEADER_BYTES;
	struct geometry_frames frames = {.block_bytes = block_bytes,
	                                 .frame_blocks = 1,
	                                 .block_parts = 1,
	                                 .part_bytes = block_bytes};

	/* 4.3: "k = floor(P / w) blocks a frame, the last frame possibly fewer" */
	if (block_bytes <= payload_bytes) {
		frames.frame_blocks = payload_bytes / block_bytes;
		return frames;
	}
	/* 4.3: "each block takes m = ceil(w / p) frames of p = floor(P / 8) * 8 bytes" */
	frames.part_bytes = payload_bytes & ~7u;
	frames.block_parts = (uint32_t)divide_up(block_bytes, frames.part_bytes);
	return frames;
}

/* 4.1: "A part of at most one row, or with v = columns, is flat, and has then h*v for v" */
static void tiles_flatten(struct geometry_part *part)
{
	uint64_t columns = part->columns;

	if (columns == 0 || (part->tile_columns < columns && part->count > columns))
		return;
	if (part->count > columns)
		part->tile_columns = (uint32_t)(part->tile_rows * columns);
	part->tile_rows = 1;
	part->columns = 0;
}

/* Section 4.1. Returns false if there can be no such part. */
static bool cut_blocks(const struct geometry *g, struct geometry_part *part)
{
	uint64_t columns = part->columns > 0 ? part->columns : part->count;

	if (part->count > COUNT_MAX || part->tile_rows == 0 || part->tile_columns == 0 ||
	    (part->columns > 0 && part->count % part->columns != 0))
		return false;
	part->rows = part->columns > 0 ? part->count / part->columns : part->count > 0;
	if (part->tile_columns > columns)
		part->tile_columns = columns > 0 ? (uint32_t)columns : 1;
	if (part->tile_rows > part->rows)
		part->tile_rows = part->rows > 0 ? (uint32_t)part->rows : 1;
	if ((uint64_t)part->tile_rows * part->tile_columns > WIRE_BLOCK_ELEMS_MAX)
		return false;
	tiles_flatten(part);
	if (part->columns == 0) {
		columns = part->count;
		part->rows = part->count > 0;
	}
	part->across = divide_up(columns, part->tile_columns);
	part->block_count = part->across * divide_up(part->rows, part->tile_rows);
	part->frames = geometry_frames(part->tile_rows * part->tile_columns * g->elem_bytes,
	                               g->payload_bytes + WIRE_HEADER_BYTES);
	return true;
}

/* The bitmap of a segment fits an announcement. */
uint32_t geometry_segment_max(uint32_t payload)
{
	uint32_t blocks = (payload - WIRE_HEADER_BYTES - WIRE_ANNOUNCE_BYTES) / 8 * 64;

	return min_u32(blocks, WIRE_SEGMENT_BLOCKS_MAX);
}

/* Section 4.3. */
uint32_t geometry_segment_blocks(uint32_t block_bytes, uint32_t payload)
{
	uint32_t blocks = WIRE_SEGMENT_BYTES / block_bytes & ~63u;

	return min_u32(blocks < 64 ? 64 : blocks, geometry_segment_max(payload));
}

static uint32_t eager_blocks(const struct geometry *g, const struct geometry_part *part)
{
	return geometry_eager_blocks(part->frames.block_bytes, g->elem_bytes,
	                             g->payload_bytes + WIRE_HEADER_BYTES);
}

/* Sections 4.2 to 4.4. */
static void cut_segments(const struct geometry *g, struct geometry_part *part)
{
	part->segment_blocks = geometry_segment_blocks(part->frames.block_bytes,
	                                               g->payload_bytes + WIRE_HEADER_BYTES);
	if (g->eager && part->block_count > 0)
		part->segment_blocks = eager_blocks(g, part);
	part->shard_blocks = divide_up(part->block_count, g->shard_count);
	part->segment_count = (uint32_t)divide_up(part->shard_blocks, part->segment_blocks);
	if (part->segment_count == 0)
		part->segment_count = 1;
}

uint64_t geometry_hash(uint64_t hash, uint64_t number)
{
	for (uint32_t i = 0; i < 8; i++, number >>= 8)
		hash = (hash ^ (number & 0xff)) * UINT64_C(0x100000001b3);
	return hash;
}

/* 4.6: "for each part Q, columns, h, v as 4.1 has them, and how often it is there" */
static uint64_t part_hash(uint64_t hash, const struct geometry_part *part)
{
	const uint64_t numbers[] = {part->count, part->columns, part->tile_rows, part->tile_columns,
	                            part->copies};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		hash = geometry_hash(hash, numbers[i]);
	return hash;
}

uint64_t geometry_layout(const struct geometry *geometry, uint32_t shard, uint32_t channels)
{
	return geometry_hash(geometry->layout, (uint64_t)channels << 16 | shard);
}

/* Cuts one part after the other. */
static bool cut_parts(struct geometry *g, struct geometry_part *parts, uint64_t count)
{
	uint64_t elems = 0, shard_blocks = 0, segments = 0;

	for (uint32_t i = 0; i < g->part_count; i++) {
		struct geometry_part *part = &parts[i];

		if (part->copies == 0 || !cut_blocks(g, part) ||
		    part->count > (COUNT_MAX - elems) / part->copies ||
		    divide_up(part->block_count, g->shard_count) >= SHARD_BLOCKS_MAX)
			return false;
		cut_segments(g, part);
		part->first = elems;
		part->first_block = g->block_count;
		part->first_segment = (uint32_t)segments;
		elems += part->count * part->copies;
		g->block_count += part->block_count * part->copies;
		g->layout = part_hash(g->layout, part);
		shard_blocks += part->shard_blocks * part->copies;
		segments += (uint64_t)part->segment_count * part->copies;
		if (shard_blocks >= SHARD_BLOCKS_MAX || segments > UINT32_MAX)
			return false;
	}
	g->segment_count = (uint32_t)segments;
	return elems == count;
}

static bool is_possible(const struct geometry_input *input)
{
	if (input->count > COUNT_MAX || input->block_elems == 0 ||
	    input->block_elems > WIRE_BLOCK_ELEMS_MAX || input->shard_count == 0 ||
	    input->shard_count > WIRE_SHARDS_MAX || input->payload < WIRE_PAYLOAD_MIN ||
	    input->payload > WIRE_PAYLOAD_MAX)
		return false;
	if (input->elem_bytes != 1 && input->elem_bytes != 2 && input->elem_bytes != 4 &&
	    input->elem_bytes != 8)
		return false;
	return input->scatter <= 1 || (input->scatter <= WIRE_WORKERS_MAX &&
	                               input->count % input->scatter == 0 && input->parts == NULL);
}

bool geometry_compute(const struct geometry_input *input, struct geometry *out)
{
	struct geometry g = {.elem_bytes = input->elem_bytes, .shard_count = 1, .part_count = 1};
	struct geometry_part *parts = &g.one;
	uint32_t eager_segments;

	if (!is_possible(input))
		return false;
	g.payload_bytes = input->payload - WIRE_HEADER_BYTES;
	g.layout = geometry_hash(GEOMETRY_HASH_FIRST, input->agreed);
	g.one = (struct geometry_part){.count = input->count,
	                               .tile_rows = 1,
	                               .tile_columns = input->block_elems,
	                               .copies = 1};
	if (!cut_blocks(&g, &g.one))
		return false;
	/* 4.4: "as one flat part, it has T <= 4*E blocks; one with a layout, T <= E" */
	eager_segments = input->parts == NULL ? WIRE_EAGER_SEGMENTS : 1;
	g.eager = !input->converted &&
	          g.one.block_count <= (uint64_t)eager_segments * eager_blocks(&g, &g.one);
	if (!g.eager)
		g.shard_count = input->shard_count;
	/* 4.5: "Otherwise there is no layout, and each share is a flat part of Q elements" */
	if (!g.eager && input->count > 0 && input->scatter > 1) {
		g.scatter = true;
		g.one.count /= input->scatter;
		g.one.copies = input->scatter;
	}
	if (!g.eager && input->count > 0 && input->parts != NULL) {
		g.parts = parts = input->parts;
		g.part_count = input->part_count;
	}
	if (!cut_parts(&g, parts, input->count))
		return false;
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

/* ---- segments ---- */

/* Returns the part of segment `number`. */
static const struct geometry_part *part_of(const struct geometry *g, uint32_t number)
{
	const struct geometry_part *parts = geometry_part(g, 0);
	uint32_t low = 0, high = g->part_count;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (parts[middle].first_segment <= number)
			low = middle;
		else
			high = middle;
	}
	return &parts[low];
}

struct geometry_segment geometry_segment(const struct geometry *geometry, uint32_t number)
{
	const struct geometry_part *part = part_of(geometry, number);
	uint32_t within = number - part->first_segment, copy = within / part->segment_count;
	struct geometry_segment segment = {.part = part, .frames = part->frames};
	uint64_t left;

	assert(number < geometry->segment_count);
	/* 4.5: "The worker with the share's number is the receiver of its frames" */
	segment.receiver = geometry->scatter ? copy : WIRE_EVERYONE;
	segment.index = (uint64_t)(within % part->segment_count) * part->segment_blocks;
	segment.first_block = part->first_block + copy * part->block_count;
	segment.first = part->first + copy * part->count;
	left = part->shard_blocks - segment.index;
	segment.block_count = left < part->segment_blocks ? (uint32_t)left : part->segment_blocks;
	return segment;
}

uint32_t geometry_frame_count(const struct geometry_frames *frames, uint32_t union_blocks)
{
	uint32_t count = union_blocks * frames->block_parts;

	if (frames->block_parts == 1)
		count = (union_blocks + frames->frame_blocks - 1) / frames->frame_blocks;
	return count > 0 ? count : 1;
}

uint32_t geometry_part_bytes(const struct geometry_frames *frames, uint32_t part)
{
	if (part + 1 < frames->block_parts)
		return frames->part_bytes;
	return frames->block_bytes - part * frames->part_bytes;
}

/* ---- blocks ---- */

uint64_t geometry_span(const struct geometry *geometry, const struct geometry_segment *segment,
                       uint64_t *first)
{
	uint64_t blocks = (uint64_t)segment->block_count * geometry->shard_count, left;

	*first = segment->index * geometry->shard_count;
	left = segment->part->block_count - *first;
	return blocks < left ? blocks : left;
}

uint64_t geometry_block(const struct geometry *geometry, const struct geometry_segment *segment,
                        uint32_t shard, uint32_t index)
{
	assert(shard < geometry->shard_count);
	return deal_block(geometry->shard_count, shard, segment->index + index);
}

struct geometry_tile geometry_tile(const struct geometry_segment *segment, uint64_t block)
{
	const struct geometry_part *part = segment->part;
	struct geometry_tile tile = {.width = part->tile_columns,
	                             .stride = part->columns > 0 ? part->columns : part->count};
	uint64_t row = 0, column = block, left;

	if (block >= part->block_count)
		return tile;
	if (part->rows > 1) {
		row = block / part->across * part->tile_rows;
		column = block % part->across;
	}
	column *= part->tile_columns;
	left = part->rows - row;
	tile.rows = left < part->tile_rows ? (uint32_t)left : part->tile_rows;
	left = tile.stride - column;
	tile.columns = left < part->tile_columns ? (uint32_t)left : part->tile_columns;
	tile.first = segment->first + row * tile.stride + column;
	return tile;
}

/* 4.4: "It uses one channel: shard number turn(tag) mod C1" */
uint32_t geometry_eager_channel(uint64_t tag, uint32_t channel_count)
{
	return deal_mix(tag) % channel_count;
}
