/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cuda_kernels.h - the kernels as functions: put into a stream of the current device, they return at once
 *
 * Each returns a cudaError_t: 0, or what a launch said; cudaErrorInvalidValue for what gpu.h does not
 * allow, and then nothing is launched. A fault while a kernel runs comes from later calls.
 */
#ifndef KERNELS_CUDA_KERNELS_H
#define KERNELS_CUDA_KERNELS_H

#include "kernels/gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * cuda_load - have the driver load all kernels for the current device. It would else load each when it
 * is first used, and wait for all that the device has to do. It may wait and allocate.
 */
int cuda_load(void);

int cuda_scan(const struct gpu_scan *scan, uint32_t processors, void *stream);

/* `ticket`: on the device, 0 before and after. ctas: of 256 threads, at most. */
int cuda_copy(const struct gpu_copy *copy, uint32_t ctas, uint32_t *ticket, void *stream);

#ifdef __cplusplus
}
#endif

#endif /* KERNELS_CUDA_KERNELS_H */
