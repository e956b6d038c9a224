// SPDX-License-Identifier: BSD-3-Clause
/* test_link_members.c - a link after the end of its membership: does its connection stand, is the aggregator lost? */

#include "tests/unit/test_link.h"

/* FAILED about a loss leaves the connection; after that its end is no loss of the aggregator. */
static void test_stands(void **state)
{
	static const struct {
		const char *code;
		bool stands, lost, over;
	} cases[] = {{"lost", true, false, false},
	             {"gone", true, false, false},
	             {"shutdown", false, true, false},
	             {"aborted", false, false, true}};
	struct link_config config = basic();
	struct link *link = link_running(&config);

	(void)state;
	assert_true(link_stands(link) && !link_lost(link));
	link_gone(link, "connection reset");
	assert_true(!link_stands(link) && link_lost(link) && !link_ended(link));
	link_close(link);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct control_message failed = {
			.kind = CONTROL_FAILED, .rank = 2, .text = "is no more"};

		strcpy(failed.code, cases[i].code);
		link = link_running(&config);
		say(link, &failed);
		assert_int_equal(link_stands(link), cases[i].stands);
		link_gone(link, "connection closed");
		assert_false(link_stands(link));
		assert_int_equal(link_lost(link), cases[i].lost);
		assert_int_equal(link_ended(link), cases[i].over);
		link_close(link);
	}
	/* Silence is its end, unless we stood still ourselves. */
	link = link_running(&config);
	say(link, &(struct control_message){.kind = CONTROL_FAILED, .rank = 2, .code = "lost"});
	assert_string_equal(link_look(link)->error, "it ended the job, and said only 'lost'");
	now_us += 3600000000;
	link_tick(link, now_us);
	assert_true(link_stands(link));
	pass(link, SILENCE_US);
	assert_false(link_stands(link));
	link_close(link);
}

/* How to go on is heard only by those who have asked: another word of it ends the session. */
static void test_next_unasked(void **state)
{
	const struct control_message next = {
		.kind = CONTROL_NEXT, .next = "job/next.0123456789abcdef", .next_world = 3};
	const struct link_config config = basic();
	struct link *link = link_running(&config);

	(void)state;
	say(link, &next);
	assert_failed(link, "protocol", "out of turn");
	assert_null(link_next(link));
	link_close(link);
	/* As soon as it has asked, running. */
	link = link_running(&config);
	link_stay(link, &(struct control_message){.job = "job"});
	heard(link, CONTROL_STAY);
	say(link, &next);
	assert_non_null(link_next(link));
	assert_string_equal(link_next(link)->next, next.next);
	link_close(link);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stands),
		cmocka_unit_test(test_next_unasked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
