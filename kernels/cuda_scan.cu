// SPDX-License-Identifier: BSD-3-Clause
/*
 * cuda_scan.cu - one bit per block, and the largest magnitude of each range of blocks, in one pass
 *
 * Linear scan, for aligned blocks of a power of two, at least 64 bytes: a warp takes 16 KB at a
 * time, in steps of 512 bytes. It loads four steps, also across the end of the 16 KB, while it
 * looks at the previous four. Each step leaves one bit per 16 bytes; at the end these are combined
 * into blocks.
 *
 * Scan by pieces, for all other blocks: unit by unit, as wide as the blocks are aligned.
 *
 * Bits are collected in the GPU's memory, with one atomic operation for many blocks; the last CTA
 * copies them to pinned memory. Floats without their sign sort like unsigned integers.
 */

#include "kernels/cuda_impl.h"

#define LINEAR_BYTES 16384
#define STEP_BYTES 512
#define BATCH 4 /* steps */
#define BATCHES (LINEAR_BYTES / STEP_BYTES / BATCH)
#define PIECE_BYTES 16384u /* that a warp takes at once when it scans by pieces */
#define PIECE_UNITS 8      /* that a lane has under way */
#define LINEAR_CTAS 4      /* that fit a multiprocessor */
#define RANGE_CTAS 3       /* likewise with magnitudes, which take more registers */
#define PIECE_CTAS 4

static_assert(BATCHES % 2 == 0, "two batches alternate, and each 16 KB begin with the first");

struct scan_job {
	const unsigned char *data;
	uint64_t bytes;
	uint32_t block_bytes, block_shift; /* log2 of a power of two */
	/* Scan by pieces: a piece lies within a group, and a group within a range. */
	uint32_t group_blocks, group_pieces, piece_count;
	uint32_t block_inverse;
	uint32_t range_blocks, range_inverse, range_shift;
	uint32_t care_even, care_odd; /* bits that count in even and odd 32-bit words */
	uint32_t *bits, *ranges;      /* scratch; the ticket follows the results */
	uint32_t *found, found_count;
	struct gpu_word done;
};

/* ---- findings of a lane ---- */

/* Non-zero if the unit is. With RANGE this is its largest magnitude, which *top also takes. */
template <bool RANGE, uint32_t BYTES>
static __device__ __forceinline__ uint32_t look(const scan_job &job, const unit<BYTES> &seen,
                                                uint32_t *top)
{
	uint32_t found = 0;

#pragma unroll
	for (uint32_t i = 0; i < seen.words; i++) {
		if (RANGE)
			found = max(found, seen.word[i] & 0x7fffffffu);
		else
			found |= seen.word[i] & (i % 2 == 0 ? job.care_even : job.care_odd);
	}
	*top = max(*top, found);
	return found;
}

static __device__ __forceinline__ void add_bits(const scan_job &job, uint32_t word, uint32_t bits)
{
	if (bits != 0)
		atomicOr(job.bits + word, bits);
}

/* Add the warp's largest magnitude to the range that holds a block. */
static __device__ __forceinline__ void add_top(const scan_job &job, uint32_t block, uint32_t top)
{
	top = __reduce_max_sync(ALL_LANES, top);
	if (threadIdx.x % 32 == 0 && top != 0)
		atomicMax(job.ranges + (__umulhi(block, job.range_inverse) >> job.range_shift),
		          top);
}

/* The last CTA copies the results of all CTAs to pinned memory, and leaves zeros. */
static __device__ __forceinline__ void carry_out(const scan_job &job)
{
	if (!last_cta(job.bits + job.found_count))
		return;
	for (uint32_t i = threadIdx.x; i < job.found_count; i += CTA_THREADS) {
		job.found[i] = __ldcg(job.bits + i);
		job.bits[i] = 0;
	}
	tell(job.done);
}

/* ---- pieces: any blocks ---- */

/* A word of the bitmap whose bits a warp has not written yet. */
struct scan_open {
	uint32_t word, bits;
};

/* Set the bits of lanes that found something. A warp's blocks lie in at most two words. */
static __device__ __forceinline__ void note(const scan_job &job, scan_open *open, uint32_t block,
                                            bool found)
{
	const uint32_t bit = found ? 1u << block % 32 : 0;
	uint32_t word;

	for (word = __shfl_sync(ALL_LANES, block, 0) / 32;
	     word <= __shfl_sync(ALL_LANES, block, 31) / 32; word++) {
		const uint32_t bits = __reduce_or_sync(ALL_LANES, block / 32 == word ? bit : 0);

		if (word != open->word && threadIdx.x % 32 == 0)
			add_bits(job, open->word, open->bits);
		open->bits = word != open->word ? bits : open->bits | bits;
		open->word = word;
	}
}

/* The block of a group that holds this byte of it. */
static __device__ __forceinline__ uint32_t block_of(const scan_job &job, uint32_t byte)
{
	return job.group_blocks == 1 ? 0 : divide(byte, job.block_inverse);
}

/* Scan bytes [from, to) of the group of blocks that begins with block `first`, at `group`. */
template <bool RANGE, uint32_t WIDTH>
static __device__ __forceinline__ void scan_piece(const scan_job &job, const unsigned char *group,
                                                  uint32_t first, uint32_t from, uint32_t to)
{
	scan_open open = {first / 32, 0};
	uint32_t top = 0;

	for (uint32_t at = from + threadIdx.x % 32 * WIDTH; __any_sync(ALL_LANES, at < to);
	     at += PIECE_UNITS * 32 * WIDTH) {
		unit<WIDTH> units[PIECE_UNITS];
		uint32_t votes = 0; /* in lane i: the lanes that found something in step i */

#pragma unroll
		for (uint32_t i = 0; i < PIECE_UNITS; i++) {
			const uint32_t here = at + i * 32 * WIDTH;

			units[i] = {};
			if (here + WIDTH <= to)
				units[i] = load_unit<WIDTH>(group + here);
		}
#pragma unroll
		for (uint32_t i = 0; i < PIECE_UNITS; i++) {
			const uint32_t found =
				__ballot_sync(ALL_LANES, look<RANGE>(job, units[i], &top) != 0);

			votes = threadIdx.x % 32 == i ? found : votes;
		}
#pragma unroll 1
		for (uint32_t i = 0; i < PIECE_UNITS; i++) {
			const uint32_t found = __shfl_sync(ALL_LANES, votes, i);
			const uint32_t here = at + i * 32 * WIDTH;

			if (found != 0)
				note(job, &open, first + block_of(job, here),
				     (found >> threadIdx.x % 32 & 1) != 0);
		}
	}
	if (to % WIDTH != 0) { /* the tensor ends within a unit */
		const uint32_t here = to - to % WIDTH;
		const unit<WIDTH> seen = load_part<WIDTH>(group + here, to - here);

		note(job, &open, first + block_of(job, here), look<RANGE>(job, seen, &top) != 0);
	}
	if (threadIdx.x % 32 == 0)
		add_bits(job, open.word, open.bits);
	if (RANGE)
		add_top(job, first, top);
}

template <bool RANGE, uint32_t WIDTH>
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
			scan_piece<RANGE, WIDTH>(job, job.data + group * group_bytes,
			                         group * job.group_blocks, from,
			                         min(from + PIECE_BYTES, end));
	}
}

/* ---- linear ---- */

/* Set the bits of the blocks in 16 KB. Lane l votes on [512 l, 512 l + 512), a bit for 16 bytes. */
template <bool RANGE>
static __device__ __forceinline__ void note_linear(const scan_job &job, uint64_t unit,
                                                   uint32_t votes, uint32_t top)
{
	const uint32_t lane = threadIdx.x % 32;
	const uint32_t first = static_cast<uint32_t>(unit * LINEAR_BYTES >> job.block_shift);
	uint32_t bits = 0;

	if (RANGE)
		add_top(job, first, top);
	if (job.block_bytes < STEP_BYTES) {
		const uint32_t group = job.block_bytes / 16, count = 32 / group;

		for (uint32_t i = 0; i < count; i++)
			bits |= static_cast<uint32_t>((votes >> i * group & ((1u << group) - 1)) !=
			                              0)
			        << i;
		bits <<= lane % group * count; /* `group` lanes make a word */
		for (uint32_t distance = 1; distance < group; distance *= 2)
			bits |= __shfl_xor_sync(ALL_LANES, bits, distance);
		if (lane % group == 0)
			add_bits(job, first / 32 + lane / group, bits);
	} else {
		const uint32_t steps = __ballot_sync(ALL_LANES, votes != 0);
		const uint32_t group = min(job.block_bytes / STEP_BYTES, 32u);
		const uint32_t mask = ALL_LANES >> (32 - group);

		bits = __ballot_sync(ALL_LANES,
		                     lane * group < 32 && (steps >> lane * group % 32 & mask) != 0);
		if (lane == 0)
			add_bits(job, first / 32, bits << first % 32);
	}
}

/* The rest after the last whole 16 KB, padded with zeros. */
template <bool RANGE> static __device__ __forceinline__ void scan_rest(const scan_job &job)
{
	const uint64_t index = job.bytes / LINEAR_BYTES;
	uint64_t at = index * LINEAR_BYTES + threadIdx.x % 32 * 16;
	uint32_t votes = 0, top = 0;

	if (index * LINEAR_BYTES == job.bytes)
		return;
#pragma unroll 1
	for (uint32_t step = 0; step < 32; step++, at += STEP_BYTES) {
		unit<16> seen = {};
		uint32_t found;

		if (at + 16 <= job.bytes)
			seen = load_unit<16>(job.data + at);
		else if (at < job.bytes)
			seen = load_part<16>(job.data + at, static_cast<uint32_t>(job.bytes - at));
		found = __ballot_sync(ALL_LANES, look<RANGE>(job, seen, &top) != 0);
		votes = threadIdx.x % 32 == step ? found : votes;
	}
	note_linear<RANGE>(job, index, votes, top);
}

template <bool RANGE>
static __global__ void __launch_bounds__(CTA_THREADS, RANGE ? RANGE_CTAS : LINEAR_CTAS)
	scan_linear(scan_job job)
{
	const uint32_t lane = threadIdx.x % 32, stride = gridDim.x * CTA_WARPS;
	const uint32_t count = static_cast<uint32_t>(job.bytes / LINEAR_BYTES);
	uint32_t index = blockIdx.x * CTA_WARPS + threadIdx.x / 32;
	const unsigned char *at =
		job.data + static_cast<uint64_t>(index) * LINEAR_BYTES + lane * 16;
	unit<16> turns[2][BATCH];

	if (index < count)
#pragma unroll
		for (uint32_t i = 0; i < BATCH; i++)
			turns[0][i] = load_unit<16>(at + i * STEP_BYTES);
	for (; index < count; index += stride) {
		uint32_t votes = 0, top = 0;

#pragma unroll
		for (uint32_t batch = 0; batch < BATCHES; batch++) {
			const uint32_t next = (batch + 1) % BATCHES;

			/* After its last 16 KB a warp loads them again, and ignores them. */
			if (next == 0 && index + stride < count)
				at += static_cast<uint64_t>(stride) * LINEAR_BYTES;
#pragma unroll
			for (uint32_t i = 0; i < BATCH; i++)
				turns[next % 2][i] =
					load_unit<16>(at + (next * BATCH + i) * STEP_BYTES);
#pragma unroll
			for (uint32_t i = 0; i < BATCH; i++) {
				const unit<16> &seen = turns[batch % 2][i];
				const uint32_t found =
					__ballot_sync(ALL_LANES, look<RANGE>(job, seen, &top) != 0);

				votes = lane == batch * BATCH + i ? found : votes;
			}
		}
		note_linear<RANGE>(job, index, votes, top);
	}
	if (blockIdx.x == gridDim.x - 1 && threadIdx.x / 32 == CTA_WARPS - 1)
		scan_rest<RANGE>(job);
	carry_out(job);
}

template <bool RANGE>
static __global__ void __launch_bounds__(CTA_THREADS, PIECE_CTAS) scan_any(scan_job job)
{
	switch (unit_bytes(reinterpret_cast<uintptr_t>(job.data) | job.block_bytes)) {
	case 16:
		scan_pieces<RANGE, 16>(job);
		break;
	case 8:
		scan_pieces<RANGE, 8>(job);
		break;
	case 4:
		scan_pieces<RANGE, 4>(job);
		break;
	default:
		if (!RANGE) /* ranges are of f32, aligned to four bytes */
			scan_pieces<false, 2>(job);
	}
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

/* For dividing up to 2^31 by range_blocks >= 64: 2^(31 + bits) / range_blocks is below 2^32. */
static void set_ranges(scan_job *job)
{
	job->range_shift = 31 - static_cast<uint32_t>(__builtin_clz(job->range_blocks - 1));
	job->range_inverse = static_cast<uint32_t>(
		(UINT64_C(1) << (32 + job->range_shift)) / job->range_blocks + 1);
}

/* Group small blocks, cut large ones into pieces. False: there are too many pieces. */
static bool set_pieces(scan_job *job, uint64_t blocks)
{
	uint64_t pieces;

	job->group_blocks = 1;
	while (2 * job->group_blocks * job->block_bytes <= PIECE_BYTES &&
	       job->range_blocks % (2 * job->group_blocks) == 0)
		job->group_blocks *= 2;
	job->group_pieces = (job->group_blocks * job->block_bytes + PIECE_BYTES - 1) / PIECE_BYTES;
	pieces = (blocks + job->group_blocks - 1) / job->group_blocks * job->group_pieces;
	job->piece_count = static_cast<uint32_t>(pieces);
	return pieces <= UINT32_MAX;
}

static bool is_linear(const scan_job *job)
{
	const uint32_t block = job->block_bytes;

	return reinterpret_cast<uintptr_t>(job->data) % 16 == 0 && block >= 64 &&
	       (block & (block - 1)) == 0 && job->bytes / LINEAR_BYTES <= UINT32_MAX / 2 &&
	       static_cast<uint64_t>(job->range_blocks) * block % LINEAR_BYTES == 0;
}

static bool set_job(scan_job *job, const struct gpu_scan *scan)
{
	const struct bitmap_tensor *tensor = &scan->tensor;
	const uint32_t elem_bytes = dtype_bytes(tensor->dtype);
	uint64_t blocks;

	if (elem_bytes == 0 || tensor->block_elems == 0 || tensor->block_elems > 65536 ||
	    tensor->count > UINT64_C(1) << 48 ||
	    reinterpret_cast<uintptr_t>(tensor->data) % elem_bytes != 0)
		return false;
	blocks = bitmap_block_count(tensor->count, tensor->block_elems);
	if (blocks > UINT64_C(1) << 31 || scan->range_blocks % 64 != 0 ||
	    scan->range_blocks > UINT64_C(1) << 31 ||
	    (scan->range_blocks > 0 && tensor->dtype != DTYPE_F32))
		return false;
	job->data = static_cast<const unsigned char *>(tensor->data);
	job->bytes = tensor->count * elem_bytes;
	job->block_bytes = static_cast<uint32_t>(tensor->block_elems * elem_bytes);
	job->block_shift = static_cast<uint32_t>(__builtin_ctz(job->block_bytes));
	job->block_inverse = inverse_of(job->block_bytes);
	job->range_blocks = static_cast<uint32_t>(scan->range_blocks);
	if (job->range_blocks > 0)
		set_ranges(job);
	job->bits = scan->scratch;
	job->ranges = scan->scratch + 2 * bitmap_word_count(blocks);
	job->found = scan->found;
	job->found_count = static_cast<uint32_t>(gpu_scan_room(blocks, scan->range_blocks));
	job->done = scan->done;
	set_care(job, tensor->dtype);
	return set_pieces(job, blocks);
}

static uint32_t grid_of(uint64_t pieces, uint64_t ctas_max)
{
	const uint64_t ctas = (pieces + CTA_WARPS - 1) / CTA_WARPS;

	return static_cast<uint32_t>(ctas == 0 ? 1 : ctas < ctas_max ? ctas : ctas_max);
}

int cuda_scan(const struct gpu_scan *scan, uint32_t processors, void *stream)
{
	cudaStream_t queue = static_cast<cudaStream_t>(stream);
	scan_job job = {};

	if (!set_job(&job, scan))
		return cudaErrorInvalidValue;
	if (is_linear(&job) && job.range_blocks > 0)
		return launch(scan_linear<true>,
		              grid_of(job.bytes / LINEAR_BYTES, processors * RANGE_CTAS), queue,
		              job);
	if (is_linear(&job))
		return launch(scan_linear<false>,
		              grid_of(job.bytes / LINEAR_BYTES, processors * LINEAR_CTAS), queue,
		              job);
	return launch(job.range_blocks > 0 ? scan_any<true> : scan_any<false>,
	              grid_of(job.piece_count, processors * PIECE_CTAS), queue, job);
}

cudaError_t cuda_scan_load(void)
{
	cudaError_t error = load(scan_linear<false>);

	error = error == cudaSuccess ? load(scan_linear<true>) : error;
	error = error == cudaSuccess ? load(scan_any<false>) : error;
	return error == cudaSuccess ? load(scan_any<true>) : error;
}
