/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stream_state.h - what the stream_*.c files share; private to them
 *
 * stream.c        memory, acknowledgements, timers, what to send next
 * stream_plan.c   announcing segments, taking plans
 * stream_frame.c  pushing frames, storing results
 * stream_state.c  what these stand on
 *
 * Each calls only what stands below it.
 *
 *     base <= ack <= next,  ack <= horizon
 *
 * ack: all RESULTs before it are here. next: frames before it were pushed or need nothing
 * from us. horizon: frames before it have a known plan; plans beyond a gap may be known too.
 */
#ifndef CLIENT_STREAM_STATE_H
#define CLIENT_STREAM_STATE_H

#include "client/worker/pace.h"
#include "client/worker/stream.h"

#define ACK_DELAY_US 1000
#define ANNOUNCE_US_MIN 5000
#define ANNOUNCE_US_MAX 200000
#define BUSY_FRAMES_MIN 256
#define GATHER_PART 4 /* CONGESTION.md 6: "a quarter of the limit" */
/* 10.1: "blocks that fill more than 64 frames while nothing is under way" */
#define CALM_FRAMES_MIN 64

/* What keeps a stream from pushing: nothing is planned that it has not pushed, or ... */
enum stream_held {
	STREAM_IDLE,
	STREAM_HELD_WINDOW, /* the path takes no more than what is under way */
	STREAM_HELD_CREDIT, /* some worker has not acknowledged what went before */
	STREAM_HELD_COUNT,
};

enum stream_segment_state { SEGMENT_IDLE, SEGMENT_ANNOUNCED, SEGMENT_PLANNED };

/* segments[slot * segments_ahead + number % segments_ahead] */
struct stream_segment {
	uint8_t state;
	uint8_t announce_flags;
	uint8_t plan_flags;
	bool hollow; /* The PLAN was its one frame. */
	uint8_t tries;
	int16_t exponent, plan_exponent;
	uint32_t slot;
	uint32_t number;
	struct geometry_segment cut;
	uint32_t own_frames; /* The frames that our own blocks would fill. */
	uint64_t announce_due_us;
	uint32_t union_count;
	uint32_t first;
	uint32_t frame_count;
	uint32_t received;
	int shift; /* of section 9 */
	uint64_t own[SEGMENT_WORDS];
	uint64_t united[SEGMENT_WORDS];
	uint16_t rank_before[SEGMENT_WORDS]; /* union blocks before each word */
};

enum op_state { OP_FREE, OP_ACTIVE, OP_LINGERING };

/* An operation slot on this channel. */
struct stream_op {
	uint8_t state;
	uint32_t generation;
	uint32_t segments_left;
	uint32_t end_frame;     /* LINGERING: free once base gets here */
	struct allreduce *task; /* ACTIVE only */
	struct announce asked;  /* Every announcement of it says this. */
};

#define FRAME_HAVE 1   /* RESULT is here */
#define FRAME_SENT 2   /* pushed at least once */
#define FRAME_RESEND 4 /* to be pushed again */
#define FRAME_AGAIN 8  /* has been pushed again */

/* frames[frame % window] */
struct stream_frame {
	uint8_t flags;
	uint32_t sent_us;  /* low 32 bits of the clock */
	uint32_t asked_us; /* stamp of the STATUS that last listed it; 0: none has */
};

/* When to send next without a cause, or NEVER. */
struct stream_due {
	uint64_t ack_us;
	uint64_t ask_us;      /* A STATUS asks then, while something is under way. */
	uint64_t announce_us; /* No announcement is due before it. */
};

/* RESULTs that are missing: they may be late or lost. */
struct stream_gap {
	uint64_t due_us;      /* They count as lost from then on. */
	uint64_t answered_us; /* asked.answered_us when the gap was seen. */
	uint16_t sequence;    /* 10.2: "in which sequence is the latest before it waited" */
	uint16_t count;       /* The number of missing RESULTs. */
	uint16_t asked;       /* Asked for, and neither here nor refused by an answer. */
	uint32_t asked_us;    /* The stamp of the STATUS that last asked for any. */
};

/* Times of the STATUSes that ask. */
struct stream_asked {
	uint64_t last_us;
	uint64_t answered_us; /* The last one that has been answered; 0: none. */
	uint64_t since_us;    /* News last came then, or the first frame was under way. */
	uint64_t silent_us;   /* The last one of this silence; 0: news has come since. */
	uint32_t plan_us;     /* The stamp of the last one for a PLAN; 0: a PLAN has come since. */
};

struct stream {
	struct stream_config config;
	struct pace pace;
	struct stream_op *ops;
	struct stream_segment *segments;
	struct stream_frame *frames;

	uint32_t ack, base, next, credit, horizon;
	uint32_t hold;      /* ack does not pass it, if config.passes_on. */
	uint32_t hold_room; /* The frames from this one on are too much for others' paths. */
	uint32_t turns;     /* ack has passed 2^32 so often. */
	uint32_t highest;   /* The frame after the last RESULT stored. */
	uint32_t planned;   /* The aggregator says that the frames before it have plans. */
	uint16_t sequence;  /* The number of RESULTs sent to everyone, as last heard. */
	uint16_t stored;    /* The number of these RESULTs that are here. */
	uint32_t under_way; /* Frames pushed whose RESULT is not here. */
	uint32_t ahead;     /* Frames after ack whose RESULT is here. */
	uint32_t marked;    /* Datagrams that came with congestion marked. */
	uint32_t jitter;    /* The state of the spread of timers: see stream_spread(). */

	/* Known plans that reach beyond ack, by first frame. */
	uint32_t *order;
	uint32_t order_count;

	/* Segments announced and not planned. */
	uint32_t *announced;
	uint32_t announced_count;

	struct {
		uint32_t from, to; /* FRAME_RESEND is set on frames of this range only. */
	} resend;
	struct {
		uint32_t ack, room; /* The last ack and stream_room() that were sent. */
	} told;
	bool calm;        /* Nothing has been pushed yet: a good time to measure the way. */
	bool wants_base;  /* The engine has more to announce, and base keeps it from doing so. */
	uint64_t news_us; /* Operations last got what they wait for, or began to wait. */
	struct stream_due due;
	struct stream_gap gap;
	struct stream_asked asked;
	struct {
		enum stream_held by; /* What held the stream when it was last to push. */
		uint64_t since_us;
		uint64_t us[STREAM_HELD_COUNT];
	} held;
	struct stream_stats stats;
};

static inline struct stream_segment *stream_segment_of(const struct stream *s, uint32_t slot,
                                                       uint32_t number)
{
	return &s->segments[slot * s->config.segments_ahead + number % s->config.segments_ahead];
}

static inline struct stream_frame *stream_frame_of(const struct stream *s, uint32_t frame)
{
	return &s->frames[frame & (s->config.window - 1)];
}

/* Do this worker's results include this segment? Of the others it learns only that they are complete. */
static inline bool is_received(const struct stream *s, const struct stream_segment *segment)
{
	uint32_t receiver = segment->cut.receiver;

	return receiver == WIRE_EVERYONE || receiver == s->config.rank;
}

static inline void stream_drop(struct stream *s, enum wire_drop drop)
{
	s->stats.drops[drop]++;
}

/*
 * 10.4: "Waits before a repetition are spread: up to half as long again, differently on each worker". Workers that time
 * out together must not send together again, or the same datagrams are lost again.
 */
static inline uint64_t stream_spread(struct stream *s, uint64_t us)
{
	s->jitter = s->jitter * 1664525 + 1013904223;
	return us + us * (s->jitter >> 24) / 512;
}

/*
 * base cannot pass this worker's own acknowledgement. So a worker that wants it to move, and has
 * nothing else to send that would carry one, does not wait for more to acknowledge.
 */
static inline bool stream_ack_urgent(const struct stream *s)
{
	return s->wants_base && s->ack == s->horizon && s->ack != s->told.ack;
}

/* stream_plan.c */
bool announce_pull(struct stream *s, uint64_t now_us, struct packet_out *out);
struct allreduce *plan_take(struct stream *s, const struct packet *packet);
/* Announcements that carry blocks, and may yet be answered: what had no answer in time waits for other workers. */
uint32_t eager_under_way(const struct stream *s);

/* stream_frame.c */
/* The segment's frames, as plan() is told of them. What is eager has one shard, on any channel. */
struct access_frame frames_from(const struct stream *s, const struct allreduce *task,
                                const struct stream_segment *segment, uint32_t number);
bool push_pull(struct stream *s, uint64_t now_us, struct packet_out *out);
bool resend_pull(struct stream *s, uint64_t now_us, struct packet_out *out);
struct allreduce *result_take(struct stream *s, const struct packet *packet, uint64_t now_us);
void resend_take(struct stream *s, const struct status *status);
/* All blocks of an operation without frames that are in `bits`, as if they were one. */
struct access_frame eager_frame(const struct stream *s, const struct allreduce *task,
                                const struct stream_segment *segment, const uint64_t *bits);

/* stream_state.c */
/*
 * stream_room - our path takes what is before this frame: ack, and 8.4: "the number of frames after ack whose RESULT has
 * come, and twice its limit of 8.5". Twice, since for what others push the way is twice as long.
 */
uint32_t stream_room(const struct stream *s);
struct stream_segment *stream_find(const struct stream *s,
                                   uint32_t frame); /* its plan is known; or NULL */
struct allreduce *stream_segment_done(struct stream *s, struct stream_segment *segment);
void stream_head(struct stream *s, struct packet_out *out, enum wire_kind kind, uint32_t frame);
void stream_check_edges(const struct stream *s); /* after every packet: it costs nothing */

#endif /* CLIENT_STREAM_STATE_H */
