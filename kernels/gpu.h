/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu.h - what a communicator asks of a GPU: scan a tensor, copy frames out of it and into it
 *
 * All code that needs CUDA is in a separate object, winnow-cuda.so, which the library opens when a
 * tensor is on a GPU. It exports the table below. Its users neither see CUDA types nor link CUDA.
 *
 * Streams never wait for the host; the host polls. Each piece of work ends with a word: when
 * everything that the work has written is visible to the whole system, its last CTA stores a number
 * in pinned memory, and the host polls it. Only open() and close() wait for the GPU or allocate.
 *
 * Functions that can fail return 0, -EINVAL (the caller's mistake), -ENODEV, -ENOMEM or -EIO (the
 * GPU or its driver), and explain it in `why`. Any thread may call locate(), mark(), unmark(), open()
 * and follow(); one at a time the others.
 */
#ifndef KERNELS_GPU_H
#define KERNELS_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bitmap/bitmap.h"
#include "bitmap/why.h"

#define GPU_PLUGIN_SYMBOL "winnow_gpu"

#define GPU_PLAN_WORDS 256 /* of a segment's bitmap */
#define GPU_RUNS_MAX 128   /* of one copy */
#define GPU_BUS_CTAS 32    /* of a large copy: with 16 KB under way in each they saturate the bus */

struct gpu;

/* A word: the GPU stores `value` at `at` (pinned) when the work is done. */
struct gpu_word {
	uint32_t *at, value;
};

/*
 * A scan: one bit per block, and the largest magnitude of every range of blocks: the element with
 * the largest absolute value, as f32 without its sign. Both are computed in `scratch` and then
 * copied to `found`: first the words of the bitmap, then a uint32_t for each range.
 */
struct gpu_scan {
	void *clear; /* device memory that is zeroed before the scan; or NULL */
	uint64_t clear_bytes;
	struct bitmap_tensor tensor; /* up to 2^31 blocks */
	uint64_t range_blocks;       /* a multiple of 64; 0: no magnitudes. f32 only */
	/* Both aligned to 16. */
	uint32_t *scratch; /* device, gpu_scan_room() + 1; zero before and after */
	uint32_t *found;   /* pinned, gpu_scan_room() */
	struct gpu_word done;
};

/* Number of uint32_t in the results of a scan. */
static inline uint64_t gpu_scan_room(uint64_t blocks, uint64_t range_blocks)
{
	return 2 * bitmap_word_count(blocks) +
	       (range_blocks > 0 ? (blocks + range_blocks - 1) / range_blocks : 0);
}

/*
 * One segment of one shard as kernels need it, in pinned memory: the places of its blocks in the
 * tensor and of its frames. Frame `frame_first` holds the first frame_blocks blocks of the union,
 * or the first part of its first block, and so on. Frame f is at (f & frame_mask) * frame_stride.
 */
struct gpu_plan {
	const uint8_t *send; /* the tensors, on the device, aligned for their elements */
	uint8_t *recv;
	uint64_t tensor_bytes;
	uint64_t first_index;        /* the shard's block that bit 0 stands for: ebpf/deal.h */
	uint8_t *out, *in;           /* frames of each direction, pinned, aligned to 16 */
	uint32_t shard, shard_count; /* shard < shard_count */
	uint32_t block_bytes;
	uint32_t frame_blocks;            /* at least 1 */
	uint32_t block_parts, part_bytes; /* frames per block, and bytes in each but the last */
	uint32_t frame_first, frame_mask, frame_stride; /* the stride is a multiple of 16 */
	uint32_t fixed; /* f32 goes out as int32, times 2^shift, and comes back over divisor */
	int32_t shift;  /* -200 .. 200 */
	float divisor;
	uint64_t united[GPU_PLAN_WORDS], own[GPU_PLAN_WORDS]; /* zero past the last block */
};

/* Consecutive frames of one plan. */
struct gpu_run {
	const struct gpu_plan *plan;
	uint32_t words; /* of the plan's bitmaps: the bus carries no more */
	uint32_t frame, count;
	uint32_t before; /* total frames of the runs before it */
};

/*
 * A copy. Out: our own blocks of each frame, without gaps, into the frame; a short last block is
 * padded with zeros. In: all blocks of each frame into the tensor.
 */
struct gpu_copy {
	bool out;
	uint32_t run_count, frame_count; /* at least 1 */
	uint32_t *ticket;                /* device, zero before and after */
	struct gpu_word done;
	struct gpu_run runs[GPU_RUNS_MAX]; /* [run_count] */
};

/* Memory that exists as long as the GPU is open, zeroed at first. At open, places are NULL. */
struct gpu_memory {
	struct gpu_area {
		uint8_t *at;
		size_t bytes;
	} pinned, device;
};

struct gpu_mark;
struct node_calls;

struct gpu_calls {
	const char *version;           /* WINNOW_VERSION of the build */
	const struct node_calls *node; /* NULL: the build knows no NCCL */

	/* The GPU that this memory belongs to. -ENODEV: there is none. */
	int (*locate)(const void *memory, int *device, struct why *why);

	/*
	 * mark - the end of the work that is now in a stream of the GPU's; NULL is the default stream.
	 * -EINVAL: the stream is another GPU's, or is being captured into a graph.
	 * is_past - has the GPU come to the mark? 1: not yet; -EIO.
	 */
	int (*mark)(int device, void *stream, struct gpu_mark **out, struct why *why);
	int (*is_past)(struct gpu *gpu, struct gpu_mark *mark, struct why *why);
	void (*unmark)(struct gpu_mark *mark); /* NULL is fine */

	/* *memory stays: sizes are given, places come back. Both may wait for all the GPU's work. */
	int (*open)(int device, struct gpu_memory *memory, struct gpu **out, struct why *why);
	void (*close)(struct gpu *gpu);

	/* Scans happen one after the other; so do copies out, and copies in. */
	int (*scan)(struct gpu *gpu, const struct gpu_scan *scan, struct why *why);
	int (*copy)(struct gpu *gpu, const struct gpu_copy *copy, struct why *why);

	/* What comes next in the stream comes after all copies in so far. */
	int (*follow)(struct gpu *gpu, void *stream, struct why *why);

	/* Is the GPU well? 0, or -EIO. */
	int (*check)(struct gpu *gpu, struct why *why);
};

#endif /* KERNELS_GPU_H */
