/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * staging.h - operations whose tensors are in the memory of one GPU
 *
 * Segment by segment, the GPU finds a tensor's non-zero blocks and packs them into a slot of
 * pinned memory, from which they are sent; sums are received into it, and the GPU unpacks them into
 * the result. Only bitmaps, what plans say, and blocks that travel cross the bus. Slots are used
 * again and again: how many there are bounds how far the GPU is ahead of the network.
 *
 * Knows the GPU by the table in kernels/gpu.h only, and neither sockets nor time.
 */
#ifndef CLIENT_STAGING_H
#define CLIENT_STAGING_H

#include "client/allreduce.h"
#include "kernels/gpu.h"

struct staging;
struct staging_op;

struct staging_config {
	const struct gpu_calls *calls;
	int device;
	uint32_t world;
	uint32_t shard_count; /* channels of the job */
	uint32_t payload;
	uint32_t op_slots;           /* operations that the engine has under way */
	void (*wake)(void *context); /* any thread: look after staging_turn() */
	/* staging_turn(): an operation is over, see below. `there`: its result is in the tensor. */
	void (*passed)(void *op_context, bool there);
	/* Likewise, before passed(), if a bitmap was wanted: what is non-zero, a bit for `fine` elements. */
	void (*viewed)(void *op_context, uint32_t fine, const uint64_t *bits);
	void (*failing)(void *context,
	                const char *why); /* the GPU has failed: before streams go on */
	void *context;                    /* of wake() and failing() */
};

/* -EIO, -ENOMEM; `why` has GPU_WHY_BYTES, here and below. */
int staging_open(const struct staging_config *config, struct staging **out, char *why);
void staging_close(struct staging *staging); /* when idle; NULL is fine */

/* ---- callers' threads ---- */

/*
 * staging_post - an operation of `count` elements in blocks of block_elems that begins when what is
 * now in `stream` is done. The caller puts staging_access and *out into a struct allreduce and
 * gives that to the engine. -EINVAL: of the caller's doing; -EIO; -ENOMEM.
 */
struct staging_post {
	uint64_t count;
	uint32_t block_elems;
	uint32_t elem_bytes;
	void *stream;
	bool stream_waits; /* staging_wait() comes next, with the same stream */
	void *context;     /* for passed() and viewed() */
	uint32_t fine;     /* not 0: its bitmap is wanted, too */
};
int staging_post(struct staging *staging, const struct staging_post *what, struct staging_op **out,
                 char *why);

/* Will viewed() be called? *lacks: it was wanted, and there is no memory for it. */
bool staging_viewed(const struct staging_op *op, bool *lacks);

/* False: staging_wait() would return -EAGAIN. */
bool staging_can_wait(const struct staging *staging);

/* The stream goes no further before the result is there. -EAGAIN: it cannot be made to; -EIO. */
int staging_wait(struct staging_op *op, void *stream, char *why);

struct staging_bytes {
	uint64_t out, in; /* that crossed the bus */
};

/* After passed(): what it cost; and it is not used any more. */
struct staging_bytes staging_bytes(const struct staging_op *op);
void staging_free(struct staging_op *op);

/* ---- the communicator's thread ---- */

extern const struct access staging_access;

/*
 * staging_finish - the engine has called done(), or would not take the operation: passed() follows
 * when the GPU has nothing more to do for it. `failed`: its result is of no use.
 */
void staging_finish(struct staging_op *op, bool failed);

/* Takes back what the GPU is done with. True: there was something. */
bool staging_turn(struct staging *staging);

/*
 * staging_check - is the GPU still well? To be called now and then: a failure wakes nobody. False:
 * no more operation comes to an end but by staging_finish(), and staging_error() has the line.
 */
bool staging_check(struct staging *staging);
const char *staging_error(const struct staging *staging);

bool staging_idle(const struct staging *staging); /* no operation is under way */

#endif /* CLIENT_STAGING_H */
