/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * allreduce.h - one operation as the worker's machines see it
 *
 * Whoever submits it owns it and fills the first part; the engine writes the rest, and
 * neither reads nor writes it, or the buffers, after `done` is called.
 */
#ifndef CLIENT_ALLREDUCE_H
#define CLIENT_ALLREDUCE_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/bitmap.h"
#include "ebpf/geometry.h"

struct allreduce;

/* What is found in a segment. */
struct access_scan {
	uint64_t count;        /* bits that are set */
	const uint8_t *values; /* those blocks, if somebody else is to find their range; or NULL */
	struct bitmap_range range; /* of the segment, if `values` is NULL and the form is FIXED32 */
};

/* What will travel of a segment of one shard. */
struct access_plan {
	uint32_t segment, shard;
	uint32_t block_count; /* of the shard in this segment */
	uint32_t union_count;
	const uint64_t *united, *own; /* [(block_count + 63) / 64] */
	uint32_t first, edge;         /* number of its first frame; those before `edge` are over */
	bool fixed;                   /* it travels as int32, as `shift` says */
	int shift;
};

/* A frame of a segment of one shard, by its number on the channel; those before `edge` are over. */
struct access_frame {
	uint32_t segment, shard, number, edge;
};

/*
 * How streams and engine reach a tensor that is not two arrays in this process's memory: a list
 * of blocks (rows.h), or memory of a GPU (staging.h). Segments are scanned in ascending order.
 */
struct access {
	/* The operation is cut, and begins. -ENOMEM. */
	int (*begin)(struct allreduce *task);

	/* May segment `number`, the next one, be scanned? NULL: always. */
	bool (*ready)(struct allreduce *task, uint32_t number);

	/* bits: of the segment's blocks of all shards, in tensor order, from bit 0. */
	void (*scan)(struct allreduce *task, uint32_t number, uint64_t *bits,
	             struct access_scan *out);

	/* The whole space of a block that was announced; the next one announced follows it. */
	const uint8_t *(*send)(const struct allreduce *task, uint32_t segment, uint64_t block);

	/*
	 * plan - the union of a segment of one shard is known. NULL: what comes goes to `recv`.
	 * -EINVAL: the tensor lacks a block of it; -ENOMEM.
	 */
	int (*plan)(struct allreduce *task, const struct access_plan *plan);

	/*
	 * push - what we have of a frame, as it travels; NULL: not yet. Without it, blocks are sent as
	 * send() says. Frames become ready by themselves, in the order of their numbers.
	 */
	const uint8_t *(*push)(const struct allreduce *task, const struct access_frame *frame);

	/*
	 * With plan(), one of these: where a block goes, or what has come of a frame. False: there
	 * is no room for it yet, so it counts as lost.
	 */
	uint8_t *(*recv)(const struct allreduce *task, uint32_t shard, uint64_t block);
	bool (*store)(struct allreduce *task, const struct access_frame *frame, const void *data,
	              uint32_t bytes);

	/* All of a segment of one shard has been received. NULL: nothing is to be done. */
	void (*received)(struct allreduce *task, uint32_t shard, uint32_t segment);
};

struct allreduce {
	/* What to do. Buffers of `count` elements; equal, or apart. */
	const void *send;
	void *recv;
	uint64_t count;
	const struct access *access; /* of what is sent, perhaps also received; NULL: the buffers */
	void *access_state;
	uint64_t tag; /* matches the operations of all workers; unique among those under way */
	uint32_t block_elems;
	uint32_t priority; /* higher goes first */
	uint8_t dtype;     /* enum dtype */
	uint8_t reduction; /* enum reduction */
	uint8_t form;      /* enum wire_form */
	bool is_guard;     /* of segments: see comm_parts.c */
	uint64_t whole,
		first; /* for traces: it is what begins at `first` in operation `whole`; 0: itself */
	bool form_auto; /* FIXED32 is our choice: not for what fits its announcement natively */
	void (*done)(struct allreduce *task);
	void *context; /* the submitter's */

	/* How it went. */
	int status;                    /* enum winnow_result */
	struct plan_mismatch mismatch; /* when status is WINNOW_ERR_MISMATCH */
	uint64_t blocks;               /* of the tensor */
	uint64_t blocks_nonzero;       /* of this worker */
	uint64_t blocks_union;         /* of any worker */

	/* The engine's own. */
	struct geometry cut;
	uint32_t slot;             /* operation slot, the same on all channels */
	uint32_t segments_scanned; /* segments before it have been announced */
	uint32_t passed;      /* segments of others announced since one of this could have been */
	uint32_t shards_left; /* channels that are not finished */
	uint64_t started_us;
	struct allreduce *next;
};

#endif /* CLIENT_ALLREDUCE_H */
