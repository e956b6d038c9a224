// SPDX-License-Identifier: BSD-3-Clause
/* test_crowd.c - who gives way: against a plain count of everybody, at random */

#include <stdlib.h>

#include "aggregator/jobs/crowd.h"
#include "tests/unit/test_random.h"
#include "tests/unit/unit.h"

#define ROOM 200

static char people[1000]; /* their addresses are all that matters */

TEST(order)
{
	struct crowd crowd;

	assert_int_equal(crowd_open(&crowd, 8), 0);
	assert_null(crowd_heaviest(&crowd).oldest);
	crowd_add(&crowd, 1, &people[0]);
	crowd_add(&crowd, 2, &people[1]);
	crowd_add(&crowd, 2, &people[2]);
	crowd_add(&crowd, 1, &people[3]);
	assert_ptr_equal(crowd_heaviest(&crowd).oldest, &people[0]); /* two each: the oldest */
	crowd_add(&crowd, 2, &people[4]);
	assert_ptr_equal(crowd_heaviest(&crowd).oldest, &people[1]);
	assert_int_equal(crowd_heaviest(&crowd).count, 3);
	assert_int_equal(crowd_heaviest(&crowd).owners, 2);
	assert_int_equal(crowd_count(&crowd, 2), 3);
	assert_int_equal(crowd_count(&crowd, 3), 0);
	assert_true(crowd_remove(&crowd, &people[1]));
	assert_false(crowd_remove(&crowd, &people[1]));
	assert_true(crowd_remove(&crowd, &people[2]));
	assert_ptr_equal(crowd_heaviest(&crowd).oldest, &people[0]);
	crowd_close(&crowd);
}

/* The same by counting. */
static struct crowd_heaviest counted(const struct crowd *crowd)
{
	struct crowd_heaviest heaviest = {0};

	for (uint32_t i = 0; i < crowd->count; i++) {
		uint32_t count = 0, before = 0;

		for (uint32_t k = 0; k < crowd->count; k++) {
			count += crowd->members[k].owner == crowd->members[i].owner;
			before += k < i && crowd->members[k].owner == crowd->members[i].owner;
		}
		heaviest.owners += before == 0;
		if (count > heaviest.count) {
			heaviest.count = count;
			heaviest.oldest = crowd->members[i].who;
		}
	}
	return heaviest;
}

TEST(random)
{
	struct crowd crowd;

	assert_int_equal(crowd_open(&crowd, ROOM), 0);
	for (uint32_t i = 0; i < 5000; i++) {
		struct crowd_heaviest heaviest, want;
		/* Few owners, many, and some that fall into the same place of the table. */
		uint64_t owner =
			random_below(i % 3 == 0 ? 4 : 100) * (i % 7 == 0 ? UINT64_C(1) << 40 : 1);

		if (crowd.count == ROOM || (crowd.count > 0 && random_below(3) == 0))
			crowd_remove(&crowd, crowd.members[random_below(crowd.count)].who);
		else
			crowd_add(&crowd, owner, &people[i % 1000]);
		heaviest = crowd_heaviest(&crowd);
		want = counted(&crowd);
		assert_ptr_equal(heaviest.oldest, want.oldest);
		assert_int_equal(heaviest.count, want.count);
		assert_int_equal(heaviest.owners, want.owners);
	}
	crowd_close(&crowd);
}
