// SPDX-License-Identifier: BSD-3-Clause
/*
 * test_geometry.c - PROTOCOL.md section 4, said a second time and slower
 *
 * The reference below follows the words of the section with 128-bit integers and shares no code
 * with geometry.c; beside it, properties that must hold whatever the formulas are.
 */

#include <string.h>

#include "tests/unit/test_geometry.h"

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
