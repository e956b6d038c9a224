// SPDX-License-Identifier: BSD-3-Clause
/*
 * cc_mode.c - which algorithm answers: Swift, or beside TCP Reno
 *
 * TCP fills whatever queue there is, so a window that answers delay starves beside it. Copa (Arun and Balakrishnan,
 * "Copa: Practical Delay-Based Congestion Control for the Internet", NSDI 2018, section 2.2) looks whether the queue has
 * been nearly empty in the last few round trips, as it would be if all others answered delay. If not, it competes as TCP
 * does until the queue has been. Ours: a queue is long from 1 ms on, if it is longer than allowed. It is others' if it
 * stays long although the window has shrunk to a quarter.
 *
 * Who comes after TCP has never seen the queue empty, and takes the bottom of TCP's sawtooth for that. Ours: the least way
 * is sure where it is at most a quarter of the longest, since a loss leaves half of that. So it is where no shorter one is
 * seen when this window makes room.
 *
 * Windows that compete may take each other for TCP. A BBR flow (draft-ietf-ccwg-bbr, ProbeRTT) makes room for a moment
 * when it has seen no shorter round trip for some seconds. All flows that share a queue come to do so at the same time,
 * because each sees the room that another one makes. Ours: a quarter of the window, for three rounds. With a quarter of
 * each window the queue is at most three eighths of what it was, unless TCP is there.
 */

#include "client/worker/cc.h"

#define LONG_US 1000
#define PROBE_US 10000000 /* BBR's MinRTTFilterLen; its draft probes every 5 s */
#define PROBE_ROUNDS 3

static void mode_swift(struct cc *cc)
{
	cc->algorithm = &cc_swift;
	cc->mode = (struct cc_mode){0};
}

static void mode_reno(struct cc *cc, uint64_t queued_us, uint64_t now_us)
{
	cc_window_set(cc, cc->mode.parts);
	cc->mode = (struct cc_mode){
		.least_us = queued_us, .seen_us = now_us, .slow = cc->algorithm == &cc_swift};
	cc->algorithm = &cc_reno;
	cc->recovering = false;
}

/* While Swift answers. CONGESTION.md 4: "A queue is long if queued is 1 ms or more, and above allowed" */
static void queue_judge(struct cc *cc, const struct cc_round *round)
{
	struct cc_mode *mode = &cc->mode;

	if (round->queued_us < LONG_US || round->queued_us <= cc_allowed_us(cc, round)) {
		mode->parts = 0;
		return;
	}
	if (mode->parts == 0) {
		mode->parts = cc->parts;
		mode->queued_us = round->queued_us;
		return;
	}
	/* CONGESTION.md 4: "has shrunk to a quarter of that, or is 2, and the queue is still long" */
	if (cc->parts > mode->parts / 4 && cc->window > cc->least)
		return;
	/* CONGESTION.md 4: "if queued is more than a quarter shorter than remembered" */
	if (4 * round->queued_us < 3 * mode->queued_us)
		mode->queued_us = round->queued_us;
	else
		mode_reno(cc, round->queued_us, round->now_us);
}

/* The least way that is known. */
static uint64_t base_us(const struct cc_round *round)
{
	return round->way_us - round->queued_us;
}

/* CONGESTION.md 4: "the least way is sure: at most a quarter of the longest least since" */
static bool is_sure(const struct cc *cc, const struct cc_round *round)
{
	return 4 * base_us(round) <= cc->mode.longest_us;
}

/* At a probe's end: no queue is left, and none was hidden in the least way. Or what is left is what workers leave. */
static bool has_made_room(const struct cc *cc, const struct cc_round *round)
{
	/* CONGESTION.md 4: "if it is at most 200 us, and the least way has fallen by no more" */
	if (round->queued_us <= CC_QUEUE_US && base_us(round) + CC_QUEUE_US >= cc->mode.base_us)
		return true;
	/* CONGESTION.md 4: "at most three eighths of what it was, and the least way is sure" */
	return 8 * round->queued_us <= 3 * cc->mode.queued_us && is_sure(cc, round);
}

/*
 * While Reno answers: true if a probe takes this round. CONGESTION.md 4: "a worker that has seen no shorter queued for
 * 10 s takes a quarter of its limit for three rounds".
 */
static bool probe_round(struct cc *cc, const struct cc_round *round)
{
	struct cc_mode *mode = &cc->mode;

	if (mode->probing == 0) {
		if (round->queued_us < mode->least_us) {
			mode->least_us = round->queued_us;
			mode->seen_us = round->now_us;
		}
		if (round->now_us - mode->seen_us < PROBE_US)
			return false;
		mode->probing = PROBE_ROUNDS;
		mode->parts = cc->parts;
		mode->queued_us = round->queued_us;
		mode->base_us = base_us(round);
		cc_window_set(cc, cc->parts / 4);
		return true;
	}
	if (--mode->probing > 0)
		return true;
	if (has_made_room(cc, round)) {
		mode_swift(cc);
		return false;
	}
	mode_reno(cc, round->queued_us, round->now_us);
	return true;
}

bool cc_mode_round(struct cc *cc, const struct cc_round *round)
{
	if (cc->alone)
		return false;
	if (cc->algorithm == &cc_swift) {
		queue_judge(cc, round);
		return false;
	}
	if (round->way_us > cc->mode.longest_us)
		cc->mode.longest_us = round->way_us;
	/* CONGESTION.md 4: "Delay then does not count until queued is not above allowed, and the least way is sure" */
	if (round->queued_us > cc_allowed_us(cc, round) || !is_sure(cc, round))
		return probe_round(cc, round);
	mode_swift(cc);
	return false;
}
