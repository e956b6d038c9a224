/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * engine.h - operations on all channels of a job: queue, scan, announce, finish
 *
 * The engine cuts each operation over the job's channels, scans it segment by segment while earlier
 * segments stream, and calls `done` when every channel has finished. Pure like the streams that it
 * owns: the caller brings packets and time, and sends what the engine returns. One thread at a
 * time; engine_work() is the only call that may take milliseconds.
 */
#ifndef CLIENT_ENGINE_H
#define CLIENT_ENGINE_H

#include <sys/queue.h>

#include "bitmap/pool.h"
#include "client/worker/allreduce.h"
#include "client/worker/stream.h"

/* Operations in the order in which they were submitted. */
STAILQ_HEAD(task_list, allreduce);

static inline bool list_has_tag(const struct task_list *list, uint64_t tag)
{
	const struct allreduce *t;

	STAILQ_FOREACH(t, list, next)
		if (t->tag == tag)
			return true;
	return false;
}

/* engine.c alone writes it, but for eager_count; session.c reads it. */
struct engine {
	struct bitmap_pool *pool;
	uint32_t stream_count;
	uint32_t eager_count; /* small operations use the first of these: all, or session.c says */
	uint32_t op_slots;
	uint32_t payload;
	uint32_t rank, world;
	int failed; /* status of engine_fail(), or 0 */
	uint64_t progress_us;
	struct task_list waiting; /* for a slot */
	struct task_list active;  /* in slots, oldest first */
	uint32_t open;            /* in both */
	uint64_t *found;      /* [stream_count * SEGMENT_WORDS] bits of one scan, in tensor order */
	uint64_t *shard_bits; /* [stream_count * SEGMENT_WORDS] the same, by shard */
	struct stream *streams[];
};

/* streams: [stream_count], shard i at index i; `pool` scans, and outlives the engine. -EINVAL, -ENOMEM. */
int engine_open(const struct stream_config *streams, uint32_t stream_count,
                struct bitmap_pool *pool, struct engine **out);
void engine_close(struct engine *engine); /* does not call `done`: see engine_fail() */

/*
 * engine_submit - queue an operation. Returns WINNOW_ERR_INVALID: impossible parameters;
 * WINNOW_ERR_BUSY: an operation with this tag is under way; or what engine_fail() was told. Keeps
 * `task` until it calls task->done, which it does from engine_receive() or engine_fail().
 */
int engine_submit(struct engine *engine, struct allreduce *task, uint64_t now_us);

/* engine_fail - end every operation with `status` (enum winnow_result) and accept no more. */
void engine_fail(struct engine *engine, int status);

/*
 * One datagram of stream `index`'s channel. packet_parse() has accepted its header. Returns an operation that
 * cannot be carried out, whose status says why: engine_fail() must end all. Otherwise NULL.
 */
const struct allreduce *engine_receive(struct engine *engine, uint32_t index,
                                       const struct packet *packet, uint64_t now_us);

/* The next packet that streams [first, end) have to send; false when there is none now. */
bool engine_pull(struct engine *engine, uint32_t first, uint32_t end, uint64_t now_us,
                 struct packet_out *out);

/* engine_work - scan and announce one segment; false when there is nothing to scan. */
bool engine_work(struct engine *engine, uint64_t now_us);

uint64_t engine_deadline(const struct engine *engine);

/* Nothing is queued or under way, and all have acknowledged everything. */
bool engine_quiet(const struct engine *engine);

/*
 * Since when streams [first, end) have waited without news; the longest wait of them: see
 * stream_waits_us().
 */
uint64_t engine_waits_us(const struct engine *engine, uint32_t first, uint32_t end);

/* The oldest operation's tag; 0: there is none. */
uint64_t engine_tag(const struct engine *engine);

#endif /* CLIENT_ENGINE_H */
