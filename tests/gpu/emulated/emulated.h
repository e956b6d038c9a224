/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emulated.h - CUDA on the CPU, for tests: what it promises, and what tests may ask of it
 *
 * Kernels are C++ that g++ compiles, too. A thread of a CTA is a fiber; the fibers of a CTA run one
 * at a time on the thread of their stream, in an order that the seed decides, and change only where
 * they wait for each other: so a lane that needs another's value and did not wait for it, misses it.
 * CTAs run one after the other, in random order. Barriers and warp collectives wait for all lanes
 * that they name; what can never be satisfied ends the kernel with cudaErrorLaunchFailure and a
 * line on stderr that names lanes and source lines.
 *
 * Streams are threads with queues, with random pauses. Errors of kernels stick to their device, as
 * in CUDA. Device memory lies between pages that nobody may touch, is full of 0xa5, and can be
 * touched by nobody but kernels and copies that run on its device: a host that follows a device
 * pointer ends with SIGSEGV (unless something runs there at that very moment). Freed memory stays
 * out of bounds. CUDA calls from a host function are refused.
 *
 * Freeing memory, the first use of a kernel, copies to memory that is not pinned, and putting more into
 * a queue of the device than its 1024 entries (a host function takes 16) wait for the device, and
 * keep all other threads' calls waiting meanwhile, as CUDA does: if what they wait for needs one of
 * those, nobody ever goes on. Captures forbid what CUDA's do, in other threads, too.
 *
 * Environment:
 *   EMULATED_CUDA_DEVICES=2   devices of this process
 *   EMULATED_CUDA_PROCESSORS=4 multiprocessors of a device
 *   EMULATED_CUDA_SEED=1      order of lanes and CTAs, pauses
 *   EMULATED_CUDA_PAUSE_US=50 longest pause before an operation of a stream; 0: none
 *   EMULATED_CUDA_HOST_US=0   from when a host function begins, and no failure stops it any more, until
 *                             it is called: a driver's thread that the system has not run
 *   EMULATED_CUDA_FAIL="cudaLaunchHostFunc:3,kernel:1=700"
 *                             the third call of that name fails with cudaErrorLaunchFailure; the
 *                             first kernel fails while it runs, with error 700. A name with '+',
 *                             "cudaMalloc:2+", fails from the second call on. Names are those of
 *                             calls, "cudaLaunchKernel" for the launch and "kernel" for the run;
 *                             what no call is named ends the program with one line: a fault that
 *                             nobody meets would test nothing
 *   EMULATED_CUDA_HOLD=FILE   a call that is to fail makes FILE.met and waits for FILE first, so that
 *                             a test can bring all else into the state that it wants
 *   CUDA_DEVICE_MAX_CONNECTIONS=8  queues of a device, as many for each priority, which streams share by
 *                             turns: an operation waits for all given earlier to other streams of
 *                             its queue to have begun, and for waits there to be over. 0: none shares
 */
#ifndef WINNOW_EMULATED_H
#define WINNOW_EMULATED_H

#include <stdint.h>

#include <cuda_runtime_api.h>

struct emulated_cuda_counts {
	uint64_t calls;
	uint64_t kernels, copies, host_functions;
	uint64_t ctas;            /* of all kernels */
	uint64_t to_device_bytes; /* copied from host memory to a device's: over PCIe */
	uint64_t to_host_bytes;   /* and back */
	uint64_t device_bytes;    /* within and between devices */
	uint64_t allocations;     /* of device and pinned memory, since the start */
	uint64_t faults;          /* calls and kernels that failed as they were told */
};

#ifdef __cplusplus
extern "C" {
#endif

/* Of all devices since the start of the process. */
struct emulated_cuda_counts emulated_cuda_stats(void);

/* Faults as in EMULATED_CUDA_FAIL, counted from now on; NULL or "": none. */
void emulated_cuda_fail(const char *faults);

/* Has this process used the device? A real one would lose hundreds of megabytes to it. */
int emulated_cuda_has_context(int device);

/* Forget the errors that stick to devices, and faults to come. */
void emulated_cuda_reset(void);

/*
 * emulated_cuda_queue - run function(argument) on the stream's thread when its turn comes, where
 * it may touch the memory of all devices. What it returns other than cudaSuccess sticks to the
 * device. For libraries that work on streams, as NCCL does.
 */
cudaError_t emulated_cuda_queue(cudaStream_t stream, cudaError_t (*function)(void *argument),
                                void *argument);

/* The error that sticks to the stream's device, for functions of emulated_cuda_queue() that wait. */
cudaError_t emulated_cuda_sticky(int device);

#ifdef __cplusplus
}
#endif

#endif
