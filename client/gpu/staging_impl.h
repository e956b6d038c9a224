/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * staging_impl.h - shared by the staging*.c files and private to them
 *
 * staging.c         memory, the bits of a tensor, the end of an operation
 * staging_frames.c  frames of planned segments: copies out of tensors and into them
 */
#ifndef CLIENT_STAGING_IMPL_H
#define CLIENT_STAGING_IMPL_H

#include "client/gpu/staging.h"

/* A place in a channel's ring of sums. */
struct staging_cell {
	bool taken;     /* from when the sums of a frame arrive until they have been unpacked */
	uint32_t frame; /* its number */
};

/* One for each shard; and one of one frame for each operation, for what travels with announcements. */
struct staging_ring {
	struct staging_cell *cells; /* [frame_count] */
	uint8_t *out, *in;          /* pinned, [frame_count] */
	uint32_t frame_count;       /* a power of two */
	uint32_t edge;              /* frames before it are over */
};

/* A segment of a shard; its frames are those before `end`. All zero: there is none. */
struct staging_part {
	struct staging_ring *ring;
	bool announced; /* and not planned */
	uint32_t words; /* of its bitmaps */
	uint32_t end;
	uint32_t packed;   /* copies out are done for frames before it: they may be pushed */
	uint32_t stored;   /* results have arrived for frames before it */
	uint32_t unpacked; /* copies in are done for frames before it */
	uint32_t copies;   /* that are under way, of both directions */
};

/* Copies in one direction, of which one runs at a time. */
struct staging_lane {
	struct gpu_run runs[GPU_RUNS_MAX];
	struct gpu_copy copy; /* the last one; without runs: parts know that it is done */
};

/* `staged` is NULL: it is free. */
struct staging_op {
	struct staged *staged;
	struct allreduce *task;
	/* Bits are known for one piece of the tensor at a time, a number of segments of one part. */
	const struct geometry_part *part;
	struct gpu_scan scan;           /* the last one */
	uint32_t grain, ratio;          /* elements per bit, bits per block */
	uint64_t segment_bits;          /* of a whole segment, in all shards */
	uint32_t piece, piece_segments; /* the first segment, and how many the piece has */
	uint64_t piece_bits;
	uint64_t *view; /* the bitmap that is wanted; NULL: none, or there is no memory */
	struct staging_part *parts; /* [part_count] */
	struct staging_ring *eager;
	bool finishing;
	bool failed; /* it has no plans, or its session fails: no more copies are started */
};

struct staging {
	struct staging_config config;
	struct gpu *gpu;
	struct gpu_memory memory;
	uint32_t bits; /* that an operation has room for */
	uint32_t frame_count, frame_stride;
	uint32_t ahead;      /* segments of an operation that may be announced and not unpacked */
	uint32_t part_count; /* of an operation: ahead * shard_count */
	struct staging_op *ops;       /* [op_slots] */
	struct staging_ring *rings;   /* [shard_count + op_slots] */
	struct staging_cell *cells;   /* of all rings */
	struct staging_part *parts;   /* of all operations */
	struct gpu_plan *plans;       /* one for each part, pinned */
	struct staging_lane lanes[2]; /* in, out */
	uint32_t waiting;             /* frames stored and not unpacked */
	uint32_t asked;               /* marks that the GPU had not come to, since the last turn */
	bool moved;                   /* an operation has come, or has begun, since then */
	struct why error;             /* the GPU has failed: operations will */
};

/* Has the GPU come to this value? They are numbers, which begin again after 2^32. */
static inline bool staging_reached(const struct gpu_word *word)
{
	return (int32_t)(__atomic_load_n(word->at, __ATOMIC_ACQUIRE) - word->value) >= 0;
}

/* An operation that has been scanned. */
static inline struct staging_op *staging_op_of(const struct allreduce *task)
{
	return ((const struct staged *)task->access_state)->op;
}

static inline struct staging_part *staging_part_of(const struct staging_op *op, uint32_t segment,
                                                   uint32_t shard)
{
	const struct staging *s = op->staged->staging;

	return &op->parts[segment % s->ahead * s->config.shard_count + shard];
}

/*
 * staging_bits - add a segment's bits to `out`: there they are bits `at` and following, and one bit
 * stands for `ratio` of them.
 */
void staging_bits(const struct staging_op *op, uint32_t number, uint32_t ratio, uint64_t *out,
                  uint64_t at);

/* staging_frames.c. Of struct access, and for ready(): may this segment be announced? */
bool frames_ready(struct staging_op *op, uint32_t segment);
int frames_plan(struct allreduce *task, const struct access_plan *plan);
bool frames_pushable(const struct allreduce *task, const struct access_frame *frame);
void frames_push(const struct allreduce *task, const struct access_frame *frame,
                 struct packet_out *out);
bool frames_store(struct allreduce *task, const struct access_frame *frame, const uint8_t *data);

/* In each direction whose last copy is done, start the next. True: one was done or started. */
bool frames_copy(struct staging *s);

#endif /* CLIENT_STAGING_IMPL_H */
