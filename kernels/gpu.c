// SPDX-License-Identifier: BSD-3-Clause
/* gpu.c - see gpu.h: the communicator's table, implemented with CUDA */

#include <cuda_runtime_api.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda_call.h"
#include "kernels/cuda_kernels.h"
#include "kernels/node.h"

enum { SCANS, OUT, IN, STREAMS };

struct gpu {
	int device, processors;
	cudaStream_t stream[STREAMS];
	struct gpu_memory *memory; /* owned by the caller */
	struct why *why;           /* receives the error of gpu_thread_run()'s work */
	int err;
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
		return why_set(why, -ENODEV,
		               "the driver is for CUDA %d.%d, winnow-cuda.so was built with %d.%d: "
		               "install a newer driver, or build with an older CUDA",
		               version / 1000, version % 1000 / 10, CUDART_VERSION / 1000,
		               CUDART_VERSION % 1000 / 10);
	return why_set(why, -ENODEV, "cudaGetDeviceCount: %s", cudaGetErrorString(err));
}

/* ---- what callers have ---- */

static int memory_locate(const void *memory, int *device, struct why *why)
{
	static atomic_bool there;
	struct cudaPointerAttributes found;
	cudaError_t state = cudaSuccess;
	int count = 0, current = 0, err = 0;

	/* Once a GPU has been found, an error here means that a GPU has failed since. */
	if (!atomic_load(&there))
		state = cudaGetDeviceCount(&count);
	if (!atomic_load(&there) && (state != cudaSuccess || count == 0))
		return no_device(why, state != cudaSuccess ? state : cudaErrorNoDevice);
	atomic_store(&there, true);
	/* Mostly this fails because of earlier work on the thread's GPU. */
	(void)cudaGetDevice(&current);
	TRY_CUDA(err, current, cudaPointerGetAttributes, (&found, memory));
	if (err != 0)
		return err;
	if (found.type != cudaMemoryTypeDevice && found.type != cudaMemoryTypeManaged)
		return why_set(why, -EINVAL, "a buffer is not in the memory of a GPU");
	*device = found.device;
	return 0;
}

/* ---- marks ---- */

/* Refuses a stream in a capture, and the legacy stream while a capture would make it fail. */
static int refuse_capture(int device, cudaStream_t stream, struct why *why)
{
	enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
	cudaError_t state = cudaStreamIsCapturing(stream, &capture);
	int err = 0;

	if (state == cudaErrorStreamCaptureImplicit || capture != cudaStreamCaptureStatusNone) {
		(void)cudaGetLastError();
		return why_set(why, -EINVAL,
		               "the stream is being captured: an allreduce cannot be part of a "
		               "CUDA graph");
	}
	TRY_CUDA_AS(err, device, "cudaStreamIsCapturing", state);
	return err;
}

static void mark_drop(struct gpu_mark *mark)
{
	if (mark != NULL)
		(void)cudaEventDestroy((cudaEvent_t)(void *)mark);
}

/* A mark is an event. */
static int mark_set(int device, void *stream, struct gpu_mark **out, struct why *why)
{
	struct cuda_visit before;
	cudaEvent_t event = NULL;
	cudaError_t state = cudaSuccess;
	int err = cuda_enter(device, &before, why);

	if (err != 0)
		return err;
	err = refuse_capture(device, stream, why);
	TRY_CUDA(err, device, cudaEventCreateWithFlags, (&event, cudaEventDisableTiming));
	if (err == 0)
		state = cudaEventRecord(event, stream);
	TRY_CUDA_AS(err, device, "cudaEventRecord", state);
	if (state == cudaErrorInvalidResourceHandle)
		err = why_set(why, -EINVAL,
		              "the buffers are on GPU %d, and the stream is on another GPU",
		              device);
	if (err == 0)
		*out = (struct gpu_mark *)(void *)event;
	else if (event != NULL)
		(void)cudaEventDestroy(event);
	cuda_leave(&before);
	return err;
}

/* ---- opening ---- */

/*
 * Runs `work` in a thread that stays on the GPU. The caller's thread may have no context on its own
 * GPU (Python's new threads all are on the first one), and going back would create one there.
 */
static int gpu_thread_run(struct gpu *gpu, void *(*work)(void *), struct why *why)
{
	pthread_t thread;

	gpu->why = why;
	if (pthread_create(&thread, NULL, work, gpu) == 0)
		(void)pthread_join(thread, NULL);
	else
		(void)work(gpu);
	return gpu->err;
}

/*
 * Frames have priority over other work, because workers wait for them; a scan has none. A kernel,
 * or CUDA's own that fills memory, is loaded at its first use, which may wait.
 */
static void *open_all(void *context)
{
	struct gpu *gpu = context;
	struct gpu_area *pinned = &gpu->memory->pinned, *device = &gpu->memory->device;
	struct why *why = gpu->why;
	int least = 0, greatest = 0, err = cuda_enter(gpu->device, NULL, why);

	TRY_CUDA(err, gpu->device, cudaDeviceGetStreamPriorityRange, (&least, &greatest));
	for (int i = 0; i < STREAMS; i++)
		TRY_CUDA(err, gpu->device, cudaStreamCreateWithPriority,
		         (&gpu->stream[i], cudaStreamNonBlocking, i == SCANS ? 0 : greatest));
	TRY_CUDA(err, gpu->device, cudaDeviceGetAttribute,
	         (&gpu->processors, cudaDevAttrMultiProcessorCount, gpu->device));
	TRY_CUDA_AS(err, gpu->device, "cudaFuncGetAttributes", cuda_scan_load());
	TRY_CUDA_AS(err, gpu->device, "cudaFuncGetAttributes", cuda_copy_load());
	TRY_CUDA(
		err, gpu->device, cudaHostAlloc,
		((void **)&pinned->at, pinned->bytes, cudaHostAllocPortable | cudaHostAllocMapped));
	if (err == 0)
		memset(pinned->at, 0, pinned->bytes);
	TRY_CUDA(err, gpu->device, cudaMalloc, ((void **)&device->at, device->bytes));
	TRY_CUDA(err, gpu->device, cudaMemsetAsync,
	         (device->at, 0, device->bytes, gpu->stream[IN]));
	TRY_CUDA(err, gpu->device, cudaStreamSynchronize, (gpu->stream[IN]));
	gpu->err = err;
	return NULL;
}

static void *close_all(void *context)
{
	struct gpu *gpu = context;

	if (cuda_enter(gpu->device, NULL, gpu->why) != 0)
		return NULL;
	for (int i = 0; i < STREAMS; i++)
		if (gpu->stream[i] != NULL && cudaStreamSynchronize(gpu->stream[i]) == cudaSuccess)
			(void)cudaStreamDestroy(gpu->stream[i]);
	(void)cudaFree(gpu->memory->device.at);
	(void)cudaFreeHost(gpu->memory->pinned.at);
	(void)cudaGetLastError();
	return NULL;
}

static void gpu_close(struct gpu *gpu)
{
	struct why why;

	(void)gpu_thread_run(gpu, close_all, &why);
	free(gpu);
}

static int gpu_open(int device, struct gpu_memory *memory, struct gpu **out, struct why *why)
{
	struct gpu *gpu = calloc(1, sizeof(*gpu));
	int err;

	if (gpu == NULL)
		return why_set(why, -ENOMEM, "out of memory");
	gpu->device = device;
	gpu->memory = memory;
	err = gpu_thread_run(gpu, open_all, why);
	if (err != 0) {
		gpu_close(gpu);
		return err;
	}
	*out = gpu;
	return 0;
}

/* ---- work ---- */

static int is_past(struct gpu *gpu, struct gpu_mark *mark, struct why *why)
{
	int err = cuda_enter(gpu->device, NULL, why);
	cudaError_t state = err == 0 ? cudaEventQuery((cudaEvent_t)(void *)mark) : cudaSuccess;

	TRY_CUDA_AS(err, gpu->device, "cudaEventQuery", state);
	return state == cudaErrorNotReady ? 1 : err;
}

static int gpu_scan_begin(struct gpu *gpu, const struct gpu_scan *what, struct why *why)
{
	int err = cuda_enter(gpu->device, NULL, why);

	if (what->clear != NULL)
		TRY_CUDA(err, gpu->device, cudaMemsetAsync,
		         (what->clear, 0, what->clear_bytes, gpu->stream[SCANS]));
	TRY_CUDA_AS(err, gpu->device, "cudaLaunchKernel",
	            cuda_scan(what, (uint32_t)gpu->processors, gpu->stream[SCANS]));
	return err;
}

static int gpu_copy_begin(struct gpu *gpu, const struct gpu_copy *what, struct why *why)
{
	int err = cuda_enter(gpu->device, NULL, why);

	TRY_CUDA_AS(err, gpu->device, "cudaLaunchKernel",
	            cuda_copy(what, GPU_BUS_CTAS, gpu->stream[what->out ? OUT : IN]));
	return err;
}

static int copies_follow(struct gpu *gpu, void *stream, struct why *why)
{
	struct cuda_visit before;
	struct gpu_mark *point = NULL;
	int err = mark_set(gpu->device, gpu->stream[IN], &point, why);

	if (err == 0)
		err = cuda_enter(gpu->device, &before, why);
	if (err == 0) {
		err = refuse_capture(gpu->device, stream, why);
		TRY_CUDA(err, gpu->device, cudaStreamWaitEvent,
		         (stream, (cudaEvent_t)(void *)point, 0));
		cuda_leave(&before);
	}
	mark_drop(point);
	return err;
}

/* Once a kernel has failed, all calls fail. */
static int gpu_well(struct gpu *gpu, struct why *why)
{
	int err = cuda_enter(gpu->device, NULL, why);

	TRY_CUDA(err, gpu->device, cudaStreamQuery, (gpu->stream[SCANS]));
	return err;
}

__attribute__((visibility("default"))) const struct gpu_calls winnow_gpu = {
	.version = WINNOW_VERSION,
#if __has_include(<nccl.h>)
	.node = &nccl_node,
#endif
	.locate = memory_locate,
	.mark = mark_set,
	.is_past = is_past,
	.unmark = mark_drop,
	.open = gpu_open,
	.close = gpu_close,
	.scan = gpu_scan_begin,
	.copy = gpu_copy_begin,
	.follow = copies_follow,
	.check = gpu_well,
};
