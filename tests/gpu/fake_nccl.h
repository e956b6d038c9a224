/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fake_nccl.h - a communicator of the library that stands in for NCCL; private to fake_*.c
 */
#ifndef TESTS_GPU_FAKE_NCCL_H
#define TESTS_GPU_FAKE_NCCL_H

#include <nccl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define RANKS_MAX 16
#define CHUNK_BYTES (64u << 10)

/* What the ranks of a communicator share. */
struct shared {
	_Atomic uint32_t joined;
	_Atomic uint64_t steps[RANKS_MAX]; /* each rank's barriers so far */
	unsigned char data[RANKS_MAX][CHUNK_BYTES];
};

struct ncclComm {
	struct shared *shared;
	char name[NCCL_UNIQUE_ID_BYTES];
	int rank, world, device;
	uint64_t step;
	atomic_bool aborted, joined;
	int users;             /* the owner, and every operation that is not over: under the lock */
	_Atomic int under_way; /* operations in streams */
	_Atomic int inside;    /* threads that make calls */
	unsigned questions;    /* since operations were put off */
	ncclComm_t next;       /* of the process */
};

enum kind { REDUCE_SCATTER, REDUCE, ALL_GATHER, BROADCAST };

struct operation {
	enum kind kind;
	const unsigned char *send;
	unsigned char *recv;
	size_t count;
	ncclDataType_t type;
	ncclRedOp_t reduction;
	int root;
	ncclComm_t comm;
	cudaStream_t stream;
	struct operation *next;
};

/* fake_work.c, on the streams' threads. */
void fake_nap(void);
bool fake_given_up(ncclComm_t comm); /* aborted, or its GPU has failed */
void fake_perform(const struct operation *op);

#endif
