// SPDX-License-Identifier: BSD-3-Clause
/*
 * comm_request.c - the life of a request: created, queued, done, reported, released
 *
 * A request has two references: the library's until the operation is done, and the caller's until
 * winnow_request_free(). Releasing the last reference recycles the request, so the order does not matter, and the caller
 * may read the result any number of times.
 */

#include <stdlib.h>

#include "client/comm/comm_state.h"

/* ---- creating and releasing ---- */

struct winnow_request *comm_request_new(struct winnow_comm *comm)
{
	struct winnow_request *request, *made = NULL;

	pthread_mutex_lock(&comm->shared.lock);
	request = STAILQ_FIRST(&comm->shared.unused);
	if (request != NULL)
		STAILQ_REMOVE_HEAD(&comm->shared.unused, next);
	else
		request = made = calloc(1, sizeof(*request));
	if (made != NULL) {
		made->comm = comm;
		comm_cond_init(&made->changed);
		made->made_before = comm->shared.requests;
		comm->shared.requests = made;
	}
	if (request != NULL) {
		request->task = (struct allreduce){.status = WINNOW_OK};
		request->submitted_us = clock_us();
		request->done_us = 0;
		request->done = false;
		request->staged = (struct staged){0};
		request->why.text[0] = '\0';
		request->holders = 2;
	}
	pthread_mutex_unlock(&comm->shared.lock);
	return request;
}

/* Frees what belongs to the operation, not the request. */
static void request_release(struct winnow_request *request)
{
	rows_close(request->rows);
	request->rows = NULL;
	free(request->parts);
	request->parts = NULL;
}

void comm_request_drop(struct winnow_request *request)
{
	struct winnow_comm *comm = request->comm;
	bool last;

	pthread_mutex_lock(&comm->shared.lock);
	last = --request->holders == 0;
	pthread_mutex_unlock(&comm->shared.lock);
	if (!last)
		return;
	request_release(request);
	pthread_mutex_lock(&comm->shared.lock);
	STAILQ_INSERT_HEAD(&comm->shared.unused, request, next);
	pthread_mutex_unlock(&comm->shared.lock);
}

void winnow_request_free(struct winnow_request **request)
{
	struct winnow_request *ours = __atomic_exchange_n(request, NULL, __ATOMIC_ACQ_REL);

	if (ours != NULL && !ours->comm->inherited)
		comm_request_drop(ours);
}

void comm_requests_free(struct winnow_comm *comm)
{
	struct winnow_request *next;

	for (struct winnow_request *request = comm->shared.requests; request != NULL;
	     request = next) {
		next = request->made_before;
		request_release(request);
		pthread_cond_destroy(&request->changed);
		free(request);
	}
}

/* ---- queueing ---- */

int comm_request_queue(struct winnow_request *request, struct why *why)
{
	struct winnow_comm *comm = request->comm;
	struct comm_shared *shared = &comm->shared;
	int result = WINNOW_OK;

	pthread_mutex_lock(&shared->lock);
	if (shared->result != WINNOW_OK) {
		result = why_set(why, (int)shared->result, "%s", shared->error.text);
	} else if (!comm_runs(comm, request->membership)) {
		result = why_set(why, WINNOW_ERR_MEMBERS, "%s", comm_moves);
	} else {
		if (request->task.tag == 0)
			request->task.tag = COMM_TAG_BY_ORDER | shared->next_tag++;
		STAILQ_INSERT_TAIL(&shared->submitted, request, next);
	}
	pthread_mutex_unlock(&shared->lock);
	if (result == WINNOW_OK)
		comm_wake(comm);
	return result;
}

/* ---- done ---- */

/* Why it failed, or "". Under the lock. */
static void request_explain(const struct winnow_request *request, struct why *why)
{
	const struct winnow_comm *comm = request->comm;
	int result = request->task.status;

	why->text[0] = '\0';
	if (result == WINNOW_ERR_BUSY)
		why_set(why, 0, "an operation with tag %llu is under way",
		        (unsigned long long)request->task.tag);
	else if (result != WINNOW_OK)
		why_set(why, 0, "%s",
		        comm->shared.error.text[0] != '\0' ? comm->shared.error.text
		                                           : winnow_strerror(result));
}

/* The library is done with the request; its result is final. */
static void request_over(struct winnow_request *request)
{
	struct winnow_comm *comm = request->comm;

	pthread_mutex_lock(&comm->shared.lock);
	request->done_us = clock_us();
	request->done = true;
	pthread_cond_broadcast(&request->changed);
	pthread_mutex_unlock(&comm->shared.lock);
	comm_request_drop(request);
}

void comm_complete(struct winnow_request *request)
{
	struct winnow_comm *comm = request->comm;

	pthread_mutex_lock(&comm->shared.lock);
	comm_publish(comm);
	if (!session_busy(comm->session))
		comm_publish_news(comm); /* A caller that has waited for all sees all. */
	request_explain(request, &request->why);
	pthread_mutex_unlock(&comm->shared.lock);
	request_over(request);
}

void comm_request_end(struct winnow_request *request, int result, const char *why)
{
	request->task.status = result;
	if (result != WINNOW_OK)
		why_set(&request->why, 0, "%s", why);
	request_over(request);
}

/* ---- reporting ---- */

static const char no_request[] = "the request is NULL: it has been freed, or never begun";

/* Reports the result of a request that is done. */
static int request_tell(const struct winnow_request *request, struct winnow_op_stats *stats)
{
	int result = request->task.status;

	if (stats != NULL)
		*stats = (struct winnow_op_stats){
			.blocks = request->task.blocks,
			.blocks_nonzero = request->task.blocks_nonzero,
			.blocks_union = request->task.blocks_union,
			.time_us = request->done_us - request->submitted_us,
			.staged_out_bytes = request->staged.out_bytes,
			.staged_in_bytes = request->staged.in_bytes,
		};
	return result == WINNOW_OK ? WINNOW_OK : comm_fail(result, request->why.text);
}

int winnow_wait(struct winnow_request *request, int64_t timeout_ms, struct winnow_op_stats *stats)
{
	const bool for_ever = timeout_ms < 0 || timeout_ms > INT64_MAX / 2000;
	uint64_t until_us = for_ever ? UINT64_MAX : clock_us() + (uint64_t)timeout_ms * 1000;
	struct winnow_comm *comm;
	bool done;
	int err = 0;

	if (request == NULL)
		return comm_fail(WINNOW_ERR_INVALID, no_request);
	comm = request->comm;
	if (comm->inherited)
		return comm_fail(WINNOW_ERR_INVALID, comm_after_fork);
	pthread_mutex_lock(&comm->shared.lock);
	while (!request->done && err == 0)
		err = comm_cond_wait(&request->changed, &comm->shared.lock, until_us);
	done = request->done;
	pthread_mutex_unlock(&comm->shared.lock);
	return done ? request_tell(request, stats)
	            : comm_fail(WINNOW_ERR_TIMEOUT, "the operation is not done yet");
}

int winnow_test(struct winnow_request *request, int *done, struct winnow_op_stats *stats)
{
	if (request == NULL)
		return comm_fail(WINNOW_ERR_INVALID, no_request);
	if (request->comm->inherited)
		return comm_fail(WINNOW_ERR_INVALID, comm_after_fork);
	pthread_mutex_lock(&request->comm->shared.lock);
	*done = request->done;
	pthread_mutex_unlock(&request->comm->shared.lock);
	return *done ? request_tell(request, stats) : WINNOW_OK;
}
