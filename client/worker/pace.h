/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pace.h - how long to wait, and how much to have under way
 *
 * Cuts time into rounds and notes what each shows; the round trip's estimates are in rtt.h, and cc.h moves the window by
 * what a round has shown. Pure: time comes in as an argument, in microseconds of any clock that does not run backwards.
 */
#ifndef CLIENT_PACE_H
#define CLIENT_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/worker/cc.h"
#include "client/worker/rtt.h"

struct pace_count {
	uint32_t packets;
	uint32_t of_these; /* Those that came marked, or were lost. */
};

/* The round under way: a few round trips. */
struct pace_round {
	uint64_t start_us;
	uint64_t least_us; /* The shortest way there and back. */
	uint32_t samples;
	uint32_t results;
	bool full;                        /* The window has held us up in it. */
	struct pace_count sent, received; /* Of these came marked. */
	uint32_t lost;                    /* PUSHes. */
	uint32_t missed;                  /* RESULTs. */
};

struct pace {
	struct rtt rtt;
	struct cc cc;
	struct pace_round round;
	struct pace_count pushes; /* Of these were lost. Loss has longer rounds of its own. */
	uint32_t marked_total;    /* Datagrams of ours that came marked, as last told. */
};

struct pace_config {
	uint32_t window_start, window_max;
	bool private_network;
};
void pace_init(struct pace *pace, const struct pace_config *config);

/*
 * A round trip was measured, of which `way_us` were spent in the network. Ends a round when it is
 * due, and adapts the window.
 */
void pace_rtt(struct pace *pace, uint64_t rtt_us, uint64_t way_us, uint64_t now_us);

/* How long to wait before asking again, while packets are under way and news comes. */
uint64_t pace_measure_us(const struct pace *pace);

/* How many packets leave in so many microseconds, as far as the window lets them: it lasts for a round trip. */
uint32_t pace_in_us(const struct pace *pace, uint64_t us);

/* CONGESTION.md 3: "by half, if a STATUS that asked in a silence (10.4) has no answer before the next one in it" */
void pace_unanswered(struct pace *pace);

/* A PUSH was sent, or an eager announcement, whose loss nobody reports; with it `under_way` packets are under way. */
void pace_sent(struct pace *pace, uint32_t under_way);
void pace_eager(struct pace *pace, uint32_t under_way);

/* A RESULT came. True: with it the round has become full, so it is time to measure. */
bool pace_result(struct pace *pace);

void pace_received(struct pace *pace, bool marked);

/* `total` of our datagrams have come marked. Some PUSHes were lost; a RESULT was lost. */
void pace_marked(struct pace *pace, uint32_t total);
void pace_lost(struct pace *pace, uint32_t packets);
void pace_missed(struct pace *pace);

#endif /* CLIENT_PACE_H */
