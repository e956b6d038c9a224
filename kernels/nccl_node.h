/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nccl_node.h - the GPUs of a node, private to nccl*.c; see node.h
 *
 * Two communicators, one for each step: in a communicator operations run in the order of their
 * calls, so the first step of the next operation would wait for the network of this one.
 *
 * Communicators do not block: NCCL itself waits for ever for a rank that is gone.
 */
#ifndef KERNELS_NCCL_NODE_H
#define KERNELS_NCCL_NODE_H

#include "kernels/nccl_library.h"

/* One GPU of this process. */
struct node_gpu {
	int device;
	ncclComm_t scatter, gather;
	cudaStream_t streams[NODE_TURNS];
	cudaEvent_t ready[NODE_TURNS]; /* what the caller's stream held */
	cudaEvent_t over[NODE_TURNS];
	cudaStream_t last; /* of all gather() whose callers' streams go on */
};

struct node_gpus {
	uint32_t world, rank, count;
	bool (*given_up)(void *context);
	void *context;
	struct node_gpu gpu[NODE_GPUS_MAX]; /* [count] */
};

typedef ncclComm_t (*which_comm)(const struct node_gpu *gpu);

ncclComm_t which_scatter(const struct node_gpu *gpu);
ncclComm_t which_gather(const struct node_gpu *gpu);

/*
 * settle - wait until NCCL has put into the streams what it was asked for: only then may more
 * be put there. `call` is the name for errors. 0, -EIO, -ECANCELED.
 */
int settle(struct node_gpus *gpus, which_comm which, const char *call, char *why);

/* Of struct node_calls. */
int nccl_make_id(char *id, char *why);
int nccl_open_gpus(const struct node_setup *setup, struct node_gpus **out, char *why);
void nccl_abort(struct node_gpus *gpus);
void nccl_close_gpus(struct node_gpus *gpus);

#endif /* KERNELS_NCCL_NODE_H */
