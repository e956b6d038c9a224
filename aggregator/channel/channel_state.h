/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * channel_state.h - the state of a channel, and the functions that its files share; private to them
 *
 * channel_receive.c  memory, members and their acknowledgements, dispatch
 * channel_plan.c     operations: announcements, agreement, plans
 * channel_slot.c     frames: opening slots, taking PUSHes
 * channel_send.c     queues of packets to send, and building the packets
 * channel_site.c     what a site offers its parent, and takes from it
 * channel_watch.c    which worker the others wait for, and for how long
 * channel_fast.c     slots that the kernel also adds to
 * channel_sum.c      adding blocks, finishing sums
 * channel_state.c    finding segments and slots
 *
 * Each file calls only those below it.
 *
 * Frames are numbered through the life of the channel, modulo 2^32:
 *
 *     base <= opened <= planned,  base < credit <= base + window
 *
 * Every worker has all frames before `base`. Frames from `base` to `opened` have a slot that
 * accepts PUSHes. Hollow frames, which carry no data, need no slot and are passed over whatever the
 * window. Frames before `planned` belong to a planned segment. `credit` reaches as far as there are
 * slots and as the paths to all workers take RESULTs. It never moves back, and is never at `base`,
 * where no worker would ask for more.
 */
#ifndef AGGREGATOR_CHANNEL_STATE_H
#define AGGREGATOR_CHANNEL_STATE_H

#include "aggregator/channel/channel.h"
#include "ebpf/geometry.h"

/* Between base and planned. Serial numbers of 32 bits have an order within 2^31. */
#define FRAMES_AHEAD_MAX (1u << 30)
#define REPLIES_MAX 1024 /* Answers to single workers that may wait; a power of two. */

/*
 * Workers pay with bytes for what is sent or asked of them again, so few bytes cannot draw many.
 * 10.5: "It gains twice payload for each frame that the worker newly acknowledges", and some by
 * each datagram.
 */
#define EARNED_BY_ACK 2
#define EARNED_BY_BYTE 4
#define LISTED_SHARE 4 /* 10.5: "a PUSH that it lists a quarter of START's payload" */

struct member {
	uint64_t token;
	uint32_t earned;      /* Bytes that may be repeated: see repeats_spend(). */
	uint64_t progress_us; /* When it last sent something new. */
	struct channel_waits waits;
	uint32_t marked; /* Its datagrams that came with congestion marked. */
	uint32_t ack;
	uint32_t room; /* Its path takes the RESULTs of the frames before this one. */
};

/* The use of worker w's operation slot s, at binds[w * op_slots + s]. */
struct bind {
	uint32_t generation; /* 0 until the slot is used. */
	uint32_t op;         /* Index into ops. */
	uint64_t op_serial;  /* The bind is valid only while the operation has this serial. */
};

struct operation {
	bool used;
	uint64_t serial;       /* Unique among all operations of the channel. */
	struct announce asked; /* What the first worker announced. */
	uint16_t asked_by;
	uint32_t segments_done; /* Segments that are planned, and acknowledged by all workers. */
	uint32_t bound_count;
	uint64_t *bound;     /* [rank words], the workers that have announced any of it. */
	uint64_t started_us; /* When its first announcement came. */
	uint64_t bound_us;   /* When the newest worker's first announcement came. */
	uint8_t *eager;      /* [WIRE_EAGER_SEGMENTS][eager_bytes()], sums of an eager operation. */
};

/* A site's segments wait for the parent's plan: OFFERED when all workers have announced, TAKEN when the parent is asked. */
enum segment_state {
	SEGMENT_IDLE,
	SEGMENT_GATHERING,
	SEGMENT_OFFERED,
	SEGMENT_TAKEN,
	SEGMENT_PLANNED,
};

/* At segments[op * segments_ahead + number % segments_ahead]. */
struct segment {
	enum segment_state state;
	uint32_t number; /* While idle, the next number that may live here. */
	uint32_t op;
	uint32_t block_count;
	struct geometry_frames frames;
	uint16_t receiver; /* The rank that gets the RESULTs' data, or WIRE_EVERYONE. */
	uint32_t joined_count;
	uint64_t *joined; /* [rank words] */
	uint64_t *bits;   /* [worker_count][segment_words] */
	uint64_t *united; /* [segment_words] */
	uint32_t union_count;
	int16_t exponent;
	bool nonfinite;
	uint64_t since_us; /* When its first announcement came. */

	/* Valid once it is planned. */
	uint32_t first;
	uint32_t frame_count; /* At least 1; see `hollow`. */
	bool hollow;          /* Its one frame carries no data, because the PLAN is everything. */
	uint8_t plan_flags;
	uint8_t *set; /* [segment_words * 8], the union as in PLANs. */
	uint32_t set_bytes;
	uint32_t eager_bytes; /* Bytes of the sums that follow an eager PLAN. */
};

/* SUMMED: a site's sums wait for the parent's RESULT. */
enum slot_state { SLOT_EMPTY, SLOT_OPEN, SLOT_SUMMED, SLOT_DONE };

/* At slots[frame % window]. */
struct slot {
	uint32_t frame;
	uint8_t state;
	uint16_t expected; /* Workers that own a block of it. */
	uint16_t arrived;
	uint32_t segment;
	uint32_t first, end;    /* Its blocks lie between these two places of the segment. */
	uint32_t block_count;   /* Blocks of the union in the slot. */
	uint32_t part;          /* Which part, if a block is larger than a frame. */
	uint32_t unit_bytes;    /* Bytes on the wire of one block, or of this part. */
	uint16_t receiver;      /* The rank that gets the RESULT's data, or WIRE_EVERYONE. */
	struct fast_slot *fast; /* Where its contributors and sums are, or NULL. */
	bool queued;            /* Its RESULT is in `results`. */
	bool sent;              /* Its RESULT has been sent to everyone. */
	uint16_t sequence;      /* The sequence number of that RESULT. */
	uint64_t *came;         /* [rank words] */
	uint8_t *data;          /* [2 * payload], sums; after SLOT_DONE the RESULT's data. */
};

enum reply_kind { REPLY_RESULT, REPLY_PLAN, REPLY_REFUSAL, REPLY_STATUS };

struct reply {
	enum reply_kind kind;
	uint16_t rank;
	uint32_t number; /* A frame, or the place of a plan's segment. */
	union {
		struct status status; /* For REPLY_STATUS. */
		struct {
			uint64_t tag;
			struct wire_mismatch mismatch;
		} refusal; /* For REPLY_REFUSAL. */
	};
	uint64_t came_us; /* When the STATUS that it answers came. */
};

struct channel {
	void *memory; /* Holds all the channel's memory, including this struct. */
	struct channel_config config;
	uint32_t rank_words;
	uint32_t speaker_count; /* Workers that are not mute. */
	uint32_t offered;       /* Segments that are OFFERED. */
	uint32_t above;         /* A site's: the parent's base, as far as it is known. */
	uint32_t segment_words; /* Words in the bitmap of the longest segment. */
	struct member *members;
	struct bind *binds;
	struct operation *ops;
	struct segment *segments;
	struct slot *slots;
	uint64_t op_serial;
	uint32_t ops_used;

	uint32_t base, opened, planned;
	uint32_t at_base;     /* Workers whose ack is base. */
	uint64_t alone_us;    /* When at_base became 1. */
	uint32_t turns;       /* How often base has passed 2^32. */
	uint32_t credit;      /* Frames before it may be pushed. */
	uint64_t now_us;      /* When the current packet came. */
	uint64_t progress_us; /* When base last moved, or a frame was planned after a pause. */

	struct {
		uint32_t credit, base;
	} told; /* What all workers have been told. */

	/* Planned segments in frame order, at places[head % segment_count .. tail). */
	struct {
		uint32_t *places;
		uint32_t head, tail;
	} order;
	uint32_t segment_count; /* Places in the table, a power of two. */
	struct {
		uint32_t segment; /* The place in `order` of the segment that has `opened`. */
		uint32_t rank;    /* Blocks of that segment's union that have a slot. */
		uint32_t bit;     /* Where the search for its next union block begins. */
	} open;

	uint16_t sequence; /* The last RESULT to everyone had it. */

	/* Queues of packets to send. */
	uint32_t plans_sent; /* Plans of segments before this place of `order` are sent. */
	struct {
		uint32_t *frames; /* A ring of `window` complete frames. */
		uint32_t head, tail;
	} results;
	struct {
		struct reply *list; /* A ring of REPLIES_MAX. */
		uint32_t head, tail;
	} replies;

	struct channel_stats stats;
	struct channel_stats with_fast; /* What channel_stats() returned last. */
};

/* An eager operation has no frames. */
static inline bool op_is_eager(const struct operation *op)
{
	return (op->asked.flags & WIRE_EAGER) != 0;
}

/* Bytes of a segment's sums, rounded up so that elements of 8 bytes are aligned. */
static inline size_t eager_bytes(uint32_t payload)
{
	return (payload + 7) / 8 * 8;
}

/* The sums of a segment of an eager operation. */
static inline uint8_t *eager_sums(const struct channel *channel, const struct segment *segment)
{
	const uint32_t place = segment->number % WIRE_EAGER_SEGMENTS;

	return channel->ops[segment->op].eager + place * eager_bytes(channel->config.payload);
}

/* A row of blocks that are being added up. */
struct sum {
	const struct bitmap_engine *engine;
	enum dtype dtype; /* The incoming blocks'; sums of f16 and bf16 are f32. */
	enum reduction reduction;
	uint32_t unit_elems; /* Elements of a block, or of the part that a frame has. */
	uint32_t block_count;
	uint8_t *sums; /* [block_count] units */
};

static inline uint64_t *segment_bits(const struct channel *channel, const struct segment *segment,
                                     uint32_t rank)
{
	return segment->bits + (size_t)rank * channel->segment_words;
}

/* Who sends and receives here for a worker, or WIRE_EVERYONE: nobody. */
static inline uint16_t speaker_of(const struct channel *channel, uint32_t rank)
{
	const uint16_t *speakers = channel->config.speakers;

	return speakers != NULL ? speakers[rank] : (uint16_t)rank;
}

static inline bool is_mute(const struct channel *channel, uint32_t rank)
{
	return speaker_of(channel, rank) != rank;
}

static inline void count_drop(struct channel *channel, enum wire_drop drop)
{
	channel->stats.drops[drop]++;
}

/* channel_plan.c */
void plan_reset(struct channel *channel, struct operation *op); /* at open */
void plan_announce(struct channel *channel, const struct packet *packet, uint64_t now_us);
/* The union of a segment is known, and in an eager operation its sums: it gets the next frames. */
void plan_number(struct channel *channel, struct segment *segment, uint64_t now_us);
struct segment *plan_segment_of(const struct channel *channel, const struct operation *op,
                                uint32_t number);
void plan_release(struct channel *channel, uint64_t now_us); /* drops segments before base */

/* channel_watch.c */
void watch_bound(struct channel *channel, struct operation *op, uint32_t rank, uint64_t now_us);
void watch_acked(struct channel *channel, uint32_t rank, uint64_t now_us);
void watch_finished(struct channel *channel, const struct operation *op, uint64_t now_us);

/* channel_slot.c */
void slot_open_more(struct channel *channel); /* after base or planned moved */
void slot_push(struct channel *channel, const struct packet *packet, uint64_t now_us);
void slot_status(struct channel *channel, const struct packet *packet);

/*
 * channel_send.c. If there is no room for a reply or result, it is dropped and counted, because
 * workers ask again.
 */
bool reply_room(const struct channel *channel);
void reply_put(struct channel *channel, const struct reply *reply);
void repeats_earn(struct channel *channel, uint32_t rank, uint64_t bytes);
bool repeats_spend(struct channel *channel, uint32_t rank, uint32_t bytes); /* false: too many */
void reply_put_plan(struct channel *channel, const struct segment *segment, uint16_t rank);
void result_put(struct channel *channel, struct slot *slot); /* a RESULT for everyone */

/* channel_fast.c; most of these do nothing if the channel or slot is not shared. */
void fast_start(struct channel *channel);
void fast_open(struct channel *channel, struct slot *slot);
void fast_close(struct channel *channel, struct slot *slot);
void fast_look(struct slot *slot); /* takes over what the kernel has done */
void fast_sent(struct slot *slot);
bool fast_unsent(struct slot *slot);
uint8_t *fast_data(const struct slot *slot); /* where the sums are */
void fast_publish(struct channel *channel);  /* after a change of base, credit, planned or slots */
uint32_t fast_ack(const struct channel *channel, uint32_t rank);
uint32_t fast_room(const struct channel *channel, uint32_t rank);
uint32_t fast_marked(const struct channel *channel, uint32_t rank); /* PUSHes not seen here */
uint16_t fast_sequence(struct channel *channel, bool next);
void fast_advertised(struct channel *channel);
void fast_stats(const struct channel *channel, struct channel_stats *stats);

enum fast_push {
	FAST_PUSH_AGAIN,     /* The slot already had it. */
	FAST_PUSH_UNSENT,    /* The slot already had it; the frame's RESULT has not been sent. */
	FAST_PUSH_ADDED,     /* It was added, and others are missing. */
	FAST_PUSH_COMPLETED, /* It was added as the last one. */
};
enum fast_push fast_push(struct channel *channel, struct slot *slot, const struct sum *sum,
                         const struct packet *packet);

/* channel_sum.c */

/*
 * Says which numbers travel, and how they are added. 9.2: "The aggregator adds integers, and does
 * not divide by N".
 */
struct sum sum_of(const struct channel *channel, const struct segment *segment, uint32_t unit_bytes,
                  uint32_t block_count, uint8_t *sums);

/*
 * sum_add - adds the `own` blocks of `lanes`, which follow each other at `data`. `first` means that
 * nothing has been added before.
 */
void sum_add(const struct sum *sum, const uint64_t *lanes, uint32_t own, const uint8_t *data,
             bool first);

/*
 * Tells whether the zeros of workers that are not in `all_have` matter. Section 3: "A block that a
 * worker does not send counts as zeros".
 */
static inline bool sum_sees_zeros(const struct sum *sum)
{
	return sum->reduction != REDUCE_SUM && sum->reduction != REDUCE_AVG;
}
void sum_add_zeros(const struct sum *sum, const uint64_t *all_have);

/*
 * sum_finish - turns the sums of the blocks in `lanes` (NULL: all) into their wire form, without
 * gaps. Returns the number of bytes.
 */
uint32_t sum_finish(const struct sum *sum, const uint64_t *lanes, uint32_t worker_count);

/* Base, with the upper half that only seals carry. */
static inline uint64_t base_edge(const struct channel *channel)
{
	return (uint64_t)channel->turns << 32 | channel->base;
}

/* channel_state.c. The first runs after every packet, because it costs almost nothing. */
void channel_check_edges(const struct channel *channel);
struct segment *segment_planned(const struct channel *channel, uint32_t place); /* in `order` */
struct segment *segment_find(const struct channel *channel, uint32_t frame);    /* or NULL */
struct slot *slot_at(const struct channel *channel, uint32_t frame); /* may hold another frame */
bool slot_owns(const struct channel *channel, const struct slot *slot, uint32_t rank);
/* Sets `lanes` to the slot's blocks that `rank` announced. Returns how many there are. */
uint32_t slot_lanes(const struct channel *channel, const struct slot *slot, uint32_t rank,
                    uint64_t lanes[SEGMENT_WORDS]);
/* Words [from, to) of a bitmap of the segment's blocks that every worker has. */
void segment_all_have(const struct channel *channel, const struct segment *segment, uint32_t from,
                      uint32_t to, uint64_t words[SEGMENT_WORDS]);
bool slot_lacks(const struct channel *channel, const struct slot *slot, uint32_t rank);

#endif /* AGGREGATOR_CHANNEL_STATE_H */
