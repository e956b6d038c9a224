// SPDX-License-Identifier: BSD-3-Clause
/* pace.c - see pace.h; CONGESTION.md section 2 */

#include "client/worker/pace.h"

#include "ebpf/packet.h"

/* CONGESTION.md 2: "ends with the third way of a STATUS that was sent in it" */
#define ROUND_SAMPLES_MIN 3
#define MEASURE_US_MIN 500
#define MEASURE_US_MAX 10000
/* CONGESTION.md 3: "if of 256 PUSHes in succession more than a tenth was listed" */
#define LOSS_ROUND_PACKETS 256
#define LOSS_TENTH 10

static void round_begin(struct pace *pace, uint64_t now_us)
{
	pace->round = (struct pace_round){.start_us = now_us, .least_us = UINT64_MAX};
}

void pace_init(struct pace *pace, const struct pace_config *config)
{
	*pace = (struct pace){0};
	rtt_init(&pace->rtt);
	cc_init(&pace->cc, config->window_start, config->window_max, config->private_network);
	round_begin(pace, 0);
}

uint32_t pace_in_us(const struct pace *pace, uint64_t us)
{
	uint64_t srtt_us = pace->rtt.srtt_us;

	return us < srtt_us ? (uint32_t)(pace->cc.window * us / srtt_us) : pace->cc.window;
}

/* 10.1: "every third of srtt, but not before 500 us and not later than 10 ms" */
uint64_t pace_measure_us(const struct pace *pace)
{
	uint64_t us = pace->rtt.srtt_us / ROUND_SAMPLES_MIN;

	if (pace->rtt.srtt_us == 0 || !pace->round.full)
		return rtt_probe_us(&pace->rtt);
	if (pace->cc.starting && pace->cc.window < pace->cc.most)
		return pace->rtt.srtt_us;
	if (us < MEASURE_US_MIN)
		return MEASURE_US_MIN;
	return us < MEASURE_US_MAX ? us : MEASURE_US_MAX;
}

static uint32_t share_of(const struct pace_count *count)
{
	if (count->of_these >= count->packets)
		return count->of_these > 0 ? 1024 : 0;
	return (uint32_t)((uint64_t)count->of_these * 1024 / count->packets);
}

static uint64_t queued_us(const struct pace *pace)
{
	return pace->round.least_us - pace->rtt.best_us;
}

static void round_end(struct pace *pace, uint64_t now_us)
{
	const struct pace_round *r = &pace->round;
	uint32_t sent = share_of(&r->sent), received = share_of(&r->received);

	cc_round_ends(&pace->cc, &(struct cc_round){
					 .now_us = now_us,
					 .took_us = now_us - r->start_us,
					 .way_us = r->least_us,
					 .queued_us = queued_us(pace),
					 .wait_us = pace->rtt.wait_us,
					 .srtt_us = pace->rtt.srtt_us,
					 .results = r->results,
					 .lost = r->lost,
					 .missed = r->missed,
					 .marked = sent > received ? sent : received,
					 .full = r->full,
				 });
	round_begin(pace, now_us);
}

/* CONGESTION.md 2: "it ends with the first way, unless queued is from 100 to 200 us": that may be chance. */
static bool is_unsure(const struct pace *pace)
{
	return queued_us(pace) >= CC_QUEUE_US / 2 && queued_us(pace) <= CC_QUEUE_US;
}

void pace_rtt(struct pace *pace, uint64_t rtt_us, uint64_t way_us, uint64_t now_us)
{
	rtt_take(&pace->rtt, rtt_us, way_us, now_us);
	if (now_us - rtt_us < pace->round.start_us)
		return;
	if (way_us < pace->round.least_us)
		pace->round.least_us = way_us;
	if (++pace->round.samples < ROUND_SAMPLES_MIN && (!pace->cc.starting || is_unsure(pace)))
		return;
	round_end(pace, now_us);
}

/* ---- loss ---- */

void pace_unanswered(struct pace *pace)
{
	cc_lost_much(&pace->cc, 5);
}

void pace_eager(struct pace *pace, uint32_t under_way)
{
	pace->round.full = pace->round.full || under_way >= pace->cc.window;
	pace->round.sent.packets++;
}

void pace_sent(struct pace *pace, uint32_t under_way)
{
	pace_eager(pace, under_way);
	if (++pace->pushes.packets < LOSS_ROUND_PACKETS)
		return;
	if (pace->pushes.of_these * LOSS_TENTH > pace->pushes.packets)
		cc_lost_much(&pace->cc, 3);
	pace->pushes = (struct pace_count){0};
}

/* CONGESTION.md 2: "as much was under way in the round as the limit allows, or half as many RESULTs came" */
bool pace_result(struct pace *pace)
{
	bool was_full = pace->round.full;

	pace->round.results++;
	pace->round.full = was_full || 2 * pace->round.results >= pace->cc.window;
	return pace->round.full && !was_full;
}

void pace_received(struct pace *pace, bool marked)
{
	pace->round.received.packets++;
	pace->round.received.of_these += marked;
}

void pace_marked(struct pace *pace, uint32_t total)
{
	if (frame_before(pace->marked_total, total)) {
		pace->round.sent.of_these += total - pace->marked_total;
		pace->marked_total = total;
	}
}

void pace_lost(struct pace *pace, uint32_t packets)
{
	pace->pushes.of_these += packets;
	pace->round.lost += packets;
}

void pace_missed(struct pace *pace)
{
	pace->round.missed++;
}
