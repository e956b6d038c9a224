// SPDX-License-Identifier: BSD-3-Clause
/* test_comm_calls.c - what callers have to say to the communicator's thread, and what they hear of it */

#include <string.h>

#include "tests/unit/comm_world.h"

static void queue(struct winnow_comm *comm, struct winnow_request *request)
{
	pthread_mutex_lock(&comm->lock);
	STAILQ_INSERT_TAIL(&comm->submitted, request, next);
	pthread_mutex_unlock(&comm->lock);
}

/* In their order; one that the session does not take is done at once, and the next one goes on. */
static void test_orders(void **state)
{
	struct winnow_comm *comm = *state;
	static struct winnow_request requests[4];

	for (uint32_t i = 0; i < 4; i++)
		requests[i] = (struct winnow_request){.comm = comm, .task.tag = i + 1};
	w.submit[1] = WINNOW_ERR_BUSY;
	for (uint32_t i = 0; i < 3; i++)
		queue(comm, &requests[i]);
	world_start(comm);
	world_wake(comm);
	await(w.submitted == 3);
	await(w.completed == 1);
	assert_int_equal(w.done[0], WINNOW_ERR_BUSY);
	assert_int_equal(told(w.traced), 2);
	assert_in_range(world_turns_at_rest(), 0, 20);
	queue(comm, &requests[3]);
	world_wake(comm);
	await(w.submitted == 4);
	requests[3].task.status = WINNOW_OK;
	requests[3].task.done(&requests[3].task);
	assert_int_equal(told(w.completed), 2);
	pthread_mutex_lock(&comm->lock);
	assert_true(STAILQ_EMPTY(&comm->submitted));
	pthread_mutex_unlock(&comm->lock);
}

static void order_end(struct winnow_comm *comm, enum winnow_result result, const char *text)
{
	pthread_mutex_lock(&comm->lock);
	comm->abort_wanted = true;
	comm->abort_result = result;
	snprintf(comm->abort_text, sizeof(comm->abort_text), "%s", text);
	pthread_mutex_unlock(&comm->lock);
	world_wake(comm);
}

static void test_abort(void **state)
{
	world_start(*state);
	order_end(*state, WINNOW_ERR_ABORTED, "no more");
	await(w.aborted[0] != '\0');
	assert_string_equal(w.aborted, "no more");
	assert_string_equal(w.failed, "");
	/* Once. */
	say(w.aborted[0] = '\0');
	world_wake(*state);
	assert_in_range(world_turns_at_rest(), 0, 20);
	assert_string_equal(w.aborted, "");
}

static void test_fail(void **state)
{
	char expected[64];

	world_start(*state);
	order_end(*state, WINNOW_ERR_GPU, "a GPU is lost");
	await(w.failed[0] != '\0');
	snprintf(expected, sizeof(expected), "%d a GPU is lost", (int)WINNOW_ERR_GPU);
	assert_string_equal(w.failed, expected);
	assert_string_equal(w.aborted, "");
}

/* What callers see: the job's shape once it runs, then its end; and statistics when they ask. */
static void test_published(void **state)
{
	struct winnow_comm *comm = *state;

	w.state = SESSION_JOINING;
	comm->state = SESSION_JOINING;
	world_start(comm);
	say(w.state = SESSION_RUNNING);
	world_wake(comm);
	pthread_mutex_lock(&comm->lock);
	while (comm->state == SESSION_JOINING)
		pthread_cond_wait(&comm->changed, &comm->lock);
	assert_int_equal(comm->state, SESSION_RUNNING);
	assert_int_equal(comm->shape.channels, 6);
	assert_int_equal(comm->shape.payload, 1472);
	assert_int_equal(comm->shape.window, 128);
	assert_int_equal(comm->shape.op_slots, 32);
	assert_true(comm->shape.fast);
	comm->stats_wanted = true;
	pthread_mutex_unlock(&comm->lock);
	world_wake(comm);
	pthread_mutex_lock(&comm->lock);
	while (comm->stats_wanted)
		pthread_cond_wait(&comm->changed, &comm->lock);
	assert_int_equal(comm->stats.channels, 6);
	assert_int_equal(comm->stats.pinned_bytes, 4096);
	pthread_mutex_unlock(&comm->lock);
	say(w.state = SESSION_FAILED);
	world_wake(comm);
	pthread_mutex_lock(&comm->lock);
	while (comm->state == SESSION_RUNNING)
		pthread_cond_wait(&comm->changed, &comm->lock);
	assert_int_equal(comm->result, WINNOW_ERR_LOST);
	assert_string_equal(comm->error.text, "it is lost");
	pthread_mutex_unlock(&comm->lock);
	/* Nobody asks how those who are left continue before the caller wants to; the answer may take time. */
	say(w.has_next = true);
	world_wake(comm);
	say(w.has_next = false);
	assert_int_equal(told(comm->next_how), SESSION_WAIT);
	comm->peers_known = comm->peer_count + 1; /* the last one has been left out before */
	comm->peers[comm->peer_count].place = 1;
	comm->peers[comm->peer_count].fd = -1;
	comm->peers[comm->peer_count].connect_due_us = UINT64_MAX;
	comm->without = 2;
	comm->stays = true;
	world_wake(comm);
	assert_int_equal(told(comm->next_how), SESSION_WAIT);
	say(w.has_next = true);
	world_wake(comm);
	pthread_mutex_lock(&comm->lock);
	while (comm->next_how == SESSION_WAIT)
		pthread_cond_wait(&comm->changed, &comm->lock);
	assert_int_equal(comm->next_how, SESSION_NEXT);
	assert_string_equal(comm->next.next, "job/next.1");
	assert_int_equal(comm->next.next_rank, 1);
	assert_int_equal(comm->next.next_world, 3);
	pthread_mutex_unlock(&comm->lock);
}

#define test(name) cmocka_unit_test_setup_teardown(name, world_begin, world_end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(test_orders),
		test(test_abort),
		test(test_fail),
		test(test_published),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
