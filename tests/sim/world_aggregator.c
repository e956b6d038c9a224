// SPDX-License-Identifier: BSD-3-Clause
/* world_aggregator.c - an aggregator's shell in the simulation */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world_impl.h"

#define TICK_US 20000

/* ---- ports: what the data plane does for jobs.c ---- */

static void port_send(void *context, struct jobs_peer *peer, const char *line)
{
	struct sim_aggregator *a = context;
	struct sim_peer *handle = jobs_peer_handle(peer);

	simnet_line(a->world->net, a->node, handle->worker_node, 0, line);
}

static void port_close(void *context, struct jobs_peer *peer)
{
	struct sim_aggregator *a = context;
	struct sim_peer *handle = jobs_peer_handle(peer);

	handle->peer = NULL;
	simnet_gone(a->world->net, a->node, handle->worker_node, 0);
}

static struct sim_port *port_named(struct sim_aggregator *a, uint16_t id)
{
	for (uint32_t i = 0; i < PORTS_MAX; i++)
		if (a->ports[i].used && a->ports[i].info.id == id)
			return &a->ports[i];
	return NULL;
}

static int port_attach(void *context, const struct jobs_channel *channel)
{
	struct sim_aggregator *a = context;

	if (port_named(a, channel->id) != NULL)
		world_fail(a->world, "channel id %u is used twice", channel->id);
	for (uint32_t i = 0; i < PORTS_MAX; i++) {
		if (a->ports[i].used)
			continue;
		memset(&a->ports[i], 0, sizeof(a->ports[i]));
		a->ports[i].used = true;
		a->ports[i].info = *channel;
		kernel_attach(a, &a->ports[i]);
		return 0;
	}
	return -1;
}

static void port_start(void *context, uint16_t id, struct channel *channel, const bool multicast[])
{
	struct sim_port *port = port_named(context, id);

	port->channel = channel;
	memcpy(port->multicast, multicast, port->info.worker_count * sizeof(multicast[0]));
}

static void port_detach(void *context, uint16_t id)
{
	struct sim_port *port = port_named(context, id);

	port->used = false;
	kernel_release(port);
}

/* Frame numbers often begin just before they wrap. */
static void port_random(void *context, void *out, size_t bytes)
{
	struct sim_aggregator *a = context;
	uint8_t *to = out;

	for (size_t i = 0; i < bytes; i++)
		to[i] = (uint8_t)simnet_random(a->world->net);
	if (bytes == sizeof(uint32_t) && simnet_chance(a->world->net, 300000)) {
		uint32_t frame = (uint32_t)-20;

		memcpy(out, &frame, sizeof(frame));
	}
}

static void port_log(void *context, const char *level, const char *text)
{
	(void)context;
	(void)level;
	(void)text;
}

/* ---- life ---- */

void aggregator_open(struct world *world, uint32_t index)
{
	struct sim_aggregator *a = &world->aggregators[index];
	struct jobs_config config = {
		.software = "sim",
		.threads = world->spec->threads,
		.peers_max = world->worker_count + 4,
		.jobs_max = 40,
		.workers_max = SIM_WORLD_MAX,
		.job_bytes_max = (size_t)1 << 32,
		.bytes_max = (size_t)1 << 33,
		.payload_max = world->spec->payload_max,
		.window_bytes = world->spec->window_bytes,
		.rcvbuf_bytes = 1u << 20,
		.op_slots = world->spec->op_slots,
		.segments_ahead = world->spec->segments_ahead,
		.join_us = 20000000,
		.hello_us = 5000000,
		.group_net = 0xef4d0000,
		.group_port = 5555,
		.engine = world->engine,
	};
	struct jobs_ports ports = {
		.context = a,
		.send = port_send,
		.close = port_close,
		.share = world->spec->fast ? kernel_share : NULL,
		.attach = port_attach,
		.start = port_start,
		.detach = port_detach,
		.random = port_random,
		.log = port_log,
	};

	a->world = world;
	a->node = index;
	a->peers = calloc(world->worker_count, sizeof(*a->peers));
	if (jobs_open(&config, &ports, &a->jobs) != 0)
		abort();
	simnet_timer(world->net, a->node, TIMER_TICK, TICK_US);
}

void aggregator_close(struct sim_aggregator *aggregator)
{
	struct jobs_totals totals;

	jobs_totals(aggregator->jobs, &totals);
	if (!aggregator->dead && !aggregator->world->failed && totals.bytes != 0)
		world_fail(aggregator->world, "%zu bytes of jobs are still reserved at the end",
		           totals.bytes);
	jobs_end(aggregator->jobs, "the simulation is over");
	jobs_close(aggregator->jobs);
	free(aggregator->peers);
}

void aggregator_connect(struct sim_aggregator *aggregator, uint32_t worker_node)
{
	struct sim_peer *handle =
		&aggregator->peers[worker_node - aggregator->world->spec->aggregators];
	const struct net_addr from = {.ip = 0x0a000000 + worker_node, .port = 1};

	handle->aggregator = aggregator;
	handle->worker_node = worker_node;
	handle->peer = jobs_connected(aggregator->jobs, &from, aggregator->node + 1, handle,
	                              simnet_now(aggregator->world->net));
}

void aggregator_kill(struct sim_aggregator *aggregator)
{
	struct world *world = aggregator->world;

	aggregator->dead = true;
	for (uint32_t i = 0; i < world->worker_count; i++)
		if (aggregator->peers[i].peer != NULL)
			simnet_gone(world->net, aggregator->node, aggregator->peers[i].worker_node,
			            0);
}

/* ---- packets ---- */

static void send_to(struct sim_aggregator *a, uint32_t node, const struct packet_out *out)
{
	if (node == 0)
		return; /* this worker has not knocked yet */
	packet_flatten(out, a->world->flat);
	simnet_send(a->world->net, a->node, node, a->world->flat, out->bytes);
}

static void fan_out(struct sim_aggregator *a, const struct sim_port *port,
                    const struct packet_out *out)
{
	if (out->dest != WIRE_EVERYONE) {
		send_to(a, port->node[out->dest], out);
		return;
	}
	/* What multicast reaches, and what is reached one by one: the same here. */
	for (uint32_t rank = 0; rank < port->info.worker_count; rank++)
		send_to(a, port->node[rank], out);
}

static void knock_answer(struct sim_aggregator *a, struct sim_port *port,
                         const struct packet *packet, uint32_t from)
{
	struct world *world = a->world;
	struct packet_head head = {
		.kind = WIRE_KNOCKED,
		.channel = port->info.id,
		.worker = packet->worker,
		.token = port->info.group_token,
	};
	struct packet_out out;

	port->node[packet->worker] = from;
	packet_begin(&out, &head);
	memset(world->scratch, 0, packet->body_bytes);
	packet_point(&out, world->scratch, packet->body_bytes);
	send_to(a, from, &out);
	head.kind = WIRE_PROBE;
	head.worker = WIRE_EVERYONE;
	packet_begin(&out, &head);
	for (uint32_t i = 0; i < world->worker_count; i++)
		if (world->workers[i].hears_multicast && world->workers[i].group_known[a->node])
			send_to(a, world->workers[i].node, &out);
}

static void datagram(struct sim_aggregator *a, const struct sim_event *event)
{
	uint64_t now_us = simnet_now(a->world->net);
	struct packet_out out = {.scratch = a->world->scratch};
	struct sim_port *port;
	struct packet packet;

	if (packet_parse(event->data, event->bytes, false, &packet) != WIRE_DROP_NONE)
		return;
	port = port_named(a, packet.channel);
	if (port == NULL)
		return;
	if (packet.kind == WIRE_KNOCK) {
		if (packet.worker < port->info.worker_count &&
		    packet.token == port->info.tokens[packet.worker])
			knock_answer(a, port, &packet, event->from);
		return;
	}
	if (port->channel == NULL)
		return;
	a->world->out->forced += packet.kind == WIRE_NACK && (packet.mask & WIRE_NACK_FORCE) != 0;
	if (kernel_takes(a, port, event))
		return;
	channel_receive(port->channel, &packet, now_us);
	while (channel_pull(port->channel, now_us, &out))
		fan_out(a, port, &out);
}

static void tick(struct sim_aggregator *a)
{
	uint64_t now_us = simnet_now(a->world->net);
	struct channel_stall stall;

	jobs_tick(a->jobs, now_us);
	for (uint32_t i = 0; i < PORTS_MAX; i++)
		if (a->ports[i].used && a->ports[i].channel != NULL &&
		    channel_stalled(a->ports[i].channel, now_us, &stall))
			jobs_stalled(a->jobs, a->ports[i].info.id, &stall);
	simnet_timer(a->world->net, a->node, TIMER_TICK, now_us + TICK_US);
}

void aggregator_event(struct sim_aggregator *a, const struct sim_event *event)
{
	uint64_t now_us = simnet_now(a->world->net);
	struct sim_peer *peer;

	if (a->dead)
		return;
	if (event->kind == SIM_TIMER) {
		tick(a);
		return;
	}
	if (event->kind == SIM_DATAGRAM) {
		datagram(a, event);
		return;
	}
	peer = &a->peers[event->from - a->world->spec->aggregators];
	if (peer->peer == NULL)
		return;
	if (event->kind == SIM_LINE)
		jobs_line(a->jobs, peer->peer, (const char *)event->data, now_us);
	else
		jobs_gone(a->jobs, peer->peer, "connection reset");
}
