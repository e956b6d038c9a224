// SPDX-License-Identifier: BSD-3-Clause
/* nccl.c - see node.h: reduce-scatter and all-gather inside a node; nccl*.c alone know NCCL */

#if __has_include(<nccl.h>)

#include "kernels/nccl_node.h"

#include <errno.h>
#include <stdio.h>

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

/* What a capture would record is waits, not what they wait for. */
static int refuse_capture(const struct node_gpu *gpu, void *stream, char *why)
{
	enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
	cudaError_t state;
	int err = 0;

	TRY_CUDA(err, gpu->device, cudaSetDevice, (gpu->device));
	if (err != 0)
		return err;
	state = cudaStreamIsCapturing(stream, &capture);
	/* The legacy stream's answer while one that waits for it is being captured. */
	if (state != cudaSuccess && state != cudaErrorStreamCaptureImplicit)
		return cuda_failed(why, "cudaStreamIsCapturing", gpu->device, state);
	if (state == cudaSuccess && capture == cudaStreamCaptureStatusNone)
		return 0;
	(void)cudaGetLastError();
	snprintf(why, NODE_WHY_BYTES,
	         "a stream is being captured: an allreduce cannot be part of a CUDA graph");
	return -EINVAL;
}

/* The node's stream waits for the caller's. */
static int follow(struct node_gpu *gpu, uint32_t turn, void *stream, char *why)
{
	int err = 0;

	TRY_CUDA(err, gpu->device, cudaSetDevice, (gpu->device));
	TRY_CUDA(err, gpu->device, cudaEventRecord, (gpu->ready[turn], stream));
	TRY_CUDA(err, gpu->device, cudaStreamWaitEvent, (gpu->streams[turn], gpu->ready[turn], 0));
	return err;
}

/* What does not divide by GPUs and blocks is the last one's; ranges in elements of `task`. */
struct ranges {
	uint64_t share, tail_first, tail;
	size_t bytes; /* of an element */
};

static struct ranges ranges_of(const struct node_gpus *gpus, const struct node_task *task)
{
	struct node_share first = node_share(task->count, task->block_elems, gpus->world, 0);
	struct ranges ranges = {.share = first.count, .bytes = dtype_bytes(task->dtype)};

	ranges.tail_first = ranges.share * gpus->world;
	ranges.tail = task->count - ranges.tail_first;
	return ranges;
}

static int scatter_one(struct node_gpus *gpus, uint32_t index, uint32_t turn,
                       const struct node_task *task, char *why)
{
	struct node_gpu *gpu = &gpus->gpu[index];
	struct ranges r = ranges_of(gpus, task);
	const uint8_t *send = task->send[index];
	uint8_t *recv = task->recv[index];
	ncclDataType_t type = type_of(task->dtype);
	ncclRedOp_t op = op_of(task->reduction);
	int err = 0;

	if (r.share > 0)
		TRY_NCCL(err, gpu->device, ReduceScatter,
		         (send, recv + (gpus->rank + index) * r.share * r.bytes, r.share, type, op,
		          gpu->scatter, gpu->streams[turn]));
	if (r.tail > 0)
		TRY_NCCL(err, gpu->device, Reduce,
		         (send + r.tail_first * r.bytes, recv + r.tail_first * r.bytes, r.tail,
		          type, op, (int)gpus->world - 1, gpu->scatter, gpu->streams[turn]));
	return err;
}

/* Of tasks that go on not the turn's: scatter() of a later one is in there, on some processes, before this. */
static cudaStream_t gather_stream(const struct node_gpu *gpu, uint32_t turn,
                                  const struct node_task *task)
{
	return task->goes_on ? gpu->last : gpu->streams[turn];
}

static int gather_one(struct node_gpus *gpus, uint32_t index, uint32_t turn,
                      const struct node_task *task, char *why)
{
	struct node_gpu *gpu = &gpus->gpu[index];
	struct ranges r = ranges_of(gpus, task);
	uint8_t *recv = task->recv[index], *tail = recv + r.tail_first * r.bytes;
	ncclDataType_t type = type_of(task->dtype);
	int err = 0;

	if (r.share > 0)
		TRY_NCCL(err, gpu->device, AllGather,
		         (recv + (gpus->rank + index) * r.share * r.bytes, recv, r.share, type,
		          gpu->gather, gather_stream(gpu, turn, task)));
	if (r.tail > 0)
		TRY_NCCL(err, gpu->device, Broadcast,
		         (tail, tail, r.tail, type, (int)gpus->world - 1, gpu->gather,
		          gather_stream(gpu, turn, task)));
	return err;
}

/* For all GPUs of this process at once, as NCCL wants it. */
static int grouped(struct node_gpus *gpus, uint32_t turn, const struct node_task *task,
                   int (*one)(struct node_gpus *gpus, uint32_t index, uint32_t turn,
                              const struct node_task *task, char *why),
                   char *why)
{
	char ignored[NODE_WHY_BYTES];
	int err = 0;

	TRY_NCCL(err, gpus->gpu[0].device, GroupStart, ());
	if (err != 0)
		return err;
	for (uint32_t i = 0; i < gpus->count && err == 0; i++)
		err = one(gpus, i, turn, task, why);
	/* A group that has begun has to end. */
	if (err != 0)
		why = ignored;
	int end = 0;
	TRY_NCCL(end, gpus->gpu[0].device, GroupEnd, ());
	return err != 0 ? err : end;
}

static int scatter(struct node_gpus *gpus, uint32_t turn, const struct node_task *task, char *why)
{
	int before = 0, err = 0;

	TRY_CUDA(err, gpus->gpu[0].device, cudaGetDevice, (&before));
	if (err != 0)
		return err;
	for (uint32_t i = 0; i < gpus->count && err == 0; i++)
		err = refuse_capture(&gpus->gpu[i], task->streams[i], why);
	for (uint32_t i = 0; i < gpus->count && err == 0; i++)
		err = follow(&gpus->gpu[i], turn, task->streams[i], why);
	if (err == 0)
		err = grouped(gpus, turn, task, scatter_one, why);
	if (err == 0)
		err = settle(gpus, which_scatter, "ncclReduceScatter", why);
	(void)cudaSetDevice(before);
	return err;
}

/* The caller's stream goes on, and the host gets to know. */
static int hand_back(struct node_gpu *gpu, uint32_t index, uint32_t turn,
                     const struct node_task *task, char *why)
{
	int err = 0;

	TRY_CUDA(err, gpu->device, cudaSetDevice, (gpu->device));
	if (!task->goes_on) {
		TRY_CUDA(err, gpu->device, cudaEventRecord, (gpu->over[turn], gpu->streams[turn]));
		TRY_CUDA(err, gpu->device, cudaStreamWaitEvent,
		         (task->streams[index], gpu->over[turn], 0));
	}
	if (task->done != NULL)
		TRY_CUDA(err, gpu->device, cudaLaunchHostFunc,
		         (gather_stream(gpu, turn, task), task->done, task->context));
	return err;
}

static int gather_all(struct node_gpus *gpus, uint32_t turn, const struct node_task *task,
                      char *why)
{
	int err = grouped(gpus, turn, task, gather_one, why);

	if (err == 0)
		err = settle(gpus, which_gather, "ncclAllGather", why);
	for (uint32_t i = 0; i < gpus->count && err == 0; i++)
		err = hand_back(&gpus->gpu[i], i, turn, task, why);
	return err;
}

/* A caller's thread gets its GPU back; one of ours stays at the last: see look_all(). */
static int gather(struct node_gpus *gpus, uint32_t turn, const struct node_task *task, char *why)
{
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
	int before = 0, err = 0;

	if (!task->goes_on) {
		TRY_CUDA(err, gpus->gpu[0].device, cudaGetDevice, (&before));
		err = err != 0 ? err : gather_all(gpus, turn, task, why);
		(void)cudaSetDevice(before);
		return err;
	}
	TRY_CUDA(err, gpus->gpu[0].device, cudaSetDevice, (gpus->gpu[0].device));
	if (err != 0)
		return err;
	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	err = gather_all(gpus, turn, task, why);
	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	return err;
}

static void *stream_of(struct node_gpus *gpus, uint32_t turn, uint32_t index)
{
	return gpus->gpu[index].streams[turn];
}

/* ---- looking ---- */

/* 1: something is under way. */
static int look_gpu(const struct node_gpu *gpu, char *why)
{
	const ncclComm_t comms[] = {gpu->scatter, gpu->gather};
	int err = 0, some = 0;

	TRY_CUDA(err, gpu->device, cudaSetDevice, (gpu->device));
	for (uint32_t turn = 0; turn <= NODE_TURNS && err == 0; turn++) {
		cudaStream_t stream = turn < NODE_TURNS ? gpu->streams[turn] : gpu->last;
		cudaError_t state = cudaStreamQuery(stream);

		if (state == cudaErrorNotReady)
			some = 1;
		else if (state != cudaSuccess)
			err = cuda_failed(why, "cudaStreamQuery", gpu->device, state);
	}
	for (int i = 0; i < 2 && err == 0; i++) {
		ncclResult_t result = ncclSuccess;

		if (comms[i] == NULL)
			continue;
		TRY_NCCL(err, gpu->device, CommGetAsyncError, (comms[i], &result));
		if (err == 0 && result != ncclSuccess && result != ncclInProgress)
			err = nccl_failed(why, "ncclCommGetAsyncError", gpu->device, result);
	}
	return err != 0 ? err : some;
}

/* What another thread captures into a graph meanwhile is not to be spoilt by questions. */
static int look_all(struct node_gpus *gpus, char *why)
{
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
	int err = 0, some = 0;

	/* First to a GPU of ours: the other call makes a context wherever the thread is. */
	TRY_CUDA(err, gpus->gpu[0].device, cudaSetDevice, (gpus->gpu[0].device));
	if (err != 0)
		return err;
	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	for (uint32_t i = 0; i < gpus->count && err == 0; i++) {
		int state = look_gpu(&gpus->gpu[i], why);

		err = state < 0 ? state : 0;
		some |= state > 0;
	}
	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	return err != 0 ? err : some;
}

/* The node's own thread stays at the last GPU: to go back would make a context on the first. */
static int look(struct node_gpus *gpus, char *why)
{
	int state = look_all(gpus, why);

	return state < 0 ? state : 0;
}

static bool idle(struct node_gpus *gpus)
{
	char why[NODE_WHY_BYTES];
	int before = 0, state;

	(void)cudaGetDevice(&before);
	state = look_all(gpus, why);
	(void)cudaSetDevice(before);
	return state == 0;
}

__attribute__((visibility("default"))) extern const struct node_calls winnow_node_gpus;
const struct node_calls winnow_node_gpus = {
	.version = WINNOW_VERSION,
	.id = nccl_make_id,
	.open = nccl_open_gpus,
	.scatter = scatter,
	.gather = gather,
	.stream = stream_of,
	.look = look,
	.idle = idle,
	.abort = nccl_abort,
	.close = nccl_close_gpus,
};

#else /* a build without NCCL's header: everything else that needs CUDA is there */

#include <errno.h>
#include <stdio.h>

#include "kernels/node.h"

static int make_id(char *id, char *why)
{
	(void)id;
	snprintf(why, NODE_WHY_BYTES, "this build knows no NCCL: its header was not there");
	return -ENOENT;
}

static int open_gpus(const struct node_setup *setup, struct node_gpus **out, char *why)
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
