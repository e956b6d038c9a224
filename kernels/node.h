/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node.h - the GPUs of one node as one worker: NCCL's part before and after the network
 *
 * An allreduce has three steps. One call of step() scatters the node's sum, so that each GPU has its
 * share. The caller reduces the shares across nodes. Another call gathers all shares on all GPUs.
 * Both calls put work into one stream of each GPU. After open() and step() no other work may follow
 * until look() says that NCCL has done so. The caller gathers only when the shares have arrived, so
 * no stream waits for the network. No call waits for other processes.
 *
 * This is a part of gpu.h's table. NCCL (libnccl.so.2, or the file that WINNOW_NCCL names) is opened
 * with the first node.
 *
 * Functions that can fail return 0 or: -ENOENT, there is no NCCL; -ENOMEM; -EIO, NCCL, a GPU or its
 * driver failed. They explain it in `why` with call and GPU. After -EIO there is only close().
 *
 * One thread calls open(), step() and look(), and stays on a GPU of the node. All processes of a node
 * make the same calls of step() in the same order.
 */
#ifndef KERNELS_NODE_H
#define KERNELS_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/dtype.h"
#include "bitmap/why.h"

#define NODE_ID_BYTES 128
#define NODE_GPUS_MAX 64

struct node_gpus;
struct gpu_mark;

struct node_setup {
	char id[NODE_ID_BYTES];     /* made by id() in one process of the node */
	uint32_t world;             /* GPUs in the node */
	uint32_t rank;              /* the rank of this process's first GPU */
	uint32_t count;             /* GPUs of this process */
	int devices[NODE_GPUS_MAX]; /* [count] */
};

enum node_state {
	NODE_IDLE,
	NODE_WORKS,   /* a stream has work */
	NODE_SETTLES, /* NCCL has not yet put all of its work into the streams */
};

/* A tensor on each GPU of this process. */
struct node_task {
	const void *send[NODE_GPUS_MAX]; /* [count], each in the memory of its GPU; only read */
	void *recv[NODE_GPUS_MAX];       /* Each equals its `send`, or does not overlap it. */
	uint64_t count;
	enum dtype dtype;
	enum reduction reduction;
	uint32_t block_elems; /* shares are multiples of it */
	/* The callers' work, which the sum waits for, ends at these marks. */
	struct gpu_mark *marks[NODE_GPUS_MAX];
};

/* A range of elements in a tensor, or in such a range. */
struct node_share {
	uint64_t first, count;
};

/* Share `rank` of `world` equal ones of `count` elements, in whole blocks; the last has the rest. */
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
	int (*id)(char *id, struct why *why);
	int (*open)(const struct node_setup *setup, struct node_gpus **out, struct why *why);

	/* Scatters the node's sum of this range, a share for each GPU, or gathers all its shares. */
	int (*step)(struct node_gpus *gpus, const struct node_task *task, struct node_share range,
	            bool scatter, struct why *why);

	/* The node's stream. Work that follows a scatter in it finds the share in recv. */
	void *(*stream)(struct node_gpus *gpus, uint32_t index);

	/* Returns the highest enum node_state of all GPUs, or -EIO. */
	int (*look)(struct node_gpus *gpus, struct why *why);

	/* Aborts unfinished work. */
	void (*close)(struct node_gpus *gpus);
};

extern const struct node_calls nccl_node;

#endif /* KERNELS_NODE_H */
