// SPDX-License-Identifier: BSD-3-Clause
/*
 * nccl.c - see node.h: reduce-scatter and all-gather inside a node; the only file that uses NCCL
 *
 * Each GPU has one communicator and one stream, because operations of two communicators that run at
 * the same time may wait for each other; within one, NCCL runs them in the order of their calls.
 * Communicators are non-blocking, because NCCL waits for a dead rank for ever.
 */

#if __has_include(<nccl.h>) /* otherwise the build has no nodes */

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <errno.h>
#include <nccl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda_call.h"
#include "kernels/node.h"

#define NCCL_OLDEST 21800 /* for ncclCommSplit */

/* Arrays have setup.count entries, like setup.devices. */
struct node_gpus {
	struct node_setup setup;
	ncclComm_t comm[NODE_GPUS_MAX];
	cudaStream_t stream[NODE_GPUS_MAX];
};

/* ---- NCCL's functions, loaded at run time ---- */

#define NCCL_CALLS(x)                                                                              \
	x(GetVersion) x(GetUniqueId) x(GetErrorString) x(CommInitRankConfig) x(CommAbort)          \
		x(CommGetAsyncError) x(ReduceScatter) x(Reduce) x(AllGather) x(Broadcast)          \
			x(GroupStart) x(GroupEnd)

static struct {
#define NCCL_POINTER(name) __typeof__(&nccl##name) name;
	NCCL_CALLS(NCCL_POINTER)
} nccl;

static struct why nccl_why; /* why NCCL cannot be used, or "" */

/* NCCL only says that CUDA has failed. After most failures any CUDA call returns the reason. */
static int nccl_failed(struct why *why, const char *call, int device, ncclResult_t result)
{
	cudaError_t err = result == ncclUnhandledCudaError ? cudaSetDevice(device) : cudaSuccess;

	if (result == ncclUnhandledCudaError && err == cudaSuccess)
		err = cudaFree(NULL);
	if (err != cudaSuccess)
		return cuda_failed(why, call, device, err);
	(void)cudaGetLastError();
	return why_set(why, -EIO, "%s on GPU %d: %s", call, device, nccl.GetErrorString(result));
}

/* Like TRY_CUDA(). */
#define TRY_NCCL(err, device, call, arguments)                                                     \
	do {                                                                                       \
		ncclResult_t tried_ = (err) == 0 ? nccl.call arguments : ncclSuccess;              \
		if (tried_ != ncclSuccess && tried_ != ncclInProgress)                             \
			(err) = nccl_failed(why, "nccl" #call, device, tried_);                    \
	} while (0)

static void find_library(void)
{
	const char *name = secure_getenv("WINNOW_NCCL");
	void *library, *symbol = NULL;
	int version = 0;

	if (name == NULL || name[0] == '\0')
		name = "libnccl.so.2";
	library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL) {
		why_set(&nccl_why, -ENOENT, "cannot open NCCL: %.160s; set WINNOW_NCCL to its path",
		        dlerror());
		return;
	}
#define NCCL_FIND(name)                                                                            \
	symbol = dlsym(library, "nccl" #name);                                                     \
	memcpy(&nccl.name, &symbol, sizeof(symbol));                                               \
	if (symbol == NULL)                                                                        \
		why_set(&nccl_why, -ENOENT, "NCCL lacks %s", "nccl" #name);
	NCCL_CALLS(NCCL_FIND)
	if (nccl.GetVersion != NULL && nccl.GetVersion(&version) == ncclSuccess &&
	    version < NCCL_OLDEST)
		why_set(&nccl_why, -ENOENT, "NCCL has version %d.%d; want 2.18 or newer",
		        version / 10000, version / 100 % 100);
}

static int nccl_open(struct why *why)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find_library);
	*why = nccl_why;
	return why->text[0] == '\0' ? 0 : -ENOENT;
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

/* Ends a group, also after an error, whose explanation it keeps. */
static int group_end(const struct node_gpus *gpus, int err, struct why *explained)
{
	struct why ignored, *why = err == 0 ? explained : &ignored;
	int end = 0;

	TRY_NCCL(end, gpus->setup.devices[0], GroupEnd, ());
	return err != 0 ? err : end;
}

/* Opens the node's streams and NCCL's communicators. */
static int open_all(struct node_gpus *gpus, struct why *why)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclUniqueId unique;
	int err = cuda_enter(gpus->setup.devices[0], NULL, why);

	config.blocking = 0;
	memcpy(&unique, gpus->setup.id, NODE_ID_BYTES);
	TRY_NCCL(err, gpus->setup.devices[0], GroupStart, ());
	if (err != 0)
		return err;
	for (uint32_t i = 0; i < gpus->setup.count; i++) {
		const int device = gpus->setup.devices[i];

		TRY_CUDA(err, device, cudaSetDevice, (device));
		TRY_CUDA(err, device, cudaStreamCreateWithFlags,
		         (&gpus->stream[i], cudaStreamNonBlocking));
		TRY_NCCL(err, device, CommInitRankConfig,
		         (&gpus->comm[i], (int)gpus->setup.world, unique,
		          (int)(gpus->setup.rank + i), &config));
	}
	return group_end(gpus, err, why);
}

/*
 * Finalizing would wait for dead ranks. NCCL 2.22 and newer can abort all communicators in one
 * group. Aborting one alone may wait for all work of its GPU, and so for ever for another
 * communicator's.
 */
static void close_gpus(struct node_gpus *gpus)
{
	struct cuda_visit before;
	struct why why;
	const bool entered = cuda_enter(gpus->setup.devices[0], &before, &why) == 0;

	(void)nccl.GroupStart();
	for (uint32_t i = 0; i < gpus->setup.count; i++)
		if (gpus->comm[i] != NULL)
			(void)nccl.CommAbort(gpus->comm[i]);
	(void)nccl.GroupEnd();
	for (uint32_t i = 0; i < gpus->setup.count; i++)
		if (gpus->stream[i] != NULL && cudaSetDevice(gpus->setup.devices[i]) == cudaSuccess)
			(void)cudaStreamDestroy(gpus->stream[i]);
	(void)cudaGetLastError();
	if (entered)
		cuda_leave(&before);
	free(gpus);
}

static int open_gpus(const struct node_setup *setup, struct node_gpus **out, struct why *why)
{
	struct node_gpus *gpus;
	int err = nccl_open(why);

	if (err != 0)
		return err;
	gpus = calloc(1, sizeof(*gpus));
	if (gpus == NULL)
		return why_set(why, -ENOMEM, "out of memory");
	gpus->setup = *setup;
	err = open_all(gpus, why);
	if (err == 0)
		*out = gpus;
	else
		close_gpus(gpus);
	return err;
}

/* ---- operations ---- */

static const ncclDataType_t types[] = {
	[DTYPE_F32] = ncclFloat32, [DTYPE_F16] = ncclFloat16, [DTYPE_BF16] = ncclBfloat16,
	[DTYPE_F64] = ncclFloat64, [DTYPE_I32] = ncclInt32,   [DTYPE_I64] = ncclInt64,
};

static const ncclRedOp_t ops[] = {
	[REDUCE_SUM] = ncclSum, [REDUCE_AVG] = ncclAvg,   [REDUCE_MIN] = ncclMin,
	[REDUCE_MAX] = ncclMax, [REDUCE_PROD] = ncclProd,
};

/* Runs one GPU's part of a step, after the caller's work. The last GPU also gets the remainder. */
static int step_one(struct node_gpus *gpus, uint32_t index, const struct node_task *task,
                    struct node_share range, bool scatter, struct why *why)
{
	const int device = gpus->setup.devices[index];
	ncclComm_t comm = gpus->comm[index];
	cudaStream_t stream = gpus->stream[index];
	const uint64_t each =
		node_share(range.count, task->block_elems, gpus->setup.world, 0).count;
	const uint64_t rest = range.count - each * gpus->setup.world;
	const size_t bytes = dtype_bytes(task->dtype);
	const uint8_t *send = (const uint8_t *)task->send[index] + range.first * bytes;
	uint8_t *recv = (uint8_t *)task->recv[index] + range.first * bytes;
	uint8_t *own = recv + (gpus->setup.rank + index) * each * bytes;
	const uint64_t rest_at = each * gpus->setup.world * bytes;
	ncclDataType_t type = types[task->dtype];
	ncclRedOp_t op = ops[task->reduction];
	int last = (int)gpus->setup.world - 1, err = 0;

	if (scatter) {
		TRY_CUDA(err, device, cudaSetDevice, (device));
		TRY_CUDA(err, device, cudaStreamWaitEvent,
		         (stream, (cudaEvent_t)(void *)task->marks[index], 0));
	}
	if (scatter && each > 0)
		TRY_NCCL(err, device, ReduceScatter, (send, own, each, type, op, comm, stream));
	if (scatter && rest > 0)
		TRY_NCCL(err, device, Reduce,
		         (send + rest_at, recv + rest_at, rest, type, op, last, comm, stream));
	if (!scatter && each > 0)
		TRY_NCCL(err, device, AllGather, (own, recv, each, type, comm, stream));
	if (!scatter && rest > 0)
		TRY_NCCL(err, device, Broadcast,
		         (recv + rest_at, recv + rest_at, rest, type, last, comm, stream));
	return err;
}

/* NCCL requires one group for all GPUs of this process. */
static int nccl_step(struct node_gpus *gpus, const struct node_task *task, struct node_share range,
                     bool scatter, struct why *why)
{
	int err = cuda_enter(gpus->setup.devices[0], NULL, why);

	TRY_NCCL(err, gpus->setup.devices[0], GroupStart, ());
	if (err != 0)
		return err;
	for (uint32_t i = 0; i < gpus->setup.count && err == 0; i++)
		err = step_one(gpus, i, task, range, scatter, why);
	return group_end(gpus, err, why);
}

static void *stream_of(struct node_gpus *gpus, uint32_t index)
{
	return gpus->stream[index];
}

/* ---- looking ---- */

static int look_gpu(const struct node_gpus *gpus, uint32_t index, struct why *why)
{
	const int device = gpus->setup.devices[index];
	ncclResult_t result = ncclSuccess;
	cudaError_t state = cudaSuccess;
	int err = 0;

	TRY_CUDA(err, device, cudaSetDevice, (device));
	if (err == 0)
		state = cudaStreamQuery(gpus->stream[index]);
	TRY_CUDA_AS(err, device, "cudaStreamQuery", state);
	TRY_NCCL(err, device, CommGetAsyncError, (gpus->comm[index], &result));
	if (err == 0 && result != ncclSuccess && result != ncclInProgress)
		err = nccl_failed(why, "ncclCommGetAsyncError", device, result);
	if (err != 0)
		return err;
	return result == ncclInProgress     ? NODE_SETTLES
	       : state == cudaErrorNotReady ? NODE_WORKS
	                                    : NODE_IDLE;
}

static int nccl_look(struct node_gpus *gpus, struct why *why)
{
	int state = cuda_enter(gpus->setup.devices[0], NULL, why);

	for (uint32_t i = 0; i < gpus->setup.count && state >= 0; i++) {
		int one = look_gpu(gpus, i, why);

		state = one < 0 || one > state ? one : state;
	}
	return state;
}

const struct node_calls nccl_node = {
	.id = make_id,
	.open = open_gpus,
	.step = nccl_step,
	.stream = stream_of,
	.look = nccl_look,
	.close = close_gpus,
};

#else
typedef int nccl_is_empty;
#endif
