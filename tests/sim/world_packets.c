// SPDX-License-Identifier: BSD-3-Clause
/* world_packets.c - an aggregator's datagrams in the simulation: what data_packets.c does */

#include <string.h>

#include "tests/check/check.h"
#include "tests/flatten.h"
#include "tests/sim/world_impl.h"

#define PROBE_US 5000       /* one PROBE of a size in this time is enough for all workers */
#define SEND_WAIT_US 100000 /* as in data_packets.c */

/* ---- seals ---- */

static void port_seal(const struct sim_port *port, struct packet_out *packet)
{
	const struct seals *seals = port->info.seals;

	if (seals != NULL)
		seal_write(packet, &seals->stretch, &seals->group,
		           port->channel != NULL ? channel_edge(port->channel) : 0);
}

static void port_unseal(const struct sim_port *port, const struct sim_event *event,
                        struct packet *packet)
{
	const struct seals *seals = port->info.seals;
	uint64_t edge = port->channel != NULL ? channel_edge(port->channel) : 0;

	if (seals == NULL || packet->worker >= port->info.worker_count)
		return;
	seal_check(packet, event->data, event->bytes, port->info.tokens[packet->worker],
	           &seals->stretch, &seals->workers[packet->worker], edge);
}

/* ---- sending ---- */

/* A thread whose socket is full waits for room; false: for too long, and the datagram is given up. */
static bool waits_for_room(struct sim_aggregator *a)
{
	uint64_t now_us = simnet_now(a->world->net);
	uint64_t ready_us = simnet_ready_us(a->world->net, a->node);
	uint64_t here_us = a->thread.busy_until_us > now_us ? a->thread.busy_until_us : now_us;

	if (ready_us <= here_us)
		return true;
	if (ready_us - here_us > SEND_WAIT_US) {
		a->thread.busy_until_us = here_us + SEND_WAIT_US;
		a->world->out->unsent++;
		return false;
	}
	a->thread.busy_until_us = ready_us;
	return true;
}

static void send_one(struct sim_aggregator *a, const struct sim_port *port, uint16_t rank,
                     const void *data, uint32_t bytes)
{
	if (port->address[rank] != 0 && waits_for_room(a))
		simnet_send_to(a->world->net, a->node, port->node[rank], port->address[rank], data,
		               bytes);
}

/* Several workers of one site have its node, and what goes to all goes there once. */
static void check_once(const struct sim_aggregator *a, const struct sim_port *port, uint32_t rank)
{
	const struct world_spec *spec = a->world->spec;

	for (uint32_t other = 0; other < rank && spec->site_count > 0; other++)
		if (port->address[other] != 0 && port->node[other] == port->node[rank])
			world_fail(a->world, "rank %u and %u get the same by one line", other,
			           rank);
}

/*
 * To one worker; or to all: once to the group, once each to the rest. What one worker alone receives goes to
 * it first, and its head to all others.
 */
static void fan_out(struct sim_aggregator *a, const struct sim_port *port, struct packet_out *out,
                    void *data)
{
	uint32_t group[SIM_WORLD_MAX], count = 0, bytes = out->bytes;

	if (out->dest != WIRE_EVERYONE) {
		send_one(a, port, out->dest, data, bytes);
		return;
	}
	if (out->receiver != WIRE_EVERYONE) {
		send_one(a, port, out->receiver, data, bytes);
		out->piece_count = 1;
		out->bytes = bytes = (uint32_t)out->pieces[0].iov_len;
		port_seal(port, out);
		packet_flatten(out, data);
	}
	for (uint32_t rank = 0; rank < port->info.worker_count; rank++)
		if (port->multicast[rank] && port->address[rank] != 0)
			group[count++] = port->node[rank];
	if (count > 0 && waits_for_room(a))
		simnet_send(a->world->net, a->node, group, count, data, bytes);
	for (uint16_t rank = 0; rank < port->info.worker_count; rank++)
		if (!port->multicast[rank] && rank != out->receiver &&
		    !channel_is_mute(port->channel, rank) && port->address[rank] != 0) {
			check_once(a, port, rank);
			send_one(a, port, rank, data, bytes);
		}
}

static void drain(struct sim_aggregator *a, struct sim_port *port)
{
	struct packet_out out = {.scratch = a->world->scratch};
	uint64_t pulled = a->pulled;

	port->dirty = false;
	if (port->relay != NULL)
		relay_work(port->relay, simnet_now(a->world->net));
	while (channel_pull(port->channel, simnet_now(a->world->net), &out)) {
		port_seal(port, &out);
		packet_flatten(&out, a->world->flat);
		a->pulled++;
		memcpy(&port->base, a->world->flat + offsetof(struct wire_header, edge), 4);
		memcpy(&port->sequence, a->world->flat + offsetof(struct wire_header, sequence), 2);
		port->base_known = true;
		fan_out(a, port, &out, a->world->flat);
	}
	if (a->pulled != pulled ||
	    port->relay != NULL) /* else it is as it was when that was last looked at */
		channel_check(port->channel);
	relay_drain(a, port);
}

void packets_drain(struct sim_aggregator *a)
{
	a->thread.turn_due = false;
	for (uint32_t i = 0; i < PORTS_MAX; i++)
		if (a->ports[i] != NULL && a->ports[i]->dirty)
			drain(a, a->ports[i]);
}

/* ---- receiving ---- */

static void probe_group(struct sim_aggregator *a, const void *data, uint32_t bytes)
{
	const struct world *world = a->world;
	uint32_t group[SIM_WORLD_MAX], count = 0;

	for (uint32_t i = 0; i < world->spec->worker_count && count < SIM_WORLD_MAX; i++)
		if (world->workers[i].spec->hears_multicast &&
		    world->workers[i].group_known[a->node])
			group[count++] = world->workers[i].node;
	if (count > 0 && waits_for_room(a))
		simnet_send(world->net, a->node, group, count, data, bytes);
}

/* To whoever has knocked; whose address is noted is another matter. */
static void knock_reply(struct sim_aggregator *a, struct sim_port *port,
                        const struct knock_arrival *knock, const struct sim_event *event,
                        bool asked)
{
	const struct packet *packet = knock->packet;
	struct world *world = a->world;
	struct wire_header head = {
		.kind = WIRE_KNOCKED,
		.channel = port->info.id,
		.worker = packet->worker,
		.seal = port->info.group_token,
		.number = asked ? knock->proof : 0,
	};
	uint64_t now_us = simnet_now(world->net);
	struct packet_out out;

	if (event->from == world->nobody)
		world_fail(world, "a stranger's KNOCK is answered");
	packet_begin(&out, &head);
	memset(world->scratch, 0, packet->body_bytes);
	if (!asked)
		packet_point(&out, world->scratch, packet->body_bytes);
	port_seal(port, &out);
	packet_flatten(&out, world->flat);
	knock_note(&port->knockers[packet->worker], knock, asked ? KNOCK_ASKED : KNOCK_HOME,
	           now_us);
	if (asked) {
		if (waits_for_room(a))
			simnet_send_to(world->net, a->node, event->from, event->address,
			               world->flat, out.bytes);
		return;
	}
	port->node[packet->worker] = event->from;
	port->address[packet->worker] = event->address;
	send_one(a, port, packet->worker, world->flat, out.bytes);
	if (port->channel != NULL ||
	    (port->probe_bytes == event->bytes && now_us - port->probe_us < PROBE_US))
		return;
	port->probe_bytes = event->bytes;
	port->probe_us = now_us;
	head.kind = WIRE_PROBE;
	head.worker = WIRE_EVERYONE;
	packet_begin(&out, &head);
	packet_point(&out, world->scratch, packet->body_bytes);
	port_seal(port, &out);
	packet_flatten(&out, world->flat);
	probe_group(a, world->flat, out.bytes);
}

static bool at_home(const struct sim_port *port, const struct packet *packet,
                    const struct sim_event *event)
{
	return packet->worker < port->info.worker_count &&
	       port->node[packet->worker] == event->from &&
	       port->address[packet->worker] == event->address;
}

static void knock_take(struct sim_aggregator *a, struct sim_port *port, const struct packet *packet,
                       const struct sim_event *event)
{
	const uint64_t path[KNOCK_PATH_WORDS] = {event->from, event->address, packet->channel,
	                                         packet->worker};
	const struct knock_arrival knock = {
		.packet = packet,
		.home = at_home(port, packet, event),
		.whole = port->channel != NULL && event->bytes >= channel_payload(port->channel),
		.started = port->channel != NULL,
		.sealed = a->world->keyed,
		.proof = knock_proof(&port->info.secret, path),
	};
	enum knock_verdict verdict;

	if (packet->worker >= port->info.worker_count ||
	    packet->token != port->info.tokens[packet->worker])
		return;
	verdict = knock_judge(&port->knockers[packet->worker], &knock);
	if (verdict == KNOCK_STRANGE)
		a->strange++;
	else
		knock_reply(a, port, &knock, event, verdict == KNOCK_ASKED);
}

void packets_take(struct sim_aggregator *a, struct sim_event *event)
{
	struct sim_port *port;
	struct packet packet;
	struct status status;

	if (a->sited && site_datagram(a, event))
		return;
	if (packet_parse(event->data, event->bytes, false, &packet) != WIRE_DROP_NONE)
		return;
	port = port_named(a, packet.channel);
	if (port == NULL || (port->channel == NULL && packet.kind != WIRE_KNOCK))
		return;
	if (!event->again && packet.kind != WIRE_KNOCK &&
	    kernel_takes(a, port, event, at_home(port, &packet, event)))
		return;
	if (thread_busy(a->world, &a->thread, event))
		return;
	port_unseal(port, event, &packet);
	if (packet.kind == WIRE_KNOCK) {
		knock_take(a, port, &packet, event);
		return;
	}
	if (!at_home(port, &packet, event)) {
		a->strange++;
		return;
	}
	if (packet.kind == WIRE_STATUS && status_parse(&packet, &status) == WIRE_DROP_NONE)
		a->world->out->asking += status.asks;
	a->received++;
	packet.came_us = event->came_us;
	packet.marked = event->marked;
	channel_receive(port->channel, &packet, simnet_now(a->world->net));
	channel_check(port->channel);
	port->dirty = true;
	if (!thread_gathers(a->world, &a->thread, a->node, a->spec->turn_us))
		packets_drain(a);
}
