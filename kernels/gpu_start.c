// SPDX-License-Identifier: BSD-3-Clause
/* gpu_start.c - see gpu.h: the queues, and everything used once before a stream waits */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gpu_impl.h"

/* The driver's errors have the numbers of the runtime's. */
int gpu_value_failed(const struct gpu *gpu, const char *call, CUresult result, char *why)
{
	snprintf(why, GPU_WHY_BYTES, "%s on GPU %d: %s", call, gpu->device,
	         cudaGetErrorString((cudaError_t)result));
	return -EIO;
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

static int number_in(const char *name)
{
	const char *text = getenv(name);

	return text != NULL ? atoi(text) : 0;
}

/*
 * Without these two, streams cannot wait; nor with one queue for all, which a wait would block, nor
 * where CUDA has each call wait for what it asks for: the caller's next one would, with a lock that
 * the library's calls need.
 */
static void find_value_calls(struct gpu *gpu)
{
	void *calls[2];

	if (number_in("CUDA_DEVICE_MAX_CONNECTIONS") == 1 || number_in("CUDA_LAUNCH_BLOCKING") != 0)
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

static void CUDART_CB nothing(void *argument)
{
	(void)argument;
}

/* Not every GPU, or what it is lent by, can. */
static int try_value_calls(struct gpu *gpu, uint32_t *word, char *why)
{
	CUdeviceptr at = (CUdeviceptr)(uintptr_t)word;
	CUresult result;

	if (gpu->write_value == NULL)
		return 0;
	result = gpu->write_value(gpu->in, at, 1, CU_STREAM_WRITE_VALUE_DEFAULT);
	if (result == CUDA_SUCCESS) {
		result = gpu->wait_value(gpu->in, at, 1, CU_STREAM_WAIT_VALUE_GEQ);
		if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_SUPPORTED)
			return gpu_value_failed(gpu, "cuStreamWaitValue32", result, why);
	} else if (result != CUDA_ERROR_NOT_SUPPORTED) {
		return gpu_value_failed(gpu, "cuStreamWriteValue32", result, why);
	}
	if (result == CUDA_ERROR_NOT_SUPPORTED)
		gpu->wait_value = gpu->write_value = NULL;
	return 0;
}

/*
 * The driver loads a kernel, its own for copies too, when it is first used, and may wait for all
 * that the GPU does to load it, with a lock that all calls need. So everything is used once
 * before a stream waits for us, or that would be for ever.
 */
static int warm_up(struct gpu *gpu, char *why)
{
	cudaStream_t queues[] = {gpu->out, gpu->in, gpu->tell};
	uint32_t *word = NULL;
	int err = gpu_word(gpu, &word, why);

	TRY(gpu, err, "cudaFuncGetAttributes", bitmap_cuda_kernels.load());
	TRY(gpu, err, "cudaMalloc", cudaMalloc(&gpu->scratch, sizeof(*word)));
	for (size_t i = 0; i < sizeof(queues) / sizeof(queues[0]); i++) {
		TRY(gpu, err, "cudaMemsetAsync",
		    cudaMemsetAsync(gpu->scratch, 0, sizeof(*word), queues[i]));
		TRY(gpu, err, "cudaMemcpyAsync",
		    cudaMemcpyAsync(word, gpu->scratch, sizeof(*word), cudaMemcpyDeviceToHost,
		                    queues[i]));
		TRY(gpu, err, "cudaMemcpyAsync",
		    cudaMemcpyAsync(gpu->scratch, word, sizeof(*word), cudaMemcpyHostToDevice,
		                    queues[i]));
		TRY(gpu, err, "cudaLaunchHostFunc", cudaLaunchHostFunc(queues[i], nothing, NULL));
		TRY(gpu, err, "cudaStreamSynchronize", cudaStreamSynchronize(queues[i]));
	}
	if (err == 0)
		err = try_value_calls(gpu, word, why);
	TRY(gpu, err, "cudaStreamSynchronize", cudaStreamSynchronize(gpu->in));
	return err;
}

int gpu_start(struct gpu *gpu, char *why)
{
	int err = open_streams(gpu, why);

	find_value_calls(gpu);
	return err != 0 ? err : warm_up(gpu, why);
}
