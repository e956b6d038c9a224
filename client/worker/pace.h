/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pace.h - how long to wait, and how much to have under way
 *
 * The retransmission timer of RFC 6298, with a minimum that suits a data centre, and a window that
 * shrinks when this reduces loss. Random loss does not react: when halving the window does not
 * lower the loss ratio, the ratio becomes the base line and the window goes back, so a link that
 * loses 5 % of everything still runs full. Pure: time comes in as an argument, in microseconds of
 * any clock that does not run backwards.
 */
#ifndef AGGREGATOR_NET_PACE_H
#define AGGREGATOR_NET_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define PACE_RTO_MIN_US 2000
#define PACE_RTO_START_US 20000
#define PACE_RTO_MAX_US 400000
#define PACE_BACKOFF_MAX 2 /* doublings */

struct pace {
	uint64_t srtt_us; /* 0 before the first sample */
	uint64_t rttvar_us;
	uint32_t backoff; /* doublings since progress was last seen */

	uint32_t window; /* packets that may be under way */
	uint32_t window_min, window_max;

	/* The round under way: what was sent and lost in it. */
	uint64_t round_start_us;
	uint32_t round_sent, round_lost;

	uint32_t loss_base;  /* loss per 1024 that is taken for the link's own */
	bool shrinking;      /* loss is being answered */
	bool grown;          /* the first doubling phase is over */
	uint32_t mark;       /* window when shrinking began */
	uint32_t mark_ratio; /* loss per 1024 then */
};

void pace_init(struct pace *pace, uint32_t window_start, uint32_t window_max);

/* A round trip was measured. */
void pace_rtt(struct pace *pace, uint64_t rtt_us);

/* How long to wait now before asking again: with back-off, and without. */
uint64_t pace_rto_us(const struct pace *pace);
uint64_t pace_base_us(const struct pace *pace);

/* When a packet that another one has overtaken is taken for lost. */
uint64_t pace_late_us(const struct pace *pace);

/* A time-out passed, or something arrived. */
void pace_timeout(struct pace *pace);
void pace_progress(struct pace *pace);

/* Count packets; ends a round when it is due and adapts the window. */
void pace_sent(struct pace *pace, uint32_t packets, uint64_t now_us);
void pace_lost(struct pace *pace, uint32_t packets);

#endif /* AGGREGATOR_NET_PACE_H */
