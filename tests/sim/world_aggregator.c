// SPDX-License-Identifier: BSD-3-Clause
/* world_aggregator.c - an aggregator's shell in the simulation: what control.c does */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check/check.h"
#include "tests/sim/world_impl.h"

#define TICK_US 20000

/* ---- ports: what the data plane does for jobs.c ---- */

static void port_send(void *context, struct jobs_peer *peer, const char *line)
{
	struct sim_aggregator *a = context;
	struct sim_peer *handle = jobs_peer_handle(peer);

	if (!a->dead)
		simnet_line(a->world->net, handle->connection, a->node, handle->worker_node, line);
}

static void port_close(void *context, struct jobs_peer *peer)
{
	struct sim_aggregator *a = context;
	struct sim_peer *handle = jobs_peer_handle(peer);

	handle->peer = NULL;
	if (!a->dead)
		simnet_gone(a->world->net, handle->connection, a->node, handle->worker_node);
}

static int port_attach(void *context, const struct jobs_channel *channel)
{
	struct sim_aggregator *a = context;

	if (port_named(a, channel->id) != NULL)
		world_fail(a->world, "channel id %u is used twice", channel->id);
	for (uint32_t i = 0; i < PORTS_MAX; i++) {
		if (a->ports[i] != NULL)
			continue;
		a->ports[i] = calloc(1, sizeof(*a->ports[i]));
		a->ports[i]->info = *channel;
		a->ports[i]->serial = ++a->world->ports;
		kernel_attach(a, a->ports[i]);
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

static void port_heard(void *context, uint16_t id, uint32_t rank, struct jobs_heard *out)
{
	struct sim_aggregator *a = context;

	knock_ages(&port_named(a, id)->knockers[rank], simnet_now(a->world->net), out);
}

static void stats_keep(struct sim_aggregator *a, struct channel *channel)
{
	const uint64_t *from = (const uint64_t *)(const void *)channel_stats(channel);
	uint64_t *to = (uint64_t *)(void *)&a->stats;

	for (size_t i = 0; i < sizeof(a->stats) / sizeof(*to); i++)
		to[i] += from[i];
}

static void port_free(struct sim_aggregator *a, uint32_t index)
{
	kernel_release(a->ports[index]);
	free(a->ports[index]);
	a->ports[index] = NULL;
}

static void port_detach(void *context, uint16_t id)
{
	struct sim_aggregator *a = context;
	struct sim_port *port = port_named(a, id);

	if (port->channel != NULL) {
		stats_keep(a, port->channel);
		measure_channel(a, port);
	}
	relay_end(a, port);
	for (uint32_t i = 0; i < PORTS_MAX; i++)
		if (a->ports[i] == port)
			port_free(a, i);
}

/* Frame numbers often begin just before they wrap, or before 2^31, where comparisons would. */
static void port_random(void *context, void *out, size_t bytes)
{
	struct sim_aggregator *a = context;
	uint8_t *to = out;

	for (size_t i = 0; i < bytes; i++)
		to[i] = (uint8_t)simnet_random(a->world->net);
	if (bytes == sizeof(uint32_t) && simnet_chance(a->world->net, 300000)) {
		uint32_t frame = (to[0] & 1 ? 0 : UINT32_C(1) << 31) - 20;

		memcpy(out, &frame, sizeof(frame));
	}
}

/* As TLS would, at both ends. */
static struct seal_key key_of(uint32_t connection, const char *membership)
{
	struct seal_key key = {{connection, 0}};

	for (; *membership != '\0'; membership++)
		key.words[1] = key.words[1] * 131 + (uint8_t)*membership;
	return key;
}

void connection_secure(const struct world *world, uint32_t connection, const char *membership,
                       struct link *link)
{
	const struct seal_key key = key_of(connection, membership);

	if (world->keyed)
		link_secured(link, &key);
}

static int port_seal_key(struct jobs_peer *peer, const char *membership, struct seal_key *out)
{
	const struct sim_peer *handle = jobs_peer_handle(peer);

	*out = key_of(handle->connection, membership);
	return 0;
}

static void port_log(void *context, const char *level, const char *event,
                     const struct log_field fields[], const char *text)
{
	(void)context;
	(void)level;
	(void)event;
	(void)fields;
	(void)text;
}

/* ---- life ---- */

static void jobs_begin(struct sim_aggregator *a)
{
	const struct aggregator_spec *spec = a->spec;
	struct jobs_config config = {
		.software = "sim",
		.keys = a->world->keyed,
		.threads = spec->threads,
		.peers_max = 2 * a->world->spec->worker_count + 4, /* some are half open */
		.jobs_max = 40,
		.workers_max = SIM_WORLD_MAX,
		.job_bytes_max = (size_t)1 << 32,
		.bytes_max = (size_t)1 << 33,
		.payload_max = spec->payload_max,
		.window_bytes = spec->window_bytes,
		.rcvbuf_bytes = spec->rcvbuf,
		.op_slots = spec->op_slots,
		.segments_ahead = spec->segments_ahead,
		.join_us = a->world->spec->members != NULL ? 2000000 : 20000000,
		.hello_us = 5000000,
		.group_nets = {NET_IPV4(0xef4d0000)},
		.group_port = 5555,
		.engine = a->world->engine,
	};
	struct jobs_ports ports = {
		.context = a,
		.kernel = a,
		.data = a,
		.send = port_send,
		.close = port_close,
		.share = kernel_share,
		.unshare = kernel_unshare,
		.attach = port_attach,
		.start = port_start,
		.heard = port_heard,
		.detach = port_detach,
		.seal_key = port_seal_key,
		.random = port_random,
		.log = port_log,
	};

	if (a->sited)
		site_begin(a, &config, &ports);
	if (jobs_open(&config, &ports, &a->jobs) != 0)
		abort();
	if (a->sited)
		upwards_told(a->links, a->jobs);
}

void aggregator_open(struct world *world, uint32_t index)
{
	struct sim_aggregator *a = &world->aggregators[index];

	a->world = world;
	a->spec = &world->spec->aggregators[index];
	a->node = index;
	a->sited = index >= 1 && index <= world->spec->site_count;
	a->thread.rcvbuf = a->spec->rcvbuf;
	a->thread.cpu = a->spec->cpu;
	jobs_begin(a);
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
	site_die(aggregator, false);
	upwards_close(aggregator->links);
}

uint32_t aggregator_connect(struct sim_aggregator *aggregator, uint32_t worker_node,
                            const char *membership, struct link *link)
{
	struct world *world = aggregator->world;
	uint32_t connection = simnet_connect(world->net);
	struct sim_peer *handle = calloc(1, sizeof(*handle));
	const struct net_ip local = net_ipv4(aggregator->node + 1);
	const struct net_addr from = {.ip = net_ipv4(0x0a000000 + worker_node), .port = 1};
	char name[CONTROL_NAME_BYTES];

	world->peers = realloc(world->peers, (connection + 1) * sizeof(world->peers[0]));
	world->peers[connection] = handle;
	world->peer_count = connection;
	handle->aggregator = aggregator;
	handle->worker_node = worker_node;
	handle->connection = connection;
	handle->peer = jobs_connected(aggregator->jobs, &from, &local, handle,
	                              simnet_now(aggregator->world->net));
	snprintf(name, sizeof(name), "%.*s", (int)message_name_base(membership), membership);
	if (world->keyed && handle->peer != NULL)
		jobs_secured(aggregator->jobs, handle->peer, name, 1);
	connection_secure(world, connection, membership, link);
	return connection;
}

void aggregator_kill(struct sim_aggregator *aggregator, bool resets)
{
	struct world *world = aggregator->world;

	aggregator->dead = true;
	site_die(aggregator, resets);
	for (uint32_t i = 1; i <= world->peer_count; i++) {
		struct sim_peer *peer = world->peers[i];

		if (peer->aggregator == aggregator && peer->peer != NULL && resets)
			simnet_gone(world->net, i, aggregator->node, peer->worker_node);
	}
}

void aggregator_revive(struct sim_aggregator *aggregator)
{
	struct world *world = aggregator->world;

	aggregator_kill(aggregator, true); /* connections that it has forgotten are reset now */
	jobs_end(aggregator->jobs, "it is dead: nobody hears this");
	jobs_close(aggregator->jobs);
	upwards_close(aggregator->links);
	aggregator->dead = false;
	aggregator->thread = (struct sim_thread){.rcvbuf = aggregator->spec->rcvbuf};
	jobs_begin(aggregator);
	simnet_timer(world->net, aggregator->node, TIMER_TICK, simnet_now(world->net) + TICK_US);
}

/* ---- events ---- */

static void tick(struct sim_aggregator *a)
{
	uint64_t now_us = simnet_now(a->world->net);
	struct channel_stall stall;

	jobs_tick(a->jobs, now_us);
	for (uint32_t i = 0; i < PORTS_MAX; i++)
		if (a->ports[i] != NULL && a->ports[i]->channel != NULL &&
		    !a->spec->overlooks_stalls &&
		    channel_stalled(a->ports[i]->channel, now_us, &stall))
			jobs_stalled(a->jobs, a->ports[i]->info.id, &stall);
	simnet_timer(a->world->net, a->node, TIMER_TICK, now_us + TICK_US);
}

static void aggregator_take(struct sim_aggregator *a, struct sim_event *event)
{
	uint64_t now_us = simnet_now(a->world->net);
	struct sim_peer *peer;

	if (event->kind == SIM_DATAGRAM) {
		packets_take(a, event);
		return;
	}
	if (event->kind == SIM_TIMER) {
		if (event->channel == TIMER_TICK)
			tick(a);
		else if (event->channel == TIMER_WAKE)
			site_turn(a);
		else if (!thread_busy(a->world, &a->thread, event))
			packets_drain(a);
		return;
	}
	peer = a->world->peers[event->connection];
	if (peer->aggregator != a)
		site_line(a, event);
	if (peer->aggregator != a || peer->peer == NULL)
		return;
	if (event->kind == SIM_LINE)
		jobs_line(a->jobs, peer->peer, (const char *)event->data, now_us);
	else
		jobs_gone(a->jobs, peer->peer, "connection reset");
}

void aggregator_event(struct sim_aggregator *a, struct sim_event *event)
{
	if (a->dead)
		return;
	aggregator_take(a, event);
	if (event->kind != SIM_DATAGRAM)
		jobs_check(a->jobs);
}
