/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu.h - the interface to a GPU: scan a tensor, copy frames out of it and into it
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
 * and follow(); only one at a time may call the others.
 */
#ifndef KERNELS_GPU_H
#define KERNELS_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bitmap/bitmap.h"
#include "bitmap/why.h"

#define GPU_PLUGIN_SYMBOL "winnow_gpu"

#define GPU_PLAN_WORDS 256 /* in a segment's bitmap */
#define GPU_RUNS_MAX 128   /* in one copy */
#define GPU_BUS_CTAS 32    /* in a large copy; with 16 KB in flight in each they saturate the bus */

struct gpu;

/* A word: the GPU stores `value` at `at` (pinned) when the work is done. */
struct gpu_word {
	uint32_t *at, value;
};

/*
 * A scan finds one bit per block, and the largest magnitude (absolute value, as f32 bits) in every
 * range of blocks. Both are computed in `scratch` and then copied to `found`: first the words of
 * the bitmap, then a uint32_t for each range.
 */
struct gpu_scan {
	void *clear; /* device memory to zero before the scan, or NULL */
	uint64_t clear_bytes;
	struct bitmap_tensor tensor; /* up to 2^31 blocks */
	uint64_t range_blocks;       /* a multiple of 64; 0: no magnitudes; only for f32 */
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
	uint64_t first_index;        /* the shard's index (deal.h) of the block of bit 0 */
	uint8_t *out, *in;           /* frames of each direction, pinned, aligned to 16 */
	uint32_t shard, shard_count; /* shard < shard_count */
	uint32_t block_bytes;
	uint32_t frame_blocks;            /* at least 1 */
	uint32_t block_parts, part_bytes; /* frames per block, and bytes in each but the last */
	uint32_t frame_first, frame_mask, frame_stride; /* the stride is a multiple of 16 */
	uint32_t fixed; /* f32 goes out as int32, times 2^shift; sums are divided */
	int32_t shift;  /* -200 .. 200 */
	float divisor;
	uint64_t united[GPU_PLAN_WORDS], own[GPU_PLAN_WORDS]; /* zero after the last block */
};

/* Consecutive frames of one plan. */
struct gpu_run {
	const struct gpu_plan *plan;
	uint32_t words; /* of the plan's bitmaps that cross the bus */
	uint32_t frame, count;
	uint32_t before; /* frames in all runs before it */
};

/*
 * A copy. Out: copies our blocks of each frame into the frame without gaps, and pads a short last
 * block with zeros. In: copies all blocks of each frame into the tensor.
 */
struct gpu_copy {
	bool out;
	uint32_t run_count, frame_count; /* at least 1 */
	uint32_t *ticket;                /* device, zero before and after */
	struct gpu_word done;
	struct gpu_run runs[GPU_RUNS_MAX]; /* [run_count] */
};

/* Memory that exists while the GPU is open, zeroed at first. Before open() places are NULL. */
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
	const struct node_calls *node; /* NULL if the build has no NCCL */

	/* Finds the GPU that this memory belongs to. -ENODEV if there is none. */
	int (*locate)(const void *memory, int *device, struct why *why);

	/*
	 * mark - marks the end of the work that is now in a stream of the GPU; NULL is the default
	 * stream. -EINVAL if the stream is another GPU's, or is being captured into a graph.
	 * is_past - returns 0 if the GPU has reached the mark, 1 if not yet, or -EIO.
	 */
	int (*mark)(int device, void *stream, struct gpu_mark **out, struct why *why);
	int (*is_past)(struct gpu *gpu, struct gpu_mark *mark, struct why *why);
	void (*unmark)(struct gpu_mark *mark); /* NULL is allowed */

	/* open() fills in the places in *memory, which stays. Both may wait for all the GPU's work. */
	int (*open)(int device, struct gpu_memory *memory, struct gpu **out, struct why *why);
	void (*close)(struct gpu *gpu);

	/* Scans run one after the other. So do copies out, and copies in. */
	int (*scan)(struct gpu *gpu, const struct gpu_scan *scan, struct why *why);
	int (*copy)(struct gpu *gpu, const struct gpu_copy *copy, struct why *why);

	/* Makes work that is put into the stream later wait for all copies in so far. */
	int (*follow)(struct gpu *gpu, void *stream, struct why *why);

	/* Returns 0, or -EIO if the GPU has failed. */
	int (*check)(struct gpu *gpu, struct why *why);
};

#endif /* KERNELS_GPU_H */
