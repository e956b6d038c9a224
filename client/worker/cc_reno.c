// SPDX-License-Identifier: BSD-3-Clause
/*
 * cc_reno.c - the answer to loss, beside TCP: additive increase and multiplicative decrease, as Reno (RFC 5681, section 3.1)
 *
 * The RFCs': one packet more each round trip, and after a loss 0.7 of the window, which is CUBIC's factor (RFC 9438,
 * section 4.6). Ours: a round that took long counts as two round trips at most, and of two rounds with losses in
 * succession the second tells of the same ones.
 */

#include "client/worker/cc.h"

/* CONGESTION.md 4: "lets it grow by 1 for each srtt that the round took, at most two" */
static void reno_acked(struct cc *cc, const struct cc_round *round)
{
	uint64_t most_us = 2 * round->srtt_us;
	uint64_t us = round->took_us < most_us ? round->took_us : most_us;

	cc->recovering = false;
	if (round->full)
		cc_window_set(cc, cc->parts + CC_PARTS * us / round->srtt_us);
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
