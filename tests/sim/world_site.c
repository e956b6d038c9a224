// SPDX-License-Identifier: BSD-3-Clause
/*
 * world_site.c - a site in the simulation: the connections to its parent, what parent.c does, and the datagrams from there
 * and to there, what data_above.c does
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/worker/explain.h"
#include "client/worker/session_state.h"
#include "tests/check/check.h"
#include "tests/flatten.h"
#include "tests/sim/world_impl.h"

#define PARENT 0        /* its node, and its name is "agg0" */
#define HURRIES_MAX 300 /* one that spins has 1,000 */

/* A link's connection to the parent. */
struct sim_carrier {
	struct sim_carrier *next;
	struct sim_aggregator *aggregator;
	struct upward *up;
	uint32_t connection; /* 0: it does not stand */
	uint64_t connect_us; /* when it will; UINT64_MAX: it does, or need not */
};

static uint64_t now_of(const struct sim_aggregator *a)
{
	return simnet_now(a->world->net);
}

static struct sim_aggregator *parent_of(const struct sim_aggregator *a)
{
	return &a->world->aggregators[PARENT];
}

void site_wake_at(struct sim_aggregator *a, uint64_t due_us)
{
	const uint64_t now_us = now_of(a);

	if (due_us == UINT64_MAX)
		return;
	if (due_us <= now_us)
		due_us = now_us + 1;
	if (a->wake_us <= now_us || due_us < a->wake_us) {
		a->wake_us = due_us;
		simnet_timer(a->world->net, a->node, TIMER_WAKE, due_us);
	}
}

/* ---- for upward.c ---- */

static uint64_t port_now_us(void *context)
{
	return now_of(context);
}

/* What is due is done, and then it is due later: a link must not turn again and again for nothing. */
static void hurry_check(struct sim_aggregator *a)
{
	const uint64_t ms = now_of(a) / 1000;

	a->hurry.times = ms == a->hurry.ms ? a->hurry.times + 1 : 1;
	a->hurry.ms = ms;
	if (a->hurry.times > HURRIES_MAX)
		world_fail(a->world, "links of site %u are due at once, %u times in a millisecond",
		           a->node, a->hurry.times);
}

static void port_wake(void *context, uint64_t due_us)
{
	if (due_us <= now_of(context))
		hurry_check(context);
	site_wake_at(context, due_us);
}

static int port_begin(void *context, struct upward *up, void **carrier)
{
	struct sim_aggregator *a = context;
	struct sim_carrier *sim = calloc(1, sizeof(*sim));

	*sim = (struct sim_carrier){
		.next = a->carriers, .aggregator = a, .up = up, .connect_us = UINT64_MAX};
	a->carriers = sim;
	*carrier = sim;
	return 0;
}

static void port_connect(void *carrier)
{
	struct sim_carrier *sim = carrier;
	struct sim_aggregator *a = sim->aggregator;

	sim->connect_us = now_of(a) + simnet_between(a->world->net, 1, 2000);
	site_wake_at(a, sim->connect_us);
}

static void port_line(void *carrier, const char *line)
{
	const struct sim_carrier *sim = carrier;
	const struct sim_aggregator *a = sim->aggregator;

	if (!parent_of(a)->dead)
		simnet_line(a->world->net, sim->connection, a->node, PARENT, line);
}

static void port_end(void *carrier)
{
	struct sim_carrier *sim = carrier, **place = &sim->aggregator->carriers;
	const struct sim_aggregator *a = sim->aggregator;

	while (*place != sim)
		place = &(*place)->next;
	*place = sim->next;
	if (sim->connection != 0 && !parent_of(a)->dead)
		simnet_gone(a->world->net, sim->connection, a->node, PARENT);
	free(sim);
}

static void port_knock(void *context, uint32_t channel, const struct packet_out *packet)
{
	const struct sim_aggregator *a = context;
	const uint32_t to = PARENT;

	(void)channel;
	packet_flatten(packet, a->world->flat);
	simnet_send(a->world->net, a->node, &to, 1, a->world->flat, packet->bytes);
}

static void port_relay(void *context, uint16_t id, struct relay *relay)
{
	struct sim_aggregator *a = context;
	struct sim_port *port = port_named(a, id);
	const struct sim_port *parent = port_named(parent_of(a), relay_channel(relay));

	port->relay = relay;
	if (parent != NULL) /* else its job has ended meanwhile */
		port->serial_above = parent->serial;
}

static void port_look(void *context, uint16_t id, struct relay_view *sum)
{
	const struct sim_port *port = port_named(context, id);

	if (port != NULL && port->relay != NULL)
		relay_look(port->relay, sum);
}

void site_begin(struct sim_aggregator *a, struct jobs_config *config, struct jobs_ports *ports)
{
	const struct upwards_config upwards = {
		.parent = "agg0",
		.site = a->site,
		.via = a->node,
		.payload_max = a->spec->payload_max,
		.rcvbuf = a->spec->rcvbuf,
		.keyed = a->world->keyed,
	};
	const struct upward_ports carriers = {
		.context = a,
		.now_us = port_now_us,
		.wake = port_wake,
		.begin = port_begin,
		.connect = port_connect,
		.line = port_line,
		.end = port_end,
		.knock = port_knock,
		.relay = port_relay,
		.look = port_look,
	};

	config->sited = true;
	snprintf(a->site, sizeof(a->site), "site%u", a->node);
	if (upwards_open(&upwards, &carriers, &a->links) != 0)
		abort();
	upwards_serve(a->links, ports);
}

void site_die(struct sim_aggregator *a, bool resets)
{
	for (struct sim_carrier *sim = a->carriers; sim != NULL && !resets; sim = sim->next)
		sim->connection = 0;
	if (a->links != NULL)
		upwards_cut(a->links);
}

/* ---- events ---- */

/* Connections come to stand, of which some may end meanwhile: then it begins again. */
static void connections_turn(struct sim_aggregator *a)
{
	struct sim_carrier *sim = a->carriers;

	while (sim != NULL) {
		if (sim->connect_us > now_of(a)) {
			site_wake_at(a, sim->connect_us);
			sim = sim->next;
			continue;
		}
		sim->connect_us = UINT64_MAX;
		if (parent_of(a)->dead) {
			upward_unreachable(sim->up, "no answer");
		} else {
			struct link *link = upward_link(sim->up);

			sim->connection =
				aggregator_connect(parent_of(a), a->node, link->job, link);
			upward_connected(sim->up, true);
		}
		sim = a->carriers;
	}
}

static void refusals_tell(struct sim_aggregator *a)
{
	for (uint32_t i = 0; i < PORTS_MAX; i++) {
		struct sim_port *port = a->ports[i];
		char text[CONTROL_TEXT_BYTES];

		if (port == NULL || port->relay == NULL || port->refused ||
		    relay_refused(port->relay) == NULL)
			continue;
		port->refused = true;
		explain_mismatch(relay_refused(port->relay), text, sizeof(text));
		jobs_refused(a->jobs, port->info.id, text);
	}
}

void site_turn(struct sim_aggregator *a)
{
	refusals_tell(a);
	connections_turn(a);
	upwards_turn(a->links);
	for (uint32_t i = 0; i < PORTS_MAX; i++)
		if (a->ports[i] != NULL && a->ports[i]->relay != NULL &&
		    relay_deadline(a->ports[i]->relay) <= now_of(a))
			a->ports[i]->dirty = true;
	if (now_of(a) < a->thread.busy_until_us)
		site_wake_at(a, a->thread.busy_until_us);
	else
		packets_drain(a);
}

void site_line(struct sim_aggregator *a, const struct sim_event *event)
{
	struct sim_carrier *sim = a->carriers;
	struct link *link;

	while (sim != NULL && sim->connection != event->connection)
		sim = sim->next;
	if (sim == NULL)
		return;
	link = upward_link(sim->up);
	if (event->kind == SIM_LINE) {
		if (link->state != LINK_FAILED)
			link_line(link, (const char *)event->data, now_of(a));
		upward_turn(sim->up);
	} else {
		sim->connection = 0;
		upward_lost(sim->up, "connection reset");
	}
}

/* ---- datagrams ---- */

static struct sim_port *port_above(struct sim_aggregator *a, uint16_t channel)
{
	for (uint32_t i = 0; i < PORTS_MAX; i++)
		if (a->ports[i] != NULL && a->ports[i]->relay != NULL &&
		    relay_channel(a->ports[i]->relay) == channel)
			return a->ports[i];
	return NULL;
}

/* The parent may forget what this site acknowledges, so its workers must have it: not only say so. */
static void acks_check(const struct sim_aggregator *a, const struct sim_port *port)
{
	const uint32_t acked = (uint32_t)stream_edge(relay_stream(port->relay));

	for (uint32_t rank = 0; rank < port->info.worker_count; rank++) {
		const uint32_t first = a->world->spec->aggregator_count;
		const struct engine *engine;
		const struct stream *stream;

		if (port->address[rank] == 0)
			continue;
		engine = a->world->workers[port->node[rank] - first].session->engine;
		if (engine == NULL)
			continue; /* START is on its way */
		stream = engine->streams[(port->info.id & 0xff) % a->spec->threads];
		if (frame_before((uint32_t)stream_edge(stream), acked))
			world_fail(a->world, "site %u acknowledges what rank %u lacks", a->node,
			           rank);
	}
}

static void above_check(const struct sim_aggregator *a, const struct sim_port *port)
{
	const struct sim_port *parent = port_named(parent_of(a), relay_channel(port->relay));
	const bool same = parent != NULL && parent->serial == port->serial_above;

	acks_check(a, port);
	stream_check(relay_stream(port->relay));
	site_check(port->channel, relay_stream(port->relay), same ? parent->channel : NULL);
}

bool site_datagram(struct sim_aggregator *a, struct sim_event *event)
{
	struct sim_port *port;
	struct packet packet;

	if (event->from != PARENT)
		return false;
	if (packet_parse(event->data, event->bytes, true, &packet) != WIRE_DROP_NONE ||
	    thread_busy(a->world, &a->thread, event))
		return true;
	if (packet.kind == WIRE_KNOCKED)
		upwards_answer(a->links, event->data, event->bytes);
	port = port_above(a, packet.channel);
	if (packet.kind == WIRE_KNOCKED || port == NULL)
		return true;
	packet.came_us = event->came_us;
	packet.marked = event->marked;
	relay_receive(port->relay, &packet, event->data, event->bytes, now_of(a));
	above_check(a, port);
	if (relay_refused(port->relay) != NULL && !port->refused)
		site_wake_at(a, 0);
	port->dirty = true;
	if (!thread_gathers(a->world, &a->thread, a->node, a->spec->turn_us))
		packets_drain(a);
	return true;
}

void relay_drain(struct sim_aggregator *a, struct sim_port *port)
{
	const uint32_t to = PARENT;
	struct packet_out out = {.scratch = a->world->scratch};

	if (port->relay == NULL)
		return;
	while (relay_pull(port->relay, now_of(a), &out)) {
		packet_flatten(&out, a->world->flat);
		simnet_send(a->world->net, a->node, &to, 1, a->world->flat, out.bytes);
	}
	above_check(a, port);
	site_wake_at(a, relay_deadline(port->relay));
}

void relay_end(struct sim_aggregator *a, struct sim_port *port)
{
	const struct stream_stats *stats;

	if (port->relay == NULL)
		return;
	stats = stream_stats(relay_stream(port->relay));
	counters_add(&a->above, stats, sizeof(a->above));
	relay_close(port->relay);
	port->relay = NULL;
}
