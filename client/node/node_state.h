/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node_state.h - the GPUs of a node as one worker; private to node*.c
 *
 * node.c      the calls of winnow.h
 * node_run.c  the thread that owns NCCL: inside the node, across nodes, inside the node again
 *
 * A process has a communicator for each of its GPUs: for each g, a job connects GPU g of every node.
 * If a node has several processes, one more job, the guard, connects all GPUs of all nodes. It reduces
 * nothing: it exists because an aggregator notices a process that dies or leaves, and NCCL does not.
 *
 * A process gathers only after its own share has arrived. So if a share fails, every gather waits
 * until NCCL is aborted, and no process mistakes incomplete data for a result.
 */
#ifndef CLIENT_NODE_STATE_H
#define CLIENT_NODE_STATE_H

#include <pthread.h>

#include "client/comm/comm_state.h"
#include "kernels/gpu.h"
#include "kernels/node.h"

/* An operation. Its request belongs to the first share's communicator, but has no operation there. */
struct node_op {
	struct winnow_request *request;
	struct node_task task;
	uint32_t chunks; /* The number of its chunks. */
	struct winnow_options options;
	STAILQ_ENTRY(node_op) next; /* The next in the queue. */
	uint32_t segment_count;
	struct winnow_segment segments[]; /* [segment_count], then room for those of a share. */
};

struct winnow_node {
	/* Constant once the thread runs, except config.give_up, which the thread clears. */
	const struct gpu_calls *gpu; /* Has a table `node`. */
	struct node_setup setup;
	/* First the guard, NULL if this process has all GPUs of the node; then a share for each GPU. */
	struct winnow_comm *comms[1 + NODE_GPUS_MAX];
	struct winnow_config config; /* The communicators' options. Its texts are not valid. */
	pthread_t thread;
	bool thread_started;

	/* Used by the thread only. */
	struct node_gpus *gpus; /* NULL while NCCL is not open. */
	uint64_t watch_due_us;  /* When to run nccl_watch() next. */
	uint64_t due_us;        /* When the operation under way must be over. */
	struct winnow_request *under_way[2][NODE_GPUS_MAX]; /* The shares of two chunks. */

	/* When the thread must end, or UINT64_MAX. Set under the lock. */
	_Atomic uint64_t stop_by_us;
	pthread_mutex_t lock; /* Protects the fields below. */
	pthread_cond_t changed;
	bool open; /* NCCL is open, or has failed to open. */
	STAILQ_HEAD(node_queue, node_op) queue;
};

/* ---- node_run.c ---- */

/* Frees an operation that is done, or has not been queued. */
void node_op_free(struct winnow_node *node, struct node_op *op);

void *node_run(void *node);

/* Ends all communicators of the node; each tells the other workers. One that has already ended keeps its reason. */
void node_fail(struct winnow_node *node, int result, const char *why);

/*
 * Writes the parts of `all` that lie in a share to out[count], with offsets from the share's first element. Returns
 * their number.
 */
uint32_t node_segments_of(struct node_share share, const struct winnow_segment *all, uint32_t count,
                          struct winnow_segment *out);

#endif /* CLIENT_NODE_STATE_H */
