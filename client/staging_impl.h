/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * staging_impl.h - what the staging*.c files share; private to them
 *
 * staging.c        operations: from the caller's stream to the machines, and back
 * staging_slots.c  the slots, and who gets one
 * staging_views.c  bitmaps of whole tensors, for traces
 */
#ifndef CLIENT_STAGING_IMPL_H
#define CLIENT_STAGING_IMPL_H

#include <pthread.h>

#include "client/staging.h"

#define STAGING_AHEAD_MAX 8 /* slots that one operation may have */

/* What a plan said of one shard's segment. */
struct staging_plan {
	uint32_t union_count;
	bool fixed;
	int shift;
};

struct staging_slot {
	struct gpu_slot gpu;
	uint64_t bytes;             /* of blocks that it has room for */
	uint32_t number;            /* segment */
	uint32_t shards_left;       /* not received */
	bool unpacks;               /* the GPU has something to unpack from it */
	bool received;              /* all shards; the GPU unpacks */
	uint32_t *ranks;            /* set bits before each word */
	struct staging_plan *plans; /* [shard_count] */
	struct staging_slot *next;
};

struct staging_view {
	struct gpu_view gpu;
	uint64_t words; /* that it has room for */
	struct staging_view *next;
};

struct staging_op {
	struct staging *staging;
	struct allreduce *task;
	struct gpu_gate gate;
	void *context;
	uint32_t launched; /* segments before it have been given to the GPU to scan */
	uint32_t slot_count;
	struct staging_slot *slots[STAGING_AHEAD_MAX]; /* of segment n: at n % STAGING_AHEAD_MAX */
	bool wants; /* has no slot, and may need one: under the lock */
	bool linked, finishing;
	struct staging_bytes bytes;
	uint32_t fine;             /* 0: nobody wants its bitmap */
	struct staging_view *view; /* for that; NULL: none, or not any more */
	bool viewed;               /* the GPU has been asked for it */
	struct staging_op *next;
};

struct staging {
	struct staging_config config;
	struct gpu *gpu;

	/* The communicator's thread's. */
	struct staging_op *under_way;
	char error[GPU_WHY_BYTES]; /* the GPU's first failure; "": none */

	pthread_mutex_t growth; /* one caller at a time makes slots */
	pthread_mutex_t lock;
	struct staging_op *unused; /* operations */
	uint64_t slot_bytes;       /* slots with less room are kept, and not used */
	uint32_t slot_count, free_count;
	uint32_t wanting; /* operations that want their first slot */
	struct staging_slot *free_slots, *small_slots;
	struct staging_view *views; /* that nobody uses */
};

/* Bytes of its largest segment over all shards. -EINVAL: it has too many blocks. */
int slot_bytes_for(const struct staging *s, const struct staging_post *what, uint64_t *out);

/* One operation more, whose segments have up to so many bytes: make the slots that it may need. */
int slots_grow(struct staging *s, uint64_t bytes, char *why);
void slots_free(struct staging *s, struct staging_slot *list);

/* NULL: there is none that others may not need more. */
struct staging_slot *slot_take(struct staging_op *op);
void slot_return(struct staging_op *op, struct staging_slot *slot);

/* Callers: room for the bitmap of so many elements, if there is memory for it. */
void view_take(struct staging_op *op, uint64_t count, uint32_t fine);
void view_return(struct staging_op *op);
void views_free(struct staging *s, struct staging_view *list);

/* Before the first segment is scanned: the whole tensor, if that is wanted. -EIO. */
int view_begin(struct staging_op *op, char *why);

/* Hand the bitmap out if it is there; `over`: it will not be later. True: the view is free. */
bool view_look(struct staging_op *op, bool over);

#endif /* CLIENT_STAGING_IMPL_H */
