/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node_impl.h - the GPUs of a node as one worker; private to node*.c
 *
 * node.c       operations: winnow.h's calls
 * node_run.c   the thread that owns NCCL: inside the node, across nodes, inside the node again
 * node_life.c  making and ending a node
 *
 * A node has a communicator for each of its process's GPUs: GPU g of every node is in one job. Where
 * a node has several processes, one more communicator, the guard, has all GPUs of all nodes in
 * it and reduces nothing: NCCL does not notice that a process is gone, but an aggregator does.
 *
 * The order of NCCL's calls is that of the operations, and within one a function of its size alone, so it
 * is the same in all processes. A process gathers when its own share has come, so what all have gathered
 * is a result: where a share has failed, nobody's gather ends but by NCCL's abort.
 */
#ifndef CLIENT_NODE_IMPL_H
#define CLIENT_NODE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "client/comm/comm.h"
#include "kernels/node.h"

struct winnow_node_request {
	struct winnow_node *node;
	const void *send[NODE_GPUS_MAX]; /* [gpu_count], as recv */
	void *recv[NODE_GPUS_MAX];
	struct node_task task; /* of those */
	struct winnow_options options;
	struct winnow_segment *segments; /* [segment_count], ours; NULL: a tensor of no segments */
	uint32_t segment_count;
	uint64_t submitted_us;
	struct winnow_op_stats stats;
	/* Under the lock. */
	bool done;
	int result; /* when done, and why */
	struct why why;
	uint32_t holders;                 /* the node until it is done, and the caller */
	struct winnow_node_request *next; /* in the queue */
	struct winnow_node_request *older, **older_of; /* of all there are */
};

struct winnow_node {
	const struct node_calls *calls;
	pid_t pid; /* of the process that created it */
	uint32_t local_world, local_rank, gpu_count;
	int gpus[NODE_GPUS_MAX];                   /* [gpu_count] device numbers */
	struct winnow_comm *shares[NODE_GPUS_MAX]; /* [gpu_count] */
	struct winnow_comm *guard;                 /* NULL: this process has all GPUs */
	uint32_t block;                            /* of the communicators */
	uint64_t timeout_us;
	uint64_t open_until_us;      /* 0: it is open */
	const volatile int *give_up; /* while it is being made; or NULL */
	pthread_t thread;
	bool thread_started;

	/* The thread's own. */
	struct node_gpus *node_gpus;
	uint64_t watch_due_us;
	struct winnow_request *under_way[2][NODE_GPUS_MAX]; /* shares of two chunks */

	pthread_mutex_t submitting; /* one caller at a time, before the other lock */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool stop;
	uint64_t submitted, begun; /* operations */
	bool busy;
	struct winnow_node_request *first, **end; /* the queue */
	struct winnow_node_request *newest;       /* of all requests */
	atomic_bool failed;
	enum winnow_result result; /* when failed */
	struct why error;
};

/* ---- node_run.c ---- */

void *node_run(void *node);

/* node_fail - the node is of no more use, and the other workers are told. The first call counts. */
void node_fail(struct winnow_node *node, enum winnow_result result, const char *why);

/* OK, or what ended the node, which is winnow_last_error() then. Looks at the communicators, too. */
int node_check(struct winnow_node *node);

/* For struct node_setup: is there no point in waiting for the node's other GPUs? */
bool node_given_up(void *node);

/* What a function of node_calls has returned, as a result. */
enum winnow_result node_result(int err);

/*
 * The segments of a tensor that lie in a share, counted from the share's first element, into
 * out[count]; how many these are.
 */
uint32_t node_segments_of(struct node_share share, const struct winnow_segment *all, uint32_t count,
                          struct winnow_segment *out);

/* node.c: one of its holders is done with it; both are, under the lock. */
void node_request_drop(struct winnow_node_request *request);
void node_request_free(struct winnow_node_request *request);

#endif /* CLIENT_NODE_IMPL_H */
