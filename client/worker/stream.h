/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stream.h - the worker's half of the protocol, for one channel
 *
 * A stream announces segments, takes plans, pushes its blocks within credit and window,
 * stores results where they belong and asks again for what was lost. Pure: packets and
 * time in, packets out; all memory is reserved in stream_open(). The engine feeds it;
 * nobody else calls it. One thread at a time; nothing blocks.
 */
#ifndef CLIENT_STREAM_H
#define CLIENT_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/control/message.h"
#include "bitmap/bitmap.h"
#include "client/worker/allreduce.h"
#include "ebpf/packet.h"

struct stream;

struct stream_config {
	uint16_t channel;     /* the aggregator's number of it */
	uint16_t shard;       /* this channel's index in the job, over all aggregators */
	uint16_t shard_count; /* channels of the job */
	uint16_t rank;
	uint16_t world;
	uint32_t payload;
	uint32_t window;       /* frames */
	uint32_t window_start; /* frames to have under way before anything is known of the path */
	uint32_t op_slots;
	uint32_t segments_ahead;
	uint32_t first_frame;
	uint64_t token;       /* our packets carry it */
	uint64_t group_token; /* packets to the group carry it */
	const struct bitmap_engine *engine;
	bool private_network; /* see struct pace_config */
	bool passes_on; /* see stream_hold(); access->store() is also told of frames of others, without data */
};

struct stream_stats {
	uint64_t sent, sent_bytes;         /* packets and UDP payload bytes */
	uint64_t received, received_bytes; /* multicast copies included */
	uint64_t pushes, retransmits;      /* PUSHes sent; those of them sent again */
	uint64_t nacks;
	uint64_t lost; /* RESULTs and PLANs asked for again */
	uint64_t drops[WIRE_DROP_COUNT];
};

size_t stream_bytes(const struct stream_config *config); /* of memory that it will take */
int stream_open(const struct stream_config *config, struct stream **out); /* -ENOMEM */
void stream_close(struct stream *stream);

/* May an operation use this slot: is nothing of the last one still unacknowledged? */
bool stream_slot_free(const struct stream *stream, uint32_t slot);

/*
 * stream_begin - `task` uses task->slot on this channel from now on, until its shard is finished:
 * then the stream lowers task->shards_left, and at 0 it calls the engine's finish.
 */
void stream_begin(struct stream *stream, struct allreduce *task);

/*
 * stream_begin_as - the same for one who passes on what others announce: of task->cut it needs segment_count, eager and
 * block_count alone, because `layout` is what they say, and each stream_scan has its cut.
 */
void stream_begin_as(struct stream *stream, struct allreduce *task, uint64_t layout);

/*
 * May segment `number` be announced now? Segments are announced in order. After a "no" the stream
 * sees to it that the answer does not wait for its own acknowledgements.
 */
bool stream_ask_room(struct stream *stream, const struct allreduce *task, uint32_t number);

/* What a scan found of one segment of this shard. */
struct stream_scan {
	const uint64_t *bits; /* [(segment blocks + 63) / 64] */
	int16_t exponent;     /* WIRE_EXPONENT_NONE unless the form is fixed32 */
	bool nonfinite;
	const struct geometry_segment *cut; /* NULL: as task->cut says */
};

void stream_announce(struct stream *stream, struct allreduce *task, uint32_t number,
                     const struct stream_scan *scan, uint64_t now_us);

/*
 * stream_is_busy - is there as much to push, planned or about to be, as goes out in two round
 * trips? Announcements that are sent a second time do not count.
 */
bool stream_is_busy(const struct stream *stream);

/* How many datagrams may gather before they are read: a quarter of the window if the stream is busy, or else 0. */
uint32_t stream_gathers(const struct stream *stream);

/*
 * stream_receive - one packet whose header packet_parse() accepted and whose channel is
 * this one. Returns the task that this packet has finished or failed on this channel,
 * else NULL.
 */
struct allreduce *stream_receive(struct stream *stream, const struct packet *packet,
                                 uint64_t now_us);

/*
 * stream_pull - the next packet to send; false when there is none now. What *out points
 * at stays valid until the next stream_receive(). out->scratch must have room for a payload.
 */
bool stream_pull(struct stream *stream, uint64_t now_us, struct packet_out *out);

/*
 * stream_hold - for one who passes RESULTs on: nothing is acknowledged from `frame` on, because others still lack it, and
 * their paths take no RESULTs from `room` on. It holds the first frame at first.
 */
void stream_hold(struct stream *stream, uint32_t frame, uint32_t room, uint64_t now_us);

/* The plan that begins with this frame. It points into the stream, until the next packet. */
struct stream_plan {
	uint32_t slot, segment, frame_count;
	const uint64_t *united;
	int16_t exponent;
	bool nonfinite;
};
bool stream_plan_at(const struct stream *stream, uint32_t first, struct stream_plan *out);

/* When stream_pull() may have something again if nothing arrives; UINT64_MAX: never. */
uint64_t stream_deadline(const struct stream *stream);

/*
 * Since when something has been under way here without news: an announcement, frames, or
 * acknowledgements of others. UINT64_MAX: nothing is.
 */
uint64_t stream_waits_us(const struct stream *stream);
uint64_t stream_news_us(const struct stream *stream); /* when there last were some */

/*
 * Has every worker acknowledged everything that this one has received, and has every announcement
 * an answer?
 */
bool stream_quiet(const struct stream *stream);

const struct stream_stats *stream_stats(const struct stream *stream);

/* Adds what it has seen of its path, to a sum that begins at 0: round trips are the longest, and the shortest of all. */
void stream_look(const struct stream *stream, struct control_seen *sum);
/* After it has looked at so many: times held are their mean. */
void stream_looked(struct control_seen *sum, uint32_t streams);

/* Frames that may leave in a millisecond. */
uint32_t stream_in_ms(const struct stream *stream);

/* stream_base - every worker has the frames before it. */
uint32_t stream_base(const struct stream *stream);

/* stream_edge - ack, with the upper half that only seals carry. */
uint64_t stream_edge(const struct stream *stream);

#endif /* CLIENT_STREAM_H */
