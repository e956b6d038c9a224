// SPDX-License-Identifier: BSD-3-Clause
/*
 * cc_reno.c - the answer to loss, beside TCP: additive increase and multiplicative decrease, as Reno (RFC 5681, section 3.1)
 *
 * The RFCs': slow start until the first loss, or until the queue has become longer (HyStart++, RFC 9406): who comes after
 * TCP has a small window, and one packet more each round trip makes it fair in many seconds only. Then one packet more each
 * round trip, and after a loss 0.7 of the window, which is CUBIC's factor (RFC 9438, section 4.6). Ours: a round that took
 * long counts as two round trips at most, and of two rounds with losses in succession the second tells of the same ones.
 */

#include "client/worker/cc.h"

#define SLOW_US 4000 /* MIN_RTT_THRESH of HyStart++ (RFC 9406) */

/* CONGESTION.md 4: "lets it grow by 1 for each srtt that the round took, at most two" */
static void reno_acked(struct cc *cc, const struct cc_round *round)
{
	uint64_t most_us = 2 * round->srtt_us;
	uint64_t us = round->took_us < most_us ? round->took_us : most_us;
	uint64_t grown = CC_PARTS * us / round->srtt_us;

	cc->recovering = false;
	/* CONGESTION.md 4: "doubles, until the first loss or mark, or until queued is 4 ms above the shortest" */
	if (round->queued_us > cc->mode.least_us + SLOW_US)
		cc->mode.slow = false;
	if (round->full)
		cc_window_set(cc, cc->parts + (cc->mode.slow ? cc->parts : grown));
}

/* CONGESTION.md 4: "It shrinks the limit by 3 tenths, unless the round before did" */
static void reno_lost(struct cc *cc, const struct cc_round *round)
{
	(void)round;
	if (!cc->recovering)
		cc_shrink(cc, 3, 10);
	cc->recovering = !cc->recovering;
}

const struct cc_algorithm cc_reno = {reno_acked, reno_lost};
