// SPDX-License-Identifier: BSD-3-Clause
/* fake_work.c - reductions over shared memory, in step with the other ranks */

#include <string.h>
#include <time.h>

#include "tests/gpu/emulated/emulated.h"
#include "tests/gpu/fake_nccl.h"

/* ---- arithmetic: what is narrower than f32 is added up in f32 ---- */

__extension__ typedef _Float16 half;

static float from_bf16(uint16_t bits)
{
	uint32_t wide = (uint32_t)bits << 16;
	float value;

	memcpy(&value, &wide, sizeof(value));
	return value;
}

/* To nearest, ties to even; NaN stays one. */
static uint16_t to_bf16(float value)
{
	uint32_t wide;

	memcpy(&wide, &value, sizeof(wide));
	return value != value ? (uint16_t)(wide >> 16 | 0x40)
	                      : (uint16_t)((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
}

/*
 * The reduction of all ranks' [i], of elements that are `element` in memory and `wide` meanwhile.
 */
#define REDUCE_AS(name, element, wide, load, keep)                                                 \
	static void name(const struct shared *from, int world, ncclRedOp_t op, size_t count,       \
	                 void *out)                                                                \
	{                                                                                          \
		for (size_t i = 0; i < count; i++) {                                               \
			wide all = load(((const element *)(const void *)from->data[0])[i]);        \
			for (int rank = 1; rank < world; rank++) {                                 \
				wide x = load(                                                     \
					((const element *)(const void *)from->data[rank])[i]);     \
				all = op == ncclProd  ? all * x                                    \
				      : op == ncclMax ? (all > x ? all : x)                        \
				      : op == ncclMin ? (all < x ? all : x)                        \
				                      : all + x;                                   \
			}                                                                          \
			((element *)out)[i] = keep(op == ncclAvg ? all / (wide)world : all);       \
		}                                                                                  \
	}
REDUCE_AS(reduce_f16, half, float, (float), (half))
REDUCE_AS(reduce_bf16, uint16_t, float, from_bf16, to_bf16)
REDUCE_AS(reduce_f32, float, float, , )
REDUCE_AS(reduce_f64, double, double, , )
REDUCE_AS(reduce_i32, int32_t, int32_t, , )
REDUCE_AS(reduce_i64, int64_t, int64_t, , )

static const struct {
	size_t bytes;
	void (*reduce)(const struct shared *from, int world, ncclRedOp_t op, size_t count,
	               void *out);
} types[] = {
	[ncclInt32] = {4, reduce_i32},   [ncclInt64] = {8, reduce_i64},
	[ncclFloat16] = {2, reduce_f16}, [ncclFloat32] = {4, reduce_f32},
	[ncclFloat64] = {8, reduce_f64}, [ncclBfloat16] = {2, reduce_bf16},
};

/* ---- in step ---- */

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

/* All ranks' `send`, reduced, into root's `recv`; or root's into everybody's. */
static bool step(const struct operation *op, const unsigned char *send, unsigned char *recv,
                 int root, bool reduces)
{
	ncclComm_t comm = op->comm;
	const size_t each = types[op->type].bytes, most = CHUNK_BYTES / each;

	for (size_t at = 0; at < op->count; at += most) {
		size_t part = op->count - at < most ? op->count - at : most;

		if (reduces || comm->rank == root)
			memcpy(comm->shared->data[comm->rank], send + at * each, part * each);
		if (!barrier(comm))
			return false;
		if (reduces && comm->rank == root)
			types[op->type].reduce(comm->shared, comm->world, op->reduction, part,
			                       recv + at * each);
		else if (!reduces)
			memcpy(recv + at * each, comm->shared->data[root], part * each);
		if (!barrier(comm))
			return false;
	}
	return true;
}

void fake_perform(const struct operation *op)
{
	const bool reduces = op->kind == REDUCE_SCATTER || op->kind == REDUCE;
	const bool all = op->kind == REDUCE_SCATTER || op->kind == ALL_GATHER;
	const size_t bytes = op->count * types[op->type].bytes;
	bool going = !fake_given_up(op->comm);

	if (!all && going)
		(void)step(op, op->send, op->recv, op->root, reduces);
	for (int root = 0; all && root < op->comm->world && going; root++)
		going = step(op, op->send + (reduces ? (size_t)root * bytes : 0),
		             op->recv + (reduces ? 0 : (size_t)root * bytes), root, reduces);
}
