/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cuda_impl.h - shared by the kernels: launching, units of memory, the word at the end
 *
 * Private to *.cu. launch() starts kernels, because only nvcc understands <<<>>>, and g++ also
 * compiles them for an emulated CUDA. A unit is the 2 to 16 bytes that a lane reads or writes at
 * once, the widest to which all addresses are aligned.
 */
#ifndef KERNELS_CUDA_IMPL_H
#define KERNELS_CUDA_IMPL_H

#include <cuda_runtime.h>
#include <stdint.h>

#include <type_traits>

#include "kernels/cuda_kernels.h"

#define ALL_LANES 0xffffffffu
#define CTA_THREADS 256
#define CTA_WARPS (CTA_THREADS / 32)

/* ---- launching ---- */

template <typename J>
static inline cudaError_t launch(void (*kernel)(J), uint32_t ctas, void *stream, J job)
{
	void *arguments[] = {&job};

	return cudaLaunchKernel(kernel, dim3(ctas), dim3(CTA_THREADS), arguments, 0,
	                        static_cast<cudaStream_t>(stream));
}

/* Makes the driver load both kernels of a file now instead of at their first launch. */
template <typename J> static inline cudaError_t load(void (*one)(J), void (*other)(J))
{
	struct cudaFuncAttributes ignored;
	const cudaError_t error = cudaFuncGetAttributes(&ignored, one);

	return error == cudaSuccess ? cudaFuncGetAttributes(&ignored, other) : error;
}

/* ---- units ---- */

template <uint32_t BYTES>
using vector_of = std::conditional_t<
	BYTES == 16, uint4,
	std::conditional_t<BYTES == 8, uint2,
                           std::conditional_t<BYTES == 4, unsigned, unsigned short>>>;

/* A unit of any size, as words. */
template <uint32_t BYTES> struct unit {
	static constexpr uint32_t words = (BYTES + 3) / 4;
	uint32_t word[words];
};

/* Data is read only once, so the load bypasses the caches. */
template <uint32_t BYTES>
static __device__ __forceinline__ unit<BYTES> load_unit(const unsigned char *at)
{
	const vector_of<BYTES> value = __ldcs(reinterpret_cast<const vector_of<BYTES> *>(at));
	unit<BYTES> out = {};

	memcpy(&out, &value, sizeof(value));
	return out;
}

template <uint32_t BYTES>
static __device__ __forceinline__ void store_unit(unsigned char *at, const unit<BYTES> &from)
{
	vector_of<BYTES> value;

	memcpy(&value, &from, sizeof(value));
	__stcs(reinterpret_cast<vector_of<BYTES> *>(at), value);
}

/* The widest unit to which all addresses and sizes in `bits`, which are ORed together, are aligned. */
static __host__ __device__ inline uint32_t unit_bytes(uint64_t bits)
{
	return bits % 16 == 0 ? 16 : bits % 8 == 0 ? 8 : bits % 4 == 0 ? 4 : 2;
}

/*
 * Division of numbers below 2^16 by a constant. The inverse of 1, 2^32, does not fit a uint32_t, so
 * 0 stands for it.
 */
static __host__ __device__ inline uint32_t inverse_of(uint32_t divisor)
{
	return divisor == 1 ? 0 : UINT32_MAX / divisor + 1;
}

static __device__ __forceinline__ uint32_t divide(uint32_t number, uint32_t inverse)
{
	return inverse == 0 ? number : __umulhi(number, inverse);
}

/*
 * Calls store(i, load(i)) for each i below `count`; all threads of a CTA call it. A thread has
 * STEPS loads in flight, because one after the other each would wait for the bus or the L2 cache.
 */
template <uint32_t STEPS, typename L, typename S>
static __device__ __forceinline__ void each_of(uint32_t count, L load, S store)
{
	for (uint32_t first = threadIdx.x; first < count; first += STEPS * CTA_THREADS) {
		decltype(load(0)) loaded[STEPS] = {};

#pragma unroll
		for (uint32_t i = 0; i < STEPS; i++)
			if (first + i * CTA_THREADS < count)
				loaded[i] = load(first + i * CTA_THREADS);
#pragma unroll
		for (uint32_t i = 0; i < STEPS; i++)
			if (first + i * CTA_THREADS < count)
				store(first + i * CTA_THREADS, loaded[i]);
	}
}

/* ---- the end ---- */

/*
 * True for all threads of the last CTA that gets here. Everything that the other CTAs have written
 * is then visible to any reader that this CTA notifies, including the host.
 */
static __device__ __forceinline__ bool last_cta(uint32_t *ticket)
{
	__shared__ bool last;

	__syncthreads();
	if (threadIdx.x == 0) {
		__threadfence_system();
		last = atomicAdd(ticket, 1u) == gridDim.x - 1;
		if (last)
			*ticket = 0;
		__threadfence_system();
	}
	__syncthreads();
	return last;
}

/*
 * Stores the word; all threads of the CTA call it. A reader of the word also sees everything that
 * the threads have written or seen written.
 */
static __device__ __forceinline__ void tell(const struct gpu_word &word)
{
	__syncthreads();
	if (threadIdx.x != 0)
		return;
	__threadfence_system();
#ifdef WINNOW_EMULATED_CUDA
	__atomic_store_n(word.at, word.value, __ATOMIC_RELEASE);
#else
	*static_cast<volatile uint32_t *>(word.at) = word.value;
#endif
}

#endif /* KERNELS_CUDA_IMPL_H */
