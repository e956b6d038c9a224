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
#include "client/rows.h"
#include "ebpf/geometry.h"

struct allreduce {
	/* What to do. Buffers of `count` elements; equal, or apart. */
	const void *send;
	void *recv;
	uint64_t count;
	struct winnow_rows
		*rows; /* what is sent, and perhaps what is received; NULL: `send` and `recv` */
	uint64_t tag;  /* matches the operations of all workers; unique among those under way */
	uint32_t block_elems;
	uint8_t dtype;     /* enum dtype */
	uint8_t reduction; /* enum reduction */
	uint8_t form;      /* enum wire_form */
	bool is_guard;     /* of segments: see comm_parts.c */
	bool form_auto;    /* FIXED32 is our choice: not for what fits its announcement natively */
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
	uint32_t shards_left;      /* channels that are not finished */
	uint64_t started_us;
	struct allreduce *next;
};

#endif /* CLIENT_ALLREDUCE_H */
