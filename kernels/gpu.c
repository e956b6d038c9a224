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
		         "needs a newer driver or a build with an older CUDA",
		         version / 1000, version % 1000 / 10, CUDART_VERSION / 1000,
		         CUDART_VERSION % 1000 / 10);
	else
		snprintf(why, GPU_WHY_BYTES, "cudaGetDeviceCount: %s", cudaGetErrorString(err));
	return -ENODEV;
}

int gpu_enter(const struct gpu *gpu, struct gpu_visit *before, char *why)
{
	int err = 0;

	*before = (struct gpu_visit){gpu->device, cudaStreamCaptureModeRelaxed};
	TRY(gpu, err, "cudaGetDevice", cudaGetDevice(&before->device));
	if (before->device != gpu->device)
		TRY(gpu, err, "cudaSetDevice", cudaSetDevice(gpu->device));
	/* Not earlier: it makes a context on whatever GPU the thread is at. */
	if (err == 0)
		(void)cudaThreadExchangeStreamCaptureMode(&before->mode);
	return err;
}

void gpu_leave(const struct gpu *gpu, const struct gpu_visit *before)
{
	enum cudaStreamCaptureMode mode = before->mode;

	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	if (before->device != gpu->device)
		(void)cudaSetDevice(before->device);
}

/* ---- opening ---- */

int gpu_word(struct gpu *gpu, uint32_t **out, char *why)
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

static int locate(const void *memory, int *device, char *why)
{
	static atomic_bool there;
	struct cudaPointerAttributes found;
	cudaError_t err = cudaSuccess;
	int count = 0, current;

	/* Once there is a GPU, an error here is that of a GPU that has failed meanwhile. */
	if (!atomic_load(&there))
		err = cudaGetDeviceCount(&count);
	if (!atomic_load(&there) && (err != cudaSuccess || count == 0))
		return no_device(why, err != cudaSuccess ? err : cudaErrorNoDevice);
	atomic_store(&there, true);
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

static int is_captured(const struct gpu *gpu, cudaStream_t stream, bool *out, char *why)
{
	enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
	cudaError_t state = cudaStreamIsCapturing(stream, &capture);
	int err = 0;

	*out = state == cudaErrorStreamCaptureImplicit || capture != cudaStreamCaptureStatusNone;
	/* The legacy stream's answer while one that waits for it is being captured. */
	if (state == cudaErrorStreamCaptureImplicit)
		(void)cudaGetLastError();
	else
		TRY(gpu, err, "cudaStreamIsCapturing", state);
	return err;
}

/* Which GPU the stream is of. CUDA tells from 12.8 on; before, the caller is believed. */
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

static int admit(int device, void *stream, char *why)
{
	const struct gpu gpu = {.device = device};
	struct gpu_visit before;
	bool captured = false;
	int of = device, err = gpu_enter(&gpu, &before, why);

	if (err != 0)
		return err;
	err = is_captured(&gpu, stream, &captured, why);
	if (stream != NULL && !captured)
		TRY(&gpu, err, "cudaStreamGetDevice", device_of(stream, &of));
	gpu_leave(&gpu, &before);
	if (err == 0 && captured)
		snprintf(why, GPU_WHY_BYTES,
		         "the stream is being captured: an allreduce cannot be part of a CUDA "
		         "graph");
	else if (err == 0 && of != device)
		snprintf(why, GPU_WHY_BYTES,
		         "the buffers are on GPU %d, and the stream is on GPU %d", device, of);
	return err != 0 ? err : captured || of != device ? -EINVAL : 0;
}

static void gpu_close(struct gpu *gpu)
{
	cudaStream_t streams[] = {gpu->gate, gpu->out, gpu->in, gpu->tell};
	char why[GPU_WHY_BYTES];
	struct word_page *next;
	struct gpu_visit before;

	gpu_unwatch(gpu);
	if (gpu_enter(gpu, &before, why) == 0) {
		/* On a GPU that has failed this waits for nothing; what it had begun is let alone. */
		for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++)
			if (streams[i] != NULL && cudaStreamSynchronize(streams[i]) == cudaSuccess)
				(void)cudaStreamDestroy(streams[i]);
		(void)cudaFree(gpu->scratch);
		for (struct word_page *page = gpu->pages; page != NULL; page = page->next)
			(void)cudaFreeHost(page->words);
		(void)cudaGetLastError();
		gpu_leave(gpu, &before);
	}
	for (struct word_page *page = gpu->pages; page != NULL; page = next) {
		next = page->next;
		free(page);
	}
	pthread_mutex_destroy(&gpu->lock);
	free(gpu);
}

static int gpu_open(int device, const struct gpu_hooks *hooks, struct gpu **out, char *why)
{
	struct gpu *gpu = calloc(1, sizeof(*gpu));
	struct gpu_visit before;
	int err;

	if (gpu == NULL) {
		snprintf(why, GPU_WHY_BYTES, "out of memory");
		return -ENOMEM;
	}
	gpu->device = device;
	gpu->hooks = *hooks;
	pthread_mutex_init(&gpu->lock, NULL);
	gpu_watch_init(gpu);
	err = gpu_enter(gpu, &before, why);
	if (err == 0) {
		err = gpu_start(gpu, why);
		gpu_leave(gpu, &before);
	}
	if (err == 0 && gpu->wait_value != NULL)
		err = gpu_watch(gpu, why);
	if (err != 0) {
		gpu_close(gpu);
		return err;
	}
	*out = gpu;
	return 0;
}

/* ---- gates ---- */

static void gate_close(struct gpu_gate *gate)
{
	struct gpu *gpu = gate->gpu;
	char why[GPU_WHY_BYTES];
	struct gpu_visit before;

	if (gpu == NULL)
		return;
	gpu_watch_gate(gate, false);
	gpu_signal_close(&gate->open);
	gpu_signal_close(&gate->passed);
	if (gpu_enter(gpu, &before, why) != 0)
		return;
	if (gate->after != NULL) {
		(void)cudaEventSynchronize(gate->after);
		(void)cudaEventDestroy(gate->after);
	}
	if (gate->mark != NULL)
		(void)cudaEventDestroy(gate->mark);
	(void)cudaGetLastError();
	gpu_leave(gpu, &before);
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
	struct gpu_visit before;
	int err = gpu_enter(gpu, &before, why);

	if (err != 0)
		return err;
	gate->gpu = gpu;
	gpu_watch_gate(gate, true);
	pthread_mutex_lock(&gpu->lock);
	err = gpu_word(gpu, &gate->word, why);
	pthread_mutex_unlock(&gpu->lock);
	if (err == 0)
		err = gpu_event(gpu, &gate->mark, why);
	if (err == 0)
		err = gpu_event(gpu, &gate->after, why);
	if (err == 0)
		err = gpu_signal_open(gpu, &gate->open, why);
	if (err == 0)
		err = gpu_signal_open(gpu, &gate->passed, why);
	gpu_leave(gpu, &before);
	if (err != 0)
		gate_close(gate);
	return err;
}

static int post(struct gpu_gate *gate, void *stream, bool waits, char *why)
{
	struct gpu *gpu = gate->gpu;
	struct gpu_visit before;
	int err = gpu_enter(gpu, &before, why);

	if (err != 0)
		return err;
	gate->turn++;
	atomic_store_explicit(&gate->open.set, false, memory_order_relaxed);
	atomic_store_explicit(&gate->passed.set, false, memory_order_relaxed);
	if (!waits) {
		TRY(gpu, err, "cudaEventRecord", cudaEventRecord(gate->mark, stream));
		TRY(gpu, err, "cudaStreamWaitEvent", cudaStreamWaitEvent(gpu->gate, gate->mark, 0));
		stream = gpu->gate;
	}
	if (err == 0)
		err = gpu_signal_after(&gate->open, stream, why);
	gpu_leave(gpu, &before);
	return err;
}

static bool can_wait(const struct gpu *gpu)
{
	return gpu->wait_value != NULL;
}

static int wait(struct gpu_gate *gate, void *stream, char *why)
{
	struct gpu *gpu = gate->gpu;
	CUresult result = CUDA_SUCCESS;
	struct gpu_visit before;
	int err = gpu_enter(gpu, &before, why);

	if (err != 0)
		return err;
	if (gpu->wait_value != NULL)
		err = gpu_gate_waits(gate, why);
	if (err == 0 && gpu->wait_value != NULL)
		result = gpu->wait_value(stream, (CUdeviceptr)(uintptr_t)gate->word, gate->turn,
		                         CU_STREAM_WAIT_VALUE_GEQ);
	if (result != CUDA_SUCCESS)
		err = gpu_value_failed(gpu, "cuStreamWaitValue32", result, why);
	TRY(gpu, err, "cudaEventRecord", cudaEventRecord(gate->after, stream));
	gpu_leave(gpu, &before);
	return err == 0 && gpu->wait_value == NULL ? -EAGAIN : err;
}

static void release(struct gpu_gate *gate)
{
	__atomic_store_n(gate->word, gate->turn, __ATOMIC_RELEASE);
}

/* ---- the communicator's thread ---- */

int gpu_use(struct gpu *gpu, char *why)
{
	struct gpu_visit before;
	int err = gpu_stuck(gpu, why);

	atomic_store(&gpu->inside_since_us, gpu_now_us());
	return err != 0 ? err : gpu_enter(gpu, &before, why);
}

int gpu_done(struct gpu *gpu, int err)
{
	atomic_store(&gpu->inside_since_us, 0);
	return err;
}

int gpu_tell(struct gpu *gpu, cudaStream_t queue, void *mark, struct gpu_signal *signal, char *why)
{
	int err = 0;

	atomic_store_explicit(&signal->set, false, memory_order_relaxed);
	TRY(gpu, err, "cudaEventRecord", cudaEventRecord(mark, queue));
	TRY(gpu, err, "cudaStreamWaitEvent", cudaStreamWaitEvent(gpu->tell, mark, 0));
	return err != 0 ? err : gpu_signal_after(signal, gpu->tell, why);
}

static int finish(struct gpu_gate *gate, bool all, char *why)
{
	struct gpu *gpu = gate->gpu;
	int err = gpu_use(gpu, why);

	if (all) {
		TRY(gpu, err, "cudaEventRecord", cudaEventRecord(gate->mark, gpu->out));
		TRY(gpu, err, "cudaStreamWaitEvent", cudaStreamWaitEvent(gpu->in, gate->mark, 0));
	}
	if (err == 0 && gpu->write_value != NULL) {
		CUresult result = gpu->write_value(gpu->in, (CUdeviceptr)(uintptr_t)gate->word,
		                                   gate->turn, CU_STREAM_WRITE_VALUE_DEFAULT);

		if (result != CUDA_SUCCESS)
			err = gpu_value_failed(gpu, "cuStreamWriteValue32", result, why);
	}
	if (err == 0)
		err = gpu_tell(gpu, gpu->in, gate->mark, &gate->passed, why);
	return gpu_done(gpu, err);
}

static int busy(struct gpu *gpu, char *why)
{
	cudaStream_t queues[] = {gpu->out, gpu->in, gpu->tell, gpu->gate};
	struct gpu_visit before;
	int err, some = 0;

	atomic_store(&gpu->inside_since_us, gpu_now_us());
	err = gpu_enter(gpu, &before, why); /* also when it has been stuck */

	for (size_t i = 0; i < sizeof(queues) / sizeof(queues[0]) && err == 0; i++) {
		cudaError_t state = cudaStreamQuery(queues[i]);

		if (state != cudaErrorNotReady)
			TRY(gpu, err, "cudaStreamQuery", state);
		else if (queues[i] == gpu->out || queues[i] == gpu->in)
			some = GPU_MOVES;
		else if (some == 0)
			some = GPU_TELLS;
	}
	return gpu_done(gpu, err != 0 ? err : some);
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
	.can_wait = can_wait,
	.wait = wait,
	.release = release,
	.scan = gpu_scan,
	.view = gpu_view,
	.unpack = gpu_unpack,
	.empty = gpu_empty,
	.finish = finish,
	.busy = busy,
};
