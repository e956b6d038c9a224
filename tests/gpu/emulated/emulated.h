/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emulated.h - CUDA on the CPU, for tests: what it promises, and how tests control it
 *
 * g++ also compiles the kernels, which are C++. One thread does the work of all streams, an
 * operation at a time, in any order that streams and events allow: the seed decides. Functions of
 * the host and NCCL's work run on threads of their own. Errors stick to their device, as in CUDA.
 *
 * Each thread of a CTA is a fiber. Fibers run in an order that the seed decides, and switch only
 * where they wait for each other, so a lane that needs another's value without waiting for it
 * misses it. Warp collectives are those of whole warps. One that can never complete ends the kernel
 * with cudaErrorLaunchFailure and a line on stderr. Memory is filled with 0xa5 and ends at a page
 * that nobody can access; freed memory stays out of bounds.
 *
 * Only a GPU shows speed and registers, memory that becomes visible late, CTAs that run at the same
 * time, and which calls wait for which work.
 *
 * Environment:
 *   EMULATED_CUDA_DEVICES=2   devices of this process
 *   EMULATED_CUDA_SEED=1      order of operations, CTAs and lanes
 *   EMULATED_CUDA_FAIL="cudaMalloc:3,kernel:1=700"
 *                             the third call of that name fails with cudaErrorLaunchFailure; the
 *                             first kernel fails while it runs, with error 700. A name with '+',
 *                             "cudaMalloc:2+", fails from the second call on. Names are those of
 *                             calls, also of NCCL's
 */
#ifndef WINNOW_EMULATED_H
#define WINNOW_EMULATED_H

#ifdef __cplusplus
extern "C" {
#endif

/* Of all devices since the start: of device and pinned memory; calls and kernels that failed on request. */
unsigned emulated_cuda_allocations(void);
unsigned emulated_cuda_faults(void);

/* Faults as in EMULATED_CUDA_FAIL, counted from now on; NULL or "": none. */
void emulated_cuda_fail(const char *faults);

/* Has this process used the device? A real one would lose hundreds of megabytes to it. */
int emulated_cuda_has_context(int device);

/* Forget the errors that stick to devices, and faults to come. */
void emulated_cuda_reset(void);

#ifdef __cplusplus
}

#include <cuda_runtime.h>

/* For the emulation's own files. */
uint64_t emulated_random(uint64_t *state);
int emulated_fault_due(const char *name); /* an error, or 0 */
bool emulated_failed(int device);
cudaError_t emulated_run_kernel(dim3 grid, unsigned threads, const std::function<void()> &body,
                                uint64_t random);
/* What follows in the stream waits for the function, which runs on a thread of its own. */
cudaError_t emulated_aside(cudaStream_t stream, std::function<void()> function);

/* Of EMULATED_ERRORS() and EMULATED_RESULTS(). */
#define EMULATED_TEXT(name, number, text)                                                          \
	case name:                                                                                 \
		return text;
#endif

#endif
