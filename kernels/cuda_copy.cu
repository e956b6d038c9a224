// SPDX-License-Identifier: BSD-3-Clause
/*
 * cuda_copy.cu - pack and unpack, as they are or by way of fixed32
 *
 * Chunks are those of the packed side, which may be host memory: across PCIe go whole chunks, side
 * by side. The tensor's side is then read or written 16 bytes at once where it lies alike, else by
 * 8, 4 or 2, and its cache makes whole lines of that.
 */

#include "ebpf/deal.h"
#include "kernels/cuda_copy.h"
#include "kernels/cuda_impl.h"
#include "kernels/launch.h"

/* As they are; as floats that become integers, and the reverse. */
enum conversion { PLAIN, ENCODE, DECODE };

/* CTAs that fit a multiprocessor, for which the compiler sees to it; the grid is as many. */
static constexpr uint32_t ctas_of(conversion form)
{
	return form == PLAIN ? 4 : 3; /* converting takes registers */
}

/* fixed_encode() of bitmap.h: to the nearest, ties to even. */
static __device__ __forceinline__ uint32_t encode(const copy_job &job, uint32_t word)
{
	const float value =
		__fmul_rn(__fmul_rn(__uint_as_float(word), job.first_factor), job.second_factor);

	return static_cast<uint32_t>(__float2int_rn(value));
}

static __device__ __forceinline__ uint32_t decode(const copy_job &job, uint32_t word)
{
	const float value =
		__fmul_rn(__fmul_rn(__int2float_rn(static_cast<int>(word)), job.first_factor),
	                  job.second_factor);

	return __float_as_uint(job.divisor == 1 ? value : __fdiv_rn(value, job.divisor));
}

template <conversion FORM>
static __device__ __forceinline__ uint32_t convert(const copy_job &job, uint32_t word)
{
	return FORM == ENCODE ? encode(job, word) : FORM == DECODE ? decode(job, word) : word;
}

template <conversion FORM>
static __device__ __forceinline__ uint4 convert_chunk(const copy_job &job, uint4 chunk)
{
	return make_uint4(convert<FORM>(job, chunk.x), convert<FORM>(job, chunk.y),
	                  convert<FORM>(job, chunk.z), convert<FORM>(job, chunk.w));
}

/* 16 bytes of the tensor at a multiple of WIDTH. Neighbouring lanes share lines: keep them. */
template <uint32_t WIDTH>
static __device__ __forceinline__ uint4 load_tensor(const unsigned char *at)
{
	uint4 chunk;

	if (WIDTH == 16) {
		chunk = load_chunk(at);
	} else if (WIDTH == 8) {
		const uint2 low = __ldg(reinterpret_cast<const uint2 *>(at));
		const uint2 high = __ldg(reinterpret_cast<const uint2 *>(at) + 1);

		chunk = make_uint4(low.x, low.y, high.x, high.y);
	} else if (WIDTH == 4) {
		const unsigned *words = reinterpret_cast<const unsigned *>(at);

		chunk = make_uint4(__ldg(words), __ldg(words + 1), __ldg(words + 2),
		                   __ldg(words + 3));
	} else {
		const unsigned short *halves = reinterpret_cast<const unsigned short *>(at);

		chunk.x = __ldg(halves) | static_cast<unsigned>(__ldg(halves + 1)) << 16;
		chunk.y = __ldg(halves + 2) | static_cast<unsigned>(__ldg(halves + 3)) << 16;
		chunk.z = __ldg(halves + 4) | static_cast<unsigned>(__ldg(halves + 5)) << 16;
		chunk.w = __ldg(halves + 6) | static_cast<unsigned>(__ldg(halves + 7)) << 16;
	}
	return chunk;
}

template <uint32_t WIDTH>
static __device__ __forceinline__ void store_tensor(unsigned char *at, uint4 chunk)
{
	if (WIDTH == 16) {
		store_chunk(at, chunk);
	} else if (WIDTH == 8) {
		reinterpret_cast<uint2 *>(at)[0] = make_uint2(chunk.x, chunk.y);
		reinterpret_cast<uint2 *>(at)[1] = make_uint2(chunk.z, chunk.w);
	} else if (WIDTH == 4) {
		unsigned *words = reinterpret_cast<unsigned *>(at);

		words[0] = chunk.x;
		words[1] = chunk.y;
		words[2] = chunk.z;
		words[3] = chunk.w;
	} else {
		const unsigned words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
		unsigned short *halves = reinterpret_cast<unsigned short *>(at);

#pragma unroll
		for (int i = 0; i < 4; i++) {
			halves[2 * i] = static_cast<unsigned short>(words[i]);
			halves[2 * i + 1] = static_cast<unsigned short>(words[i] >> 16);
		}
	}
}

/*
 * The block that a lane's group is at. Its chunks begin `lead` bytes before it. `bytes`: of the
 * tensor, less than a whole block in a short last one; 0: nothing to do. packed is NULL when the
 * block is to be cleared, and chunks are then those of the tensor.
 */
struct copy_block {
	unsigned char *tensor;
	unsigned char *packed;
	uint32_t bytes;
	uint32_t lead;
};

static __device__ __forceinline__ copy_block block_at(const copy_job &job, const copy_tile &tile,
                                                      const uint32_t *list, uint32_t row)
{
	const uint32_t shift = job.group_shift;
	const uint32_t i = row * (32u >> shift) + threadIdx.x % 32 / (1u << shift);
	copy_block block = {nullptr, nullptr, 0, 0};
	uint32_t bit, rank;
	uint64_t number, left;

	if (i >= tile.blocks)
		return block;
	bit = job.clear ? tile.first + i : list[i];
	rank = job.clear ? list[i] : tile.first + i;
	number = job.first_index + bit;
	if (job.shard_count > 1)
		number = deal_block(job.shard_count, job.shard, number);
	if (number >= job.block_count)
		return block;
	left = job.tensor_bytes - number * job.block_bytes;
	block.bytes = left < job.block_bytes ? static_cast<uint32_t>(left) : job.block_bytes;
	block.tensor = job.tensor + number * job.block_bytes;
	if (rank != NOT_PACKED)
		block.packed = job.packed + static_cast<uint64_t>(rank) * job.block_bytes;
	block.lead = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(
			     block.packed != nullptr ? block.packed : block.tensor)) %
	             CHUNK_BYTES;
	return block;
}

/* Bytes [from, to) of a block by UNIT; those from `end` on are zero. */
template <typename UNIT, conversion FORM>
static __device__ __forceinline__ void copy_units(const copy_job &job, unsigned char *dst,
                                                  const unsigned char *src, uint32_t from,
                                                  uint32_t to, uint32_t end)
{
#pragma unroll 1
	for (uint32_t at = from; at < to; at += sizeof(UNIT)) {
		UNIT value = 0;

		if (at < end)
			value = *reinterpret_cast<const UNIT *>(src + at);
		*reinterpret_cast<UNIT *>(dst + at) = static_cast<UNIT>(convert<FORM>(job, value));
	}
}

/* The chunks at a block's ends: `start` may be before it, and start + CHUNK_BYTES behind. */
template <bool PACK, conversion FORM>
static __device__ __forceinline__ void copy_part(const copy_job &job, const copy_block &block,
                                                 int start)
{
	const int limit = static_cast<int>(PACK ? job.block_bytes : block.bytes);
	const uint32_t from = static_cast<uint32_t>(max(start, 0));
	const uint32_t to = static_cast<uint32_t>(min(start + CHUNK_BYTES, limit));
	const uint32_t end = PACK || block.packed != nullptr ? block.bytes : 0;
	unsigned char *dst = PACK ? block.packed : block.tensor;
	const unsigned char *src = PACK ? block.tensor : block.packed;

	if (block.bytes == 0 || start >= limit)
		return;
	if (FORM != PLAIN || job.elem_bytes > 2)
		copy_units<uint32_t, FORM>(job, dst, src, from, to, end);
	else
		copy_units<uint16_t, PLAIN>(job, dst, src, from, to, end);
}

/* Where a whole chunk goes, once it has come. */
struct copy_goal {
	unsigned char *at; /* NULL: nowhere */
	bool aligned;
};

/* Reads a whole chunk; copies others at once. */
template <bool PACK, conversion FORM, uint32_t WIDTH>
static __device__ __forceinline__ copy_goal fetch(const copy_job &job, const copy_block &block,
                                                  uint32_t index, uint4 *chunk)
{
	const int start = static_cast<int>(index * CHUNK_BYTES) - static_cast<int>(block.lead);
	copy_goal goal = {nullptr, true};

	if (start < 0 || start + CHUNK_BYTES > static_cast<int>(block.bytes)) {
		copy_part<PACK, FORM>(job, block, start);
		return goal;
	}
	if (PACK) {
		*chunk = load_tensor<WIDTH>(block.tensor + start);
		goal.at = block.packed + start;
		return goal;
	}
	goal.at = block.tensor + start;
	if (block.packed != nullptr) {
		*chunk = load_chunk(block.packed + start);
		goal.aligned = WIDTH == 16;
	}
	return goal;
}

template <bool PACK, conversion FORM, uint32_t WIDTH>
static __device__ __forceinline__ void copy_blocks(const copy_job &job, const copy_tile &tile,
                                                   const uint32_t *list)
{
	const uint32_t shift = job.group_shift, row_blocks = 32u >> shift;
	const uint32_t per_lane = (tile.end_chunk - tile.first_chunk + (1u << shift) - 1) >> shift;
	const uint32_t rows = (tile.blocks + row_blocks - 1) / row_blocks;
	const uint32_t first = tile.first_chunk + threadIdx.x % (1u << shift);
	gpu_walk walk = {0, 0};
	copy_block block = {};

	while (walk.row < rows) {
		uint4 chunks[CHUNKS_UNDER_WAY];
		copy_goal goals[CHUNKS_UNDER_WAY];

#pragma unroll
		for (uint32_t i = 0; i < CHUNKS_UNDER_WAY; i++) {
			const uint32_t index = first + (walk.k << shift);

			if (walk.k == 0)
				block = block_at(job, tile, list, walk.row);
			chunks[i] = make_uint4(0, 0, 0, 0);
			goals[i] = {nullptr, true};
			if (index < tile.end_chunk)
				goals[i] = fetch<PACK, FORM, WIDTH>(job, block, index, &chunks[i]);
			walk.next(per_lane);
		}
#pragma unroll
		for (uint32_t i = 0; i < CHUNKS_UNDER_WAY; i++) {
			if (goals[i].at == nullptr)
				continue;
			chunks[i] = convert_chunk<FORM>(job, chunks[i]);
			if (PACK || goals[i].aligned)
				store_chunk(goals[i].at, chunks[i]);
			else
				store_tensor<WIDTH>(goals[i].at, chunks[i]);
		}
	}
}

template <bool PACK, conversion FORM, uint32_t WIDTH>
static __global__ void __launch_bounds__(CTA_THREADS, ctas_of(FORM)) copy_kernel(copy_job job)
{
	__shared__ uint32_t lists[CTA_WARPS][TILE_BLOCKS_MAX];
	const uint32_t warps = gridDim.x * CTA_WARPS;
	const copy_share share = share_of(job, warps);
	uint64_t index = blockIdx.x * CTA_WARPS + threadIdx.x / 32;
	uint32_t *list = lists[threadIdx.x / 32];

	for (; index < share.tile_count; index += warps) {
		const copy_tile tile = tile_of(job, share, index);

		if (job.clear)
			list_all(job, tile, list);
		else
			list_set(job, tile, list);
		__syncwarp();
		copy_blocks<PACK, FORM, WIDTH>(job, tile, list);
		__syncwarp(); /* nobody still reads the list */
	}
}

/* [log2 of the width - 1]; fixed point has elements of 4 bytes. */
typedef void (*copy_function)(copy_job job);
#define WIDTHS 4
static const copy_function pack_plain[WIDTHS] = {
	copy_kernel<true, PLAIN, 2>, copy_kernel<true, PLAIN, 4>, copy_kernel<true, PLAIN, 8>,
	copy_kernel<true, PLAIN, 16>};
static const copy_function pack_fixed[WIDTHS] = {nullptr, copy_kernel<true, ENCODE, 4>,
                                                 copy_kernel<true, ENCODE, 8>,
                                                 copy_kernel<true, ENCODE, 16>};
static const copy_function unpack_plain[WIDTHS] = {
	copy_kernel<false, PLAIN, 2>, copy_kernel<false, PLAIN, 4>, copy_kernel<false, PLAIN, 8>,
	copy_kernel<false, PLAIN, 16>};
static const copy_function unpack_fixed[WIDTHS] = {nullptr, copy_kernel<false, DECODE, 4>,
                                                   copy_kernel<false, DECODE, 8>,
                                                   copy_kernel<false, DECODE, 16>};

/* The widest access to the tensor where the packed side has chunks: index into the lists above. */
static uint32_t width_index(const copy_job *job)
{
	uintptr_t apart =
		reinterpret_cast<uintptr_t>(job->tensor) - reinterpret_cast<uintptr_t>(job->packed);
	uint32_t index = 3;

	/* Blocks of whole chunks all lie as the first one does. */
	if (job->block_bytes % CHUNK_BYTES != 0)
		apart |= job->block_bytes;
	while (index > 0 && apart % (2u << index) != 0)
		index--;
	return index;
}

static void set_tiles(copy_job *job, const struct gpu_cut *cut)
{
	const bool aligned = (reinterpret_cast<uintptr_t>(job->tensor) |
	                      reinterpret_cast<uintptr_t>(job->packed) | cut->block_bytes) %
	                             CHUNK_BYTES ==
	                     0;
	uint32_t row;

	job->block_chunks = gpu_block_chunks(cut, aligned);
	job->group_shift = gpu_group_shift(job->block_chunks);
	job->pieces = (job->block_chunks + PIECE_CHUNKS - 1) / PIECE_CHUNKS;
	job->piece_chunks = (job->block_chunks + job->pieces - 1) / job->pieces;
	row = 32u >> job->group_shift;
	job->tile_blocks = row;
	while (2 * job->tile_blocks <= TILE_BLOCKS_MAX &&
	       2 * job->tile_blocks * cut->block_bytes <= TILE_BYTES)
		job->tile_blocks *= 2;
	if (job->pieces > 1) {
		job->group_shift = 5;
		job->tile_blocks = 1;
	}
}

/* 2^exponent for -126 .. 127 */
static float power_of_two(int exponent)
{
	const uint32_t bits = static_cast<uint32_t>(exponent + 127) << 23;
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* 2^shift as two factors, as fixed_encode() has them and for its reasons. */
static bool set_form(copy_job *job, const struct bitmap_cuda_form *form, enum dtype dtype,
                     bool back)
{
	const int half = form->shift / 2, rest = form->shift - form->shift / 2;

	if (!form->fixed)
		return true;
	if (dtype != DTYPE_F32 || form->shift < -BITMAP_CUDA_SHIFT_MAX ||
	    form->shift > BITMAP_CUDA_SHIFT_MAX || (back && form->divisor == 0))
		return false;
	job->first_factor = power_of_two(back ? -half : half);
	job->second_factor = power_of_two(back ? -rest : rest);
	job->divisor = static_cast<float>(form->divisor);
	return true;
}

static cudaError_t start(copy_job *job, const struct gpu_cut *cut, const copy_function *functions,
                         conversion form, uint32_t ctas_max, void *stream)
{
	uint64_t ctas, most;
	uint32_t processors;
	cudaError_t error = gpu_processors(&processors);

	if (error != cudaSuccess)
		return error;
	set_tiles(job, cut);
	ctas = (static_cast<uint64_t>(job->bit_count) * job->block_chunks + CTA_THREADS - 1) /
	       CTA_THREADS;
	most = static_cast<uint64_t>(processors) * ctas_of(form);
	if (ctas_max != 0 && ctas_max < most)
		most = ctas_max;
	if (ctas > most)
		ctas = most;
	return launch(functions[width_index(job)], static_cast<uint32_t>(ctas), CTA_THREADS,
	              static_cast<cudaStream_t>(stream), *job);
}

int cuda_pack(const struct bitmap_tensor *tensor, const uint64_t *bits, const uint32_t *ranks,
              const struct bitmap_cuda_form *form, void *dst, void *stream)
{
	struct gpu_cut cut;
	copy_job job = {};

	if (!gpu_cut_of(tensor, tensor->data, &cut) || cut.block_count > UINT32_MAX ||
	    !set_form(&job, form, tensor->dtype, false) ||
	    reinterpret_cast<uintptr_t>(dst) % cut.elem_bytes != 0)
		return cudaErrorInvalidValue;
	if (cut.block_count == 0)
		return cudaSuccess;
	job.tensor = static_cast<unsigned char *>(const_cast<void *>(tensor->data));
	job.packed = static_cast<unsigned char *>(dst);
	job.bits = bits;
	job.ranks = ranks;
	job.tensor_bytes = cut.bytes;
	job.block_count = cut.block_count;
	job.shard_count = 1;
	job.bit_count = static_cast<uint32_t>(cut.block_count);
	job.word_count = static_cast<uint32_t>(bitmap_word_count(cut.block_count));
	job.block_bytes = cut.block_bytes;
	job.elem_bytes = cut.elem_bytes;
	if (form->fixed)
		return start(&job, &cut, pack_fixed, ENCODE, form->ctas_max, stream);
	return start(&job, &cut, pack_plain, PLAIN, form->ctas_max, stream);
}

int cuda_unpack(const struct bitmap_tensor *shape, const struct bitmap_cuda_deal *deal,
                const uint64_t *bits, const uint32_t *ranks, const void *src,
                const struct bitmap_cuda_form *form, bool clear_others, void *dst, void *stream)
{
	struct gpu_cut cut;
	copy_job job = {};

	if (!gpu_cut_of(shape, dst, &cut) || deal->shard >= deal->shard_count ||
	    deal->index_count > UINT32_MAX || !set_form(&job, form, shape->dtype, true) ||
	    reinterpret_cast<uintptr_t>(src) % cut.elem_bytes != 0)
		return cudaErrorInvalidValue;
	if (cut.block_count == 0 || deal->index_count == 0)
		return cudaSuccess;
	job.tensor = static_cast<unsigned char *>(dst);
	job.packed = static_cast<unsigned char *>(const_cast<void *>(src));
	job.bits = bits;
	job.ranks = ranks;
	job.tensor_bytes = cut.bytes;
	job.block_count = cut.block_count;
	job.first_index = deal->first_index;
	job.shard = deal->shard;
	job.shard_count = deal->shard_count;
	job.bit_count = static_cast<uint32_t>(deal->index_count);
	job.word_count = static_cast<uint32_t>(bitmap_word_count(deal->index_count));
	job.block_bytes = cut.block_bytes;
	job.elem_bytes = cut.elem_bytes;
	job.clear = clear_others;
	if (form->fixed)
		return start(&job, &cut, unpack_fixed, DECODE, form->ctas_max, stream);
	return start(&job, &cut, unpack_plain, PLAIN, form->ctas_max, stream);
}

cudaError_t cuda_copy_load(void)
{
	const copy_function *const lists[] = {pack_plain, pack_fixed, unpack_plain, unpack_fixed};
	cudaError_t error = cudaSuccess;

	for (const copy_function *list : lists)
		for (uint32_t i = 0; i < WIDTHS && error == cudaSuccess; i++)
			error = load(list[i]);
	return error;
}
