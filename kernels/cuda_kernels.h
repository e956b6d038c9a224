/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cuda_kernels.h - functions that put a kernel into a stream of the current device and do not wait
 *
 * Each returns a cudaError_t: 0, or the launch's error. Later calls return the error of a kernel that
 * fails while it runs.
 */
#ifndef KERNELS_CUDA_KERNELS_H
#define KERNELS_CUDA_KERNELS_H

#include "kernels/gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Make the driver load kernels for the current device. They may wait for its work, and allocate. */
int cuda_scan_load(void);
int cuda_copy_load(void);

int cuda_scan(const struct gpu_scan *scan, uint32_t processors, void *stream);

/* Uses at most `most` CTAs of 256 threads, or one a run if runs have eight frames on average. */
int cuda_copy(const struct gpu_copy *copy, uint32_t most, void *stream);

#ifdef __cplusplus
}
#endif

#endif /* KERNELS_CUDA_KERNELS_H */
