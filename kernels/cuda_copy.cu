// SPDX-License-Identifier: BSD-3-Clause
/*
 * cuda_copy.cu - copies blocks of a tensor into frames and back, unchanged or as int32
 *
 * CTAs share the frames evenly, or each takes one run. For each plan a CTA loads the plan into
 * shared memory once, and computes the rank of each of its words. A warp takes one frame: it lists
 * up to 64 of the frame's blocks, of which each lane finds one by its rank, and copies them unit by
 * unit, with four per lane in flight. Units are as wide as the tensor is aligned, and adjacent in
 * the frame, so whole lines cross the bus.
 */

#include <assert.h>
#include <string.h>

#include "ebpf/deal.h"
#include "kernels/cuda_impl.h"

#define LIST_BLOCKS 64u /* blocks of a frame that are listed at a time */
#define UNDER_WAY 4     /* units of a lane in flight */
#define COPY_CTAS 4     /* the least number that fits a multiprocessor */

struct copy_job {
	struct gpu_copy copy;
	uint32_t per_cta; /* frames; 0: each CTA takes the run of its number */
};
static_assert(sizeof(copy_job) <= 4096, "a kernel's arguments have at most 4096 bytes");

/* Shared memory of a CTA. */
struct copy_shared {
	struct gpu_plan plan;
	uint32_t ranks[GPU_PLAN_WORDS + 1]; /* Set bits before each word. */
	uint32_t sums[CTA_WARPS];           /* Set bits in the words of each warp. */
	uint32_t lists[CTA_WARPS][LIST_BLOCKS];
};

/* Loads a run's plan, and the used part of its bitmaps. A copy in does not need our own blocks. */
template <bool OUT>
static __device__ __forceinline__ void share_plan(copy_shared *shared, const struct gpu_run &run)
{
	constexpr uint32_t own = offsetof(struct gpu_plan, own) / 4;
	const uint32_t end = offsetof(struct gpu_plan, united) / 4 + 2 * run.words;
	const uint32_t *from = reinterpret_cast<const uint32_t *>(run.plan);
	uint32_t *to = reinterpret_cast<uint32_t *>(&shared->plan);
	const auto place = [=](uint32_t i) { return i < end ? i : own + i - end; };

	each_of<5>(
		end + (OUT ? 2 * run.words : 0), [&](uint32_t i) { return from[place(i)]; },
		[&](uint32_t i, uint32_t word) { to[place(i)] = word; });
}

/* Computes the ranks, each thread that of the word after its own; all threads call it. */
static __device__ __forceinline__ void rank_words(copy_shared *shared, uint32_t words)
{
	const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	uint32_t rank = threadIdx.x < words ? __popcll(shared->plan.united[threadIdx.x]) : 0;

	static_assert(GPU_PLAN_WORDS == CTA_THREADS, "a word for each thread");
	for (uint32_t step = 1; step < 32; step *= 2) {
		const uint32_t before = __shfl_sync(ALL_LANES, rank, lane - step);

		rank += lane >= step ? before : 0;
	}
	if (lane == 31)
		shared->sums[warp] = rank;
	__syncthreads();
	for (uint32_t i = 0; i < warp; i++)
		rank += shared->sums[i];
	shared->ranks[threadIdx.x + 1] = rank;
	if (threadIdx.x == 0)
		shared->ranks[0] = 0;
}

/* Finds the block of the union, counted from the segment's first, with `rank` others before it. */
static __device__ __forceinline__ uint32_t block_of_rank(const copy_shared &shared, uint32_t rank)
{
	uint32_t word = 0, bit = 0;
	uint64_t bits;

	/* Finds the last word with at most `rank` bits before it. */
#pragma unroll
	for (uint32_t step = GPU_PLAN_WORDS / 2; step > 0; step /= 2)
		word += shared.ranks[word + step] <= rank ? step : 0;
	bits = shared.plan.united[word];
	rank -= shared.ranks[word];
#pragma unroll
	for (uint32_t step = 32; step > 0; step /= 2) {
		const uint32_t before = __popcll(bits & ((UINT64_C(1) << step) - 1));

		if (before <= rank) {
			rank -= before;
			bit += step;
			bits >>= step;
		}
	}
	return word * 64 + bit;
}

/*
 * Lists the blocks of the union from `rank` to rank + count - 1, or only our own among them if OUT,
 * as distances in the tensor, in blocks, from the segment's first. Each lane finds one, so that few
 * blocks in many words take no longer than many in few. Returns their number.
 */
template <bool OUT>
static __device__ __forceinline__ uint32_t list_blocks(const copy_shared &shared, uint32_t rank,
                                                       uint32_t count, uint32_t *list)
{
	const struct gpu_plan &plan = shared.plan;
	const uint32_t lane = threadIdx.x % 32, below = (1u << lane) - 1;
	uint32_t found = 0;

	for (uint32_t first = 0; first < count; first += 32) {
		const uint32_t block = block_of_rank(shared, rank + min(first + lane, count - 1));
		const bool set = first + lane < count &&
		                 (!OUT || (plan.own[block / 64] >> block % 64 & 1) != 0);
		const uint32_t votes = __ballot_sync(ALL_LANES, set);
		const uint64_t index = plan.first_index + block;

		if (set)
			list[found + __popc(votes & below)] = static_cast<uint32_t>(
				(plan.shard_count == 1
			                 ? index
			                 : deal_block(plan.shard_count, plan.shard, index)) -
				plan.first_index * plan.shard_count);
		found += __popc(votes);
	}
	return found;
}

/* A power of two within the range of f32. */
static __device__ __forceinline__ float power(int exponent)
{
	return __uint_as_float(static_cast<uint32_t>(exponent + 127) << 23);
}

/*
 * Converts like fixed_encode() and fixed_decode() of bitmap.h: to nearest, ties to even. The scale
 * may be out of the range of f32, so it is applied in two halves.
 */
template <bool OUT>
static __device__ __forceinline__ uint32_t convert(const struct gpu_plan &plan, uint32_t word)
{
	const int shift = OUT ? plan.shift : -plan.shift, half = shift / 2;
	float value = OUT ? __uint_as_float(word) : __int2float_rn(static_cast<int>(word));

	value = __fmul_rn(__fmul_rn(value, power(half)), power(shift - half));
	if (OUT)
		return static_cast<uint32_t>(__float2int_rn(value));
	return __float_as_uint(plan.divisor == 1 ? value : __fdiv_rn(value, plan.divisor));
}

/*
 * The places of a frame's units: `block_bytes` of each of its blocks, from `offset` on. A unit lies
 * in the tensor, or wholly after its end.
 */
struct copy_frame {
	unsigned char *tensor; /* the segment's first block */
	unsigned char *frame;
	uint64_t tensor_bytes; /* from `tensor` to the tensor's end */
	const uint32_t *list;
	uint32_t blocks, block_bytes, offset;
};

template <bool OUT, bool FIXED, uint32_t WIDTH>
static __device__ __forceinline__ void copy_units(const struct gpu_plan &plan, const copy_frame &f)
{
	const uint32_t each = f.block_bytes / WIDTH, total = f.blocks * each;
	const uint32_t inverse = inverse_of(each);
	constexpr uint32_t under_way = FIXED && !OUT ? UNDER_WAY / 2 : UNDER_WAY; /* a divisor */

	for (uint32_t first = threadIdx.x % 32; first < total; first += 32 * under_way) {
		unit<WIDTH> units[under_way];

		/* Returns where unit `index` is in the tensor, or the tensor's end for none. */
		const auto place = [&](uint32_t index) {
			const uint32_t block = divide(index, inverse);

			return index >= total
			               ? f.tensor_bytes
			               : static_cast<uint64_t>(f.list[block]) * plan.block_bytes +
			                         f.offset + (index - block * each) * WIDTH;
		};

#pragma unroll
		for (uint32_t i = 0; i < under_way; i++) {
			const uint32_t index = first + 32 * i;

			units[i] = {};
			if (!OUT && index < total)
				units[i] = load_unit<WIDTH>(f.frame + index * WIDTH);
			else if (OUT && place(index) < f.tensor_bytes)
				units[i] = load_unit<WIDTH>(f.tensor + place(index));
		}
#pragma unroll
		for (uint32_t i = 0; i < under_way; i++) {
			const uint32_t index = first + 32 * i;

#pragma unroll
			for (uint32_t w = 0; FIXED && w < unit<WIDTH>::words; w++)
				units[i].word[w] = convert<OUT>(plan, units[i].word[w]);
			if (OUT && index < total)
				store_unit<WIDTH>(f.frame + index * WIDTH, units[i]);
			else if (!OUT && place(index) < f.tensor_bytes)
				store_unit<WIDTH>(f.tensor + place(index), units[i]);
		}
	}
}

template <bool OUT>
static __device__ __forceinline__ void copy_listed(const struct gpu_plan &plan, const copy_frame &f)
{
	uint64_t aligned =
		reinterpret_cast<uintptr_t>(f.tensor) | plan.block_bytes | plan.part_bytes;

	/* Units are narrower where the tensor ends within the frame's last block. */
	if (f.blocks > 0 &&
	    (f.list[f.blocks - 1] + UINT64_C(1)) * plan.block_bytes > f.tensor_bytes)
		aligned |= f.tensor_bytes;
	if (plan.fixed && unit_bytes(aligned) == 16)
		copy_units<OUT, true, 16>(plan, f);
	else if (plan.fixed) /* f32, aligned to four bytes */
		copy_units<OUT, true, 4>(plan, f);
	else if (unit_bytes(aligned) == 16)
		copy_units<OUT, false, 16>(plan, f);
	else if (unit_bytes(aligned) == 8)
		copy_units<OUT, false, 8>(plan, f);
	else if (unit_bytes(aligned) == 4)
		copy_units<OUT, false, 4>(plan, f);
	else
		copy_units<OUT, false, 2>(plan, f);
}

template <bool OUT>
static __device__ __forceinline__ void copy_frame_of(const copy_shared &shared, uint32_t number,
                                                     uint32_t *list)
{
	const struct gpu_plan &plan = shared.plan;
	const uint32_t place = number - plan.frame_first;
	const uint32_t index = plan.block_parts == 1 ? place : place / plan.block_parts;
	const uint32_t part = place - index * plan.block_parts, rank = index * plan.frame_blocks;
	const uint32_t blocks = min(plan.frame_blocks, shared.ranks[GPU_PLAN_WORDS] - rank);
	const uint64_t base = plan.first_index * plan.shard_count * plan.block_bytes;
	copy_frame f;

	f.list = list;
	f.offset = part * plan.part_bytes;
	f.block_bytes = part + 1 < plan.block_parts ? plan.part_bytes : plan.block_bytes - f.offset;
	f.tensor = (OUT ? const_cast<unsigned char *>(plan.send) : plan.recv) + base;
	f.tensor_bytes = plan.tensor_bytes > base ? plan.tensor_bytes - base : 0;
	f.frame = (OUT ? plan.out : plan.in) +
	          static_cast<uint64_t>(number & plan.frame_mask) * plan.frame_stride;
	for (uint32_t done = 0; done < blocks; done += LIST_BLOCKS) {
		f.blocks = list_blocks<OUT>(shared, rank + done, min(blocks - done, LIST_BLOCKS),
		                            list);
		__syncwarp();
		copy_listed<OUT>(plan, f);
		f.frame += f.blocks * f.block_bytes;
		__syncwarp(); /* before the list is overwritten */
	}
}

template <bool OUT>
static __global__ void __launch_bounds__(CTA_THREADS, COPY_CTAS) copy_kernel(copy_job job)
{
	__shared__ copy_shared shared;
	const uint32_t warp = threadIdx.x / 32, cta = blockIdx.x;
	const bool own = job.per_cta == 0;
	const uint32_t begin = own ? job.copy.runs[cta].before : cta * job.per_cta;
	const uint32_t end = own ? begin + job.copy.runs[cta].count
	                         : min(begin + job.per_cta, job.copy.frame_count);

	for (uint32_t i = 0; i < job.copy.run_count; i++) {
		const struct gpu_run run = job.copy.runs[i];
		const uint32_t from = max(begin, run.before);
		const uint32_t to = min(end, run.before + run.count);

		if (from >= to)
			continue;
		share_plan<OUT>(&shared, run);
		__syncthreads();
		rank_words(&shared, run.words);
		__syncthreads();
		for (uint32_t frame = from + warp; frame < to; frame += CTA_WARPS)
			copy_frame_of<OUT>(shared, run.frame + frame - run.before,
			                   shared.lists[warp]);
		__syncthreads(); /* before the plan is overwritten */
	}
	if (last_cta(job.copy.ticket))
		tell(job.copy.done);
}

int cuda_copy(const struct gpu_copy *copy, uint32_t most, void *stream)
{
	copy_job job = {};
	uint32_t ctas = copy->run_count;

	assert(copy->run_count > 0 && copy->run_count <= GPU_RUNS_MAX && copy->frame_count > 0);
	job.copy = *copy;
	/* With few frames each run has a CTA of its own, so that no run waits for another's plan. */
	if (copy->frame_count > CTA_WARPS * copy->run_count) {
		ctas = (copy->frame_count + CTA_WARPS - 1) / CTA_WARPS;
		ctas = ctas < most ? ctas : most;
		job.per_cta = (copy->frame_count + ctas - 1) / ctas;
		ctas = (copy->frame_count + job.per_cta - 1) / job.per_cta;
	}
	return launch(copy->out ? copy_kernel<true> : copy_kernel<false>, ctas, stream, job);
}

int cuda_copy_load(void)
{
	return load(copy_kernel<true>, copy_kernel<false>);
}
