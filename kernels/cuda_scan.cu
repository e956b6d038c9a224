// SPDX-License-Identifier: BSD-3-Clause
/*
 * cuda_scan.cu - finds one bit per block, and the largest magnitude of each range, in one pass
 *
 * A warp takes a piece of at most 16 KB at a time, in steps of one unit per lane, and loads eight
 * steps before it looks at the first. Units are as wide as the blocks are aligned, so no unit has
 * parts of two blocks, but it may hold several blocks of 2, 4 or 8 bytes. A step costs more than a
 * vote only where it finds something. Where blocks are large (EACH 0) eight steps share one vote.
 *
 * Bits are collected in the GPU's memory, with one atomic operation for many blocks; the last CTA
 * copies them to pinned memory. Floats without their sign sort like unsigned integers.
 */

#include <assert.h>

#include "kernels/cuda_impl.h"

#define PIECE_BYTES 16384u
#define PIECE_STEPS 8u  /* steps that are loaded at once */
#define STEP_BYTES 512u /* with the widest units */
#define SCAN_CTAS 4     /* the least number that fits a multiprocessor */

struct scan_job {
	const unsigned char *data;
	uint64_t bytes;
	uint32_t block_bytes;
	uint32_t block_inverse; /* in a group of one block each byte is in block 0 */
	uint32_t step_shift;    /* a step has 1 << step_shift whole blocks, or none if this is 0 */
	/* A piece lies within a group of blocks, and a group within a range. */
	uint32_t group_blocks, group_pieces, piece_count;
	uint32_t range_blocks;
	uint32_t care_even, care_odd; /* bits that count in even and odd 32-bit words */
	uint32_t *bits, *ranges;      /* scratch; the ticket follows the results */
	uint32_t *found, found_count;
	struct gpu_word done;
};

/* ---- findings of a lane ---- */

/*
 * Returns 0 if the unit is zero. If it has several blocks, one bit is set for each that is not.
 * With RANGE it also raises *top to the unit's largest magnitude.
 */
template <bool RANGE, uint32_t EACH, uint32_t BYTES>
static __device__ __forceinline__ uint32_t look(const scan_job &job, const unit<BYTES> &seen,
                                                uint32_t *top)
{
	uint32_t found = 0;

#pragma unroll
	for (uint32_t i = 0; i < seen.words; i++) {
		const uint32_t word = seen.word[i] & (RANGE        ? 0x7fffffffu
		                                      : i % 2 == 0 ? job.care_even
		                                                   : job.care_odd);

		if (RANGE)
			*top = max(*top, word);
		if (EACH <= 1)
			found |= word;
		else if (EACH > seen.words)
			found |= (word << 16 != 0 ? 1u << 2 * i : 0) |
			         (word >> 16 != 0 ? 2u << 2 * i : 0);
		else
			found |= word != 0 ? 1u << i * EACH / seen.words : 0;
	}
	return found;
}

/* The last CTA copies the results of all CTAs to pinned memory, and leaves zeros. */
static __device__ __forceinline__ void carry_out(const scan_job &job)
{
	const uint32_t quads = job.found_count / 4;
	uint4 *bits = reinterpret_cast<uint4 *>(job.bits),
	      *found = reinterpret_cast<uint4 *>(job.found);

	if (!last_cta(job.bits + job.found_count))
		return;
	each_of<8>(
		quads, [&](uint32_t i) { return __ldcg(bits + i); },
		[&](uint32_t i, const uint4 &quad) {
			found[i] = quad;
			bits[i] = uint4{};
		});
	each_of<1>(
		job.found_count % 4, [&](uint32_t i) { return __ldcg(job.bits + 4 * quads + i); },
		[&](uint32_t i, uint32_t word) {
			job.found[4 * quads + i] = word;
			job.bits[4 * quads + i] = 0;
		});
	tell(job.done);
}

/* ---- pieces ---- */

/* A word of the bitmap whose bits a warp has not written yet. */
struct scan_open {
	uint32_t word, bits;
};

/* Notes set bits of all lanes. Each lane has those of blocks from `block` on, in one word. */
static __device__ __forceinline__ void note(const scan_job &job, scan_open *open, uint32_t block,
                                            uint32_t bits)
{
	uint32_t word;

	for (word = __shfl_sync(ALL_LANES, block, 0) / 32;
	     word <= __shfl_sync(ALL_LANES, block, 31) / 32; word++) {
		const uint32_t all =
			__reduce_or_sync(ALL_LANES, block / 32 == word ? bits << block % 32 : 0);

		if (word != open->word && threadIdx.x % 32 == 0 && open->bits != 0)
			atomicOr(job.bits + open->word, open->bits);
		open->bits = word != open->word ? all : open->bits | all;
		open->word = word;
	}
}

/* The same for steps with whole blocks from `first` on: 32 at a time, one for each lane. */
static __device__ __forceinline__ void note_blocks(const scan_job &job, uint32_t votes,
                                                   uint32_t first, scan_open *open)
{
	const uint32_t lanes = 32 >> job.step_shift; /* lanes that share a block */
	const uint32_t each = UINT32_MAX >> (32 - lanes);

#pragma unroll 1
	for (uint32_t i = 0; i < PIECE_STEPS << job.step_shift; i += 32) {
		const uint32_t block = i + threadIdx.x % 32;
		const uint32_t found = __shfl_sync(ALL_LANES, votes, block >> job.step_shift) >>
		                       (block * lanes) % 32;

		note(job, open, first + block, (found & each) != 0);
	}
}

/* Notes the blocks of PIECE_STEPS steps that begin at byte `from` of a group. */
template <bool RANGE, uint32_t WIDTH, uint32_t EACH>
static __device__ __forceinline__ void
note_steps(const scan_job &job, const unit<WIDTH> (&units)[PIECE_STEPS], uint32_t first,
           uint32_t from, scan_open *open, uint32_t *top)
{
	const uint32_t lane = threadIdx.x % 32, step = 32 * WIDTH;
	const uint32_t own_step = min(lane, PIECE_STEPS - 1) * step;
	uint32_t votes = 0; /* in lane i: the lanes that found something in step i */

#pragma unroll
	for (uint32_t i = 0; i < PIECE_STEPS; i++) {
		const uint32_t seen = look<RANGE, EACH>(job, units[i], top);
		const uint32_t found = __ballot_sync(ALL_LANES, seen != 0);

		votes = lane == i ? found : votes;
		if (EACH > 1 && found != 0)
			note(job, open, first + (from / WIDTH + i * 32 + lane) * EACH, seen);
	}
	if (EACH <= 1 && !__any_sync(ALL_LANES, votes != 0))
		return;
	if (EACH == 0)
		note(job, open, first + divide(from + own_step, job.block_inverse), votes != 0);
	if (EACH == 1 && WIDTH == 16 && job.step_shift > 0) {
		note_blocks(job, votes, first + divide(from, job.block_inverse), open);
		return;
	}
#pragma unroll 1
	for (uint32_t i = 0; EACH == 1 && i < PIECE_STEPS; i++) {
		const uint32_t found = __shfl_sync(ALL_LANES, votes, i);

		if (found != 0)
			note(job, open,
			     first + divide(from + i * step + lane * WIDTH, job.block_inverse),
			     found >> lane & 1);
	}
}

/*
 * Scans bytes [from, to) of the group of blocks at `group`, which begins with block `first`. EACH
 * is 0 if no step has parts of two blocks, 1 if no unit has, and otherwise the blocks in a unit;
 * then the group is one piece.
 */
template <bool RANGE, uint32_t WIDTH, uint32_t EACH>
static __device__ __forceinline__ void scan_piece(const scan_job &job, const unsigned char *group,
                                                  uint32_t first, uint32_t from, uint32_t to)
{
	const uint32_t lane = threadIdx.x % 32, step = 32 * WIDTH;
	scan_open open = {first / 32, 0};
	uint32_t top = 0;

	/* The tensor may end within a unit; after it the memory may not be ours. */
	if constexpr (WIDTH > (RANGE ? 4 : 2))
		if (to % WIDTH != 0)
			scan_piece<RANGE, WIDTH / 2, (EACH < 4 ? 1 : EACH / 2)>(
				job, group, first, to - to % WIDTH, to);
	for (; from + WIDTH <= to; from += PIECE_STEPS * step) {
		unit<WIDTH> units[PIECE_STEPS];

#pragma unroll
		for (uint32_t i = 0; i < PIECE_STEPS; i++) {
			const uint32_t here = from + i * step + lane * WIDTH;

			units[i] = {};
			if (here + WIDTH <= to)
				units[i] = load_unit<WIDTH>(group + here);
		}
		note_steps<RANGE, WIDTH, EACH>(job, units, first, from, &open, &top);
	}
	top = __reduce_max_sync(ALL_LANES, top);
	if (lane == 0 && open.bits != 0)
		atomicOr(job.bits + open.word, open.bits);
	/* Most pieces of a range change nothing, and all their atomic operations would queue. */
	if (RANGE && lane == 0 && top > __ldcg(job.ranges + first / job.range_blocks))
		atomicMax(job.ranges + first / job.range_blocks, top);
}

/* ---- the kernel ---- */

template <bool RANGE, uint32_t WIDTH, uint32_t EACH>
static __device__ __forceinline__ void scan_pieces(const scan_job &job)
{
	const uint32_t stride = gridDim.x * CTA_WARPS;
	const uint64_t group_bytes = static_cast<uint64_t>(job.group_blocks) * job.block_bytes;

	for (uint32_t piece = blockIdx.x * CTA_WARPS + threadIdx.x / 32; piece < job.piece_count;
	     piece += stride) {
		const uint32_t group = job.group_pieces == 1 ? piece : piece / job.group_pieces;
		const uint32_t from = (piece - group * job.group_pieces) * PIECE_BYTES;
		const uint64_t left = job.bytes - group * group_bytes;
		const uint32_t end = static_cast<uint32_t>(left < group_bytes ? left : group_bytes);

		if (from < end)
			scan_piece<RANGE, WIDTH, EACH>(job, job.data + group * group_bytes,
			                               group * job.group_blocks, from,
			                               min(from + PIECE_BYTES, end));
	}
}

template <bool RANGE>
static __global__ void __launch_bounds__(CTA_THREADS, SCAN_CTAS) scan_kernel(scan_job job)
{
	const uint64_t at = reinterpret_cast<uintptr_t>(job.data);
	const uint32_t width = unit_bytes(at | job.block_bytes);

	if (width == 16 && job.block_bytes % STEP_BYTES == 0)
		scan_pieces<RANGE, 16, 0>(job);
	else if (width == 16)
		scan_pieces<RANGE, 16, 1>(job);
	else if (at % 16 == 0 && job.block_bytes == 8)
		scan_pieces<RANGE, 16, 2>(job);
	else if (at % 16 == 0 && job.block_bytes == 4)
		scan_pieces<RANGE, 16, 4>(job);
	else if (at % 16 == 0 && job.block_bytes == 2 && !RANGE)
		scan_pieces<false, 16, 8>(job);
	else if (width == 8)
		scan_pieces<RANGE, 8, 1>(job);
	else if (width == 4)
		scan_pieces<RANGE, 4, 1>(job);
	else if (!RANGE) /* ranges are of f32, aligned to four bytes */
		scan_pieces<false, 2, 1>(job);
	carry_out(job);
}

/* ---- launching ---- */

/* The sign of a float does not count. */
static void set_care(scan_job *job, enum dtype dtype)
{
	job->care_even = job->care_odd = UINT32_MAX;
	if (!dtype_is_float(dtype))
		return;
	job->care_odd = dtype_bytes(dtype) == 2 ? 0x7fff7fff : 0x7fffffff;
	job->care_even = dtype == DTYPE_F64 ? UINT32_MAX : job->care_odd;
}

/* Groups small blocks, and cuts large ones into pieces. */
static void set_pieces(scan_job *job, uint64_t blocks)
{
	uint64_t pieces;

	job->group_blocks = 1;
	while (2 * job->group_blocks * job->block_bytes <= PIECE_BYTES &&
	       job->range_blocks % (2 * job->group_blocks) == 0)
		job->group_blocks *= 2;
	job->block_inverse = job->group_blocks == 1 ? 1 : inverse_of(job->block_bytes);
	while (job->block_bytes << job->step_shift < STEP_BYTES)
		job->step_shift++;
	if (job->block_bytes << job->step_shift != STEP_BYTES || job->block_bytes < 16)
		job->step_shift = 0;
	job->group_pieces = (job->group_blocks * job->block_bytes + PIECE_BYTES - 1) / PIECE_BYTES;
	pieces = (blocks + job->group_blocks - 1) / job->group_blocks * job->group_pieces;
	assert(pieces <= UINT32_MAX);
	job->piece_count = static_cast<uint32_t>(pieces);
}

static scan_job job_of(const struct gpu_scan *scan)
{
	const struct bitmap_tensor *tensor = &scan->tensor;
	const uint32_t elem_bytes = dtype_bytes(tensor->dtype);
	const uint64_t blocks = bitmap_block_count(tensor->count, tensor->block_elems);
	scan_job job = {};

	assert(reinterpret_cast<uintptr_t>(tensor->data) % elem_bytes == 0);
	assert(reinterpret_cast<uintptr_t>(scan->scratch) % 16 == 0);
	assert(reinterpret_cast<uintptr_t>(scan->found) % 16 == 0);
	assert(blocks <= UINT64_C(1) << 31 && scan->range_blocks <= UINT64_C(1) << 31);
	assert(scan->range_blocks == 0 ||
	       (scan->range_blocks % 64 == 0 && tensor->dtype == DTYPE_F32));
	job.data = static_cast<const unsigned char *>(tensor->data);
	job.bytes = tensor->count * elem_bytes;
	job.block_bytes = static_cast<uint32_t>(tensor->block_elems * elem_bytes);
	job.range_blocks = static_cast<uint32_t>(scan->range_blocks);
	job.bits = scan->scratch;
	job.ranges = scan->scratch + 2 * bitmap_word_count(blocks);
	job.found = scan->found;
	job.found_count = static_cast<uint32_t>(gpu_scan_room(blocks, scan->range_blocks));
	job.done = scan->done;
	set_care(&job, tensor->dtype);
	set_pieces(&job, blocks);
	return job;
}

int cuda_scan(const struct gpu_scan *scan, uint32_t processors, void *stream)
{
	const scan_job job = job_of(scan);
	const uint32_t needed = job.piece_count / CTA_WARPS + 1, most = processors * SCAN_CTAS;

	return launch(job.range_blocks > 0 ? scan_kernel<true> : scan_kernel<false>,
	              needed < most ? needed : most, stream, job);
}

int cuda_scan_load(void)
{
	return load(scan_kernel<false>, scan_kernel<true>);
}
