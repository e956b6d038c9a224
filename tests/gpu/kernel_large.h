/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernel_large.h - a tensor of more than 2^32 bytes by all kernels, in little memory of the host
 *
 * A GPU gets gigabytes; the emulated one a few megabytes, to see that this test is right.
 */
#ifndef TESTS_GPU_KERNEL_LARGE_H
#define TESTS_GPU_KERNEL_LARGE_H

#include <algorithm>

#include "kernels/bitmap_cuda.h"
#include "tests/gpu/kernel_arena.h"

#define WINDOW_BYTES (UINT64_C(1) << 24) /* what the host looks at, at once */

struct large {
	struct bitmap_tensor tensor;
	unsigned char *data, *packed, *back; /* each as long as the tensor */
	uint64_t *bits;
	uint32_t *ranks;
	void *scratch;
	uint64_t bytes, block_bytes, block_count, words;
	std::vector<uint64_t> want; /* the bits */
	cudaStream_t stream;
};

/* Zeros, and values at the ends, around each gigabyte and anywhere. */
static inline void large_fill(struct large *large)
{
	const size_t elem_bytes = dtype_bytes(large->tensor.dtype);
	std::vector<uint64_t> places = {0, large->tensor.count - 1};

	for (uint64_t at = UINT64_C(1) << 30; at < large->bytes; at += UINT64_C(1) << 30) {
		places.push_back(at / elem_bytes);
		places.push_back(at / elem_bytes - 1);
	}
	for (int i = 0; i < 300; i++)
		places.push_back(random_below(large->tensor.count));
	cuda_ok(cudaMemset(large->data, 0, large->bytes));
	large->want.assign(large->words, 0);
	for (uint64_t place : places) {
		const uint64_t value = random_value(large->tensor.dtype);
		const uint64_t block = place / large->tensor.block_elems;

		cuda_ok(cudaMemcpy(large->data + place * elem_bytes, &value, elem_bytes,
		                   cudaMemcpyDefault));
		large->want[block / 64] |= UINT64_C(1) << block % 64;
	}
}

/* Are `bytes` of the device's memory the same in two places? */
static inline void large_compare(const unsigned char *a, const unsigned char *b, uint64_t bytes,
                                 const char *what)
{
	bytes_t left(std::min(WINDOW_BYTES, bytes)), right(std::min(WINDOW_BYTES, bytes));

	for (uint64_t at = 0; at < bytes; at += WINDOW_BYTES) {
		const size_t part = std::min(WINDOW_BYTES, bytes - at);

		cuda_ok(cudaMemcpy(left.data(), a + at, part, cudaMemcpyDefault));
		cuda_ok(cudaMemcpy(right.data(), b + at, part, cudaMemcpyDefault));
		require(memcmp(left.data(), right.data(), part) == 0,
		        "%s differs in the 16 MB at byte %llu", what,
		        static_cast<unsigned long long>(at));
	}
}

static inline void large_scan(struct large *large)
{
	std::vector<uint64_t> bits(large->words);

	cuda_ok(bitmap_cuda_kernels.scan(&large->tensor, large->bits, nullptr, large->stream));
	cuda_ok(cudaStreamSynchronize(large->stream));
	cuda_ok(cudaMemcpy(bits.data(), large->bits, large->words * 8, cudaMemcpyDefault));
	require(bits == large->want, "scan");
}

static inline uint32_t large_rank(struct large *large)
{
	std::vector<uint32_t> ranks(large->words + 1);
	uint32_t rank = 0;

	cuda_ok(bitmap_cuda_kernels.rank(large->bits, large->block_count, large->ranks,
	                                 large->scratch, large->stream));
	cuda_ok(cudaStreamSynchronize(large->stream));
	cuda_ok(cudaMemcpy(ranks.data(), large->ranks, ranks.size() * 4, cudaMemcpyDefault));
	for (uint64_t w = 0; w < large->words; w++) {
		require(ranks[w] == rank, "rank of word %llu", static_cast<unsigned long long>(w));
		rank += static_cast<uint32_t>(__builtin_popcountll(large->want[w]));
	}
	require(ranks[large->words] == rank, "all ranks");
	return rank;
}

/* Pack what the bits say, and what is packed block by block is the tensor's. */
static inline void large_pack(struct large *large)
{
	const struct bitmap_cuda_form plain = {false, 0, 1, 0};
	uint64_t rank = 0;

	cuda_ok(bitmap_cuda_kernels.pack(&large->tensor, large->bits, large->ranks, &plain,
	                                 large->packed, large->stream));
	cuda_ok(cudaStreamSynchronize(large->stream));
	for (uint64_t block = 0; block < large->block_count; block++)
		if (large->want[block / 64] >> block % 64 & 1) {
			const uint64_t at = block * large->block_bytes;

			large_compare(large->data + at, large->packed + rank * large->block_bytes,
			              std::min(large->block_bytes, large->bytes - at), "pack");
			rank++;
		}
}

static inline void large_unpack(struct large *large)
{
	const struct bitmap_cuda_deal deal = {0, 1, 0, large->block_count};
	const struct bitmap_cuda_form plain = {false, 0, 1, 0};

	cuda_ok(cudaMemset(large->back, POISON, large->bytes));
	cuda_ok(bitmap_cuda_kernels.unpack(&large->tensor, &deal, large->bits, large->ranks,
	                                   large->packed, &plain, true, large->back,
	                                   large->stream));
	cuda_ok(cudaStreamSynchronize(large->stream));
	large_compare(large->data, large->back, large->bytes, "unpack");
}

/* The same with every bit set, of data that repeats nowhere near. */
static inline void large_dense(struct large *large)
{
	const struct bitmap_cuda_form plain = {false, 0, 1, 0};
	bytes_t window(WINDOW_BYTES + 4096);

	for (unsigned char &byte : window)
		byte = static_cast<unsigned char>(random_bits() >> 24);
	for (uint64_t at = 0; at < large->bytes; at += WINDOW_BYTES)
		cuda_ok(cudaMemcpy(large->data + at, &window[at / WINDOW_BYTES % 4096],
		                   std::min(WINDOW_BYTES, large->bytes - at), cudaMemcpyDefault));
	large->want.assign(large->words, UINT64_MAX);
	cuda_ok(cudaMemcpy(large->bits, large->want.data(), large->words * 8, cudaMemcpyDefault));
	if (large->block_count % 64 != 0)
		large->want.back() = (UINT64_C(1) << large->block_count % 64) - 1;
	large_rank(large);
	cuda_ok(cudaMemset(large->packed, POISON, large->bytes));
	cuda_ok(bitmap_cuda_kernels.pack(&large->tensor, large->bits, large->ranks, &plain,
	                                 large->packed, large->stream));
	cuda_ok(cudaStreamSynchronize(large->stream));
	large_compare(large->data, large->packed, large->bytes, "dense pack");
	large_unpack(large);
}

/* `bytes` is a multiple of the block. */
static inline void large_check(cudaStream_t stream, enum dtype dtype, uint64_t block_elems,
                               uint64_t bytes)
{
	const uint64_t elem_bytes = dtype_bytes(dtype);
	struct large large = {};

	snprintf(arena_case, sizeof(arena_case), "%s of %llu bytes, block %llu", dtype_name(dtype),
	         static_cast<unsigned long long>(bytes),
	         static_cast<unsigned long long>(block_elems));
	large.stream = stream;
	large.block_bytes = block_elems * elem_bytes;
	large.bytes = bytes / large.block_bytes * large.block_bytes;
	large.block_count = large.bytes / large.block_bytes;
	large.words = (large.block_count + 63) / 64;
	cuda_ok(cudaMalloc(&large.data, large.bytes));
	cuda_ok(cudaMalloc(&large.packed, large.bytes));
	cuda_ok(cudaMalloc(&large.back, large.bytes));
	cuda_ok(cudaMalloc(&large.bits, large.words * 8));
	cuda_ok(cudaMalloc(&large.ranks, (large.words + 1) * 4));
	cuda_ok(cudaMalloc(&large.scratch, bitmap_cuda_rank_scratch(large.words)));
	large.tensor = {large.data, large.bytes / elem_bytes, block_elems, dtype};
	large_fill(&large);
	large_scan(&large);
	large_rank(&large);
	large_pack(&large);
	large_unpack(&large);
	large_dense(&large);
	cuda_ok(cudaFree(large.data));
	cuda_ok(cudaFree(large.packed));
	cuda_ok(cudaFree(large.back));
	cuda_ok(cudaFree(large.bits));
	cuda_ok(cudaFree(large.ranks));
	cuda_ok(cudaFree(large.scratch));
}

#endif /* TESTS_GPU_KERNEL_LARGE_H */
