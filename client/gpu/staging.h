/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * staging.h - operations whose tensors are in the memory of one GPU
 *
 * When the GPU has come to the point of the caller's stream where the operation began, the tensor is
 * scanned once, and announced from the resulting bits. Its data stays on the GPU until the plans
 * arrive. Then frame f of a channel goes to place f modulo the length of a ring of pinned memory;
 * there are two rings, one for each direction, at least as long as the channel's window. The
 * aggregator places frames in its slots in the same way. So all workers use their memory in the same
 * order, whatever the order of their operations, and no worker waits for memory that another
 * worker's order holds. Memory is reserved when the GPU is opened.
 *
 * This code uses the GPU only through the table in kernels/gpu.h, and neither sockets nor time. The
 * GPU wakes nobody, so the caller must poll with staging_turn().
 */
#ifndef CLIENT_STAGING_H
#define CLIENT_STAGING_H

#include "client/worker/allreduce.h"
#include "client/worker/session.h"
#include "kernels/gpu.h"

struct staging;
struct staging_op;

struct staging_config {
	const struct gpu_calls *calls;
	int device;
	uint32_t world;
	/* The window is a power of two. Fewer segments go ahead if plans take too much memory. */
	struct session_shape shape;
	uint64_t pinned_bytes; /* A rough size: the window may need more. */
	uint64_t pinned_max;   /* The limit; 0: none. */
	/* staging_turn() calls it when an operation is over. `there`: the tensor has its result. */
	void (*passed)(void *op_context, bool there);
	/* Called before that, for each part, if a bitmap was wanted. NULL: there is no memory for it. */
	void (*viewed)(void *op_context, const struct geometry_part *part, const uint64_t *bits);
};

/*
 * An operation's part on the GPU, a member of its owner's. All zero: it has none. Whoever begins one
 * fills the first part, puts staging_access and this into a task and gives that to the engine.
 */
struct staged {
	struct staging *staging;
	void *context;         /* for passed() and viewed() */
	uint32_t fine;         /* not 0: a bitmap is wanted, with a bit for each `fine` elements */
	struct gpu_mark *mark; /* its start in the caller's stream; until staging_finish() */

	struct staging_op *op;        /* from when the GPU has come there until passed() */
	uint64_t out_bytes, in_bytes; /* over the bus, in passed() */
};

/* -EIO, -ENOMEM; one line in `why`, here and below. */
int staging_open(const struct staging_config *config, struct staging **out, struct why *why);
void staging_close(struct staging *staging); /* when idle; NULL is fine */

uint64_t staging_pinned_bytes(const struct staging *staging);

/* What comes next in `stream` comes after the results of all operations that are over. -EIO. Any thread. */
int staging_follow(struct staging *staging, void *stream, struct why *why);

/* ---- the communicator's thread ---- */

extern const struct access staging_access;

/*
 * staging_finish - call this when the engine has called done() or refused the operation. passed()
 * follows when the GPU has finished its work for the operation; false: it has none. `failed`: the
 * result is invalid.
 */
bool staging_finish(struct staged *staged, bool failed);

/*
 * Poll the GPU and start the next copies; the engine works after it. `check`: check the GPU for
 * failures, now and then, because a failure raises no other signal. True: something has happened, also
 * since the last turn. When the GPU has failed, staging_error() explains it, and operations end only by
 * staging_finish().
 */
bool staging_turn(struct staging *staging, bool check);
const char *staging_error(const struct staging *staging); /* "": no error */

enum {
	STAGING_BUSY = 1, /* operations are under way */
	/* staging_turn(), or a task's ready(), may find that the GPU has finished something, or failed */
	STAGING_WAITS = 2,
	STAGING_FULL = 4, /* no room for more sums: leave them in the sockets meanwhile */
};

/* Which of these are so, ORed together. */
unsigned staging_state(const struct staging *staging);

#endif /* CLIENT_STAGING_H */
