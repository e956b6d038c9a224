/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernel_arena.h - what the tests of kernels share: poisoned memory with guards, random tensors
 *
 * Made for a GPU and for the emulated one, and for nvcc as well as g++; it needs nothing but them.
 * On either, memory begins and ends where somebody watches: guard pages, or compute-sanitizer.
 */
#ifndef TESTS_GPU_KERNEL_ARENA_H
#define TESTS_GPU_KERNEL_ARENA_H

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include "bitmap/bitmap.h"
#include "tests/unit/test_random.h"

#define POISON 0xa5
#define PAGE_BYTES 4096
#define POISON_BYTES 256 /* on either side of what arena_make() gives out */

/* What the test is at, for the line that it ends with. */
static char arena_case[256] = "nothing";

#define require(condition, ...)                                                                    \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			printf("FAIL %s:%d: %s: ", __FILE__, __LINE__, arena_case);                \
			printf(__VA_ARGS__);                                                       \
			printf("\n");                                                              \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#define cuda_ok(call)                                                                              \
	do {                                                                                       \
		cudaError_t cuda_error = static_cast<cudaError_t>(call);                           \
		require(cuda_error == cudaSuccess, "%s: %s", #call,                                \
		        cudaGetErrorString(cuda_error));                                           \
	} while (0)

typedef std::vector<unsigned char> bytes_t;

/* Memory of the device, or of the host and pinned, of which kernels are given a part. */
struct arena {
	unsigned char *memory;
	size_t total;
	size_t offset; /* of the part */
	size_t bytes;  /* in it */
	bool pinned;
};

/* Under the address sanitizer, whoever reads or writes outside of the part is caught at it. */
static inline void arena_guard(const struct arena *arena, bool on)
{
#ifdef __SANITIZE_ADDRESS__
	__asan_unpoison_memory_region(arena->memory, arena->total);
	if (!on)
		return;
	__asan_poison_memory_region(arena->memory, arena->offset);
	__asan_poison_memory_region(arena->memory + arena->offset + arena->bytes,
	                            arena->total - arena->offset - arena->bytes);
#else
	(void)arena;
	(void)on;
#endif
}

/* Of a GPU's memory compute-sanitizer guards each byte, of the emulated one's a page does it. */
static inline size_t arena_total(size_t bytes)
{
#ifdef WINNOW_EMULATED_CUDA
	return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
#else
	return bytes;
#endif
}

/*
 * Room for `bytes` at a multiple of `align`, poisoned all over: flush with the end, or with the
 * beginning, or anywhere.
 */
static inline struct arena arena_make(size_t bytes, size_t align, bool pinned)
{
	struct arena arena = {};

	arena.total = arena_total(bytes + 2 * POISON_BYTES);
	arena.bytes = bytes;
	arena.pinned = pinned;
	switch (random_below(4)) {
	case 0:
		arena.offset = 0;
		break;
	case 1:
		arena.offset = (POISON_BYTES + random_below(POISON_BYTES)) / align * align;
		break;
	case 2:
		arena.offset = POISON_BYTES;
		break;
	default:
		arena.offset = (arena.total - bytes) / align * align;
		arena.total = arena_total(arena.offset + bytes);
	}
	if (pinned)
		cuda_ok(cudaHostAlloc(&arena.memory, arena.total, cudaHostAllocMapped));
	else
		cuda_ok(cudaMalloc(&arena.memory, arena.total));
	cuda_ok(cudaMemset(arena.memory, POISON, arena.total));
	arena_guard(&arena, true);
	return arena;
}

static inline void arena_free(struct arena *arena)
{
	arena_guard(arena, false);
	cuda_ok(arena->pinned ? cudaFreeHost(arena->memory) : cudaFree(arena->memory));
	arena->memory = nullptr;
}

static inline unsigned char *arena_at(const struct arena *arena)
{
	return arena->memory + arena->offset;
}

static inline void arena_fill(const struct arena *arena, const void *from)
{
	if (arena->bytes > 0)
		cuda_ok(cudaMemcpy(arena_at(arena), from, arena->bytes, cudaMemcpyDefault));
}

/* Is the part `want`, and all around it untouched? */
static inline void arena_check(const struct arena *arena, const void *want, const char *what)
{
	const unsigned char *part = static_cast<const unsigned char *>(want);
	bytes_t got(arena->total);

	arena_guard(arena, false);
	cuda_ok(cudaMemcpy(got.data(), arena->memory, arena->total, cudaMemcpyDefault));
	for (size_t i = 0; i < arena->total; i++) {
		const bool inside = i >= arena->offset && i < arena->offset + arena->bytes;
		const unsigned char expected = inside ? part[i - arena->offset] : POISON;

		require(got[i] == expected, "%s: byte %lld of %zu is %#x, not %#x", what,
		        static_cast<long long>(i) - static_cast<long long>(arena->offset),
		        arena->bytes, got[i], expected);
	}
}

/* A tensor on the host, and the same on the device. */
struct sample {
	struct bitmap_tensor tensor; /* data: on the device */
	size_t elem_bytes;
	size_t block_bytes; /* a whole block's space */
	uint64_t block_count;
	bytes_t host;
	struct arena device;
};

/* Bits of the format below the exponent. */
static inline unsigned arena_mantissa(enum dtype dtype)
{
	return dtype == DTYPE_F64 ? 52 : dtype == DTYPE_F32 ? 23 : dtype == DTYPE_F16 ? 10 : 7;
}

/* Not zero; often at an edge of the type: subnormals, the largest, infinity, NaN, one bit. */
static inline uint64_t random_value(enum dtype dtype)
{
	const unsigned bits = dtype_bytes(dtype) * 8;
	const uint64_t sign = UINT64_C(1) << (bits - 1);
	const unsigned mantissa = dtype_is_float(dtype) ? arena_mantissa(dtype) : bits - 2;
	const uint64_t infinity = (sign - 1) >> mantissa << mantissa;
	const uint64_t edges[] = {1,
	                          (UINT64_C(1) << mantissa) - 1,
	                          UINT64_C(1) << mantissa,
	                          infinity - 1,
	                          infinity,
	                          infinity + 1,
	                          sign - 1,
	                          UINT64_C(1) << random_below(bits - 1)};
	uint64_t value = random_bits() & (sign - 1);

	if (random_below(3) != 0)
		value = edges[random_below(sizeof(edges) / sizeof(edges[0]))];
	value = value == 0 ? 1 : value;
	return value | (random_below(2) == 0 ? sign : 0);
}

/* Zero; of floats either one. */
static inline uint64_t random_nothing(enum dtype dtype)
{
	if (!dtype_is_float(dtype) || random_below(2) == 0)
		return 0;
	return UINT64_C(1) << (dtype_bytes(dtype) * 8 - 1);
}

static inline void store_value(unsigned char *at, size_t elem_bytes, uint64_t value)
{
	memcpy(at, &value, elem_bytes); /* little-endian */
}

static inline uint64_t fetch_value(const unsigned char *at, size_t elem_bytes)
{
	uint64_t value = 0;

	memcpy(&value, at, elem_bytes);
	return value;
}

static inline uint64_t random_block_elems(void)
{
	static const uint64_t likely[] = {1,    2,    3,    4,    7,    8,    15,    16,   24,
	                                  31,   32,   33,   48,   63,   64,   65,    96,   100,
	                                  127,  128,  129,  255,  256,  257,  300,   512,  768,
	                                  1000, 1024, 2048, 4096, 5000, 8192, 20000, 65536};

	if (random_below(4) == 0)
		return 1 + random_below(random_below(2) == 0 ? 70 : 3000);
	return likely[random_below(sizeof(likely) / sizeof(likely[0]))];
}

/* Up to about `bytes_max`: none, one, some blocks, odd ends or whole ones. */
static inline uint64_t random_count(uint64_t block_elems, size_t elem_bytes, size_t bytes_max)
{
	const uint64_t most = bytes_max / elem_bytes;
	uint64_t count = random_below((random_below(3) == 0 ? 300 : most) + 1);

	if (random_below(3) == 0)
		count = count / block_elems * block_elems;
	if (random_below(6) == 0)
		count = (1 + random_below(3)) * block_elems + random_below(2);
	if (random_below(5) == 0)
		count = (64 * (1 + random_below(3)) - 1 + random_below(3)) * block_elems;
	return count < 3 * most ? count : most;
}

/* Near either end of a block if chance wills, where mistakes live. */
static inline uint64_t random_place(const struct sample *sample)
{
	uint64_t place = random_below(sample->tensor.count);

	if (random_below(2) == 0)
		place -= place % sample->tensor.block_elems;
	if (random_below(2) == 0 && place > 0)
		place--;
	return random_below(8) == 0 ? sample->tensor.count - 1 : place;
}

static inline struct sample sample_make(size_t bytes_max)
{
	struct sample sample = {};
	struct bitmap_tensor *tensor = &sample.tensor;
	uint64_t values;

	tensor->dtype = static_cast<enum dtype>(1 + random_below(DTYPE_COUNT));
	sample.elem_bytes = dtype_bytes(tensor->dtype);
	tensor->block_elems = random_block_elems();
	tensor->count = random_count(tensor->block_elems, sample.elem_bytes, bytes_max);
	sample.block_bytes =
		(tensor->block_elems < tensor->count ? tensor->block_elems : tensor->count) *
		sample.elem_bytes;
	sample.block_count = (tensor->count + tensor->block_elems - 1) / tensor->block_elems;
	sample.host.resize(tensor->count * sample.elem_bytes);
	for (uint64_t i = 0; i < tensor->count; i++)
		store_value(&sample.host[i * sample.elem_bytes], sample.elem_bytes,
		            random_nothing(tensor->dtype));
	values = random_below(6) == 0 ? tensor->count : random_below(20);
	for (; values > 0 && tensor->count > 0; values--)
		store_value(&sample.host[random_place(&sample) * sample.elem_bytes],
		            sample.elem_bytes, random_value(tensor->dtype));
	sample.device = arena_make(sample.host.size(), sample.elem_bytes, false);
	arena_fill(&sample.device, sample.host.data());
	tensor->data = arena_at(&sample.device);
	snprintf(arena_case, sizeof(arena_case), "%s count %llu block %llu at %zu",
	         dtype_name(tensor->dtype), static_cast<unsigned long long>(tensor->count),
	         static_cast<unsigned long long>(tensor->block_elems),
	         static_cast<size_t>(reinterpret_cast<uintptr_t>(tensor->data) % 16));
	return sample;
}

static inline void sample_free(struct sample *sample)
{
	arena_check(&sample->device, sample->host.data(), "the input");
	arena_free(&sample->device);
}

#endif /* TESTS_GPU_KERNEL_ARENA_H */
