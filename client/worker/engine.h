/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * engine.h - operations on all channels of a job: queue, scan, announce, finish
 *
 * The engine divides each operation among the job's channels, scans it segment by segment while
 * earlier segments are on their way, and calls `done` when every channel has finished. It is pure, as
 * are the streams that it owns: the caller passes packets and the time, and sends the packets that it
 * returns. One thread at a time. engine_work() is the only call that may take milliseconds.
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

/* Only engine.c writes it, except that session.c sets eager_count. */
struct engine {
	struct bitmap_pool *pool;
	uint32_t stream_count;
	uint32_t eager_count; /* Small operations use only this many streams, from the first on. */
	uint32_t op_slots;
	uint32_t payload;
	uint32_t rank, world;
	int failed;               /* The status of engine_fail(), or 0. */
	uint64_t progress_us;     /* When the last PLAN or RESULT with news came. */
	struct task_list waiting; /* Operations that wait for a slot. */
	struct task_list active;  /* Operations in slots, oldest first. */
	uint32_t open;            /* The number of operations in both lists. */
	uint64_t *found;      /* [stream_count * SEGMENT_WORDS] bits of a scan, in tensor order. */
	uint64_t *shard_bits; /* [stream_count * SEGMENT_WORDS] the same bits by shard. */
	struct stream *streams[];
};

/* streams[i] configures the stream of shard i. `pool` must outlive the engine. Fails with -EINVAL or -ENOMEM. */
int engine_open(const struct stream_config *streams, uint32_t stream_count,
                struct bitmap_pool *pool, struct engine **out);
void engine_close(struct engine *engine); /* Does not call `done`; engine_fail() does. */

/*
 * Queues an operation. Returns 0, WINNOW_ERR_INVALID for impossible parameters, WINNOW_ERR_BUSY if an operation with
 * this tag is under way, WINNOW_ERR_MEMORY, or the status of engine_fail(). Keeps `task` until engine_receive() or
 * engine_fail() calls task->done.
 */
int engine_submit(struct engine *engine, struct allreduce *task, uint64_t now_us);

/* Ends every operation with `status` (enum winnow_result) and accepts no more. */
void engine_fail(struct engine *engine, int status);

/*
 * Takes a datagram of stream `index`, whose header packet_parse() has accepted. Returns NULL, or an operation that has
 * become impossible: its status is the reason, and the caller must end all with engine_fail().
 */
const struct allreduce *engine_receive(struct engine *engine, uint32_t index,
                                       const struct packet *packet, uint64_t now_us);

/* Takes the next packet of streams [first, end). Returns false if there is none now. */
bool engine_pull(struct engine *engine, uint32_t first, uint32_t end, uint64_t now_us,
                 struct packet_out *out);

/* Scans and announces a segment. Returns false if there is none to scan. */
bool engine_work(struct engine *engine, uint64_t now_us);

uint64_t engine_deadline(const struct engine *engine);

/*
 * How many datagrams may gather before they are read: those of all streams, or 0 while any has something under way that
 * must not wait. See stream_gathers().
 */
uint32_t engine_gathers(const struct engine *engine);

/* Returns whether no operation is queued or under way, and everything is acknowledged. */
bool engine_quiet(const struct engine *engine);

/* The earliest time since when one of streams [first, end) has waited without news: see stream_waits_us(). */
uint64_t engine_waits_us(const struct engine *engine, uint32_t first, uint32_t end);

/* The oldest operation's tag, or 0 if there is none. */
uint64_t engine_tag(const struct engine *engine);

#endif /* CLIENT_ENGINE_H */
