/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * allreduce.h - one operation as the worker's machines see it
 *
 * The submitter owns it and fills the first part; the engine writes the rest, and does not touch it
 * or the buffers after it has called `done`.
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

/* What to look for in a segment of all shards. */
struct access_scan {
	struct bitmap_pool *pool;
	uint64_t *bits;             /* A bit for each block, in tensor order, from bit 0. */
	uint64_t *spare;            /* As many words, for blocks that nobody reads. */
	struct bitmap_range *range; /* The range of its values; NULL: not wanted. */
};

/*
 * A frame of a segment of one shard, by its number on the channel; frames before `edge` are over.
 * Each segment of an operation without frames is handed over as one, with the segment's number.
 * plan() is given all frames of a segment by the first one's number, without what is one frame's.
 */
struct access_frame {
	uint32_t segment, shard, number, edge;
	const struct geometry_segment *cut;
	const uint64_t *united, *own; /* the segment's: [(cut->block_count + 63) / 64] */
	uint32_t count;               /* blocks of the union that are in it */
	enum dtype wire;              /* The type that it travels in. */
	int shift;                    /* The shift of fixed-point integers: section 9. */
	bool nonfinite;               /* The results are NaN, and integers cannot say so. */
	uint32_t world;
	const struct bitmap_engine *engine;

	/* Of one frame. */
	uint32_t first, end; /* from its first block to after its last: in the segment */
	uint32_t own_count;  /* our blocks */
	uint32_t part;       /* of a block that takes several frames */
	uint32_t unit_bytes; /* of a block, or of this part of it */
};

/*
 * How streams and engine reach a tensor: two arrays in this process's memory (array.h), a list of
 * blocks (rows.h), or memory of a GPU (staging.h). Segments are scanned in ascending order.
 */
struct access {
	/* The operation has been cut, and begins. -ENOMEM. */
	int (*begin)(struct allreduce *task);

	/* May segment `number`, the next one, be scanned? NULL: always. */
	bool (*ready)(struct allreduce *task, uint32_t number);

	/* Returns how many of the segment's blocks are there. */
	uint64_t (*scan)(struct allreduce *task, uint32_t number, const struct access_scan *scan);

	/*
	 * The union of a segment of one shard is known. Blocks that no worker has are zero in the
	 * result. -EINVAL: the tensor lacks a block of the union; -ENOMEM.
	 */
	int (*plan)(struct allreduce *task, const struct access_frame *plan);

	/* May the frame be pushed yet? Frames become ready in the order of their numbers. NULL: always. */
	bool (*pushable)(const struct allreduce *task, const struct access_frame *frame);

	/* Our blocks of the frame, as they travel. */
	void (*push)(const struct allreduce *task, const struct access_frame *frame,
	             struct packet_out *out);

	/* What has arrived of a frame. False: there is no room for it yet, so it counts as lost. */
	bool (*store)(struct allreduce *task, const struct access_frame *frame,
	              const uint8_t *data);
};

struct allreduce {
	/*
	 * What to do. Buffers of `count` elements; equal, or apart. Of a reduce-scatter `recv` has room for
	 * this worker's share alone, and is that part of `send`, or apart. Without `send` this worker adds
	 * nothing: only array_access, of flat tensors.
	 */
	const void *send;
	void *recv;
	uint64_t count;
	float *lost; /* error memory of `count` elements, or NULL: only array_access */
	bool scatter; /* each worker receives its share: only array_access, and world divides count */
	const struct access *access; /* array_access: the buffers */
	void *access_state;
	uint64_t tag; /* matches the operations of all workers; unique among those under way */
	uint32_t block_elems;
	uint32_t priority; /* higher goes first */
	uint8_t dtype;     /* enum dtype */
	uint8_t reduction; /* enum reduction */
	uint8_t form;      /* enum wire_form */
	uint32_t part_count;
	struct geometry_part
		*parts;  /* the tensor's layout; NULL: it is flat, in blocks of block_elems */
	uint64_t agreed; /* a number that must be the same for all workers */
	bool form_auto;  /* natively, where that is eager and takes no more datagrams */
	void (*done)(struct allreduce *task);
	void *context; /* the submitter's */

	/* How it went. */
	int status;                    /* enum winnow_result */
	struct wire_mismatch mismatch; /* when status is WINNOW_ERR_MISMATCH */
	uint64_t blocks;               /* of the tensor */
	uint64_t blocks_nonzero;       /* this worker's */
	uint64_t blocks_union; /* of any worker; of a reduce-scatter those that came to this one */

	/* The engine's own. */
	struct geometry cut;
	uint64_t share_first,
		share_count;       /* the elements that `recv` is for: [first, first + count) */
	uint32_t slot;             /* operation slot, the same on all channels */
	uint32_t segments_scanned; /* segments before it have been announced */
	uint32_t passed;      /* segments of others announced since one of this could have been */
	uint32_t shards_left; /* channels that are not finished */
	uint64_t started_us;
	STAILQ_ENTRY(allreduce) next;
};

#endif /* CLIENT_ALLREDUCE_H */
