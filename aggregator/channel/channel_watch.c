// SPDX-License-Identifier: BSD-3-Clause
/*
 * channel_watch.c - which worker the others wait for, and for how long
 *
 * Three things can wait: an operation that not all workers have called, a segment that not all have
 * announced, and the oldest frame that not all have acknowledged. The longest wait is shown to
 * people, and ends the job when it is too long (PROTOCOL.md, section 11.3). This file also counts
 * finished operations.
 */

#include "aggregator/channel/channel_state.h"

bool channel_idle(const struct channel *channel)
{
	return channel->ops_used == 0 && channel->base == channel->planned;
}

/* Something that waits, and the workers that it waits for. */
struct wait {
	uint64_t tag;
	uint64_t since_us;
	bool streaming;
	const uint64_t *have;    /* Bits of workers that are here; NULL: `slot` decides. */
	const struct slot *slot; /* Its missing workers; NULL: those whose ack is base. */
};

static bool is_missing(const struct channel *channel, const struct wait *wait, uint32_t rank)
{
	if (wait->have != NULL)
		return !bit_test(wait->have, rank);
	if (wait->slot != NULL)
		return slot_lacks(channel, wait->slot, rank);
	return channel->members[rank].ack == channel->base;
}

/* Keeps the longest wait so far. */
static void wait_note(const struct channel *channel, const struct wait *wait, uint64_t waited_us,
                      struct channel_view *out)
{
	if (out->wait.stall.missing != 0 && waited_us <= out->wait.stall.waited_us)
		return;
	out->wait.stall = (struct channel_stall){
		.tag = wait->tag, .streaming = wait->streaming, .waited_us = waited_us};
	out->wait.rank_count = 0;
	for (uint16_t rank = 0; rank < channel->config.worker_count; rank++) {
		if (is_mute(channel, rank) || !is_missing(channel, wait, rank))
			continue;
		if (out->wait.stall.missing++ == 0)
			out->wait.stall.rank = rank;
		if (out->wait.rank_count < CHANNEL_RANKS_NAMED)
			out->wait.ranks[out->wait.rank_count++] = rank;
	}
}

static void look_operations(const struct channel *channel, uint64_t now_us,
                            struct channel_view *out)
{
	for (uint32_t i = 0; i < channel->config.op_slots; i++) {
		const struct operation *op = &channel->ops[i];
		uint64_t age_us = now_us - op->started_us;

		if (!op->used)
			continue;
		if (out->operations++ == 0 || age_us > out->age_us) {
			out->tag = op->asked.tag;
			out->count = op->asked.count;
			out->dtype = op->asked.dtype;
			out->reduction = op->asked.reduction;
			out->form = op->asked.form;
			out->age_us = age_us;
		}
		if (op->bound_count < channel->speaker_count)
			wait_note(channel, &(struct wait){.tag = op->asked.tag, .have = op->bound},
			          age_us, out);
	}
}

/* A worker that is busy with something else has time, so its wait counts from its last action. */
static void look_segments(const struct channel *channel, uint64_t now_us, struct channel_view *out)
{
	uint32_t count = channel->config.op_slots * channel->config.segments_ahead;

	for (uint32_t i = 0; i < count; i++) {
		const struct segment *segment = &channel->segments[i];
		struct wait wait = {.have = segment->joined};
		uint64_t waited_us = now_us - segment->since_us;
		uint32_t first = 0;

		if (segment->state != SEGMENT_GATHERING)
			continue;
		while (is_mute(channel, first) || bit_test(segment->joined, first))
			first++;
		if (now_us - channel->members[first].progress_us < waited_us)
			waited_us = now_us - channel->members[first].progress_us;
		wait.tag = channel->ops[segment->op].asked.tag;
		wait_note(channel, &wait, waited_us, out);
	}
}

static void look_frames(struct channel *channel, uint64_t now_us, struct channel_view *out)
{
	struct slot *slot = slot_at(channel, channel->base);
	struct wait wait = {.streaming = true};

	if (channel->base == channel->planned)
		return;
	fast_look(slot);
	if (slot->frame == channel->base && slot->state == SLOT_OPEN)
		wait.slot = slot;
	if (channel->config.sited && slot->frame == channel->base && slot->state != SLOT_DONE &&
	    slot->arrived == slot->expected)
		return; /* it waits for the parent, which knows for whom */
	wait.tag = channel->ops[segment_planned(channel, channel->order.head)->op].asked.tag;
	wait_note(channel, &wait, now_us - channel->progress_us, out);
}

/* Counts frames that have a slot. A hollow frame needs none. */
static uint32_t slots_used(const struct channel *channel)
{
	uint32_t used = channel->opened - channel->base;

	for (uint32_t i = channel->order.head; i != channel->order.tail; i++) {
		const struct segment *segment = segment_planned(channel, i);

		if (segment->hollow && !frame_before(segment->first, channel->base) &&
		    frame_before(segment->first, channel->opened))
			used--;
	}
	return used;
}

void channel_look(struct channel *channel, uint64_t now_us, struct channel_view *out)
{
	*out = (struct channel_view){.slots = channel->config.window,
	                             .slots_used = slots_used(channel)};
	look_operations(channel, now_us, out);
	look_segments(channel, now_us, out);
	look_frames(channel, now_us, out);
}

uint64_t channel_stuck_us(const struct channel *channel, uint64_t now_us)
{
	return channel->base == channel->planned ? 0 : now_us - channel->progress_us;
}

/* 11.3: "when an operation has waited for the stall time for a worker to announce it" */
bool channel_stalled(struct channel *channel, uint64_t now_us, struct channel_stall *out)
{
	struct channel_view view;

	channel_look(channel, now_us, &view);
	if (view.wait.stall.missing == 0 || view.wait.stall.waited_us < channel->config.stall_us)
		return false;
	*out = view.wait.stall;
	return true;
}

/* ---- the past ---- */

const uint32_t channel_times_us[CHANNEL_TIMES] = {
	100,   200,    500,    1000,   2000,    5000,    10000,   20000,
	50000, 100000, 200000, 500000, 1000000, 2000000, 5000000, 10000000,
};

void channel_waits(const struct channel *channel, uint32_t rank, struct channel_waits *out)
{
	*out = channel->members[rank].waits;
}

/* The last worker to call an operation has kept all others waiting since the call before its own. */
void watch_bound(struct channel *channel, struct operation *op, uint32_t rank, uint64_t now_us)
{
	if (op->bound_count == channel->speaker_count && op->bound_count > 1)
		channel->members[rank].waits.late_us += now_us - op->bound_us;
	op->bound_us = now_us;
}

/*
 * Called when a worker's ack is no longer base. If all others had passed base before, they waited
 * for this worker since then, or since base came there. (If no frame is planned, all are at base.)
 */
void watch_acked(struct channel *channel, uint32_t rank, uint64_t now_us)
{
	if (--channel->at_base == 1)
		channel->alone_us = now_us;
	else if (channel->at_base == 0 && channel->speaker_count > 1)
		channel->members[rank].waits.last_us += now_us - channel->alone_us;
}

void watch_finished(struct channel *channel, const struct operation *op, uint64_t now_us)
{
	struct channel_stats *stats = &channel->stats;
	uint64_t us = now_us - op->started_us;
	uint32_t at = 0;

	while (at < CHANNEL_TIMES && us > channel_times_us[at])
		at++;
	stats->operations++;
	if (op_is_eager(op)) {
		stats->eager++;
		stats->eager_times[at]++;
		stats->eager_times_us += us;
	} else {
		stats->times[at]++;
		stats->times_us += us;
	}
}
