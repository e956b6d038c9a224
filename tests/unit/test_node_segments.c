// SPDX-License-Identifier: BSD-3-Clause
/* test_node_segments.c - which rows of a tensor lie in a GPU's share of it */

#include "client/node/node_state.h"
#include "tests/unit/test_random.h"
#include "tests/unit/unit.h"

#define SEGMENTS 6
#define ELEMENTS 1500 /* no tensor has more */

struct place {
	uint64_t listed, row, at; /* in a row of so many; 0: there are none */
};

static void paint(struct place *out, const struct winnow_segment *list, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		for (uint64_t j = 0; j < list[i].count; j++)
			out[list[i].offset + j] = (struct place){
				1, list[i].row, list[i].row > 0 ? j % list[i].row : 0};
}

/* Element by element: in a share it is in a segment of its row's length, at its place in the row, or in none. */
static void compare(struct node_share share, const struct winnow_segment *all, uint32_t count)
{
	struct place want[ELEMENTS] = {0}, got[ELEMENTS] = {0};
	struct winnow_segment found[SEGMENTS];
	uint32_t found_count = node_segments_of(share, all, count, found);
	uint64_t end = 0;

	for (uint32_t i = 0; i < found_count; i++) {
		assert_true(found[i].count > 0 && found[i].offset >= end);
		end = found[i].offset + found[i].count;
	}
	assert_true(end <= share.count);
	paint(want, all, count);
	paint(got, found, found_count);
	for (uint64_t i = 0; i < share.count; i++) {
		struct place *place = &want[share.first + i];

		/* Only of a row that has begun before the share nothing is in a segment. */
		if (place->row > 0 && place->at > i)
			*place = (struct place){0};
		assert_memory_equal(&got[i], place, sizeof(*place));
	}
}

TEST(random_tensors)
{
	random_seed();
	for (uint32_t round = 0; round < 3000; round++) {
		struct winnow_segment all[SEGMENTS];
		uint64_t end = 0, count;
		uint32_t segments = (uint32_t)random_below(SEGMENTS + 1);
		uint32_t block = 1 + (uint32_t)random_below(40);

		for (uint32_t i = 0; i < segments; i++) {
			all[i].offset = end + random_below(3) * 17;
			all[i].count = random_below(200);
			all[i].row = random_below(4) * random_below(70);
			end = all[i].offset + all[i].count;
		}
		count = end + random_below(50);
		for (uint32_t world = 1; world < 4; world++)
			for (uint32_t rank = 0; rank < world; rank++)
				compare(node_share(count, block, world, rank), all, segments);
	}
}

/* Rows that are longer than anything must not wrap around. */
TEST(endless_rows)
{
	const struct winnow_segment all[] = {{.offset = 10, .count = 90, .row = UINT64_MAX}};
	struct winnow_segment found[1];

	assert_int_equal(node_segments_of((struct node_share){0, 50}, all, 1, found), 1);
	assert_int_equal(found[0].offset, 10);
	assert_int_equal(found[0].count, 40);
	assert_int_equal(node_segments_of((struct node_share){50, 50}, all, 1, found), 0);
}
