// SPDX-License-Identifier: BSD-3-Clause
/* node.c - operations of a node's GPUs: winnow.h's calls */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/gpu_plugin.h"
#include "client/node_impl.h"

#define AHEAD_MAX 24 /* see comm_gpu.c */

/* ---- requests ---- */

static struct winnow_node_request *request_new(struct winnow_node *node)
{
	struct winnow_node_request *request;

	pthread_mutex_lock(&node->lock);
	request = node->unused;
	if (request != NULL)
		node->unused = request->next;
	pthread_mutex_unlock(&node->lock);
	if (request == NULL)
		request = malloc(sizeof(*request));
	if (request != NULL)
		*request = (struct winnow_node_request){.node = node, .left = node->gpu_count};
	return request;
}

void node_request_free(struct winnow_node_request *request)
{
	struct winnow_node *node = request->node;
	struct winnow_node_request **at = &node->underway;

	while (*at != NULL && *at != request)
		at = &(*at)->next;
	if (*at != NULL)
		*at = request->next;
	request->next = node->unused;
	node->unused = request;
}

/* A thread of the driver's: one GPU has its result. */
static void one_done(void *context)
{
	struct winnow_node_request *request = context;
	struct winnow_node *node = request->node;

	pthread_mutex_lock(&node->lock);
	if (--request->left == 0) {
		request->done_us = comm_clock_us();
		pthread_cond_broadcast(&node->changed);
	}
	pthread_mutex_unlock(&node->lock);
}

/* ---- arguments ---- */

static bool is_integer(enum winnow_dtype dtype)
{
	return dtype == WINNOW_I32 || dtype == WINNOW_I64;
}

/* A buffer is where it should be: NCCL and kernels would find out too late. */
static int check_place(const struct gpu_calls *gpu, const void *memory, int device,
                       const char *name, uint32_t index, char *why)
{
	int found, err = gpu->locate(memory, &found, why);

	if (err == 0 && found != device) {
		snprintf(why, GPU_WHY_BYTES, "%s[%u] is on GPU %d, not on GPU %d", name, index,
		         found, device);
		err = -EINVAL;
	}
	return err;
}

static int check_places(const struct winnow_node *node, const struct node_task *task, char *why)
{
	const struct gpu_calls *gpu;
	int err = gpu_plugin_open(&gpu, why);

	for (uint32_t i = 0; i < node->gpu_count && err == 0 && task->count > 0; i++) {
		err = check_place(gpu, task->send[i], node->gpus[i], "send", i, why);
		if (err == 0)
			err = check_place(gpu, task->recv[i], node->gpus[i], "recv", i, why);
	}
	return err;
}

static int check_arguments(const struct winnow_node *node, const struct node_task *task,
                           const struct winnow_options *options)
{
	char why[GPU_WHY_BYTES];
	int err;

	for (uint32_t i = 0; i < node->gpu_count; i++) {
		struct allreduce each = {
			.send = task->send[i],
			.recv = task->recv[i],
			.count = task->count,
			.dtype = (uint8_t)task->dtype,
			.reduction = (uint8_t)task->reduction,
		};
		const char *wrong = comm_wrong_argument(&each, options);

		if (wrong != NULL)
			return comm_fail(WINNOW_ERR_INVALID, wrong);
	}
	if (task->reduction == REDUCE_AVG && is_integer((enum winnow_dtype)task->dtype))
		return comm_fail(WINNOW_ERR_INVALID,
		                 "averages of integers: they would be cut off in each node");
	err = check_places(node, task, why);
	return err == 0 ? WINNOW_OK : comm_fail((int)node_result(err), why);
}

/* ---- the three steps ---- */

/* What a caller asks for beside the node's own part of it. */
struct shape {
	const struct winnow_options *options;
	const struct winnow_segment *segments; /* [segment_count], unless `whole` */
	uint32_t segment_count;
	bool whole; /* a tensor of no segments */
};

static int reduce_share(struct winnow_node *node, uint32_t index, const struct node_task *task,
                        const struct shape *shape, const struct winnow_options *options,
                        struct winnow_request **request)
{
	struct node_share share = node_share(task->count, task->block_elems, node->local_world,
	                                     node->local_rank + index);
	uint8_t *data = (uint8_t *)task->recv[index] + share.first * dtype_bytes(task->dtype);
	enum winnow_dtype dtype = (enum winnow_dtype)task->dtype;
	enum winnow_op op = (enum winnow_op)task->reduction;
	struct winnow_comm *comm = node->shares[index];
	struct winnow_segment *segments;
	uint32_t count;
	int result;

	if (shape->whole)
		return winnow_allreduce_async(data, data, share.count, dtype, op, options, comm,
		                              request);
	segments = calloc(shape->segment_count + 1u, sizeof(*segments));
	if (segments == NULL)
		return comm_fail(WINNOW_ERR_MEMORY, "out of memory");
	count = node_segments_of(share, shape->segments, shape->segment_count, segments);
	result = winnow_allreduce_segments_async(data, data, share.count, dtype, op, segments,
	                                         count, options, comm, request);
	free(segments);
	return result;
}

/*
 * Between the steps: each GPU's share, in the stream where the node's sum of it is made. Of a
 * detached operation no share has a request: so a failure ends the communicator, and is known
 * before the stream goes on.
 */
static int reduce_shares(struct winnow_node *node, uint32_t turn, const struct node_task *task,
                         const struct shape *shape, struct winnow_node_request *request)
{
	struct winnow_options options = *shape->options;

	options.memory = WINNOW_MEMORY_CUDA;
	options.stream_goes_on = request->goes_on;
	/* Empty shares travel, too: so does a mismatch. Of an empty tensor nobody knows where it is. */
	for (uint32_t i = 0; i < node->gpu_count && task->count > 0; i++) {
		int result;

		options.stream = node->calls->stream(node->node_gpus, turn, i);
		result = reduce_share(node, i, task, shape, &options,
		                      request->detached ? NULL : &request->shares[i]);
		if (result != WINNOW_OK)
			return result;
	}
	return WINNOW_OK;
}

static void list(struct winnow_node *node, struct winnow_node_request *request)
{
	pthread_mutex_lock(&node->lock);
	request->next = node->underway;
	node->underway = request;
	pthread_mutex_unlock(&node->lock);
}

/* Nothing has begun: the request is free again. */
static int give_back(struct winnow_node_request *request, int result)
{
	pthread_mutex_lock(&request->node->lock);
	node_request_free(request);
	pthread_mutex_unlock(&request->node->lock);
	return result;
}

/* Of a request that is detached some GPU may still speak: the node keeps it until then. */
static void detach(struct winnow_node_request *request)
{
	pthread_mutex_lock(&request->node->lock);
	request->detached = request->freed = true;
	pthread_mutex_unlock(&request->node->lock);
}

/* The last step: now, or when the shares have come. */
static int gather(struct winnow_node *node, uint32_t turn, const struct node_task *task,
                  struct winnow_node_request *request, char *why)
{
	struct node_gather *later = &request->gather;
	int err;

	if (!request->goes_on) {
		pthread_mutex_lock(&node->gathering);
		err = node->calls->gather(node->node_gpus, turn, task, why);
		pthread_mutex_unlock(&node->gathering);
		return err;
	}
	later->task = *task;
	later->task.send = NULL;
	later->task.streams = NULL;
	later->task.recv = later->recv;
	memcpy(later->recv, task->recv, node->gpu_count * sizeof(later->recv[0]));
	later->turn = turn;
	node_gather_later(request);
	return 0;
}

/* With node->nccl. What has begun ends with the node, if not well. */
static int submit(struct winnow_node *node, const struct node_task *task, const struct shape *shape,
                  struct winnow_node_request *request)
{
	uint32_t turn = node->turn;
	char why[NODE_WHY_BYTES];
	int err, result;

	if (!request->goes_on)
		node_gather_await(node);
	result = node_check(node);
	if (result != WINNOW_OK)
		return give_back(request, result);
	err = node->calls->scatter(node->node_gpus, turn, task, why);
	if (err == -EINVAL)
		return give_back(request, comm_fail(WINNOW_ERR_INVALID, why));
	node->turn = (turn + 1) % NODE_TURNS;
	list(node, request);
	if (err == 0) {
		result = reduce_shares(node, turn, task, shape, request);
		if (result != WINNOW_OK)
			snprintf(why, sizeof(why), "%.200s", winnow_last_error());
		else
			err = gather(node, turn, task, request, why);
	}
	if (err == 0 && result == WINNOW_OK)
		return WINNOW_OK;
	node_fail_locked(node, err != 0 ? node_result(err) : (enum winnow_result)result, why);
	detach(request);
	return node_check(node);
}

/* Operations that streams wait for: callers get AHEAD_MAX of them ahead. */
static uint32_t ahead_locked(const struct winnow_node *node)
{
	uint32_t ahead = 0;

	for (const struct winnow_node_request *r = node->underway; r != NULL; r = r->next)
		ahead += !r->goes_on && r->left > 0;
	return ahead;
}

static void await_room(struct winnow_node *node)
{
	pthread_mutex_lock(&node->lock);
	while (ahead_locked(node) >= AHEAD_MAX && !atomic_load(&node->failed))
		pthread_cond_wait(&node->changed, &node->lock);
	pthread_mutex_unlock(&node->lock);
}

static void await_end(struct winnow_node_request *request)
{
	struct winnow_node *node = request->node;

	pthread_mutex_lock(&node->lock);
	while (request->left > 0 && !atomic_load(&node->failed))
		pthread_cond_wait(&node->changed, &node->lock);
	pthread_mutex_unlock(&node->lock);
}

/*
 * `task` but for what the request decides. Where streams cannot wait, they go on, and the caller
 * waits: by itself, since whoever ends a node that has failed needs node->nccl.
 */
static int begin(struct winnow_node *node, struct node_task *task, const struct shape *shape,
                 struct winnow_node_request **out)
{
	const struct winnow_options *options = shape->options;
	bool we_wait = !options->stream_goes_on && !node->can_wait;
	struct winnow_node_request *request;
	const char *wrong = comm_wrong_segments(shape->segments, shape->segment_count, task->count);
	int result;

	if (out != NULL)
		*out = NULL;
	if (out == NULL && options->stream_goes_on)
		wrong = "request is NULL and the streams go on: nobody would know of the result";
	if (wrong != NULL)
		return comm_fail(WINNOW_ERR_INVALID, wrong);
	result = check_arguments(node, task, options);
	if (result != WINNOW_OK)
		return result;
	task->block_elems = options->block != 0 ? options->block : node->block;
	task->goes_on = options->stream_goes_on != 0 || we_wait;
	request = request_new(node);
	if (request == NULL)
		return comm_fail(WINNOW_ERR_MEMORY, "out of memory");
	task->done = one_done;
	task->context = request;
	request->detached = request->freed = out == NULL && !we_wait;
	request->goes_on = task->goes_on;
	request->submitted_us = comm_clock_us();
	if (!task->goes_on)
		await_room(node);
	pthread_mutex_lock(&node->nccl);
	result = submit(node, task, shape, request);
	pthread_mutex_unlock(&node->nccl);
	if (result == WINNOW_OK && we_wait) {
		await_end(request);
		if (out == NULL) {
			result = node_collect(request, NULL);
			winnow_node_request_free(&request);
		}
	}
	if (result == WINNOW_OK && out != NULL)
		*out = request;
	return result;
}

static const struct winnow_options defaults;

static struct node_task task_of(const void *const send[], void *const recv[], uint64_t count,
                                enum winnow_dtype dtype, enum winnow_op op, void *const streams[])
{
	return (struct node_task){.send = send,
	                          .recv = recv,
	                          .streams = streams,
	                          .count = count,
	                          .dtype = (enum dtype)dtype,
	                          .reduction = (enum reduction)op};
}

int winnow_node_allreduce_async(const void *const send[], void *const recv[], uint64_t count,
                                enum winnow_dtype dtype, enum winnow_op op, void *const streams[],
                                const struct winnow_options *options, struct winnow_node *node,
                                struct winnow_node_request **request)
{
	struct shape shape = {.options = options != NULL ? options : &defaults, .whole = true};
	struct node_task task = task_of(send, recv, count, dtype, op, streams);

	return begin(node, &task, &shape, request);
}

int winnow_node_allreduce_segments_async(const void *const send[], void *const recv[],
                                         uint64_t count, enum winnow_dtype dtype, enum winnow_op op,
                                         const struct winnow_segment *segments,
                                         uint32_t segment_count, void *const streams[],
                                         const struct winnow_options *options,
                                         struct winnow_node *node,
                                         struct winnow_node_request **request)
{
	struct shape shape = {.options = options != NULL ? options : &defaults,
	                      .segments = segments,
	                      .segment_count = segment_count};
	struct node_task task = task_of(send, recv, count, dtype, op, streams);

	return begin(node, &task, &shape, request);
}

int winnow_node_allreduce(const void *const send[], void *const recv[], uint64_t count,
                          enum winnow_dtype dtype, enum winnow_op op, void *const streams[],
                          struct winnow_node *node)
{
	return winnow_node_allreduce_async(send, recv, count, dtype, op, streams, NULL, node, NULL);
}

/* ---- waiting ---- */

int node_collect_share(struct winnow_request **share, struct winnow_op_stats *total)
{
	struct winnow_op_stats stats = {0};
	int result = winnow_wait(*share, -1, &stats);

	winnow_request_free(share);
	total->blocks += stats.blocks;
	total->blocks_nonzero += stats.blocks_nonzero;
	total->blocks_union += stats.blocks_union;
	total->staged_out_bytes += stats.staged_out_bytes;
	total->staged_in_bytes += stats.staged_in_bytes;
	return result;
}

/* The first error counts. */
static void note_error(struct winnow_node_request *request, int result)
{
	if (result == WINNOW_OK || request->result != WINNOW_OK)
		return;
	request->result = result;
	snprintf(request->why, sizeof(request->why), "%s", winnow_last_error());
}

static void work_out(struct winnow_node_request *request)
{
	struct winnow_node *node = request->node;
	bool over;

	if (atomic_load(&node->failed))
		note_error(request, node_check(node));
	for (uint32_t i = 0; i < node->gpu_count && !request->goes_on; i++)
		if (request->shares[i] != NULL)
			note_error(request,
			           node_collect_share(&request->shares[i], &request->total));
	if (atomic_load(&node->failed))
		note_error(request, node_check(node));
	pthread_mutex_lock(&node->lock);
	over = request->left == 0;
	if (over && request->goes_on)
		request->total = request->gather.total;
	request->total.time_us = over ? request->done_us - request->submitted_us : 0;
	pthread_mutex_unlock(&node->lock);
}

int node_collect(struct winnow_node_request *request, struct winnow_op_stats *stats)
{
	struct winnow_node *node = request->node;
	bool first;

	pthread_mutex_lock(&node->lock);
	while (request->collecting)
		pthread_cond_wait(&node->changed, &node->lock);
	first = !request->collected;
	request->collecting = first;
	pthread_mutex_unlock(&node->lock);
	if (first) {
		work_out(request);
		pthread_mutex_lock(&node->lock);
		request->collecting = false;
		request->collected = true;
		pthread_cond_broadcast(&node->changed);
		pthread_mutex_unlock(&node->lock);
	}
	if (stats != NULL)
		*stats = request->total;
	return request->result == WINNOW_OK ? WINNOW_OK : comm_fail(request->result, request->why);
}

void winnow_node_request_free(struct winnow_node_request **request)
{
	struct winnow_node_request *ours = __atomic_exchange_n(request, NULL, __ATOMIC_ACQ_REL);

	if (ours == NULL)
		return;
	pthread_mutex_lock(&ours->node->lock);
	ours->freed = true;
	if (ours->left == 0 && ours->collected)
		node_request_free(ours);
	pthread_mutex_unlock(&ours->node->lock);
}

int winnow_node_wait(struct winnow_node_request *request, int64_t timeout_ms,
                     struct winnow_op_stats *stats)
{
	struct winnow_node *node;
	uint64_t until_us =
		timeout_ms < 0 ? UINT64_MAX / 2 : comm_clock_us() + (uint64_t)timeout_ms * 1000;
	struct timespec until = {.tv_sec = (time_t)(until_us / 1000000),
	                         .tv_nsec = (long)(until_us % 1000000 * 1000)};
	bool over;
	int err = 0;

	if (request == NULL)
		return comm_fail(WINNOW_ERR_INVALID, comm_no_request);
	node = request->node;
	pthread_mutex_lock(&node->lock);
	while (request->left > 0 && !atomic_load(&node->failed) && err == 0)
		err = pthread_cond_timedwait(&node->changed, &node->lock, &until);
	over = request->left == 0 || atomic_load(&node->failed);
	pthread_mutex_unlock(&node->lock);
	if (!over)
		return comm_fail(WINNOW_ERR_TIMEOUT, "the operation is not done yet");
	return node_collect(request, stats);
}

int winnow_node_test(struct winnow_node_request *request, int *done, struct winnow_op_stats *stats)
{
	struct winnow_node *node;

	if (request == NULL)
		return comm_fail(WINNOW_ERR_INVALID, comm_no_request);
	node = request->node;
	pthread_mutex_lock(&node->lock);
	*done = request->left == 0 || atomic_load(&node->failed);
	pthread_mutex_unlock(&node->lock);
	return *done ? node_collect(request, stats) : WINNOW_OK;
}

int winnow_node_check(struct winnow_node *node)
{
	return node_check(node);
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
	}
}
