/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cuda_runtime.h - what kernels may use of CUDA C++, done on the CPU
 *
 * Only what Winnow's kernels use; emulated.h says how it runs. Lane functions are ordinary functions
 * that give way to other fibers.
 */
#ifndef WINNOW_EMULATED_RUNTIME_H
#define WINNOW_EMULATED_RUNTIME_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)

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
struct alignas(8) int2 {
	int x, y;
};
struct alignas(8) float2 {
	float x, y;
};
struct alignas(16) uint4 {
	unsigned x, y, z, w;
};
struct alignas(16) int4 {
	int x, y, z, w;
};
struct alignas(16) float4 {
	float x, y, z, w;
};
struct alignas(16) ulonglong2 {
	unsigned long long x, y;
};
struct alignas(4) ushort2 {
	unsigned short x, y;
};

static inline uint2 make_uint2(unsigned x, unsigned y)
{
	return uint2{x, y};
}

static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
	return uint4{x, y, z, w};
}

static inline float4 make_float4(float x, float y, float z, float w)
{
	return float4{x, y, z, w};
}

static inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y)
{
	return ulonglong2{x, y};
}

/* One fiber. The collectives below are all that kernels need of it. */
struct emulated_lane {
	uint3 thread, block;
	dim3 block_size, grid_size;
};

extern "C" {
extern __thread struct emulated_lane *emulated_self;
}

#define threadIdx (emulated_self->thread)
#define blockIdx (emulated_self->block)
#define blockDim (emulated_self->block_size)
#define gridDim (emulated_self->grid_size)
static constexpr int warpSize = 32;

enum emulated_collective {
	EMULATED_SYNC,
	EMULATED_SHUFFLE,
	EMULATED_BALLOT,
	EMULATED_ALL,
	EMULATED_ANY,
	EMULATED_ADD,
	EMULATED_MAX,
	EMULATED_MIN,
	EMULATED_OR,
	EMULATED_AND,
	EMULATED_MAX_SIGNED,
	EMULATED_MIN_SIGNED,
};

void emulated_barrier(const char *file, int line);

/*
 * Waits for all lanes of `mask`; the value of `what` over their `value`s. For SHUFFLE: that
 * of the lane `source`, or this lane's own where source is negative.
 */
uint64_t emulated_collect(enum emulated_collective what, unsigned mask, uint64_t value, int source,
                          const char *file, int line);

/* As cudaLaunchKernel(): body() is one thread's work. */
cudaError_t emulated_launch(const void *kernel, cudaStream_t stream, dim3 grid, unsigned threads,
                            std::function<void()> body);

#define EMULATED_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

static inline void __syncthreads(EMULATED_SITE)
{
	emulated_barrier(file, line);
}

static inline void __syncwarp(unsigned mask = 0xffffffffu, EMULATED_SITE)
{
	emulated_collect(EMULATED_SYNC, mask, 0, -1, file, line);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate, EMULATED_SITE)
{
	return static_cast<unsigned>(
		emulated_collect(EMULATED_BALLOT, mask, predicate != 0, -1, file, line));
}

static inline int __any_sync(unsigned mask, int predicate, EMULATED_SITE)
{
	return static_cast<int>(
		emulated_collect(EMULATED_ANY, mask, predicate != 0, -1, file, line));
}

static inline int __all_sync(unsigned mask, int predicate, EMULATED_SITE)
{
	return static_cast<int>(
		emulated_collect(EMULATED_ALL, mask, predicate != 0, -1, file, line));
}

#define EMULATED_REDUCE(name, type, what)                                                          \
	static inline type name(unsigned mask, type value, EMULATED_SITE)                          \
	{                                                                                          \
		return static_cast<type>(emulated_collect(                                         \
			what, mask, static_cast<uint32_t>(value), -1, file, line));                \
	}
EMULATED_REDUCE(__reduce_add_sync, unsigned, EMULATED_ADD)
EMULATED_REDUCE(__reduce_add_sync, int, EMULATED_ADD)
EMULATED_REDUCE(__reduce_max_sync, unsigned, EMULATED_MAX)
EMULATED_REDUCE(__reduce_max_sync, int, EMULATED_MAX_SIGNED)
EMULATED_REDUCE(__reduce_min_sync, unsigned, EMULATED_MIN)
EMULATED_REDUCE(__reduce_min_sync, int, EMULATED_MIN_SIGNED)
EMULATED_REDUCE(__reduce_or_sync, unsigned, EMULATED_OR)
EMULATED_REDUCE(__reduce_and_sync, unsigned, EMULATED_AND)

template <typename T>
static inline T emulated_shuffle(unsigned mask, T value, int source, const char *file, int line)
{
	static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
	uint64_t bits = 0;

	std::memcpy(&bits, &value, sizeof(T));
	bits = emulated_collect(EMULATED_SHUFFLE, mask, bits, source, file, line);
	std::memcpy(&value, &bits, sizeof(T));
	return value;
}

/* Where a lane of a group of `width` lanes reads, or -1: its own value. */
static inline int emulated_source(int lane, int target, int width)
{
	return target / width == lane / width && target >= 0 ? target : -1;
}

template <typename T>
static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, EMULATED_SITE)
{
	int lane = static_cast<int>(threadIdx.x % 32);

	return emulated_shuffle(mask, value, lane / width * width + (source & (width - 1)), file,
	                        line);
}

template <typename T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                               EMULATED_SITE)
{
	int lane = static_cast<int>(threadIdx.x % 32);
	bool inside = lane % width >= static_cast<int>(delta);

	return emulated_shuffle(mask, value, inside ? lane - static_cast<int>(delta) : -1, file,
	                        line);
}

template <typename T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                                 EMULATED_SITE)
{
	int lane = static_cast<int>(threadIdx.x % 32);

	return emulated_shuffle(mask, value,
	                        emulated_source(lane, lane + static_cast<int>(delta), width), file,
	                        line);
}

template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, EMULATED_SITE)
{
	int lane = static_cast<int>(threadIdx.x % 32);
	int target = lane ^ lanes;

	/* As CUDA says: a group may read of earlier groups, not of later ones. */
	return emulated_shuffle(mask, value, target / width <= lane / width ? target : -1, file,
	                        line);
}

static inline unsigned __activemask()
{
	return 0xffffffffu;
}

#define EMULATED_ATOMICS(type)                                                                     \
	static inline type atomicOr(type *at, type value)                                          \
	{                                                                                          \
		return __atomic_fetch_or(at, value, __ATOMIC_RELAXED);                             \
	}                                                                                          \
	static inline type atomicAnd(type *at, type value)                                         \
	{                                                                                          \
		return __atomic_fetch_and(at, value, __ATOMIC_RELAXED);                            \
	}                                                                                          \
	static inline type atomicAdd(type *at, type value)                                         \
	{                                                                                          \
		return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);                            \
	}                                                                                          \
	static inline type atomicExch(type *at, type value)                                        \
	{                                                                                          \
		return __atomic_exchange_n(at, value, __ATOMIC_RELAXED);                           \
	}                                                                                          \
	static inline type atomicCAS(type *at, type compare, type value)                           \
	{                                                                                          \
		__atomic_compare_exchange_n(at, &compare, value, false, __ATOMIC_RELAXED,          \
		                            __ATOMIC_RELAXED);                                     \
		return compare;                                                                    \
	}                                                                                          \
	static inline type atomicMax(type *at, type value)                                         \
	{                                                                                          \
		type old = __atomic_load_n(at, __ATOMIC_RELAXED);                                  \
		while (old < value &&                                                              \
		       !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_RELAXED,      \
		                                    __ATOMIC_RELAXED))                             \
			;                                                                          \
		return old;                                                                        \
	}                                                                                          \
	static inline type atomicMin(type *at, type value)                                         \
	{                                                                                          \
		type old = __atomic_load_n(at, __ATOMIC_RELAXED);                                  \
		while (value < old &&                                                              \
		       !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_RELAXED,      \
		                                    __ATOMIC_RELAXED))                             \
			;                                                                          \
		return old;                                                                        \
	}
EMULATED_ATOMICS(int)
EMULATED_ATOMICS(unsigned)
EMULATED_ATOMICS(unsigned long long)

static inline int __popc(unsigned value)
{
	return __builtin_popcount(value);
}

static inline int __popcll(unsigned long long value)
{
	return __builtin_popcountll(value);
}

static inline int __ffs(int value)
{
	return __builtin_ffs(value);
}

static inline int __ffsll(long long value)
{
	return __builtin_ffsll(value);
}

static inline int __clz(int value)
{
	return value ? __builtin_clz(static_cast<unsigned>(value)) : 32;
}

static inline int __clzll(long long value)
{
	return value ? __builtin_clzll(static_cast<unsigned long long>(value)) : 64;
}

template <typename To, typename From> static inline To emulated_cast(From from)
{
	static_assert(sizeof(To) == sizeof(From), "same size");
	To to;

	std::memcpy(&to, &from, sizeof(to));
	return to;
}

static inline unsigned __float_as_uint(float value)
{
	return emulated_cast<unsigned>(value);
}

static inline int __float_as_int(float value)
{
	return emulated_cast<int>(value);
}

static inline float __uint_as_float(unsigned value)
{
	return emulated_cast<float>(value);
}

static inline float __int_as_float(int value)
{
	return emulated_cast<float>(value);
}

static inline long long __double_as_longlong(double value)
{
	return emulated_cast<long long>(value);
}

static inline double __longlong_as_double(long long value)
{
	return emulated_cast<double>(value);
}

/* To nearest, ties to even; saturates, and NaN is 0. */
static inline int __float2int_rn(float value)
{
	if (value != value)
		return 0;
	if (value >= 2147483648.0f)
		return INT32_MAX;
	return value < -2147483648.0f ? INT32_MIN : static_cast<int>(std::nearbyintf(value));
}

static inline float __int2float_rn(int value)
{
	return static_cast<float>(value);
}

/* The CPU's own are rounded to nearest, and nothing is fused (-ffp-contract=off). */
static inline float __fmul_rn(float a, float b)
{
	return a * b;
}

static inline float __fadd_rn(float a, float b)
{
	return a + b;
}

static inline float __fdiv_rn(float a, float b)
{
	return a / b;
}

static inline double __dmul_rn(double a, double b)
{
	return a * b;
}

/* Hints to caches that are not there. */
#define EMULATED_LOAD(name)                                                                        \
	template <typename T> static inline T name(const T *at)                                    \
	{                                                                                          \
		return *at;                                                                        \
	}
EMULATED_LOAD(__ldg)
EMULATED_LOAD(__ldca)
EMULATED_LOAD(__ldcg)
EMULATED_LOAD(__ldcs)
EMULATED_LOAD(__ldlu)
EMULATED_LOAD(__ldcv)

#define EMULATED_STORE(name)                                                                       \
	template <typename T> static inline void name(T *at, T value)                              \
	{                                                                                          \
		*at = value;                                                                       \
	}
EMULATED_STORE(__stwb)
EMULATED_STORE(__stcg)
EMULATED_STORE(__stcs)
EMULATED_STORE(__stwt)

static inline void __threadfence()
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void __threadfence_block()
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void __threadfence_system()
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#define EMULATED_MIN_MAX(type)                                                                     \
	static inline type min(type a, type b)                                                     \
	{                                                                                          \
		return b < a ? b : a;                                                              \
	}                                                                                          \
	static inline type max(type a, type b)                                                     \
	{                                                                                          \
		return a < b ? b : a;                                                              \
	}
EMULATED_MIN_MAX(int)
EMULATED_MIN_MAX(unsigned)
EMULATED_MIN_MAX(long)
EMULATED_MIN_MAX(unsigned long)
EMULATED_MIN_MAX(long long)
EMULATED_MIN_MAX(unsigned long long)
EMULATED_MIN_MAX(float)

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

template <typename T> static inline cudaError_t cudaMallocHost(T **memory, size_t bytes)
{
	return ::cudaMallocHost(reinterpret_cast<void **>(memory), bytes);
}

#endif /* __cplusplus */

#endif
