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

#include "bitmap/pool.h"
#include "client/worker/allreduce.h"
#include "client/worker/stream.h"

struct engine;

/* streams: [stream_count], shard i at index i; `pool` scans, and outlives the engine. -EINVAL, -ENOMEM. */
int engine_open(const struct stream_config *streams, uint32_t stream_count,
                struct bitmap_pool *pool, struct engine **out);
/* Small operations use the first `count` streams, those of the first aggregator (MEMBERS.md); all, if it is not called. */
void engine_eager(struct engine *engine, uint32_t count);
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

/* When operations last made progress, or began to wait; UINT64_MAX when there are none. */
uint64_t engine_progress_us(const struct engine *engine);

/*
 * Since when streams [first, end) have waited without news; the longest wait of them: see
 * stream_waits_us().
 */
uint64_t engine_waits_us(const struct engine *engine, uint32_t first, uint32_t end);

/* How many operations are queued or under way, and the oldest one's tag. */
uint32_t engine_doing(const struct engine *engine, uint64_t *tag);

uint32_t engine_op_slots(const struct engine *engine);
const struct stream *engine_stream(const struct engine *engine, uint32_t index);

#endif /* CLIENT_ENGINE_H */
