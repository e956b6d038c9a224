// SPDX-License-Identifier: BSD-3-Clause
/* test_comm_request.c - the life of a request, by every order of its ends; the test is the communicator's thread */

#include "tests/unit/test_comm.h"

COMM_TEST(told_again_and_again, comm_made(1))
{
	struct winnow_request *request = begin(comm);
	struct winnow_op_stats stats, again;
	int done = 1;

	assert_int_equal(winnow_test(request, &done, &stats), WINNOW_OK);
	assert_int_equal(done, 0);
	assert_int_equal(winnow_wait(request, 0, &stats), WINNOW_ERR_TIMEOUT);
	assert_int_equal(winnow_wait(request, 10, &stats), WINNOW_ERR_TIMEOUT);
	end(taken(comm), WINNOW_OK);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(winnow_wait(request, -1, &stats), WINNOW_OK);
		assert_int_equal(stats.blocks, 3);
		assert_int_equal(stats.blocks_union, 1);
		assert_int_equal(winnow_test(request, &done, &again), WINNOW_OK);
		assert_int_equal(done, 1);
		assert_memory_equal(&stats, &again, sizeof(stats));
	}
	assert_int_equal(unused(comm), 0);
	winnow_request_free(&request);
	assert_null(request);
	winnow_request_free(&request);
	assert_int_equal(unused(comm), 1);
	assert_int_equal(winnow_wait(request, -1, NULL), WINNOW_ERR_INVALID);
	assert_int_equal(winnow_test(request, &done, NULL), WINNOW_ERR_INVALID);
}

/* The same error for ever, whatever happens to the communicator meanwhile. */
COMM_TEST(failures_are_told_again, comm_made(1))
{
	struct winnow_request *busy = begin(comm), *lost = begin(comm);
	char text[WHY_BYTES];

	end(taken(comm), WINNOW_ERR_BUSY);
	assert_int_equal(winnow_wait(busy, -1, NULL), WINNOW_ERR_BUSY);
	snprintf(text, sizeof(text), "%s", winnow_last_error());
	assert_non_null(strstr(text, " is under way"));
	session_fail(comm->session, WINNOW_ERR_LOST, "rank 1 is lost");
	end(taken(comm), WINNOW_ERR_LOST);
	for (int i = 0; i < 2; i++) {
		int done;

		assert_int_equal(winnow_test(lost, &done, NULL), WINNOW_ERR_LOST);
		assert_string_equal(winnow_last_error(), "rank 1 is lost");
		assert_int_equal(winnow_wait(busy, -1, NULL), WINNOW_ERR_BUSY);
		assert_string_equal(winnow_last_error(), text);
	}
	assert_string_equal(winnow_comm_error(comm), "rank 1 is lost");
	winnow_request_free(&busy);
	winnow_request_free(&lost);
}

/* What is left of requests goes with the communicator: the sanitizers would see a leak. */
COMM_TEST(never_freed, comm_made(1))
{
	const int64_t index[] = {4, 0};
	struct winnow_request *request;
	struct winnow_rows *rows;

	begin(comm);
	end(taken(comm), WINNOW_OK);
	assert_int_equal(winnow_allreduce_rows_async(given, index, 2, 4, COUNT, WINNOW_I32,
	                                             WINNOW_SUM, NULL, comm, &rows, &request),
	                 WINNOW_OK);
	end(taken(comm), WINNOW_OK);
	winnow_rows_free(&rows);
}

static void *wait_long(void *request)
{
	return (void *)(intptr_t)winnow_wait(request, INT64_MAX, NULL);
}

/* Of milliseconds more than a clock has. */
COMM_TEST(waits_for_ever, comm_made(1))
{
	struct winnow_request *request = begin(comm);
	pthread_t thread;
	void *result;

	assert_int_equal(pthread_create(&thread, NULL, wait_long, request), 0);
	usleep(50000);
	end(taken(comm), WINNOW_OK);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_int_equal((intptr_t)result, WINNOW_OK);
	winnow_request_free(&request);
}

/* In a fork's child, while the parent's thread holds the lock. True: each says so, and none waits. */
static bool refused_in_child(struct winnow_comm *comm, struct winnow_request *request)
{
	struct winnow_membership membership = {.world = 1};
	struct winnow_request *another;
	struct winnow_stats stats;
	int results[6], done;

	alarm(20);
	results[0] = winnow_allreduce_async(given, received, COUNT, WINNOW_I32, WINNOW_SUM, NULL,
	                                    comm, &another);
	results[1] = winnow_wait(request, -1, NULL);
	results[2] = winnow_test(request, &done, NULL);
	results[3] = winnow_comm_check(comm);
	results[4] = winnow_comm_reconfigure(comm, &membership);
	results[5] = winnow_allreduce(given, received, COUNT, WINNOW_I32, WINNOW_SUM, comm);
	for (uint32_t i = 0; i < 6; i++)
		if (results[i] != WINNOW_ERR_INVALID)
			return false;
	winnow_comm_stats(comm, &stats);
	winnow_comm_say(comm, "hello");
	winnow_comm_abort(comm, "no");
	winnow_request_free(&request);
	return stats.sent_packets == 0 && *winnow_comm_late(comm) == '\0' &&
	       strstr(winnow_comm_error(comm), "make one after the fork") != NULL &&
	       strstr(winnow_last_error(), "make one after the fork") != NULL;
}

COMM_TEST(forked, comm_made(1))
{
	struct winnow_request *request = begin(comm);
	int status;
	pid_t child;

	comm_fork_add(comm);
	pthread_mutex_lock(&comm->shared.lock);
	child = fork();
	if (child == 0)
		_exit(refused_in_child(comm, request) ? 0 : 1);
	pthread_mutex_unlock(&comm->shared.lock);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	comm_fork_remove(comm);
	end(taken(comm), WINNOW_OK);
	winnow_request_free(&request);
}
