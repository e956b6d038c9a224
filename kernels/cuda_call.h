/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cuda_call.h - runs CUDA calls one after the other and explains the first failure; switches a thread
 * to a GPU and back
 */
#ifndef KERNELS_CUDA_CALL_H
#define KERNELS_CUDA_CALL_H

#include <cuda_runtime_api.h>
#include <errno.h>

#include "bitmap/why.h"

/* Returns -EIO. */
static inline int cuda_failed(struct why *why, const char *call, int device, cudaError_t err)
{
	(void)cudaGetLastError(); /* our error, which the caller's next check must not find */
	return why_set(why, -EIO, "%s on GPU %d: %s", call, device, cudaGetErrorString(err));
}

/* If `err` is 0 and the call fails, sets it to -EIO and `why`. "Not ready" is not a failure. */
#define TRY_CUDA_AS(err, device, name, value)                                                      \
	do {                                                                                       \
		cudaError_t tried_ = (err) == 0 ? (cudaError_t)(value) : cudaSuccess;              \
		if (tried_ != cudaSuccess && tried_ != cudaErrorNotReady)                          \
			(err) = cuda_failed(why, name, device, tried_);                            \
	} while (0)

#define TRY_CUDA(err, device, call, arguments) TRY_CUDA_AS(err, device, #call, call arguments)

/* The state of a caller's thread, restored by cuda_leave(). */
struct cuda_visit {
	int device;
	enum cudaStreamCaptureMode mode;
};

/*
 * Switches the thread to a GPU and to relaxed capture mode. In the other modes, while another
 * thread captures a graph, even a query fails and invalidates the capture. Our own threads pass
 * NULL and do not leave, because going back might create a context on the earlier GPU.
 */
static inline int cuda_enter(int device, struct cuda_visit *before, struct why *why)
{
	struct cuda_visit ignored = {0};
	int err = 0;

	before = before != NULL ? before : &ignored;
	*before = (struct cuda_visit){.device = device, .mode = cudaStreamCaptureModeRelaxed};
	TRY_CUDA(err, device, cudaGetDevice, (&before->device));
	if (before->device != device)
		TRY_CUDA(err, device, cudaSetDevice, (device));
	/* This call must come last, because it creates a context on the thread's current GPU. */
	if (err == 0)
		(void)cudaThreadExchangeStreamCaptureMode(&before->mode);
	return err;
}

static inline void cuda_leave(struct cuda_visit *before)
{
	int device;

	(void)cudaThreadExchangeStreamCaptureMode(&before->mode);
	if (cudaGetDevice(&device) == cudaSuccess && before->device != device)
		(void)cudaSetDevice(before->device);
}

#endif /* KERNELS_CUDA_CALL_H */
