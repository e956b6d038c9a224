// SPDX-License-Identifier: BSD-3-Clause
/* test_session_members.c - how a worker continues when others, or aggregators, are lost, or newcomers wait: MEMBERS.md */

#include "tests/unit/test_session.h"

static struct control_message ended(const char *code)
{
	struct control_message failed = {
		.kind = CONTROL_FAILED, .rank = 2, .text = "rank 2 is no more"};

	strcpy(failed.code, code);
	return failed;
}

static const struct control_message next = {
	.kind = CONTROL_NEXT, .next = "job/next.1", .next_rank = 1, .next_world = 3};

static enum session_next stays(struct session *session, uint64_t without)
{
	const struct control_message *said;

	return session_stay(
		session,
		&(struct session_wish){.without = without, .admit = 3, .holds = without != 0},
		now_us, &said);
}

/* It says so to the first aggregator, once, and does what that says; the other one's word is nothing. */
static void test_next(void **state)
{
	struct control_message failed = ended("lost");
	struct session *session = running();
	const struct control_message *said;
	struct control_message stay;

	(void)state;
	tell(session, 1, &failed);
	assert_int_equal(session_result(session), WINNOW_ERR_MEMBERS);
	assert_true(session_goes_on(session));
	assert_string_equal(told(session, 0, CONTROL_ABORT).code, "lost");
	assert_int_equal(stays(session, 4), SESSION_WAIT);
	stay = told(session, 0, CONTROL_STAY);
	assert_string_equal(stay.job, basic().job);
	assert_string_equal(stay.begun, basic().job);
	assert_true(stay.rank == basic().rank && stay.of == basic().world && stay.without == 4 &&
	            stay.admit == 3 && stay.holds);
	session_gone(session, 1, "connection reset");
	assert_int_equal(stays(session, 4), SESSION_WAIT);
	assert_null(session_take_line(session, 0, now_us)); /* once is enough */
	assert_null(session_take_line(session, 1, now_us));
	tell(session, 0, &failed); /* it was under way */
	assert_int_equal(stays(session, 4), SESSION_WAIT);
	tell(session, 0, &next);
	assert_int_equal(session_stay(session, &(struct session_wish){0}, now_us, &said),
	                 SESSION_NEXT);
	assert_string_equal(said->next, "job/next.1");
	session_close(session);
}

/* Which aggregators are lost: those whose connection has ended without a word, or that were shut down. */
static void test_without(void **state)
{
	static const struct {
		const char *code;
		uint64_t without;
	} cases[] = {{"", 2}, {"shutdown", 2}, {"lost", 0}, {"moved", 0}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct control_message failed = ended(cases[i].code);
		struct session *session = running();

		if (failed.code[0] != '\0')
			tell(session, 1, &failed);
		session_gone(session, 1, "connection reset");
		assert_int_equal(stays(session, 0), SESSION_WAIT);
		told(session, 0, CONTROL_ABORT);
		assert_true(told(session, 0, CONTROL_STAY).without == cases[i].without);
		session_close(session);
	}
}

/* It has not begun: what was begun before counts. Before WELCOME the decider is sent no ABORT, which would be a leave. */
static void test_not_begun(void **state)
{
	struct session *session = all_joined();
	struct control_message stay;

	(void)state;
	session_gone(session, 1, "connection reset");
	assert_null(session_take_line(session, 0, now_us));
	assert_int_equal(stays(session, 0), SESSION_WAIT);
	stay = told(session, 0, CONTROL_STAY);
	assert_string_equal(stay.job, basic().job);
	assert_string_equal(stay.begun, "job/before");
	assert_true(stay.of == 9 && stay.without == 2 && !stay.holds);
	session_close(session);
}

/* The decider is lost: the worker goes to its door, and says the same there after each JOIN. */
static void test_away(void **state)
{
	struct control_message failed = ended("running");
	struct session *session = running(), *door;
	struct control_message stay;

	(void)state;
	session_gone(session, 0, "connection reset");
	assert_int_equal(session_result(session), WINNOW_ERR_LOST);
	assert_true(session_goes_on(session));
	assert_int_equal(stays(session, 4), SESSION_AWAY);
	door = session_at_door(session_stays(session));
	session_close(session);
	for (uint32_t turn = 0; turn < 3; turn++) {
		struct control_message join;

		tell(door, 0, &hello);
		join = told(door, 0, CONTROL_JOIN);
		assert_true(join.world == 0);
		stay = told(door, 0, CONTROL_STAY);
		assert_string_equal(stay.job, basic().job);
		assert_true(stay.of == basic().world && stay.without == 4 && stay.holds);
		assert_int_equal(stays(door, 0), SESSION_WAIT);
		if (turn < 2) {
			assert_true(link_again(session_link(door, 0)));
			link_connected(session_link(door, 0), now_us);
		}
	}
	tell(door, 0, &failed);
	assert_int_equal(session_result(door), WINNOW_ERR_LOST); /* it may come as a newcomer */
	assert_false(session_goes_on(door));
	assert_int_equal(stays(door, 0), SESSION_NONE);
	session_close(door);
}

/* A newcomer says nothing more, and is let in; what is refused to it is no loss. */
static void test_newcomer(void **state)
{
	struct control_message failed = ended("running");

	(void)state;
	for (uint32_t let_in = 0; let_in < 2; let_in++) {
		struct session *door = session_at_door(&(struct control_message){0});

		tell(door, 0, &hello);
		told(door, 0, CONTROL_JOIN);
		assert_null(session_take_line(door, 0, now_us));
		tell(door, 0, let_in ? &next : &failed);
		assert_int_equal(stays(door, 0), let_in ? SESSION_NEXT : SESSION_NONE);
		assert_int_equal(session_result(door), let_in ? WINNOW_OK : WINNOW_ERR_REFUSED);
		session_close(door);
	}
}

/* NEXT has come: the connection goes on in the session after it, which sends JOIN at once. */
static void test_carried(void **state)
{
	struct session *session = running(), *after;
	struct link_config links[1] = {basic()};
	struct session_config config = {.links = links,
	                                .names = (const char *[]){"one:1"},
	                                .link_count = 1,
	                                .pool = pool,
	                                .bitmap = bitmap_best()};
	struct control_message join;

	(void)state;
	assert_int_equal(stays(session, 0), SESSION_WAIT);
	told(session, 0, CONTROL_STAY);
	tell(session, 0, &next);
	session_move(session);
	assert_string_equal(told(session, 1, CONTROL_ABORT).code, "moved");
	assert_null(session_take_line(session, 0, now_us)); /* it has ended there */
	links[0].job = "job/next.1";
	links[0].world = 3;
	links[0].from = session_link(session, 0);
	config.stay = *session_stays(session);
	assert_int_equal(session_open(&config, now_us, &after), 0);
	session_close(session);
	join = told(after, 0, CONTROL_JOIN);
	assert_string_equal(join.job, "job/next.1");
	assert_false(
		link_again(session_link(after, 0))); /* the decider takes it by this one alone */
	session_gone(after, 0, "connection reset");
	assert_int_equal(stays(after, 0), SESSION_AWAY);
	assert_string_equal(session_stays(after)->job, "job/next.1");
	assert_string_equal(session_stays(after)->begun, basic().job);
	session_close(after);
}

/* The next membership ends before its session is there: what was heard of that by the one before is heard. */
static void test_carried_failed(void **state)
{
	const struct control_message failed = ended("lost");
	struct session *session = running(), *after;
	struct link_config links[1] = {basic()};
	struct session_config config = {.links = links,
	                                .names = (const char *[]){"one:1"},
	                                .link_count = 1,
	                                .pool = pool,
	                                .bitmap = bitmap_best()};

	(void)state;
	assert_int_equal(stays(session, 0), SESSION_WAIT);
	told(session, 0, CONTROL_STAY);
	tell(session, 0, &next);
	tell(session, 0, &failed);
	assert_int_equal(stays(session, 0), SESSION_NEXT);
	links[0].job = "job/next.1";
	links[0].from = session_link(session, 0);
	assert_int_equal(session_open(&config, now_us, &after), 0);
	session_close(session);
	session_tick(after, now_us);
	assert_int_equal(session_result(after), WINNOW_ERR_MEMBERS);
	assert_int_equal(stays(after, 0), SESSION_WAIT);
	assert_string_equal(told(after, 0, CONTROL_STAY).job, "job/next.1");
	session_close(after);
}

/* One that has ended the job for good is obeyed, and so are workers that do not all know how to continue. */
static void test_over(void **state)
{
	const struct control_message lost = ended("lost"), over = ended("aborted");
	struct control_message message = welcome();
	struct session *session = running();

	(void)state;
	tell(session, 0, &over);
	assert_int_equal(stays(session, 0), SESSION_NONE);
	session_close(session);
	link_count = 1;
	session = session_opened();
	message.features = CONTROL_FEATURES & ~(uint32_t)CONTROL_MEMBERS;
	tell(session, 0, &hello);
	told(session, 0, CONTROL_JOIN);
	tell(session, 0, &message);
	tell(session, 0, &lost);
	assert_int_equal(stays(session, 0), SESSION_NONE);
	session_close(session);
	link_count = LINKS;
}

/* One that accepts it after another one is lost is sent no KNOCKs, so none is due. */
static void test_no_knocks(void **state)
{
	struct session *session = session_opened();
	struct packet_out out = {.scratch = scratch};

	(void)state;
	session_gone(session, 1, "connection reset");
	welcomed(session, 0, 8972);
	assert_false(session_pull(session, 0, now_us, &out));
	assert_true(session_deadline(session) > now_us);
	session_close(session);
}

/* The worker that one aggregator has waited for in vain is lost on the others as well. */
static void test_absent(void **state)
{
	struct control_message failed = ended("join_timeout");
	struct session *session = session_opened();

	(void)state;
	welcomed(session, 0, 8972);
	tell(session, 1, &hello);
	told(session, 1, CONTROL_JOIN);
	tell(session, 1, &failed);
	assert_int_equal(session_result(session), WINNOW_ERR_TIMEOUT);
	assert_string_equal(told(session, 0, CONTROL_ABORT).code, "lost");
	session_close(session);
}

/* With something under way it does not ask for newcomers: what is done here must be done on all, or its time be over. */
static void test_quiet(void **state)
{
	struct session_wish wish = {.admit = 1, .by_us = now_us + 1000};
	struct session *session = running();
	const struct control_message *said;
	struct allreduce task;

	(void)state;
	submit(session, &task);
	pull(session);
	assert_false(session_quiet(session));
	assert_int_equal(session_stay(session, &wish, now_us, &said), SESSION_WAIT);
	assert_null(session_take_line(session, 0, now_us));
	now_us += 1000;
	assert_int_equal(session_stay(session, &wish, now_us, &said), SESSION_WAIT);
	assert_int_equal(told(session, 0, CONTROL_STAY).admit, 1);
	session_close(session);
}

/* Which aggregators will end soon. */
static void test_drains(void **state)
{
	struct control_message ping = {.kind = CONTROL_PING};
	struct session *session = running();

	(void)state;
	for (uint32_t i = 0; i < 3; i++) {
		ping.drains = i == 1;
		tell(session, 1, &ping);
		assert_true(session_drains(session) == (i == 1 ? 2 : 0));
	}
	session_close(session);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_next),      cmocka_unit_test(test_without),
		cmocka_unit_test(test_not_begun), cmocka_unit_test(test_away),
		cmocka_unit_test(test_newcomer),  cmocka_unit_test(test_carried),
		cmocka_unit_test(test_over),      cmocka_unit_test(test_no_knocks),
		cmocka_unit_test(test_absent),    cmocka_unit_test(test_quiet),
		cmocka_unit_test(test_drains),    cmocka_unit_test(test_carried_failed),
	};

	return cmocka_run_group_tests(tests, pool_open, pool_close);
}
