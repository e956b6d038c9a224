// SPDX-License-Identifier: BSD-3-Clause
/* test_session_members.c - how a worker continues when others, or aggregators, are lost, or newcomers wait */

#include "tests/unit/test_session.h"

static struct control_message ended(const char *code)
{
	struct control_message failed = {
		.kind = CONTROL_FAILED, .rank = 2, .text = "rank 2 is no more"};

	strcpy(failed.code, code);
	return failed;
}

static enum session_next stays(struct session *session, uint64_t without,
                               const struct control_message **out)
{
	return session_stay(session, &(struct session_wish){.without = without}, now_us, out);
}

static enum session_next agrees(struct session *session, uint64_t agreed,
                                const struct control_message **out)
{
	return session_stay(session, &(struct session_wish){.agreed = agreed, .most = 3}, now_us,
	                    out);
}

/* Not all of its workers know that: whoever is left has to end. */
static void test_no_feature(void **state)
{
	const struct control_message failed = ended("lost");
	const struct control_message *said;
	struct control_message message = welcome();
	struct session *session;

	(void)state;
	link_count = 1;
	session = session_opened();
	message.features = CONTROL_FEATURES & ~(uint32_t)CONTROL_MEMBERS;
	tell(session, 0, &hello);
	told(session, 0, CONTROL_JOIN);
	tell(session, 0, &message);
	tell(session, 0, &failed);
	assert_int_equal(stays(session, 0, &said), SESSION_NONE);
	session_close(session);
	link_count = LINKS;
}

/*
 * It has said that others may continue without the second aggregator, and never asks that one then; but one that
 * drains may be asked, if it is the first.
 */
static void test_agreed(void **state)
{
	struct control_message ping = {.kind = CONTROL_PING, .drains = true},
			       next = {.kind = CONTROL_NEXT,
	                               .next = "job/next.1",
	                               .next_world = 4,
	                               .drains = true};
	const struct control_message *said;

	(void)state;
	for (uint64_t agreed = 1; agreed <= 2; agreed++) {
		struct session *session = running();
		struct control_message stay;

		assert_true(session_drains(session) == 0);
		tell(session, 1, &ping);
		assert_true(session_drains(session) == 2);
		ping.drains = false;
		tell(session, 1, &ping);
		assert_true(session_drains(session) == 0);
		ping.drains = true;
		assert_int_equal(agrees(session, agreed, &said), SESSION_WAIT);
		stay = told(session, 0, CONTROL_STAY);
		assert_true(stay.agreed == agreed && stay.without == 0 && stay.most == 3 &&
		            !stay.fewer);
		session_gone(session, 0, "connection reset");
		assert_int_equal(stays(session, 0, &said),
		                 agreed == 2 ? SESSION_NEXT : SESSION_WAIT);
		session_close(session);
	}
	{
		struct session *session = running();

		assert_int_equal(stays(session, 0, &said), SESSION_WAIT);
		assert_true(session_restarts(session) == 0);
		tell(session, 0, &next);
		assert_int_equal(stays(session, 0, &said), SESSION_NEXT);
		assert_true(session_restarts(session) == 1);
		session_close(session);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_feature),
		cmocka_unit_test(test_agreed),
	};

	return cmocka_run_group_tests(tests, pool_open, pool_close);
}
