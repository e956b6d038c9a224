// SPDX-License-Identifier: BSD-3-Clause
/* test_session.c - what several links have in common: one size of datagrams, one end, and one limit on waiting */

#include "tests/unit/test_session.h"

SESSION_TEST(smallest_size, running())
{
	struct winnow_stats stats;

	session_stats(session, &stats);
	assert_int_equal(stats.payload, 1472);
	assert_int_equal(stats.channels, LINKS);
	assert_int_equal(session_own_queue(session),
	                 262144); /* its windows are small: four super-packets */
}

/* Of all channels together. */
TEST(memory)
{
	const struct stream_config one = {.window = 32, .op_slots = 4, .segments_ahead = 2};
	struct session *session;

	bytes_max = LINKS * stream_bytes(&one);
	session_close(running());
	bytes_max--;
	session = started();
	assert_int_equal(session_result(session), WINNOW_ERR_MEMORY);
	assert_non_null(strstr(session_error(session), " are allowed (memory_mb, "));
	session_close(session);
	bytes_max = 0;
}

SESSION_TEST(abort, running())
{
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
}

/* The worker itself goes on, and says so to all. */
TEST(moves)
{
	struct session *session = running();
	struct allreduce task;

	assert_int_equal(session_passes(session), 1472);
	submit(session, &task);
	session_move(session, false);
	assert_int_equal(task.status, WINNOW_ERR_MEMBERS);
	assert_int_equal(session_submit(session, &task, now_us), WINNOW_ERR_MEMBERS);
	for (uint32_t i = 0; i < LINKS; i++)
		assert_string_equal(told(session, i, CONTROL_ABORT).code, "moved");
	session_close(session);
	session = session_opened();
	assert_int_equal(session_passes(session), 0);
	session_close(session);
}

/* Time passes, and the aggregators are heard of. */
static void session_pass(struct session *session, uint64_t us)
{
	now_us += us;
	for (uint32_t i = 0; i < LINKS; i++)
		tell(session, i, &(struct control_message){.kind = CONTROL_PING});
	session_tick(session, now_us);
}

/* Aggregators that live and send nothing: the limit, and no later. */
SESSION_TEST(stall, running())
{
	struct allreduce task;

	submit(session, &task);
	for (uint64_t us = 0; us < STALL_US + SILENCE_US; us += 1000000) {
		assert_int_equal(session_state(session), SESSION_RUNNING);
		session_pass(session, 1000000);
	}
	assert_int_equal(session_result(session), WINNOW_ERR_TIMEOUT);
	assert_non_null(
		strstr(session_error(session), "for 64.0 s, and no aggregator gives a reason"));
	assert_null(strstr(session_error(session), "dropped"));
	assert_int_equal(done, 1);
	assert_int_equal(task.status, WINNOW_ERR_TIMEOUT);
}

/* Then the line says what has come instead. */
SESSION_TEST(stall_with_garbage, running())
{
	struct allreduce task;
	uint8_t data[WIRE_PAYLOAD_MAX] = {0};
	struct wire_header head = {.kind = WIRE_RESULT, .channel = 5, .seal = GROUP_TOKEN + 1};
	struct packet_out out = {.scratch = scratch};
	struct winnow_stats stats;

	submit(session, &task);
	packet_begin(&out, &head);
	packet_flatten(&out, data);
	session_datagram(session, 0, &(struct arrival){.data = data, .bytes = 1000}, now_us);
	data[0] ^= 1;
	for (uint32_t i = 0; i < 2; i++)
		session_datagram(session, i, &(struct arrival){.data = data, .bytes = 1000},
		                 now_us);
	session_stats(session, &stats);
	assert_int_equal(stats.dropped, 3);
	session_pass(session, STALL_US + SILENCE_US);
	assert_non_null(strstr(session_error(session),
	                       "; 3 datagrams came and were dropped: 1 had a wrong seal or "
	                       "token, 2 made no sense"));
}

/* The same when a worker has left: then an operation has the silence time, and the line says who. */
SESSION_TEST(left, running())
{
	struct allreduce task;

	submit(session, &task);
	tell(session, 1,
	     &(struct control_message){.kind = CONTROL_LEFT, .rank = 2, .text = "rank 2 has left"});
	session_tick(session, now_us);
	assert_int_equal(session_state(session), SESSION_RUNNING);
	session_pass(session, SILENCE_US);
	assert_int_equal(session_result(session), WINNOW_ERR_MEMBERS);
	assert_non_null(strstr(session_error(session), "rank 2 has left"));
	assert_int_equal(done, 1);
}
