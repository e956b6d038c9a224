// SPDX-License-Identifier: BSD-3-Clause
/* node.c - operations of a node's GPUs: winnow.h's calls */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/node/node_impl.h"

/* ---- requests ---- */

void winnow_node_request_free(struct winnow_node_request **request)
{
	struct winnow_node_request *ours = __atomic_exchange_n(request, NULL, __ATOMIC_ACQ_REL);

	if (ours != NULL)
		node_request_drop(ours);
}

/* ---- arguments ---- */

/* NCCL would find out too late. */
static int check_places(const struct winnow_node_request *request, struct why *why)
{
	const struct winnow_node *node = request->node;
	int found, err = 0;

	for (uint32_t i = 0; i < 2 * node->gpu_count && err == 0 && request->task.count > 0; i++) {
		const bool send = i % 2 == 0;

		err = node->gpu->locate(send ? request->send[i / 2] : request->recv[i / 2], &found,
		                        why);
		if (err != 0 || found == node->gpus[i / 2])
			continue;
		err = why_set(why, -EINVAL, "%s[%u] is on GPU %d, not on GPU %d",
		              send ? "send" : "recv", i / 2, found, node->gpus[i / 2]);
	}
	return err;
}

static int check_arguments(const struct winnow_node_request *request)
{
	const struct winnow_node *node = request->node;
	const struct node_task *task = &request->task;
	struct why why;
	const char *wrong =
		comm_wrong_segments(request->segments, request->segment_count, task->count);
	int err;

	for (uint32_t i = 0; i < node->gpu_count && wrong == NULL; i++) {
		struct allreduce each = {
			.send = request->send[i],
			.recv = request->recv[i],
			.count = task->count,
			.dtype = (uint8_t)task->dtype,
			.reduction = (uint8_t)task->reduction,
		};

		wrong = comm_wrong_argument(&each, &request->options);
	}
	if (wrong == NULL && task->reduction == REDUCE_AVG && !dtype_is_float(task->dtype))
		wrong = "averages of integers are not supported: each node would truncate its own";
	if (wrong != NULL)
		return comm_fail(WINNOW_ERR_INVALID, wrong);
	err = check_places(request, &why);
	return err == 0 ? WINNOW_OK : comm_fail((int)node_result(err), why.text);
}

/* ---- submitting ---- */

static int copy_segments(struct winnow_node_request *request, const struct winnow_segment *segments,
                         uint32_t count)
{
	request->segment_count = count;
	if (segments == NULL)
		return WINNOW_OK;
	request->segments = malloc((count + 1u) * sizeof(*segments));
	if (request->segments == NULL)
		return comm_fail(WINNOW_ERR_MEMORY, "out of memory");
	memcpy(request->segments, segments, count * sizeof(*segments));
	return WINNOW_OK;
}

static int mark_streams(struct winnow_node_request *request, void *const streams[])
{
	struct winnow_node *node = request->node;
	struct why why;
	int err = 0;

	for (uint32_t i = 0; i < node->gpu_count && err == 0; i++)
		err = node->gpu->mark(node->gpus[i], streams[i], &request->marks[i], &why);
	if (err == -EIO)
		node_fail(node, WINNOW_ERR_GPU, why.text);
	return err == 0 ? WINNOW_OK : comm_fail((int)node_result(err), why.text);
}

static void queue(struct winnow_node_request *request)
{
	struct winnow_node *node = request->node;

	pthread_mutex_lock(&node->lock);
	request->holders++;
	*node->end = request;
	node->end = &request->next;
	pthread_cond_broadcast(&node->changed);
	pthread_mutex_unlock(&node->lock);
}

static void list(struct winnow_node_request *request)
{
	struct winnow_node *node = request->node;

	pthread_mutex_lock(&node->lock);
	request->older = node->newest;
	request->older_of = &node->newest;
	if (request->older != NULL)
		request->older->older_of = &request->older;
	node->newest = request;
	pthread_mutex_unlock(&node->lock);
}

/* All allreduce calls of winnow.h end here. `segments` is NULL if none were given. */
static int begin(struct winnow_node *node, const void *const send[], void *const recv[],
                 const struct node_task *task, const struct winnow_segment *segments,
                 uint32_t segment_count, void *const streams[],
                 const struct winnow_options *options, struct winnow_node_request **out)
{
	struct winnow_node_request *request;
	int result;

	if (out == NULL)
		return comm_fail(WINNOW_ERR_INVALID, COMM_WANTS_REQUEST);
	*out = NULL;
	request = calloc(1, sizeof(*request));
	if (request == NULL)
		return comm_fail(WINNOW_ERR_MEMORY, "out of memory");
	request->node = node;
	request->task = *task;
	memcpy(request->send, send, node->gpu_count * sizeof(send[0]));
	memcpy(request->recv, recv, node->gpu_count * sizeof(recv[0]));
	request->task.send = request->send;
	request->task.recv = request->recv;
	if (options != NULL)
		request->options = *options;
	request->options.memory = WINNOW_MEMORY_CUDA;
	request->task.block_elems =
		request->options.block != 0 ? request->options.block : node->block;
	request->submitted_us = clock_us();
	request->holders = 1;
	list(request);
	result = copy_segments(request, segments, segment_count);
	if (result == WINNOW_OK)
		result = check_arguments(request);
	if (result == WINNOW_OK)
		result = node_check(node);
	if (result == WINNOW_OK)
		result = mark_streams(request, streams);
	if (result == WINNOW_OK) {
		queue(request);
		*out = request;
	} else {
		node_request_drop(request);
	}
	return result;
}

int winnow_node_allreduce_async(const void *const send[], void *const recv[], uint64_t count,
                                enum winnow_dtype dtype, enum winnow_op op, void *const streams[],
                                const struct winnow_options *options, struct winnow_node *node,
                                struct winnow_node_request **request)
{
	struct node_task task = {
		.count = count, .dtype = (enum dtype)dtype, .reduction = (enum reduction)op};

	return begin(node, send, recv, &task, NULL, 0, streams, options, request);
}

int winnow_node_allreduce_segments_async(const void *const send[], void *const recv[],
                                         uint64_t count, enum winnow_dtype dtype, enum winnow_op op,
                                         const struct winnow_segment *segments,
                                         uint32_t segment_count, void *const streams[],
                                         const struct winnow_options *options,
                                         struct winnow_node *node,
                                         struct winnow_node_request **request)
{
	static const struct winnow_segment none;
	struct node_task task = {
		.count = count, .dtype = (enum dtype)dtype, .reduction = (enum reduction)op};

	return begin(node, send, recv, &task, segment_count > 0 ? segments : &none, segment_count,
	             streams, options, request);
}

int winnow_node_allreduce(const void *const send[], void *const recv[], uint64_t count,
                          enum winnow_dtype dtype, enum winnow_op op, void *const streams[],
                          struct winnow_node *node)
{
	struct winnow_node_request *request;
	int result = winnow_node_allreduce_async(send, recv, count, dtype, op, streams, NULL, node,
	                                         &request);

	if (result == WINNOW_OK)
		result = winnow_node_wait(request, -1, NULL);
	winnow_node_request_free(&request);
	return result;
}

/* ---- waiting ---- */

static int tell(const struct winnow_node_request *request, struct winnow_op_stats *stats)
{
	if (stats != NULL)
		*stats = request->stats;
	return request->result == WINNOW_OK ? WINNOW_OK
	                                    : comm_fail(request->result, request->why.text);
}

int winnow_node_wait(struct winnow_node_request *request, int64_t timeout_ms,
                     struct winnow_op_stats *stats)
{
	struct winnow_node *node;
	uint64_t until_us = timeout_ms < 0 ? UINT64_MAX : clock_us() + (uint64_t)timeout_ms * 1000;
	bool done;
	int err = 0;

	if (request == NULL)
		return comm_fail(WINNOW_ERR_INVALID, comm_no_request);
	node = request->node;
	pthread_mutex_lock(&node->lock);
	while (!request->done && err == 0)
		err = comm_cond_wait(&node->changed, &node->lock, until_us);
	done = request->done;
	pthread_mutex_unlock(&node->lock);
	return done ? tell(request, stats)
	            : comm_fail(WINNOW_ERR_TIMEOUT, "the operation is not done yet");
}

int winnow_node_test(struct winnow_node_request *request, int *done, struct winnow_op_stats *stats)
{
	struct winnow_node *node;

	if (request == NULL)
		return comm_fail(WINNOW_ERR_INVALID, comm_no_request);
	node = request->node;
	pthread_mutex_lock(&node->lock);
	*done = request->done;
	pthread_mutex_unlock(&node->lock);
	return *done ? tell(request, stats) : WINNOW_OK;
}

int winnow_node_check(struct winnow_node *node)
{
	return node_check(node);
}

void winnow_node_abort(struct winnow_node *node, const char *text)
{
	node_fail(node, WINNOW_ERR_ABORTED, text != NULL ? text : "no reason given");
}

void winnow_node_stats(struct winnow_node *node, struct winnow_stats *stats)
{
	*stats = (struct winnow_stats){0};
	for (uint32_t i = 0; i < node->gpu_count; i++) {
		struct winnow_stats one;

		winnow_comm_stats(node->shares[i], &one);
		stats->sent_packets += one.sent_packets;
		stats->sent_bytes += one.sent_bytes;
		stats->received_packets += one.received_packets;
		stats->received_bytes += one.received_bytes;
		stats->retransmits += one.retransmits;
		stats->nacks += one.nacks;
		stats->dropped += one.dropped;
		stats->payload = one.payload;
		stats->window = one.window;
		stats->channels += one.channels;
		stats->multicast = one.multicast;
		stats->wire = one.wire;
		stats->pinned_bytes += one.pinned_bytes;
	}
}
