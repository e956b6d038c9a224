// SPDX-License-Identifier: BSD-3-Clause
/*
 * world_kernel.c - a kernel with the fast path in front of a simulated aggregator
 *
 * What the XDP program does with a datagram is written down a second time here, from ebpf/fastpath.h and PROTOCOL.md.
 * It knows nothing of Ethernet, IP and checksums.
 */

#include <stdlib.h>
#include <string.h>

#include "ebpf/fastpath.h"
#include "ebpf/seal.h"
#include "tests/flatten.h"
#include "tests/sim/world_impl.h"

/* ---- the program ---- */

enum kernel_verdict {
	KERNEL_PASS,  /* to user space, as it came */
	KERNEL_DROP,  /* taken, or no good */
	KERNEL_GROUP, /* the packet is now a RESULT for everyone */
};

struct kernel_model {
	struct fast_channel *channel; /* the packet's */
	struct fast_slot *slots;      /* that channel's */
	bool no_room;                 /* packets cannot grow */
	bool at_home;                 /* the packet comes from where its worker knocked, */
	bool marked;                  /* with congestion marked */
};

struct run {
	const struct kernel_model *model;
	struct fast_channel *channel;
	struct packet packet;
	uint8_t *bytes_at;
	uint32_t *bytes;
};

static enum kernel_verdict send(struct run *run, const struct fast_slot *slot)
{
	uint32_t body_bytes = slot->block_count * slot->unit_bytes;
	const struct fast_channel *channel = run->channel;
	struct packet_out out;
	struct wire_header head = {
		.kind = WIRE_RESULT,
		.channel = channel->id,
		.worker = WIRE_EVERYONE,
		.seal = channel->group_token,
		.frame = run->packet.frame,
		.edge = (uint32_t)channel->base,
		.window = (uint16_t)(channel->credit - (uint32_t)channel->base),
		.sequence = (uint16_t)slot->sequence,
		.planned = channel->planned,
	};

	packet_begin(&out, &head);
	packet_point(&out, slot->data, body_bytes);
	if (channel->sealed)
		seal_write(&out, &channel->stretch, &channel->keys[FAST_KEY_GROUP], channel->base);
	packet_flatten(&out, run->bytes_at);
	*run->bytes = WIRE_HEADER_BYTES + body_bytes;
	return KERNEL_GROUP;
}

static bool is_call(const struct run *run)
{
	return (run->packet.frame + 1) % (run->channel->call_mask + 1) == 0;
}

static bool fits(const struct run *run, uint32_t body_bytes)
{
	return !run->model->no_room || WIRE_HEADER_BYTES + body_bytes <= *run->bytes;
}

static void ack_note(struct run *run)
{
	uint32_t *ack = &run->channel->ack[run->packet.worker];
	uint32_t *room = &run->channel->room[run->packet.worker];
	uint32_t window = run->packet.window;

	if (window == 0 || window > run->channel->window_mask + 1)
		window = run->channel->window_mask + 1;
	if (frame_before(*ack, run->packet.edge))
		*ack = run->packet.edge;
	if (frame_before(*room, run->packet.edge + window))
		*room = run->packet.edge + window;
}

static void add(const struct run *run, struct fast_slot *slot)
{
	const uint8_t *from = run->packet.body;

	for (uint32_t block = 0; block < slot->block_count; block++) {
		uint8_t *to = slot->data + block * slot->unit_bytes;

		if (!(slot->owned[run->packet.worker] >> block & 1))
			continue;
		for (uint32_t i = 0; i < slot->unit_bytes; i += 4) {
			uint32_t sum = 0, value;

			if (slot->touched >> block & 1)
				memcpy(&sum, to + i, 4);
			memcpy(&value, from + i, 4);
			sum += value;
			memcpy(to + i, &sum, 4);
		}
		slot->touched |= UINT64_C(1) << block;
		from += slot->unit_bytes;
	}
}

static enum kernel_verdict complete(struct run *run, struct fast_slot *slot)
{
	uint32_t body_bytes = slot->block_count * slot->unit_bytes;

	slot->state = FAST_DONE;
	if (!run->channel->multicast || slot->private || is_call(run) || !fits(run, body_bytes))
		return KERNEL_PASS;
	slot->sequence = (uint16_t)++run->channel->sequence;
	slot->sent = 1;
	run->channel->told_base = (uint32_t)run->channel->base;
	run->channel->told_credit = run->channel->credit;
	return send(run, slot);
}

static enum kernel_verdict push(struct run *run)
{
	const struct packet *packet = &run->packet;
	struct fast_slot *slot = &run->model->slots[packet->frame & run->channel->window_mask];
	uint64_t bit = UINT64_C(1) << packet->worker;
	uint64_t owned = slot->owned[packet->worker];

	if (slot->frame != packet->frame || slot->state == FAST_CLOSED)
		return KERNEL_PASS;
	if (owned == 0 ||
	    packet->body_bytes != (uint32_t)__builtin_popcountll(owned) * slot->unit_bytes)
		return KERNEL_DROP;
	ack_note(run);
	if (slot->came & bit)
		return is_call(run) ? KERNEL_PASS : KERNEL_DROP;
	slot->came |= bit;
	add(run, slot);
	if (++slot->arrived == slot->expected)
		return complete(run, slot);
	return is_call(run) ? KERNEL_PASS : KERNEL_DROP;
}

/* Who sees a PUSH counts its mark. */
static enum kernel_verdict push_marked(struct run *run)
{
	enum kernel_verdict verdict = push(run);

	if (run->model->marked && verdict != KERNEL_PASS)
		run->channel->marked[run->packet.worker]++;
	return verdict;
}

/* One datagram of `*bytes` bytes, in a buffer of FAST_PAYLOAD_MAX. Changes the slots, and for GROUP the packet. */
static enum kernel_verdict kernel_model(const struct kernel_model *model, uint8_t *packet,
                                        uint32_t *bytes)
{
	struct run run = {
		.model = model, .channel = model->channel, .bytes_at = packet, .bytes = bytes};

	if (packet_parse(packet, *bytes, false, &run.packet) != WIRE_DROP_NONE)
		return KERNEL_DROP;
	if (!run.channel->active)
		return KERNEL_PASS;
	if (run.packet.worker >= run.channel->worker_count ||
	    (!run.channel->sealed && run.packet.token != run.channel->tokens[run.packet.worker]))
		return KERNEL_DROP;
	if (run.packet.kind == WIRE_KNOCK)
		return KERNEL_PASS;
	if (!model->at_home)
		return KERNEL_DROP;
	if (run.channel->sealed &&
	    !seal_right(packet, *bytes, &run.channel->stretch,
	                &run.channel->keys[run.packet.worker], run.channel->base))
		return KERNEL_PASS;
	return run.packet.kind == WIRE_PUSH ? push_marked(&run) : KERNEL_PASS;
}

/* ---- before an aggregator ---- */

static void *zeroed(size_t count, size_t bytes)
{
	void *memory = calloc(count, bytes);

	if (memory == NULL)
		abort();
	return memory;
}

const char *kernel_share(void *context, const struct jobs_channel *channel,
                         struct channel_config *config)
{
	struct sim_aggregator *a = context;
	struct fast_channel *fast;

	if (!a->spec->fast)
		return "";
	if (channel->worker_count > FAST_WORKERS_MAX)
		return "too many workers";
	fast = zeroed(1, sizeof(*fast));
	fast->id = channel->id;
	fast->worker_count = channel->worker_count;
	fast->group_token = channel->group_token;
	fast->knocked = UINT64_MAX >> (FAST_WORKERS_MAX - channel->worker_count);
	memcpy(fast->tokens, config->tokens, channel->worker_count * sizeof(fast->tokens[0]));
	fast->sealed = channel->seals != NULL;
	if (fast->sealed) {
		fast->stretch = channel->seals->stretch;
		fast->keys[FAST_KEY_GROUP] = channel->seals->group;
		memcpy(fast->keys, channel->seals->workers,
		       channel->worker_count * sizeof(fast->keys[0]));
	}
	config->fast = a->fast = fast;
	config->fast_slots = a->fast_slots = zeroed(config->window, sizeof(*a->fast_slots));
	return NULL;
}

void kernel_attach(struct sim_aggregator *a, struct sim_port *port)
{
	port->fast = a->fast;
	port->fast_slots = a->fast_slots;
	a->fast = NULL;
	a->fast_slots = NULL;
}

void kernel_release(struct sim_port *port)
{
	free(port->fast);
	free(port->fast_slots);
	port->fast = NULL;
	port->fast_slots = NULL;
}

void kernel_unshare(void *context, uint16_t id)
{
	kernel_release(port_named(context, id));
}

/* It does not wait for a device that is full. */
static bool has_room(struct sim_aggregator *a)
{
	if (simnet_ready_us(a->world->net, a->node) <= simnet_now(a->world->net))
		return true;
	a->world->out->overflowed++;
	return false;
}

bool kernel_takes(struct sim_aggregator *a, struct sim_port *port, const struct sim_event *event,
                  bool at_home)
{
	struct world *world = a->world;
	struct kernel_model model = {port->fast, port->fast_slots, a->spec->no_room, at_home,
	                             event->marked};
	uint8_t packet[FAST_PAYLOAD_MAX];
	uint32_t bytes = event->bytes;

	if (port->fast == NULL || bytes > sizeof(packet) ||
	    simnet_chance(world->net, a->spec->bypass_ppm))
		return false;
	memcpy(packet, event->data, bytes);
	switch (kernel_model(&model, packet, &bytes)) {
	case KERNEL_PASS: /* and may be lost on its way up: a full socket, a firewall */
		return simnet_chance(world->net, a->spec->in.loss_ppm);
	case KERNEL_DROP:
		return true;
	case KERNEL_GROUP:
		if (has_room(a))
			simnet_send(world->net, a->node, port->node, port->info.worker_count,
			            packet, bytes);
		return true;
	}
	return false;
}
