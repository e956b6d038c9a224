// SPDX-License-Identifier: BSD-3-Clause
/* cc.c - see cc.h; CONGESTION.md sections 1, 3 and 6 */

#include "client/worker/cc.h"

#define BRIDGE_US_MAX 4000 /* as long as a host may wait for a CPU */
#define WINDOW_MIN 2       /* CONGESTION.md 1: "It is never below 2 or above START's window" */

void cc_window_set(struct cc *cc, uint64_t parts)
{
	uint64_t least = (uint64_t)cc->least * CC_PARTS, most = (uint64_t)cc->most * CC_PARTS;

	parts = parts < least ? least : parts;
	cc->parts = (uint32_t)(parts < most ? parts : most);
	cc->window = cc->parts / CC_PARTS;
}

/* CONGESTION.md 3: "changes the limit, by half at most" */
static uint32_t shrunk(uint32_t parts, uint64_t part, uint64_t whole)
{
	uint64_t cut = parts * part / whole;

	return parts - (cut < parts / 2 ? (uint32_t)cut : parts / 2);
}

/* CONGESTION.md 4: "less what marks and the two signs of loss have taken from it meanwhile" */
void cc_shrink(struct cc *cc, uint64_t part, uint64_t whole)
{
	cc->starting = cc->mode.slow = false;
	if (cc->mode.probing > 0)
		cc->mode.parts = shrunk(cc->mode.parts, part, whole);
	cc_window_set(cc, shrunk(cc->parts, part, whole));
}

void cc_init(struct cc *cc, uint32_t start, uint32_t most, bool alone)
{
	*cc = (struct cc){
		.algorithm = &cc_swift,
		.least = WINDOW_MIN < most ? WINDOW_MIN : most,
		.most = most,
		.alone = alone,
		.starting = true,
		.alpha = 1024,
		.bridge_us = BRIDGE_US_MAX,
	};
	cc_window_set(cc, (uint64_t)start * CC_PARTS);
}

/* CONGESTION.md 2: "the lesser of wait and bridge, but at least 200 us" */
uint64_t cc_allowed_us(const struct cc *cc, const struct cc_round *round)
{
	/* CONGESTION.md 6: "its wait counts as 4 ms": datagrams that come in bursts take less of a CPU. */
	uint64_t wait_us = cc->alone ? BRIDGE_US_MAX : round->wait_us;
	uint64_t us = wait_us < cc->bridge_us ? wait_us : cc->bridge_us;

	return us > CC_QUEUE_US ? us : CC_QUEUE_US;
}

/*
 * CONGESTION.md 4: "A round has a loss if it lost a PUSH, or up to a fifth of its RESULTs, while more than 200 us queued":
 * where nothing queues, loss is chance, and where more is lost no window helps.
 */
static bool has_loss(const struct cc_round *round)
{
	bool missed = round->missed > 0 && 4 * round->missed <= round->results;

	return (round->lost > 0 || missed) && round->queued_us > CC_QUEUE_US;
}

/* CONGESTION.md 2: "each round it grows by a 4096th of itself plus 1 us, up to 4 ms" */
static void bridge_grow(struct cc *cc)
{
	cc->bridge_us += cc->bridge_us / 4096 + 1;
	if (cc->bridge_us > BRIDGE_US_MAX)
		cc->bridge_us = BRIDGE_US_MAX;
}

void cc_round_ends(struct cc *cc, const struct cc_round *round)
{
	bridge_grow(cc);
	if (cc_dctcp_round(cc, round->marked) || cc_mode_round(cc, round))
		return;
	if (has_loss(round))
		cc->algorithm->on_lost(cc, round);
	else
		cc->algorithm->on_acked(cc, round);
}

/* CONGESTION.md 6: "Section 4, but for what a loss is, and the two signs of loss do not apply then" */
void cc_lost_much(struct cc *cc, uint32_t tenths)
{
	if (!cc->alone)
		cc_shrink(cc, tenths, 10);
}
