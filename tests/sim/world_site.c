// SPDX-License-Identifier: BSD-3-Clause
/*
 * world_site.c - a site in the simulation: its links to the parent, what parent.c does, and its datagrams from there and
 * to there, what data_above.c does
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/worker/explain.h"
#include "client/worker/session_state.h"
#include "tests/check/check.h"
#include "tests/flatten.h"
#include "tests/sim/world_impl.h"

#define PARENT 0 /* its node, and its name is "agg0" */
/* As in parent.c. */
#define AGAIN_US 100000
#define LINGER_US 2000000
#define JOIN_US 600000000
#define TURN_US 50000

/* A worker's link to the parent. */
struct sim_upward {
	struct sim_upward *next;
	struct jobs_peer *peer; /* NULL once the worker has ended */
	struct link *link;
	char job[CONTROL_JOB_BYTES];
	uint32_t connection; /* 0: it does not stand */
	uint64_t again_us;   /* when it connects; 0: it has */
	uint64_t until_us;   /* when a link without a worker ends; 0: it has one */
	uint32_t ready;      /* the worker's READY; 0: it has not come */
	bool welcomed, started;
	uint16_t ids
		[JOBS_THREADS_MAX]; /* the channels that speak to the parent in this worker's name */
	uint32_t id_count;
};

static uint64_t now_of(const struct sim_aggregator *a)
{
	return simnet_now(a->world->net);
}

static struct sim_aggregator *parent_of(const struct sim_aggregator *a)
{
	return &a->world->aggregators[PARENT];
}

static struct sim_upward *upward_of(const struct sim_aggregator *a, const struct jobs_peer *peer)
{
	struct sim_upward *up = a->upwards;

	while (up != NULL && up->peer != peer)
		up = up->next;
	return up;
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

/* ---- a link's life ---- */

static void upward_end(struct sim_aggregator *a, struct sim_upward *up, bool resets)
{
	struct sim_upward **place = &a->upwards;

	while (*place != up)
		place = &(*place)->next;
	*place = up->next;
	if (up->connection != 0 && resets && !parent_of(a)->dead)
		simnet_gone(a->world->net, up->connection, a->node, PARENT);
	link_close(up->link);
	free(up);
}

static void upward_failed(struct sim_aggregator *a, struct sim_upward *up)
{
	const struct link *link = up->link;
	const bool told = link->failed.kind == CONTROL_FAILED;
	const uint32_t rank = told ? link->failed.rank : UINT32_MAX;
	struct jobs_peer *peer = up->peer;
	char code[CONTROL_NAME_BYTES], text[CONTROL_TEXT_BYTES];

	snprintf(code, sizeof(code), "%s", link->error_code);
	if (told)
		snprintf(text, sizeof(text), "%s", link->error);
	else
		snprintf(text, sizeof(text), "parent agg0: %.*s", (int)sizeof(text) / 2,
		         link->error);
	upward_end(a, up, true);
	if (peer != NULL)
		jobs_up_failed(a->jobs, peer, rank, code, text);
}

static void upward_connect(struct sim_aggregator *a, struct sim_upward *up)
{
	up->again_us = 0;
	if (parent_of(a)->dead) {
		link_gone(up->link, "no answer");
		return;
	}
	up->connection = aggregator_connect(parent_of(a), a->node, up->job, up->link);
	link_connected(up->link, now_of(a));
}

/* ---- turns ---- */

static void lines_out(struct sim_aggregator *a, struct sim_upward *up)
{
	char *line;

	while (up->connection != 0 && (line = link_take_line(up->link, now_of(a))) != NULL) {
		if (!parent_of(a)->dead)
			simnet_line(a->world->net, up->connection, a->node, PARENT, line);
		free(line);
	}
}

static void knocks_out(struct sim_aggregator *a, struct sim_upward *up)
{
	const uint32_t to = PARENT;
	struct packet_out out = {.scratch = a->world->scratch};

	while (link_pull(up->link, now_of(a), &out)) {
		link_seal(up->link, &out, 0);
		packet_flatten(&out, a->world->flat);
		simnet_send(a->world->net, a->node, &to, 1, a->world->flat, out.bytes);
	}
}

static void news_tell(struct sim_aggregator *a, struct sim_upward *up)
{
	struct link *link = up->link;

	if (up->peer == NULL)
		return;
	if (*link->left != '\0') {
		jobs_up_left(a->jobs, up->peer, link->left);
		link->left[0] = '\0';
	}
	if (link->state == LINK_PROBED && up->ready > 0)
		link_ready(link, up->ready < link->size ? up->ready : link->size);
	if (link->state >= LINK_PROBING && link->state < LINK_FAILED && !up->welcomed) {
		up->welcomed = true;
		jobs_up_welcome(a->jobs, up->peer, &link->welcome, now_of(a));
	} else if (link->state == LINK_RUNNING && !up->started) {
		up->started = true;
		jobs_up_start(a->jobs, up->peer, &link->start);
	}
}

static void waits_tell(struct sim_aggregator *a, struct sim_upward *up)
{
	uint64_t since_us = UINT64_MAX;

	for (uint32_t i = 0; i < up->id_count && up->peer != NULL; i++)
		sooner(&since_us, stream_waits_us(relay_stream(port_named(a, up->ids[i])->relay)));
	link_waits(up->link, since_us, now_of(a));
}

/* May end the link, and with it the job, and so others. */
static void upward_turn(struct sim_aggregator *a, struct sim_upward *up)
{
	const uint64_t now_us = now_of(a);

	if (up->again_us != 0 && now_us >= up->again_us)
		upward_connect(a, up);
	waits_tell(a, up);
	link_tick(up->link, now_us);
	if (up->link->state == LINK_FAILED || (up->until_us != 0 && now_us >= up->until_us)) {
		lines_out(a, up);
		upward_failed(a, up);
		return;
	}
	if (link_pings(up->link, now_us) && up->peer != NULL) {
		const struct jobs_doing doing = jobs_peer_doing(up->peer);

		link_doing(up->link, doing.open, doing.tag);
		link_says(up->link, doing.says);
	}
	lines_out(a, up);
	knocks_out(a, up);
	news_tell(a, up);
}

static bool upward_stands(const struct sim_aggregator *a, const struct sim_upward *up)
{
	const struct sim_upward *other = a->upwards;

	while (other != NULL && other != up)
		other = other->next;
	return other != NULL;
}

/* All links, of which some may end meanwhile: then it begins again. */
static void upwards_turn(struct sim_aggregator *a)
{
	struct sim_upward *up, *next;
	uint64_t due_us = UINT64_MAX;

	for (up = a->upwards; up != NULL; up = next) {
		next = up->next;
		upward_turn(a, up);
		if (next != NULL && !upward_stands(a, next))
			next = a->upwards;
	}
	for (up = a->upwards; up != NULL; up = up->next) {
		sooner(&due_us, link_deadline(up->link));
		sooner(&due_us, up->until_us != 0 ? up->until_us : UINT64_MAX);
		sooner(&due_us, up->again_us != 0 ? up->again_us : UINT64_MAX);
		sooner(&due_us, up->id_count > 0 ? now_of(a) + TURN_US : UINT64_MAX);
	}
	site_wake_at(a, due_us);
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
	upwards_turn(a);
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
	struct sim_upward *up = a->upwards;

	while (up != NULL && up->connection != event->connection)
		up = up->next;
	if (up == NULL)
		return;
	if (event->kind == SIM_LINE) {
		if (up->link->state != LINK_FAILED)
			link_line(up->link, (const char *)event->data, now_of(a));
	} else {
		up->connection = 0;
		if (link_again(up->link))
			up->again_us = now_of(a) + AGAIN_US;
		else
			link_gone(up->link, "connection reset");
	}
	upwards_turn(a);
}

/* ---- for jobs.c ---- */

static int up_join(void *context, struct jobs_peer *peer, const struct control_message *join)
{
	struct sim_aggregator *a = context;
	struct sim_upward *up = calloc(1, sizeof(*up));
	const struct link_config config = {
		.job = join->job,
		.host = join->host,
		.rank = join->rank,
		.world = join->world,
		.keyed = a->world->keyed,
		.payload =
			join->payload < a->spec->payload_max ? join->payload : a->spec->payload_max,
		.rcvbuf = join->rcvbuf < a->spec->rcvbuf ? join->rcvbuf : a->spec->rcvbuf,
		.silence_us = (uint64_t)join->silence_ms * 1000,
		.stall_us = (uint64_t)join->stall_ms * 1000,
		.join_us = JOIN_US,
		.site = a->site,
		.via = a->node,
	};

	if (link_open(&config, now_of(a), &up->link) != 0)
		abort();
	snprintf(up->job, sizeof(up->job), "%s", join->job);
	up->peer = peer;
	up->again_us = now_of(a) + simnet_between(a->world->net, 1, 2000);
	up->next = a->upwards;
	a->upwards = up;
	site_wake_at(a, up->again_us);
	return 0;
}

static void up_ready(void *context, const struct jobs_peer *peer, uint32_t payload)
{
	struct sim_aggregator *a = context;
	struct sim_upward *up = upward_of(a, peer);

	if (up == NULL)
		return;
	up->ready = payload;
	site_wake_at(a, 0);
}

static int up_relay(void *context, const struct jobs_peer *peer, uint16_t id,
                    struct channel *channel)
{
	struct sim_aggregator *a = context;
	struct sim_port *port = port_named(a, id);
	struct sim_upward *up = upward_of(a, peer);
	const struct sim_port *parent;

	if (relay_open(up->link, id, channel, &port->relay) != 0)
		abort();
	parent = port_named(parent_of(a), relay_channel(port->relay));
	if (parent != NULL) /* else its job has ended meanwhile */
		port->serial_above = parent->serial;
	up->ids[up->id_count++] = id;
	return 0;
}

static void up_late(void *context, const struct jobs_peer *peer, char text[CONTROL_TEXT_BYTES])
{
	const struct sim_upward *up = upward_of(context, peer);

	snprintf(text, CONTROL_TEXT_BYTES, "%s", up != NULL ? up->link->late : "");
}

static void up_end(void *context, const struct jobs_peer *peer, enum jobs_up_end how,
                   const char *code, const char *text)
{
	struct sim_aggregator *a = context;
	struct sim_upward *up = upward_of(a, peer);

	if (up == NULL)
		return;
	up->peer = NULL;
	up->until_us = now_of(a) + LINGER_US;
	if (how == JOBS_UP_CUT || up->connection == 0) {
		upward_end(a, up, true);
		return;
	}
	if (how == JOBS_UP_LEAVE)
		link_leave(up->link);
	else if (how == JOBS_UP_ABORT)
		link_abort(up->link, code, text);
	lines_out(a, up);
	site_wake_at(a, up->until_us);
}

void site_begin(struct sim_aggregator *a, struct jobs_config *config, struct jobs_ports *ports)
{
	config->sited = true;
	snprintf(a->site, sizeof(a->site), "site%u", a->node);
	ports->up = a;
	ports->up_join = up_join;
	ports->up_ready = up_ready;
	ports->up_relay = up_relay;
	ports->up_late = up_late;
	ports->up_end = up_end;
}

void site_die(struct sim_aggregator *a, bool resets)
{
	while (a->upwards != NULL)
		upward_end(a, a->upwards, resets);
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

static void answer_take(struct sim_aggregator *a, const struct packet *head,
                        const struct sim_event *event)
{
	for (struct sim_upward *up = a->upwards; up != NULL; up = up->next) {
		struct packet packet = *head;
		uint32_t channel;

		if (up->link->config.rank != head->worker ||
		    !link_channel(up->link, head->channel, &channel))
			continue;
		link_unseal(up->link, event->data, event->bytes, 0, &packet);
		if (packet.token != up->link->welcome.group_token)
			continue;
		link_packet(up->link, &packet, event->bytes, now_of(a));
		upwards_turn(a);
		return;
	}
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
		answer_take(a, &packet, event);
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
