/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * channel_state.h - what the channel_*.c files share; private to them
 *
 * channel_receive.c        memory, members and their acknowledgements, dispatch
 * channel_plan.c   operations: announcements, agreement, plans
 * channel_slot.c   frames: opening slots, taking PUSHes
 * channel_send.c   what waits to be sent, and the packets made of it
 * channel_watch.c  who waits for whom, and for how long
 * channel_fast.c   slots that the kernel adds to as well
 * channel_sum.c    adding blocks, finishing sums
 * channel_state.c  where things are
 *
 * Each calls only what stands below it.
 *
 * Frames are numbered through the life of the channel, modulo 2^32:
 *
 *     base <= opened <= planned,  base < credit <= base + window
 *
 * base: every worker has everything before it. Frames from base to `opened` have a slot
 * that accepts PUSHes, but hollow ones, which carry no data, need none and are passed over
 * whatever the window. Frames before `planned` belong to a planned segment. credit: as far as the
 * slots reach, and the paths to all workers take RESULTs; it never goes back, and is never at base, where
 * nobody would ask for more.
 */
#ifndef AGGREGATOR_CHANNEL_STATE_H
#define AGGREGATOR_CHANNEL_STATE_H

#include "aggregator/channel/channel.h"
#include "ebpf/geometry.h"

/* From base to planned: serial numbers of 32 bits have an order within 2^31. */
#define FRAMES_AHEAD_MAX (1u << 30)
#define REPLIES_MAX 1024 /* So many answers to single workers may wait; a power of two. */

/*
 * What goes to a worker again, and what it is asked to send again, is paid for with bytes: few cannot draw many for
 * ever. 10.5: "It gains twice payload for each frame that the worker newly acknowledges", and some by each datagram.
 */
#define EARNED_BY_ACK 2
#define EARNED_BY_BYTE 4
#define LISTED_SHARE 4 /* 10.5: "a PUSH that it lists a quarter of START's payload" */

struct member {
	uint64_t token;
	uint32_t earned;      /* The bytes that may go again: see repeats_spend(). */
	uint64_t progress_us; /* It last sent something new at this time. */
	struct channel_waits waits;
	uint32_t marked; /* The datagrams of it that came with congestion marked. */
	uint32_t ack;
	uint32_t room; /* Its path takes the RESULTs of the frames before this one. */
};

/* What worker w's operation slot s is about: binds[w * op_slots + s]. */
struct bind {
	uint32_t generation; /* 0: the slot was never used. */
	uint32_t op;         /* It is an index into ops. */
	uint64_t op_serial;  /* The bind lives only while this is that operation's serial. */
};

struct operation {
	bool used;
	uint64_t serial;       /* No other operation ever has it. */
	struct announce asked; /* The first worker announced it so. */
	uint16_t asked_by;
	uint32_t segments_done; /* Segments that are planned and that all have acknowledged. */
	uint32_t bound_count;
	uint64_t *bound;     /* [rank words]; these workers have announced any of it. */
	uint64_t started_us; /* Its first announcement came at this time. */
	uint64_t bound_us;   /* The first one of the last worker so far came at this time. */
	uint8_t *eager;      /* [WIRE_EAGER_SEGMENTS][eager_bytes()], sums of an eager operation */
};

enum segment_state { SEGMENT_IDLE, SEGMENT_GATHERING, SEGMENT_PLANNED };

/* segments[op * segments_ahead + number % segments_ahead] */
struct segment {
	enum segment_state state;
	uint32_t number; /* Of one that is idle, it is the next that may live here. */
	uint32_t op;
	uint32_t block_count;
	struct geometry_frames frames;
	uint16_t receiver; /* This rank gets the RESULTs' data, or WIRE_EVERYONE does. */
	uint32_t joined_count;
	uint64_t *joined; /* [rank words] */
	uint64_t *bits;   /* [worker_count][segment_words] */
	uint64_t *united; /* [segment_words] */
	uint32_t union_count;
	int16_t exponent;
	bool nonfinite;
	uint64_t since_us; /* Its first announcement came at this time. */

	/* Since it was planned. */
	uint32_t first;
	uint32_t frame_count; /* It is at least 1: see `hollow`. */
	bool hollow;          /* Its one frame carries no data: the PLAN is all there is. */
	uint8_t plan_flags;
	uint8_t *set; /* [segment_words * 8], the union as PLANs have it */
	uint32_t set_bytes;
	uint32_t eager_bytes; /* The bytes of sums that follow an eager PLAN. */
};

enum slot_state { SLOT_EMPTY, SLOT_OPEN, SLOT_DONE };

/* slots[frame % window] */
struct slot {
	uint32_t frame;
	uint8_t state;
	uint16_t expected; /* The number of workers that own a block of it. */
	uint16_t arrived;
	uint32_t segment;
	uint32_t first, end;    /* Its blocks lie between these two places of the segment. */
	uint32_t block_count;   /* The union has so many blocks there. */
	uint32_t part;          /* A block larger than a frame goes in parts; this is which. */
	uint32_t unit_bytes;    /* One block, or this part, has so many bytes on the wire. */
	uint16_t receiver;      /* This rank gets the RESULT's data, or WIRE_EVERYONE does. */
	struct fast_slot *fast; /* Its contributors and sums are there, if it is not NULL. */
	bool queued;            /* Its RESULT has been put into `results`. */
	bool sent;              /* Its RESULT has gone out to everyone. */
	uint16_t sequence;      /* The RESULT went out with this number. */
	uint64_t *came;         /* [rank words] */
	uint8_t *data;          /* [2 * payload], sums; when it is done, the RESULT's data. */
};

enum reply_kind { REPLY_RESULT, REPLY_PLAN, REPLY_REFUSAL, REPLY_STATUS };

struct reply {
	enum reply_kind kind;
	uint16_t rank;
	uint32_t number; /* It is a frame, or a plan's segment index. */
	union {
		struct status status; /* A REPLY_STATUS has it. */
		struct {
			uint64_t tag;
			struct wire_mismatch mismatch;
		} refusal; /* A REPLY_REFUSAL has it. */
	};
	uint64_t came_us; /* The STATUS that it answers came at this time. */
};

struct channel {
	void *memory; /* All its memory is here, and this struct lies in it. */
	struct channel_config config;
	uint32_t rank_words;
	uint32_t segment_words; /* The bitmap of the longest segment has so many words. */
	struct member *members;
	struct bind *binds;
	struct operation *ops;
	struct segment *segments;
	struct slot *slots;
	uint64_t op_serial;
	uint32_t ops_used;

	uint32_t base, opened, planned;
	uint32_t at_base;     /* The number of workers whose ack is base. */
	uint64_t alone_us;    /* at_base became 1 at this time. */
	uint32_t turns;       /* base has passed 2^32 so often. */
	uint32_t credit;      /* Frames before it may be pushed. */
	uint64_t now_us;      /* The packet in hand came at this time. */
	uint64_t progress_us; /* base moved, or after a pause a frame was planned, at this time. */

	struct {
		uint32_t credit, base;
	} told; /* All have been told these. */

	/* Planned segments are in frame order at places[head % segment_count .. tail). */
	struct {
		uint32_t *places;
		uint32_t head, tail;
	} order;
	uint32_t segment_count; /* The table has so many places, a power of two. */
	struct {
		uint32_t segment; /* `opened` lies in the segment at this place of order. */
		uint32_t rank;    /* Union blocks of that segment that have a slot. */
		uint32_t bit;     /* The search for its next union block begins here. */
	} open;

	uint16_t sequence; /* The last RESULT sent to everyone had it. */

	/* Waiting to be sent. */
	uint32_t plans_sent; /* Plans of the segments before this place of order have been sent. */
	struct {
		uint32_t *frames; /* A ring of window frames that are complete. */
		uint32_t head, tail;
	} results;
	struct {
		struct reply *list; /* A ring of REPLIES_MAX. */
		uint32_t head, tail;
	} replies;

	struct channel_stats stats;
	struct channel_stats with_fast; /* channel_stats() returned it last. */
};

/* It has one segment, and no frames. */
static inline bool op_is_eager(const struct operation *op)
{
	return (op->asked.flags & WIRE_EAGER) != 0;
}

/* Of the sums of a segment, in which elements of 8 bytes are where they may be. */
static inline size_t eager_bytes(uint32_t payload)
{
	return (payload + 7) / 8 * 8;
}

/* Of an operation that is. */
static inline uint8_t *eager_sums(const struct channel *channel, const struct segment *segment)
{
	const uint32_t place = segment->number % WIRE_EAGER_SEGMENTS;

	return channel->ops[segment->op].eager + place * eager_bytes(channel->config.payload);
}

/* Blocks that are being added up. */
struct sum {
	const struct bitmap_engine *engine;
	enum dtype dtype; /* What comes is of this type; sums of f16 and bf16 are f32. */
	enum reduction reduction;
	uint32_t unit_elems; /* A block, or the part of one that a frame has, is so long. */
	uint32_t block_count;
	uint8_t *sums; /* [block_count] units */
};

static inline uint64_t *segment_bits(const struct channel *channel, const struct segment *segment,
                                     uint32_t rank)
{
	return segment->bits + (size_t)rank * channel->segment_words;
}

static inline void count_drop(struct channel *channel, enum wire_drop drop)
{
	channel->stats.drops[drop]++;
}

/* channel_plan.c */
void plan_reset(struct channel *channel, struct operation *op); /* at open */
void plan_announce(struct channel *channel, const struct packet *packet, uint64_t now_us);
void plan_release(struct channel *channel, uint64_t now_us); /* segments that lie before base */

/* channel_watch.c */
void watch_bound(struct channel *channel, struct operation *op, uint32_t rank, uint64_t now_us);
void watch_acked(struct channel *channel, uint32_t rank, uint64_t now_us);
void watch_finished(struct channel *channel, const struct operation *op, uint64_t now_us);

/* channel_slot.c */
void slot_open_more(struct channel *channel); /* after base or planned moved */
void slot_push(struct channel *channel, const struct packet *packet, uint64_t now_us);
void slot_status(struct channel *channel, const struct packet *packet);

/*
 * channel_send.c. Replies and results that find no room are dropped and counted: workers ask for
 * them again.
 */
bool reply_room(const struct channel *channel);
void reply_put(struct channel *channel, const struct reply *reply);
void repeats_earn(struct channel *channel, uint32_t rank, uint64_t bytes);
bool repeats_spend(struct channel *channel, uint32_t rank, uint32_t bytes); /* false: too many */
void reply_put_plan(struct channel *channel, const struct segment *segment, uint16_t rank);
void result_put(struct channel *channel, struct slot *slot); /* a RESULT for everyone */

/* channel_fast.c; most do nothing where the channel, or the slot, is not shared */
void fast_start(struct channel *channel);
void fast_open(struct channel *channel, struct slot *slot);
void fast_close(struct channel *channel, struct slot *slot);
void fast_look(struct slot *slot); /* take over what the kernel has done to it */
void fast_sent(struct slot *slot);
bool fast_unsent(struct slot *slot);
uint8_t *fast_data(const struct slot *slot); /* where the sums are */
void fast_publish(struct channel *channel);  /* after base, credit, planned or slots changed */
uint32_t fast_ack(const struct channel *channel, uint32_t rank);
uint32_t fast_room(const struct channel *channel, uint32_t rank);
uint32_t fast_marked(const struct channel *channel, uint32_t rank); /* PUSHes not seen here */
uint16_t fast_sequence(struct channel *channel, bool next);
void fast_advertised(struct channel *channel);
void fast_stats(const struct channel *channel, struct channel_stats *stats);

enum fast_push {
	FAST_PUSH_AGAIN,     /* The slot had it already. */
	FAST_PUSH_UNSENT,    /* The slot had it; the frame is complete, and nobody has been told. */
	FAST_PUSH_ADDED,     /* It was added, and others are missing. */
	FAST_PUSH_COMPLETED, /* It was added, and was the last. */
};
enum fast_push fast_push(struct channel *channel, struct slot *slot, const struct sum *sum,
                         const struct packet *packet);

/* channel_sum.c */

/*
 * Which numbers travel, and how they are added. 9.2: "The aggregator adds integers, and does not
 * divide by N".
 */
struct sum sum_of(const struct channel *channel, const struct segment *segment, uint32_t unit_bytes,
                  uint32_t block_count, uint8_t *sums);

/*
 * sum_add - the blocks in `lanes`, `own` of them, follow each other at `data`; `first`: nothing has
 * been added before.
 */
void sum_add(const struct sum *sum, const uint64_t *lanes, uint32_t own, const uint8_t *data,
             bool first);

/*
 * Do zeros matter, of the workers that are not in `all_have`? Section 3: "A block that a worker does not send counts as
 * zeros".
 */
static inline bool sum_sees_zeros(const struct sum *sum)
{
	return sum->reduction != REDUCE_SUM && sum->reduction != REDUCE_AVG;
}
void sum_add_zeros(const struct sum *sum, const uint64_t *all_have);

/*
 * sum_finish - turns sums into what travels, of the blocks in `lanes` (NULL: all), without gaps.
 * Returns the bytes.
 */
uint32_t sum_finish(const struct sum *sum, const uint64_t *lanes, uint32_t worker_count);

/* Base, with the upper half that only seals carry. */
static inline uint64_t base_edge(const struct channel *channel)
{
	return (uint64_t)channel->turns << 32 | channel->base;
}

/* channel_state.c; the first after every packet: it costs almost nothing. */
void channel_check_edges(const struct channel *channel);
struct segment *segment_planned(const struct channel *channel, uint32_t place); /* in `order` */
struct segment *segment_find(const struct channel *channel, uint32_t frame);    /* NULL: none */
struct slot *slot_at(const struct channel *channel, uint32_t frame); /* perhaps another's */
bool slot_owns(const struct channel *channel, const struct slot *slot, uint32_t rank);
/* Which of the slot's blocks `rank` announced, one after the other in `lanes`; returns how many. */
uint32_t slot_lanes(const struct channel *channel, const struct slot *slot, uint32_t rank,
                    uint64_t lanes[SEGMENT_WORDS]);
/* Words `from` to before `to` of a segment's bitmap: blocks that every worker has. */
void segment_all_have(const struct channel *channel, const struct segment *segment, uint32_t from,
                      uint32_t to, uint64_t words[SEGMENT_WORDS]);
bool slot_lacks(const struct channel *channel, const struct slot *slot, uint32_t rank);

#endif /* AGGREGATOR_CHANNEL_STATE_H */
