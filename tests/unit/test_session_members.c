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

/*
 * Who wants to continue says so to the first aggregator. While not all have come there, it is not told that the
 * membership is over: it would count this worker out.
 */
static void test_next(void **state)
{
	struct control_message failed = ended("join_timeout");
	struct control_message next = {
		.kind = CONTROL_NEXT, .next = "job/next.1", .next_rank = 1, .next_world = 3};
	struct session *session = all_joined();
	const struct control_message *said;
	struct control_message stay;

	(void)state;
	tell(session, 1, &failed);
	assert_int_equal(session_result(session), WINNOW_ERR_TIMEOUT);
	assert_null(session_take_line(session, 0, now_us));
	assert_int_equal(stays(session, 0, &said), SESSION_WAIT);
	assert_int_equal(session_deadline(session), 0);
	stay = told(session, 0, CONTROL_STAY); /* none is lost; have all accepted it? */
	assert_true(stay.without == 0 && stay.fewer);
	assert_int_equal(stays(session, 0, &said), SESSION_WAIT);
	assert_null(session_take_line(session, 0, now_us)); /* once is enough */
	tell(session, 1, &next);                            /* the second one's word is nothing */
	assert_int_equal(stays(session, 0, &said), SESSION_WAIT);
	tell(session, 0, &failed);
	assert_int_equal(stays(session, 0, &said), SESSION_WAIT);
	tell(session, 0, &next);
	assert_int_equal(stays(session, 0, &said), SESSION_NEXT);
	assert_string_equal(said->next, "job/next.1");
	assert_int_equal(said->next_rank, 1);
	assert_int_equal(said->next_world, 3);
	session_close(session);
	/* No word of a membership: there is none. */
	session = all_joined();
	next.next[0] = '\0';
	tell(session, 0, &failed);
	tell(session, 0, &next);
	assert_int_equal(stays(session, 0, &said), SESSION_NONE);
	session_close(session);
}

/* Those that are lost are passed over, whether they have said so or not; one that has ended the job for good is obeyed. */
static void test_next_of_the_second(void **state)
{
	struct control_message over = ended("aborted"), shut = ended("shutdown"),
			       lost = ended("lost");
	struct control_message stay;
	const struct control_message *said;
	struct session *session;

	(void)state;
	for (unsigned way = 0; way < 4; way++) {
		lost.rank = way == 2 ? basic().rank : 7;
		session = way < 3 ? running() : all_joined();
		if (way == 1)
			tell(session, 0, &shut);
		if (way == 2)
			tell(session, 0, &lost);
		session_gone(session, 0, "connection reset");
		assert_int_equal(stays(session, 4, &said), way == 2 ? SESSION_NONE : SESSION_WAIT);
		if (way < 2) {
			assert_string_equal(told(session, 1, CONTROL_ABORT).code, "gone");
			stay = told(session, 1, CONTROL_STAY);
			assert_true(stay.without == 5 && stay.fewer);
			assert_true(stay.of == basic().world && !stay.first);
			tell(session, 1, way == 0 ? &over : &lost);
			session_gone(session, 1, "connection closed");
			assert_int_equal(stays(session, 4, &said),
			                 way == 0 ? SESSION_NONE : SESSION_NEXT);
			if (way == 1) {
				assert_true(message_name_is(said->next, CONTROL_AGAIN_NAME));
				assert_true(said->without == 4 &&
				            said->next_world == basic().world);
			}
		} else if (way == 3) { /* what was before it counts */
			stay = told(session, 1, CONTROL_STAY);
			assert_true(stay.fewer && stay.of == 9 && stay.first);
			session_gone(session, 1, "connection reset");
			assert_int_equal(stays(session, 4, &said), SESSION_NEXT);
			assert_string_equal(said->next, basic().job); /* it had not begun */
		}
		session_close(session);
	}
	/* The first one stands; that the second is lost is said to it, also if that is known only later. */
	session = running();
	tell(session, 0, &lost);
	assert_int_equal(stays(session, 0, &said), SESSION_WAIT);
	assert_false(told(session, 0, CONTROL_STAY).fewer);
	session_gone(session, 1, "connection reset");
	assert_int_equal(stays(session, 0, &said), SESSION_WAIT);
	stay = told(session, 0, CONTROL_STAY);
	assert_true(stay.without == 2 && stay.fewer);
	/* Silence is a loss, too, after the end; meanwhile we ping. */
	for (uint64_t until_us = now_us + 1000000000; now_us < until_us; now_us += 100000)
		session_tick(session, now_us);
	assert_int_equal(stays(session, 0, &said), SESSION_NEXT);
	session_close(session);
}

/* An aggregator that has not even said HELLO hears of it after JOIN, its first line. */
static void test_not_before_join(void **state)
{
	struct session *session = session_opened();
	const struct control_message *said;

	(void)state;
	session_gone(session, 1, "connection reset");
	assert_int_equal(stays(session, 0, &said), SESSION_WAIT);
	assert_null(session_take_line(session, 0, now_us));
	assert_int_not_equal(session_deadline(session), 0);
	tell(session, 0, &hello);
	told(session, 0, CONTROL_JOIN);
	assert_true(told(session, 0, CONTROL_STAY).fewer);
	session_close(session);
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

/* How this worker stays if so many of `link_count` aggregators have sent WELCOME, and the others have let it in. */
static struct control_message stays_with(uint32_t welcomes)
{
	const struct control_message ping = {.kind = CONTROL_PING}, failed = ended("join_timeout");
	const struct control_message *said;
	struct session *session = session_opened();
	struct control_message stay;

	for (uint32_t i = 0; i < link_count; i++) {
		if (i < welcomes) {
			welcomed(session, i, 8972);
			continue;
		}
		tell(session, i, &hello);
		told(session, i, CONTROL_JOIN);
		tell(session, i, &ping);
	}
	tell(session, 0, &failed);
	assert_int_equal(stays(session, 0, &said), SESSION_WAIT);
	stay = told(session, 0, CONTROL_STAY);
	session_close(session);
	return stay;
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

/* Where a majority has named the membership, to be let in is not enough: it counts once all have come. */
static void test_majority(void **state)
{
	(void)state;
	for (link_count = 1; link_count <= LINKS; link_count++) {
		for (uint32_t welcomes = 0; welcomes <= link_count; welcomes++) {
			struct control_message stay;

			by_majority = false;
			stay = stays_with(welcomes);
			assert_true(!stay.fewer && stay.of == basic().world);
			by_majority = true;
			stay = stays_with(welcomes);
			assert_int_equal(stay.fewer, welcomes < link_count);
			assert_int_equal(stay.of, welcomes < link_count ? 9 : basic().world);
			assert_int_equal(stay.first, welcomes < link_count);
			assert_int_equal(stay.named, welcomes < link_count ? basic().world : 0);
			named = 7; /* it was not accepted to the one before either, which was larger */
			stay = stays_with(welcomes);
			assert_int_equal(stay.named, welcomes < link_count ? 7 : 0);
			named = 0;
		}
	}
	link_count = LINKS;
	by_majority = false;
}

/* Whom one aggregator has waited for in vain is lost on the others, too: so the rest may continue there. */
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

/* It was away for so long that the others have continued: it may come back. Of another job it is no member. */
static void test_overtaken(void **state)
{
	static const char *const jobs[] = {"job", "job/first.1", "job/next.1", "job/again.1"};
	struct control_message refused = ended("running");

	(void)state;
	for (uint32_t i = 0; i < 4; i++) {
		struct session *session = session_of(jobs[i]);

		tell(session, 1, &hello);
		told(session, 1, CONTROL_JOIN);
		tell(session, 1, &refused);
		assert_int_equal(session_state(session), SESSION_FAILED);
		assert_int_equal(session_result(session),
		                 i < 2 ? WINNOW_ERR_REFUSED : WINNOW_ERR_LOST);
		assert_false(session_goes_on(session));
		session_close(session);
	}
}

/* An aggregator that was restarted does not know whether the others have gone on, so it is not asked. */
static void test_lost_again(void **state)
{
	(void)state;
	for (uint32_t again = 0; again < 2; again++) {
		struct session *session;

		comes_again = again;
		session = session_of("job/next.1");
		tell(session, 0, &hello);
		told(session, 0, CONTROL_JOIN);
		session_gone(session, 0, "connection reset");
		assert_int_equal(session_result(session), WINNOW_ERR_LOST);
		assert_int_equal(session_goes_on(session), !again);
		session_close(session);
	}
	comes_again = false;
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

/* With something under way it does not ask for newcomers: what is done here must be done on all, or its time be over. */
static void test_quiet(void **state)
{
	struct session_wish wish = {.most = 1, .by_us = now_us + 1000};
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
	assert_int_equal(told(session, 0, CONTROL_STAY).most, 1);
	session_close(session);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_next),
		cmocka_unit_test(test_next_of_the_second),
		cmocka_unit_test(test_not_before_join),
		cmocka_unit_test(test_no_knocks),
		cmocka_unit_test(test_overtaken),
		cmocka_unit_test(test_lost_again),
		cmocka_unit_test(test_absent),
		cmocka_unit_test(test_majority),
		cmocka_unit_test(test_no_feature),
		cmocka_unit_test(test_agreed),
		cmocka_unit_test(test_quiet),
	};

	return cmocka_run_group_tests(tests, pool_open, pool_close);
}
