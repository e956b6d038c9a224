// SPDX-License-Identifier: BSD-3-Clause
/*
 * fuzz_channel.c - an aggregator's channel against several workers that send anything
 *
 * The input is a script of packets, pulls and time. Most packets are built from the channel's own
 * state so that they are taken, then one field may be replaced. After each step the numbers that
 * keep the channel's memory bounded are checked.
 */

#include "aggregator/channel/channel_state.h"
#include "tests/check/check.h"
#include "tests/flatten.h"
#include "tests/fuzz/fuzz.h"

#define WORKERS_MAX 70 /* more than a word of ranks */

struct machine {
	struct script script;
	struct channel *channel;
	uint64_t tokens[WORKERS_MAX];
	uint64_t now_us;
	struct wire_header head;
	uint8_t body[8192]; /* behind the header, being built */
	uint32_t body_bytes;
};

static const uint32_t payloads[] = {WIRE_PAYLOAD_MIN, 1472, 600, 3470};

static bool machine_open(struct machine *m)
{
	struct script *s = &m->script;
	uint16_t workers = (uint16_t)(1 + script_u8(s) % 4);
	struct channel_config config = {
		.id = 3,
		.payload = payloads[script_u8(s) % 4],
		.window = 4u << script_u8(s) % 4,
		.op_slots = 1 + script_u8(s) % 4,
		.segments_ahead = 1 + script_u8(s) % 4,
		.first_frame = UINT32_MAX - script_u8(s),
		.group_token = 77,
		.tokens = m->tokens,
		.stall_us = 1000000,
		.engine = bitmap_engines[0],
	};

	config.worker_count = workers == 4 && script_u8(s) % 16 == 0 ? WORKERS_MAX : workers;
	for (uint16_t i = 0; i < config.worker_count; i++)
		m->tokens[i] = 1000 + i;
	assert(channel_memory(&config) > 0);
	return channel_open(&config, &m->channel) == 0;
}

static void check_packet(const struct channel *c, const struct packet_out *out)
{
	uint8_t *data = malloc(out->bytes);
	struct packet packet;
	struct plan plan;

	assert(data != NULL && out->bytes <= c->config.payload);
	assert(out->dest == WIRE_EVERYONE || out->dest < c->config.worker_count);
	packet_flatten(out, data);
	assert(packet_parse(data, out->bytes, true, &packet) == WIRE_DROP_NONE);
	assert(packet.token == c->config.group_token && packet.worker == out->dest);
	assert(packet.edge == c->base && packet.edge + packet.window == c->credit &&
	       packet.planned == c->planned);
	if (packet.kind == WIRE_PLAN) {
		assert(plan_parse(&packet, &plan) == WIRE_DROP_NONE);
		assert(frame_before(c->base, packet.frame + plan.frame_count));
	} else if (packet.kind == WIRE_RESULT) {
		assert(slot_at(c, packet.frame)->frame == packet.frame &&
		       slot_at(c, packet.frame)->state == SLOT_DONE);
		assert((packet.body_bytes > 0) ==
		       (out->dest == WIRE_EVERYONE ||
		        slot_at(c, packet.frame)->receiver == WIRE_EVERYONE ||
		        slot_at(c, packet.frame)->receiver == out->dest));
	}
	free(data);
}

/* Everything that the channel has to say now is a bounded number of packets. */
static void pull_all(struct machine *m, uint32_t at_most)
{
	struct channel *c = m->channel;
	uint32_t limit = REPLIES_MAX + c->config.window + c->segment_count + 1;
	struct packet_out out;

	while (at_most-- > 0 && channel_pull(c, m->now_us, &out)) {
		assert(limit > 0);
		limit--;
		check_packet(c, &out);
	}
}

/* ---- packets ---- */

static void deliver(struct machine *m)
{
	struct packet_out out = {0};
	uint32_t waiting = m->channel->replies.tail - m->channel->replies.head, items = 1;
	struct packet packet;
	uint8_t *data;

	packet_begin(&out, &m->head);
	packet_point(&out, m->body, m->body_bytes);
	data = malloc(out.bytes);
	assert(data != NULL);
	packet_flatten(&out, data);
	if (packet_parse(data, out.bytes, false, &packet) == WIRE_DROP_NONE &&
	    packet.kind != WIRE_KNOCK) {
		if (packet.kind == WIRE_STATUS) /* a RESULT or PLAN a bit, and an answer */
			items = packet.body_bytes * 8 + 1;
		items++; /* what is missing of this worker's */
		channel_receive(m->channel, &packet, m->now_us);
		assert(m->channel->replies.tail - m->channel->replies.head <= waiting + items);
	}
	free(data);
}

static uint32_t near_frame(struct machine *m)
{
	uint8_t byte = script_u8(&m->script);
	uint32_t way = m->channel->opened - m->channel->base;

	if (byte < 240)
		return m->channel->base + (way > 0 ? byte % way : 0);
	return m->channel->base + (uint32_t)(int8_t)script_u8(&m->script);
}

/* A PUSH of what the worker announced of that frame. */
static void build_push(struct machine *m)
{
	struct channel *c = m->channel;
	const struct slot *slot;
	const uint64_t *bits;

	m->head.frame = near_frame(m);
	slot = &c->slots[m->head.frame & (c->config.window - 1)];
	if (slot->state == SLOT_EMPTY)
		return;
	bits = segment_bits(c, &c->segments[slot->segment],
	                    m->head.worker % c->config.worker_count);
	m->body_bytes = bitmap_count_between(bits, slot->first, slot->end) * slot->unit_bytes;
	if (m->body_bytes > sizeof(m->body))
		m->body_bytes = sizeof(m->body);
	script_fill(&m->script, m->body, m->body_bytes);
}

static const uint64_t counts[] = {0, 1, 40, 300, 1000, 5000, 30000, 200000, 5000000, 1ull << 40};
static const uint32_t block_lengths[] = {1, 16, 64, 100, 256, 1000, 4096, 65536};

/* The same operation for all workers, most of the time. */
static void announce_fill(struct machine *m, struct announce *a)
{
	static const uint8_t forms[] = {WIRE_FIXED32, WIRE_FIXED16, WIRE_FIXED8, WIRE_BF16};
	struct script *s = &m->script;
	uint8_t kind = script_u8(s);

	*a = (struct announce){
		.tag = script_u8(s) % 4,
		.count = counts[kind % 10],
		.block_elems = block_lengths[kind / 10 % 8],
		.segment = script_u8(s) % 8,
		.generation = script_u8(s) % 16,
		.op_slot = script_u8(s) % 4,
		.exponent = (int16_t)(script_u8(s) - 128),
		.dtype = (uint8_t)(1 + (kind >> 5)),
		.reduction = (uint8_t)(1 + kind % 5),
	};
	if (a->dtype > DTYPE_COUNT) {
		a->dtype = DTYPE_F32;
		a->reduction = (uint8_t)(1 + kind % 2);
		a->form = forms[kind % 4];
	}
}

static void announce_twist(struct machine *m, struct announce *a)
{
	struct script *s = &m->script;

	switch (script_u8(s)) {
	case 1:
		a->count = script_u64(s);
		break;
	case 2:
		a->block_elems = 1u + script_u16(s);
		break;
	case 3:
		a->segment = script_u32(s);
		break;
	case 4:
		a->generation = script_u32(s);
		break;
	case 5:
		a->op_slot = script_u16(s);
		break;
	case 6:
		a->layout = script_u8(s);
		break;
	case 7:
		a->exponent = (int16_t)script_u16(s);
		break;
	case 8:
		a->dtype = script_u8(s);
		a->reduction = script_u8(s);
		break;
	case 9:
		a->form = script_u8(s);
		break;
	default:
		break;
	}
}

/* Bitmap and eager blocks in their right lengths. */
static void build_announce(struct machine *m)
{
	struct announce a;
	struct geometry cut;
	struct packet_out out = {.piece_count = 1};
	uint64_t bits[SEGMENT_WORDS] = {0};
	uint32_t words, count = 0, blocks;

	announce_fill(m, &a);
	announce_twist(m, &a);
	a.flags = script_u8(&m->script) & (WIRE_ALL | WIRE_NONE | WIRE_NONFINITE | WIRE_SCATTER);
	if (geometry_compute(
		    &(struct geometry_input){
			    .count = a.count,
			    .block_elems = a.block_elems,
			    .elem_bytes = dtype_bytes(dtype_in_form(a.form, a.dtype)),
			    .shard_count = 1,
			    .payload = m->channel->config.payload,
			    .converted = a.form != WIRE_NATIVE,
			    .scatter =
				    a.flags & WIRE_SCATTER ? m->channel->config.worker_count : 0},
		    &cut)) {
		blocks = a.segment < cut.segment_count
		                 ? geometry_segment(&cut, a.segment).block_count
		                 : 0;
		a.segment_count = cut.segment_count;
		a.block_elems = cut.one.tile_columns;
		a.block_count = (uint16_t)blocks;
		words = (blocks + 63) / 64;
		script_fill(&m->script, bits, words * 8);
		if (a.flags & (WIRE_ALL | WIRE_NONE))
			memset(bits, a.flags & WIRE_ALL ? 0xff : 0, words * 8);
		if (blocks % 64 != 0)
			bits[words - 1] &= (UINT64_C(1) << blocks % 64) - 1;
		for (uint32_t i = 0; i < words; i++)
			count += (uint32_t)__builtin_popcountll(bits[i]);
		m->body_bytes = WIRE_ANNOUNCE_BYTES;
		if (!(a.flags & (WIRE_ALL | WIRE_NONE))) {
			memcpy(m->body + m->body_bytes, bits, words * 8);
			m->body_bytes += words * 8;
		}
		if (cut.eager) {
			a.flags |= WIRE_EAGER;
			script_fill(&m->script, m->body + m->body_bytes,
			            count * cut.one.frames.block_bytes);
			m->body_bytes += count * cut.one.frames.block_bytes;
		}
	}
	/* More than the cut says, or less. */
	if (script_u8(&m->script) % 16 == 0)
		a.block_count = script_u16(&m->script);
	if (script_u8(&m->script) % 16 == 0)
		a.segment_count = script_u32(&m->script);
	packet_begin(&out, &m->head);
	packet_put_announce(&out, &a);
	memcpy(m->body, out.head + WIRE_HEADER_BYTES, WIRE_ANNOUNCE_BYTES);
}

static void build_body(struct machine *m, uint8_t kind)
{
	switch (kind) {
	case WIRE_ANNOUNCE:
		build_announce(m);
		break;
	case WIRE_PUSH:
		build_push(m);
		break;
	default:
		m->head.frame = near_frame(m);
		m->head.sequence = script_u16(&m->script);
		m->body_bytes = WIRE_STATUS_BYTES +
		                8u * (script_u8(&m->script) % (WIRE_STATUS_WORDS_MAX + 1));
		script_fill(&m->script, m->body, m->body_bytes);
		m->body[4] &= WIRE_STATUS_ASKS;
	}
	m->head.pushed = near_frame(m);
}

/* One thing about a packet that is otherwise right. */
static void twist(struct machine *m)
{
	struct script *s = &m->script;

	switch (script_u8(s)) {
	case 1:
		m->head.worker = script_u16(s);
		break;
	case 2:
		m->head.seal = script_u64(s);
		break;
	case 3:
		m->head.frame = script_u32(s);
		break;
	case 4:
		m->head.edge = script_u32(s);
		break;
	case 5:
		m->head.number ^= script_u64(s);
		break;
	case 6:
		m->body_bytes -= script_u8(s) % (m->body_bytes + 1);
		break;
	case 10:
		m->body_bytes = script_below(s, sizeof(m->body));
		break;
	case 7:
		m->head.kind = script_u8(s) & 0x7f;
		break;
	case 8:
		script_fill(s, m->body, script_u8(s));
		break;
	default:
		break;
	}
}

static void send_one(struct machine *m)
{
	static const uint8_t kinds[8] = {WIRE_ANNOUNCE, WIRE_PUSH,   WIRE_STATUS, WIRE_ANNOUNCE,
	                                 WIRE_PUSH,     WIRE_STATUS, WIRE_STATUS, WIRE_PUSH};
	struct channel *c = m->channel;
	uint8_t byte = script_u8(&m->script);
	uint16_t worker = (uint16_t)(byte / 8 % c->config.worker_count);

	m->body_bytes = 0;
	m->head = (struct wire_header){
		.kind = kinds[byte % 8],
		.channel = c->config.id,
		.worker = worker,
		.seal = m->tokens[worker],
		.edge = c->members[worker].ack,
	};
	if (byte % 8 == 2)
		m->head.edge = near_frame(m) + 1;
	build_body(m, m->head.kind);
	twist(m);
	deliver(m);
}

/* All workers acknowledge all that is open: the quickest way onwards. */
static void acknowledge_all(struct machine *m)
{
	uint32_t edge = m->channel->opened;

	memset(m->body, 0, WIRE_STATUS_BYTES);
	m->body_bytes = WIRE_STATUS_BYTES;
	for (uint16_t i = 0; i < m->channel->config.worker_count; i++) {
		m->head = (struct wire_header){
			.kind = WIRE_STATUS, .worker = i, .seal = m->tokens[i], .edge = edge};
		deliver(m);
	}
}

static void step(struct machine *m)
{
	struct channel_stall stall;

	switch (script_u8(&m->script) % 16) {
	case 0:
		m->now_us += script_u32(&m->script);
		if (channel_stalled(m->channel, m->now_us, &stall))
			assert(stall.missing <= m->channel->config.worker_count &&
			       stall.rank < m->channel->config.worker_count);
		break;
	case 1:
		pull_all(m, UINT32_MAX);
		assert(!channel_idle(m->channel) || m->channel->ops_used == 0);
		break;
	case 2:
		pull_all(m, script_u8(&m->script));
		break;
	case 3:
		acknowledge_all(m);
		break;
	default:
		send_one(m);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct machine m;

	m = (struct machine){.script = {.at = data, .left = bytes}};
	if (!machine_open(&m))
		return 0;
	while (m.script.left > 0) {
		step(&m);
		channel_check(m.channel);
	}
	pull_all(&m, UINT32_MAX);
	channel_close(m.channel);
	return 0;
}
