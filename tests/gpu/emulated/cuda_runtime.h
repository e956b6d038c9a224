/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cuda_runtime.h - the part of CUDA C++ that Winnow's kernels use, implemented on the CPU
 *
 * emulated.h says how it runs. Lane functions are ordinary functions that yield to other fibers.
 */
#ifndef WINNOW_EMULATED_RUNTIME_H
#define WINNOW_EMULATED_RUNTIME_H

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)

struct uint3 {
	unsigned x, y, z;
};

struct dim3 {
	unsigned x, y, z;
	constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
	{
	}
};

struct alignas(8) uint2 {
	unsigned x, y;
};
struct alignas(16) uint4 {
	unsigned x, y, z, w;
};

/* One fiber. The collectives below are all that kernels need of it. */
struct emulated_lane {
	uint3 thread, block;
	dim3 block_size, grid_size;
};

extern struct emulated_lane *emulated_self;

#define threadIdx (emulated_self->thread)
#define blockIdx (emulated_self->block)
#define blockDim (emulated_self->block_size)
#define gridDim (emulated_self->grid_size)

enum emulated_collective {
	EMULATED_BARRIER,
	EMULATED_SYNC,
	EMULATED_SHUFFLE,
	EMULATED_BALLOT,
	EMULATED_MAX,
	EMULATED_OR,
};

/*
 * Waits for all lanes of the warp, for BARRIER for all threads of the CTA; the value of `what` over
 * their `value`s. For SHUFFLE: that of the lane `source`.
 */
uint64_t emulated_collect(enum emulated_collective what, unsigned mask, uint64_t value, int source,
                          const char *file, int line);

/* As cudaLaunchKernel(): body() is one thread's work. */
cudaError_t emulated_launch(cudaStream_t stream, dim3 grid, unsigned threads,
                            std::function<void()> body);

/* CUDA's are templates, too; these take kernels of one argument, which is copied. */
template <typename J>
static inline cudaError_t cudaLaunchKernel(void (*kernel)(J), dim3 grid, dim3 threads,
                                           void **arguments, size_t, cudaStream_t stream)
{
	const J job = *static_cast<const J *>(arguments[0]);

	return emulated_launch(stream, grid, threads.x, [=] { kernel(job); });
}

template <typename J>
static inline cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes,
                                                void (*kernel)(J))
{
	return cudaFuncGetAttributes(attributes, reinterpret_cast<const void *>(kernel));
}

#define EMULATED_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

#define EMULATED_COLLECTIVE(result, name, what, value)                                             \
	static inline result name(unsigned mask, value, EMULATED_SITE)                             \
	{                                                                                          \
		return static_cast<result>(emulated_collect(what, mask, of, -1, file, line));      \
	}
EMULATED_COLLECTIVE(unsigned, __ballot_sync, EMULATED_BALLOT, bool of)
EMULATED_COLLECTIVE(int, __any_sync, EMULATED_OR, bool of)
EMULATED_COLLECTIVE(unsigned, __reduce_max_sync, EMULATED_MAX, unsigned of)
EMULATED_COLLECTIVE(unsigned, __reduce_or_sync, EMULATED_OR, unsigned of)

#define EMULATED_WAIT(name, what)                                                                  \
	static inline void name(EMULATED_SITE)                                                     \
	{                                                                                          \
		emulated_collect(what, 0xffffffffu, 0, -1, file, line);                            \
	}
EMULATED_WAIT(__syncthreads, EMULATED_BARRIER)
EMULATED_WAIT(__syncwarp, EMULATED_SYNC)

static inline unsigned __shfl_sync(unsigned mask, unsigned value, int source, EMULATED_SITE)
{
	return static_cast<unsigned>(
		emulated_collect(EMULATED_SHUFFLE, mask, value, source & 31, file, line));
}

#define atomicOr(at, value) __atomic_fetch_or(at, value, __ATOMIC_RELAXED)
#define atomicAdd(at, value) __atomic_fetch_add(at, value, __ATOMIC_RELAXED)

static inline unsigned atomicMax(unsigned *at, unsigned value)
{
	unsigned old = __atomic_load_n(at, __ATOMIC_RELAXED);

	while (old < value && !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_RELAXED,
	                                                   __ATOMIC_RELAXED))
		;
	return old;
}

#define __popc __builtin_popcount
#define __popcll __builtin_popcountll
#define __umulhi(a, b) static_cast<unsigned>(static_cast<uint64_t>(a) * (b) >> 32)

#define __float_as_uint(value) __builtin_bit_cast(unsigned, value)
#define __uint_as_float(value) __builtin_bit_cast(float, value)

/* To nearest, ties to even; saturates, and NaN is 0. */
static inline int __float2int_rn(float value)
{
	if (value != value)
		return 0;
	if (value >= 2147483648.0f)
		return INT32_MAX;
	return value < -2147483648.0f ? INT32_MIN : static_cast<int>(std::nearbyintf(value));
}

/* The CPU's own are rounded to nearest, and nothing is fused (-ffp-contract=off). */
#define __int2float_rn static_cast<float>
#define __fmul_rn(a, b) ((a) * (b))
#define __fdiv_rn(a, b) ((a) / (b))

/* From where atomic operations write, which may happen meanwhile. */
static inline unsigned __ldcg(const unsigned *at)
{
	return __atomic_load_n(at, __ATOMIC_RELAXED);
}

/* Hints to caches that are not there. */
template <typename T> static inline T __ldcg(const T *at)
{
	return *at;
}
#define __ldcs(at) (*(at))
#define __stcs(at, value) (*(at) = (value))

#define __threadfence_system() __atomic_thread_fence(__ATOMIC_SEQ_CST)

using std::max;
using std::min;

/* As CUDA's own header: any pointer may be what is allocated. */
template <typename T> static inline cudaError_t cudaMalloc(T **memory, size_t bytes)
{
	return ::cudaMalloc(reinterpret_cast<void **>(memory), bytes);
}

template <typename T>
static inline cudaError_t cudaHostAlloc(T **memory, size_t bytes, unsigned flags)
{
	return ::cudaHostAlloc(reinterpret_cast<void **>(memory), bytes, flags);
}

#endif
