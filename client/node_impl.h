/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node_impl.h - the GPUs of a node as one worker; private to node*.c
 *
 * node.c         operations: inside the node, across nodes, inside the node again
 * node_gather.c  the thread that goes on inside the node when the shares have come
 * node_segments.c  tensors of rows
 * node_life.c    making and ending a node
 * node_watch.c   its thread, and how it fails
 * node_board.c   what its processes know of each other
 *
 * A node has a communicator for each of its process's GPUs: GPU g of every node is in one job. Where
 * a node has several processes, one more communicator, the guard, has all GPUs of all nodes in
 * it and reduces nothing: NCCL does not notice that a process is gone, but an aggregator does.
 */
#ifndef CLIENT_NODE_IMPL_H
#define CLIENT_NODE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "client/comm.h"
#include "kernels/node.h"

/*
 * What the processes of a node know of each other at once, in shared memory: a share that came to
 * nothing goes on to the other GPUs all the same, and they must know before their streams do.
 */
struct node_board {
	_Atomic uint32_t here;   /* processes that have it open */
	_Atomic uint32_t failed; /* 1: being written; 2: result and why are there */
	int32_t result;          /* enum winnow_result */
	char why[COMM_ERROR_BYTES];
};

/* What is left of an operation whose streams go on when its shares are under way. */
struct node_gather {
	struct node_task task; /* recv: the one below */
	void *recv[NODE_GPUS_MAX];
	uint32_t turn;
	struct winnow_op_stats total;     /* what the shares have cost */
	struct winnow_node_request *next; /* in the order of submission */
};

struct winnow_node_request {
	struct winnow_node *node;
	struct winnow_request *shares[NODE_GPUS_MAX]; /* [gpu_count] of the communicators */
	uint64_t submitted_us;
	bool goes_on; /* no stream waits, the caller's thread may: the shares are node_gather.c's, and so is what follows */
	struct node_gather gather;
	/* Under the lock. */
	uint32_t left; /* GPUs that do not have their result yet */
	bool detached; /* its caller never had it: its failure ends the node */
	bool freed;    /* nobody waits for it: the thread takes it */
	uint64_t done_us;
	/* Worked out once, by the first that asks: see node_collect(). */
	bool collecting, collected;
	int result;
	char why[COMM_ERROR_BYTES];
	struct winnow_op_stats total;
	struct winnow_node_request *next; /* in `underway`, or in `unused` */
};

struct winnow_node {
	const struct node_calls *calls;
	pid_t pid; /* of the process that created it */
	uint32_t local_world, local_rank, gpu_count;
	int gpus[NODE_GPUS_MAX];                   /* [gpu_count] device numbers */
	struct winnow_comm *shares[NODE_GPUS_MAX]; /* [gpu_count] */
	struct winnow_comm *guard;                 /* NULL: this process has all GPUs */
	struct node_board *board;                  /* NULL: likewise, or there is none to be had */
	char board_name[64];
	uint32_t block; /* of the communicators */
	bool can_wait;  /* streams can; else calls do */
	uint64_t timeout_us;
	uint64_t open_until_us;      /* 0: it is open */
	const volatile int *give_up; /* while it is being made; or NULL */

	pthread_mutex_t nccl; /* one thread at a time asks for something; before the other locks */
	pthread_mutex_t gathering; /* for gather(): between the two */
	struct node_gpus *node_gpus;
	bool aborted;
	uint32_t turn;

	pthread_t thread, gather_thread;
	bool thread_started, gather_started;

	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool stop, gather_stop;
	bool closing;          /* communicators are going: whatever fails now tells none of them */
	uint32_t telling;      /* threads that are telling them */
	bool gather_under_way; /* one that is not in the queue any more */
	bool awaiting;         /* who has node->nccl only waits for gathers */
	struct winnow_node_request *gathers, **gathers_end;
	atomic_bool failed;
	enum winnow_result result; /* when failed */
	char error[COMM_ERROR_BYTES];
	struct winnow_node_request *underway;
	struct winnow_node_request *unused;
};

/* node.c: a request is free for the next operation. Under the lock. */
void node_request_free(struct winnow_node_request *request);

/* The result of a request when all its GPUs are done, or the node has failed. `stats` may be NULL. */
int node_collect(struct winnow_node_request *request, struct winnow_op_stats *stats);

/* Adds what a share has come to, and frees it. Its line is winnow_last_error(). */
int node_collect_share(struct winnow_request **share, struct winnow_op_stats *total);

/*
 * node_segments.c: the segments of a tensor that lie in a share, counted from the share's first
 * element, into out[count]; how many these are.
 */
uint32_t node_segments_of(struct node_share share, const struct winnow_segment *all, uint32_t count,
                          struct winnow_segment *out);

/* node_gather.c */
void node_gather_later(struct winnow_node_request *request);
void *node_gather_run(void *node);
/* By who has node->nccl: those before have been asked for, as they have to be in all processes. */
void node_gather_await(struct winnow_node *node);
bool node_gather_idle(struct winnow_node *node);

/* node_watch.c */

/*
 * node_fail - the node is of no more use: its streams go on, the other workers are told. The first
 * call counts. node_fail_locked(): by who has node->nccl.
 */
void node_fail(struct winnow_node *node, enum winnow_result result, const char *why);
void node_fail_locked(struct winnow_node *node, enum winnow_result result, const char *why);

/* node_board.c. Without a board the guard tells the others, a little later. */
void node_board_open(struct winnow_node *node, const struct winnow_node_config *config);
void node_board_close(struct winnow_node *node);
void node_board_write(struct winnow_node *node, enum winnow_result result, const char *why);
bool node_board_read(struct winnow_node *node, enum winnow_result *result, char *why);

/* Before the communicators go: when it returns, no thread speaks to them any more, nor ever will. */
void node_let_go(struct winnow_node *node);

/* For struct winnow_comm: one of them is about to let a stream go on for nothing. */
void node_failing(void *node, enum winnow_result result, const char *why);

/* OK, or what ended the node, which is winnow_last_error() then. Looks at the communicators, too. */
int node_check(struct winnow_node *node);

/* For struct node_setup: is there no point in waiting for the node's other GPUs? */
bool node_given_up(void *node);

/* What a function of node_calls has returned, as a result. */
enum winnow_result node_result(int err);

void *node_run(void *node);

#endif /* CLIENT_NODE_IMPL_H */
