/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bitmap_cuda.h - the functions of bitmap.h that a GPU runs on its own tensors
 *
 * A plain C interface: whoever calls it needs no CUDA header. Words, bits and blocks are those of
 * bitmap.h, and results are the same bit for bit.
 *
 * Rules that hold for every call
 * - It is put into `stream` (a cudaStream_t of the current device) and returns at once: it never
 *   waits and never allocates. What it is given stays as it is until the stream has passed it;
 *   tensor, deal and form may go when the call returns.
 * - It returns a cudaError_t: 0, or what a launch said; cudaErrorInvalidValue for arguments outside
 *   of what is said here (nothing is launched then). A fault while it runs comes from later calls.
 * - Bits, ranks, scratch and magnitude are memory of the current device. "Device-visible" memory
 *   is that or pinned host memory under the address that the host knows (unified addressing).
 * - Tensors and packed blocks are aligned as their element type asks, no more. No byte outside the
 *   given elements is written or read.
 * - count <= 2^48; block_elems 1 .. BITMAP_CUDA_BLOCK_ELEMS_MAX. All counts may be 0. A block has
 *   no more elements than its tensor. rank(), pack() and unpack() take fewer than 2^32 blocks.
 * - Bits past the last block that come in do not matter; those that go out are 0.
 */
#ifndef KERNELS_BITMAP_CUDA_H
#define KERNELS_BITMAP_CUDA_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/bitmap.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BITMAP_CUDA_BLOCK_ELEMS_MAX 65536
#define BITMAP_CUDA_SHIFT_MAX 200
#define BITMAP_CUDA_RANK_TILE_WORDS 4096

/*
 * Which block of the tensor bit i stands for: first_index + i when shard_count is 1, else
 * deal_block(shard_count, shard, first_index + i) of ebpf/deal.h.
 */
struct bitmap_cuda_deal {
	uint32_t shard; /* below shard_count */
	uint32_t shard_count;
	uint64_t first_index;
	uint64_t index_count; /* bits; below 2^32 */
};

/* How packed elements differ from the tensor's, and how much of the GPU may copy them. */
struct bitmap_cuda_form {
	bool fixed;        /* as fixed_encode() and fixed_decode() of bitmap.h; f32 only */
	int shift;         /* -200 .. 200 */
	uint32_t divisor;  /* >= 1; unpack divides by it after scaling */
	uint32_t ctas_max; /* of 256 threads; 0: all that fit. Across a bus 32 are enough */
};

/* Bytes of rank()'s scratch, aligned to 4. */
static inline uint64_t bitmap_cuda_rank_scratch(uint64_t words)
{
	return (words / BITMAP_CUDA_RANK_TILE_WORDS + 1) * sizeof(uint32_t);
}

struct bitmap_cuda {
	/*
	 * load - have the driver load all kernels for the current device. It would else load each
	 * when it is first used, for which it may wait for all that the device has to do, and let
	 * no other thread make a call meanwhile. Unlike the others it may wait and allocate.
	 */
	int (*load)(void);

	/*
	 * scan - bits[bitmap_word_count(blocks)] = the bitmap of `tensor`, and *magnitude = the
	 * largest element without its sign as an unsigned integer, 0 for none, in one pass:
	 * bitmap_range_of() makes a range of it. magnitude may be NULL, and is for integers.
	 */
	int (*scan)(const struct bitmap_tensor *tensor, uint64_t *bits, uint64_t *magnitude,
	            void *stream);

	/*
	 * rank - ranks[w] = set bits before word w; ranks[words] = all of them. ranks has room for
	 * words + 1. One rank() can serve several pack() and unpack() of these bits.
	 */
	int (*rank)(const uint64_t *bits, uint64_t block_count, uint32_t *ranks, void *scratch,
	            void *stream);

	/*
	 * pack - the blocks whose bit is set, in order, each in a whole block's space; a short
	 * last block is filled up with zeros. dst: device-visible, ranks[words] blocks, apart from
	 * the tensor. Nothing is written past them, so the host need not know how many there are.
	 */
	int (*pack)(const struct bitmap_tensor *tensor, const uint64_t *bits, const uint32_t *ranks,
	            const struct bitmap_cuda_form *form, void *dst, void *stream);

	/*
	 * unpack - the reverse for the blocks of `deal`: those whose bit is set come from src
	 * (device-visible, whole blocks' spaces in the order of the bits), the others become zero
	 * when `clear_others`, else stay. Blocks that the tensor does not have are passed over,
	 * but a bit set for one counts. ranks are those of bits[index_count]. shape->data is not
	 * used.
	 */
	int (*unpack)(const struct bitmap_tensor *shape, const struct bitmap_cuda_deal *deal,
	              const uint64_t *bits, const uint32_t *ranks, const void *src,
	              const struct bitmap_cuda_form *form, bool clear_others, void *dst,
	              void *stream);
};

extern const struct bitmap_cuda bitmap_cuda_kernels;

#ifdef __cplusplus
}
#endif

#endif /* KERNELS_BITMAP_CUDA_H */
