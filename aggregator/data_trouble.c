// SPDX-License-Identifier: BSD-3-Clause
/*
 * data_trouble.c - workers with a bad path: the system refuses to send to them, or their datagrams
 * arrive in a useless form
 *
 * A datagram that is refused now and then is repaired like one that is lost. Trouble is a refusal
 * that lasts while the channel makes no progress: an MTU that has shrunk, a firewall, a route that
 * is gone.
 */

#include <errno.h>

#include "aggregator/data_state.h"

#define TROUBLE_US 700000        /* Trouble that lasts this long is no accident. */
#define TROUBLE_PAUSE_US 1500000 /* Workers ask again at least as often. */
#define TELL_US 1000000
#define SLOW_US 2000000 /* PUSHes are counted over this time. */
#define SLOW_PUSHES 500 /* Fewer that the kernel left to us are no evidence. */
#define SLOW_SHARE 3    /* It adds too little if it adds less than a third as many. */

/* Returns the rank, WIRE_EVERYONE (the group) or worker_count (no worker here has the address). */
static uint16_t rank_of(const struct outlet *outlet, const struct net_trouble *trouble)
{
	uint16_t rank = 0;

	if (trouble->mark == mark_of(outlet->info.id, WIRE_EVERYONE))
		return WIRE_EVERYONE;
	while (rank < outlet->info.worker_count &&
	       (trouble->mark != 0
	                ? trouble->mark != mark_of(outlet->info.id, rank)
	                : !net_addr_same(&outlet->workers[rank].path.to, &trouble->peer)))
		rank++;
	return rank;
}

static uint64_t outlet_received(const struct outlet *outlet)
{
	return outlet->channel != NULL ? channel_stats(outlet->channel)->received : 0;
}

/*
 * While workers test what their paths carry, neither datagrams that are too large nor groups are
 * trouble.
 */
static bool trouble_matters(const struct outlet *outlet, uint16_t rank,
                            const struct net_trouble *trouble)
{
	if (rank != WIRE_EVERYONE && rank >= outlet->info.worker_count)
		return false;
	return outlet->channel != NULL || (trouble->error != EMSGSIZE && rank != WIRE_EVERYONE);
}

static void troubles_note(struct outlet *outlet, const struct net_trouble list[], uint32_t count,
                          uint64_t now_us)
{
	struct outlet_trouble *trouble = &outlet->trouble;
	uint16_t more = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint16_t rank = rank_of(outlet, &list[i]);

		if (!trouble_matters(outlet, rank, &list[i]))
			continue;
		if (trouble->what.count == 0) {
			trouble->since_us = now_us;
			trouble->received = outlet_received(outlet);
		}
		if (trouble->what.count == 0 || rank == WIRE_EVERYONE)
			trouble->what.rank = rank; /* the group stands for all */
		/* What the group has not received is sent to each worker, and refused as well. */
		if (rank == trouble->what.rank ||
		    (trouble->what.rank == WIRE_EVERYONE && trouble->what.error == list[i].error))
			trouble->last_us = now_us;
		if (rank != trouble->what.rank) {
			more++;
			continue;
		}
		trouble->what.kind = list[i].error == NET_MERGED ? JOBS_MERGED : JOBS_UNSENT;
		trouble->what.error = list[i].error;
		trouble->what.count += list[i].count;
	}
	if (more > trouble->what.more || trouble->what.rank == WIRE_EVERYONE)
		trouble->what.more = trouble->what.rank == WIRE_EVERYONE ? 0 : more;
}

static void trouble_report(const struct data_thread *t, const struct outlet *outlet,
                           const struct jobs_trouble *what)
{
	const struct data_config *config = &t->data->config;

	config->report(
		config->context,
		&(struct report){.kind = REPORT_TROUBLE, .id = outlet->info.id, .trouble = *what});
}

/* How long it has lasted after `after_us`, until the last of it. */
static uint64_t lasts_us(const struct outlet_trouble *trouble, uint64_t after_us)
{
	uint64_t from_us = trouble->since_us > after_us ? trouble->since_us : after_us;

	return trouble->last_us > from_us ? trouble->last_us - from_us : 0;
}

static void outlet_judge(struct data_thread *t, struct outlet *outlet, uint64_t now_us)
{
	struct outlet_trouble *trouble = &outlet->trouble;
	uint64_t stuck_us;

	if (trouble->what.count == 0)
		return;
	if (now_us - trouble->last_us > TROUBLE_PAUSE_US) {
		*trouble = (struct outlet_trouble){0};
		return;
	}
	/*
	 * Losses on the way in may leave enough for a channel to make slow progress. And a refusal
	 * before it stopped is not the reason why it stopped: only refusals since then count.
	 */
	stuck_us = outlet->channel != NULL ? channel_stuck_us(outlet->channel, now_us) : 0;
	trouble->what.stands_us = lasts_us(trouble, now_us - stuck_us);
	trouble->what.for_us = outlet->channel != NULL && trouble->what.kind == JOBS_UNSENT
	                               ? trouble->what.stands_us
	                               : lasts_us(trouble, 0);
	trouble->what.of = outlet_received(outlet) - trouble->received;
	if (trouble->what.for_us < TROUBLE_US || now_us - trouble->told_us < TELL_US)
		return;
	trouble->told_us = now_us;
	trouble_report(t, outlet, &trouble->what);
}

/* Reports that most of what the kernel could have added has come to us. */
static void judge_fast(struct data_thread *t, struct outlet *outlet, uint64_t now_us)
{
	const struct channel_stats *stats = channel_stats(outlet->channel);
	uint64_t added = stats->fast_added - outlet->fast_added;
	uint64_t missed = stats->fast_missed - outlet->fast_missed;
	const struct jobs_trouble slow = {.kind = JOBS_SLOW,
	                                  .rank = WIRE_EVERYONE,
	                                  .count = added,
	                                  .of = added + missed,
	                                  .for_us = now_us - outlet->fast_us};

	if (slow.for_us < SLOW_US)
		return;
	outlet->fast_us = now_us;
	outlet->fast_added = stats->fast_added;
	outlet->fast_missed = stats->fast_missed;
	if (missed >= SLOW_PUSHES && added < missed / SLOW_SHARE)
		trouble_report(t, outlet, &slow);
}

void data_troubles(struct data_thread *t, uint64_t now_us)
{
	uint32_t count = t->data->config.backend->troubles(t->net, t->burst.troubles);

	for (uint32_t i = 0; i < t->outlet_count; i++) {
		troubles_note(t->outlets[i], t->burst.troubles, count, now_us);
		outlet_judge(t, t->outlets[i], now_us);
		if (t->outlets[i]->channel != NULL && channel_is_fast(t->outlets[i]->channel))
			judge_fast(t, t->outlets[i], now_us);
	}
}
