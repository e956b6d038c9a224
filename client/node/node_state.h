/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node_state.h - the GPUs of a node as one worker; private to node*.c
 *
 * node.c      winnow.h's calls
 * node_run.c  the thread that owns NCCL: inside the node, across nodes, inside the node again
 *
 * A process has a communicator for each of its GPUs: one job connects GPU g of every node. If a
 * node has several processes, one more job, the guard, connects all GPUs of all nodes and reduces
 * nothing. It is there because an aggregator notices a process that dies or leaves, and NCCL does not.
 *
 * A process gathers only when its own share has arrived. So if one share fails, every gather waits
 * until NCCL is aborted, and no process takes incomplete data for a result.
 */
#ifndef CLIENT_NODE_STATE_H
#define CLIENT_NODE_STATE_H

#include <pthread.h>

#include "client/comm/comm_state.h"
#include "kernels/gpu.h"
#include "kernels/node.h"

/* An operation. Its request is one of the first share's communicator, which has no operation itself. */
struct node_op {
	struct winnow_request *request;
	struct node_task task;
	uint32_t chunks; /* the number of chunks that it goes in */
	struct winnow_options options;
	STAILQ_ENTRY(node_op) next; /* in the queue */
	uint32_t segment_count;
	struct winnow_segment segments[]; /* [segment_count], then as many for a share's */
};

struct winnow_node {
	/* Constant once there is a thread, but for config.give_up, which the thread then takes away. */
	const struct gpu_calls *gpu; /* Its table `node` is there. */
	struct node_setup setup;
	/* The guard, NULL where this process has all GPUs of the node; then a share for each GPU. */
	struct winnow_comm *comms[1 + NODE_GPUS_MAX];
	struct winnow_config config; /* the communicators'; its texts are gone */
	pthread_t thread;
	bool thread_started;

	/* Used by the thread only. */
	struct node_gpus *gpus; /* NULL: NCCL is not open */
	uint64_t watch_due_us;
	uint64_t due_us; /* by when what is under way must be over */
	struct winnow_request *under_way[2][NODE_GPUS_MAX]; /* shares of two chunks */

	/* By then the thread must end; UINT64_MAX: it need not. Set under the lock. */
	_Atomic uint64_t stop_by_us;
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t changed;
	bool open; /* NCCL is open, or has failed. */
	STAILQ_HEAD(node_queue, node_op) queue;
};

/* ---- node_run.c ---- */

/* node_op_free - of one that is done, or has not been queued. */
void node_op_free(struct winnow_node *node, struct node_op *op);

void *node_run(void *node);

/*
 * node_fail - end the node: all its communicators, of which each tells the other workers. What has
 * ended one of them before counts there.
 */
void node_fail(struct winnow_node *node, int result, const char *why);

/*
 * node_segments_of - write the parts of `all` that lie in a share to out[count], with offsets from
 * the share's first element. Returns their number.
 */
uint32_t node_segments_of(struct node_share share, const struct winnow_segment *all, uint32_t count,
                          struct winnow_segment *out);

#endif /* CLIENT_NODE_STATE_H */
