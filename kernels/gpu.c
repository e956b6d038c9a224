// SPDX-License-Identifier: BSD-3-Clause
/* gpu.c - see gpu.h: the communicator's table, implemented with CUDA */

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda_call.h"
#include "kernels/cuda_kernels.h"

struct gpu {
	int device, processors;
	cudaStream_t out, in, rest;
	struct gpu_memory memory;
	uint32_t *tickets; /* on the device: one for each direction of copies */
	pthread_mutex_t lock;
	cudaEvent_t event; /* of follow(), under the lock */
};

/* ---- errors ---- */

static int no_device(struct why *why, cudaError_t err)
{
	int version = 0;

	(void)cudaGetLastError();
	if (err == cudaErrorNoDevice)
		return why_set(why, -ENODEV, "there is no GPU here");
	if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0)
		return why_set(why, -ENODEV, "there is no CUDA driver (libcuda.so.1) here");
	if (err == cudaErrorInsufficientDriver)
		return why_set(
			why, -ENODEV,
			"the driver is for CUDA %d.%d, winnow-cuda.so was built with %d.%d: it "
			"needs a newer driver or a build with an older CUDA",
			version / 1000, version % 1000 / 10, CUDART_VERSION / 1000,
			CUDART_VERSION % 1000 / 10);
	return why_set(why, -ENODEV, "cudaGetDeviceCount: %s", cudaGetErrorString(err));
}

/* ---- a thread's GPU ---- */

/* A function of the driver; NULL: it does not exist. */
static void *driver_call(const char *name)
{
	void *call = NULL;
	cudaError_t err;

#if CUDART_VERSION >= 12050
	enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSuccess;

	err = cudaGetDriverEntryPointByVersion(name, &call, 12000, cudaEnableDefault, &found);
	if (found != cudaDriverEntryPointSuccess)
		call = NULL;
#elif CUDART_VERSION >= 12000
	err = cudaGetDriverEntryPoint(name, &call, cudaEnableDefault, NULL);
#else
	err = cudaGetDriverEntryPoint(name, &call, cudaEnableDefault);
#endif
	if (err == cudaSuccess)
		return call;
	(void)cudaGetLastError();
	return NULL;
}

/* The state of a caller's thread, restored by leave(). */
struct visit {
	int device;
	CUcontext context; /* the thread may have made one of its own */
	enum cudaStreamCaptureMode mode;
};

/*
 * Switch the thread to our device and to relaxed capture mode. In the other modes, while another
 * thread captures a graph, even cudaStreamQuery() fails and invalidates the capture.
 */
static int enter(int device, struct visit *before, struct why *why)
{
	CUresult (*current)(CUcontext *);
	void *call;
	int err = 0;

	*before = (struct visit){.device = device, .mode = cudaStreamCaptureModeRelaxed};
	TRY_CUDA(err, device, cudaGetDevice, (&before->device));
	if (err == 0 && before->device != device) {
		call = driver_call("cuCtxGetCurrent");
		memcpy(&current, &call, sizeof(call));
		if (current != NULL)
			(void)current(&before->context);
		TRY_CUDA(err, device, cudaSetDevice, (device));
	}
	/* Not earlier, because this call creates a context on the thread's current GPU. */
	if (err == 0)
		(void)cudaThreadExchangeStreamCaptureMode(&before->mode);
	return err;
}

static void leave(int device, struct visit *before)
{
	CUresult (*set)(CUcontext);
	void *call;

	(void)cudaThreadExchangeStreamCaptureMode(&before->mode);
	if (before->device == device)
		return;
	call = driver_call("cuCtxSetCurrent");
	memcpy(&set, &call, sizeof(call));
	(void)cudaSetDevice(before->device);
	if (set != NULL && before->context != NULL)
		(void)set(before->context);
}

/* The communicator's thread: it stays where it was last. */
static int use(const struct gpu *gpu, struct why *why)
{
	struct visit ignored;

	return enter(gpu->device, &ignored, why);
}

/* ---- what callers have ---- */

static int locate(const void *memory, int *device, struct why *why)
{
	static atomic_bool there;
	struct cudaPointerAttributes found;
	cudaError_t state = cudaSuccess;
	int count = 0, current = -1, err = 0;

	/* Once a GPU has been found, an error here means that a GPU has failed since. */
	if (!atomic_load(&there))
		state = cudaGetDeviceCount(&count);
	if (!atomic_load(&there) && (state != cudaSuccess || count == 0))
		return no_device(why, state != cudaSuccess ? state : cudaErrorNoDevice);
	atomic_store(&there, true);
	TRY_CUDA(err, -1, cudaGetDevice, (&current));
	if (err == 0 && memory == NULL)
		*device = current;
	if (err != 0 || memory == NULL)
		return err;
	/* Fails mostly for what was done before, on the thread's GPU. */
	TRY_CUDA(err, current, cudaPointerGetAttributes, (&found, memory));
	if (err != 0)
		return err;
	if (found.type != cudaMemoryTypeDevice && found.type != cudaMemoryTypeManaged)
		return why_set(why, -EINVAL, "a buffer is not in the memory of a GPU");
	*device = found.device;
	return 0;
}

/* Is it part of a capture, also by way of the legacy stream, which waits for those that are? */
static int is_captured(int device, cudaStream_t stream, bool *out, struct why *why)
{
	enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
	cudaError_t state = cudaStreamIsCapturing(stream, &capture);
	int err = 0;

	*out = state == cudaErrorStreamCaptureImplicit || capture != cudaStreamCaptureStatusNone;
	if (state == cudaErrorStreamCaptureImplicit)
		(void)cudaGetLastError();
	else
		TRY_CUDA_AS(err, device, "cudaStreamIsCapturing", state);
	return err;
}

/* Find the stream's GPU. Before CUDA 12.8 there is no such call, so *device stays the caller's. */
static cudaError_t device_of(cudaStream_t stream, int *device)
{
#if CUDART_VERSION >= 12080
	return cudaStreamGetDevice(stream, device);
#else
	(void)stream;
	(void)device;
	return cudaSuccess;
#endif
}

static int admit(int device, void *stream, struct why *why)
{
	struct visit before;
	bool captured = false;
	int of = device, err = enter(device, &before, why);

	if (err != 0)
		return err;
	err = is_captured(device, stream, &captured, why);
	if (stream != NULL && !captured)
		TRY_CUDA_AS(err, device, "cudaStreamGetDevice", device_of(stream, &of));
	leave(device, &before);
	if (err == 0 && captured)
		return why_set(
			why, -EINVAL,
			"the stream is being captured: an allreduce cannot be part of a CUDA "
			"graph");
	if (err == 0 && of != device)
		return why_set(why, -EINVAL,
		               "the buffers are on GPU %d, and the stream is on GPU %d", device,
		               of);
	return err;
}

/* ---- opening ---- */

/* Frames come before other work, since workers wait for them; a scan is work like any other. */
static int open_streams(struct gpu *gpu, struct why *why)
{
	const int device = gpu->device;
	int least = 0, greatest = 0, err = 0;

	TRY_CUDA(err, device, cudaDeviceGetStreamPriorityRange, (&least, &greatest));
	TRY_CUDA(err, device, cudaStreamCreateWithPriority,
	         (&gpu->out, cudaStreamNonBlocking, greatest));
	TRY_CUDA(err, device, cudaStreamCreateWithPriority,
	         (&gpu->in, cudaStreamNonBlocking, greatest));
	TRY_CUDA(err, device, cudaStreamCreateWithPriority, (&gpu->rest, cudaStreamNonBlocking, 0));
	TRY_CUDA(err, device, cudaEventCreateWithFlags, (&gpu->event, cudaEventDisableTiming));
	return err;
}

/* A kernel, or CUDA's own that fills memory, is loaded when it is first used, which may wait. */
static int open_all(struct gpu *gpu, struct why *why)
{
	struct gpu_memory *memory = &gpu->memory;
	const int device = gpu->device;
	int err = open_streams(gpu, why);

	TRY_CUDA(err, device, cudaDeviceGetAttribute,
	         (&gpu->processors, cudaDevAttrMultiProcessorCount, device));
	TRY_CUDA_AS(err, device, "cudaFuncGetAttributes", cuda_load());
	TRY_CUDA(err, device, cudaHostAlloc,
	         ((void **)&memory->pinned, memory->pinned_bytes,
	          cudaHostAllocPortable | cudaHostAllocMapped));
	if (err == 0)
		memset(memory->pinned, 0, memory->pinned_bytes);
	TRY_CUDA(err, device, cudaMalloc,
	         ((void **)&memory->device, memory->device_bytes + 2 * sizeof(uint32_t)));
	TRY_CUDA(err, device, cudaMemsetAsync,
	         (memory->device, 0, memory->device_bytes + 2 * sizeof(uint32_t), gpu->in));
	TRY_CUDA(err, device, cudaStreamSynchronize, (gpu->in));
	if (err == 0)
		gpu->tickets = (uint32_t *)(void *)(memory->device + memory->device_bytes);
	return err;
}

static void gpu_close(struct gpu *gpu)
{
	cudaStream_t streams[] = {gpu->out, gpu->in, gpu->rest};
	struct why why;
	struct visit before;

	if (enter(gpu->device, &before, &why) == 0) {
		for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++)
			if (streams[i] != NULL && cudaStreamSynchronize(streams[i]) == cudaSuccess)
				(void)cudaStreamDestroy(streams[i]);
		if (gpu->event != NULL)
			(void)cudaEventDestroy(gpu->event);
		(void)cudaFree(gpu->memory.device);
		(void)cudaFreeHost(gpu->memory.pinned);
		(void)cudaGetLastError();
		leave(gpu->device, &before);
	}
	pthread_mutex_destroy(&gpu->lock);
	free(gpu);
}

static int gpu_open(int device, struct gpu_memory *memory, struct gpu **out, struct why *why)
{
	struct gpu *gpu = calloc(1, sizeof(*gpu));
	struct visit before;
	int err;

	if (gpu == NULL)
		return why_set(why, -ENOMEM, "out of memory");
	gpu->device = device;
	gpu->memory.pinned_bytes = memory->pinned_bytes;
	gpu->memory.device_bytes = (memory->device_bytes + 3) / 4 * 4;
	pthread_mutex_init(&gpu->lock, NULL);
	err = enter(device, &before, why);
	if (err == 0) {
		err = open_all(gpu, why);
		leave(device, &before);
	}
	if (err != 0) {
		gpu_close(gpu);
		return err;
	}
	memory->pinned = gpu->memory.pinned;
	memory->device = gpu->memory.device;
	*out = gpu;
	return 0;
}

/* ---- work ---- */

static int scan_in(const struct gpu *gpu, const struct gpu_scan *what, cudaStream_t stream,
                   struct why *why)
{
	int err = 0;

	if (what->clear != NULL)
		TRY_CUDA(err, gpu->device, cudaMemsetAsync,
		         (what->clear, 0, what->clear_bytes, stream));
	TRY_CUDA_AS(err, gpu->device, "cudaLaunchKernel",
	            cuda_scan(what, (uint32_t)gpu->processors, stream));
	return err;
}

static int scan(struct gpu *gpu, const struct gpu_scan *what, void *stream, struct why *why)
{
	struct visit before;
	int err = enter(gpu->device, &before, why);

	if (err != 0)
		return err;
	err = scan_in(gpu, what, stream, why);
	leave(gpu->device, &before);
	return err;
}

static int scan_later(struct gpu *gpu, const struct gpu_scan *what, struct why *why)
{
	int err = use(gpu, why);

	return err != 0 ? err : scan_in(gpu, what, gpu->rest, why);
}

static int copy(struct gpu *gpu, const struct gpu_copy *what, struct why *why)
{
	int err = use(gpu, why);

	TRY_CUDA_AS(err, gpu->device, "cudaLaunchKernel",
	            cuda_copy(what, GPU_BUS_CTAS, &gpu->tickets[what->out],
	                      what->out ? gpu->out : gpu->in));
	return err;
}

static int follow(struct gpu *gpu, void *stream, struct why *why)
{
	struct visit before;
	int err = enter(gpu->device, &before, why);

	if (err != 0)
		return err;
	pthread_mutex_lock(&gpu->lock);
	TRY_CUDA(err, gpu->device, cudaEventRecord, (gpu->event, gpu->in));
	TRY_CUDA(err, gpu->device, cudaStreamWaitEvent, (stream, gpu->event, 0));
	pthread_mutex_unlock(&gpu->lock);
	leave(gpu->device, &before);
	return err;
}

static int check(struct gpu *gpu, struct why *why)
{
	cudaStream_t streams[] = {gpu->out, gpu->in, gpu->rest};
	int err = use(gpu, why);

	for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {
		cudaError_t state = err == 0 ? cudaStreamQuery(streams[i]) : cudaErrorNotReady;

		if (state != cudaErrorNotReady)
			TRY_CUDA_AS(err, gpu->device, "cudaStreamQuery", state);
	}
	return err;
}

__attribute__((visibility("default"))) const struct gpu_calls winnow_gpu = {
	.version = WINNOW_VERSION,
	.locate = locate,
	.admit = admit,
	.open = gpu_open,
	.close = gpu_close,
	.scan = scan,
	.scan_later = scan_later,
	.copy = copy,
	.follow = follow,
	.check = check,
};
