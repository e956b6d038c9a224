/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * staging.h - operations whose tensors are in the memory of one GPU
 *
 * When the GPU reaches the operation's mark in the caller's stream, the tensor is scanned once, and
 * announced from the resulting bits. Its data stays on the GPU until the plans arrive. Then frame f
 * of a channel goes to place f modulo the length of a ring of pinned memory. There are two rings, one
 * for each direction, at least as long as the channel's window. The aggregator places frames in its
 * slots in the same way. So all workers use their memory in the same order, whatever the order of
 * their operations, and no worker waits for memory that another worker's order holds. Memory is
 * reserved when the GPU is opened.
 *
 * This code uses the GPU only through the table in kernels/gpu.h, and neither sockets nor time. The
 * GPU signals nothing by itself, so the caller must poll with staging_turn().
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
	/* Its window is a power of two. Its segments_ahead is reduced if plans take too much memory. */
	struct session_shape shape;
	uint64_t pinned_bytes; /* The intended size. The window may need more. */
	uint64_t pinned_max;   /* The limit, or 0 for none. */
	/* staging_turn() calls it when an operation is over. `there` means that the result is valid. */
	void (*passed)(void *op_context, bool there);
	/* Called before that for each part if `fine` is set. `bits` is NULL without memory for it. */
	void (*viewed)(void *op_context, const struct geometry_part *part, const uint64_t *bits);
};

/*
 * The GPU's side of an operation, embedded in the owner's struct. It is all zero for tensors that are not on a GPU. To
 * begin an operation, the owner fills the first part, puts staging_access and this into a task, and gives the task to
 * the engine.
 */
struct staged {
	struct staging *staging;
	void *context; /* The argument of passed() and viewed(). */
	uint32_t fine; /* If not 0, viewed() gets a bitmap with a bit per `fine` elements. */
	struct gpu_mark *mark; /* Its start in the caller's stream, until staging_finish(). */

	struct staging_op *op;        /* Set from when the GPU reaches the mark until passed(). */
	uint64_t out_bytes, in_bytes; /* Bytes over the bus from and to the GPU; for passed(). */
};

/* Fails with -EIO or -ENOMEM and a line in `why`. */
int staging_open(const struct staging_config *config, struct staging **out, struct why *why);
void staging_close(struct staging *staging); /* Only when idle. Accepts NULL. */

uint64_t staging_pinned_bytes(const struct staging *staging);

/* Makes later work in `stream` wait for the results of all operations that are over. -EIO. Any thread. */
int staging_follow(struct staging *staging, void *stream, struct why *why);

/* ---- the communicator's thread ---- */

extern const struct access staging_access;

/*
 * Call this when the engine has called done() or refused the operation. `failed` means that the result is invalid.
 * Returns true if passed() will follow, when the GPU has finished its work for the operation.
 */
bool staging_finish(struct staged *staged, bool failed);

/*
 * Polls the GPU and starts the next copies. The engine must run after it. Set `check` now and then to look for GPU
 * failures, which raise no other signal. Returns true if something has happened since the last turn. After a failure of
 * the GPU staging_error() explains it, and operations end only by staging_finish().
 */
bool staging_turn(struct staging *staging, bool check);
const char *staging_error(const struct staging *staging); /* Returns "" if the GPU works. */

enum {
	STAGING_BUSY = 1,  /* Operations are under way. */
	STAGING_WAITS = 2, /* The GPU works: poll staging_turn() and the tasks' ready(). */
	STAGING_FULL = 4,  /* No room for more sums: leave them in the sockets. */
};

/* Returns the flags that apply, ORed together. */
unsigned staging_state(const struct staging *staging);

#endif /* CLIENT_STAGING_H */
