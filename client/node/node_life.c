// SPDX-License-Identifier: BSD-3-Clause
/* node_life.c - creating and destroying a node */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/node/node_impl.h"

/* NCCL's part of the plugin. */
static int plugin(const struct gpu_calls **gpu, struct why *why)
{
	int err = comm_gpu_calls(gpu, why);

	if (err == 0 && (*gpu)->node == NULL)
		err = why_set(why, -ENOENT, "this build knows no NCCL: its header was not there");
	return err;
}

int winnow_node_id_make(struct winnow_node_id *out)
{
	const struct gpu_calls *gpu;
	struct why why;
	int err = plugin(&gpu, &why);

	if (err == 0)
		err = gpu->node->id(out->bytes, &why);
	return comm_gpu_result(NULL, err, &why);
}

/* ---- making ---- */

static const char *wrong_config(const struct winnow_node_config *config)
{
	if (config->local_world == 0 || config->local_world > NODE_GPUS_MAX)
		return "local_world is the number of GPUs of this node: 1 to 64";
	if (config->gpu_count != 1 && config->gpu_count != config->local_world)
		return "gpu_count is 1, or local_world: a process has one GPU of the node, or all";
	if (config->local_rank >= config->local_world ||
	    config->local_rank % config->gpu_count != 0)
		return "local_rank is 0 to local_world - 1; 0 in a process with all GPUs";
	if (config->gpus == NULL)
		return "gpus is NULL: which GPUs are this process's?";
	/* Leave room for the longest suffix of a node's jobs, ".g64-63". */
	if (config->config->job == NULL || strlen(config->config->job) > CONTROL_NAME_BYTES - 8)
		return "the name of a job with several GPUs in a node has at most 57 characters";
	return NULL;
}

static int join(struct winnow_node *node, const struct winnow_node_config *config,
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
 * The guard comes first, so that a process that fails later does not keep the others waiting. All nodes
 * join the shares' jobs in ascending order, because each join waits for all nodes.
 */
static int join_all(struct winnow_node *node, const struct winnow_node_config *config)
{
	const struct node_setup *setup = &node->setup;
	uint32_t nodes = config->config->world, node_rank = config->config->rank;
	int result = WINNOW_OK;

	if (setup->count < setup->world)
		result = join(node, config, "", node_rank * setup->world + setup->rank,
		              nodes * setup->world, &node->comms[0]);
	for (uint32_t i = 0; i < setup->count && result == WINNOW_OK; i++) {
		char suffix[16];

		snprintf(suffix, sizeof(suffix), "-%u", setup->rank + i);
		result = join(node, config, suffix, node_rank, nodes, &node->comms[1 + i]);
		if (result == WINNOW_OK)
			result = comm_gpu_open(node_share_comm(node, i), setup->devices[i]);
	}
	return result;
}

/* Wait until it has opened NCCL. If another process failed first, its error is the cause. */
static int start_thread(struct winnow_node *node, uint32_t timeout_ms)
{
	node->due_us = clock_us() + (uint64_t)timeout_ms * 1000;
	node->thread_started = comm_thread_start(&node->thread, node_run, node) == 0;
	if (!node->thread_started)
		return comm_fail(WINNOW_ERR_SYSTEM, "cannot start a thread");
	pthread_mutex_lock(&node->lock);
	while (!node->open)
		pthread_cond_wait(&node->changed, &node->lock);
	pthread_mutex_unlock(&node->lock);
	return winnow_node_check(node);
}

static void init(struct winnow_node *node, const struct winnow_node_config *config)
{
	node->pid = getpid();
	node->setup.world = config->local_world;
	node->setup.rank = config->local_rank;
	node->setup.count = config->gpu_count;
	memcpy(node->setup.id, config->id.bytes, sizeof(node->setup.id));
	memcpy(node->setup.devices, config->gpus, config->gpu_count * sizeof(config->gpus[0]));
	node->give_up = config->config->give_up;
	node->block = config->config->block;
	node->timeout_us = (uint64_t)config->config->timeout_ms * 1000;
	node->end = &node->first;
	pthread_mutex_init(&node->lock, NULL);
	comm_cond_init(&node->changed);
}

int winnow_node_create(const struct winnow_node_config *config, struct winnow_node **out)
{
	const char *wrong = wrong_config(config);
	const struct gpu_calls *gpu;
	struct winnow_node *node;
	struct why why;
	int result;

	*out = NULL;
	if (wrong != NULL)
		return comm_fail(WINNOW_ERR_INVALID, wrong);
	result = comm_gpu_result(NULL, plugin(&gpu, &why), &why);
	if (result != WINNOW_OK)
		return result;
	node = calloc(1, sizeof(*node));
	if (node == NULL)
		return comm_fail(WINNOW_ERR_MEMORY, "out of memory");
	node->gpu = gpu;
	init(node, config);
	result = join_all(node, config);
	if (result == WINNOW_OK)
		result = start_thread(node, config->config->join_timeout_ms);
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

/* Give operations under way COMM_LEAVE_US to finish, then fail the node. */
static void stop_thread(struct winnow_node *node)
{
	uint64_t until_us = clock_us() + COMM_LEAVE_US;
	int err = 0;

	pthread_mutex_lock(&node->lock);
	node->stop = true;
	pthread_cond_broadcast(&node->changed);
	while (!node->over && err == 0)
		err = comm_cond_wait(&node->changed, &node->lock, until_us);
	pthread_mutex_unlock(&node->lock);
	if (err != 0)
		node_fail(node, WINNOW_ERR_ABORTED, "a node was destroyed while it had work");
	pthread_join(node->thread, NULL);
}

void winnow_node_exit(int status, void *node)
{
	struct winnow_node *ours = node;
	char why[64];

	if (ours == NULL || ours->pid != getpid())
		return;
	snprintf(why, sizeof(why), "it ended with exit status %d", status);
	if (status != 0)
		winnow_node_abort(ours, why);
	winnow_node_destroy(ours);
}

void winnow_node_destroy(struct winnow_node *node)
{
	if (node == NULL || node->pid != getpid())
		return; /* in a fork's child, where the thread does not exist */
	if (node->thread_started)
		stop_thread(node);
	for (uint32_t i = 0; i <= node->setup.count; i++)
		winnow_comm_destroy(node->comms[node->setup.count - i]); /* the guard at last */
	if (node->gpus != NULL)
		node->gpu->node->close(node->gpus);
	pthread_mutex_destroy(&node->lock);
	pthread_cond_destroy(&node->changed);
	free(node);
}
