// SPDX-License-Identifier: BSD-3-Clause
/*
 * channel_send.c - queues of packets to send, and building the packets
 *
 * Plans and RESULTs go to everyone. Replies go to one worker that has asked for something again.
 */

#include "aggregator/channel/channel_state.h"

/* ---- queues ---- */

/* 10.5: "At START the account has window times payload, the most that it may have" */
void repeats_earn(struct channel *channel, uint32_t rank, uint64_t bytes)
{
	const uint32_t most = channel->config.window * channel->config.payload;
	struct member *member = &channel->members[rank];

	member->earned = bytes < most - member->earned ? member->earned + (uint32_t)bytes : most;
}

/* 10.5: "What the account does not cover is not sent or listed" */
bool repeats_spend(struct channel *channel, uint32_t rank, uint32_t bytes)
{
	struct member *member = &channel->members[rank];

	if (member->earned < bytes)
		return false;
	member->earned -= bytes;
	return true;
}

/* What the worker's account pays for the reply (10.5). */
static uint32_t reply_bytes(const struct channel *channel, const struct reply *reply)
{
	const struct segment *segment;
	const struct slot *slot;

	switch (reply->kind) {
	case REPLY_PLAN:
		segment = &channel->segments[reply->number];
		return WIRE_HEADER_BYTES + WIRE_PLAN_BYTES + segment->set_bytes +
		       segment->eager_bytes;
	case REPLY_RESULT:
		slot = slot_at(channel, reply->number);
		return WIRE_HEADER_BYTES + slot->block_count * slot->unit_bytes;
	default:
		return 0;
	}
}

bool reply_room(const struct channel *channel)
{
	return channel->replies.tail - channel->replies.head < REPLIES_MAX;
}

void reply_put(struct channel *channel, const struct reply *reply)
{
	if (!reply_room(channel) ||
	    !repeats_spend(channel, reply->rank, reply_bytes(channel, reply))) {
		count_drop(channel, WIRE_DROP_FULL);
		return;
	}
	channel->replies.list[channel->replies.tail++ % REPLIES_MAX] = *reply;
}

void reply_put_plan(struct channel *channel, const struct segment *segment, uint16_t rank)
{
	reply_put(channel, &(struct reply){.kind = REPLY_PLAN,
	                                   .rank = rank,
	                                   .number = (uint32_t)(segment - channel->segments)});
}

void result_put(struct channel *channel, struct slot *slot)
{
	uint32_t waiting = channel->results.tail - channel->results.head;

	if (waiting == channel->config.window) {
		count_drop(channel, WIRE_DROP_FULL); /* workers ask for it again */
		return;
	}
	channel->results.frames[channel->results.tail++ & (channel->config.window - 1)] =
		slot->frame;
	slot->queued = true;
}

/* ---- packets ---- */

/*
 * A worker that knows base at the end of all that it has called may leave (11.4), so the last frames of a site are passed
 * only once the parent says so: workers of other sites may still lack them.
 */
static uint32_t base_to_tell(const struct channel *channel)
{
	const uint32_t told = channel->told.base, above = channel->above;

	if (!channel->config.sited || channel->base != channel->planned || above == channel->base)
		return channel->base;
	return frame_before(told, above) ? above : told;
}

/* A window above START's is ignored. */
static uint32_t credit_to_tell(const struct channel *channel)
{
	const uint32_t most = base_to_tell(channel) + channel->config.window;

	return frame_before(most, channel->credit) ? most : channel->credit;
}

static void head_begin(struct channel *channel, struct packet_out *out, enum wire_kind kind,
                       uint16_t dest, uint32_t frame)
{
	struct wire_header head = {
		.kind = (uint8_t)kind,
		.channel = channel->config.id,
		.worker = dest,
		.seal = channel->config.group_token,
		.frame = frame,
		.edge = base_to_tell(channel),
		.window = (uint16_t)(credit_to_tell(channel) - base_to_tell(channel)),
		.sequence = fast_sequence(channel, false),
		.planned = channel->planned,
	};

	out->dest = dest;
	packet_begin(out, &head);
}

static void plan_build(struct channel *channel, const struct segment *segment, uint16_t dest,
                       struct packet_out *out)
{
	const struct operation *op = &channel->ops[segment->op];
	struct plan plan = {
		.tag = op->asked.tag,
		.segment = segment->number,
		.frame_count = segment->frame_count,
		.exponent = segment->exponent,
		.flags = segment->plan_flags,
		.set.bytes = segment->set_bytes,
	};

	head_begin(channel, out, WIRE_PLAN, dest, segment->first);
	packet_put_plan(out, &plan);
	packet_point(out, segment->set, segment->set_bytes);
	packet_point(out, eager_sums(channel, segment), segment->eager_bytes);
}

/* False if the frame is over. 10.2: "The RESULTs of a channel that go to everyone are numbered in sequence" */
static bool result_build(struct channel *channel, uint32_t frame, uint16_t dest,
                         struct packet_out *out)
{
	struct slot *slot = slot_at(channel, frame);
	uint16_t receiver = slot->receiver;

	/* Of a worker that nobody here speaks for, all get the head alone. */
	if (receiver != WIRE_EVERYONE && speaker_of(channel, receiver) != WIRE_EVERYONE)
		receiver = speaker_of(channel, receiver);
	fast_look(slot);
	if (slot->state != SLOT_DONE || slot->frame != frame)
		return false;
	if (dest == WIRE_EVERYONE) {
		slot->sent = true;
		slot->sequence = fast_sequence(channel, true);
		fast_sent(slot);
	}
	head_begin(channel, out, WIRE_RESULT, dest, frame);
	if (dest != WIRE_EVERYONE && receiver != WIRE_EVERYONE && dest != receiver)
		return true; /* 8.2: "has the blocks if that is the receiver, and none otherwise" */
	packet_point(out, fast_data(slot), slot->block_count * slot->unit_bytes);
	if (dest == WIRE_EVERYONE)
		out->receiver = receiver;
	return true;
}

static void status_build(struct channel *channel, const struct status *status, uint16_t dest,
                         struct packet_out *out)
{
	head_begin(channel, out, WIRE_STATUS_BACK, dest, status->first);
	packet_put_status(out, status);
}

static void refusal_build(struct channel *channel, const struct reply *reply,
                          struct packet_out *out)
{
	const struct plan plan = {.tag = reply->refusal.tag,
	                          .frame_count = 1,
	                          .status = WIRE_MISMATCH,
	                          .mismatch = reply->refusal.mismatch};

	head_begin(channel, out, WIRE_PLAN, reply->rank, 0);
	packet_put_plan(out, &plan);
}

/* Returns false when the work that the reply is about has ended. */
static bool reply_build(struct channel *channel, struct reply *reply, uint64_t now_us,
                        struct packet_out *out)
{
	struct status *status = &reply->status;
	const struct segment *segment;

	switch (reply->kind) {
	case REPLY_PLAN:
		segment = &channel->segments[reply->number];
		if (segment->state != SEGMENT_PLANNED)
			return false;
		plan_build(channel, segment, reply->rank, out);
		channel->stats.plan_resends++;
		return true;
	case REPLY_RESULT:
		if (!result_build(channel, reply->number, reply->rank, out))
			return false;
		channel->stats.result_resends++;
		return true;
	case REPLY_REFUSAL:
		refusal_build(channel, reply, out);
		return true;
	case REPLY_STATUS:
		status->marked =
			channel->members[reply->rank].marked + fast_marked(channel, reply->rank);
		/* 2.5: "for how many microseconds the STATUS that this one answers had been here" */
		if (status->stamp != 0 && now_us > reply->came_us)
			status->held = (uint32_t)(now_us - reply->came_us);
		status_build(channel, status, reply->rank, out);
		channel->stats.wants += status->word_count > 0;
		return true;
	}
	return false;
}

/* ---- order of sending ---- */

/* New credit goes alone only if no packet has carried it. 8.4: "base has moved by a quarter of START's window" */
static bool credit_due(const struct channel *channel)
{
	const uint32_t base = base_to_tell(channel), news = base - channel->told.base;
	const uint32_t credit = credit_to_tell(channel), more = credit - channel->told.credit;

	/* 8.4: "when base has moved since they were told and has reached the last planned frame" */
	if (base == channel->planned)
		return news > 0;
	return 4 * more >= credit - base || news >= channel->config.window / 4;
}

static bool pull_one(struct channel *channel, uint64_t now_us, struct packet_out *out)
{
	uint32_t mask = channel->config.window - 1;

	if (channel->plans_sent != channel->order.tail) {
		plan_build(channel, segment_planned(channel, channel->plans_sent++), WIRE_EVERYONE,
		           out);
		return true;
	}
	while (channel->replies.head != channel->replies.tail)
		if (reply_build(channel,
		                &channel->replies.list[channel->replies.head++ % REPLIES_MAX],
		                now_us, out))
			return true;
	while (channel->results.head != channel->results.tail)
		if (result_build(channel, channel->results.frames[channel->results.head++ & mask],
		                 WIRE_EVERYONE, out))
			return true;
	fast_advertised(channel);
	if (credit_due(channel)) {
		status_build(channel, &(struct status){0}, WIRE_EVERYONE, out);
		return true;
	}
	return false;
}

bool channel_sums_wait(const struct channel *channel)
{
	return channel->results.head != channel->results.tail;
}

bool channel_pull(struct channel *channel, uint64_t now_us, struct packet_out *out)
{
	if (!pull_one(channel, now_us, out))
		return false;
	if (out->dest == WIRE_EVERYONE) {
		channel->told.credit = credit_to_tell(channel);
		channel->told.base = base_to_tell(channel);
	}
	channel_sent_more(channel, 1, out->bytes);
	return true;
}

void channel_sent_more(struct channel *channel, uint64_t packets, uint64_t bytes)
{
	channel->stats.sent += packets;
	channel->stats.sent_bytes += bytes;
}
