/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * staging.h - operations whose tensors are in the memory of one GPU
 *
 * A tensor is scanned once, in the caller's stream. What its bits say is announced, and nothing is
 * carried out of the GPU before the plans are there: then frame f of a channel lies at f modulo the
 * length of two rings of pinned memory, one for each way, which are longer than the channel's window, as
 * the aggregator's own slots are. So all workers use their memory in the same order, whatever the order of
 * their operations, and none waits for another's. Memory is reserved when the GPU is opened.
 *
 * Knows the GPU by the table in kernels/gpu.h only, and neither sockets nor time: its caller asks
 * staging_turn() what has happened, since the GPU says so by words in pinned memory alone.
 */
#ifndef CLIENT_STAGING_H
#define CLIENT_STAGING_H

#include "client/worker/allreduce.h"
#include "kernels/gpu.h"

struct staging;
struct staging_op;

struct staging_config {
	const struct gpu_calls *calls;
	int device;
	uint32_t world;
	uint32_t shard_count;  /* channels of the job */
	uint32_t payload;      /* of a datagram */
	uint32_t window;       /* frames: the largest of all channels', a power of two */
	uint32_t op_slots;     /* operations that the engine has under way */
	uint64_t pinned_bytes; /* about; more where the window needs more */
	/* staging_turn(): an operation is over. `there`: its result is in the tensor. */
	void (*passed)(void *op_context, bool there);
	/* Before that, if a bitmap was wanted: what is non-zero, a bit for `fine` elements. */
	void (*viewed)(void *op_context, uint32_t fine, const uint64_t *bits);
};

/* -EIO, -ENOMEM; one line in `why`, here and below. */
int staging_open(const struct staging_config *config, struct staging **out, struct why *why);
void staging_close(struct staging *staging); /* when idle; NULL is fine */

uint64_t staging_pinned_bytes(const struct staging *staging);

/* ---- callers' threads ---- */

/*
 * staging_post - an operation that begins when what is now in `stream` is done. The caller puts
 * staging_access and *out into `task` and gives that to the engine. -EAGAIN: op_slots of them are
 * under way; -EINVAL: of the caller's doing; -EIO.
 */
struct staging_post {
	const struct allreduce *task; /* its first part */
	void *stream;
	void *context; /* for passed() and viewed() */
	uint32_t fine; /* not 0: its bitmap is wanted, with a bit for so many elements */
};
int staging_post(struct staging *staging, const struct staging_post *what, struct staging_op **out,
                 struct why *why);

/* What comes next in `stream` comes after the results of all operations that are over. -EIO. */
int staging_follow(struct staging *staging, void *stream, struct why *why);

/* ---- the communicator's thread ---- */

extern const struct access staging_access;

/* Will viewed() be called? *lacks: it was wanted, and there is no memory for it. */
bool staging_viewed(const struct staging_op *op, bool *lacks);

/*
 * staging_finish - the engine has called done(), or would not take the operation: passed() follows
 * when the GPU has nothing more to do for it. `failed`: its result is of no use.
 */
void staging_finish(struct staging_op *op, bool failed);

struct staging_bytes {
	uint64_t out, in; /* that crossed the bus */
};
struct staging_bytes staging_bytes(const struct staging_op *op); /* in passed() */

/* Asks the GPU for what can be done next. True: something has happened. */
bool staging_turn(struct staging *staging);

/* What the GPU has been asked for and has not done. */
enum staging_work { STAGING_IDLE, STAGING_SCANS, STAGING_COPIES };
enum staging_work staging_work(const struct staging *staging);

/* Sums would have no room: what comes now should be left where it is until the GPU has caught up. */
bool staging_full(const struct staging *staging);

/*
 * staging_check - is the GPU still well? To be called now and then: a failure tells nobody. False:
 * no operation comes to an end but by staging_finish(), and staging_error() has the line.
 */
bool staging_check(struct staging *staging);
const char *staging_error(const struct staging *staging); /* "": none */

bool staging_idle(const struct staging *staging); /* no operation is under way */

#endif /* CLIENT_STAGING_H */
