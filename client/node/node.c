// SPDX-License-Identifier: BSD-3-Clause
/* node.c - operations of a node's GPUs: winnow.h's calls */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/node/node_impl.h"

/* ---- arguments ---- */

/* NCCL would find out too late. */
static int check_places(const struct winnow_node *node, const struct node_op *op, struct why *why)
{
	int found, err = 0;

	for (uint32_t i = 0; i < 2 * node->setup.count && err == 0 && op->task.count > 0; i++) {
		const bool send = i % 2 == 0;

		err = node->gpu->locate(send ? op->task.send[i / 2] : op->task.recv[i / 2], &found,
		                        why);
		if (err != 0 || found == node->setup.devices[i / 2])
			continue;
		err = why_set(why, -EINVAL, "%s[%u] is on GPU %d, not on GPU %d",
		              send ? "send" : "recv", i / 2, found, node->setup.devices[i / 2]);
	}
	return err;
}

/* A GPU that fails in a call ends the node, as it would later. A caller's mistake does no harm. */
static int answer(struct winnow_node *node, int err, const struct why *why)
{
	if (err == -EIO)
		node_fail(node, WINNOW_ERR_GPU, why->text);
	return comm_gpu_result(NULL, err, why);
}

static int check_arguments(struct winnow_node *node, const struct node_op *op)
{
	const struct node_task *task = &op->task;
	struct why why;
	const char *wrong = comm_wrong_segments(op->segments, op->segment_count, task->count, true);

	for (uint32_t i = 0; i < node->setup.count && wrong == NULL; i++) {
		struct allreduce each = {
			.send = task->send[i],
			.recv = task->recv[i],
			.count = task->count,
			.dtype = (uint8_t)task->dtype,
			.reduction = (uint8_t)task->reduction,
		};

		wrong = comm_wrong_argument(&each, &op->options);
	}
	if (wrong == NULL && task->reduction == REDUCE_AVG && !dtype_is_float(task->dtype))
		wrong = "averages of integers are not supported: each node would truncate its own";
	if (wrong != NULL)
		return comm_fail(WINNOW_ERR_INVALID, wrong);
	return answer(node, check_places(node, op, &why), &why);
}

/* ---- submitting ---- */

static int copy_segments(struct node_op *op, const struct winnow_segment *segments, uint32_t count)
{
	op->segment_count = count;
	if (count == 0)
		return WINNOW_OK;
	op->segments = malloc(2 * (size_t)count * sizeof(*segments));
	if (op->segments == NULL)
		return comm_fail(WINNOW_ERR_MEMORY, "out of memory");
	memcpy(op->segments, segments, count * sizeof(*segments));
	return WINNOW_OK;
}

static int mark_streams(struct winnow_node *node, struct node_op *op, void *const streams[])
{
	struct why why;
	int err = 0;

	for (uint32_t i = 0; i < node->setup.count && err == 0; i++)
		err = node->gpu->mark(node->setup.devices[i], streams[i], &op->task.marks[i], &why);
	return answer(node, err, &why);
}

static void queue(struct winnow_node *node, struct node_op *op)
{
	pthread_mutex_lock(&node->lock);
	*node->end = op;
	node->end = &op->next;
	pthread_cond_broadcast(&node->changed);
	pthread_mutex_unlock(&node->lock);
}

int winnow_node_allreduce_async(const void *const send[], void *const recv[], uint64_t count,
                                enum winnow_dtype dtype, enum winnow_op op,
                                const struct winnow_segment *segments, uint32_t segment_count,
                                void *const streams[], const struct winnow_options *options,
                                struct winnow_node *node, struct winnow_request **request)
{
	struct node_op *made;
	int result;

	if (request == NULL)
		return comm_fail(WINNOW_ERR_INVALID, COMM_WANTS_REQUEST);
	*request = NULL;
	made = calloc(1, sizeof(*made));
	if (made == NULL)
		return comm_fail(WINNOW_ERR_MEMORY, "out of memory");
	if (options != NULL)
		made->options = *options;
	made->options.memory = WINNOW_MEMORY_CUDA;
	made->task = (struct node_task){
		.count = count,
		.dtype = (enum dtype)dtype,
		.reduction = (enum reduction)op,
		.block_elems = made->options.block != 0 ? made->options.block : node->block,
	};
	memcpy(made->task.send, send, node->setup.count * sizeof(send[0]));
	memcpy(made->task.recv, recv, node->setup.count * sizeof(recv[0]));
	result = copy_segments(made, segments, segment_count);
	if (result == WINNOW_OK)
		result = check_arguments(node, made);
	if (result == WINNOW_OK)
		result = winnow_node_check(node);
	if (result == WINNOW_OK)
		result = mark_streams(node, made, streams);
	if (result == WINNOW_OK) {
		made->request = comm_request_new(node_share_comm(node, 0));
		if (made->request == NULL)
			result = comm_fail(WINNOW_ERR_MEMORY, "out of memory");
	}
	if (result != WINNOW_OK) {
		node_op_free(node, made);
		return result;
	}
	*request = made->request;
	queue(node, made);
	return WINNOW_OK;
}

int winnow_node_allreduce(const void *const send[], void *const recv[], uint64_t count,
                          enum winnow_dtype dtype, enum winnow_op op, void *const streams[],
                          struct winnow_node *node)
{
	struct winnow_request *request;
	int result = winnow_node_allreduce_async(send, recv, count, dtype, op, NULL, 0, streams,
	                                         NULL, node, &request);

	if (result == WINNOW_OK)
		result = winnow_wait(request, -1, NULL);
	winnow_request_free(&request);
	return result;
}

/* ---- waiting ---- */

void winnow_node_abort(struct winnow_node *node, const char *text)
{
	node_fail(node, WINNOW_ERR_ABORTED, text != NULL ? text : "no reason given");
}

void winnow_node_stats(struct winnow_node *node, struct winnow_stats *stats)
{
	winnow_comm_stats(node_share_comm(node, 0), stats);
	for (uint32_t i = 1; i < node->setup.count; i++) {
		struct winnow_stats one;

		winnow_comm_stats(node_share_comm(node, i), &one);
		comm_stats_add(stats, &one);
		stats->channels += one.channels;
		stats->pinned_bytes += one.pinned_bytes;
		stats->window_now += one.window_now;
		if (one.rtt_us > stats->rtt_us)
			stats->rtt_us = one.rtt_us;
		if (one.rtt_least_us < stats->rtt_least_us)
			stats->rtt_least_us = one.rtt_least_us;
	}
}
