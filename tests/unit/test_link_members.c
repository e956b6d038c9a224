// SPDX-License-Identifier: BSD-3-Clause
/* test_link_members.c - how a job continues after a loss, as one aggregator's link has it: who is lost, who owes an answer */

#include "tests/unit/test_link.h"

/* It pings until then; has it been lost by then? */
static bool lost_at(struct link *link, uint64_t until_us)
{
	while (now_us < until_us) {
		uint64_t step_us = until_us - now_us < 100000 ? until_us - now_us : 100000;

		now_us += step_us;
		say(link, &(struct control_message){.kind = CONTROL_PING});
		link_tick(link, now_us);
		free(link_take_line(link, now_us));
	}
	return link_lost(link);
}

/*
 * An aggregator that is asked how the job continues, and only pings, is lost in the end: the stall time and twice
 * the silence time after it was asked, or after the end, or after the others had to ask, whichever was the latest.
 */
static void test_owes_next(void **state)
{
	const struct control_message failed = {
		.kind = CONTROL_FAILED, .rank = 2, .code = "lost", .text = "is lost"};
	enum { NOT_BEGUN, NOT_ENDED, ENDED, ABORTED, ENDED_LATER, ANSWERED, CASES };
	struct link_config config = basic();
	uint64_t patience_us;

	(void)state;
	config.stall_us = 60012000; /* no ping is due then */
	patience_us = config.stall_us + 2 * SILENCE_US;
	config.join_us = 10 * patience_us;
	for (int which = 0; which < CASES; which++) {
		const bool begun = which != NOT_BEGUN && which != ABORTED;
		struct link *link = begun ? link_running(&config) : probing(&config);
		const bool waits = which == NOT_BEGUN || which == ANSWERED;
		uint64_t from_us;

		if (which == ABORTED)
			link_abort(link, "lost", "aggregator b: rank 1 is lost");
		if (which == ABORTED)
			heard(link, CONTROL_ABORT);
		if (which == ENDED || which == ANSWERED)
			say(link, &failed);
		assert_false(lost_at(link, now_us + 2 * patience_us)); /* nobody has asked */
		from_us = which == NOT_ENDED ? now_us + 2000000 : now_us;
		link_stay(link, &(struct control_message){.first = true}, from_us);
		heard(link, CONTROL_STAY);
		if (which == ENDED_LATER) {
			assert_false(lost_at(link, from_us + patience_us / 2));
			say(link, &failed);
			from_us = now_us;
		}
		assert_false(lost_at(link, from_us + patience_us - 1));
		if (which == ANSWERED)
			say(link, &(struct control_message){.kind = CONTROL_NEXT});
		else if (!waits)
			assert_true(link_deadline_lines(link) == now_us + 1);
		assert_int_equal(lost_at(link, now_us + 1), !waits);
		link_close(link);
	}
}

/* We stood still, and have not read what has come meanwhile. */
static void test_owes_next_stood_still(void **state)
{
	const struct link_config config = basic();
	struct link *link = link_running(&config);

	(void)state;
	say(link, &(struct control_message){.kind = CONTROL_FAILED, .rank = 2, .code = "lost"});
	assert_string_equal(link_look(link)->error, "it ended the job, and said only 'lost'");
	link_stay(link, &(struct control_message){.first = true}, 0);
	heard(link, CONTROL_STAY);
	now_us += 3600000000;
	link_tick(link, now_us);
	assert_false(link_lost(link));
	assert_true(link_waits_for_us(link));
	link_close(link);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_owes_next),
		cmocka_unit_test(test_owes_next_stood_still),
	};

	return proof_init() != 0 || cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
