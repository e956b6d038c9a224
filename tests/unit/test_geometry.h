/* SPDX-License-Identifier: BSD-3-Clause */
/* test_geometry.h - what must be true of the frames of any cut, whatever the formulas are */
#ifndef TESTS_UNIT_TEST_GEOMETRY_H
#define TESTS_UNIT_TEST_GEOMETRY_H

#include "ebpf/geometry.h"
#include "tests/unit/test_random.h"
#include "tests/unit/unit.h"

__extension__ typedef unsigned __int128 wide;

static inline wide ceiling(wide a, wide b)
{
	return (a + b - 1) / b;
}

static inline void check_frames(const struct geometry *g, const struct geometry_part *part)
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

#endif /* TESTS_UNIT_TEST_GEOMETRY_H */
