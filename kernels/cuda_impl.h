/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cuda_impl.h - shared by the kernels: launching, units of memory, the word at the end
 *
 * Private to *.cu. Kernels are launched only by launch(), because only nvcc understands <<<>>> and
 * tests use an emulated CUDA. A unit is the 2 to 16 bytes that a lane reads or writes at once: the
 * widest to which all addresses are aligned.
 */
#ifndef KERNELS_CUDA_IMPL_H
#define KERNELS_CUDA_IMPL_H

#include <cuda_runtime.h>
#include <stdint.h>

#include "kernels/cuda_kernels.h"

#define ALL_LANES 0xffffffffu
#define CTA_THREADS 256
#define CTA_WARPS (CTA_THREADS / 32)

/* Parts of cuda_load(). */
cudaError_t cuda_scan_load(void);
cudaError_t cuda_copy_load(void);

/* ---- launching ---- */

#ifdef WINNOW_EMULATED_CUDA

/* The arguments are copied, as a launch does. */
template <typename J>
static inline cudaError_t launch(void (*kernel)(J), uint32_t ctas, cudaStream_t stream,
                                 const J &job)
{
	return emulated_launch(stream, ctas, CTA_THREADS, [=] { kernel(job); });
}

#else

template <typename J>
static inline cudaError_t launch(void (*kernel)(J), uint32_t ctas, cudaStream_t stream, J job)
{
	void *arguments[] = {&job};

	return cudaLaunchKernel(reinterpret_cast<const void *>(kernel), dim3(ctas),
	                        dim3(CTA_THREADS), arguments, 0, stream);
}

#endif

/* Make the driver load a kernel now instead of at its first launch. */
template <typename J> static inline cudaError_t load(void (*kernel)(J))
{
	struct cudaFuncAttributes ignored;

	return cudaFuncGetAttributes(&ignored, reinterpret_cast<const void *>(kernel));
}

/* ---- units ---- */

template <uint32_t BYTES> struct unit_of;
template <> struct unit_of<2> {
	typedef unsigned short type;
};
template <> struct unit_of<4> {
	typedef unsigned type;
};
template <> struct unit_of<8> {
	typedef uint2 type;
};
template <> struct unit_of<16> {
	typedef uint4 type;
};

/* A unit of any size as words. */
template <uint32_t BYTES> struct unit {
	static constexpr uint32_t words = (BYTES + 3) / 4;
	uint32_t word[words];
};

/* Data is read only once, so bypass the caches. */
template <uint32_t BYTES>
static __device__ __forceinline__ unit<BYTES> load_unit(const unsigned char *at)
{
	typedef typename unit_of<BYTES>::type type;
	const type value = __ldcs(reinterpret_cast<const type *>(at));
	unit<BYTES> out = {};

	memcpy(&out, &value, sizeof(value));
	return out;
}

template <uint32_t BYTES>
static __device__ __forceinline__ void store_unit(unsigned char *at, const unit<BYTES> &from)
{
	typedef typename unit_of<BYTES>::type type;
	type value;

	memcpy(&value, &from, sizeof(value));
	__stcs(reinterpret_cast<type *>(at), value);
}

/* Load the first `bytes` of a unit, 16 bits at a time: the memory after them may not be ours. */
template <uint32_t BYTES>
static __device__ __forceinline__ unit<BYTES> load_part(const unsigned char *at, uint32_t bytes)
{
	unit<BYTES> out = {};

#pragma unroll
	for (uint32_t i = 0; i < BYTES; i += 2)
		if (i < bytes)
			out.word[i / 4] |=
				static_cast<uint32_t>(*reinterpret_cast<const uint16_t *>(at + i))
				<< i % 4 * 8;
	return out;
}

template <uint32_t BYTES>
static __device__ __forceinline__ void store_part(unsigned char *at, const unit<BYTES> &from,
                                                  uint32_t bytes)
{
#pragma unroll
	for (uint32_t i = 0; i < BYTES; i += 2)
		if (i < bytes)
			*reinterpret_cast<uint16_t *>(at + i) =
				static_cast<uint16_t>(from.word[i / 4] >> i % 4 * 8);
}

/* The widest unit to which all addresses and sizes in `bits`, ORed together, are aligned. */
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
 * Store the word; all threads of the CTA call it. A reader of the word also sees everything that
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
