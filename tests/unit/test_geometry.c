// SPDX-License-Identifier: BSD-3-Clause
/*
 * test_geometry.c - PROTOCOL.md section 4, said a second time and slower
 *
 * The reference below follows the words of the section with 128-bit integers and shares no code
 * with geometry.c; beside it, properties that must hold whatever the formulas are.
 */

#include <stdlib.h>
#include <string.h>

#include "ebpf/geometry.h"
#include "tests/unit/test_random.h"
#include "tests/unit/unit.h"

__extension__ typedef unsigned __int128 wide;

static wide ceiling(wide a, wide b)
{
	return (a + b - 1) / b;
}

/* ---- the reference ---- */

struct reference {
	wide b, w, s, T, E, S, G, L, P, segments;
	wide k, m, p;
	bool eager;
};

static struct reference reference_cut(const struct geometry_input *in)
{
	struct reference r = {.P = in->payload - 32};
	wide count = in->count;

	r.b = in->block_elems;
	if (r.b > (count > 1 ? count : 1))
		r.b = count > 1 ? count : 1;
	r.w = r.b * in->elem_bytes;
	r.T = ceiling(count, r.b);
	r.s = in->elem_bytes == 2 ? r.b * 4 : r.w;
	r.E = r.P / r.s < 16384 ? r.P / r.s : 16384;
	while (r.E > 0 && r.E * r.s + 8 * ceiling(r.E, 64) + 50 > r.P)
		r.E--;
	r.eager = !in->converted && r.T <= 4 * r.E;
	r.S = r.eager ? 1 : in->shard_count;
	r.G = ceiling(r.T, r.S);
	r.L = 4194304 / r.w / 64 * 64;
	r.L = r.L < (r.P - 48) / 8 * 64 ? r.L : (r.P - 48) / 8 * 64;
	r.L = r.L < 64 ? 64 : r.L > 16384 ? 16384 : r.L;
	if (r.eager && r.T > 0)
		r.L = r.E;
	r.segments = ceiling(r.G, r.L);
	if (r.segments == 0)
		r.segments = 1;
	r.k = 1;
	r.m = 1;
	r.p = r.w;
	if (r.w <= r.P) {
		r.k = r.P / r.w;
	} else {
		r.p = r.P / 8 * 8;
		r.m = ceiling(r.w, r.p);
	}
	return r;
}

static wide reference_turn(uint64_t g)
{
	wide product = (wide)g * UINT64_C(0x9e3779b97f4a7c15);

	return (product % ((wide)1 << 64)) / ((wide)1 << 33);
}

/* ---- inputs ---- */

static struct geometry_input random_input(void)
{
	const uint32_t shards[] = {1, 2, 3, 4, 7, 8, 16, 100, 255, 256};
	const uint32_t payloads[] = {584, 585, 1252, 1372, 1432, 1472, 3470, 8972, 65000};
	const uint32_t blocks[] = {1, 2, 31, 32, 64, 100, 256, 1000, 1024, 16384, 65535, 65536};
	struct geometry_input input = {
		.count = random_bits() >> (16 + random_below(48)),
		.block_elems = blocks[random_below(12)],
		.elem_bytes = 1u << random_below(4),
		.shard_count = shards[random_below(10)],
		.payload = payloads[random_below(9)],
		.converted = random_below(4) == 0,
	};

	if (random_below(3) == 0)
		input.block_elems = 1 + (uint32_t)random_below(65536);
	if (random_below(3) == 0) /* around a whole number of blocks */
		input.count = input.block_elems * random_below(5000) + random_below(3);
	if (random_below(3) == 0)
		input.payload = 584 + (uint32_t)random_below(65000 - 584 + 1);
	return input;
}

/* ---- tests ---- */

static void check_cut(const struct geometry *g, const struct reference *r)
{
	const struct geometry_part *part = &g->one;

	assert_int_equal(part->tile_columns, r->b);
	assert_int_equal(part->frames.block_bytes, r->w);
	assert_int_equal(g->block_count, r->T);
	assert_int_equal(g->payload_bytes, r->P);
	assert_int_equal(g->eager, r->eager);
	assert_int_equal(g->shard_count, r->S);
	assert_int_equal(part->shard_blocks, r->G);
	assert_int_equal(part->segment_blocks, r->L);
	assert_int_equal(g->segment_count, r->segments);
	assert_int_equal(part->frames.frame_blocks, r->k);
	assert_int_equal(part->frames.block_parts, r->m);
	assert_int_equal(part->frames.part_bytes, r->p);
}

/* What must be true of any cut, whatever the formulas. */
static void check_frames(const struct geometry *g, const struct geometry_part *part)
{
	const struct geometry_frames *f = &part->frames;
	uint64_t bytes = 0;
	uint32_t some = 1 + (uint32_t)random_below(part->segment_blocks);

	assert_true((g->eager || part->segment_blocks % 64 == 0) &&
	            part->segment_blocks <= WIRE_SEGMENT_BLOCKS_MAX);
	assert_true(f->frame_blocks >= 1 && part->segment_blocks / 8 + 48 <= g->payload_bytes);
	for (uint32_t piece = 0; piece < f->block_parts; piece++) {
		uint32_t part_bytes = geometry_part_bytes(f, piece);

		assert_in_range(part_bytes, 1, g->payload_bytes);
		assert_true(part_bytes * f->frame_blocks <= g->payload_bytes);
		assert_int_equal(part_bytes % g->elem_bytes, 0);
		bytes += part_bytes;
	}
	assert_int_equal(bytes, f->block_bytes);
	assert_int_equal(geometry_frame_count(f, 0), 1);
	if (f->block_parts > 1)
		assert_int_equal(geometry_frame_count(f, some), some * f->block_parts);
	else
		assert_int_equal(geometry_frame_count(f, some), ceiling(some, f->frame_blocks));
}

/* Segments of a shard hold all its blocks. */
static void check_segments(const struct geometry *g)
{
	const struct geometry_part *part = &g->one;
	uint32_t last = g->segment_count - 1, last_blocks = geometry_segment(g, last).block_count;

	assert_int_equal((wide)last * part->segment_blocks + last_blocks, part->shard_blocks);
	assert_true(part->shard_blocks == 0 || last_blocks > 0);
	if (last > 0) {
		assert_int_equal(geometry_segment(g, 0).block_count, part->segment_blocks);
		assert_int_equal(geometry_segment(g, last - 1).block_count, part->segment_blocks);
	}
}

/* Block number `index` of a shard, in a tensor of one flat part. */
static uint64_t block_at(const struct geometry *g, uint32_t shard, uint64_t index)
{
	struct geometry_segment segment =
		geometry_segment(g, (uint32_t)(index / g->one.segment_blocks));

	return geometry_block(g, &segment, shard, (uint32_t)(index % g->one.segment_blocks));
}

/* Each group deals its blocks out once to each shard, turned by its number. */
static void check_group(const struct geometry *g, uint64_t group)
{
	wide turn = reference_turn(group);
	bool seen[WIRE_SHARDS_MAX] = {false};

	for (uint32_t shard = 0; shard < g->shard_count; shard++) {
		uint64_t block = block_at(g, shard, group);
		uint32_t place = (uint32_t)(block % g->shard_count);
		wide want = (shard + (wide)g->shard_count * turn - turn) % g->shard_count;

		assert_int_equal(block / g->shard_count, group);
		assert_int_equal(place, want);
		assert_int_equal(deal_shard(g->shard_count, block), shard);
		assert_false(seen[place]);
		seen[place] = true;
	}
}

TEST(random)
{
	for (unsigned round = 0; round < 100000; round++) {
		struct geometry_input input = random_input();
		struct reference r = reference_cut(&input);
		struct geometry g = {0};

		if (r.G / 64 > UINT32_MAX) {
			assert_false(geometry_compute(&input, &g));
			continue;
		}
		assert_true(geometry_compute(&input, &g));
		check_cut(&g, &r);
		check_frames(&g, &g.one);
		check_segments(&g);
		if (g.one.shard_blocks > 0) {
			check_group(&g, random_below(g.one.shard_blocks));
			check_group(&g, g.one.shard_blocks - 1);
		}
	}
}

/* ---- parts, and shares of a reduce-scatter, which are copies of one ---- */

/* Marks the elements of one segment of one shard, which are all from `from` on and before `end`. */
static void mark_segment(const struct geometry *g, const struct geometry_segment *segment,
                         uint32_t shard, uint64_t from, uint64_t end, uint8_t *seen)
{
	uint64_t first_block, blocks = geometry_span(g, segment, &first_block);

	for (uint32_t i = 0; i < segment->block_count; i++) {
		uint64_t block = geometry_block(g, segment, shard, i);
		struct geometry_tile tile = geometry_tile(segment, block);

		assert_int_equal(tile.rows == 0, block >= segment->part->block_count);
		assert_int_equal(tile.columns == 0, tile.rows == 0);
		if (tile.rows == 0)
			continue;
		assert_in_range(block, first_block, first_block + blocks - 1);
		assert_int_equal(deal_shard(g->shard_count, block), shard);
		assert_true(tile.columns <= tile.width);
		assert_true(tile.rows * tile.width * g->elem_bytes <= segment->frames.block_bytes);
		for (uint32_t row = 0; row < tile.rows; row++)
			for (uint64_t e = 0; e < tile.columns; e++) {
				uint64_t at = tile.first + row * tile.stride + e;

				assert_in_range(at, from, end - 1);
				assert_int_equal(seen[at]++, 0);
			}
	}
}

TEST(shares)
{
	const uint32_t workers[] = {2, 3, 4, 7, 64};

	for (unsigned round = 0; round < 300; round++) {
		uint32_t world = workers[random_below(5)];
		uint64_t share = 1 + random_below(round % 3 == 0 ? 40 : 20000), left = 0;
		struct geometry_input input = {
			.count = share * world,
			.block_elems = 1 + (uint32_t)random_below(300),
			.elem_bytes = 2u << random_below(3),
			.shard_count = 1 + (uint32_t)random_below(5),
			.payload = 584 + (uint32_t)random_below(3000),
			.converted = round % 2,
			.scatter = world,
		};
		struct geometry_input part = input;
		struct geometry g, of_share;
		uint8_t *seen = calloc(1, input.count);

		assert_non_null(seen);
		assert_true(geometry_compute(&input, &g));
		/* A share is cut like a tensor of its own, which is no eager one. */
		part.count = share;
		part.scatter = 0;
		part.converted = true;
		assert_true(geometry_compute(&part, &of_share));
		if (!g.eager) {
			assert_true(g.scatter);
			assert_int_equal(g.one.copies, world);
			assert_int_equal(g.one.tile_columns, of_share.one.tile_columns);
			assert_int_equal(g.block_count, world * of_share.block_count);
			assert_int_equal(g.segment_count, world * of_share.segment_count);
			for (uint32_t shard = 0; shard < g.shard_count; shard++)
				for (uint32_t n = 0; n < g.segment_count; n++) {
					struct geometry_segment s = geometry_segment(&g, n);
					uint64_t first = s.receiver * share;

					assert_int_equal(s.receiver, n / of_share.segment_count);
					mark_segment(&g, &s, shard, first, first + share, seen);
				}
			for (uint64_t e = 0; e < input.count; e++)
				left += seen[e] == 0;
			assert_int_equal(left, 0);
		}
		free(seen);
	}
}

static struct geometry_part random_part(void)
{
	const uint32_t sides[] = {1, 2, 7, 32, 100};
	struct geometry_part part = {.tile_rows = 1,
	                             .tile_columns = 1 + (uint32_t)random_below(300),
	                             .copies = random_below(4) == 0 ? 3 : 1};

	part.count = 1 + random_below(random_below(3) == 0 ? 40 : 20000);
	if (random_below(2) == 0)
		return part;
	part.columns = 1 + random_below(200);
	part.count = part.columns * (1 + random_below(100));
	part.tile_rows = sides[random_below(5)];
	part.tile_columns = sides[random_below(5)];
	return part;
}

/* A part of its own, like a copy of it, is cut like a tensor that has no other; it is no eager one. */
static void check_part(const struct geometry_input *whole, const struct geometry *g,
                       const struct geometry_part *part, uint64_t first, uint32_t segment,
                       uint8_t *seen)
{
	struct geometry_part alone = {.count = part->count,
	                              .columns = part->columns,
	                              .tile_rows = part->tile_rows,
	                              .tile_columns = part->tile_columns,
	                              .copies = 1};
	struct geometry_input input = *whole;
	struct geometry own;

	input.count = part->count;
	input.converted = true;
	input.part_count = 1;
	input.parts = &alone;
	assert_true(geometry_compute(&input, &own));
	check_frames(g, part);
	assert_int_equal(part->frames.block_bytes,
	                 part->tile_rows * part->tile_columns * whole->elem_bytes);
	assert_int_equal(part->segment_count, own.segment_count);
	for (uint32_t n = 0; n < own.segment_count; n++) {
		struct geometry_segment s = geometry_segment(g, segment + n);
		struct geometry_segment wanted = geometry_segment(&own, n);

		assert_ptr_equal(s.part, part);
		assert_int_equal(s.block_count, wanted.block_count);
		assert_int_equal(s.index, wanted.index);
		assert_int_equal(s.receiver, WIRE_EVERYONE);
		assert_memory_equal(&s.frames, &wanted.frames, sizeof(s.frames));
		for (uint32_t shard = 0; shard < g->shard_count; shard++)
			mark_segment(g, &s, shard, first, first + part->count, seen);
	}
}

/* Parts of any shape, in any order: every element is in one block of one segment of its part. */
TEST(parts)
{
	for (unsigned round = 0; round < 300; round++) {
		struct geometry_part parts[9];
		struct geometry_input input = {
			.block_elems = 256,
			.elem_bytes = 2u << random_below(3),
			.shard_count = 1 + (uint32_t)random_below(5),
			.payload = 584 + (uint32_t)random_below(3000),
			.converted = true,
			.part_count = 1 + (uint32_t)random_below(9),
			.parts = parts,
		};
		uint64_t first = 0, blocks = 0;
		uint32_t segment = 0;
		struct geometry g;
		uint8_t *seen;

		for (uint32_t i = 0; i < input.part_count; i++) {
			parts[i] = random_part();
			input.count += parts[i].count * parts[i].copies;
		}
		seen = calloc(1, input.count);
		assert_non_null(seen);
		assert_true(geometry_compute(&input, &g));
		for (uint32_t i = 0; i < input.part_count; i++)
			for (uint32_t copy = 0; copy < parts[i].copies; copy++) {
				assert_int_equal(geometry_segment(&g, segment).first, first);
				assert_int_equal(geometry_segment(&g, segment).first_block, blocks);
				check_part(&input, &g, &parts[i], first, segment, seen);
				first += parts[i].count;
				segment += parts[i].segment_count;
				blocks += parts[i].block_count;
			}
		assert_int_equal(segment, g.segment_count);
		assert_int_equal(blocks, g.block_count);
		assert_null(memchr(seen, 0, input.count));
		free(seen);
	}
}

TEST(parts_refused)
{
	const struct geometry_part good = {
		.count = 3000, .columns = 30, .tile_rows = 8, .tile_columns = 4, .copies = 1};
	struct geometry_part part;
	struct geometry_input input = {.count = 3000,
	                               .block_elems = 256,
	                               .elem_bytes = 4,
	                               .shard_count = 2,
	                               .payload = 1472,
	                               .part_count = 1,
	                               .parts = &part};
	struct geometry g;

#define PART(field, value, accepted)                                                               \
	(part = good, part.field = (value),                                                        \
	 assert_int_equal(geometry_compute(&input, &g), accepted))
	PART(copies, 1, true);
	PART(copies, 0, false);
	PART(copies, 2, false); /* then they are more than the tensor */
	PART(count, 2970, false);
	PART(columns, 31, false);
	PART(columns, 0, true);
	PART(tile_rows, 0, false);
	PART(tile_columns, 0, false);
	PART(tile_rows, UINT32_MAX, true);    /* as high as the matrix, */
	PART(tile_columns, UINT32_MAX, true); /* or as wide */
#undef PART
	part = good;
	input.scatter = 2;
	assert_false(geometry_compute(&input, &g));
	/* A block has at most 65536 elements. */
	input.scatter = 0;
	for (uint32_t rows = 8190; rows < 8196; rows++) {
		part = good;
		input.count = part.count = 30 * 10000;
		part.tile_rows = rows;
		part.tile_columns = 8;
		assert_int_equal(geometry_compute(&input, &g), rows <= 8192);
	}
}

static uint64_t layout_of(struct geometry_part part, uint64_t agreed, uint32_t channels)
{
	struct geometry_input input = {.count = part.count * part.copies,
	                               .block_elems = 256,
	                               .elem_bytes = 4,
	                               .shard_count = channels,
	                               .payload = 1472,
	                               .agreed = agreed,
	                               .part_count = 1,
	                               .parts = &part};
	struct geometry g;

	assert_true(geometry_compute(&input, &g));
	return geometry_layout(&g, 0, channels);
}

/* docs/vectors has the hash of many cuts; it depends on the cut, and not on how a part is written. */
TEST(layout)
{
	const struct geometry_part good = {
		.count = 30000, .columns = 30, .tile_rows = 8, .tile_columns = 4, .copies = 1};
	const struct geometry_part flat = {
		.count = 30000, .tile_rows = 1, .tile_columns = 240, .copies = 1};
	const uint64_t usual = layout_of(good, 0, 2);
	uint64_t as_high;
	struct geometry_part part = good;

	assert_true(geometry_hash(GEOMETRY_HASH_FIRST, 0) == UINT64_C(0xa8c7f832281a39c5));
	assert_true(layout_of(good, 1, 2) != usual && layout_of(good, 0, 3) != usual);
	part.tile_rows = 1000;
	assert_true(layout_of(part, 0, 2) != usual);
	part.tile_columns = 7;
	as_high = layout_of(part, 0, 2);
	part.tile_rows = 1001; /* than the matrix */
	assert_true(layout_of(part, 0, 2) == as_high);
	part.tile_rows = 8;
	part.tile_columns = 30; /* its tiles are as wide as it is: they are stretches of 8 rows */
	assert_true(layout_of(part, 0, 2) == layout_of(flat, 0, 2));
}

/* Eager, empty, or of one worker: cut as if there were no shares. What does not divide is refused. */
TEST(no_shares)
{
	struct geometry_input input = {
		.block_elems = 7, .elem_bytes = 4, .shard_count = 3, .payload = 1472};
	const struct {
		uint64_t count;
		uint32_t workers;
		bool converted;
	} cases[] = {{300, 4, false}, {0, 4, true}, {0, 4, false}, {50000, 1, false}};
	struct geometry plain, g;

	for (unsigned i = 0; i < 4; i++) {
		input.count = cases[i].count;
		input.converted = cases[i].converted;
		input.scatter = 0;
		assert_true(geometry_compute(&input, &plain));
		input.scatter = cases[i].workers;
		assert_true(geometry_compute(&input, &g));
		assert_false(g.scatter);
		assert_int_equal(g.one.copies, 1);
		assert_int_equal(g.eager, plain.eager);
		assert_int_equal(g.one.count, input.count);
		assert_int_equal(g.one.tile_columns, plain.one.tile_columns);
		assert_int_equal(g.block_count, plain.block_count);
		assert_int_equal(g.segment_count, plain.segment_count);
		assert_int_equal(geometry_segment(&g, 0).receiver, WIRE_EVERYONE);
	}
	input.count = 50000;
	input.scatter = 3;
	assert_false(geometry_compute(&input, &g));
	input.scatter = WIRE_WORKERS_MAX + 1;
	input.count = (uint64_t)input.scatter * 100;
	assert_false(geometry_compute(&input, &g));
	/* As without shares, a shard has fewer than 2^38 blocks. */
	input.scatter = 4096;
	input.block_elems = 1;
	input.shard_count = 1;
	input.count = (UINT64_C(1) << 38) - 4096;
	assert_true(geometry_compute(&input, &g));
	assert_int_equal(g.segment_count, 4096 * (((UINT64_C(1) << 26) + 11134) / 11136));
	input.count = UINT64_C(1) << 38;
	assert_false(geometry_compute(&input, &g));
}

/* The largest segment of an eager operation, and one more byte: 50 and 8 a word of the bitmap are the overhead. */
TEST(eager_edge)
{
	struct geometry_input input = {
		.block_elems = 1, .elem_bytes = 1, .shard_count = 2, .payload = 65000};
	struct geometry_part part = {
		.count = 16384, .columns = 128, .tile_rows = 2, .tile_columns = 3, .copies = 1};
	struct geometry g;

	input.count = 4 * 16384;
	assert_true(geometry_compute(&input, &g) && g.eager);
	assert_int_equal(g.segment_count, 4);
	input.count = 4 * 16384 + 1;
	assert_true(geometry_compute(&input, &g) && !g.eager);
	/* With a layout it is one segment, and flat. */
	input.count = 16384;
	input.part_count = 1;
	input.parts = &part;
	assert_true(geometry_compute(&input, &g) && g.eager);
	assert_int_equal(g.block_count, 16384);
	assert_ptr_equal(geometry_segment(&g, 0).part, &g.one);
	part.count = input.count = 16384 + 128;
	assert_true(geometry_compute(&input, &g) && !g.eager);
	for (uint32_t payload = 32 + 50 + 8 + 64 * 8; payload < 32 + 50 + 16 + 66 * 8; payload++)
		assert_int_equal(geometry_eager_blocks(8, 8, payload),
		                 payload < 32 + 50 + 16 + 65 * 8 ? 64 : 65);
	assert_int_equal(geometry_eager_blocks(502 - 8, 1, 584), 1);
	assert_int_equal(geometry_eager_blocks(502 - 7, 1, 584), 0);
	assert_int_equal(geometry_eager_blocks((502 - 8) / 2, 2, 584), 1); /* summed as f32 */
	assert_int_equal(geometry_eager_blocks((502 - 8) / 2 + 1, 2, 584), 0);
}

static void check_refused(struct geometry_input input, bool good)
{
	struct geometry g, before;

	memset(&before, 0x5a, sizeof(before));
	g = before;
	assert_int_equal(geometry_compute(&input, &g), good);
	assert_int_equal(memcmp(&g, &before, sizeof(g)) == 0, !good);
}

/* Each number at its limits, and one beyond; what is refused leaves the result alone. */
TEST(limits)
{
	const struct geometry_input base = {.count = 1000,
	                                    .block_elems = 10,
	                                    .elem_bytes = 4,
	                                    .shard_count = 2,
	                                    .payload = 1472};
	struct geometry_input in;

#define LIMIT(field, value, good) (in = base, in.field = (value), check_refused(in, good))
	LIMIT(payload, 583, false);
	LIMIT(payload, 584, true);
	LIMIT(payload, 65000, true);
	LIMIT(payload, 65001, false);
	LIMIT(block_elems, 0, false);
	LIMIT(block_elems, 1, true);
	LIMIT(block_elems, 65536, true);
	LIMIT(block_elems, 65537, false);
	LIMIT(shard_count, 0, false);
	LIMIT(shard_count, 1, true);
	LIMIT(shard_count, 256, true);
	LIMIT(shard_count, 257, false);
	LIMIT(count, (UINT64_C(1) << 38) * 10, true);
	for (uint32_t bytes = 0; bytes < 20; bytes++)
		LIMIT(elem_bytes, bytes, bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8);
	LIMIT(elem_bytes, UINT32_MAX, false);
#undef LIMIT
	in = base;
	in.block_elems = 65536;
	in.count = UINT64_C(1) << 48;
	check_refused(in, true);
	in.count++;
	check_refused(in, false);
	in.count = UINT64_MAX;
	check_refused(in, false);
	/* A shard has fewer than 2^38 blocks. */
	in = base;
	in.block_elems = 1;
	in.count = (UINT64_C(1) << 39) - 2;
	check_refused(in, true);
	in.count = (UINT64_C(1) << 39) - 1;
	check_refused(in, false);
}

TEST(eager_channel)
{
	for (unsigned round = 0; round < 10000; round++) {
		uint64_t tag = random_bits();
		uint32_t channels = 1 + (uint32_t)random_below(256);

		assert_int_equal(geometry_eager_channel(tag, channels),
		                 reference_turn(tag) % channels);
	}
}

/* Rows of any stride spread: no shard gets half as much again as its part. */
TEST(spread)
{
	struct geometry_input input = {.count = 1u << 24,
	                               .block_elems = 256,
	                               .elem_bytes = 4,
	                               .shard_count = 8,
	                               .payload = 1472};
	struct geometry g;

	assert_true(geometry_compute(&input, &g));
	for (uint32_t stride = 1; stride <= 64; stride++) {
		uint32_t got[8] = {0}, total = 0;

		for (uint64_t block = 0; block < g.block_count; block += stride, total++)
			got[deal_shard(g.shard_count, block)]++;
		for (unsigned shard = 0; shard < 8; shard++)
			assert_in_range(got[shard], total / 8 / 2, total / 8 * 3 / 2 + 1);
	}
}
