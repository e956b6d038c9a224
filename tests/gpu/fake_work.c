// SPDX-License-Identifier: BSD-3-Clause
/* fake_work.c - reductions over shared memory, in step with the other ranks */

#include <string.h>
#include <time.h>

#include "tests/gpu/emulated/emulated.h"
#include "tests/gpu/fake_nccl.h"
#include "tests/gpu/fake_reduce.h"

void fake_nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

bool fake_given_up(ncclComm_t comm)
{
	return atomic_load(&comm->aborted) || emulated_cuda_sticky(comm->device) != cudaSuccess;
}

/* Wait for all ranks to get here. False: nobody waits any more. */
static bool barrier(ncclComm_t comm)
{
	uint64_t here = ++comm->step;

	atomic_store(&comm->shared->steps[comm->rank], here);
	for (int rank = 0; rank < comm->world; rank++)
		while (atomic_load(&comm->shared->steps[rank]) < here) {
			if (fake_given_up(comm))
				return false;
			fake_nap();
		}
	return true;
}

/* The reduction of all ranks' `send` into root's `recv`. */
static bool reduce(const struct operation *op, const unsigned char *send, unsigned char *recv,
                   int root)
{
	ncclComm_t comm = op->comm;
	struct shared *shared = comm->shared;
	size_t most = CHUNK_BYTES / op->elem_bytes;

	for (size_t at = 0; at < op->count; at += most) {
		size_t part = op->count - at < most ? op->count - at : most;
		size_t bytes = part * op->elem_bytes, offset = at * op->elem_bytes;

		memcpy(shared->data[comm->rank], send + offset, bytes);
		if (!barrier(comm))
			return false;
		if (comm->rank == root) {
			const void *parts[RANKS_MAX];

			for (int rank = 0; rank < comm->world; rank++)
				parts[rank] = shared->data[rank];
			fake_reduce(op->type, op->reduction, parts, (unsigned)comm->world, part,
			            recv + offset);
		}
		if (!barrier(comm))
			return false;
	}
	return true;
}

static bool broadcast(const struct operation *op, const unsigned char *send, unsigned char *recv,
                      int root)
{
	ncclComm_t comm = op->comm;
	unsigned char *data = comm->shared->data[root];
	size_t total = op->count * op->elem_bytes;

	for (size_t at = 0; at < total; at += CHUNK_BYTES) {
		size_t bytes = total - at < CHUNK_BYTES ? total - at : CHUNK_BYTES;

		if (comm->rank == root)
			memcpy(data, send + at, bytes);
		if (!barrier(comm))
			return false;
		if (comm->rank != root || send != recv)
			memcpy(recv + at, data, bytes);
		if (!barrier(comm))
			return false;
	}
	return true;
}

bool fake_perform(const struct operation *op)
{
	size_t bytes = op->count * op->elem_bytes;
	bool ok = true;

	switch (op->kind) {
	case REDUCE_SCATTER:
		for (int root = 0; root < op->comm->world && ok; root++)
			ok = reduce(op, op->send + (size_t)root * bytes, op->recv, root);
		return ok;
	case REDUCE:
		return reduce(op, op->send, op->recv, op->root);
	case ALL_GATHER:
		for (int root = 0; root < op->comm->world && ok; root++)
			ok = broadcast(op, op->send, op->recv + (size_t)root * bytes, root);
		return ok;
	default:
		return broadcast(op, op->send, op->recv, op->root);
	}
}
