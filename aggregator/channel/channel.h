/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * channel.h - the aggregator's half of the protocol, for one channel of one job
 *
 * A channel takes announcements, plans them, adds PUSHes into a window of slots, and says what to
 * send. It is pure: packets and time go in, packets come out. It owns no socket, clock, thread or
 * random number, and allocates only in channel_open(). A job has one channel for each thread of the
 * aggregator; the channels do not know each other.
 *
 * Only one thread at a time may call these functions. None blocks.
 */
#ifndef AGGREGATOR_CHANNEL_H
#define AGGREGATOR_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bitmap/bitmap.h"
#include "ebpf/fastpath.h"
#include "ebpf/geometry.h"
#include "ebpf/packet.h"

struct channel;

#define CHANNEL_RANKS_NAMED 8

/* The upper limits by which operation times are counted. The last count is for longer ones. */
#define CHANNEL_TIMES 16
extern const uint32_t channel_times_us[CHANNEL_TIMES];

struct channel_config {
	uint16_t id;
	uint16_t worker_count;   /* 1 .. WIRE_WORKERS_MAX */
	uint32_t payload;        /* UDP payload bytes, WIRE_PAYLOAD_MIN .. WIRE_PAYLOAD_MAX */
	uint32_t window;         /* Frames: a power of two, 4 .. WIRE_WINDOW_MAX. */
	uint32_t op_slots;       /* Operations that a worker may have in progress, 1 .. 1024. */
	uint32_t segments_ahead; /* Segments of an operation in progress, 1 .. 64. */
	uint32_t first_frame;    /* Any number; workers learn it when they join. */
	uint64_t group_token;    /* Carried by the aggregator's packets. */
	const uint64_t *tokens;  /* [worker_count], carried by the workers' packets; copied. */
	uint64_t stall_us;       /* How long an operation may wait for a worker. */
	bool to_group;           /* One packet to the group reaches all workers. */
	/*
	 * [worker_count], who sends and receives here for each worker: itself, another one of its site, for which it is
	 * mute, or nobody here (WIRE_EVERYONE). NULL: each for itself. Outlives the channel.
	 */
	const uint16_t *speakers;
	/* A parent plans, and adds up what its sites add up: see channel_site.c. */
	bool sited;
	const struct bitmap_engine *engine;
	/* Memory shared with the kernel, which takes payloads up to FAST_PAYLOAD_MAX; or NULL. */
	struct fast_channel *fast;    /* Zeroed, except what only its owner sets. */
	struct fast_slot *fast_slots; /* [window], zeroed. */
};

/* Only the channel's thread writes these; others read them with relaxed atomic loads. */
struct channel_stats {
	uint64_t received, received_bytes; /* Packets, and bytes of UDP payload. */
	uint64_t sent, sent_bytes; /* A packet to a group counts once: channel_sent_more(). */
	uint64_t drops[WIRE_DROP_COUNT];
	uint64_t operations;     /* Operations that all workers have finished. */
	uint64_t eager;          /* Those of them that used only one of the job's channels. */
	uint64_t mismatches;     /* Announcements refused because the workers disagree. */
	uint64_t tensor_bytes;   /* Bytes of one worker's tensor in the planned segments. */
	uint64_t blocks;         /* Blocks in the planned segments. */
	uint64_t blocks_nonzero; /* Those of them that are in the union. */
	uint64_t blocks_owned;   /* The workers' non-zero blocks, added up. */
	uint64_t pushes;         /* PUSHes that were accepted. */
	uint64_t results;        /* Frames that were completed. */
	uint64_t passed_through; /* Those of them that had only one contributor. */
	uint64_t result_resends, plan_resends, wants;
	uint64_t fast_added;  /* PUSHes of shared frames that the kernel has added. */
	uint64_t fast_missed; /* PUSHes of shared frames that winnowd has added. */
	/* Times of finished operations, from the first announcement to the last acknowledgement. */
	uint64_t times[CHANNEL_TIMES + 1], times_us;
	/* The same for operations on one channel alone. */
	uint64_t eager_times[CHANNEL_TIMES + 1], eager_times_us;
};

/* An operation that has waited too long, and what it waits for. */
struct channel_stall {
	uint64_t tag;
	uint16_t rank;    /* The rank of the first missing worker. */
	uint16_t missing; /* The number of missing workers. */
	bool streaming;   /* True: data or acknowledgements are missing; false: announcements. */
	uint64_t waited_us;
};

/* An operation that waits, with the first few missing workers. */
struct channel_wait {
	struct channel_stall stall; /* missing is 0 if nothing waits. */
	uint32_t rank_count;
	uint16_t ranks[CHANNEL_RANKS_NAMED];
};

/* The work that a channel has in progress. */
struct channel_view {
	uint32_t operations; /* Operations in progress. */
	uint32_t slots;      /* Frames that may be in progress. */
	uint32_t slots_used; /* Frames in progress. */
	/* About the oldest operation, if there is one. */
	uint64_t tag, count;
	uint64_t age_us; /* The age of its first announcement. */
	uint8_t dtype, reduction, form;
	struct channel_wait wait; /* The longest wait of all operations. */
};

/* channel_memory - bytes that channel_open() will allocate; 0 if the config is out of range. */
size_t channel_memory(const struct channel_config *config);

/* channel_open - returns 0, -EINVAL (config out of range) or -ENOMEM. The caller closes *out. */
int channel_open(const struct channel_config *config, struct channel **out);
void channel_close(struct channel *channel);

/*
 * channel_receive - takes a packet for this channel whose header packet_parse() has accepted. It
 * must not be a KNOCK.
 */
void channel_receive(struct channel *channel, const struct packet *packet, uint64_t now_us);

/*
 * channel_pull - returns true with the next packet to send, or false if there is none. The memory
 * that *out points at stays valid until the next channel_receive().
 */
bool channel_pull(struct channel *channel, uint64_t now_us, struct packet_out *out);

/* channel_sent_more - counts copies of a pulled packet, which counts once, beyond the first. */
void channel_sent_more(struct channel *channel, uint64_t packets, uint64_t bytes);

/* channel_sums_wait - tells whether RESULTs wait to be pulled. They are most of a channel's packets. */
bool channel_sums_wait(const struct channel *channel);

/*
 * channel_stalled - returns true and fills *out if an operation has waited longer than stall_us.
 * Cheap enough for a few calls a second.
 */
bool channel_stalled(struct channel *channel, uint64_t now_us, struct channel_stall *out);

/* channel_stuck_us - how long base has not moved although frames are planned, or 0. */
uint64_t channel_stuck_us(const struct channel *channel, uint64_t now_us);

/* channel_look - describes the work in progress; as cheap. */
void channel_look(struct channel *channel, uint64_t now_us, struct channel_view *out);

/* How long all others waited for a worker on this channel, in total. */
struct channel_waits {
	uint64_t late_us; /* Operations waited so long for this last worker to call them. */
	uint64_t last_us; /* Frames waited so long for this last worker's acknowledgement. */
};

void channel_waits(const struct channel *channel, uint32_t rank, struct channel_waits *out);

uint32_t channel_payload(const struct channel *channel);

/* channel_config - that of channel_open(), but for its tokens. */
const struct channel_config *channel_config(const struct channel *channel);

/* channel_is_mute - what goes to all does not go to this worker: see struct channel_config. */
bool channel_is_mute(const struct channel *channel, uint32_t rank);

/*
 * ---- the channel of a site ----
 *
 * With `sited` set a channel plans nothing by itself and finishes no sums: it offers the segments
 * that all its workers have announced, as their union, and the sums of frames that all its workers
 * have pushed. The parent's plans and results go to the workers. Frames have the same numbers here
 * and at the parent.
 */

/* A segment that all have announced. Its pointers hold until the next call for this channel. */
struct channel_offer {
	const struct announce *asked; /* What the workers say of the operation. */
	uint32_t op; /* The entry of its operation, until all workers have everything. */
	uint32_t segment;
	uint32_t block_count;
	struct geometry_frames frames;
	const uint64_t *united; /* [(block_count + 63) / 64] */
	int16_t exponent;
	bool nonfinite;
	uint16_t receiver; /* The rank that gets its sums, or WIRE_EVERYONE. */
	bool ours;         /* That one, or everyone, is a worker of this site. */
};

/* Calls `take` for each segment that it has not taken yet; it returns whether it does now. */
void channel_offers(struct channel *channel,
                    bool (*take)(void *context, const struct channel_offer *offer), void *context);

/*
 * The parent's plan of a segment that was taken: it is the next one in the order of frames. False:
 * it cannot be.
 */
struct channel_planned {
	uint32_t op, segment;
	uint32_t first, frame_count;
	const uint64_t *united;
	int16_t exponent;
	bool nonfinite;
};
bool channel_plan(struct channel *channel, const struct channel_planned *plan, uint64_t now_us);

/* The next plan begins with this frame. */
uint32_t channel_next_plan(const struct channel *channel);

/* Every worker has the frames before this one. */
uint32_t channel_base(const struct channel *channel);

/* The workers' paths take the frames before this one. */
uint32_t channel_credit(const struct channel *channel);

/* All workers of the job have the frames before `base`. Those here may leave if it is the last. */
void channel_above(struct channel *channel, uint32_t base);

/* A frame's sums, blocks of the union in order, once all PUSHes of its workers are in; or NULL. */
const uint8_t *channel_sums(const struct channel *channel, uint32_t frame);

/*
 * The sums of a segment of an eager operation: those of the site's workers, until
 * channel_eager_set() puts the parent's in their place, before its plan. False: they are too long.
 */
const uint8_t *channel_eager(const struct channel *channel, uint32_t op, uint32_t segment);
bool channel_eager_set(struct channel *channel, uint32_t op, uint32_t segment, const uint8_t *sums,
                       uint32_t bytes);

/*
 * The parent's RESULT of a frame; without `data` if no worker of this site receives it. False:
 * there is no slot for it, or its length is wrong.
 */
bool channel_result(struct channel *channel, uint32_t frame, const uint8_t *data, uint32_t bytes);

/* channel_edge - base, with the upper half that only seals carry. */
uint64_t channel_edge(const struct channel *channel);

/* channel_idle - no operation is in progress, and all workers have acknowledged everything. */
bool channel_idle(const struct channel *channel);

/* channel_stats - includes the kernel's part; valid until the next call for this channel. */
const struct channel_stats *channel_stats(struct channel *channel);

/* channel_address - sets the address that a worker's KNOCK came from, so that the kernel accepts it. */
void channel_address(struct channel *channel, uint32_t rank, const struct fast_home *home);

/* channel_is_fast - tells whether the kernel adds this channel's int32 frames. */
bool channel_is_fast(const struct channel *channel);

#endif /* AGGREGATOR_CHANNEL_H */
