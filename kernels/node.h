/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node.h - the GPUs of one node as one worker: what NCCL does before and after the network
 *
 * An allreduce of a node is three steps in a stream of each GPU: scatter() leaves each GPU with its
 * share of the node's sum, somebody else reduces the shares across nodes, gather() gives all shares
 * to all GPUs. They put work into streams, and wait for no GPU. scatter() also makes the work wait for
 * the callers' streams. Where these are to wait for the result, gather() follows at once, before
 * anything has happened, and makes them. Where they go on, it is called when the shares are there, so
 * that no stream stands still for the network: see gpu_start.c for what that would stop.
 *
 * Like gpu.h a table in the object that has CUDA inside, winnow-cuda.so; NCCL is opened when the
 * first node is (libnccl.so.2, or what WINNOW_NCCL names).
 *
 * Functions that can fail return 0 or: -EINVAL, the caller's mistake; -ENOENT, there is no NCCL;
 * -ECANCELED, given_up() said so; -EIO, NCCL, a GPU or its driver failed. They explain it in
 * `why`, NODE_WHY_BYTES, with call and GPU. After -EIO or -ECANCELED there is only abort() and close().
 *
 * Threads: one at a time for each node, but gather() may run beside scatter(), and beside nothing else. All
 * processes of a node make the same calls of scatter() in the same order, and likewise of gather().
 */
#ifndef KERNELS_NODE_H
#define KERNELS_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/dtype.h"

#define NODE_WHY_BYTES 256
#define NODE_ID_BYTES 128
#define NODE_PLUGIN_SYMBOL "winnow_node_gpus"
#define NODE_GPUS_MAX 64
#define NODE_TURNS 4 /* operations whose work can be under way at the same time */

struct node_gpus;

struct node_setup {
	char id[NODE_ID_BYTES]; /* made by id() in one process of the node */
	uint32_t world;         /* GPUs of the node */
	uint32_t rank;          /* the first of this process */
	uint32_t count;         /* of this process */
	const int *devices;     /* [count] */
	/* Asked again and again while NCCL lets us wait: true: not any longer. */
	bool (*given_up)(void *context);
	void *context;
};

/* One operation. Arrays are [count of this process]. */
struct node_task {
	const void *const *send; /* device memory of the GPU it belongs to; only read */
	void *const *recv;       /* likewise; equal to send's, or apart */
	void *const *streams;    /* the callers'; gather() reads it unless goes_on */
	uint64_t count;
	enum dtype dtype;
	enum reduction reduction;
	uint32_t block_elems; /* shares are multiples of it */
	bool goes_on; /* the callers' streams do not wait; gather() is a thread's of its own */
	/* Called once for each GPU, by a thread of the driver's, when its result is there; may be NULL. */
	void (*done)(void *context);
	void *context;
};

/* The part of a tensor that one GPU reduces across nodes, in elements; the last one takes the rest. */
struct node_share {
	uint64_t first, count;
};

static inline struct node_share node_share(uint64_t count, uint32_t block_elems, uint32_t world,
                                           uint32_t rank)
{
	uint64_t each = count / world / block_elems * block_elems;
	struct node_share share = {.first = each * rank, .count = each};

	if (rank == world - 1)
		share.count = count - share.first;
	return share;
}

struct node_calls {
	const char *version; /* WINNOW_VERSION that it was built with */

	int (*id)(char *id, char *why);
	int (*open)(const struct node_setup *setup, struct node_gpus **out, char *why);

	/* `turn`, below NODE_TURNS: which of the node's streams; an operation waits for the last of its turn. */
	int (*scatter)(struct node_gpus *gpus, uint32_t turn, const struct node_task *task,
	               char *why);
	int (*gather)(struct node_gpus *gpus, uint32_t turn, const struct node_task *task,
	              char *why);

	/* The stream between the two: what is put there finds the share in recv, and gather() waits for it
	 * unless the task goes on. */
	void *(*stream)(struct node_gpus *gpus, uint32_t turn, uint32_t index);

	/* Are NCCL and the GPUs still well? The thread's current device becomes one of theirs. */
	int (*look)(struct node_gpus *gpus, char *why);
	bool (*idle)(struct node_gpus *gpus); /* nothing is under way */

	/* Ends what NCCL has under way, and its communicators. */
	void (*abort)(struct node_gpus *gpus);
	void (*close)(struct node_gpus *gpus); /* when idle, or after abort() */
};

#endif /* KERNELS_NODE_H */
