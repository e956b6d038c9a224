// SPDX-License-Identifier: BSD-3-Clause
/* pace.c - see pace.h; CONGESTION.md sections 1, 2, 3, 4, 5 and 7 */

#include "client/worker/pace.h"

#include "ebpf/packet.h"

/* CONGESTION.md 2: "ends with the third way of a STATUS that was sent in it" */
#define ROUND_SAMPLES_MIN 3
#define MEASURE_US_MIN 500
#define MEASURE_US_MAX 10000
#define RTT_SPAN_US 500000
#define TARGET_US 200
#define TARGET_PRIVATE_US 4000 /* as long as a host may wait for a CPU */
#define TARGET_SPREAD_US 800   /* more for a window of 1, half of that for one of 4 */
#define LONG_US 1000           /* a queue that may not be ours */
#define FAR_US 2000            /* a way that may be others' queue */
#define PATIENCE_US 100000     /* others of us need as long to leave it */
#define LOOK_US 16000000       /* all look at once whether a long queue is theirs, */
#define EMPTY_ROUNDS 3         /* for so long */
#define PARTS 256              /* of a packet */
#define ROOT_OF_PARTS 16
#define LOSS_PART 3            /* tenths: what a window loses */
#define LOSS_ROUND_PACKETS 256 /* CONGESTION.md 3: "Of every 256 PUSHes a worker takes the ratio" */
#define LOSS_SPAN 16           /* rounds */
#define LOSS_AT_FIRST 51       /* per 1024: taken for the path's own until more is known, */
#define LOSS_SLACK 51          /* and what may come on top of twice the path's own */

static void window_set(struct pace *pace, uint64_t parts)
{
	uint64_t least = (uint64_t)pace->window_min * PARTS;
	uint64_t most = (uint64_t)pace->window_max * PARTS;

	parts = parts < least ? least : parts;
	pace->parts = (uint32_t)(parts < most ? parts : most);
	pace->window = pace->parts / PARTS;
}

void pace_init(struct pace *pace, const struct pace_config *config)
{
	uint32_t most = config->window_max;

	*pace = (struct pace){
		.window_max = most,
		.private_network = config->private_network,
		.empty.epoch_us = config->epoch_us,
		.window_min = PACE_WINDOW_MIN < most ? PACE_WINDOW_MIN : most,
		.doubling = true,
		.marked_share = 1024,
		.round.least_us = UINT64_MAX,
		.best_us = UINT64_MAX,
		.path_us = {.here = UINT64_MAX, .before = UINT64_MAX},
		.loss.least = {.until = LOSS_SPAN, .here = LOSS_AT_FIRST, .before = LOSS_AT_FIRST},
	};
	window_set(pace, (uint64_t)PARTS * config->window_start);
}

static uint64_t least_of(const struct pace_least *least)
{
	return least->here < least->before ? least->here : least->before;
}

static void least_take(struct pace_least *least, uint64_t value, uint64_t now, uint64_t span)
{
	if (now >= least->until) {
		least->before = least->here;
		least->here = value;
		least->until = now + span;
	}
	if (value < least->here)
		least->here = value;
}

/* ---- round trips ---- */

static void rtt_smooth(struct pace *pace, uint64_t rtt_us)
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

uint64_t pace_late_us(const struct pace *pace)
{
	uint64_t late = pace->srtt_us / 8;

	if (late < PACE_LATE_US_MIN)
		return PACE_LATE_US_MIN;
	return late < PACE_LATE_US_MAX ? late : PACE_LATE_US_MAX;
}

uint64_t pace_probe_us(const struct pace *pace)
{
	uint64_t probe = pace->srtt_us + 4 * pace->rttvar_us + pace_late_us(pace);

	if (pace->srtt_us == 0)
		return PACE_PROBE_START_US;
	return probe < PACE_PROBE_MAX_US ? probe : PACE_PROBE_MAX_US;
}

uint64_t pace_silence_us(const struct pace *pace, uint64_t silent_us)
{
	uint64_t most = PACE_SILENCE_PROBES * pace_probe_us(pace);

	most = most < PACE_PROBE_MAX_US ? most : PACE_PROBE_MAX_US;
	return silent_us < most ? silent_us : most;
}

uint32_t pace_in_us(const struct pace *pace, uint64_t us)
{
	return us < pace->srtt_us ? (uint32_t)(pace->window * us / pace->srtt_us) : pace->window;
}

/* 10.1: "every third of srtt, but not before 500 us and not later than 10 ms" */
uint64_t pace_measure_us(const struct pace *pace)
{
	uint64_t us = pace->srtt_us / ROUND_SAMPLES_MIN;

	if (pace->srtt_us == 0 || !pace->round.full)
		return pace_probe_us(pace);
	if (pace->doubling && pace->window < pace->window_max)
		return pace->srtt_us;
	if (us < MEASURE_US_MIN)
		return MEASURE_US_MIN;
	return us < MEASURE_US_MAX ? us : MEASURE_US_MAX;
}

/* ---- the window ---- */

/* CONGESTION.md 7: "Then 4 ms take the place of the 200 us in allowed, and 2 ms that of 100 us" */
static uint64_t allowed_us(const struct pace *pace)
{
	return pace->private_network ? TARGET_PRIVATE_US : TARGET_US;
}

/*
 * CONGESTION.md 2: "200 us, and 800 us divided by the square root of the limit". Where many share a queue each has a
 * small window, and one that has less than the others is to grow.
 */
static uint64_t target_us(const struct pace *pace)
{
	uint64_t root = 1;

	while ((root + 1) * (root + 1) <= pace->parts)
		root++;
	return allowed_us(pace) + TARGET_SPREAD_US * ROOT_OF_PARTS / root;
}

/*
 * CONGESTION.md 3: "grows: by a sixteenth, at least 1, while queued is below 100 us; else by 1, and doubling has ended".
 * So a fast link fills soon, and those who share a queue come to have equal parts of it.
 */
static void window_grow(struct pace *pace, uint64_t excess_us)
{
	uint32_t step = PARTS;
	bool far = excess_us < allowed_us(pace) / 2;

	pace->doubling = pace->doubling && far;
	if (pace->doubling)
		step = pace->parts;
	else if (far && pace->parts / 16 > step)
		step = pace->parts / 16;
	window_set(pace, (uint64_t)pace->parts + step);
}

/* CONGESTION.md 3: "changes the limit, by half at most, but for the look" */
static void window_shrink(struct pace *pace, uint64_t part, uint64_t whole)
{
	uint64_t cut = pace->parts * part / whole;

	pace->doubling = false;
	window_set(pace, pace->parts - (cut < pace->parts / 2 ? cut : pace->parts / 2));
}

static uint32_t share_of(const struct pace_marks *marks)
{
	if (marks->marked >= marks->packets)
		return marks->marked > 0 ? 1024 : 0;
	return (uint32_t)((uint64_t)marks->marked * 1024 / marks->packets);
}

/* CONGESTION.md 2: "a mean that begins at 1 and moves by a sixteenth of the difference each round", as DCTCP's. */
static bool marks_look(struct pace *pace)
{
	uint32_t sent = share_of(&pace->round.sent), received = share_of(&pace->round.received);
	uint32_t share = sent > received ? sent : received;

	pace->marked_share = (15 * pace->marked_share + share + 15) / 16;
	pace->round.sent = pace->round.received = (struct pace_marks){0};
	return share > 0;
}

/* CONGESTION.md 2: "If best is 2 ms or more, which may be others' queue, all of least" */
static bool is_far(const struct pace *pace)
{
	return pace->best_us >= FAR_US;
}

static uint64_t queued_us(const struct pace *pace)
{
	return pace->round.least_us - (is_far(pace) ? 0 : pace->best_us);
}

/*
 * CONGESTION.md 5: "Two jobs may take each other for TCP. At each multiple of 16 s since 1970, by its host's clock, a
 * worker whose long is 1 ms or more, and limit above 2, takes a quarter of its limit for three rounds. If long is then at
 * most three eighths of what it was, the queue was that of workers".
 */
static bool is_emptying(struct pace *pace, uint64_t now_us)
{
	if (pace->empty.rounds > 0) {
		if (--pace->empty.rounds > 0)
			return true;
		if (8 * queued_us(pace) > 3 * pace->empty.queued_us) {
			window_set(pace, pace->empty.parts);
			return true;
		}
	} else {
		bool first = pace->empty.due_us == 0;

		if (now_us < pace->empty.due_us)
			return false;
		pace->empty.due_us = now_us + LOOK_US - (now_us + pace->empty.epoch_us) % LOOK_US;
		if (first)
			return false;
	}
	if (queued_us(pace) < LONG_US || pace->private_network ||
	    pace->window <= pace->window_min) {
		pace->rivals.contending = false;
		return false;
	}
	pace->empty.rounds = EMPTY_ROUNDS;
	pace->empty.parts = pace->parts;
	pace->empty.queued_us = queued_us(pace);
	pace->rivals.parts = 0;
	window_set(pace, pace->parts / 4);
	return true;
}

/*
 * CONGESTION.md 4. TCP fills whatever queue there is: to leave it more would only starve us. A shallow queue of TCP's
 * is half as long after each loss, and as long as before soon.
 */
static bool is_contended(struct pace *pace, uint64_t excess_us, uint64_t now_us)
{
	uint64_t queued = queued_us(pace);

	if (pace->rivals.contending)
		return true;
	if (pace->private_network || (pace->rivals.parts == 0 && queued < LONG_US))
		return false;
	/* CONGESTION.md 4: "It forgets them when long is not above allowed" */
	if (queued <= target_us(pace) || (is_far(pace) && excess_us < allowed_us(pace) / 2)) {
		pace->rivals.parts = 0;
		return false;
	}
	if (pace->rivals.parts == 0)
		pace->rivals.patient_us = now_us + PATIENCE_US;
	if (pace->rivals.parts < pace->parts) {
		pace->rivals.parts = pace->parts;
		pace->rivals.queued_us = queued;
	}
	/* CONGESTION.md 4: "When the limit has shrunk to a quarter of the largest, or to 2" */
	if (pace->parts > pace->rivals.parts / 4 && pace->window > pace->window_min)
		return false;
	if (queued < pace->rivals.queued_us - pace->rivals.queued_us / 4) {
		/* CONGESTION.md 4: "the queue was its own. It remembers the new long" */
		pace->rivals.queued_us = queued;
		pace->rivals.patient_us = now_us + PATIENCE_US;
	}
	if (now_us < pace->rivals.patient_us || queued < LONG_US)
		return false;
	/* CONGESTION.md 4: "the queue is TCP's. The limit returns to the largest. Then delay does not count" */
	window_set(pace, pace->rivals.parts);
	pace->rivals.parts = 0;
	pace->rivals.contending = true;
	return true;
}

/*
 * CONGESTION.md 4: "A round has a loss if it lost a PUSH, or up to a fifth of its RESULTs": where more is lost no window
 * helps. CONGESTION.md 4: "It shrinks the limit by 3 tenths, unless the round before did. A full round without a loss
 * lets it grow by 1 for each srtt that the round took, at most two", as TCP.
 */
static void queue_contend(struct pace *pace, uint64_t round_us)
{
	uint64_t queued = pace->round.least_us - pace->best_us;
	bool missed = pace->round.missed > 0 && 4 * pace->round.missed <= pace->round.results;
	bool lost = (pace->round.lost > 0 || missed) && queued > TARGET_US;

	if (round_us > 2 * pace->srtt_us)
		round_us = 2 * pace->srtt_us;
	if (lost && !pace->rivals.recovering)
		window_shrink(pace, LOSS_PART, 10);
	else if (!lost && pace->round.full)
		window_set(pace, pace->parts + PARTS * round_us / pace->srtt_us);
	pace->rivals.recovering = lost && !pace->rivals.recovering;
}

/* CONGESTION.md 2: "as much was under way in the round as the limit allows, or half as many RESULTs came" */
static bool is_used(const struct pace *pace)
{
	return 2 * pace->round.results >= pace->window;
}

/* CONGESTION.md 7: "If a PUSH of a round was lost and queued is above 200 us": where nothing queues, loss is chance. */
static bool has_overflowed(const struct pace *pace, uint64_t excess_us)
{
	return pace->private_network && pace->round.lost > 0 && excess_us > TARGET_US;
}

static void end_round(struct pace *pace, uint64_t now_us)
{
	uint64_t excess_us = pace->round.least_us - least_of(&pace->path_us);
	/* CONGESTION.md 3: "shrinks by queued / max(srtt, least) of itself" */
	uint64_t rtt_us =
		pace->srtt_us > pace->round.least_us ? pace->srtt_us : pace->round.least_us;

	if (marks_look(pace))
		window_shrink(pace, pace->marked_share, 2048);
	else if (is_emptying(pace, now_us))
		pace->doubling = false;
	else if (is_contended(pace, excess_us, now_us))
		queue_contend(pace, now_us - pace->round.start_us);
	else if (excess_us > target_us(pace))
		window_shrink(pace, excess_us, rtt_us);
	else if (has_overflowed(pace, excess_us))
		window_shrink(pace, LOSS_PART, 10);
	else if (pace->doubling && excess_us < allowed_us(pace) / 2 ? is_used(pace)
	                                                            : pace->round.full)
		window_grow(pace, excess_us);
}

/* CONGESTION.md 2: "it ends with the first way, unless queued is from 100 us to allowed": that may be chance. */
static bool is_unsure(const struct pace *pace)
{
	uint64_t excess_us = pace->round.least_us - least_of(&pace->path_us);

	return excess_us >= allowed_us(pace) / 2 && excess_us <= target_us(pace);
}

void pace_rtt(struct pace *pace, uint64_t rtt_us, uint64_t path_us, uint64_t now_us)
{
	rtt_smooth(pace, rtt_us);
	least_take(&pace->path_us, path_us, now_us, RTT_SPAN_US);
	if (path_us < pace->best_us)
		pace->best_us = path_us;
	if (now_us - rtt_us < pace->round.start_us)
		return;
	if (path_us < pace->round.least_us)
		pace->round.least_us = path_us;
	if (++pace->round.samples < ROUND_SAMPLES_MIN && (!pace->doubling || is_unsure(pace)))
		return;
	end_round(pace, now_us);
	pace->round.start_us = now_us;
	pace->round.least_us = UINT64_MAX;
	pace->round.samples = 0;
	pace->round.lost = pace->round.missed = 0;
	pace->round.full = false;
	pace->round.results = 0;
}

/* ---- loss ---- */

/* CONGESTION.md 7: "Sections 4 and 5 and both signs of loss do not apply" */
void pace_unanswered(struct pace *pace)
{
	if (!pace->private_network)
		window_shrink(pace, 1, 1);
}

void pace_eager(struct pace *pace, uint32_t under_way)
{
	pace->round.full = pace->round.full || under_way >= pace->window;
	pace->round.sent.packets++;
}

void pace_sent(struct pace *pace, uint32_t under_way)
{
	uint32_t ratio;

	pace_eager(pace, under_way);
	if (++pace->loss.sent < LOSS_ROUND_PACKETS)
		return;
	ratio = (uint32_t)((uint64_t)pace->loss.lost * 1024 / pace->loss.sent);
	/* CONGESTION.md 3: "above 5 % plus twice the least of the last 16 ratios and of the 16 before" */
	if (ratio > 2 * least_of(&pace->loss.least) + LOSS_SLACK && !pace->private_network)
		window_shrink(pace, LOSS_PART, 10);
	least_take(&pace->loss.least, ratio, ++pace->loss.rounds, LOSS_SPAN);
	pace->loss.sent = pace->loss.lost = 0;
}

bool pace_result(struct pace *pace)
{
	bool was_full = pace->round.full;

	pace->round.results++;
	pace->round.full = was_full || is_used(pace);
	return pace->round.full && !was_full;
}

void pace_received(struct pace *pace, bool marked)
{
	pace->round.received.packets++;
	pace->round.received.marked += marked;
}

void pace_marked(struct pace *pace, uint32_t total)
{
	if (frame_before(pace->marked_total, total)) {
		pace->round.sent.marked += total - pace->marked_total;
		pace->marked_total = total;
	}
}

void pace_lost(struct pace *pace, uint32_t packets)
{
	pace->loss.lost += packets;
	pace->round.lost += packets;
}

void pace_missed(struct pace *pace)
{
	pace->round.missed++;
}
