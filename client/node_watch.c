// SPDX-License-Identifier: BSD-3-Clause
/* node_watch.c - whatever fails in a node ends it, and nobody waits for ever */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/node_impl.h"

#define WATCH_US                                                                                   \
	UINT64_C(20000) /* between looks while something is under way; else five times as long */

enum winnow_result node_result(int err)
{
	switch (err) {
	case -EIO:
		return WINNOW_ERR_GPU;
	case -ENOMEM:
		return WINNOW_ERR_MEMORY;
	case -ECANCELED:
		return WINNOW_ERR_TIMEOUT;
	default:
		return WINNOW_ERR_INVALID;
	}
}

/* ---- failing ---- */

/* Note it, and let the communicators go: what waits for them goes on. False: it had failed before. */
static bool note(struct winnow_node *node, enum winnow_result result, const char *why)
{
	pthread_mutex_lock(&node->lock);
	bool first = !atomic_load(&node->failed) && !node->closing;

	if (first) {
		node->result = result;
		snprintf(node->error, sizeof(node->error), "%s", why);
		atomic_store(&node->failed, true);
		pthread_cond_broadcast(&node->changed);
		node->telling++;
	}
	pthread_mutex_unlock(&node->lock);
	if (!first)
		return false;
	node_board_write(node, result, why);
	for (uint32_t i = 0; i < node->gpu_count; i++)
		if (node->shares[i] != NULL)
			winnow_comm_abort(node->shares[i], why);
	if (node->guard != NULL)
		winnow_comm_abort(node->guard, why);
	pthread_mutex_lock(&node->lock);
	node->telling--;
	pthread_cond_broadcast(&node->changed);
	pthread_mutex_unlock(&node->lock);
	return true;
}

void node_let_go(struct winnow_node *node)
{
	pthread_mutex_lock(&node->lock);
	node->closing = true;
	while (node->telling > 0)
		pthread_cond_wait(&node->changed, &node->lock);
	pthread_mutex_unlock(&node->lock);
}

/* NCCL's work is the node's thread's to end: this one has streams to let go. */
void node_failing(void *context, enum winnow_result result, const char *why)
{
	(void)note(context, result, why);
}

static void abort_nccl(struct winnow_node *node)
{
	pthread_mutex_lock(&node->gathering);
	if (!node->aborted && node->node_gpus != NULL)
		node->calls->abort(node->node_gpus);
	node->aborted = true;
	pthread_mutex_unlock(&node->gathering);
}

void node_fail_locked(struct winnow_node *node, enum winnow_result result, const char *why)
{
	(void)note(node, result, why);
	abort_nccl(node);
}

/* Whoever has node->nccl meanwhile sees the failure, and does not keep it long. */
void node_fail(struct winnow_node *node, enum winnow_result result, const char *why)
{
	(void)note(node, result, why);
	pthread_mutex_lock(&node->nccl);
	abort_nccl(node);
	pthread_mutex_unlock(&node->nccl);
}

/* ---- looking ---- */

/* The first communicator that has ended; its line is winnow_last_error(). */
static int check_comms(struct winnow_node *node)
{
	int result = node->guard != NULL ? winnow_comm_check(node->guard) : WINNOW_OK;

	for (uint32_t i = 0; i < node->gpu_count && result == WINNOW_OK; i++)
		if (node->shares[i] != NULL)
			result = winnow_comm_check(node->shares[i]);
	return result;
}

int node_check(struct winnow_node *node)
{
	char why[COMM_ERROR_BYTES];
	int result;

	if (!atomic_load(&node->failed)) {
		enum winnow_result theirs;

		if (!node_board_read(node, &theirs, why))
			return check_comms(node);
		(void)note(node, theirs, why);
	}
	pthread_mutex_lock(&node->lock);
	result = (int)node->result;
	snprintf(why, sizeof(why), "%s", node->error);
	pthread_mutex_unlock(&node->lock);
	return comm_fail(result, why);
}

bool node_given_up(void *context)
{
	struct winnow_node *node = context;

	if (node->open_until_us != 0 && comm_clock_us() > node->open_until_us)
		return true;
	if (node->give_up != NULL && *node->give_up != 0)
		return true;
	return node_check(node) != WINNOW_OK;
}

/* Since when has the oldest operation been under way? UINT64_MAX: there is none. */
static uint64_t oldest_us(struct winnow_node *node)
{
	uint64_t oldest = UINT64_MAX;

	for (struct winnow_node_request *r = node->underway; r != NULL; r = r->next)
		if (r->left > 0 && r->submitted_us < oldest)
			oldest = r->submitted_us;
	return oldest;
}

/* Operations that nobody waits for and that are done. */
static struct winnow_node_request *take_done(struct winnow_node *node)
{
	for (struct winnow_node_request *r = node->underway; r != NULL; r = r->next)
		if (r->freed && r->left == 0)
			return r;
	return NULL;
}

static void reap(struct winnow_node *node)
{
	struct winnow_node_request *request;
	char why[COMM_ERROR_BYTES];
	bool detached;
	int result;

	for (;;) {
		pthread_mutex_lock(&node->lock);
		request = take_done(node);
		pthread_mutex_unlock(&node->lock);
		if (request == NULL)
			return;
		result = node_collect(request, NULL);
		snprintf(why, sizeof(why), "%s", winnow_last_error());
		pthread_mutex_lock(&node->lock);
		detached = request->detached;
		node_request_free(request);
		pthread_mutex_unlock(&node->lock);
		if (detached && result != WINNOW_OK)
			node_fail(node, (enum winnow_result)result, why);
	}
}

/* Who has node->nccl looks itself, unless all it does is wait. */
static bool may_look(struct winnow_node *node, bool ours)
{
	pthread_mutex_lock(&node->lock);
	bool may = ours || node->awaiting;
	pthread_mutex_unlock(&node->lock);
	return may;
}

static int look_at_gpus(struct winnow_node *node, char *why)
{
	bool ours = pthread_mutex_trylock(&node->nccl) == 0;
	int err = 0;

	if (pthread_mutex_trylock(&node->gathering) == 0) {
		if (may_look(node, ours) && !node->aborted)
			err = node->calls->look(node->node_gpus, why);
		pthread_mutex_unlock(&node->gathering);
	}
	if (ours)
		pthread_mutex_unlock(&node->nccl);
	return err;
}

static void watch(struct winnow_node *node)
{
	char why[COMM_ERROR_BYTES];
	uint64_t since_us;
	int result, err;

	reap(node);
	result = node_check(node);
	if (result != WINNOW_OK) {
		snprintf(why, sizeof(why), "%s", winnow_last_error());
		node_fail(node, (enum winnow_result)result, why);
		return;
	}
	pthread_mutex_lock(&node->lock);
	since_us = oldest_us(node);
	pthread_mutex_unlock(&node->lock);
	if (since_us == UINT64_MAX)
		return;
	err = look_at_gpus(node, why);
	if (err != 0) {
		node_fail(node, node_result(err), why);
	} else if (comm_clock_us() > since_us && comm_clock_us() - since_us > node->timeout_us) {
		snprintf(why, sizeof(why),
		         "an operation of the node's GPUs did not end within %llu ms: not all of "
		         "them have come to it",
		         (unsigned long long)(node->timeout_us / 1000));
		node_fail(node, WINNOW_ERR_TIMEOUT, why);
	}
}

void *node_run(void *context)
{
	struct winnow_node *node = context;

	pthread_setname_np(pthread_self(), "winnow-node");
	pthread_mutex_lock(&node->lock);
	while (!node->stop) {
		uint64_t us = comm_clock_us() + WATCH_US * (node->underway != NULL ? 1u : 5u);
		struct timespec until = {.tv_sec = (time_t)(us / 1000000),
		                         .tv_nsec = (long)(us % 1000000 * 1000)};

		(void)pthread_cond_timedwait(&node->changed, &node->lock, &until);
		pthread_mutex_unlock(&node->lock);
		watch(node);
		pthread_mutex_lock(&node->lock);
	}
	pthread_mutex_unlock(&node->lock);
	return NULL;
}
