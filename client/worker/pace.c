// SPDX-License-Identifier: BSD-3-Clause
/* pace.c - see pace.h; PROTOCOL.md section 10 states the same rules in words */

#include "client/worker/pace.h"

#include "ebpf/wire.h"

#define WINDOW_FLOOR 8
#define ROUND_PACKETS_MIN 64 /* fewer say nothing about a loss ratio of a few per cent */
#define ROUND_US_MIN 1000
#define SLACK_PER_1024 10 /* loss above 1.5 times the base line that is not yet a sign */

void pace_init(struct pace *pace, uint32_t window_start, uint32_t window_max)
{
	*pace = (struct pace){
		.window_max = window_max,
		.window_min = WINDOW_FLOOR < window_max ? WINDOW_FLOOR : window_max,
	};
	pace->window = window_start < window_max ? window_start : window_max;
	if (pace->window < pace->window_min)
		pace->window = pace->window_min;
}

void pace_rtt(struct pace *pace, uint64_t rtt_us)
{
	uint64_t distance;

	if (pace->srtt_us == 0) {
		pace->srtt_us = rtt_us > 0 ? rtt_us : 1;
		pace->rttvar_us = rtt_us / 2;
		return;
	}
	distance = rtt_us > pace->srtt_us ? rtt_us - pace->srtt_us : pace->srtt_us - rtt_us;
	pace->rttvar_us = (3 * pace->rttvar_us + distance) / 4;
	pace->srtt_us = (7 * pace->srtt_us + rtt_us) / 8;
	if (pace->srtt_us == 0)
		pace->srtt_us = 1;
}

uint64_t pace_base_us(const struct pace *pace)
{
	uint64_t rto = PACE_RTO_START_US;

	if (pace->srtt_us > 0)
		rto = pace->srtt_us + 4 * pace->rttvar_us;
	if (rto < PACE_RTO_MIN_US)
		return PACE_RTO_MIN_US;
	return rto < PACE_RTO_MAX_US ? rto : PACE_RTO_MAX_US;
}

uint64_t pace_rto_us(const struct pace *pace)
{
	uint64_t rto = pace_base_us(pace) << pace->backoff;

	return rto < PACE_RTO_MAX_US ? rto : PACE_RTO_MAX_US;
}

uint64_t pace_late_us(const struct pace *pace)
{
	uint64_t late = pace->srtt_us / 8;

	if (late < WIRE_LATE_US_MIN)
		return WIRE_LATE_US_MIN;
	return late < WIRE_LATE_US_MAX ? late : WIRE_LATE_US_MAX;
}

void pace_timeout(struct pace *pace)
{
	if (pace->backoff < PACE_BACKOFF_MAX)
		pace->backoff++;
}

void pace_progress(struct pace *pace)
{
	pace->backoff = 0;
}

static void window_grow(struct pace *pace)
{
	uint32_t step = pace->grown ? pace->window / 8 : pace->window;

	step = step > 0 ? step : 1;
	pace->window =
		pace->window_max - pace->window < step ? pace->window_max : pace->window + step;
}

static void window_shrink(struct pace *pace, uint32_t ratio)
{
	uint32_t window = pace->window - pace->window * 3 / 10;

	pace->grown = true;
	if (!pace->shrinking) {
		pace->shrinking = true;
		pace->mark = pace->window;
		pace->mark_ratio = ratio;
	}
	if ((pace->window <= pace->mark / 2 || pace->window == pace->window_min) &&
	    ratio >= pace->mark_ratio - pace->mark_ratio / 4) {
		pace->loss_base = ratio;
		pace->window = pace->mark;
		pace->shrinking = false;
		return;
	}
	pace->window = window > pace->window_min ? window : pace->window_min;
}

static void end_round(struct pace *pace)
{
	uint32_t ratio = (uint32_t)((uint64_t)pace->round_lost * 1024 / pace->round_sent);

	if (ratio > pace->loss_base + pace->loss_base / 2 + SLACK_PER_1024) {
		window_shrink(pace, ratio);
		return;
	}
	pace->shrinking = false;
	if (ratio < pace->loss_base)
		pace->loss_base -= (pace->loss_base - ratio + 15) / 16;
	window_grow(pace);
}

void pace_sent(struct pace *pace, uint32_t packets, uint64_t now_us)
{
	uint64_t round_us = pace->srtt_us > ROUND_US_MIN ? pace->srtt_us : ROUND_US_MIN;

	pace->round_sent += packets;
	if (pace->round_start_us == 0)
		pace->round_start_us = now_us; /* the first round begins with its first packet */
	if (now_us - pace->round_start_us < round_us)
		return;
	/* Slow start needs no loss ratio: a round without loss, however small, doubles. */
	if (pace->round_sent < ROUND_PACKETS_MIN && (pace->grown || pace->round_lost > 0))
		return;
	end_round(pace);
	pace->round_start_us = now_us;
	pace->round_sent = 0;
	pace->round_lost = 0;
}

void pace_lost(struct pace *pace, uint32_t packets)
{
	pace->round_lost += packets;
}
