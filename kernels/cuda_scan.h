/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cuda_scan.h - what a scan looks at next, and the largest magnitude of what it has seen
 *
 * Private to cuda_scan.cu.
 */
#ifndef KERNELS_CUDA_SCAN_H
#define KERNELS_CUDA_SCAN_H

#include "kernels/cuda_impl.h"

struct scan_job {
	const unsigned char *data;
	unsigned char *bits;
	unsigned long long *magnitude; /* used when the kernel is one that finds it */
	uint64_t bytes;
	uint64_t block_count;
	uint64_t unit_count;
	uint32_t block_bytes;
	uint32_t block_chunks;
	uint32_t unit_blocks;  /* 8, 16, 32, 64; 1: pieces of a block */
	uint32_t pieces;       /* of a block */
	uint32_t piece_chunks; /* of a piece; block_chunks when there is one */
	uint32_t group_shift;
	uint32_t care_even, care_odd; /* what makes a chunk's words non-zero, in turn */
};

/* What one warp looks at next. */
struct scan_unit {
	const unsigned char *start; /* of the first block */
	uint64_t block;
	uint32_t blocks;      /* that there are */
	uint32_t short_block; /* which of them is the tensor's last, if one is */
	uint32_t short_bytes; /* and that one's length */
	uint32_t first_chunk; /* of each block */
	uint32_t end_chunk;
};

/* The largest magnitudes that a lane has seen, of elements of SIZE bytes; 0: nobody asks. */
template <uint32_t SIZE> struct scan_top;

template <> struct scan_top<0> {
	__device__ __forceinline__ void add(uint4)
	{
	}
	__device__ __forceinline__ uint64_t largest() const
	{
		return 0;
	}
};

/* Of two halves in a word the upper one decides, so it need not be taken out each time. */
template <> struct scan_top<2> {
	uint32_t upper = 0, lower = 0;

	__device__ __forceinline__ void add_word(uint32_t word)
	{
		upper = max(upper, word & 0x7fffffffu);
		lower = max(lower, word & 0x7fffu);
	}
	__device__ __forceinline__ void add(uint4 chunk)
	{
		add_word(chunk.x);
		add_word(chunk.y);
		add_word(chunk.z);
		add_word(chunk.w);
	}
	__device__ __forceinline__ uint64_t largest() const
	{
		return max(upper >> 16, lower);
	}
};

template <> struct scan_top<4> {
	uint32_t top = 0;

	__device__ __forceinline__ void add(uint4 chunk)
	{
		top = max(top, max(max(chunk.x & 0x7fffffffu, chunk.y & 0x7fffffffu),
		                   max(chunk.z & 0x7fffffffu, chunk.w & 0x7fffffffu)));
	}
	__device__ __forceinline__ uint64_t largest() const
	{
		return top;
	}
};

template <> struct scan_top<8> {
	unsigned long long top = 0;

	__device__ __forceinline__ void add_pair(uint32_t low, uint32_t high)
	{
		top = max(top, static_cast<unsigned long long>(high & 0x7fffffffu) << 32 | low);
	}
	__device__ __forceinline__ void add(uint4 chunk)
	{
		add_pair(chunk.x, chunk.y);
		add_pair(chunk.z, chunk.w);
	}
	__device__ __forceinline__ uint64_t largest() const
	{
		return top;
	}
};

static __device__ __forceinline__ scan_unit unit_of(const scan_job &job, uint64_t index)
{
	const uint64_t turn = job.pieces > 1 ? index / job.pieces : index;
	const uint32_t piece = static_cast<uint32_t>(index - turn * job.pieces);
	scan_unit unit;

	unit.block = turn * job.unit_blocks;
	unit.start = job.data + unit.block * job.block_bytes;
	unit.blocks = 0;
	if (unit.block < job.block_count)
		unit.blocks = static_cast<uint32_t>(
			min(static_cast<unsigned long long>(job.block_count - unit.block),
		            static_cast<unsigned long long>(job.unit_blocks)));
	unit.short_block = UINT32_MAX;
	unit.short_bytes = 0;
	if (unit.block + unit.blocks == job.block_count && unit.blocks > 0) {
		unit.short_block = unit.blocks - 1;
		unit.short_bytes =
			static_cast<uint32_t>(job.bytes - (job.block_count - 1) * job.block_bytes);
	}
	unit.first_chunk = piece * job.piece_chunks;
	unit.end_chunk = min(unit.first_chunk + job.piece_chunks, job.block_chunks);
	return unit;
}

/* Are all blocks of the unit there, and all chunks that any lane may read for it in the tensor? */
static __device__ __forceinline__ bool unit_inside(const scan_job &job, const scan_unit &unit)
{
	const unsigned char *end = job.data + job.bytes;
	const unsigned char *first =
		unit.start - reinterpret_cast<uintptr_t>(unit.start) % CHUNK_BYTES;
	const unsigned char *last =
		unit.start + static_cast<uint64_t>(unit.blocks) * job.block_bytes;

	if (job.unit_blocks == 1) {
		last = first + static_cast<uint64_t>(unit.end_chunk) * CHUNK_BYTES;
		first += static_cast<uint64_t>(unit.first_chunk) * CHUNK_BYTES;
	} else {
		last += -reinterpret_cast<uintptr_t>(last) % CHUNK_BYTES;
	}
	return first >= job.data && last <= end && unit.blocks == job.unit_blocks;
}

#endif /* KERNELS_CUDA_SCAN_H */
