/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * allreduce.h - an operation, as the worker's machines see it
 *
 * The submitter owns it and fills the first part. The engine writes the rest. After calling `done`
 * it touches neither the operation nor the buffers.
 */
#ifndef CLIENT_ALLREDUCE_H
#define CLIENT_ALLREDUCE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "bitmap/bitmap.h"
#include "bitmap/pool.h"
#include "ebpf/geometry.h"

struct allreduce;

/* Where to write the result of scanning a segment of all shards. */
struct access_scan {
	struct bitmap_pool *pool;
	uint64_t *bits;             /* A bit for each block, in tensor order, from bit 0. */
	uint64_t *spare;            /* As many words of scratch memory. */
	struct bitmap_range *range; /* The range of its values, or NULL if it is not wanted. */
};

/*
 * A frame of a segment of one shard. `number` counts the frames of the channel, and those before `edge` are over. A
 * segment of an eager operation counts as one frame, with the segment's number. plan() gets the number of the segment's
 * first frame, and none of the fields of a single frame.
 */
struct access_frame {
	uint32_t segment, shard, number, edge;
	const struct geometry_segment *cut;
	const uint64_t *united, *own; /* The segment's bits: [(cut->block_count + 63) / 64]. */
	uint32_t count;               /* The frame's (in plan(): segment's) blocks of the union. */
	enum dtype wire;              /* The type on the wire. */
	int shift;                    /* The shift of fixed-point integers: section 9. */
	bool nonfinite;               /* The results are NaN, which integers cannot express. */
	uint32_t world;
	const struct bitmap_engine *engine;

	/* Of a single frame. */
	uint32_t first, end; /* The first block and the one after the last, in the segment. */
	uint32_t own_count;  /* The number of our blocks in the frame. */
	uint32_t part;       /* The part of a block that takes several frames. */
	uint32_t unit_bytes; /* Bytes of a block, or of this part of it. */
};

/*
 * How streams and engine reach a tensor: two arrays in this process's memory (array.h), a list of
 * blocks (rows.h), or memory of a GPU (staging.h). Segments are scanned in ascending order.
 */
struct access {
	/* The operation begins, and `cut` is set. Fails with -ENOMEM. */
	int (*begin)(struct allreduce *task);

	/* Returns whether segment `number`, the next one, may be scanned. NULL means always. */
	bool (*ready)(struct allreduce *task, uint32_t number);

	/* Scans a segment. Returns the number of its non-zero blocks. */
	uint64_t (*scan)(struct allreduce *task, uint32_t number, const struct access_scan *scan);

	/*
	 * The union of a segment of one shard is known. Blocks that no worker has become zero in the
	 * result. Fails with -EINVAL if the tensor lacks a block of the union, or with -ENOMEM.
	 */
	int (*plan)(struct allreduce *task, const struct access_frame *plan);

	/* Returns whether the frame may be pushed. Frames become ready in order. NULL means always. */
	bool (*pushable)(const struct allreduce *task, const struct access_frame *frame);

	/* Appends our blocks of the frame, in the form of the wire. */
	void (*push)(const struct allreduce *task, const struct access_frame *frame,
	             struct packet_out *out);

	/* Stores an arrived frame. Returns false if there is no room yet; the frame then counts as lost. */
	bool (*store)(struct allreduce *task, const struct access_frame *frame,
	              const uint8_t *data);
};

struct allreduce {
	/*
	 * Set by the submitter. Buffers have `count` elements, and are equal or do not overlap. In a reduce-scatter
	 * `recv` only has room for this worker's share, and is either that part of `send` or does not overlap it. If
	 * `send` is NULL, this worker adds nothing, which only array_access of flat tensors supports.
	 */
	const void *send;
	void *recv;
	uint64_t count;
	float *lost;  /* Error memory of `count` elements, or NULL. Only array_access. */
	bool scatter; /* Each worker receives its share. Only array_access; world divides count. */
	const struct access *access; /* How to reach the tensor. */
	void *access_state;
	uint64_t tag; /* Matches the operations of all workers. Unique among those under way. */
	uint32_t block_elems;
	uint32_t priority; /* Higher priorities go first. */
	uint8_t dtype;     /* An enum dtype. */
	uint8_t reduction; /* An enum reduction. */
	uint8_t form;      /* An enum wire_form. */
	uint32_t part_count;
	struct geometry_part *parts; /* The tensor's layout; NULL: blocks of block_elems. */
	uint64_t agreed;             /* A number that must be the same for all workers. */
	bool form_auto; /* Use the native form if that is eager and takes no more datagrams. */
	void (*done)(struct allreduce *task);
	void *context; /* For the submitter. */

	/* The result. */
	int status;                    /* An enum winnow_result. */
	struct wire_mismatch mismatch; /* Set if status is WINNOW_ERR_MISMATCH. */
	uint64_t blocks;               /* Blocks of the tensor. */
	uint64_t blocks_nonzero;       /* Non-zero blocks of this worker. */
	uint64_t blocks_union;         /* Blocks that came back: those of any worker. */

	/* Used by the engine. */
	struct geometry cut;
	uint64_t share_first, share_count; /* `recv` gets elements [first, first + count). */
	uint32_t slot;                     /* The operation slot, the same on all channels. */
	uint32_t segments_scanned;         /* Segments before this one have been announced. */
	uint32_t passed; /* Other operations' segments that were announced before one of ours. */
	uint32_t shards_left; /* Channels that are not finished. */
	uint64_t started_us;
	STAILQ_ENTRY(allreduce) next;
};

#endif /* CLIENT_ALLREDUCE_H */
