// SPDX-License-Identifier: BSD-3-Clause
/*
 * cuda_scan.cu - one bit a block, and the largest magnitude, in one pass
 *
 * A warp takes units. Small blocks: a unit is 8 to 64 of them, whose bits are whole bytes of the
 * bitmap that no other warp writes. Large ones: a unit is a piece of one block, and whoever finds
 * something in it sets the bit with an atomic operation, one for 16 KB at most. Floats without
 * their sign order like unsigned integers, so the largest is found as such.
 */

#include "kernels/cuda_impl.h"
#include "kernels/cuda_scan.h"
#include "kernels/launch.h"

#define SCAN_CTAS 3                /* of one kernel that fit a multiprocessor, at least */
#define UNITS_A_WARP 8             /* of large tensors, so that late CTAs even out early ones */
#define UNIT_BYTES 8192            /* of small blocks together, about */
#define WHOLE_BLOCK_BYTES_MAX 2048 /* larger ones are units of their own */
#define PIECE_CHUNKS 1024          /* of a larger block in one unit */
#define CTAS_MAX UINT64_C(0x7fffffff)
#define STEP_BYTES (32 * CHUNK_BYTES)
#define LINEAR_STEPS 8 /* chunks that a lane of a linear unit has under way */

/* The 32-bit word at byte `at` of a chunk, of which only bytes [from, to) count. */
static __device__ __forceinline__ uint32_t keep_bytes(uint32_t word, int at, int from, int to)
{
	const int low = max(from - at, 0), high = min(to - at, 4);

	if (low >= 4 || high <= 0)
		return 0;
	return word & (0xffffffffu << 8 * low) & (0xffffffffu >> (32 - 8 * high));
}

static __device__ __forceinline__ uint4 keep_chunk(uint4 chunk, int from, int to)
{
	return make_uint4(keep_bytes(chunk.x, 0, from, to), keep_bytes(chunk.y, 4, from, to),
	                  keep_bytes(chunk.z, 8, from, to), keep_bytes(chunk.w, 12, from, to));
}

/* Bytes [from, to) of a chunk that is not all the tensor's. Elements are 2 bytes at least. */
static __device__ __forceinline__ uint4 gather_chunk(const unsigned char *chunk, int from, int to)
{
	uint32_t words[4] = {0, 0, 0, 0};

#pragma unroll
	for (int at = 0; at < CHUNK_BYTES; at += 2)
		if (at >= from && at < to)
			words[at / 4] |= static_cast<uint32_t>(
						 *reinterpret_cast<const uint16_t *>(chunk + at))
			                 << at % 4 * 8;
	return make_uint4(words[0], words[1], words[2], words[3]);
}

/*
 * The block that a lane's group is at, in bytes from `grid`, its first chunk: the block is bytes
 * [begin, end) of it. No such block: end is 0.
 */
struct scan_block {
	const unsigned char *grid;
	uint32_t begin, end;
};

static __device__ __forceinline__ scan_block block_at(const scan_job &job, const scan_unit &unit,
                                                      uint32_t row)
{
	const uint32_t shift = job.group_shift;
	const uint32_t index = row * (32u >> shift) + threadIdx.x % 32 / (1u << shift);
	const unsigned char *start = unit.start + static_cast<uint64_t>(index) * job.block_bytes;
	scan_block block;

	block.begin = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(start)) % CHUNK_BYTES;
	block.grid = start - block.begin;
	block.end = 0;
	if (index < unit.blocks)
		block.end = block.begin +
		            (index == unit.short_block ? unit.short_bytes : job.block_bytes);
	return block;
}

/* INSIDE: no chunk reaches out of the tensor, where memory may not be ours to read. */
template <bool INSIDE>
static __device__ __forceinline__ uint4 fetch(const scan_job &job, const scan_block &block,
                                              uint32_t offset)
{
	const unsigned char *chunk = block.grid + offset;

	if (offset >= block.end)
		return make_uint4(0, 0, 0, 0);
	if (INSIDE || (chunk >= job.data && chunk + CHUNK_BYTES <= job.data + job.bytes))
		return load_chunk(chunk);
	return gather_chunk(chunk, max(static_cast<int>(block.begin - offset), 0),
	                    static_cast<int>(min(block.end - offset, 16u)));
}

/* Non-zero when the chunk is. */
static __device__ __forceinline__ uint32_t cares(const scan_job &job, uint4 chunk)
{
	return ((chunk.x | chunk.z) & job.care_even) | ((chunk.y | chunk.w) & job.care_odd);
}

/* Bit b: has block b of this row a lane that found something? */
static __device__ __forceinline__ uint32_t row_bits(uint32_t shift, bool found)
{
	const uint32_t lane = threadIdx.x % 32;
	const uint32_t votes = __ballot_sync(ALL_LANES, found);
	const uint32_t group = 0xffffffffu >> (32 - (1u << shift));

	return __ballot_sync(ALL_LANES,
	                     lane < (32u >> shift) && (votes >> (lane << shift) & group) != 0);
}

/* The bits of the unit's blocks, whatever they are like. */
template <uint32_t SIZE, bool INSIDE>
static __device__ __forceinline__ uint64_t scan_blocks(const scan_job &job, const scan_unit &unit,
                                                       scan_top<SIZE> *top)
{
	const uint32_t shift = job.group_shift;
	const uint32_t per_lane = (unit.end_chunk - unit.first_chunk + (1u << shift) - 1) >> shift;
	const uint32_t rows = (job.unit_blocks + (32u >> shift) - 1) / (32u >> shift);
	const uint32_t first = unit.first_chunk + threadIdx.x % (1u << shift);
	gpu_walk walk = {0, 0}, ahead = {0, 0};
	scan_block block = {};
	uint64_t bits = 0;
	uint32_t seen = 0;

	while (walk.row < rows) {
		uint4 chunks[CHUNKS_UNDER_WAY];
		int from[CHUNKS_UNDER_WAY], to[CHUNKS_UNDER_WAY];

#pragma unroll
		for (uint32_t i = 0; i < CHUNKS_UNDER_WAY; i++) {
			const uint32_t index = first + (ahead.k << shift);
			const uint32_t offset = index * CHUNK_BYTES;

			if (ahead.k == 0)
				block = block_at(job, unit, ahead.row);
			if (index >= unit.end_chunk)
				chunks[i] = make_uint4(0, 0, 0, 0);
			else
				chunks[i] = fetch<INSIDE>(job, block, offset);
			from[i] = static_cast<int>(block.begin - offset);
			to[i] = static_cast<int>(block.end - offset);
			ahead.next(per_lane);
		}
#pragma unroll
		for (uint32_t i = 0; i < CHUNKS_UNDER_WAY; i++) {
			if (walk.row >= rows)
				break;
			if (from[i] > 0 || to[i] < CHUNK_BYTES)
				chunks[i] = keep_chunk(chunks[i], from[i], to[i]);
			seen |= cares(job, chunks[i]);
			top->add(chunks[i]);
			if (walk.k == per_lane - 1) {
				bits |= static_cast<uint64_t>(row_bits(shift, seen != 0))
				        << walk.row * (32u >> shift);
				seen = 0;
			}
			walk.next(per_lane);
		}
	}
	return bits;
}

/*
 * The same for a unit that is inside and linear: step after step the warp reads the next 512 bytes,
 * every lane a chunk, and a row ends with a step. Nothing need be asked on the way.
 */
template <uint32_t SIZE>
static __device__ __forceinline__ uint64_t scan_linear(const scan_job &job, const scan_unit &unit,
                                                       scan_top<SIZE> *top)
{
	const uint32_t shift = job.group_shift, row_blocks = 32u >> shift;
	const uint32_t per_lane = (unit.end_chunk - unit.first_chunk) >> shift;
	const uint32_t steps = job.unit_blocks * per_lane / row_blocks;
	const unsigned char *at =
		unit.start +
		(static_cast<uint64_t>(unit.first_chunk) + threadIdx.x % 32) * CHUNK_BYTES;
	uint32_t left = per_lane, seen = 0, place = 0;
	uint64_t bits = 0;

	for (uint32_t step = 0; step < steps;
	     step += LINEAR_STEPS, at += LINEAR_STEPS * STEP_BYTES) {
		uint4 chunks[LINEAR_STEPS];

#pragma unroll
		for (uint32_t i = 0; i < LINEAR_STEPS; i++)
			chunks[i] = load_chunk(at + i * STEP_BYTES);
#pragma unroll
		for (uint32_t i = 0; i < LINEAR_STEPS; i++) {
			seen |= cares(job, chunks[i]);
			top->add(chunks[i]);
			if (--left > 0)
				continue;
			bits |= static_cast<uint64_t>(row_bits(shift, seen != 0)) << place;
			place += row_blocks;
			left = per_lane;
			seen = 0;
		}
	}
	return bits;
}

/* Units of several blocks fill bytes of the bitmap; units of one share a word of it. */
static __device__ __forceinline__ void write_bits(const scan_job &job, const scan_unit &unit,
                                                  uint64_t bits)
{
	unsigned char *at = job.bits + unit.block / 8;

	if (threadIdx.x % 32 != 0)
		return;
	switch (job.unit_blocks) {
	case 1:
		if (bits != 0)
			atomicOr(reinterpret_cast<unsigned long long *>(job.bits) + unit.block / 64,
			         1ull << (unit.block % 64));
		break;
	case 8:
		*at = static_cast<unsigned char>(bits);
		break;
	case 16:
		*reinterpret_cast<uint16_t *>(at) = static_cast<uint16_t>(bits);
		break;
	case 32:
		*reinterpret_cast<uint32_t *>(at) = static_cast<uint32_t>(bits);
		break;
	default:
		*reinterpret_cast<uint64_t *>(at) = bits;
	}
}

/* One atomic operation for each CTA. */
static __device__ __forceinline__ void publish_top(unsigned long long *magnitude, uint64_t largest)
{
	__shared__ unsigned long long tops[CTA_WARPS];
	unsigned long long top = largest;

	for (int distance = 16; distance > 0; distance /= 2)
		top = max(top, __shfl_xor_sync(ALL_LANES, top, distance));
	if (threadIdx.x % 32 == 0)
		tops[threadIdx.x / 32] = top;
	__syncthreads();
	if (threadIdx.x != 0)
		return;
	for (int warp = 1; warp < CTA_WARPS; warp++)
		top = max(top, tops[warp]);
	if (top != 0)
		atomicMax(magnitude, top);
}

template <uint32_t SIZE, bool LINEAR>
static __global__ void __launch_bounds__(CTA_THREADS, SCAN_CTAS) scan_kernel(scan_job job)
{
	const uint64_t stride = static_cast<uint64_t>(gridDim.x) * CTA_WARPS;
	uint64_t index = static_cast<uint64_t>(blockIdx.x) * CTA_WARPS + threadIdx.x / 32;
	scan_top<SIZE> top;

	for (; index < job.unit_count; index += stride) {
		const scan_unit unit = unit_of(job, index);
		uint64_t bits;

		if (!unit_inside(job, unit))
			bits = scan_blocks<SIZE, false>(job, unit, &top);
		else if (LINEAR)
			bits = scan_linear<SIZE>(job, unit, &top);
		else
			bits = scan_blocks<SIZE, true>(job, unit, &top);
		write_bits(job, unit, bits);
	}
	if (SIZE != 0)
		publish_top(job.magnitude, top.largest());
}

/* [magnitude's element bytes: none, 2, 4, 8][linear] */
typedef void (*scan_function)(scan_job job);
static const scan_function scan_functions[4][2] = {
	{scan_kernel<0, false>, scan_kernel<0, true>},
	{scan_kernel<2, false>, scan_kernel<2, true>},
	{scan_kernel<4, false>, scan_kernel<4, true>},
	{scan_kernel<8, false>, scan_kernel<8, true>},
};

/* A float's sign does not make it non-zero. */
static void set_care(scan_job *job, enum dtype dtype)
{
	job->care_even = job->care_odd = UINT32_MAX;
	if (!dtype_is_float(dtype))
		return;
	job->care_odd = dtype_bytes(dtype) == 2 ? 0x7fff7fff : 0x7fffffff;
	job->care_even = dtype == DTYPE_F64 ? UINT32_MAX : job->care_odd;
}

/* How blocks become units. */
static void set_units(scan_job *job, const struct gpu_cut *cut)
{
	job->unit_blocks = 1;
	job->pieces = 1;
	job->piece_chunks = job->block_chunks;
	job->group_shift = gpu_group_shift(job->block_chunks);
	if (cut->block_bytes <= WHOLE_BLOCK_BYTES_MAX) {
		job->unit_blocks = 64;
		while (job->unit_blocks > 8 && job->unit_blocks * cut->block_bytes > UNIT_BYTES)
			job->unit_blocks /= 2;
		job->unit_count = bitmap_word_count(cut->block_count) * (64 / job->unit_blocks);
		return;
	}
	job->group_shift = 5;
	job->pieces = (job->block_chunks + PIECE_CHUNKS - 1) / PIECE_CHUNKS;
	job->piece_chunks = (job->block_chunks + job->pieces - 1) / job->pieces;
	job->unit_count = cut->block_count * job->pieces;
}

/* Do all units that are inside read 512 bytes a step, and end rows with steps? */
static bool is_linear(const scan_job *job, bool aligned)
{
	const uint32_t lanes = 1u << job->group_shift;
	const uint32_t steps = job->unit_blocks * job->piece_chunks / 32;

	if (!aligned || job->piece_chunks % lanes != 0 || steps == 0 || steps % LINEAR_STEPS != 0 ||
	    job->piece_chunks * job->pieces != job->block_chunks)
		return false;
	return lanes == 32 || lanes == job->piece_chunks;
}

static uint32_t grid_of(const scan_job *job, uint32_t processors)
{
	const uint64_t ctas = (job->unit_count + CTA_WARPS - 1) / CTA_WARPS;
	const uint64_t wave = static_cast<uint64_t>(processors) * SCAN_CTAS;
	uint64_t grid = (ctas + UNITS_A_WARP - 1) / UNITS_A_WARP;

	if (grid < wave)
		grid = ctas < wave ? ctas : wave;
	return static_cast<uint32_t>(grid < CTAS_MAX ? grid : CTAS_MAX);
}

int cuda_scan(const struct bitmap_tensor *tensor, uint64_t *bits, uint64_t *magnitude, void *stream)
{
	cudaStream_t queue = static_cast<cudaStream_t>(stream);
	cudaError_t error = cudaSuccess;
	uint32_t processors, size = 0;
	struct gpu_cut cut;
	scan_job job = {};
	bool aligned;

	if (!gpu_cut_of(tensor, tensor->data, &cut) ||
	    (magnitude != nullptr && !dtype_is_float(tensor->dtype)))
		return cudaErrorInvalidValue;
	if (magnitude != nullptr) {
		error = cudaMemsetAsync(magnitude, 0, sizeof(*magnitude), queue);
		size = cut.elem_bytes == 8 ? 3 : cut.elem_bytes / 2;
	}
	if (error != cudaSuccess || cut.block_count == 0)
		return error;
	aligned = (reinterpret_cast<uintptr_t>(tensor->data) | cut.block_bytes) % CHUNK_BYTES == 0;
	job.data = static_cast<const unsigned char *>(tensor->data);
	job.bits = reinterpret_cast<unsigned char *>(bits);
	job.magnitude = reinterpret_cast<unsigned long long *>(magnitude);
	job.bytes = cut.bytes;
	job.block_count = cut.block_count;
	job.block_bytes = cut.block_bytes;
	job.block_chunks = gpu_block_chunks(&cut, aligned);
	set_care(&job, tensor->dtype);
	set_units(&job, &cut);
	error = gpu_processors(&processors);
	if (error == cudaSuccess && job.unit_blocks == 1)
		error = cudaMemsetAsync(bits, 0, bitmap_word_count(cut.block_count) * sizeof(*bits),
		                        queue);
	if (error != cudaSuccess)
		return error;
	return launch(scan_functions[size][is_linear(&job, aligned)], grid_of(&job, processors),
	              CTA_THREADS, queue, job);
}

cudaError_t cuda_scan_load(void)
{
	return load(scan_functions);
}
