// SPDX-License-Identifier: BSD-3-Clause
/* test_link_members.c - a link after the end of its membership: does its connection stand, is the aggregator lost? */

#include "tests/unit/test_link.h"

/* FAILED about a loss leaves the connection; after that its end is no loss of the aggregator. */
TEST(stands)
{
	static const struct {
		const char *code;
		bool stands, lost, over;
	} cases[] = {{"lost", true, false, false},
	             {"gone", true, false, false},
	             {"shutdown", false, true, false},
	             {"aborted", false, false, true}};
	struct link_config config = basic();
	struct link *link = link_running(config);

	assert_true(link_stands(link) && !link_lost(link));
	link_gone(link, "connection reset");
	assert_true(!link_stands(link) && link_lost(link) && !link_ended(link));
	link_close(link);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct control_message failed = {
			.kind = CONTROL_FAILED, .rank = 2, .text = "is no more"};

		strcpy(failed.code, cases[i].code);
		link = link_running(config);
		say(link, &failed);
		assert_int_equal(link_stands(link), cases[i].stands);
		link_gone(link, "connection closed");
		assert_false(link_stands(link));
		assert_int_equal(link_lost(link), cases[i].lost);
		assert_int_equal(link_ended(link), cases[i].over);
		link_close(link);
	}
	/* Silence is its end, unless we stood still ourselves. */
	link = link_running(config);
	say(link, &(struct control_message){.kind = CONTROL_FAILED, .rank = 2, .code = "lost"});
	assert_string_equal(link->error, "it ended the job without a reason, with code 'lost'");
	now_us += 3600000000;
	link_tick(link, now_us);
	assert_true(link_stands(link));
	pass(link, SILENCE_US);
	assert_false(link_stands(link));
	link_close(link);
}

static const struct control_message next = {
	.kind = CONTROL_NEXT, .next = "job/next.0123456789abcdef", .next_world = 3};

/* How to go on is heard at the door alone: another word of it ends the session. */
LINK_TEST(next_unasked, link_running(basic()))
{
	say(link, &next);
	assert_failed(link, "protocol", "out of turn");
	assert_null(link_next(link));
}

/* A member's, by the connection that it has. */
static struct link *link_at_door(void)
{
	struct link_config config = basic();
	struct link *before = link_running(config), *link;

	config.world = 0;
	config.from = before;
	assert_int_equal(link_open(&config, now_us, &link), 0);
	link_close(before);
	link_stay(link, &(struct control_message){.job = "job"});
	heard(link, CONTROL_STAY);
	return link;
}

/* Its connection ends, or is silent: it makes another one, and says the same by that. */
LINK_TEST(door_again, link_at_door())
{
	pass(link, SILENCE_US);
	assert_int_equal(link->state, LINK_JOINING);
	assert_false(link_stands(link));
	assert_true(link_again(link));
	link_connected(link, now_us);
	assert_true(link_stands(link));
	say(link, &hello);
	assert_int_equal(heard(link, CONTROL_JOIN).world, 0);
	assert_string_equal(heard(link, CONTROL_STAY).job, "job");
}
