/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cuda_impl.h - what the kernels share: how a tensor is cut, chunks of 16 bytes, groups of lanes
 *
 * Private to kernels/. All memory is read and written in chunks: 16 aligned bytes. A block of any
 * length at any address is a number of chunks, of which the first and the last may be its only in
 * part. A group of 1 to 32 lanes works on one block, lane after lane on chunk after chunk.
 */
#ifndef KERNELS_CUDA_IMPL_H
#define KERNELS_CUDA_IMPL_H

#include <cuda_runtime.h>
#include <stdint.h>

#include "kernels/bitmap_cuda.h"

#define ALL_LANES 0xffffffffu
#define CTA_THREADS 256
#define CTA_WARPS (CTA_THREADS / 32)
#define CHUNK_BYTES 16

/* Chunks that a lane has under way at once; 1024 lanes of a multiprocessor then ask for 64 KB. */
#define CHUNKS_UNDER_WAY 4

/* The four functions of the table, each in a file of its own. */
int cuda_scan(const struct bitmap_tensor *tensor, uint64_t *bits, uint64_t *magnitude,
              void *stream);
int cuda_rank(const uint64_t *bits, uint64_t block_count, uint32_t *ranks, void *scratch,
              void *stream);
int cuda_pack(const struct bitmap_tensor *tensor, const uint64_t *bits, const uint32_t *ranks,
              const struct bitmap_cuda_form *form, void *dst, void *stream);
int cuda_unpack(const struct bitmap_tensor *shape, const struct bitmap_cuda_deal *deal,
                const uint64_t *bits, const uint32_t *ranks, const void *src,
                const struct bitmap_cuda_form *form, bool clear_others, void *dst, void *stream);

/* Of load(), likewise. */
cudaError_t cuda_scan_load(void);
cudaError_t cuda_rank_load(void);
cudaError_t cuda_copy_load(void);

/* A tensor in bytes. */
struct gpu_cut {
	uint64_t bytes;
	uint64_t block_count;
	uint32_t block_bytes; /* of every block but the last, which may be shorter */
	uint32_t elem_bytes;
};

/* false when the tensor is none that the header allows. */
static inline bool gpu_cut_of(const struct bitmap_tensor *tensor, const void *data,
                              struct gpu_cut *out)
{
	const uint32_t elem_bytes = dtype_bytes(tensor->dtype);
	const uint64_t block_elems =
		tensor->block_elems < tensor->count ? tensor->block_elems : tensor->count;

	if (elem_bytes == 0 || tensor->count > UINT64_C(1) << 48 || tensor->block_elems == 0 ||
	    tensor->block_elems > BITMAP_CUDA_BLOCK_ELEMS_MAX)
		return false;
	if (tensor->count > 0 && (data == nullptr || (uintptr_t)data % elem_bytes != 0))
		return false;
	out->bytes = tensor->count * elem_bytes;
	out->block_count = bitmap_block_count(tensor->count, tensor->block_elems);
	out->block_bytes = (uint32_t)(block_elems * elem_bytes);
	out->elem_bytes = elem_bytes;
	return true;
}

/* Most chunks that a block touches: aligned says that all blocks begin and end with a chunk. */
static inline uint32_t gpu_block_chunks(const struct gpu_cut *cut, bool aligned)
{
	const uint32_t lead = aligned ? 0 : CHUNK_BYTES - cut->elem_bytes;

	return (lead + cut->block_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;
}

/*
 * log2 of the lanes for blocks of so many chunks: the largest group that leaves few of its lanes
 * without work, because neighbouring lanes at neighbouring chunks are what memory likes.
 */
static inline uint32_t gpu_group_shift(uint32_t chunks)
{
	uint32_t shift = 0, best = 0, best_share = 0;

	if (chunks <= 8) {
		while ((1u << shift) < chunks)
			shift++;
		return shift;
	}
	for (shift = 3; shift <= 5; shift++) {
		uint32_t slots = (chunks + (1u << shift) - 1) >> shift << shift;
		uint32_t share = chunks * 100 / slots;

		if (share >= 90 || share > best_share) {
			best = shift;
			best_share = share;
		}
	}
	return best;
}

/* Multiprocessors of the current device. */
static inline cudaError_t gpu_processors(uint32_t *count)
{
	int device = 0, value = 0;
	cudaError_t error = cudaGetDevice(&device);

	if (error == cudaSuccess)
		error = cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, device);
	*count = value > 0 ? (uint32_t)value : 1;
	return error;
}

/* Which step of its blocks a group is at: chunk k of a lane's in row `row` of blocks. */
struct gpu_walk {
	uint32_t row;
	uint32_t k;

	__device__ __forceinline__ void next(uint32_t per_lane)
	{
		k++;
		if (k == per_lane) {
			k = 0;
			row++;
		}
	}
};

/* Read once: leave the caches to others. */
static __device__ __forceinline__ uint4 load_chunk(const unsigned char *at)
{
	return __ldcs(reinterpret_cast<const uint4 *>(at));
}

static __device__ __forceinline__ void store_chunk(unsigned char *at, uint4 chunk)
{
	__stcs(reinterpret_cast<uint4 *>(at), chunk);
}

#endif /* KERNELS_CUDA_IMPL_H */
