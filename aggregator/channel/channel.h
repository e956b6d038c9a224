/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * channel.h - the aggregator's half of the protocol, for one channel of one job
 *
 * A channel takes announcements, plans them, adds PUSHes into a window of slots, and says what to
 * send. It is pure: packets and time go in, packets come out; it owns no socket, clock, thread or
 * random number, and allocates only in channel_open(). A job has one channel for each thread of the
 * aggregator; they know nothing of each other.
 *
 * One thread at a time. Nothing blocks.
 */
#ifndef AGGREGATOR_CHANNEL_H
#define AGGREGATOR_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bitmap/bitmap.h"
#include "ebpf/fastpath.h"
#include "ebpf/packet.h"

struct channel;

#define CHANNEL_RANKS_NAMED 8

/* Operation times are counted by these limits; the last count is of what took longer. */
#define CHANNEL_TIMES 16
extern const uint32_t channel_times_us[CHANNEL_TIMES];

struct channel_config {
	uint16_t id;
	uint16_t worker_count;   /* 1 .. WIRE_WORKERS_MAX */
	uint32_t payload;        /* UDP payload bytes, WIRE_PAYLOAD_MIN .. WIRE_PAYLOAD_MAX */
	uint32_t window;         /* Frames: a power of two, 4 .. WIRE_WINDOW_MAX. */
	uint32_t op_slots;       /* One worker may have so many operations under way, 1 .. 1024. */
	uint32_t segments_ahead; /* One operation may have so many segments under way, 1 .. 64. */
	uint32_t first_frame;    /* Any number will do: workers learn it when they join. */
	uint64_t group_token;    /* Our packets carry it. */
	const uint64_t *tokens;  /* [worker_count]; the workers' packets carry them; copied. */
	uint64_t stall_us;       /* One operation may wait so long for a worker. */
	bool to_group;           /* One packet to the group reaches all workers. */
	const struct bitmap_engine *engine;
	/* NULL, or shared with the kernel, which takes payloads up to FAST_PAYLOAD_MAX. */
	struct fast_channel *fast; /* It is zeroed, but for what channel_receive.c does not know. */
	struct fast_slot *fast_slots; /* [window]; they are zeroed. */
};

/* Written by the channel's thread alone; others read with relaxed atomic loads. */
struct channel_stats {
	uint64_t received, received_bytes; /* Bytes are of UDP payload. */
	uint64_t sent, sent_bytes; /* A packet to a group counts once: channel_sent_more(). */
	uint64_t drops[WIRE_DROP_COUNT];
	uint64_t operations;     /* All workers have finished these. */
	uint64_t eager;          /* These took one channel of the job's. */
	uint64_t mismatches;     /* Announcements that were refused: workers disagree. */
	uint64_t tensor_bytes;   /* The planned segments have so many, for one worker. */
	uint64_t blocks;         /* Blocks were planned. */
	uint64_t blocks_nonzero; /* Planned blocks are in the union. */
	uint64_t blocks_owned;   /* The non-zero ones of each worker, added up. */
	uint64_t pushes;         /* PUSHes were accepted. */
	uint64_t results;        /* Frames were completed. */
	uint64_t passed_through; /* Completed frames had one contributor. */
	uint64_t result_resends, plan_resends, wants;
	uint64_t fast_added;  /* The kernel has added so many PUSHes of frames that it shares. */
	uint64_t fast_missed; /* We have added so many of such frames. */
	/* The finished operations took so long from the first announcement until all have acknowledged. */
	uint64_t times[CHANNEL_TIMES + 1], times_us;
	/* Those on one channel alone took so long. */
	uint64_t eager_times[CHANNEL_TIMES + 1], eager_times_us;
};

/* What an operation waits for, when it has waited too long. */
struct channel_stall {
	uint64_t tag;
	uint16_t rank;    /* The first worker that is missing has this rank. */
	uint16_t missing; /* The number of missing workers. */
	bool streaming;   /* False: no announcement of it came; true: data or acknowledgements. */
	uint64_t waited_us;
};

/* The same while it waits, with the first few of those missing. */
struct channel_wait {
	struct channel_stall stall; /* missing 0: nothing waits. */
	uint32_t rank_count;
	uint16_t ranks[CHANNEL_RANKS_NAMED];
};

/* What a channel is busy with. */
struct channel_view {
	uint32_t operations; /* Operations under way. */
	uint32_t slots;      /* Frames that may be under way. */
	uint32_t slots_used; /* Frames under way. */
	/* Of the oldest operation, if there is one. */
	uint64_t tag, count;
	uint64_t age_us; /* Its first announcement is so old. */
	uint8_t dtype, reduction, form;
	struct channel_wait wait; /* It is the longest of all. */
};

/* Bytes that channel_open() will allocate, for admission; 0 if the config is out of range. */
size_t channel_memory(const struct channel_config *config);

/* channel_open - -EINVAL: config out of range; -ENOMEM. The caller closes *out. */
int channel_open(const struct channel_config *config, struct channel **out);
void channel_close(struct channel *channel);

/*
 * channel_receive - one packet whose header packet_parse() accepted and whose channel
 * is this one. KNOCK is not for the channel.
 */
void channel_receive(struct channel *channel, const struct packet *packet, uint64_t now_us);

/*
 * channel_pull - the next packet to send; false when there is none. What *out points
 * at stays valid until the next channel_receive().
 */
bool channel_pull(struct channel *channel, uint64_t now_us, struct packet_out *out);

/* For the statistics, which count what is pulled once: further copies of it, where no group takes it to all. */
void channel_sent_more(struct channel *channel, uint64_t packets, uint64_t bytes);

/* channel_sums_wait - do RESULTs wait to be pulled? They are most of what a channel says. */
bool channel_sums_wait(const struct channel *channel);

/*
 * channel_stalled - has an operation waited longer than stall_us? Cheap enough for a
 * few calls a second; true and *out filled if so.
 */
bool channel_stalled(struct channel *channel, uint64_t now_us, struct channel_stall *out);

/* channel_stuck_us - for so long not all workers have got further, though there are frames to get; else 0. */
uint64_t channel_stuck_us(const struct channel *channel, uint64_t now_us);

/* channel_look - what it is busy with now; as cheap. */
void channel_look(struct channel *channel, uint64_t now_us, struct channel_view *out);

/* For whom all others waited, and how long, in total; of one channel. */
struct channel_waits {
	uint64_t late_us; /* Operations waited so long for this worker alone to call them. */
	uint64_t last_us; /* Frames waited so long for the acknowledgement of this worker alone. */
};

void channel_waits(const struct channel *channel, uint32_t rank, struct channel_waits *out);

uint32_t channel_payload(const struct channel *channel);

/* channel_edge - base, with the upper half that only seals carry. */
uint64_t channel_edge(const struct channel *channel);

/* No operation is under way and every worker has acknowledged everything. */
bool channel_idle(const struct channel *channel);

/* channel_stats - the kernel's part included; valid until the next call for this channel. */
const struct channel_stats *channel_stats(struct channel *channel);

/* channel_address - where a worker's KNOCK came from: the kernel may answer. */
void channel_address(struct channel *channel, uint32_t rank, const struct fast_home *home);

/* channel_is_fast - does the kernel add this channel's int32 frames? */
bool channel_is_fast(const struct channel *channel);

#endif /* AGGREGATOR_CHANNEL_H */
