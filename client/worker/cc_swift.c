// SPDX-License-Identifier: BSD-3-Clause
/*
 * cc_swift.c - the answer to delay: Swift (Kumar et al., "Swift: Delay is Simple and Effective for Congestion Control in
 * the Datacenter", SIGCOMM 2020)
 *
 * The paper's: delay is the network's alone, between the stamps of both hosts, and hosts' waits are kept apart (3.1 and
 * 3.3); the target grows with 1 / sqrt(window), so that flows that share a queue come to equal windows (3.5); the window
 * grows by a packet a round trip below the target, and shrinks in proportion to the delay beyond it, by half at most
 * (3.2, algorithm 1).
 *
 * Ours: 200 us and 800 us, which suit the kernel's stamps. A wait for a CPU is bridged: where the paper keeps a second
 * window for hosts, the target is as long as they wait, until a queue of that length overflows; a bound that follows from
 * loss is also in BBR (draft-ietf-ccwg-bbr, inflight_longterm). The window shrinks by all that queues, not by what
 * exceeds the target, so that a flow that comes late gets its part within twenty round trips. Slow start lasts until
 * delay tells of a queue, as in HyStart++ (RFC 9406). While nothing queues the window grows by a sixteenth, for ways of
 * 100 ms. Where the paper's window shrinks for a loss, ours does not, because the loss may be chance.
 */

#include "client/worker/cc.h"

#define SPREAD_US 800 /* more for a window of 1, half of that for one of 4 */
#define ROOT_OF_PARTS 16

/* CONGESTION.md 2: "allowed plus 800 us divided by the square root of the limit" */
static uint64_t target_us(const struct cc *cc, const struct cc_round *round)
{
	uint64_t root = 1;

	while ((root + 1) * (root + 1) <= cc->parts)
		root++;
	return cc_allowed_us(cc, round) + SPREAD_US * ROOT_OF_PARTS / root;
}

/* CONGESTION.md 3: "grows: by a sixteenth, at least 1, while queued is below 100 us; else by 1" */
static void swift_grow(struct cc *cc, const struct cc_round *round, bool little)
{
	uint32_t part = little ? cc->parts / 16 : 0;

	cc->starting = cc->starting && little;
	if (cc->starting && 2 * round->results >= cc->window)
		cc_window_set(cc, 2 * (uint64_t)cc->parts);
	else if (!cc->starting && round->full)
		cc_window_set(cc, (uint64_t)cc->parts + (part > CC_PARTS ? part : CC_PARTS));
}

static void swift_acked(struct cc *cc, const struct cc_round *round)
{
	if (round->queued_us > target_us(cc, round))
		cc_shrink(cc, round->queued_us,
		          round->srtt_us > round->way_us ? round->srtt_us : round->way_us);
	else
		swift_grow(cc, round, round->queued_us < CC_QUEUE_US / 2);
}

/* CONGESTION.md 2: "A loss (section 4) makes it half of queued, if that is less" */
static void swift_lost(struct cc *cc, const struct cc_round *round)
{
	if (round->queued_us / 2 < cc->bridge_us)
		cc->bridge_us = round->queued_us / 2;
	swift_acked(cc, round);
}

const struct cc_algorithm cc_swift = {swift_acked, swift_lost};
