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

/* The session after it: at the door, or in a membership. */
static struct session *after(struct session *before, const char *job, uint32_t world)
{
	const bool kept = link_stands(session_link(before, 0));
	struct link_config links[1] = {basic()};
	struct session_config config = {.links = links,
	                                .names = (const char *[]){"one:1"},
	                                .link_count = 1,
	                                .pool = pool,
	                                .bitmap = bitmap_best()};
	struct session *session;

	links[0].job = job;
	links[0].world = world;
	links[0].from = kept ? session_link(before, 0) : NULL;
	session_stay(before, &config.stay);
	config.stay.without |= 4;
	config.stay.holds = true;
	assert_int_equal(session_open(&config, now_us, &session), 0);
	session_close(before);
	if (!kept)
		link_connected(session_link(session, 0), now_us);
	return session;
}

static struct session *door_after(struct session *before)
{
	return after(before, "job", 0);
}

/* It says so to the first aggregator, once, and does what that says; the other one's word is nothing. */
TEST(next)
{
	struct control_message failed = ended("lost");
	struct session *session = running();
	struct control_message stay;

	tell(session, 1, &failed);
	assert_int_equal(session_result(session), WINNOW_ERR_MEMBERS);
	assert_string_equal(told(session, 0, CONTROL_ABORT).code, "lost");
	session = door_after(session);
	stay = told(session, 0, CONTROL_STAY);
	assert_string_equal(stay.job, basic().job);
	assert_string_equal(stay.begun, basic().job);
	assert_true(stay.rank == basic().rank && stay.of == basic().world && stay.without == 4 &&
	            stay.holds);
	assert_null(session_take_line(session, 0, now_us)); /* once is enough */
	tell(session, 0, &failed);                          /* it was under way */
	assert_int_equal(session_state(session), SESSION_JOINING);
	tell(session, 0, &next);
	assert_string_equal(link_next(session_link(session, 0))->next, "job/next.1");
	session_close(session);
}

/* It has not begun: what was begun before counts. */
TEST(not_begun)
{
	struct session *session = all_joined();
	struct control_message stay;

	session_gone(session, 1, "connection reset");
	assert_string_equal(told(session, 0, CONTROL_ABORT).code, "gone");
	session = door_after(session);
	stay = told(session, 0, CONTROL_STAY);
	assert_string_equal(stay.job, basic().job);
	assert_string_equal(stay.begun, "job/before");
	assert_true(stay.of == 9 && stay.without == (2 | 4));
	session_close(session);
}

/* The decider is lost: at its door the worker says the same after each JOIN. */
TEST(away)
{
	struct control_message failed = ended("running");
	struct session *session = running(), *door;
	struct control_message stay;

	session_gone(session, 0, "connection reset");
	assert_int_equal(session_result(session), WINNOW_ERR_LOST);
	door = door_after(session);
	for (uint32_t turn = 0; turn < 3; turn++) {
		struct control_message join;

		tell(door, 0, &hello);
		join = told(door, 0, CONTROL_JOIN);
		assert_true(join.world == 0);
		stay = told(door, 0, CONTROL_STAY);
		assert_string_equal(stay.job, basic().job);
		assert_true(stay.of == basic().world && stay.without == 4 && stay.holds);
		if (turn < 2) {
			assert_true(link_again(session_link(door, 0)));
			link_connected(session_link(door, 0), now_us);
		}
	}
	tell(door, 0, &failed);
	assert_int_equal(session_result(door), WINNOW_ERR_LOST); /* it may come as a newcomer */
	session_stay(door, &stay);
	assert_true(stay.kind == CONTROL_STAY && stay.without == 4); /* or say the same again */
	session_close(door);
}

/* What ends the job for good may come before or after STAY: nobody says who continues. */
TEST(over_at_door)
{
	static const char *const codes[] = {"stalled", "moved", "aborted"};

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		struct control_message failed = ended(codes[i]);
		struct session *session = running();

		session_gone(session, 1, "connection reset");
		session = door_after(session);
		tell(session, 0, &failed);
		assert_int_equal(session_result(session), WINNOW_ERR_LOST);
		session_close(session);
	}
}

/* A newcomer says nothing more, and is let in; what is refused to it is no loss. */
TEST(newcomer)
{
	struct control_message failed = ended("running");

	for (uint32_t let_in = 0; let_in < 2; let_in++) {
		struct session *door = session_at_door(&(struct control_message){0});

		tell(door, 0, &hello);
		told(door, 0, CONTROL_JOIN);
		assert_null(session_take_line(door, 0, now_us));
		tell(door, 0, let_in ? &next : &failed);
		assert_true((link_next(session_link(door, 0)) != NULL) == let_in);
		assert_int_equal(session_result(door), let_in ? WINNOW_OK : WINNOW_ERR_REFUSED);
		session_close(door);
	}
}

/* NEXT has come: the connection goes on in the session after it, which sends JOIN at once. */
TEST(carried)
{
	struct session *session = running();
	struct control_message stay;

	session_move(session, true);
	told(session, 1, CONTROL_LEAVE);
	assert_null(session_take_line(session, 0, now_us));
	session = door_after(session);
	told(session, 0, CONTROL_STAY);
	tell(session, 0, &next);
	session = after(session, "job/next.1", 3);
	assert_string_equal(told(session, 0, CONTROL_JOIN).job, "job/next.1");
	assert_false(
		link_again(session_link(session, 0))); /* the decider takes it by this one alone */
	session_gone(session, 0, "connection reset");
	session_stay(session, &stay);
	assert_string_equal(stay.job, "job/next.1");
	assert_string_equal(stay.begun, basic().job);
	session_close(session);
}

/* The next membership ends before its session is there: what was heard of that by the one before is heard. */
TEST(carried_failed)
{
	const struct control_message failed = ended("lost");
	struct session *session = door_after(running());

	told(session, 0, CONTROL_STAY);
	tell(session, 0, &next);
	tell(session, 0, &failed);
	session = after(session, "job/next.1", 3);
	session_tick(session, now_us);
	assert_int_equal(session_result(session), WINNOW_ERR_MEMBERS);
	session = door_after(session);
	assert_string_equal(told(session, 0, CONTROL_STAY).job, "job/next.1");
	session_close(session);
}

/* One that accepts it after another one is lost is sent no KNOCKs, so none is due. */
SESSION_TEST(no_knocks, session_opened())
{
	struct packet_out out = {.scratch = scratch};

	session_gone(session, 1, "connection reset");
	welcomed(session, 0, 8972);
	told(session, 0, CONTROL_ABORT);
	assert_false(session_pull(session, 0, now_us, &out));
	assert_true(session_deadline(session) > now_us);
}

/* With something still under way it does not leave the others: it ends the membership for them. */
SESSION_TEST(busy, running())
{
	struct allreduce task;

	submit(session, &task);
	session_move(session, true);
	assert_int_equal(task.status, WINNOW_ERR_MEMBERS);
	assert_string_equal(told(session, 1, CONTROL_ABORT).code, "moved");
	assert_null(session_take_line(session, 0, now_us));
}

/* Which aggregators will end soon. */
TEST(drains)
{
	struct control_message ping = {.kind = CONTROL_PING};
	struct session *session = running();

	for (uint32_t i = 0; i < 3; i++) {
		ping.drains = i == 1;
		tell(session, 1, &ping);
		assert_true(session_drains(session) == (i == 1 ? 2 : 0));
	}
	session_close(session);
}
