// SPDX-License-Identifier: BSD-3-Clause
/* node.c - the GPUs of a node as one worker: the calls of winnow.h */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/node/node_state.h"

/* Opens the plugin and requires its NCCL part. */
static int gpu_plugin_open(const struct gpu_calls **gpu, struct why *why)
{
	int err = comm_gpu_calls(gpu, why);

	if (err == 0 && (*gpu)->node == NULL)
		err = why_set(
			why, -ENOENT,
			"winnow-cuda.so was built without NCCL: install nccl.h and build it again");
	return err;
}

int winnow_node_id_make(struct winnow_node_id *out)
{
	const struct gpu_calls *gpu;
	struct why why;
	int err = gpu_plugin_open(&gpu, &why);

	if (err == 0)
		err = gpu->node->id(out->bytes, &why);
	return comm_gpu_result(NULL, err, &why);
}

/* ---- making ---- */

static const char *wrong_config(const struct winnow_node_config *config)
{
	if (config->local_world == 0 || config->local_world > NODE_GPUS_MAX)
		return "local_world must be the number of GPUs in this node, 1 to 64";
	if (config->gpu_count != 1 && config->gpu_count != config->local_world)
		return "gpu_count must be 1 or local_world: a process has one GPU of the node, or "
		       "all";
	if (config->local_rank >= config->local_world ||
	    config->local_rank % config->gpu_count != 0)
		return "local_rank must be 0 to local_world - 1, and 0 in a process with all GPUs";
	if (config->gpus == NULL)
		return "gpus is NULL: give the list of this process's GPUs";
	/* Leaves room for the longest suffix of a node's jobs, ".g64-63". */
	if (config->config->job == NULL || strlen(config->config->job) > CONTROL_NAME_BYTES - 8)
		return "the name of a job with several GPUs in a node must have at most 57 "
		       "characters";
	return NULL;
}

static int share_join(struct winnow_node *node, const struct winnow_node_config *config,
                      const char *suffix, uint32_t rank, uint32_t world, struct winnow_comm **out)
{
	struct winnow_config each = *config->config;
	char job[2 * CONTROL_NAME_BYTES];

	snprintf(job, sizeof(job), "%s.g%u%s", each.job, node->setup.world, suffix);
	each.job = job;
	each.rank = rank;
	each.world = world;
	return winnow_comm_create(&each, out);
}

/*
 * Joins the guard first, so that the others notice a process that fails later. All nodes join the shares' jobs in the
 * same order, because each join waits for all nodes.
 */
static int join_all(struct winnow_node *node, const struct winnow_node_config *config)
{
	const struct node_setup *setup = &node->setup;
	uint32_t nodes = config->config->world, node_rank = config->config->rank;
	int result = WINNOW_OK;

	if (setup->count < setup->world)
		result = share_join(node, config, "", node_rank * setup->world + setup->rank,
		                    nodes * setup->world, &node->comms[0]);
	for (uint32_t i = 0; i < setup->count && result == WINNOW_OK; i++) {
		char suffix[16];

		snprintf(suffix, sizeof(suffix), "-%u", setup->rank + i);
		result = share_join(node, config, suffix, node_rank, nodes, &node->comms[1 + i]);
		if (result == WINNOW_OK)
			result = comm_gpu_open(node->comms[1 + i], setup->devices[i]);
	}
	return result;
}

/* Starts the thread and waits until it has opened NCCL. If another process failed first, returns its error. */
static int start_thread(struct winnow_node *node)
{
	struct why why;
	int result;

	node->due_us = clock_us() + (uint64_t)node->config.join_timeout_ms * 1000;
	result = comm_thread_start(&node->thread, node_run, node, &why);
	node->thread_started = result == WINNOW_OK;
	if (!node->thread_started)
		return comm_fail(result, why.text);
	pthread_mutex_lock(&node->lock);
	while (!node->open)
		pthread_cond_wait(&node->changed, &node->lock);
	pthread_mutex_unlock(&node->lock);
	return winnow_node_check(node);
}

static void node_init(struct winnow_node *node, const struct winnow_node_config *config)
{
	node->setup.world = config->local_world;
	node->setup.rank = config->local_rank;
	node->setup.count = config->gpu_count;
	memcpy(node->setup.id, config->id.bytes, sizeof(node->setup.id));
	memcpy(node->setup.devices, config->gpus, config->gpu_count * sizeof(config->gpus[0]));
	node->config = *config->config;
	node->stop_by_us = UINT64_MAX;
	STAILQ_INIT(&node->queue);
	pthread_mutex_init(&node->lock, NULL);
	comm_cond_init(&node->changed);
}

int winnow_node_create(const struct winnow_node_config *config, struct winnow_node **out)
{
	const char *wrong = wrong_config(config);
	struct winnow_node *node;
	struct why why;
	int result;

	*out = NULL;
	if (wrong != NULL)
		return comm_fail(WINNOW_ERR_INVALID, wrong);
	node = calloc(1, sizeof(*node));
	if (node == NULL)
		return comm_fail(WINNOW_ERR_MEMORY, "out of memory");
	node_init(node, config);
	result = comm_gpu_result(NULL, gpu_plugin_open(&node->gpu, &why), &why);
	if (result == WINNOW_OK)
		result = join_all(node, config);
	if (result == WINNOW_OK)
		result = start_thread(node);
	if (result == WINNOW_OK) {
		*out = node;
		return WINNOW_OK;
	}
	why_set(&why, 0, "%s", winnow_last_error());
	node_fail(node, result, why.text);
	winnow_node_destroy(node);
	return comm_fail(result, why.text);
}

/* ---- ending ---- */

void winnow_node_exit(int status, void *node)
{
	char why[64];

	snprintf(why, sizeof(why), "it ended with exit status %d", status);
	if (node != NULL && status != 0)
		winnow_node_abort(node, why);
	winnow_node_destroy(node);
}

void winnow_node_destroy(struct winnow_node *node)
{
	if (node == NULL || (node->comms[1] != NULL && node->comms[1]->inherited))
		return; /* The thread does not exist in a forked child. */
	if (node->thread_started) {
		pthread_mutex_lock(&node->lock);
		node->stop_by_us = clock_us() + COMM_LEAVE_US;
		pthread_cond_broadcast(&node->changed);
		pthread_mutex_unlock(&node->lock);
		pthread_join(node->thread, NULL);
	}
	for (uint32_t i = 0; i <= node->setup.count; i++)
		winnow_comm_destroy(node->comms[node->setup.count - i]); /* The guard comes last. */
	if (node->gpus != NULL)
		node->gpu->node->close(node->gpus);
	pthread_mutex_destroy(&node->lock);
	pthread_cond_destroy(&node->changed);
	free(node);
}

/* ---- submitting ---- */

/*
 * Checks the arguments and marks the streams. NCCL would notice buffers on the wrong GPU too late. A GPU that fails
 * here ends the node, as it would later; a wrong argument only fails the call.
 */
static int op_prepare(struct winnow_node *node, struct node_op *op, void *const streams[])
{
	struct node_task *task = &op->task;
	const char *wrong = NULL;
	struct why why;
	int err = 0;

	for (uint32_t i = 0; i < node->setup.count && wrong == NULL && err == 0; i++) {
		struct allreduce each = {
			.send = task->send[i],
			.recv = task->recv[i],
			.count = task->count,
			.dtype = (uint8_t)task->dtype,
			.reduction = (uint8_t)task->reduction,
		};
		const int wanted = node->setup.devices[i];
		int found = wanted;

		wrong = comm_wrong_argument(&each, &op->options);
		if (wrong == NULL)
			wrong = comm_wrong_on_gpu(node->comms[1 + i], &each, &op->options);
		if (wrong == NULL && task->reduction == REDUCE_AVG && !dtype_is_float(task->dtype))
			wrong = "averages of integers are not supported: each node would truncate "
				"its own part";
		if (wrong == NULL && task->count > 0)
			err = comm_gpu_find(node->gpu, &each, &found, &why);
		if (err == 0 && found != wanted)
			err = why_set(&why, -EINVAL,
			              "send[%u] and recv[%u] are on GPU %d, not on GPU %d", i, i,
			              found, wanted);
		if (wrong == NULL && err == 0)
			err = node->gpu->mark(wanted, streams[i], &task->marks[i], &why);
	}
	if (err == -EIO)
		node_fail(node, WINNOW_ERR_GPU, why.text);
	return wrong != NULL ? comm_fail(WINNOW_ERR_INVALID, wrong)
	                     : comm_gpu_result(NULL, err, &why);
}

int winnow_node_allreduce_async(const void *const send[], void *const recv[], uint64_t count,
                                enum winnow_dtype dtype, enum winnow_op op,
                                const struct winnow_segment *segments, uint32_t segment_count,
                                void *const streams[], const struct winnow_options *options,
                                struct winnow_node *node, struct winnow_request **request)
{
	const char *wrong = comm_wrong_segments(segments, segment_count, count, true);
	struct node_op *made;
	int result;

	if (request == NULL)
		return comm_fail(WINNOW_ERR_INVALID, COMM_WANTS_REQUEST);
	*request = NULL;
	if (wrong != NULL)
		return comm_fail(WINNOW_ERR_INVALID, wrong);
	made = calloc(1, sizeof(*made) + 2 * (size_t)segment_count * sizeof(*segments));
	if (made == NULL)
		return comm_fail(WINNOW_ERR_MEMORY, "out of memory");
	if (options != NULL)
		made->options = *options;
	made->options.memory = WINNOW_MEMORY_CUDA;
	made->task = (struct node_task){
		.count = count,
		.dtype = (enum dtype)COMM_ENUM(dtype),
		.reduction = (enum reduction)COMM_ENUM(op),
		.block_elems = made->options.block != 0 ? made->options.block : node->config.block,
	};
	memcpy(made->task.send, send, node->setup.count * sizeof(send[0]));
	memcpy(made->task.recv, recv, node->setup.count * sizeof(recv[0]));
	made->segment_count = segment_count;
	if (segment_count > 0)
		memcpy(made->segments, segments, segment_count * sizeof(*segments));
	result = winnow_node_check(node);
	if (result == WINNOW_OK)
		result = op_prepare(node, made, streams);
	if (result == WINNOW_OK) {
		made->request = comm_request_new(node->comms[1]);
		if (made->request == NULL)
			result = comm_fail(WINNOW_ERR_MEMORY, "out of memory");
	}
	if (result != WINNOW_OK) {
		node_op_free(node, made);
		return result;
	}
	*request = made->request;
	pthread_mutex_lock(&node->lock);
	STAILQ_INSERT_TAIL(&node->queue, made, next);
	pthread_cond_broadcast(&node->changed);
	pthread_mutex_unlock(&node->lock);
	return WINNOW_OK;
}

int winnow_node_allreduce(const void *const send[], void *const recv[], uint64_t count,
                          enum winnow_dtype dtype, enum winnow_op op, void *const streams[],
                          struct winnow_node *node)
{
	struct winnow_request *request;
	int result = winnow_node_allreduce_async(send, recv, count, dtype, op, NULL, 0, streams,
	                                         NULL, node, &request);

	return comm_finish(result, request);
}

void winnow_node_abort(struct winnow_node *node, const char *text)
{
	node_fail(node, WINNOW_ERR_ABORTED, text != NULL ? text : "no reason given");
}

void winnow_node_stats(struct winnow_node *node, struct winnow_stats *stats)
{
	winnow_comm_stats(node->comms[1], stats);
	for (uint32_t i = 1; i < node->setup.count; i++) {
		struct winnow_stats one;

		winnow_comm_stats(node->comms[1 + i], &one);
		comm_stats_add(stats, &one);
		stats->channels += one.channels;
		stats->pinned_bytes += one.pinned_bytes;
		stats->window_now += one.window_now;
		if (one.rtt_us > stats->rtt_us)
			stats->rtt_us = one.rtt_us;
		if (one.rtt_least_us != 0 &&
		    (stats->rtt_least_us == 0 || one.rtt_least_us < stats->rtt_least_us))
			stats->rtt_least_us = one.rtt_least_us;
	}
}
