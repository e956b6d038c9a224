// SPDX-License-Identifier: BSD-3-Clause
/* node_life.c - a node is made, and ended */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/gpu_plugin.h"
#include "client/node_impl.h"

static int plugin(const struct node_calls **out, char *why)
{
	const void *found;
	int err = gpu_plugin_find(NODE_PLUGIN_SYMBOL, &found, why);

	*out = found;
	return err;
}

int winnow_node_id_make(struct winnow_node_id *out)
{
	const struct node_calls *calls;
	char why[NODE_WHY_BYTES];
	int err = plugin(&calls, why);

	if (err == 0)
		err = calls->id(out->bytes, why);
	return err == 0 ? WINNOW_OK : comm_fail((int)node_result(err), why);
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
	/* Room for what names the jobs of a node: ".g64-63". */
	if (config->config->job == NULL || strlen(config->config->job) > CONTROL_NAME_BYTES - 8)
		return "the name of a job with several GPUs in a node has at most 57 characters";
	return NULL;
}

static int join(struct winnow_node *node, const struct winnow_node_config *config,
                const char *suffix, uint32_t rank, uint32_t world, struct winnow_comm **out)
{
	struct winnow_config each = *config->config;
	char job[2 * CONTROL_NAME_BYTES];

	snprintf(job, sizeof(job), "%s.g%u%s", each.job, node->local_world, suffix);
	each.job = job;
	each.rank = rank;
	each.world = world;
	return winnow_comm_create(&each, out);
}

/* The guard first: with it, who fails from here on does not keep the others waiting. */
static int join_guard(struct winnow_node *node, const struct winnow_node_config *config)
{
	uint32_t nodes = config->config->world, node_rank = config->config->rank;

	if (node->gpu_count == node->local_world)
		return WINNOW_OK;
	return join(node, config, "", node_rank * node->local_world + node->local_rank,
	            nodes * node->local_world, &node->guard);
}

static int open_gpus(struct winnow_node *node, const struct winnow_node_config *config, char *why)
{
	struct node_setup setup = {
		.world = node->local_world,
		.rank = node->local_rank,
		.count = node->gpu_count,
		.devices = node->gpus,
		.given_up = node_given_up,
		.context = node,
	};
	int err;

	memcpy(setup.id, config->id.bytes, sizeof(setup.id));
	node->open_until_us = comm_clock_us() + (uint64_t)config->config->join_timeout_ms * 1000;
	node->give_up = config->config->give_up;
	err = node->calls->open(&setup, &node->node_gpus, why);
	node->open_until_us = 0;
	node->give_up = NULL;
	return err == 0 ? WINNOW_OK : (int)node_result(err);
}

/* In ascending order, as all nodes do: each waits for all others. */
static int join_shares(struct winnow_node *node, const struct winnow_node_config *config)
{
	int result = WINNOW_OK;

	for (uint32_t i = 0; i < node->gpu_count && result == WINNOW_OK; i++) {
		char suffix[16];

		snprintf(suffix, sizeof(suffix), "-%u", node->local_rank + i);
		result = join(node, config, suffix, config->config->rank, config->config->world,
		              &node->shares[i]);
		if (result == WINNOW_OK) {
			node->shares[i]->failing = node_failing;
			node->shares[i]->failing_context = node;
		}
	}
	return result;
}

/* Before any stream waits, which what this does might not survive: see gpu_start.c. */
static int open_shares(struct winnow_node *node)
{
	int result = WINNOW_OK;

	node->can_wait = true;
	for (uint32_t i = 0; i < node->gpu_count && result == WINNOW_OK; i++) {
		bool can_wait = false;

		result = comm_gpu_open(node->shares[i], node->gpus[i], &can_wait);
		node->can_wait = node->can_wait && can_wait;
	}
	return result;
}

static int start_threads(struct winnow_node *node)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	node->thread_started = pthread_create(&node->thread, NULL, node_run, node) == 0;
	node->gather_started =
		pthread_create(&node->gather_thread, NULL, node_gather_run, node) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!node->thread_started || !node->gather_started)
		return comm_fail(WINNOW_ERR_SYSTEM, "cannot start a thread");
	return WINNOW_OK;
}

static void stop_thread(struct winnow_node *node, bool *stop, bool started, pthread_t thread)
{
	pthread_mutex_lock(&node->lock);
	*stop = true;
	pthread_cond_broadcast(&node->changed);
	pthread_mutex_unlock(&node->lock);
	if (started)
		pthread_join(thread, NULL);
}

static int create(struct winnow_node *node, const struct winnow_node_config *config)
{
	char why[COMM_ERROR_BYTES];
	int result = join_guard(node, config);

	if (result != WINNOW_OK)
		return result;
	if (node->guard != NULL)
		node_board_open(node, config);
	result = open_gpus(node, config, why);
	if (result != WINNOW_OK) {
		/* Another process may have failed first, and knows better. */
		int guard = node->guard != NULL ? winnow_comm_check(node->guard) : WINNOW_OK;

		return guard != WINNOW_OK ? guard : comm_fail(result, why);
	}
	result = join_shares(node, config);
	if (result == WINNOW_OK)
		result = open_shares(node);
	return result != WINNOW_OK ? result : start_threads(node);
}

static void init(struct winnow_node *node, const struct winnow_node_config *config)
{
	pthread_condattr_t attributes;

	node->pid = getpid();
	node->local_world = config->local_world;
	node->local_rank = config->local_rank;
	node->gpu_count = config->gpu_count;
	node->block = config->config->block;
	node->timeout_us = (uint64_t)config->config->timeout_ms * 1000;
	memcpy(node->gpus, config->gpus, config->gpu_count * sizeof(node->gpus[0]));
	node->gathers_end = &node->gathers;
	pthread_mutex_init(&node->nccl, NULL);
	pthread_mutex_init(&node->gathering, NULL);
	pthread_mutex_init(&node->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&node->changed, &attributes);
	pthread_condattr_destroy(&attributes);
}

int winnow_node_create(const struct winnow_node_config *config, struct winnow_node **out)
{
	const struct node_calls *calls;
	const char *wrong = wrong_config(config);
	struct winnow_node *node;
	char why[COMM_ERROR_BYTES];
	int result, err;

	*out = NULL;
	if (wrong != NULL)
		return comm_fail(WINNOW_ERR_INVALID, wrong);
	err = plugin(&calls, why);
	if (err != 0)
		return comm_fail((int)node_result(err), why);
	node = calloc(1, sizeof(*node));
	if (node == NULL)
		return comm_fail(WINNOW_ERR_MEMORY, "out of memory");
	node->calls = calls;
	init(node, config);
	result = create(node, config);
	if (result == WINNOW_OK) {
		*out = node;
		return WINNOW_OK;
	}
	snprintf(why, sizeof(why), "%s", winnow_last_error());
	node_fail(node, (enum winnow_result)result, why);
	winnow_node_destroy(node);
	return comm_fail(result, why);
}

/* ---- ending ---- */

static bool idle_within(struct winnow_node *node, uint64_t us)
{
	uint64_t until_us = comm_clock_us() + us;

	while (!node_gather_idle(node) ||
	       (node->node_gpus != NULL && !node->calls->idle(node->node_gpus))) {
		if (comm_clock_us() > until_us)
			return false;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	return true;
}

/* What the communicators still owe the requests: they have ended, so it comes at once. */
static void settle_requests(struct winnow_node *node)
{
	for (struct winnow_node_request *r = node->underway; r != NULL; r = r->next)
		for (uint32_t i = 0; i < node->gpu_count; i++) {
			if (r->shares[i] == NULL)
				continue;
			(void)!winnow_wait(r->shares[i], -1, NULL);
			winnow_request_free(&r->shares[i]);
		}
}

static void free_requests(struct winnow_node_request *first)
{
	struct winnow_node_request *next;

	for (; first != NULL; first = next) {
		next = first->next;
		free(first);
	}
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
	bool idle;

	if (node == NULL || node->pid != getpid())
		return; /* the threads are the parent's */
	stop_thread(node, &node->stop, node->thread_started, node->thread);
	/* Who has noted a failure leaves it to the thread to abort: that is gone. */
	if (atomic_load(&node->failed) || !idle_within(node, COMM_LEAVE_US))
		node_fail(node, WINNOW_ERR_ABORTED, "a node was destroyed while it had work");
	/* Should it still wait, then for communicators that have ended. */
	stop_thread(node, &node->gather_stop, node->gather_started, node->gather_thread);
	node->gathers = NULL;
	settle_requests(node);
	node_let_go(node);
	for (uint32_t i = 0; i < node->gpu_count; i++)
		winnow_comm_destroy(node->shares[i]);
	winnow_comm_destroy(node->guard);
	idle = idle_within(node, COMM_LEAVE_US);
	node_board_close(node);
	if (node->node_gpus != NULL)
		node->calls->close(node->node_gpus);
	/* A GPU that never comes back may still speak of its requests: then they stay. */
	if (!idle)
		return;
	free_requests(node->underway);
	free_requests(node->unused);
	pthread_mutex_destroy(&node->nccl);
	pthread_mutex_destroy(&node->gathering);
	pthread_mutex_destroy(&node->lock);
	pthread_cond_destroy(&node->changed);
	free(node);
}

void winnow_node_abort(struct winnow_node *node, const char *text)
{
	node_fail(node, WINNOW_ERR_ABORTED, text != NULL ? text : "no reason given");
}
