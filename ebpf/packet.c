// SPDX-License-Identifier: BSD-3-Clause
/* packet.c - see packet.h; this file and wire.h define the layout of every packet kind */

#include "ebpf/packet.h"

#include <assert.h>
#include <stddef.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "wire.h is read with memcpy: a big-endian machine needs byte swaps here"
#endif

static void put_bytes(struct packet_out *out, const void *data, uint32_t bytes)
{
	assert(out->piece_count == 1 && out->bytes + bytes <= PACKET_HEAD_MAX);
	memcpy(out->head + out->bytes, data, bytes);
	out->bytes += bytes;
	out->pieces[0].iov_len = out->bytes;
}

enum wire_drop packet_parse(const void *data, uint32_t bytes, bool to_worker, struct packet *out)
{
	const uint8_t first = to_worker ? WIRE_PLAN : WIRE_ANNOUNCE;
	const uint8_t last = to_worker ? WIRE_PROBE : WIRE_KNOCK;
	struct wire_header wire;

	if (bytes < sizeof(wire))
		return WIRE_DROP_SHORT;
	memcpy(&wire, data, sizeof(wire));
	if (wire.magic != WIRE_MAGIC)
		return WIRE_DROP_MAGIC;
	if (wire.version != WIRE_VERSION)
		return WIRE_DROP_VERSION;
	if (wire.kind < first || wire.kind > last)
		return WIRE_DROP_KIND;

	out->kind = wire.kind;
	out->channel = wire.channel;
	out->worker = wire.worker;
	out->token = wire.seal;
	out->frame = wire.frame;
	out->edge = wire.edge;
	out->number = wire.number;
	out->body = (const uint8_t *)data + sizeof(wire);
	out->body_bytes = bytes - (uint32_t)sizeof(wire);
	out->came_us = 0;
	out->marked = false;
	return WIRE_DROP_NONE;
}

/* Parses the set after a packet's fields, as its flags say. */
static enum wire_drop set_parse(uint8_t flags, const uint8_t *data, uint32_t bytes,
                                struct packet_set *out)
{
	const uint32_t none_or_all = flags & (WIRE_ALL | WIRE_NONE);
	uint16_t wire;

	*out = (struct packet_set){.data = data, .bytes = bytes, .blocks = data};
	/* 6.1: "Announcements and plans with other flags, or both all and none, are dropped (bad_length)" */
	if (none_or_all == (WIRE_ALL | WIRE_NONE))
		return WIRE_DROP_LENGTH;
	if (none_or_all != 0) {
		out->blocks_bytes = bytes;
		out->bytes = 0;
	} else if (flags & WIRE_EAGER) {
		if (bytes < sizeof(wire))
			return WIRE_DROP_LENGTH;
		memcpy(&wire, data, sizeof(wire));
		if (wire > bytes - sizeof(wire))
			return WIRE_DROP_LENGTH;
		out->data = data + sizeof(wire);
		out->bytes = wire;
		out->blocks = out->data + wire;
		out->blocks_bytes = bytes - (uint32_t)sizeof(wire) - wire;
	}
	return WIRE_DROP_NONE;
}

enum wire_drop announce_parse(const struct packet *packet, struct announce *out)
{
	struct wire_announce wire;

	if (packet->body_bytes < sizeof(wire))
		return WIRE_DROP_SHORT;
	memcpy(&wire, packet->body, sizeof(wire));
	out->tag = wire.tag;
	out->count = wire.count;
	out->layout = wire.layout;
	out->segment = wire.segment;
	out->segment_count = wire.segment_count;
	out->generation = wire.generation;
	out->op_slot = wire.op_slot;
	out->block_count = wire.block_count;
	out->block_elems = wire.block_last + 1u;
	out->exponent = (int16_t)wire.exponent;
	out->dtype = wire.dtype;
	out->reduction = wire.reduction;
	out->form = wire.form;
	out->flags = wire.flags;
	if (wire.flags & ~WIRE_ANNOUNCE_FLAGS)
		return WIRE_DROP_LENGTH;
	return set_parse(wire.flags, packet->body + sizeof(wire),
	                 packet->body_bytes - (uint32_t)sizeof(wire), &out->set);
}

enum wire_drop plan_parse(const struct packet *packet, struct plan *out)
{
	struct wire_plan wire;
	const uint8_t *rest;
	uint32_t rest_bytes;

	if (packet->body_bytes < sizeof(wire))
		return WIRE_DROP_SHORT;
	memcpy(&wire, packet->body, sizeof(wire));
	out->tag = wire.tag;
	out->segment = wire.segment;
	out->frame_count = wire.frame_count;
	out->status = wire.status;
	out->exponent = (int16_t)wire.exponent;
	out->flags = wire.flags;
	rest = packet->body + sizeof(wire);
	rest_bytes = packet->body_bytes - (uint32_t)sizeof(wire);
	if (wire.frame_count == 0 || wire.status > WIRE_MISMATCH || (wire.flags & ~WIRE_FLAGS))
		return WIRE_DROP_LENGTH;
	if (wire.status != WIRE_MISMATCH)
		return set_parse(wire.flags, rest, rest_bytes, &out->set);
	out->set = (struct packet_set){0};
	if (rest_bytes != sizeof(out->mismatch))
		return WIRE_DROP_LENGTH;
	memcpy(&out->mismatch, rest, sizeof(out->mismatch));
	return WIRE_DROP_NONE;
}

enum wire_drop status_parse(const struct packet *packet, struct status *out)
{
	uint32_t words_bytes = packet->body_bytes - WIRE_STATUS_BYTES;
	struct wire_status wire;

	if (packet->body_bytes < sizeof(wire))
		return WIRE_DROP_SHORT;
	memcpy(&wire, packet->body, sizeof(wire));
	if (words_bytes % 8 != 0 || words_bytes > sizeof(out->words) ||
	    (wire.flags & ~WIRE_STATUS_ASKS) != 0)
		return WIRE_DROP_LENGTH;
	out->stamp = wire.stamp;
	out->held = wire.held;
	out->marked = wire.marked;
	out->asks = wire.flags & WIRE_STATUS_ASKS;
	out->first = packet->frame;
	out->word_count = words_bytes / 8;
	memcpy(out->words, packet->body + sizeof(wire), words_bytes);
	return WIRE_DROP_NONE;
}

void packet_begin(struct packet_out *out, const struct wire_header *head)
{
	struct wire_header wire = *head;

	wire.magic = WIRE_MAGIC;
	wire.version = WIRE_VERSION;
	out->receiver = WIRE_EVERYONE;
	out->bytes = 0;
	out->piece_count = 1;
	out->pieces[0].iov_base = out->head;
	put_bytes(out, &wire, sizeof(wire));
}

/* 6.1: "if eager, its length in bytes comes first, in 2 bytes (with all or none there is no length)" */
static void put_set_bytes(struct packet_out *out, uint8_t flags, uint32_t bytes)
{
	uint16_t wire = (uint16_t)bytes;

	if ((flags & WIRE_EAGER) && !(flags & (WIRE_ALL | WIRE_NONE)))
		put_bytes(out, &wire, sizeof(wire));
}

void packet_put_announce(struct packet_out *out, const struct announce *announce)
{
	struct wire_announce wire = {
		.tag = announce->tag,
		.count = announce->count,
		.layout = announce->layout,
		.segment = announce->segment,
		.segment_count = announce->segment_count,
		.generation = announce->generation,
		.op_slot = announce->op_slot,
		.block_count = announce->block_count,
		.block_last = (uint16_t)(announce->block_elems - 1),
		.exponent = (uint16_t)announce->exponent,
		.dtype = announce->dtype,
		.reduction = announce->reduction,
		.form = announce->form,
		.flags = announce->flags,
	};

	put_bytes(out, &wire, sizeof(wire));
	put_set_bytes(out, announce->flags, announce->set.bytes);
}

void packet_put_plan(struct packet_out *out, const struct plan *plan)
{
	struct wire_plan wire = {
		.tag = plan->tag,
		.segment = plan->segment,
		.frame_count = plan->frame_count,
		.status = plan->status,
		.exponent = (uint16_t)plan->exponent,
		.flags = plan->flags,
	};

	put_bytes(out, &wire, sizeof(wire));
	if (plan->status == WIRE_MISMATCH)
		put_bytes(out, &plan->mismatch, sizeof(plan->mismatch));
	else
		put_set_bytes(out, plan->flags, plan->set.bytes);
}

void packet_put_status(struct packet_out *out, const struct status *status)
{
	struct wire_status wire = {
		.stamp = status->stamp,
		.held = status->held,
		.marked = status->marked,
		.flags = status->asks ? WIRE_STATUS_ASKS : 0,
	};

	assert(status->word_count <= WIRE_STATUS_WORDS_MAX);
	put_bytes(out, &wire, sizeof(wire));
	put_bytes(out, status->words, status->word_count * 8);
}

void packet_point(struct packet_out *out, const void *data, uint32_t bytes)
{
	struct iovec *last = &out->pieces[out->piece_count - 1];

	if (bytes == 0)
		return;
	out->bytes += bytes;
	if (out->piece_count > 1 && (const uint8_t *)last->iov_base + last->iov_len == data) {
		last->iov_len += bytes;
		return;
	}
	assert(out->piece_count < sizeof(out->pieces) / sizeof(out->pieces[0]));
	out->pieces[out->piece_count++] =
		(struct iovec){.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};
}

const char *drop_name(enum wire_drop drop)
{
	static const char *const names[WIRE_DROP_COUNT] = {
		[WIRE_DROP_NONE] = "none",
		[WIRE_DROP_SHORT] = "short",
		[WIRE_DROP_MAGIC] = "bad_magic",
		[WIRE_DROP_VERSION] = "bad_version",
		[WIRE_DROP_KIND] = "bad_kind",
		[WIRE_DROP_CHANNEL] = "unknown_channel",
		[WIRE_DROP_WORKER] = "bad_worker",
		[WIRE_DROP_SEAL] = "bad_seal",
		[WIRE_DROP_LENGTH] = "bad_length",
		[WIRE_DROP_FRAME] = "closed_frame",
		[WIRE_DROP_OPERATION] = "bad_operation",
		[WIRE_DROP_STALE] = "stale",
		[WIRE_DROP_DUPLICATE] = "duplicate",
		[WIRE_DROP_FULL] = "table_full",
		[WIRE_DROP_ADDRESS] = "bad_address",
	};

	return drop < WIRE_DROP_COUNT ? names[drop] : "?";
}

const char *packet_form_name(uint64_t form)
{
	static const char *const names[] = {[WIRE_NATIVE] = "native",
	                                    [WIRE_BF16] = "bf16",
	                                    [WIRE_FIXED32] = "fixed32",
	                                    [WIRE_FIXED16] = "fixed16",
	                                    [WIRE_FIXED8] = "fixed8"};

	return form <= WIRE_FIXED8 && names[form] != NULL ? names[form] : "?";
}
