// SPDX-License-Identifier: BSD-3-Clause
/*
 * node_run.c - the thread that owns NCCL: runs a node's operations in order, and ends a failed node
 *
 * A large tensor is cut into chunks, so that one is on the network while NCCL works on another:
 * scatter 1, scatter 2, gather 1, scatter 3, gather 2 and so on. All waits poll, because a failure
 * anywhere must end them.
 */

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "client/node/node_state.h"

#define CHUNK_BYTES (UINT64_C(4) << 20) /* The least size of a GPU's share of a chunk. */
#define CHUNKS_MAX 8
#define NAP_US 50
#define SETTLE_TRIES 2000
#define WATCH_US UINT64_C(20000)
#define IDLE_US UINT64_C(100000)

void node_op_free(struct winnow_node *node, struct node_op *op)
{
	for (uint32_t i = 0; i < node->setup.count; i++)
		node->gpu->unmark(op->task.marks[i]);
	free(op);
}

/* ---- failing ---- */

void node_fail(struct winnow_node *node, int result, const char *why)
{
	for (uint32_t i = 0; i <= node->setup.count; i++)
		if (node->comms[i] != NULL)
			comm_end(node->comms[i], (enum winnow_result)result, why);
}

int winnow_node_check(struct winnow_node *node)
{
	int result = WINNOW_OK;

	for (uint32_t i = 0; i <= node->setup.count && result == WINNOW_OK; i++)
		if (node->comms[i] != NULL)
			result = winnow_comm_check(node->comms[i]);
	return result;
}

/* Ends the node, with winnow_last_error(), unless `result` is OK. Returns whether it is. */
static bool going_on(struct winnow_node *node, int result)
{
	struct why why;

	if (result == WINNOW_OK)
		return true;
	why_set(&why, 0, "%s", winnow_last_error());
	node_fail(node, result, why.text);
	return false;
}

/*
 * Returns false if the node has ended. `err` comes from node_calls. A communicator's error comes first, because it is
 * the reason why NCCL fails.
 */
static bool node_well(struct winnow_node *node, int err, const struct why *why)
{
	int result = winnow_node_check(node);

	return going_on(node,
	                result == WINNOW_OK && err < 0 ? comm_gpu_result(NULL, err, why) : result);
}

/* Checks communicators, NCCL and time limits every WATCH_US. Returns false if the node has ended. */
static bool nccl_watch(struct winnow_node *node)
{
	const volatile int *give_up = node->config.give_up;
	uint64_t now_us = clock_us();
	struct why why;
	int err;

	if (now_us < node->watch_due_us)
		return true;
	node->watch_due_us = now_us + WATCH_US;
	if (now_us > node->stop_by_us)
		node_fail(node, WINNOW_ERR_ABORTED,
		          "the node was destroyed while it had operations under way");
	/* A worker that leaves has done all its operations, so ours ends within the silence time or never. */
	if (node->due_us != UINT64_MAX && node->comms[0] != NULL &&
	    comm_deserted(node->comms[0], &why)) {
		if (now_us > node->due_us)
			node_fail(node, WINNOW_ERR_MEMBERS, why.text);
		if (node->due_us > now_us + (uint64_t)node->config.silence_ms * 1000)
			node->due_us = now_us + (uint64_t)node->config.silence_ms * 1000;
	}
	err = node->gpu->node->look(node->gpus, &why);
	if (err >= 0 && (now_us > node->due_us || (give_up != NULL && *give_up != 0)))
		err = why_set(&why, -ECANCELED,
		              "the other GPUs of this node did not answer in time");
	return node_well(node, err, &why);
}

static bool node_nap(struct winnow_node *node)
{
	nanosleep(&(struct timespec){.tv_nsec = NAP_US * 1000}, NULL);
	return nccl_watch(node);
}

/* Waits until all GPUs are in this state or a lower one. First spins, because NCCL mostly settles soon. */
static bool nccl_await(struct winnow_node *node, enum node_state most)
{
	for (uint32_t tries = 0;; tries++) {
		struct why why;
		int state = node->gpu->node->look(node->gpus, &why);

		if (state <= (int)most)
			return node_well(node, state, &why);
		if (state == NODE_SETTLES && tries < SETTLE_TRIES)
			sched_yield();
		else if (!node_nap(node))
			return false;
	}
}

/* ---- chunks ---- */

/* Returns the number of chunks of a tensor, which is 1 for a small one. */
static uint32_t chunk_count(const struct winnow_node *node, const struct node_task *task)
{
	uint64_t chunks = task->count * dtype_bytes(task->dtype) / node->setup.world / CHUNK_BYTES;

	return chunks < 1 ? 1 : chunks > CHUNKS_MAX ? CHUNKS_MAX : (uint32_t)chunks;
}

/* All but the last chunk have the same number of whole blocks for each GPU. */
static struct node_share chunk_of(const struct winnow_node *node, const struct node_op *op,
                                  uint32_t number)
{
	return node_share(op->task.count, op->task.block_elems * node->setup.world, op->chunks,
	                  number);
}

/* The first chunk uses the caller's tag. The others use tags of a range that neither callers nor the library use. */
static uint64_t chunk_tag(uint64_t tag, uint32_t number)
{
	const uint64_t ours = UINT64_C(3) << 62;

	return tag == 0 || number == 0 ? tag : ours | geometry_hash(geometry_hash(tag, number), 0);
}

static bool op_step(struct winnow_node *node, const struct node_op *op, uint32_t number,
                    bool scatter)
{
	struct why why;
	int err = node->gpu->node->step(node->gpus, &op->task, chunk_of(node, op, number), scatter,
	                                &why);

	return node_well(node, err, &why) && nccl_await(node, NODE_WORKS);
}

/* ---- shares ---- */

uint32_t node_segments_of(struct node_share share, const struct winnow_segment *all, uint32_t count,
                          struct winnow_segment *out)
{
	uint64_t share_end = share.first + share.count;
	uint32_t found = 0;

	for (uint32_t i = 0; i < count; i++) {
		const struct winnow_segment *s = &all[i];
		uint64_t first = s->offset > share.first ? s->offset : share.first;
		uint64_t end = s->offset + s->count < share_end ? s->offset + s->count : share_end;
		uint64_t into_row = s->row > 0 && first < end ? (first - s->offset) % s->row : 0;

		/* The end of a row that began in the previous share gets blocks of the default size. */
		if (first >= end || (into_row > 0 && s->row - into_row >= end - first))
			continue;
		first += into_row > 0 ? s->row - into_row : 0;
		out[found++] = (struct winnow_segment){
			.offset = first - share.first, .count = end - first, .row = s->row};
	}
	return found;
}

/*
 * Starts the allreduce of one GPU's share of a chunk, after earlier work in the node's stream. `agreed` makes nodes
 * compare the tensor's size, because tensors of different sizes may have chunks of the same size.
 */
static int reduce_share(struct winnow_node *node, struct node_op *op, uint32_t number,
                        uint32_t index)
{
	const struct node_task *task = &op->task;
	struct winnow_options options = op->options;
	struct node_share chunk = chunk_of(node, op, number);
	struct node_share share = node_share(chunk.count, task->block_elems, node->setup.world,
	                                     node->setup.rank + index);
	struct winnow_segment *segments = &op->segments[op->segment_count];
	struct winnow_comm *comm = node->comms[1 + index];
	struct comm_call call = {.comm = comm,
	                         .view = comm_view(comm),
	                         .options = &options,
	                         .segments = segments,
	                         .task = {.count = share.count,
	                                  .tag = chunk_tag(options.tag, number),
	                                  .agreed = task->count,
	                                  .access = &array_access,
	                                  .dtype = (uint8_t)task->dtype,
	                                  .reduction = (uint8_t)task->reduction}};

	share.first += chunk.first;
	call.task.send = call.task.recv =
		(uint8_t *)task->recv[index] + share.first * dtype_bytes(task->dtype);
	options.stream = node->gpu->node->stream(node->gpus, index);
	call.segment_count = node_segments_of(share, op->segments, op->segment_count, segments);
	return comm_begin(&call, &node->under_way[number % 2][index]);
}

static bool chunk_scatter(struct winnow_node *node, struct node_op *op, uint32_t number)
{
	int result = WINNOW_OK;

	if (!op_step(node, op, number, true))
		return false;
	/*
	 * Empty shares take part too, to detect mismatches. An empty tensor does not, because it may have no address.
	 */
	for (uint32_t i = 0; i < node->setup.count && op->task.count > 0 && result == WINNOW_OK;
	     i++)
		result = reduce_share(node, op, number, i);
	return going_on(node, result);
}

/* Waits for all shares of the chunk that were started. Returns false if the node has failed. */
static bool await_shares(struct winnow_node *node, struct node_op *op, uint32_t number)
{
	struct winnow_request *total = op->request, **shares = node->under_way[number % 2];

	for (uint32_t i = 0; i < node->setup.count; i++) {
		struct winnow_op_stats stats = {0};
		int done = shares[i] == NULL, result = WINNOW_OK;

		while (!done) {
			result = winnow_test(shares[i], &done, &stats);
			if (!done && !node_nap(node))
				return false;
		}
		winnow_request_free(&shares[i]);
		if (!going_on(node, result))
			return false;
		total->task.blocks += stats.blocks;
		total->task.blocks_nonzero += stats.blocks_nonzero;
		total->task.blocks_union += stats.blocks_union;
		total->staged.out_bytes += stats.staged_out_bytes;
		total->staged.in_bytes += stats.staged_in_bytes;
	}
	return true;
}

/* ---- an operation ---- */

/* Returns false if the node has ended. */
static bool op_perform(struct winnow_node *node, struct node_op *op)
{
	bool going = true;

	op->chunks = chunk_count(node, &op->task);
	node->due_us = clock_us() + (uint64_t)node->config.timeout_ms * 1000;
	for (uint32_t i = 0; i <= op->chunks && going; i++) {
		going = i == op->chunks || chunk_scatter(node, op, i);
		if (going && i > 0)
			going = await_shares(node, op, i - 1) && op_step(node, op, i - 1, false);
	}
	going = going && nccl_await(node, NODE_IDLE);
	node->due_us = UINT64_MAX;
	return going;
}

/* Opens NCCL together with all processes of the node. Returns false if the node has ended. */
static bool open_gpus(struct winnow_node *node)
{
	struct why why;
	int err = node->gpu->node->open(&node->setup, &node->gpus, &why);
	bool going = node_well(node, err, &why) && nccl_await(node, NODE_IDLE);

	node->due_us = UINT64_MAX;
	node->config.give_up = NULL; /* It only applies to opening. */
	return going;
}

/* Closes NCCL and waits for the shares, whose communicators have ended. May be called again. */
static void give_up(struct winnow_node *node)
{
	if (node->gpus != NULL)
		node->gpu->node->close(node->gpus);
	node->gpus = NULL;
	for (uint32_t i = 0; i < 2 * node->setup.count; i++) {
		struct winnow_request **share = &node->under_way[i % 2][i / 2];

		if (*share != NULL)
			(void)!winnow_wait(*share, -1, NULL);
		winnow_request_free(share);
	}
}

/* Takes the next operation, or NULL if none comes within IDLE_US. Returns false if the node must end. */
static bool op_next(struct winnow_node *node, struct node_op **out)
{
	bool stop;

	pthread_mutex_lock(&node->lock);
	if (STAILQ_EMPTY(&node->queue) && node->stop_by_us == UINT64_MAX)
		(void)comm_cond_wait(&node->changed, &node->lock, clock_us() + IDLE_US);
	stop = node->stop_by_us != UINT64_MAX;
	*out = STAILQ_FIRST(&node->queue);
	if (*out != NULL)
		STAILQ_REMOVE_HEAD(&node->queue, next);
	pthread_mutex_unlock(&node->lock);
	return *out != NULL || !stop;
}

void *node_run(void *context)
{
	struct winnow_node *node = context;
	struct node_op *op;
	bool going;

	pthread_setname_np(pthread_self(), "winnow-node");
	going = open_gpus(node);
	if (!going)
		give_up(node);
	pthread_mutex_lock(&node->lock);
	node->open = true;
	pthread_cond_broadcast(&node->changed);
	pthread_mutex_unlock(&node->lock);
	while (op_next(node, &op)) {
		going = going && (op != NULL ? op_perform(node, op) : nccl_watch(node));
		if (!going)
			give_up(node);
		if (op == NULL)
			continue;
		comm_request_end(op->request, going ? WINNOW_OK : winnow_node_check(node),
		                 winnow_last_error());
		node_op_free(node, op);
	}
	return NULL;
}
