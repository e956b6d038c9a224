/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu.h - a GPU as a communicator uses it: queues, staging memory, the caller's streams
 *
 * Everything that needs CUDA lies in an object of its own, winnow-cuda.so, which the library opens
 * when somebody has a tensor on a GPU. It exports the table below. Whoever uses it sees no type of
 * CUDA's and links none of it.
 *
 * A communicator has four queues on a GPU. What stands in `out`, `in` and `tell` can always run:
 *
 *     gate   waits for what is in callers' streams that go on, and says so
 *     out    finds a segment's blocks and packs them into pinned memory
 *     in     unpacks a segment's sums from there; lets the caller's stream go on
 *     tell   waits for one of the two, and wakes the communicator: so they need not stop for it
 *
 * Functions that can fail return 0, -EINVAL (the caller's mistake) or -EIO (the GPU or its driver),
 * and explain it in `why`, GPU_WHY_BYTES. None waits for the GPU but open(), close() and ..._close().
 * One thread at a time for each gate or slot; the callers' threads for locate(), admit(), open(), the
 * ..._open(), post() and wait(), the communicator's for the others.
 */
#ifndef KERNELS_GPU_H
#define KERNELS_GPU_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bitmap/bitmap.h"
#include "kernels/bitmap_cuda.h"

#define GPU_WHY_BYTES 256
#define GPU_PLUGIN_SYMBOL "winnow_gpu"

struct gpu;
struct gpu_notice;

/*
 * Set once by a thread of the driver's, which then wakes the communicator. What holds it may be
 * closed before that, also by a GPU that has failed: from then on it is left alone.
 */
struct gpu_signal {
	struct gpu_notice *notice;
	atomic_bool set;
};

/* An operation in the caller's stream. */
struct gpu_gate {
	struct gpu *gpu;
	struct gpu_signal open;   /* what was in the stream before it is done */
	struct gpu_signal passed; /* all that finish() came after is done */
	uint32_t turn;            /* streams wait for *word to get here; it only grows */
	uint32_t *word;           /* pinned */
	void *mark;               /* event: a place in one of the queues */
	void *after;              /* event: the caller's stream no longer looks at *word */
	bool waits;               /* a stream may be waiting; with `next` under the watch's lock */
	struct gpu_gate *next;
};

struct gpu_slot_size {
	uint64_t bytes;      /* of the blocks of a segment, all shards */
	uint64_t blocks;     /* of a segment, all shards */
	uint32_t plan_count; /* shards */
};

/* The union of a segment of one shard: its bits, then ranks[words + 1], as the kernels want them. */
#define GPU_PLAN_WORDS 64
#define GPU_PLAN_BYTES (GPU_PLAN_WORDS * 8 + (GPU_PLAN_WORDS + 1) * 4 + 4)

/* Staging memory for one segment of all shards. What the host looks at is pinned. */
struct gpu_slot {
	struct gpu *gpu;
	struct gpu_signal scanned; /* magnitude, bits and packed are there */
	struct gpu_signal emptied; /* plans and sums have been used */
	uint64_t *magnitude;       /* see struct bitmap_cuda; bits follow it */
	uint64_t *bits;
	uint8_t *packed; /* the segment's own blocks, in tensor order */
	uint8_t *sums;   /* the host's to fill, and: */
	uint8_t *plans;  /* [plan_count] of GPU_PLAN_BYTES */
	void *pinned;    /* all of the above */
	void *device;    /* the same for the kernels; and what only they use: */
	uint32_t *ranks;
	void *scratch;
	size_t plans_at;
	void *mark; /* event */
};

/* The bitmap of a whole tensor: for traces, not for the protocol. */
struct gpu_view {
	struct gpu *gpu;
	struct gpu_signal done; /* bits are there */
	uint64_t *bits;         /* pinned */
	void *device;           /* the same for the kernel */
	void *mark;             /* event */
};

/* One segment of one shard, on its way into the tensor. */
struct gpu_unpack {
	struct bitmap_tensor shape; /* the whole one */
	struct bitmap_cuda_deal deal;
	struct bitmap_cuda_form form;
	uint32_t plan;       /* which of the slot's */
	const uint8_t *sums; /* in the slot: the union's blocks in order */
	bool clear_others;   /* blocks that are not in the union become zero */
	void *recv;          /* the tensor */
};

#define GPU_STUCK_US 8000000

#define GPU_TELLS 1 /* see busy() */
#define GPU_MOVES 2

struct gpu_hooks {
	void (*wake)(void *context);
	void (*failing)(void *context, const char *why); /* before streams go on */
	void *context;
};

struct gpu_calls {
	const char *version; /* WINNOW_VERSION that it was built with */
	const char *about;   /* "CUDA 13.0" */

	/* Which GPU does this memory belong to? NULL: which does this thread use? -ENODEV: there is none. */
	int (*locate)(const void *memory, int *device, char *why);

	/* May work be put into this stream of the GPU's? -EINVAL: it is being captured into a graph. */
	int (*admit)(int device, void *stream, char *why);

	/*
	 * wake(context) is called by threads of the driver's. failing(context, why): by a thread
	 * of its own when the communicator's has been inside CUDA for GPU_STUCK_US. Some calls of
	 * other threads have all others wait until streams have got on; if these wait for us, nobody
	 * ever would. So they are let go, and from then on everything fails.
	 */
	int (*open)(int device, const struct gpu_hooks *hooks, struct gpu **out, char *why);
	void (*close)(struct gpu *gpu); /* after its gates and slots */

	/* *gate, *slot and *view begin as zeros. */
	int (*gate_open)(struct gpu *gpu, struct gpu_gate *gate, char *why);
	void (*gate_close)(struct gpu_gate *gate);
	int (*slot_open)(struct gpu *gpu, const struct gpu_slot_size *size, struct gpu_slot *slot,
	                 char *why);
	void (*slot_close)(struct gpu_slot *slot);
	int (*view_open)(struct gpu *gpu, uint64_t words, struct gpu_view *view, char *why);
	void (*view_close)(struct gpu_view *view);

	/*
	 * post - gate->open is set when what is now in the caller's stream is done. `waits`: wait()
	 * comes next, so the stream itself may say so. `gate` would say it after what other streams have
	 * yet to do, which may be to wait for another worker, and that one for this operation.
	 */
	int (*post)(struct gpu_gate *gate, void *stream, bool waits, char *why);

	/* can_wait - can streams be made to wait here, without getting into the way of the library's own? */
	bool (*can_wait)(const struct gpu *gpu);

	/* wait - the caller's stream goes no further before finish() or release(). -EAGAIN: it cannot. */
	int (*wait)(struct gpu_gate *gate, void *stream, char *why);
	void (*release)(struct gpu_gate *gate);

	/* scan - bits and packed blocks of `tensor`, then slot->scanned. With or without the magnitude. */
	int (*scan)(struct gpu_slot *slot, const struct bitmap_tensor *tensor, bool magnitude,
	            char *why);
	/* view - bits of all of `tensor`, before what is scanned after it, then view->done. */
	int (*view)(struct gpu_view *view, const struct bitmap_tensor *tensor, char *why);
	int (*unpack)(struct gpu_slot *slot, const struct gpu_unpack *what, char *why);
	int (*empty)(struct gpu_slot *slot, char *why); /* slot->emptied after the unpacks so far */

	/* finish - the stream goes on, and gate->passed, after the unpacks so far; `all`: and the scans. */
	int (*finish)(struct gpu_gate *gate, bool all, char *why);

	/* GPU_MOVES: kernels may read and write tensors; GPU_TELLS: `gate` or `tell` have something to do;
	 * 0: nothing has; -EIO: the GPU has failed. */
	int (*busy)(struct gpu *gpu, char *why);
};

#endif /* KERNELS_GPU_H */
