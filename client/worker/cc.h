/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cc.h - congestion control: published algorithms, one a file, that move one window
 *
 * cc_swift.c   answers delay: Swift (SIGCOMM 2020)
 * cc_reno.c    answers loss, beside TCP: Reno (RFC 5681) with CUBIC's factor (RFC 9438)
 * cc_dctcp.c   answers marks, for both: DCTCP (RFC 8257)
 * cc_mode.c    chooses between Swift and Reno: Copa's mode switch (NSDI 2018), BBR's ProbeRTT
 * cc.c         the window, and which event a round is
 *
 * The window moves once a round, which is a few round trips (pace.h). What a round has shown is one event, and an
 * algorithm is a table of functions for events. DCTCP answers marks, whichever algorithm answers the rest. The head of
 * each file says which of its rules are published and which are ours. The window is the limit of CONGESTION.md. Pure, and
 * no algorithm needs a clock that two hosts share.
 */
#ifndef CLIENT_CC_H
#define CLIENT_CC_H

#include <stdbool.h>
#include <stdint.h>

#define CC_PARTS 256    /* The window is kept in parts of a packet. */
#define CC_QUEUE_US 200 /* A shorter queue is none: hosts' stamps differ by as much. */

/* What a round has shown. */
struct cc_round {
	uint64_t now_us, took_us;
	uint64_t srtt_us;
	uint64_t way_us;                /* The shortest way there and back in it. */
	uint64_t queued_us;             /* The part of way_us that was spent in queues. */
	uint64_t wait_us;               /* What hosts let datagrams wait. */
	uint32_t results, lost, missed; /* RESULTs that came; PUSHes and RESULTs that were lost. */
	uint32_t marked;                /* The share of its datagrams that came marked, per 1024. */
	bool full;                      /* The window has held something up. */
};

struct cc;

struct cc_algorithm {
	void (*on_acked)(struct cc *cc, const struct cc_round *round);
	void (*on_lost)(struct cc *cc, const struct cc_round *round); /* while something queued */
};

extern const struct cc_algorithm cc_swift, cc_reno;

/* The state of cc_mode.c. */
struct cc_mode {
	uint32_t parts;      /* The window when the queue became long, or a probe began; or 0. */
	uint64_t queued_us;  /* The queue at that time. */
	uint64_t base_us;    /* The least way that was known when the probe began. */
	uint64_t longest_us; /* The longest round's way since the last probe, while Reno answers. */
	uint64_t least_us;   /* The shortest queue since then. */
	uint64_t seen_us;    /* The time at which it was seen. */
	uint32_t probing;    /* The rounds that are left of the probe. */
	bool slow;           /* Reno's slow start. */
};

struct cc {
	const struct cc_algorithm *algorithm;
	uint32_t window;      /* Packets that may be under way. */
	uint32_t parts;       /* The same in parts of a packet, which are what it changes by. */
	uint32_t least, most; /* Packets. */
	bool alone;           /* Nobody else uses the network. */
	bool starting;        /* Slow start: there has been no sign of congestion yet. */
	bool recovering;      /* The round before has shrunk the window for a loss. */
	uint32_t alpha;       /* DCTCP's estimate of `marked`, per 1024. */
	uint64_t bridge_us;   /* The queue that may bridge hosts' waits. */
	struct cc_mode mode;
};

void cc_init(struct cc *cc, uint32_t start, uint32_t most, bool alone);

/* cc_round_ends - the window answers what a round has shown. */
void cc_round_ends(struct cc *cc, const struct cc_round *round);

/* cc_lost_much - many packets were lost, or none is answered: so many tenths go, unless nobody else uses the network. */
void cc_lost_much(struct cc *cc, uint32_t tenths);

/* ---- for the algorithms ---- */

void cc_window_set(struct cc *cc, uint64_t parts);

/* How long a queue may be. */
uint64_t cc_allowed_us(const struct cc *cc, const struct cc_round *round);

/* Takes part / whole from the window, but half of it at most. Slow start ends. */
void cc_shrink(struct cc *cc, uint64_t part, uint64_t whole);

/* cc_dctcp.c: after each round. True: marks have shrunk the window, and no other algorithm answers. */
bool cc_dctcp_round(struct cc *cc, uint32_t marked);

/* cc_mode.c: chooses the algorithm that answers this round. True: none does, because a probe is under way. */
bool cc_mode_round(struct cc *cc, const struct cc_round *round);

#endif /* CLIENT_CC_H */
