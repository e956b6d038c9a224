// SPDX-License-Identifier: BSD-3-Clause
/* test_crowd.c - who gives way: against a plain count of everybody, at random */

#include <stdlib.h>

#include "aggregator/jobs/crowd.h"
#include "tests/unit/test_random.h"
#include "tests/unit/unit.h"

#define ROOM 200
#define ROUNDS 5000

static char people[ROUNDS]; /* their addresses are all that matters */

/* The same by counting, and in *out how many this owner has. */
static struct crowd_heaviest counted(const struct crowd *crowd, uint64_t owner, uint32_t *out)
{
	struct crowd_heaviest heaviest = {0};

	*out = 0;
	for (uint32_t i = 0; i < crowd->count; i++) {
		uint32_t count = 0, before = 0;

		for (uint32_t k = 0; k < crowd->count; k++) {
			count += crowd->members[k].owner == crowd->members[i].owner;
			before += k < i && crowd->members[k].owner == crowd->members[i].owner;
		}
		heaviest.owners += before == 0;
		*out += crowd->members[i].owner == owner;
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
	assert_null(crowd_heaviest(&crowd).oldest);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct crowd_heaviest heaviest, want;
		uint32_t count;
		/* Few owners, many, and some that fall into the same place of the table. */
		uint64_t owner =
			random_below(i % 3 == 0 ? 4 : 100) * (i % 7 == 0 ? UINT64_C(1) << 40 : 1);

		if (crowd.count == ROOM || (crowd.count > 0 && random_below(3) == 0)) {
			const void *who = crowd.members[random_below(crowd.count)].who;

			assert_true(crowd_remove(&crowd, who));
			assert_false(crowd_remove(&crowd, who));
		} else {
			count = crowd_count(&crowd, owner);
			crowd_add(&crowd, owner, &people[i]);
			assert_int_equal(crowd_count(&crowd, owner), count + 1);
		}
		heaviest = crowd_heaviest(&crowd);
		want = counted(&crowd, owner, &count);
		assert_ptr_equal(heaviest.oldest, want.oldest);
		assert_int_equal(heaviest.count, want.count);
		assert_int_equal(heaviest.owners, want.owners);
		assert_int_equal(crowd_count(&crowd, owner), count);
	}
	crowd_close(&crowd);
}
