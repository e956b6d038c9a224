// SPDX-License-Identifier: BSD-3-Clause
/* gpu.c - see gpu.h: opening a GPU, the streams of callers */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gpu_impl.h"

#define PAGE_WORDS 1024

/* Words that streams wait for. A stream may look at one as long as its gate is open. */
struct word_page {
	struct word_page *next;
	uint32_t *words;
	uint32_t used;
};

/* ---- errors ---- */

int gpu_failed(char *why, const char *call, int device, cudaError_t err)
{
	(void)cudaGetLastError(); /* it is ours: the caller's next check must not find it */
	if (device < 0)
		snprintf(why, GPU_WHY_BYTES, "%s: %s", call, cudaGetErrorString(err));
	else
		snprintf(why, GPU_WHY_BYTES, "%s on GPU %d: %s", call, device,
		         cudaGetErrorString(err));
	return -EIO;
}

static int no_device(char *why, cudaError_t err)
{
	int version = 0;

	(void)cudaGetLastError();
	if (err == cudaErrorNoDevice)
		snprintf(why, GPU_WHY_BYTES, "there is no GPU here");
	else if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0)
		snprintf(why, GPU_WHY_BYTES, "there is no CUDA driver (libcuda.so.1) here");
	else if (err == cudaErrorInsufficientDriver)
		snprintf(why, GPU_WHY_BYTES,
		         "the driver is for CUDA %d.%d, winnow-cuda.so was built with %d.%d: it "
		         "needs a "
		         "newer driver or a build with an older CUDA",
		         version / 1000, version % 1000 / 10, CUDART_VERSION / 1000,
		         CUDART_VERSION % 1000 / 10);
	else
		snprintf(why, GPU_WHY_BYTES, "cudaGetDeviceCount: %s", cudaGetErrorString(err));
	return -ENODEV;
}

int gpu_enter(const struct gpu *gpu, int *before, char *why)
{
	int err = 0;

	*before = gpu->device;
	TRY(gpu, err, "cudaGetDevice", cudaGetDevice(before));
	if (*before != gpu->device)
		TRY(gpu, err, "cudaSetDevice", cudaSetDevice(gpu->device));
	return err;
}

void gpu_leave(const struct gpu *gpu, int before)
{
	if (before != gpu->device)
		(void)cudaSetDevice(before);
}

/* ---- opening ---- */

static int locate(const void *memory, int *device, char *why)
{
	struct cudaPointerAttributes found;
	cudaError_t err;
	int count, current;

	err = cudaGetDeviceCount(&count);
	if (err != cudaSuccess || count == 0)
		return no_device(why, err != cudaSuccess ? err : cudaErrorNoDevice);
	err = cudaGetDevice(&current);
	if (err != cudaSuccess)
		return gpu_failed(why, "cudaGetDevice", -1, err);
	if (memory == NULL) {
		*device = current;
		return 0;
	}
	err = cudaPointerGetAttributes(&found, memory);
	if (err != cudaSuccess) /* mostly of what was done before, on the thread's GPU */
		return gpu_failed(why, "cudaPointerGetAttributes", current, err);
	if (found.type != cudaMemoryTypeDevice && found.type != cudaMemoryTypeManaged) {
		snprintf(why, GPU_WHY_BYTES, "a buffer is not in the memory of a GPU");
		return -EINVAL;
	}
	*device = found.device;
	return 0;
}

static int admit(int device, void *stream, char *why)
{
	enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
	const struct gpu gpu = {.device = device};
	int before, err = gpu_enter(&gpu, &before, why);

	if (err != 0)
		return err;
	/* The legacy stream answers with an error while any other is being captured. */
	if (cudaStreamIsCapturing(stream, &capture) != cudaSuccess) {
		(void)cudaGetLastError();
		capture = cudaStreamCaptureStatusActive;
	}
	gpu_leave(&gpu, before);
	if (capture == cudaStreamCaptureStatusNone)
		return 0;
	snprintf(why, GPU_WHY_BYTES,
	         "the stream is being captured: an allreduce cannot be part of a CUDA graph");
	return -EINVAL;
}

/* A function of the driver's as CUDA 12 has it; 11.8 has the same. NULL: there is none. */
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

/* Without these two, streams cannot wait; nor with one queue for all, which a wait would block. */
static void find_value_calls(struct gpu *gpu)
{
	const char *connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
	void *calls[2];

	if (connections != NULL && atoi(connections) == 1)
		return;
	calls[0] = driver_call("cuStreamWaitValue32");
	calls[1] = driver_call("cuStreamWriteValue32");
	if (calls[0] == NULL || calls[1] == NULL)
		return;
	memcpy(&gpu->wait_value, &calls[0], sizeof(calls[0]));
	memcpy(&gpu->write_value, &calls[1], sizeof(calls[1]));
}

/*
 * Streams of one priority share the hardware's queues. Callers' streams, mostly of the lowest,
 * may stand still in them, so the library's own have the highest; `gate` stands still, too.
 */
static int open_streams(struct gpu *gpu, char *why)
{
	cudaStream_t *high[] = {&gpu->out, &gpu->in, &gpu->tell};
	int least = 0, greatest = 0, err = 0;

	TRY(gpu, err, "cudaDeviceGetStreamPriorityRange",
	    cudaDeviceGetStreamPriorityRange(&least, &greatest));
	TRY(gpu, err, "cudaStreamCreateWithPriority",
	    cudaStreamCreateWithPriority(&gpu->gate, cudaStreamNonBlocking, least));
	for (size_t i = 0; i < sizeof(high) / sizeof(high[0]); i++)
		TRY(gpu, err, "cudaStreamCreateWithPriority",
		    cudaStreamCreateWithPriority(high[i], cudaStreamNonBlocking, greatest));
	return err;
}

static void gpu_close(struct gpu *gpu)
{
	cudaStream_t streams[] = {gpu->gate, gpu->out, gpu->in, gpu->tell};
	char why[GPU_WHY_BYTES];
	struct word_page *next;
	int before;

	if (gpu_enter(gpu, &before, why) == 0) {
		for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++)
			if (streams[i] != NULL)
				(void)cudaStreamDestroy(streams[i]);
		for (struct word_page *page = gpu->pages; page != NULL; page = page->next)
			(void)cudaFreeHost(page->words);
		(void)cudaGetLastError();
		gpu_leave(gpu, before);
	}
	for (struct word_page *page = gpu->pages; page != NULL; page = next) {
		next = page->next;
		free(page);
	}
	pthread_mutex_destroy(&gpu->lock);
	free(gpu);
}

static int gpu_open(int device, void (*wake)(void *context), void *context, struct gpu **out,
                    char *why)
{
	struct gpu *gpu = calloc(1, sizeof(*gpu));
	int before, err;

	if (gpu == NULL) {
		snprintf(why, GPU_WHY_BYTES, "out of memory");
		return -ENOMEM;
	}
	gpu->device = device;
	gpu->wake = wake;
	gpu->context = context;
	pthread_mutex_init(&gpu->lock, NULL);
	err = gpu_enter(gpu, &before, why);
	if (err == 0) {
		err = open_streams(gpu, why);
		find_value_calls(gpu);
		gpu_leave(gpu, before);
	}
	if (err != 0) {
		gpu_close(gpu);
		return err;
	}
	*out = gpu;
	return 0;
}

/* ---- gates ---- */

static int word_take(struct gpu *gpu, uint32_t **out, char *why)
{
	struct word_page *page = gpu->pages;
	int err = 0;

	if (page == NULL || page->used == PAGE_WORDS) {
		page = calloc(1, sizeof(*page));
		if (page == NULL) {
			snprintf(why, GPU_WHY_BYTES, "out of memory");
			return -ENOMEM;
		}
		TRY(gpu, err, "cudaHostAlloc",
		    cudaHostAlloc((void **)&page->words, PAGE_WORDS * sizeof(uint32_t),
		                  cudaHostAllocPortable | cudaHostAllocMapped));
		if (err != 0) {
			free(page);
			return err;
		}
		memset(page->words, 0, PAGE_WORDS * sizeof(uint32_t));
		page->next = gpu->pages;
		gpu->pages = page;
	}
	*out = &page->words[page->used++];
	return 0;
}

static void gate_close(struct gpu_gate *gate)
{
	struct gpu *gpu = gate->open.gpu;
	char why[GPU_WHY_BYTES];
	int before;

	if (gpu == NULL || gpu_enter(gpu, &before, why) != 0)
		return;
	if (gate->after != NULL) {
		(void)cudaEventSynchronize(gate->after);
		(void)cudaEventDestroy(gate->after);
	}
	if (gate->mark != NULL)
		(void)cudaEventDestroy(gate->mark);
	(void)cudaGetLastError();
	gpu_leave(gpu, before);
}

int gpu_event(const struct gpu *gpu, void **out, char *why)
{
	cudaEvent_t event = NULL;
	int err = 0;

	TRY(gpu, err, "cudaEventCreateWithFlags",
	    cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	*out = event;
	return err;
}

static int gate_open(struct gpu *gpu, struct gpu_gate *gate, char *why)
{
	int before, err = gpu_enter(gpu, &before, why);

	if (err != 0)
		return err;
	gate->open.gpu = gate->passed.gpu = gpu;
	pthread_mutex_lock(&gpu->lock);
	err = word_take(gpu, &gate->word, why);
	pthread_mutex_unlock(&gpu->lock);
	if (err == 0)
		err = gpu_event(gpu, &gate->mark, why);
	if (err == 0)
		err = gpu_event(gpu, &gate->after, why);
	gpu_leave(gpu, before);
	if (err != 0)
		gate_close(gate);
	return err;
}

void CUDART_CB gpu_notify(void *argument)
{
	struct gpu_signal *signal = argument;
	struct gpu *gpu = signal->gpu;

	atomic_store_explicit(&signal->set, true, memory_order_release);
	gpu->wake(gpu->context);
}

static int post(struct gpu_gate *gate, void *stream, char *why)
{
	struct gpu *gpu = gate->open.gpu;
	int before, err = gpu_enter(gpu, &before, why);

	if (err != 0)
		return err;
	gate->turn++;
	atomic_store_explicit(&gate->open.set, false, memory_order_relaxed);
	atomic_store_explicit(&gate->passed.set, false, memory_order_relaxed);
	TRY(gpu, err, "cudaEventRecord", cudaEventRecord(gate->mark, stream));
	TRY(gpu, err, "cudaStreamWaitEvent", cudaStreamWaitEvent(gpu->gate, gate->mark, 0));
	TRY(gpu, err, "cudaLaunchHostFunc", cudaLaunchHostFunc(gpu->gate, gpu_notify, &gate->open));
	gpu_leave(gpu, before);
	return err;
}

/* The driver's errors have the numbers of the runtime's. */
static int value_failed(const struct gpu *gpu, const char *call, CUresult result, char *why)
{
	snprintf(why, GPU_WHY_BYTES, "%s on GPU %d: %s", call, gpu->device,
	         cudaGetErrorString((cudaError_t)result));
	return -EIO;
}

static int wait(struct gpu_gate *gate, void *stream, char *why)
{
	struct gpu *gpu = gate->open.gpu;
	CUresult result;
	int before, err;

	if (gpu->wait_value == NULL)
		return -EAGAIN;
	err = gpu_enter(gpu, &before, why);
	if (err != 0)
		return err;
	result = gpu->wait_value(stream, (CUdeviceptr)(uintptr_t)gate->word, gate->turn,
	                         CU_STREAM_WAIT_VALUE_GEQ);
	if (result != CUDA_SUCCESS)
		err = value_failed(gpu, "cuStreamWaitValue32", result, why);
	TRY(gpu, err, "cudaEventRecord", cudaEventRecord(gate->after, stream));
	gpu_leave(gpu, before);
	return err;
}

static void release(struct gpu_gate *gate)
{
	__atomic_store_n(gate->word, gate->turn, __ATOMIC_RELEASE);
}

/* ---- the communicator's thread ---- */

int gpu_use(const struct gpu *gpu, char *why)
{
	static _Thread_local bool relaxed;
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
	int before;

	/* A capture in another thread does not concern us, and nothing here may spoil it. */
	if (!relaxed)
		(void)cudaThreadExchangeStreamCaptureMode(&mode);
	relaxed = true;
	return gpu_enter(gpu, &before, why);
}

int gpu_tell(struct gpu *gpu, cudaStream_t queue, void *mark, struct gpu_signal *signal, char *why)
{
	int err = 0;

	atomic_store_explicit(&signal->set, false, memory_order_relaxed);
	TRY(gpu, err, "cudaEventRecord", cudaEventRecord(mark, queue));
	TRY(gpu, err, "cudaStreamWaitEvent", cudaStreamWaitEvent(gpu->tell, mark, 0));
	TRY(gpu, err, "cudaLaunchHostFunc", cudaLaunchHostFunc(gpu->tell, gpu_notify, signal));
	return err;
}

static int finish(struct gpu_gate *gate, bool all, char *why)
{
	struct gpu *gpu = gate->open.gpu;
	int err = gpu_use(gpu, why);

	if (all) {
		TRY(gpu, err, "cudaEventRecord", cudaEventRecord(gate->mark, gpu->out));
		TRY(gpu, err, "cudaStreamWaitEvent", cudaStreamWaitEvent(gpu->in, gate->mark, 0));
	}
	if (err == 0 && gpu->write_value != NULL) {
		CUresult result = gpu->write_value(gpu->in, (CUdeviceptr)(uintptr_t)gate->word,
		                                   gate->turn, CU_STREAM_WRITE_VALUE_DEFAULT);

		if (result != CUDA_SUCCESS)
			err = value_failed(gpu, "cuStreamWriteValue32", result, why);
	}
	return err != 0 ? err : gpu_tell(gpu, gpu->in, gate->mark, &gate->passed, why);
}

static int busy(struct gpu *gpu, char *why)
{
	cudaStream_t queues[] = {gpu->out, gpu->in, gpu->tell, gpu->gate};
	int err = gpu_use(gpu, why), some = 0;

	for (size_t i = 0; i < sizeof(queues) / sizeof(queues[0]) && err == 0; i++) {
		cudaError_t state = cudaStreamQuery(queues[i]);

		if (state == cudaErrorNotReady)
			some = 1;
		else
			TRY(gpu, err, "cudaStreamQuery", state);
	}
	return err != 0 ? err : some;
}

__attribute__((visibility("default"))) const struct gpu_calls winnow_gpu = {
	.version = WINNOW_VERSION,
	.about = "CUDA",
	.locate = locate,
	.admit = admit,
	.open = gpu_open,
	.close = gpu_close,
	.gate_open = gate_open,
	.gate_close = gate_close,
	.slot_open = gpu_slot_open,
	.slot_close = gpu_slot_close,
	.view_open = gpu_view_open,
	.view_close = gpu_view_close,
	.post = post,
	.wait = wait,
	.release = release,
	.scan = gpu_scan,
	.view = gpu_view,
	.unpack = gpu_unpack,
	.empty = gpu_empty,
	.finish = finish,
	.busy = busy,
};
