/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emulated.h - CUDA on the CPU, for tests: what it promises, and how tests control it
 *
 * g++ also compiles the kernels, which are C++. Each thread of a CTA is a fiber. The fibers of a
 * CTA run one at a time on the thread of their stream, in an order that the seed decides, and
 * switch only where they wait for each other. So a lane that needs another's value without waiting
 * for it misses it. CTAs run one after the other, in random order. Warp collectives are
 * those of whole warps. One that can never complete, or a barrier, ends the kernel with
 * cudaErrorLaunchFailure and a line on stderr that names lanes and source lines.
 *
 * Streams are threads with queues and random pauses, so work that no event orders runs in either
 * order. Errors of kernels stick to their device, as in CUDA. Device memory lies between guard
 * pages, is filled with 0xa5, and is accessible only to kernels and copies that run on its device:
 * a host that follows a device pointer ends with SIGSEGV (unless something runs there at that very
 * moment). Freed memory stays out of bounds. Captures forbid what CUDA's do, also in other threads.
 *
 * It cannot show the following; only a GPU can:
 *   how fast anything is, and how many registers it takes;
 *   memory that becomes visible late: a missing fence, a word in pinned memory that overtakes data
 *   written before it, data from a stale cache;
 *   CTAs that run at the same time, and lanes of a warp that diverge between two collectives;
 *   which calls wait for which work: streams here never wait for each other's queues, and the
 *   default stream is like any other.
 *
 * Environment:
 *   EMULATED_CUDA_DEVICES=2   devices of this process
 *   EMULATED_CUDA_SEED=1      order of lanes and CTAs, pauses
 *   EMULATED_CUDA_PAUSE_US=50 longest pause before an operation of a stream; 0: none
 *   EMULATED_CUDA_FAIL="cudaMalloc:3,kernel:1=700"
 *                             the third call of that name fails with cudaErrorLaunchFailure; the
 *                             first kernel fails while it runs, with error 700. A name with '+',
 *                             "cudaMalloc:2+", fails from the second call on. Names are those of
 *                             calls, also of NCCL's, "cudaLaunchKernel" for the launch and
 *                             "kernel" for the run. A name that matches no call ends the program
 *                             with one line, because a fault that is never reached tests nothing
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
#endif

#endif
