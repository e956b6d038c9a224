// SPDX-License-Identifier: BSD-3-Clause
/* test_knocks.c - which KNOCK may move a worker's address, and what is known of those that came */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "aggregator/jobs/knocks.h"

static void test_moves(void **state)
{
	struct knocker knocker = {0};
	struct packet knock = {.kind = WIRE_KNOCK};

	(void)state;
	knock.frame = UINT32_MAX;
	assert_true(knock_moves(&knocker, &knock, false)); /* the first one does */
	knock_note(&knocker, &knock, false, 900);
	assert_false(knock_moves(&knocker, &knock, false)); /* sent again, it does not */
	knock.frame = 0;                                    /* numbers wrap */
	assert_true(knock_moves(&knocker, &knock, false));
	knock_note(&knocker, &knock, false, 900);
	knock.frame = UINT32_MAX;
	knock_note(&knocker, &knock, false, 900); /* an old one, from where it came */
	assert_int_equal(knocker.count, 0);
	assert_false(knock_moves(&knocker, &knock, false));
	knock.frame = 1;
	assert_false(knock_moves(&knocker, &knock, true)); /* once the job has started, a number */
	knock.number = 77;
	assert_false(knock_moves(&knocker, &knock, true));
	knocker.number = 78;
	assert_false(knock_moves(&knocker, &knock, true));
	knock.number = 0;
	assert_false(knock_moves(&knocker, &knock, true));
	knock.number = 78;
	assert_true(knock_moves(&knocker, &knock, true));
	knock_note(&knocker, &knock, false, 1000);
	assert_false(knock_moves(&knocker, &knock, true)); /* it is used up */
	knocker.number = 79;
	/* One from before and one without a number, from the known address, leave it as it is. */
	knock_note(&knocker, &knock, false, 1000);
	knock_note(&knocker, &(struct packet){0}, false, 1000);
	knock.number = 79;
	assert_true(knock_moves(&knocker, &knock, true));
	knock_note(&knocker, &knock, false, 1000); /* with it from there: it has not moved */
	assert_false(knock_moves(&knocker, &knock, true));
}

static void test_ages(void **state)
{
	struct knocker knocker = {0};
	struct jobs_heard heard;

	(void)state;
	knock_ages(&knocker, 5000, &heard);
	assert_true(heard.any_us == UINT64_MAX && heard.whole_us == UINT64_MAX);
	knock_note(&knocker, &(struct packet){.frame = 7}, true, 5000);
	knock_note(&knocker, &(struct packet){.frame = 8}, false, 5200);
	knock_ages(&knocker, 6000, &heard);
	assert_int_equal(heard.any_us, 800);
	assert_int_equal(heard.whole_us, 1000);
	/* Somebody has recorded these, and sends them again: the worker's own may be lost all the same. */
	knock_note(&knocker, &(struct packet){.frame = 7}, true, 5900);
	knock_note(&knocker, &(struct packet){.frame = 8}, true, 5900);
	knock_ages(&knocker, 6000, &heard);
	assert_int_equal(heard.any_us, 800);
	assert_int_equal(heard.whole_us, 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_moves),
		cmocka_unit_test(test_ages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
