// SPDX-License-Identifier: BSD-3-Clause
/*
 * cuda_rank.cu - how many bits are set before each word
 *
 * Tiles of 4096 words, four a thread. Up to one tile it is one kernel. Beyond, a first one counts
 * each tile, and in the second every CTA adds up the tiles before its own: the counts of 2^26 words
 * are 64 KB, in the cache, and nobody waits for anybody.
 */

#include "kernels/cuda_impl.h"
#include "kernels/launch.h"

#define RANK_THREADS 1024
#define RANK_WARPS (RANK_THREADS / 32)
#define WORDS_A_THREAD (BITMAP_CUDA_RANK_TILE_WORDS / RANK_THREADS)

struct rank_job {
	const uint64_t *bits;
	uint32_t *ranks;
	uint32_t *sums; /* [tiles] */
	uint64_t block_count;
	uint32_t word_count;
};

/* Set bits of word `index`, without those past the last block; 0 past the last word. */
static __device__ __forceinline__ uint32_t word_weight(const rank_job &job, uint32_t index)
{
	uint64_t word;

	if (index >= job.word_count)
		return 0;
	word = job.bits[index];
	if (index == job.word_count - 1 && job.block_count % 64 != 0)
		word &= (UINT64_C(1) << (job.block_count % 64)) - 1;
	return static_cast<uint32_t>(__popcll(word));
}

static __device__ __forceinline__ uint32_t warp_sum(uint32_t value)
{
	return __reduce_add_sync(ALL_LANES, value);
}

/* The sum over the CTA, to every thread. `sums`: shared, one for each warp. */
static __device__ __forceinline__ uint32_t cta_sum(uint32_t value, uint32_t *sums)
{
	const uint32_t lane = threadIdx.x % 32;

	value = warp_sum(value);
	if (lane == 0)
		sums[threadIdx.x / 32] = value;
	__syncthreads();
	value = warp_sum(sums[lane]);
	__syncthreads(); /* sums may be used again */
	return value;
}

/* The sum over all threads before this one. */
static __device__ __forceinline__ uint32_t cta_sum_before(uint32_t value, uint32_t *sums)
{
	const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	uint32_t upto = value;

	for (uint32_t distance = 1; distance < 32; distance *= 2) {
		uint32_t before = __shfl_up_sync(ALL_LANES, upto, distance);

		upto += lane >= distance ? before : 0;
	}
	if (lane == 31)
		sums[warp] = upto;
	__syncthreads();
	return upto - value + warp_sum(lane < warp ? sums[lane] : 0);
}

static __global__ void __launch_bounds__(RANK_THREADS) rank_sums_kernel(rank_job job)
{
	__shared__ uint32_t sums[RANK_WARPS];
	const uint32_t first = blockIdx.x * BITMAP_CUDA_RANK_TILE_WORDS + threadIdx.x;
	uint32_t sum = 0;

#pragma unroll
	for (uint32_t i = 0; i < WORDS_A_THREAD; i++)
		sum += word_weight(job, first + i * RANK_THREADS);
	sum = cta_sum(sum, sums);
	if (threadIdx.x == 0)
		job.sums[blockIdx.x] = sum;
}

static __global__ void __launch_bounds__(RANK_THREADS) rank_kernel(rank_job job)
{
	__shared__ uint32_t sums[RANK_WARPS];
	const uint32_t first =
		blockIdx.x * BITMAP_CUDA_RANK_TILE_WORDS + threadIdx.x * WORDS_A_THREAD;
	uint32_t weights[WORDS_A_THREAD], rank = 0, sum = 0;

	for (uint32_t tile = threadIdx.x; tile < blockIdx.x; tile += RANK_THREADS)
		rank += job.sums[tile];
	if (blockIdx.x > 0)
		rank = cta_sum(rank, sums);
#pragma unroll
	for (uint32_t i = 0; i < WORDS_A_THREAD; i++)
		sum += weights[i] = word_weight(job, first + i);
	rank += cta_sum_before(sum, sums);
#pragma unroll
	for (uint32_t i = 0; i < WORDS_A_THREAD; i++) {
		if (first + i >= job.word_count)
			break;
		job.ranks[first + i] = rank;
		rank += weights[i];
		if (first + i == job.word_count - 1)
			job.ranks[job.word_count] = rank;
	}
}

int cuda_rank(const uint64_t *bits, uint64_t block_count, uint32_t *ranks, void *scratch,
              void *stream)
{
	const uint64_t words = bitmap_word_count(block_count);
	const uint32_t tiles = static_cast<uint32_t>((words + BITMAP_CUDA_RANK_TILE_WORDS - 1) /
	                                             BITMAP_CUDA_RANK_TILE_WORDS);
	const rank_job job = {bits, ranks, static_cast<uint32_t *>(scratch), block_count,
	                      static_cast<uint32_t>(words)};
	cudaError_t error = cudaSuccess;

	if (block_count > UINT32_MAX)
		return cudaErrorInvalidValue;
	if (words == 0)
		return cudaMemsetAsync(ranks, 0, sizeof(*ranks), static_cast<cudaStream_t>(stream));
	if (tiles > 1)
		error = launch(rank_sums_kernel, tiles, RANK_THREADS,
		               static_cast<cudaStream_t>(stream), job);
	if (error == cudaSuccess)
		error = launch(rank_kernel, tiles, RANK_THREADS, static_cast<cudaStream_t>(stream),
		               job);
	return error;
}

cudaError_t cuda_rank_load(void)
{
	cudaError_t error = load(rank_sums_kernel);

	return error != cudaSuccess ? error : load(rank_kernel);
}
