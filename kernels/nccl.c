// SPDX-License-Identifier: BSD-3-Clause
/*
 * nccl.c - see node.h: reduce-scatter and all-gather inside a node; only nccl*.c use NCCL
 *
 * Each GPU has one communicator and one stream, because operations of two communicators that run at
 * the same time may wait for each other; within one, NCCL runs them in the order of their calls.
 * Communicators are non-blocking, because NCCL waits for ever for a dead rank.
 */

#include <errno.h>
#include <stdio.h>

#include "kernels/node.h"

#if __has_include(<nccl.h>)

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/nccl_library.h"

#define SETTLE_SPINS 2000
#define FINALIZE_MS 2000

/* One GPU of this process. */
struct node_gpu {
	int device;
	ncclComm_t comm;
	cudaStream_t stream;
	cudaEvent_t notes[NODE_NOTES];
};

struct node_gpus {
	uint32_t world, rank, count;
	bool (*given_up)(void *context);
	void *context;
	struct node_gpu gpu[NODE_GPUS_MAX]; /* [count] */
};

/* The state of a caller's thread, restored by leave(): its GPU and its capture mode. */
struct visit {
	int device;
	enum cudaStreamCaptureMode mode;
};

/* The first GPU of ours comes first: any other call makes a context wherever the thread is. */
static int enter(const struct node_gpus *gpus, struct visit *before, struct why *why)
{
	int err = 0;

	*before = (struct visit){.mode = cudaStreamCaptureModeRelaxed};
	TRY_CUDA(err, gpus->gpu[0].device, cudaGetDevice, (&before->device));
	TRY_CUDA(err, gpus->gpu[0].device, cudaSetDevice, (gpus->gpu[0].device));
	if (err == 0)
		(void)cudaThreadExchangeStreamCaptureMode(&before->mode);
	return err;
}

static void leave(struct visit *before)
{
	(void)cudaThreadExchangeStreamCaptureMode(&before->mode);
	(void)cudaSetDevice(before->device);
	(void)cudaGetLastError();
}

/* The node's own thread stays where it was last: to go back would make a context there. */
static int use(const struct node_gpus *gpus, struct why *why)
{
	struct visit ignored;

	return enter(gpus, &ignored, why);
}

/*
 * Wait until NCCL has put its work into the streams; before that no other work may follow it.
 * `call` names the call in errors. 0, -EIO, -ECANCELED.
 */
static int settle(struct node_gpus *gpus, const char *call, struct why *why)
{
	for (uint32_t i = 0; i < gpus->count; i++) {
		const struct node_gpu *gpu = &gpus->gpu[i];
		ncclResult_t result = ncclInProgress;
		int err = 0;

		for (unsigned spins = 0; result == ncclInProgress; spins++) {
			TRY_NCCL(err, gpu->device, CommGetAsyncError, (gpu->comm, &result));
			if (err != 0)
				return err;
			if (result == ncclInProgress && gpus->given_up(gpus->context))
				return why_set(why, -ECANCELED,
				               "%s on GPU %d: the node's other GPUs did not come",
				               call, gpu->device);
			if (result == ncclInProgress && spins < SETTLE_SPINS)
				sched_yield();
			else if (result == ncclInProgress)
				nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
		}
		if (result != ncclSuccess)
			return nccl_failed(why, call, gpu->device, result);
	}
	return 0;
}

/* ---- opening and closing ---- */

static int make_id(char *id, struct why *why)
{
	ncclUniqueId made;
	int err = nccl_open(why);

	TRY_NCCL(err, 0, GetUniqueId, (&made));
	if (err == 0)
		memcpy(id, &made, NODE_ID_BYTES);
	return err;
}

static int open_gpu(struct node_gpu *gpu, struct why *why)
{
	int err = 0;

	TRY_CUDA(err, gpu->device, cudaSetDevice, (gpu->device));
	TRY_CUDA(err, gpu->device, cudaStreamCreateWithFlags,
	         (&gpu->stream, cudaStreamNonBlocking));
	for (uint32_t i = 0; i < NODE_NOTES; i++)
		TRY_CUDA(err, gpu->device, cudaEventCreateWithFlags,
		         (&gpu->notes[i], cudaEventDisableTiming));
	return err;
}

static int open_comms(struct node_gpus *gpus, const char *id, struct why *why)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclUniqueId unique;
	int err = 0;

	config.blocking = 0;
	memcpy(&unique, id, NODE_ID_BYTES);
	TRY_NCCL(err, gpus->gpu[0].device, GroupStart, ());
	for (uint32_t i = 0; i < gpus->count; i++) {
		struct node_gpu *gpu = &gpus->gpu[i];

		TRY_CUDA(err, gpu->device, cudaSetDevice, (gpu->device));
		TRY_NCCL(err, gpu->device, CommInitRankConfig,
		         (&gpu->comm, (int)gpus->world, unique, (int)(gpus->rank + i), &config));
	}
	TRY_NCCL(err, gpus->gpu[0].device, GroupEnd, ());
	return err != 0 ? err : settle(gpus, "ncclCommInitRankConfig", why);
}

/*
 * Abort all in one group, which NCCL supports from 2.22 on. Aborting one alone may wait for all
 * work of its GPU, and so for ever for another communicator's.
 */
static void abort_comms(struct node_gpus *gpus)
{
	(void)nccl.GroupStart();
	for (uint32_t i = 0; i < gpus->count; i++) {
		if (gpus->gpu[i].comm != NULL)
			(void)nccl.CommAbort(gpus->gpu[i].comm);
		gpus->gpu[i].comm = NULL;
	}
	(void)nccl.GroupEnd();
	(void)cudaGetLastError();
}

/* Finalize waits for all ranks, and one may be dead: give up after FINALIZE_MS. */
static void close_comm(ncclComm_t comm)
{
	ncclResult_t result = nccl.CommFinalize(comm);

	for (int i = 0; result == ncclInProgress && i < FINALIZE_MS * 10; i++) {
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
		if (nccl.CommGetAsyncError(comm, &result) != ncclSuccess)
			break;
	}
	if (result == ncclSuccess)
		(void)nccl.CommDestroy(comm);
	else
		(void)nccl.CommAbort(comm);
}

static void close_gpus(struct node_gpus *gpus)
{
	struct visit before;
	struct why why;

	if (enter(gpus, &before, &why) == 0) {
		for (uint32_t i = 0; i < gpus->count; i++) {
			struct node_gpu *gpu = &gpus->gpu[i];

			(void)cudaSetDevice(gpu->device);
			if (gpu->comm != NULL)
				close_comm(gpu->comm);
			if (gpu->stream != NULL)
				(void)cudaStreamDestroy(gpu->stream);
			for (uint32_t n = 0; n < NODE_NOTES && gpu->notes[n] != NULL; n++)
				(void)cudaEventDestroy(gpu->notes[n]);
		}
		leave(&before);
	}
	free(gpus);
}

static int open_gpus(const struct node_setup *setup, struct node_gpus **out, struct why *why)
{
	struct node_gpus *gpus;
	struct visit before;
	int err = nccl_open(why);

	if (err != 0)
		return err;
	gpus = calloc(1, sizeof(*gpus));
	if (gpus == NULL)
		return why_set(why, -ENOMEM, "out of memory");
	gpus->world = setup->world;
	gpus->rank = setup->rank;
	gpus->count = setup->count;
	gpus->given_up = setup->given_up;
	gpus->context = setup->context;
	for (uint32_t i = 0; i < gpus->count; i++)
		gpus->gpu[i].device = setup->devices[i];
	err = enter(gpus, &before, why);
	if (err != 0) {
		free(gpus);
		return err;
	}
	for (uint32_t i = 0; i < gpus->count && err == 0; i++)
		err = open_gpu(&gpus->gpu[i], why);
	if (err == 0)
		err = open_comms(gpus, setup->id, why);
	leave(&before);
	if (err != 0) {
		abort_comms(gpus);
		close_gpus(gpus);
		return err;
	}
	*out = gpus;
	return 0;
}

/* ---- operations ---- */

static ncclDataType_t type_of(enum dtype dtype)
{
	static const ncclDataType_t types[] = {
		[DTYPE_F32] = ncclFloat32, [DTYPE_F16] = ncclFloat16, [DTYPE_BF16] = ncclBfloat16,
		[DTYPE_F64] = ncclFloat64, [DTYPE_I32] = ncclInt32,   [DTYPE_I64] = ncclInt64,
	};

	return types[dtype];
}

static ncclRedOp_t op_of(enum reduction reduction)
{
	static const ncclRedOp_t ops[] = {
		[REDUCE_SUM] = ncclSum, [REDUCE_AVG] = ncclAvg,   [REDUCE_MIN] = ncclMin,
		[REDUCE_MAX] = ncclMax, [REDUCE_PROD] = ncclProd,
	};

	return ops[reduction];
}

static int note(struct node_gpus *gpus, uint32_t number, void *const *streams, struct why *why)
{
	struct visit before;
	int err = enter(gpus, &before, why);

	if (err != 0)
		return err;
	for (uint32_t i = 0; i < gpus->count; i++) {
		struct node_gpu *gpu = &gpus->gpu[i];

		TRY_CUDA(err, gpu->device, cudaSetDevice, (gpu->device));
		TRY_CUDA(err, gpu->device, cudaEventRecord, (gpu->notes[number], streams[i]));
	}
	leave(&before);
	return err;
}

static int after(struct node_gpus *gpus, uint32_t number, struct why *why)
{
	int err = use(gpus, why);

	for (uint32_t i = 0; i < gpus->count; i++) {
		struct node_gpu *gpu = &gpus->gpu[i];

		TRY_CUDA(err, gpu->device, cudaSetDevice, (gpu->device));
		TRY_CUDA(err, gpu->device, cudaStreamWaitEvent,
		         (gpu->stream, gpu->notes[number], 0));
	}
	return err;
}

/* One GPU's part of a step. The last GPU also gets the remainder. */
static int step_one(struct node_gpus *gpus, uint32_t index, const struct node_task *task,
                    bool scatter, struct why *why)
{
	struct node_gpu *gpu = &gpus->gpu[index];
	const uint64_t each = node_share(task->count, task->block_elems, gpus->world, 0).count;
	const uint64_t rest = task->count - each * gpus->world;
	const size_t bytes = dtype_bytes(task->dtype);
	const uint8_t *send = (const uint8_t *)task->send[index] + task->first * bytes;
	uint8_t *recv = (uint8_t *)task->recv[index] + task->first * bytes;
	uint8_t *own = recv + (gpus->rank + index) * each * bytes;
	const uint64_t rest_at = each * gpus->world * bytes;
	ncclDataType_t type = type_of(task->dtype);
	ncclRedOp_t op = op_of(task->reduction);
	int last = (int)gpus->world - 1, err = 0;

	if (scatter && each > 0)
		TRY_NCCL(err, gpu->device, ReduceScatter,
		         (send, own, each, type, op, gpu->comm, gpu->stream));
	if (scatter && rest > 0)
		TRY_NCCL(err, gpu->device, Reduce,
		         (send + rest_at, recv + rest_at, rest, type, op, last, gpu->comm,
		          gpu->stream));
	if (!scatter && each > 0)
		TRY_NCCL(err, gpu->device, AllGather,
		         (own, recv, each, type, gpu->comm, gpu->stream));
	if (!scatter && rest > 0)
		TRY_NCCL(
			err, gpu->device, Broadcast,
			(recv + rest_at, recv + rest_at, rest, type, last, gpu->comm, gpu->stream));
	return err;
}

/* For all GPUs of this process at once, as NCCL wants it. */
static int step(struct node_gpus *gpus, const struct node_task *task, bool scatter, struct why *why)
{
	struct why ignored, *end_why = why;
	int err = 0, end = 0;

	TRY_NCCL(err, gpus->gpu[0].device, GroupStart, ());
	if (err != 0)
		return err;
	for (uint32_t i = 0; i < gpus->count && err == 0; i++)
		err = step_one(gpus, i, task, scatter, why);
	/* End the group even after an error; keep the first explanation. */
	if (err != 0)
		why = &ignored;
	TRY_NCCL(end, gpus->gpu[0].device, GroupEnd, ());
	if (err != 0 || end != 0)
		return err != 0 ? err : end;
	return settle(gpus, scatter ? "ncclReduceScatter" : "ncclAllGather", end_why);
}

static int scatter(struct node_gpus *gpus, const struct node_task *task, struct why *why)
{
	int err = use(gpus, why);

	return err != 0 ? err : step(gpus, task, true, why);
}

static int gather(struct node_gpus *gpus, const struct node_task *task, struct why *why)
{
	int err = use(gpus, why);

	return err != 0 ? err : step(gpus, task, false, why);
}

static void *stream_of(struct node_gpus *gpus, uint32_t index)
{
	return gpus->gpu[index].stream;
}

/* ---- looking ---- */

static int look_gpu(const struct node_gpu *gpu, struct why *why)
{
	ncclResult_t result = ncclSuccess;
	cudaError_t state;
	int err = 0;

	TRY_CUDA(err, gpu->device, cudaSetDevice, (gpu->device));
	if (err != 0)
		return err;
	state = cudaStreamQuery(gpu->stream);
	if (state != cudaErrorNotReady && state != cudaSuccess)
		return cuda_failed(why, "cudaStreamQuery", gpu->device, state);
	if (gpu->comm != NULL)
		TRY_NCCL(err, gpu->device, CommGetAsyncError, (gpu->comm, &result));
	if (err == 0 && result != ncclSuccess && result != ncclInProgress)
		err = nccl_failed(why, "ncclCommGetAsyncError", gpu->device, result);
	return err != 0 ? err : state == cudaErrorNotReady;
}

static int look(struct node_gpus *gpus, struct why *why)
{
	int state = use(gpus, why);

	for (uint32_t i = 0; i < gpus->count && state >= 0; i++) {
		int one = look_gpu(&gpus->gpu[i], why);

		state = one != 0 ? one : state;
	}
	return state;
}

__attribute__((visibility("default"))) extern const struct node_calls winnow_node_gpus;
const struct node_calls winnow_node_gpus = {
	.version = WINNOW_VERSION,
	.id = make_id,
	.open = open_gpus,
	.note = note,
	.after = after,
	.scatter = scatter,
	.gather = gather,
	.stream = stream_of,
	.look = look,
	.abort = abort_comms,
	.close = close_gpus,
};

#else /* a build without NCCL's header, but with everything else that needs CUDA */

static int make_id(char *id, struct why *why)
{
	(void)id;
	return why_set(why, -ENOENT, "this build knows no NCCL: its header was not there");
}

static int open_gpus(const struct node_setup *setup, struct node_gpus **out, struct why *why)
{
	(void)setup, (void)out;
	return make_id(NULL, why);
}

__attribute__((visibility("default"))) extern const struct node_calls winnow_node_gpus;
const struct node_calls winnow_node_gpus = {
	.version = WINNOW_VERSION,
	.id = make_id,
	.open = open_gpus,
};

#endif
