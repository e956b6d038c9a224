// SPDX-License-Identifier: BSD-3-Clause
/* relay.c - see relay.h */

#include "aggregator/site/relay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ebpf/seal.h"

/* An operation of the channel; the stream has it in the slot of the same number. */
struct relay_op {
	struct allreduce task;
	struct relay *relay;
	bool active; /* The stream has not finished it. */
};

struct relay {
	struct channel *channel;
	struct stream *stream;
	uint16_t number; /* the channel's at the parent */
	uint16_t rank;   /* of the worker in whose name it speaks */
	/* As the link's, for the other thread that has the relay. */
	bool sealed;
	struct seal_stretch stretch;
	struct seal_key own, group;
	uint64_t group_token;
	uint64_t now_us;
	bool refused;
	struct wire_mismatch mismatch;
	struct relay_op ops[]; /* [op_slots] */
};

/* ---- how the stream reaches the channel's sums ---- */

static struct relay_op *op_of(const struct allreduce *task)
{
	return task->access_state;
}

static int no_plan(struct allreduce *task, const struct access_frame *plan)
{
	(void)task;
	(void)plan;
	return 0; /* relay_work() passes plans on in their order */
}

static bool sums_pushable(const struct allreduce *task, const struct access_frame *frame)
{
	return channel_sums(op_of(task)->relay->channel, frame->number) != NULL;
}

/* The blocks of the frame that the site has, without gaps. */
static void sums_push(const struct allreduce *task, const struct access_frame *frame,
                      struct packet_out *out)
{
	const struct channel *channel = op_of(task)->relay->channel;
	const uint8_t *sums = task->cut.eager ? channel_eager(channel, task->slot, frame->segment)
	                                      : channel_sums(channel, frame->number);
	uint64_t lanes[SEGMENT_WORDS];
	uint8_t *to = out->scratch;

	if (task->cut.eager || frame->own_count == frame->count) {
		packet_point(out, sums, frame->count * frame->unit_bytes);
		return;
	}
	(void)frame->engine->within(frame->own, frame->united, frame->first, frame->count, lanes);
	for (uint32_t block = 0; block < frame->count; block++) {
		if (!bit_test(lanes, block))
			continue;
		memcpy(to, sums + (size_t)block * frame->unit_bytes, frame->unit_bytes);
		to += frame->unit_bytes;
	}
	packet_point(out, out->scratch, frame->own_count * frame->unit_bytes);
}

static bool result_store(struct allreduce *task, const struct access_frame *frame,
                         const uint8_t *data)
{
	struct relay_op *op = op_of(task);
	struct channel *channel = op->relay->channel;
	const uint32_t bytes = data != NULL ? frame->count * frame->unit_bytes : 0;

	if (task->cut.eager)
		return channel_eager_set(channel, task->slot, frame->segment, data, bytes);
	return channel_result(channel, frame->number, data, bytes);
}

static const struct access sums_access = {
	.plan = no_plan,
	.pushable = sums_pushable,
	.push = sums_push,
	.store = result_store,
};

/* ---- memory ---- */

int relay_open(const struct link *link, uint16_t id, struct channel *channel, struct relay **out)
{
	const struct channel_config *here = channel_config(channel);
	const struct stream_config config = {
		.channel = link->welcome.channels[(id & 0xff) % link->welcome.channel_count],
		.shard_count = 1,
		.rank = (uint16_t)link->config.rank,
		.world = here->worker_count,
		.payload = here->payload,
		.window = here->window,
		.window_start = link->start.window_start,
		.op_slots = here->op_slots,
		.segments_ahead = here->segments_ahead,
		.first_frame = here->first_frame,
		.token = link->welcome.token,
		.group_token = link->welcome.group_token,
		.engine = here->engine,
		.passes_on = true,
	};
	struct relay *relay = calloc(1, sizeof(*relay) + config.op_slots * sizeof(relay->ops[0]));

	if (relay == NULL || stream_open(&config, &relay->stream) != 0) {
		free(relay);
		return -ENOMEM;
	}
	relay->channel = channel;
	relay->number = config.channel;
	relay->rank = config.rank;
	relay->sealed = link->sealed;
	relay->stretch = link->stretch;
	relay->own = link->own_key;
	relay->group = link->group_key;
	relay->group_token = config.group_token;
	for (uint32_t i = 0; i < config.op_slots; i++)
		relay->ops[i].relay = relay;
	*out = relay;
	return 0;
}

void relay_close(struct relay *relay)
{
	if (relay == NULL)
		return;
	stream_close(relay->stream);
	explicit_bzero(relay, sizeof(*relay));
	free(relay);
}

/* ---- upwards ---- */

static void op_begin(struct relay *relay, struct relay_op *op, const struct channel_offer *offer)
{
	const struct announce *asked = offer->asked;

	op->active = true;
	op->task = (struct allreduce){
		.access = &sums_access,
		.access_state = op,
		.tag = asked->tag,
		.count = asked->count,
		.dtype = asked->dtype,
		.reduction = asked->reduction,
		.form = asked->form,
		.scatter = (asked->flags & WIRE_SCATTER) != 0,
		.slot = offer->op,
		.shards_left = 1,
		.cut = {.segment_count = asked->segment_count,
	                .eager = (asked->flags & WIRE_EAGER) != 0,
	                .block_count = offer->block_count},
	};
	stream_begin_as(relay->stream, &op->task, asked->layout);
}

/* Announces a segment, once the stream has room for it. */
static bool offer_take(void *context, const struct channel_offer *offer)
{
	struct relay *relay = context;
	struct relay_op *op = &relay->ops[offer->op];
	struct geometry_segment cut = {.frames = offer->frames,
	                               .block_count = offer->block_count,
	                               .receiver = offer->receiver};
	const struct stream_scan scan = {.bits = offer->united,
	                                 .exponent = offer->exponent,
	                                 .nonfinite = offer->nonfinite,
	                                 .cut = &cut};

	if (offer->ours && offer->receiver != WIRE_EVERYONE)
		cut.receiver = relay->rank; /* for the parent all of the site's workers are one */
	if (!op->active && !stream_slot_free(relay->stream, offer->op))
		return false;
	if (!op->active)
		op_begin(relay, op, offer);
	if (!stream_ask_room(relay->stream, &op->task, offer->segment))
		return false;
	stream_announce(relay->stream, &op->task, offer->segment, &scan, relay->now_us);
	return true;
}

bool relay_pull(struct relay *relay, uint64_t now_us, struct packet_out *out)
{
	if (!stream_pull(relay->stream, now_us, out))
		return false;
	if (relay->sealed)
		seal_write(out, &relay->stretch, &relay->own, stream_edge(relay->stream));
	return true;
}

/* ---- downwards ---- */

static void plans_pass(struct relay *relay, uint64_t now_us)
{
	struct stream_plan plan;

	while (stream_plan_at(relay->stream, channel_next_plan(relay->channel), &plan)) {
		const struct channel_planned planned = {
			.op = plan.slot,
			.segment = plan.segment,
			.first = channel_next_plan(relay->channel),
			.frame_count = plan.frame_count,
			.united = plan.united,
			.exponent = plan.exponent,
			.nonfinite = plan.nonfinite,
		};

		if (!channel_plan(relay->channel, &planned, now_us))
			return;
	}
}

void relay_receive(struct relay *relay, struct packet *packet, const void *datagram, uint32_t bytes,
                   uint64_t now_us)
{
	struct allreduce *task;

	if (relay->sealed)
		seal_check(packet, datagram, bytes, relay->group_token, &relay->stretch,
		           &relay->group, stream_edge(relay->stream));
	task = stream_receive(relay->stream, packet, now_us);
	/*
	 * At once: the RESULT of a frame in which this site has nothing may be the next packet, and
	 * needs its slot.
	 */
	if (packet->kind == WIRE_PLAN)
		plans_pass(relay, now_us);
	if (task == NULL)
		return;
	op_of(task)->active = false;
	if (task->status != 0 && !relay->refused) {
		relay->refused = true;
		relay->mismatch = task->mismatch;
	}
}

void relay_work(struct relay *relay, uint64_t now_us)
{
	relay->now_us = now_us;
	channel_above(relay->channel, stream_base(relay->stream));
	stream_hold(relay->stream, channel_base(relay->channel), channel_credit(relay->channel),
	            now_us);
	channel_offers(relay->channel, offer_take, relay);
}

/* ---- questions ---- */

uint16_t relay_channel(const struct relay *relay)
{
	return relay->number;
}

uint64_t relay_deadline(const struct relay *relay)
{
	return stream_deadline(relay->stream);
}

const struct wire_mismatch *relay_refused(const struct relay *relay)
{
	return relay->refused ? &relay->mismatch : NULL;
}

const struct stream *relay_stream(const struct relay *relay)
{
	return relay->stream;
}

void relay_look(const struct relay *relay, struct relay_view *sum)
{
	sooner(&sum->waits_us, stream_waits_us(relay->stream));
	stream_look(relay->stream, &sum->seen);
}
