// SPDX-License-Identifier: BSD-3-Clause
/*
 * node_gather.c - operations whose streams go on: the node's last step when the shares have come
 *
 * A stream of ours that stood still until then would hold up whatever else the process asks of CUDA
 * and has to wait for: see gpu_watch.c. So a thread waits, in the order of submission, which is also
 * the order in which all processes of a node have to ask NCCL.
 */

#include <stdio.h>
#include <string.h>

#include "client/node_impl.h"

void node_gather_later(struct winnow_node_request *request)
{
	struct winnow_node *node = request->node;

	pthread_mutex_lock(&node->lock);
	request->gather.next = NULL;
	*node->gathers_end = request;
	node->gathers_end = &request->gather.next;
	pthread_cond_broadcast(&node->changed);
	pthread_mutex_unlock(&node->lock);
}

static bool idle_locked(const struct winnow_node *node)
{
	return node->gathers == NULL && !node->gather_under_way;
}

bool node_gather_idle(struct winnow_node *node)
{
	pthread_mutex_lock(&node->lock);
	bool idle = idle_locked(node);
	pthread_mutex_unlock(&node->lock);
	return idle;
}

void node_gather_await(struct winnow_node *node)
{
	pthread_mutex_lock(&node->lock);
	node->awaiting = true;
	while (!idle_locked(node) && !atomic_load(&node->failed))
		pthread_cond_wait(&node->changed, &node->lock);
	node->awaiting = false;
	pthread_mutex_unlock(&node->lock);
	/* Whoever looks at NCCL meanwhile has done so. */
	pthread_mutex_lock(&node->gathering);
	pthread_mutex_unlock(&node->gathering);
}

/* False: a share has come to nothing, and with it the node. That must not look like a result elsewhere. */
static bool collect(struct winnow_node_request *request)
{
	struct winnow_node *node = request->node;
	char why[COMM_ERROR_BYTES];
	int result = WINNOW_OK;

	for (uint32_t i = 0; i < node->gpu_count; i++) {
		int one = WINNOW_OK;

		if (request->shares[i] != NULL)
			one = node_collect_share(&request->shares[i], &request->gather.total);
		if (one == WINNOW_OK || result != WINNOW_OK)
			continue;
		result = one;
		snprintf(why, sizeof(why), "%s", winnow_last_error());
	}
	if (result != WINNOW_OK)
		node_fail(node, (enum winnow_result)result, why);
	return result == WINNOW_OK;
}

/* It is not ours any more when its last GPU has spoken, which may be before gather() returns. */
static void go_on(struct winnow_node_request *request)
{
	struct winnow_node *node = request->node;
	char why[NODE_WHY_BYTES];
	int err = 0;

	pthread_mutex_lock(&node->gathering);
	if (!atomic_load(&node->failed))
		err = node->calls->gather(node->node_gpus, request->gather.turn,
		                          &request->gather.task, why);
	pthread_mutex_unlock(&node->gathering);
	if (err != 0)
		node_fail(node, node_result(err), why);
}

void *node_gather_run(void *context)
{
	struct winnow_node *node = context;

	pthread_setname_np(pthread_self(), "winnow-gather");
	pthread_mutex_lock(&node->lock);
	while (!node->gather_stop) {
		struct winnow_node_request *request = node->gathers;
		bool well;

		if (request == NULL) {
			pthread_cond_wait(&node->changed, &node->lock);
			continue;
		}
		pthread_mutex_unlock(&node->lock);
		well = collect(request);
		pthread_mutex_lock(&node->lock);
		node->gathers = request->gather.next;
		if (node->gathers == NULL)
			node->gathers_end = &node->gathers;
		node->gather_under_way = true;
		pthread_mutex_unlock(&node->lock);
		if (well)
			go_on(request);
		pthread_mutex_lock(&node->lock);
		node->gather_under_way = false;
		pthread_cond_broadcast(&node->changed);
	}
	pthread_mutex_unlock(&node->lock);
	return NULL;
}
