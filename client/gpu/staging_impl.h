/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * staging_impl.h - shared by the staging*.c files and private to them
 *
 * staging.c         memory, the bits of a tensor, the end of an operation
 * staging_frames.c  frames of planned segments: copies out of tensors and into them
 */
#ifndef CLIENT_STAGING_IMPL_H
#define CLIENT_STAGING_IMPL_H

#include <pthread.h>

#include "client/gpu/staging.h"

#define STAGING_AHEAD 8 /* segments of an operation that may be announced and not unpacked */

/* A segment of a shard, from its announcement until it is in the tensor. */
enum part_state { PART_FREE, PART_ANNOUNCED, PART_PLANNED, PART_RECEIVED };
struct staging_part {
	struct staging_op *op;
	struct gpu_plan *gpu;
	enum part_state state;
	uint32_t channel;
	uint32_t first, end; /* frames */
	uint32_t packed;     /* copies out have been started for frames before it */
	uint32_t packing;    /* number of the last such copy */
	uint32_t stored;     /* results have arrived for frames before it */
	uint32_t unpacked;   /* copies in have been started for frames before it */
	uint32_t unpacking;  /* number of the last such copy */
	struct staging_part *next_out, *next_in;
	bool queued_out, queued_in;
};

/* A place in a channel's two rings. */
enum cell_state { CELL_FREE, CELL_STORED, CELL_UNPACKING };
struct staging_cell {
	uint32_t packing;   /* out: number of the copy that brings a frame's own blocks */
	uint32_t frame;     /* in: the frame whose sums are here */
	uint32_t unpacking; /* in: number of the copy that takes them away */
	uint8_t state;      /* in */
};

/* One for each shard, and one more, without rings, for operations that have no frames. */
struct staging_channel {
	struct staging_cell *cells; /* [frame_count] */
	uint8_t *out, *in;          /* pinned */
	uint32_t edge;              /* frames before it are over */
	struct staging_part *first; /* planned but not completely packed, by frame number */
};

/* Copies in one direction, numbered; one runs at a time. */
struct staging_lane {
	struct gpu_run *runs; /* pinned, [GPU_RUNS_MAX] */
	uint32_t *word;       /* pinned: number of the last copy that is done */
	uint32_t last;        /* number of the last copy that was started */
	uint32_t frames;      /* in that copy */
};

struct staging_op {
	struct staging *staging;
	void *context;
	struct allreduce *task; /* NULL: it has not begun */
	const uint8_t *send;
	uint64_t count;
	enum dtype dtype;
	bool fixed;
	struct geometry cut;
	/* Bits are known for one piece of the tensor at a time, a number of segments. */
	uint32_t *scratch, *found, *word; /* as in struct gpu_scan */
	uint32_t scans;                   /* number of the last scan */
	uint32_t grain, ratio;            /* elements per bit, bits per block */
	uint32_t piece, piece_segments;   /* the first segment, and the most that a piece has */
	uint64_t piece_bits;
	bool seen;                  /* see_piece() has seen the piece */
	uint32_t fine;              /* granularity of the bitmap that is wanted; see staging_post */
	uint64_t *view;             /* that bitmap; NULL: none, or delivered */
	struct staging_part *parts; /* [STAGING_AHEAD * shard_count] */
	uint8_t *eager;             /* without frames: its own blocks, later the sums */
	uint32_t packing, unpacking; /* numbers of its last copies */
	uint32_t waiting;            /* frames stored but not in a copy yet */
	bool linked, finishing;
	struct staging_bytes bytes;
	struct staging_op *next; /* under way, or free */
};

struct staging {
	struct staging_config config;
	struct gpu *gpu;
	struct gpu_memory memory;
	uint32_t bits; /* that an operation has room for */
	uint32_t frame_count, frame_stride;
	struct staging_op *ops;           /* [op_slots] */
	struct staging_channel *channels; /* [shard_count + 1] */
	struct staging_part *parts;       /* of all operations */
	struct gpu_plan *plans;           /* likewise, pinned */

	/* Used by the communicator's thread only. */
	struct staging_op *under_way;
	struct staging_lane out, in;
	struct staging_part *to_unpack;
	uint32_t waiting; /* frames, of all operations */
	struct why error;

	pthread_mutex_t lock;
	struct staging_op *free_ops; /* under the lock */
};

/* The GPU's last number so far. */
static inline uint32_t staging_word(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* Has the GPU come to this number? Numbers begin again after 2^32. */
static inline bool staging_reached(const uint32_t *word, uint32_t number)
{
	return (int32_t)(staging_word(word) - number) >= 0;
}

static inline struct staging_part *staging_part_of(const struct staging_op *op, uint32_t segment,
                                                   uint32_t shard)
{
	return &op->parts[segment % STAGING_AHEAD * op->staging->config.shard_count + shard];
}

/* staging_frames.c. The GPU has failed: operations will. */
void staging_failed(struct staging *s, const char *why);

/* Of struct access, and for ready(): may this segment be announced? */
bool frames_ready(struct staging_op *op, uint32_t segment);
int frames_plan(struct allreduce *task, const struct access_plan *plan);
bool frames_pushable(const struct allreduce *task, const struct access_frame *frame);
void frames_push(const struct allreduce *task, const struct access_frame *frame, uint64_t mask,
                 struct packet_out *out);
void frames_received(struct allreduce *task, uint32_t shard, uint32_t segment);
bool frames_store(struct allreduce *task, const struct access_frame *frame, const uint8_t *data);

/* Start the next copy in each direction whose last copy is done. True: a copy was started. */
bool frames_copy(struct staging *s);

/* Drop the frames of an operation that has failed. */
void frames_forget(struct staging_op *op);

#endif /* CLIENT_STAGING_IMPL_H */
