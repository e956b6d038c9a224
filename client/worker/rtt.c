// SPDX-License-Identifier: BSD-3-Clause
/* rtt.c - see rtt.h; RFC 6298, section 2 */

#include "client/worker/rtt.h"

#define BEST_US 10000000  /* BBR's MinRTTFilterLen (draft-ietf-ccwg-bbr) */
#define SILENCE_PROBES 32 /* In silence a worker asks at least this often, in probe times. */

void rtt_init(struct rtt *rtt)
{
	*rtt = (struct rtt){.best_us = UINT64_MAX, .span_best_us = UINT64_MAX};
}

/* RFC 6298, section 2: the gains are an eighth and a quarter. */
static void smooth(struct rtt *rtt, uint64_t rtt_us)
{
	uint64_t distance;

	if (rtt->srtt_us == 0) {
		rtt->srtt_us = rtt_us > 0 ? rtt_us : 1;
		rtt->rttvar_us = rtt_us / 2;
		return;
	}
	distance = rtt_us > rtt->srtt_us ? rtt_us - rtt->srtt_us : rtt->srtt_us - rtt_us;
	rtt->rttvar_us = (3 * rtt->rttvar_us + distance) / 4;
	rtt->srtt_us = (7 * rtt->srtt_us + rtt_us) / 8;
	if (rtt->srtt_us == 0)
		rtt->srtt_us = 1;
}

/* CONGESTION.md 2: "the least way in this span of 10 s and in the one before" */
static void best_take(struct rtt *rtt, uint64_t way_us, uint64_t now_us)
{
	if (now_us >= rtt->span_until_us) {
		rtt->best_us = rtt->span_best_us;
		rtt->span_best_us = UINT64_MAX;
		rtt->span_until_us = now_us + BEST_US;
	}
	if (way_us < rtt->span_best_us)
		rtt->span_best_us = way_us;
	if (way_us < rtt->best_us)
		rtt->best_us = way_us;
}

void rtt_take(struct rtt *rtt, uint64_t rtt_us, uint64_t way_us, uint64_t now_us)
{
	uint64_t wait_us = rtt_us - way_us;

	smooth(rtt, rtt_us);
	best_take(rtt, way_us, now_us);
	/* CONGESTION.md 2: "moves by half of the difference when it rises, and by a 64th when it falls" */
	if (wait_us > rtt->wait_us)
		rtt->wait_us += (wait_us - rtt->wait_us) / 2;
	else
		rtt->wait_us -= (rtt->wait_us - wait_us) / 64;
}

uint64_t rtt_late_us(const struct rtt *rtt)
{
	uint64_t late = rtt->srtt_us / 8;

	if (late < RTT_LATE_US_MIN)
		return RTT_LATE_US_MIN;
	return late < RTT_LATE_US_MAX ? late : RTT_LATE_US_MAX;
}

uint64_t rtt_probe_us(const struct rtt *rtt)
{
	uint64_t probe = rtt->srtt_us + 4 * rtt->rttvar_us + rtt_late_us(rtt);

	if (rtt->srtt_us == 0)
		return RTT_PROBE_START_US;
	return probe < RTT_PROBE_MAX_US ? probe : RTT_PROBE_MAX_US;
}

uint64_t rtt_silence_us(const struct rtt *rtt, uint64_t silent_us)
{
	uint64_t most = SILENCE_PROBES * rtt_probe_us(rtt);

	most = most < RTT_PROBE_MAX_US ? most : RTT_PROBE_MAX_US;
	return silent_us < most ? silent_us : most;
}
