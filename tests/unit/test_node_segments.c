// SPDX-License-Identifier: BSD-3-Clause
/* test_node_segments.c - which rows of a tensor lie in a GPU's share of it */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/node/node_impl.h"
#include "tests/unit/test_random.h"

#define SEGMENTS 6

static uint32_t segment_at(const struct winnow_segment *list, uint32_t count, uint64_t at)
{
	for (uint32_t i = 0; i < count; i++)
		if (at >= list[i].offset && at < list[i].offset + list[i].count)
			return i;
	return count;
}

/* Element by element: in a share it is in a segment of its row's length, at its place in the row, or in none. */
static void compare(struct node_share share, const struct winnow_segment *all, uint32_t count)
{
	struct winnow_segment found[SEGMENTS];
	uint32_t found_count = node_segments_of(share, all, count, found);
	uint64_t end = 0;

	for (uint32_t i = 0; i < found_count; i++) {
		assert_true(found[i].count > 0 && found[i].offset >= end);
		end = found[i].offset + found[i].count;
	}
	assert_true(end <= share.count);
	for (uint64_t i = 0; i < share.count; i++) {
		uint32_t here = segment_at(found, found_count, i);
		uint32_t there = segment_at(all, count, share.first + i);
		const struct winnow_segment *whole = &all[there];
		uint64_t row_first;

		if (there == count) {
			assert_int_equal(here, found_count);
			continue;
		}
		row_first = share.first + i;
		if (whole->row > 0)
			row_first -= (row_first - whole->offset) % whole->row;
		/* Only of a row that has begun before the share nothing is in a segment. */
		assert_int_equal(here == found_count, whole->row > 0 && row_first < share.first);
		if (here == found_count)
			continue;
		assert_int_equal(found[here].row, whole->row);
		if (whole->row > 0)
			assert_int_equal((i - found[here].offset) % whole->row,
			                 (share.first + i - whole->offset) % whole->row);
	}
}

static void test_random_tensors(void **state)
{
	(void)state;
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
static void test_endless_rows(void **state)
{
	const struct winnow_segment all[] = {{.offset = 10, .count = 90, .row = UINT64_MAX}};
	struct winnow_segment found[1];

	(void)state;
	assert_int_equal(node_segments_of((struct node_share){0, 50}, all, 1, found), 1);
	assert_int_equal(found[0].offset, 10);
	assert_int_equal(found[0].count, 40);
	assert_int_equal(node_segments_of((struct node_share){50, 50}, all, 1, found), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_tensors),
		cmocka_unit_test(test_endless_rows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
