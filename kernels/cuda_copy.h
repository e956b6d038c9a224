/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cuda_copy.h - pack and unpack: which blocks a warp copies, and how it finds them
 *
 * Private to cuda_copy.cu. A warp takes tiles: so many set blocks one after the other as they are
 * packed, or, where the others are cleared, so many bits. It lists them in shared memory first, and
 * copies them afterwards, so that the copying knows nothing of bits. By packed order every warp has
 * the same to do, however the blocks lie in the tensor.
 */
#ifndef KERNELS_CUDA_COPY_H
#define KERNELS_CUDA_COPY_H

#include "kernels/cuda_impl.h"

#define TILE_BLOCKS_MAX 256
#define TILE_BYTES 16384  /* about, of small blocks */
#define PIECE_CHUNKS 1024 /* of a block larger than a tile */
#define NOT_PACKED UINT32_MAX

struct copy_job {
	unsigned char *tensor; /* pack only reads it */
	unsigned char *packed; /* unpack only reads it */
	const uint64_t *bits;
	const uint32_t *ranks;
	uint64_t tensor_bytes;
	uint64_t block_count; /* in the tensor */
	uint64_t first_index; /* bit 0 is this block of the shard */
	uint32_t shard, shard_count;
	uint32_t bit_count, word_count;
	uint32_t block_bytes;
	uint32_t block_chunks;
	uint32_t elem_bytes;
	uint32_t tile_blocks; /* at most; a multiple of a row of groups */
	uint32_t pieces;      /* of a block; more than 1 when tile_blocks is 1 */
	uint32_t piece_chunks;
	uint32_t group_shift;
	uint32_t clear; /* the blocks that are not set, too */
	float first_factor, second_factor, divisor;
};

/* The blocks that a warp copies next: `blocks` of them, from position `first` of all. */
struct copy_tile {
	uint32_t first;
	uint32_t blocks;
	uint32_t first_chunk; /* of each */
	uint32_t end_chunk;
};

/* Word `index` of the bitmap; 0 past the last. Bits past the last block have no rank, so they stay. */
static __device__ __forceinline__ uint64_t bits_of(const copy_job &job, uint32_t index)
{
	if (index >= job.word_count)
		return 0;
	return __ldg(reinterpret_cast<const unsigned long long *>(job.bits) + index);
}

/* The last word w with ranks[w] <= rank: the one that has bit number `rank`. All lanes search. */
static __device__ __forceinline__ uint32_t find_word(const copy_job &job, uint32_t rank)
{
	uint32_t low = 0, count = job.word_count;

	while (count > 1) {
		const uint32_t step = (count + 31) / 32, probe = threadIdx.x % 32 * step;
		const bool before = probe < count && __ldg(job.ranks + low + probe) <= rank;
		const uint32_t last =
			static_cast<uint32_t>(__popc(__ballot_sync(ALL_LANES, before))) - 1;

		low += last * step;
		count = min(step, count - last * step);
	}
	return low;
}

/* A word of the bitmap and its rank; past the last word nothing, which comes after everything. */
struct copy_word {
	uint64_t bits;
	uint32_t rank;
};

static __device__ __forceinline__ copy_word word_at(const copy_job &job, uint32_t index)
{
	copy_word word = {bits_of(job, index), UINT32_MAX};

	if (index < job.word_count)
		word.rank = __ldg(job.ranks + index);
	return word;
}

/* list[i] = the bit of the tile's i-th packed block. The next words come while these are listed. */
static __device__ __forceinline__ void list_set(const copy_job &job, const copy_tile &tile,
                                                uint32_t *list)
{
	const uint32_t end = tile.first + tile.blocks;
	uint32_t index = find_word(job, tile.first) + threadIdx.x % 32;
	copy_word word = word_at(job, index);
	bool more = true;

	while (more) {
		const copy_word next = word_at(job, index + 32);

		for (; word.bits != 0 && word.rank < end; word.bits &= word.bits - 1, word.rank++)
			if (word.rank >= tile.first)
				list[word.rank - tile.first] =
					index * 64 +
					static_cast<uint32_t>(
						__ffsll(static_cast<long long>(word.bits))) -
					1;
		more = __shfl_sync(ALL_LANES, next.rank, 0) < end;
		index += 32;
		word = next;
	}
}

/* list[i] = where the block of the tile's i-th bit is packed, or NOT_PACKED. */
static __device__ __forceinline__ void list_all(const copy_job &job, const copy_tile &tile,
                                                uint32_t *list)
{
	for (uint32_t i = threadIdx.x % 32; i < tile.blocks; i += 32) {
		const uint32_t bit = (tile.first + i) % 64;
		const copy_word word = word_at(job, (tile.first + i) / 64);
		const uint64_t before = word.bits & ((UINT64_C(1) << bit) - 1);

		list[i] = NOT_PACKED;
		if (word.bits >> bit & 1)
			list[i] = word.rank + static_cast<uint32_t>(__popcll(before));
	}
}

/* How many tiles there are, and the blocks of each, so that all warps get as many. */
struct copy_share {
	uint64_t tile_count;
	uint32_t total;
	uint32_t tile_blocks;
};

static __device__ __forceinline__ copy_share share_of(const copy_job &job, uint32_t warps)
{
	const uint32_t row = 32u >> job.group_shift;
	copy_share share;
	uint32_t rounds;

	share.total = job.clear ? job.bit_count : __ldg(job.ranks + job.word_count);
	share.tile_blocks = 1;
	if (job.pieces == 1 && share.total > 0) {
		rounds = (share.total - 1) / (warps * job.tile_blocks) + 1;
		share.tile_blocks = (share.total - 1) / (warps * rounds) + 1;
		share.tile_blocks = (share.tile_blocks + row - 1) / row * row;
	}
	share.tile_count = share.total / share.tile_blocks;
	share.tile_count += share.total % share.tile_blocks != 0;
	share.tile_count *= job.pieces;
	return share;
}

static __device__ __forceinline__ copy_tile tile_of(const copy_job &job, const copy_share &share,
                                                    uint64_t index)
{
	const uint32_t turn = static_cast<uint32_t>(index / job.pieces);
	const uint32_t piece =
		static_cast<uint32_t>(index - static_cast<uint64_t>(turn) * job.pieces);
	copy_tile tile;

	tile.first = turn * share.tile_blocks;
	tile.blocks = min(share.tile_blocks, share.total - tile.first);
	tile.first_chunk = piece * job.piece_chunks;
	tile.end_chunk = min(tile.first_chunk + job.piece_chunks, job.block_chunks);
	return tile;
}

#endif /* KERNELS_CUDA_COPY_H */
