// SPDX-License-Identifier: BSD-3-Clause
/* test_session.c - what several links have in common: one size of datagrams, one end, and one limit on waiting */

#include "tests/unit/test_link.h"

#include "client/worker/array.h"
#include "client/worker/session.h"

#define LINKS 2
#define STALL_US 60000000

static struct bitmap_pool *pool;
static int32_t numbers[16];
static uint32_t done;

static void count_done(struct allreduce *task)
{
	(void)task;
	done++;
}

static struct session *session_of(const char *job)
{
	static const char *const names[LINKS] = {"one:1", "two:2"};
	struct link_config links[LINKS];
	struct session_config config = {.links = links,
	                                .names = names,
	                                .link_count = LINKS,
	                                .pool = pool,
	                                .bitmap = bitmap_best(),
	                                .voice = {.of = 9, .first = true}};
	struct session *session;

	for (uint32_t i = 0; i < LINKS; i++) {
		links[i] = basic();
		links[i].multicast = false;
		links[i].place = i;
		links[i].job = job;
	}
	assert_int_equal(session_open(&config, now_us, &session), 0);
	for (uint32_t i = 0; i < LINKS; i++)
		session_connected(session, i, now_us);
	return session;
}

static struct session *session_opened(void)
{
	return session_of(basic().job);
}

static void tell(struct session *session, uint32_t index, const struct control_message *message)
{
	char *line = message_format(message);

	assert_non_null(line);
	session_line(session, index, line, now_us);
	free(line);
}

static struct control_message told(struct session *session, uint32_t index, enum control_kind kind)
{
	struct control_message message;
	struct why why;
	char *line = session_take_line(session, index, now_us);

	assert_non_null(line);
	assert_int_equal(message_parse(line, &message, &why), 0);
	assert_int_equal(message.kind, kind);
	free(line);
	return message;
}

/* Datagrams of this size pass to aggregator `index`, which has one channel. */
static void probe(struct session *session, uint32_t index, uint32_t bytes)
{
	uint8_t data[WIRE_PAYLOAD_MAX] = {0};
	struct packet_head head = {.kind = WIRE_KNOCKED,
	                           .channel = (uint16_t)(5 + index),
	                           .worker = 1,
	                           .token = GROUP_TOKEN};
	struct packet_out out = {.scratch = scratch};

	packet_begin(&out, &head);
	packet_flatten(&out, data);
	session_datagram(session, index, &(struct arrival){.data = data, .bytes = bytes}, now_us);
}

/* The thread's turn: what there is to send. */
static void pull(struct session *session)
{
	struct packet_out out = {.scratch = scratch};

	for (uint32_t i = 0; i < LINKS; i++)
		while (session_pull(session, i, now_us, &out))
			;
	session_tick(session, now_us);
}

static void welcomed(struct session *session, uint32_t index, uint32_t payload)
{
	struct control_message message = welcome();

	message.payload = payload;
	message.channel_count = 1;
	message.channels[0] = (uint16_t)(5 + index);
	*message.group = '\0';
	tell(session, index, &hello);
	told(session, index, CONTROL_JOIN);
	tell(session, index, &message);
}

static struct session *running(void)
{
	struct session *session = session_opened();

	for (uint32_t i = 0; i < LINKS; i++)
		welcomed(session, i, i == 0 ? 8972 : 1472);
	pull(session);
	probe(session, 0, 8972);
	pull(session);
	assert_null(session_take_line(session, 0, now_us)); /* the other may carry less */
	probe(session, 1, 1472);
	pull(session);
	for (uint32_t i = 0; i < LINKS; i++)
		assert_int_equal(told(session, i, CONTROL_READY).payload, 1472);
	for (uint32_t i = 0; i < LINKS; i++) {
		assert_int_equal(session_state(session), SESSION_JOINING);
		tell(session, i,
		     &(struct control_message){.kind = CONTROL_START,
		                               .payload = 1472,
		                               .window = 32,
		                               .window_start = 8});
	}
	assert_int_equal(session_state(session), SESSION_RUNNING);
	return session;
}

static void test_smallest_size(void **state)
{
	struct session *session = running();
	struct winnow_stats stats;

	(void)state;
	session_stats(session, &stats);
	assert_int_equal(stats.payload, 1472);
	assert_int_equal(stats.channels, LINKS);
	session_close(session);
}

static void test_abort(void **state)
{
	struct session *session = running();

	(void)state;
	session_abort(session, "of my own will");
	assert_int_equal(session_state(session), SESSION_FAILED);
	assert_int_equal(session_result(session), WINNOW_ERR_ABORTED);
	assert_string_equal(session_error(session), "aborted here: of my own will");
	session_abort(session, "once more");
	session_fail(session, WINNOW_ERR_LOST, "too late");
	assert_string_equal(session_error(session), "aborted here: of my own will");
	for (uint32_t i = 0; i < LINKS; i++) {
		struct control_message message = told(session, i, CONTROL_ABORT);

		assert_string_equal(message.code, "aborted");
		assert_string_equal(message.text, "of my own will");
		assert_null(session_take_line(session, i, now_us));
	}
	session_close(session);
}

/* One link ends: the others' aggregators are told why, and it is not told itself. */
static void test_one_ends(void **state)
{
	struct session *session = running();
	struct control_message message;

	(void)state;
	session_gone(session, 1, "connection closed");
	assert_int_equal(session_result(session), WINNOW_ERR_LOST);
	assert_string_equal(session_error(session), "aggregator two:2 is lost: connection closed");
	message = told(session, 0, CONTROL_ABORT);
	assert_string_equal(message.code, "gone");
	assert_string_equal(message.text, "aggregator two:2 is lost: connection closed");
	assert_null(session_take_line(session, 1, now_us));
	session_close(session);
}

static void submit(struct session *session, struct allreduce *task)
{
	*task = (struct allreduce){.send = numbers,
	                           .recv = numbers,
	                           .count = 16,
	                           .block_elems = 16,
	                           .dtype = DTYPE_I32,
	                           .reduction = REDUCE_SUM,
	                           .tag = 1,
	                           .access = &array_access,
	                           .done = count_done};
	done = 0;
	assert_int_equal(session_submit(session, task, now_us), WINNOW_OK);
}

/* A member is lost to one aggregator: the others pass it on as that, and so everybody may continue. */
static void test_members(void **state)
{
	static const char *const codes[] = {"lost", "moved", "path"};

	(void)state;
	for (uint32_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		struct session *session = running();
		struct control_message failed = {.kind = CONTROL_FAILED, .rank = 2}, message;

		strcpy(failed.code, codes[i]);
		strcpy(failed.text, "rank 2 (host) is lost");
		tell(session, 1, &failed);
		assert_int_equal(session_result(session), WINNOW_ERR_MEMBERS);
		assert_string_equal(session_error(session),
		                    "aggregator two:2: rank 2 (host) is lost");
		message = told(session, 0, CONTROL_ABORT);
		assert_string_equal(message.code, "lost");
		session_close(session);
	}
}

static struct session *all_joined(void)
{
	struct session *session = session_opened();

	for (uint32_t i = 0; i < LINKS; i++) {
		tell(session, i, &hello);
		told(session, i, CONTROL_JOIN);
	}
	return session;
}

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
				assert_true(message_name_is_again(said->next));
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
	now_us += 1000000000;
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

/* While an operator has paused the job no waiting counts, and then it counts anew; it is said who has. */
static void test_paused(void **state)
{
	struct control_message ping = {.kind = CONTROL_PING, .paused = true};
	struct session *session = all_joined();
	struct allreduce task;
	uint64_t limit_us = STALL_US + SILENCE_US;

	(void)state;
	tell(session, 0, &ping);
	assert_false(session_paused(session)); /* it does not run */
	session_close(session);
	session = running();
	submit(session, &task);
	tell(session, 1, &ping);
	assert_true(session_paused(session));
	assert_string_equal(session_late(session), "an operator has paused the job");
	for (uint32_t i = 0; i < 40; i++) {
		now_us += limit_us / 10;
		tell(session, 0, &(struct control_message){.kind = CONTROL_PING});
		tell(session, 1, &ping);
		session_tick(session, now_us);
	}
	assert_int_equal(session_state(session), SESSION_RUNNING);
	ping.drains = true; /* the job has to go elsewhere */
	tell(session, 1, &ping);
	assert_false(session_paused(session));
	ping.paused = ping.drains = false;
	tell(session, 1, &ping);
	assert_false(session_paused(session));
	for (uint32_t i = 0; i < 12 && session_state(session) == SESSION_RUNNING; i++) {
		assert_true(i <= 10);
		now_us += limit_us / 10;
		tell(session, 0, &ping);
		tell(session, 1, &ping);
		session_tick(session, now_us);
	}
	assert_int_equal(session_result(session), WINNOW_ERR_TIMEOUT);
	session_close(session);
}

/* The worker itself goes on, and says so to all. */
static void test_moves(void **state)
{
	struct session *session = running();
	struct allreduce task;

	(void)state;
	assert_int_equal(session_passes(session), 1472);
	assert_false(session_multicast(session, 0));
	submit(session, &task);
	session_move(session);
	assert_int_equal(task.status, WINNOW_ERR_MEMBERS);
	assert_int_equal(session_submit(session, &task, now_us), WINNOW_ERR_MEMBERS);
	for (uint32_t i = 0; i < LINKS; i++)
		assert_string_equal(told(session, i, CONTROL_ABORT).code, "moved");
	session_close(session);
	session = session_opened();
	assert_int_equal(session_passes(session), 0);
	session_close(session);
}

/* Aggregators that live and send nothing: the limit, and no later. */
static void test_stall(void **state)
{
	struct session *session = running();
	struct allreduce task;
	uint64_t end_us = now_us + STALL_US + SILENCE_US;

	(void)state;
	submit(session, &task);
	while (now_us < end_us) {
		assert_int_equal(session_state(session), SESSION_RUNNING);
		now_us += 1000000;
		for (uint32_t i = 0; i < LINKS; i++)
			tell(session, i, &(struct control_message){.kind = CONTROL_PING});
		session_tick(session, now_us);
	}
	assert_int_equal(session_result(session), WINNOW_ERR_TIMEOUT);
	assert_non_null(strstr(session_error(session), "for 64.0 s"));
	assert_int_equal(done, 1);
	assert_int_equal(task.status, WINNOW_ERR_TIMEOUT);
	session_close(session);
}

/* The same when a worker has left: then an operation has the silence time, and the line says who. */
static void test_left(void **state)
{
	struct session *session = running();
	struct allreduce task;

	(void)state;
	submit(session, &task);
	tell(session, 1,
	     &(struct control_message){.kind = CONTROL_LEFT, .rank = 2, .text = "rank 2 has left"});
	session_tick(session, now_us);
	assert_int_equal(session_state(session), SESSION_RUNNING);
	now_us += SILENCE_US;
	for (uint32_t i = 0; i < LINKS; i++)
		tell(session, i, &(struct control_message){.kind = CONTROL_PING});
	session_tick(session, now_us);
	assert_int_equal(session_result(session), WINNOW_ERR_MEMBERS);
	assert_non_null(strstr(session_error(session), "rank 2 has left"));
	assert_int_equal(done, 1);
	session_close(session);
}

static int pool_open(void **state)
{
	(void)state;
	return bitmap_pool_open(bitmap_best(), 1, &pool);
}

static int pool_close(void **state)
{
	(void)state;
	bitmap_pool_close(pool);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_smallest_size), cmocka_unit_test(test_abort),
		cmocka_unit_test(test_one_ends),      cmocka_unit_test(test_members),
		cmocka_unit_test(test_moves),         cmocka_unit_test(test_next),
		cmocka_unit_test(test_agreed),        cmocka_unit_test(test_quiet),
		cmocka_unit_test(test_paused),        cmocka_unit_test(test_next_of_the_second),
		cmocka_unit_test(test_stall),         cmocka_unit_test(test_left),
		cmocka_unit_test(test_overtaken),     cmocka_unit_test(test_not_before_join),
	};

	return cmocka_run_group_tests(tests, pool_open, pool_close);
}
