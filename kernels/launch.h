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
	return emulated_launch(reinterpret_cast<const void *>(kernel), stream, grid, threads,
	                       [=] { kernel(static_cast<P>(args)...); });
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

/* Have the driver load a kernel now, not when it is first launched; NULL is fine. */
template <typename... P> static inline cudaError_t load(void (*kernel)(P...))
{
	struct cudaFuncAttributes ignored;

	return kernel == nullptr
	               ? cudaSuccess
	               : cudaFuncGetAttributes(&ignored, reinterpret_cast<const void *>(kernel));
}

/* All of a list, or of a list of lists. */
template <typename K, size_t N> static inline cudaError_t load(K (&list)[N])
{
	cudaError_t error = cudaSuccess;

	for (size_t i = 0; i < N && error == cudaSuccess; i++)
		error = load(list[i]);
	return error;
}

#endif
