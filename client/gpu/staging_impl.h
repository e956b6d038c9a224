/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * staging_impl.h - what the staging*.c files share; private to them
 *
 * staging.c         memory, what a tensor holds, how an operation ends
 * staging_frames.c  frames of what is planned: carried out, carried in
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
	uint32_t packed;     /* the GPU has been asked for those before it */
	uint32_t packing;    /* the last such copy */
	uint32_t stored;     /* those before it are here */
	uint32_t unpacked;   /* and the GPU has been given those before it */
	uint32_t unpacking;  /* the last such copy */
	struct staging_part *next_out, *next_in;
	bool queued_out, queued_in;
};

/* A place in a channel's two rings. */
enum cell_state { CELL_FREE, CELL_STORED, CELL_UNPACKING };
struct staging_cell {
	uint32_t packing;          /* the copy that brings what we have of a frame */
	uint32_t frame, unpacking; /* whose sums are here, and the copy that takes them away */
	uint8_t state;             /* of the latter */
};

/* One for each shard, and one more, without rings, for operations that have no frames. */
struct staging_channel {
	struct staging_cell *cells; /* [frame_count] */
	uint8_t *out, *in;          /* pinned */
	uint32_t edge;              /* frames before it are over */
	struct staging_part *first; /* planned and not packed, by number */
};

/* Copies of one way: one at a time, numbered. */
struct staging_lane {
	struct gpu_run *runs; /* pinned, [GPU_RUNS_MAX] */
	uint32_t *word;       /* pinned: the last that the GPU has done */
	uint32_t last;        /* that it has been asked for */
	uint32_t frames;      /* in that one */
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
	/* What is known of its bits: those of some segments, a piece. */
	uint32_t *scratch, *found, *word; /* as in struct gpu_scan */
	uint32_t scans;                   /* number of the last one */
	uint32_t grain, ratio;            /* elements of a bit, bits of a block */
	uint32_t piece, piece_segments;   /* the first segment, and how many at most */
	uint64_t piece_bits;
	bool seen;                   /* the piece is there, and has been looked at */
	uint32_t fine;               /* a bitmap of all of it is wanted, see staging_post */
	uint64_t *view;              /* that bitmap; NULL: none, or not any more */
	struct staging_part *parts;  /* [STAGING_AHEAD * shard_count] */
	uint8_t *eager;              /* blocks of one without frames, then their sums */
	uint32_t packing, unpacking; /* its last copies */
	uint32_t waiting;            /* frames that are here and not given to the GPU */
	bool linked, finishing;
	struct staging_bytes bytes;
	struct staging_op *next; /* under way, or free */
};

struct staging {
	struct staging_config config;
	struct gpu *gpu;
	struct gpu_memory memory;
	uint32_t bits; /* room of an operation */
	uint32_t frame_count, frame_stride;
	struct staging_op *ops;           /* [op_slots] */
	struct staging_channel *channels; /* [shard_count + 1] */
	struct staging_part *parts;       /* of all operations */
	struct gpu_plan *plans;           /* likewise, pinned */

	/* The communicator's thread's. */
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

/* The next copies, where the last are done. True: there are some. */
bool frames_copy(struct staging *s);

/* The operation has failed: what is known of it is of no use, and its places are free. */
void frames_forget(struct staging_op *op);

#endif /* CLIENT_STAGING_IMPL_H */
