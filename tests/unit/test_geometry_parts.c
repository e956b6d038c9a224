// SPDX-License-Identifier: BSD-3-Clause
/* test_geometry_parts.c - a tensor of several parts, and shares of a reduce-scatter, which are copies of one */

#include <string.h>

#include "tests/unit/test_geometry.h"

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

/*
 * A part of its own, like a copy of it, is cut like a tensor that has no other; it is no eager one. Its first segment
 * and element are given; marks its elements.
 */
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
	uint64_t copy = (first - part->first) / part->count;
	struct geometry own;

	input.count = part->count;
	input.converted = true;
	input.scatter = 0;
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
		assert_int_equal(s.receiver, g->scatter ? copy : WIRE_EVERYONE);
		assert_memory_equal(&s.frames, &wanted.frames, sizeof(s.frames));
		for (uint32_t shard = 0; shard < g->shard_count; shard++)
			mark_segment(g, &s, shard, first, first + part->count, seen);
	}
}

/* One after the other; every element is in one block of one segment of its part. */
static void check_parts(const struct geometry_input *input, const struct geometry *g)
{
	uint8_t *seen = test_calloc(1, input->count);
	uint64_t first = 0, blocks = 0;
	uint32_t segment = 0;

	for (uint32_t i = 0; i < g->part_count; i++) {
		const struct geometry_part *part = geometry_part(g, i);

		for (uint32_t copy = 0; copy < part->copies; copy++) {
			assert_int_equal(geometry_segment(g, segment).first, first);
			assert_int_equal(geometry_segment(g, segment).first_block, blocks);
			check_part(input, g, part, first, segment, seen);
			first += part->count;
			segment += part->segment_count;
			blocks += part->block_count;
		}
	}
	assert_int_equal(first, input->count);
	assert_int_equal(segment, g->segment_count);
	assert_int_equal(blocks, g->block_count);
	assert_null(memchr(seen, 0, input->count));
	test_free(seen);
}

static struct geometry_input random_whole(void)
{
	return (struct geometry_input){
		.block_elems = 1 + (uint32_t)random_below(300),
		.elem_bytes = 2u << random_below(3),
		.shard_count = 1 + (uint32_t)random_below(5),
		.payload = 584 + (uint32_t)random_below(3000),
	};
}

/* Parts of any shape, in any order. */
TEST(parts)
{
	for (unsigned round = 0; round < 300; round++) {
		struct geometry_input input = random_whole();
		struct geometry_part parts[9];
		struct geometry g;

		input.converted = true;
		input.part_count = 1 + (uint32_t)random_below(9);
		input.parts = parts;
		for (uint32_t i = 0; i < input.part_count; i++) {
			parts[i] = random_part();
			input.count += parts[i].count * parts[i].copies;
		}
		assert_true(geometry_compute(&input, &g));
		check_parts(&input, &g);
	}
}

/* Of what is not eager, each worker receives a copy of one part. */
TEST(shares)
{
	const uint32_t workers[] = {2, 3, 4, 7, 64};

	for (unsigned round = 0; round < 300; round++) {
		uint64_t share = 1 + random_below(round % 3 == 0 ? 40 : 20000);
		struct geometry_input input = random_whole();
		struct geometry g;

		input.scatter = workers[random_below(5)];
		input.count = share * input.scatter;
		input.converted = round % 2;
		assert_true(geometry_compute(&input, &g));
		assert_int_equal(g.scatter, !g.eager);
		if (g.eager)
			continue;
		assert_int_equal(g.one.copies, input.scatter);
		assert_int_equal(g.one.count, share);
		check_parts(&input, &g);
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
