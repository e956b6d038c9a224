/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * launch.h - how a kernel is put into a stream, by CUDA and by the emulation that tests use
 *
 * Kernels are launched in no other way: <<<>>> is for nvcc alone.
 */
#ifndef KERNELS_LAUNCH_H
#define KERNELS_LAUNCH_H

#include <cuda_runtime.h>

#ifdef WINNOW_EMULATED_CUDA

/* The arguments are copied, as a launch does. */
template <typename... P, typename... A>
static inline cudaError_t launch(void (*kernel)(P...), dim3 grid, unsigned threads,
                                 cudaStream_t stream, A... args)
{
	return emulated_launch(stream, grid, threads, [=] { kernel(static_cast<P>(args)...); });
}

#else

template <typename... P>
static inline cudaError_t launch_list(const void *kernel, dim3 grid, unsigned threads,
                                      cudaStream_t stream, P... args)
{
	void *list[] = {static_cast<void *>(&args)...};

	return cudaLaunchKernel(kernel, grid, dim3(threads), list, 0, stream);
}

/* Arguments become what the kernel takes before their addresses are taken. */
template <typename... P, typename... A>
static inline cudaError_t launch(void (*kernel)(P...), dim3 grid, unsigned threads,
                                 cudaStream_t stream, A... args)
{
	return launch_list<P...>(reinterpret_cast<const void *>(kernel), grid, threads, stream,
	                         static_cast<P>(args)...);
}

#endif

#endif
