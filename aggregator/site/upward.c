// SPDX-License-Identifier: BSD-3-Clause
/* upward.c - see upward.h */

#include "aggregator/site/upward.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define AGAIN_US 100000     /* between two attempts to connect */
#define CONNECT_US 10000000 /* how long to try */
#define LINGER_US 2000000   /* how long a link stays whose worker has ended */
#define LOOK_US 250000      /* at most, between two looks at whether datagrams pass */
#define JOIN_US 600000000   /* the parent's --join-timeout decides */
#define NEVER UINT64_MAX

struct upward {
	struct upwards *all;
	LIST_ENTRY(upward) place;
	struct jobs_peer *peer; /* NULL once the worker has ended. */
	struct link *link;
	void *carrier;
	bool carries;      /* Lines may go. */
	uint64_t since_us; /* When it first tried to connect, or lost its connection. */
	uint64_t again_us; /* When it connects; NEVER: it has. */
	uint64_t until_us; /* When a link without a worker ends; NEVER: it has one. */
	uint64_t look_us;  /* When to look at its relays again, if it has any. */
	uint64_t due_us;   /* When its next turn is due. */
	uint32_t ready;    /* The size in the worker's READY; 0: it has not come. */
	enum { UPWARD_JOINS, UPWARD_WELCOMED, UPWARD_STARTED } told; /* What jobs.c knows. */
	uint32_t relay_count; /* The channels that speak in its name. */
	uint16_t relays[JOBS_THREADS_MAX];
};

struct upwards {
	struct upwards_config config;
	struct upward_ports ports;
	struct jobs *jobs;
	LIST_HEAD(upward_list, upward) list;
	uint64_t ended;    /* So many links have ended. */
	uint8_t scratch[]; /* [payload_max] */
};

static uint64_t now_of(const struct upwards *all)
{
	return all->ports.now_us(all->ports.context);
}

static uint32_t lesser(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static void turn_at(struct upward *up, uint64_t due_us)
{
	up->due_us = due_us;
	if (due_us != NEVER)
		up->all->ports.wake(up->all->ports.context, due_us);
}

/* ---- the end of a link ---- */

static void upward_end(struct upward *up)
{
	LIST_REMOVE(up, place);
	up->all->ended++;
	link_close(up->link);
	up->all->ports.end(up->carrier);
	free(up);
}

/* The worker learns why its link has failed; the parent has told it, or this site has found out. */
static void upward_failed(struct upward *up)
{
	struct jobs *jobs = up->all->jobs;
	const struct link *link = up->link;
	struct jobs_peer *peer = up->peer;
	char code[CONTROL_NAME_BYTES], text[CONTROL_TEXT_BYTES];
	const bool told = link->failed.kind == CONTROL_FAILED;
	const uint32_t rank = told ? link->failed.rank : UINT32_MAX;

	snprintf(code, sizeof(code), "%s", link->error_code);
	if (told && up->told != UPWARD_JOINS) /* the job has ended; what is refused is this site */
		snprintf(text, sizeof(text), "%s", link->error);
	else
		snprintf(text, sizeof(text), "parent %s: %.*s", up->all->config.parent,
		         (int)(sizeof(text) * 3 / 4), link->error);
	upward_end(up);
	if (peer != NULL)
		jobs_up_failed(jobs, peer, rank, code, text);
}

/* ---- out ---- */

static void lines_out(struct upward *up, uint64_t now_us)
{
	char *line;

	while (up->carries && (line = link_take_line(up->link, now_us)) != NULL) {
		up->all->ports.line(up->carrier, line);
		message_free(line);
	}
}

static void knocks_out(struct upward *up, uint64_t now_us)
{
	const struct upward_ports *ports = &up->all->ports;
	struct packet_out out = {.scratch = up->all->scratch};
	struct packet head;
	uint32_t channel;

	while (link_pull(up->link, now_us, &out)) {
		link_seal(up->link, &out, 0);
		if (packet_parse(out.pieces[0].iov_base, (uint32_t)out.pieces[0].iov_len, false,
		                 &head) == WIRE_DROP_NONE &&
		    link_channel(up->link, head.channel, &channel))
			ports->knock(ports->context, channel, &out);
	}
}

/* ---- turns ---- */

/* What the link has come to since the last turn. */
static void news_tell(struct upward *up, uint64_t now_us)
{
	struct jobs *jobs = up->all->jobs;
	struct link *link = up->link;

	if (up->peer == NULL)
		return;
	if (*link->left != '\0') {
		jobs_up_left(jobs, up->peer, link->left);
		link->left[0] = '\0';
	}
	if (link->state >= LINK_PROBING && up->told == UPWARD_JOINS) {
		up->told = UPWARD_WELCOMED;
		jobs_up_welcome(jobs, up->peer, &link->welcome, now_us);
	} else if (link->state == LINK_RUNNING && up->told == UPWARD_WELCOMED) {
		up->told = UPWARD_STARTED;
		jobs_up_start(jobs, up->peer, &link->start);
	}
}

/* What the worker does. */
static void doing_note(struct upward *up)
{
	struct jobs_doing doing;

	if (up->peer == NULL)
		return;
	doing = jobs_peer_doing(up->peer);
	/* Before that nothing is called, and all are awaited. */
	if (up->link->state == LINK_RUNNING)
		link_doing(up->link, doing.open, doing.tag);
	link_says(up->link, doing.says);
}

/* How the way to the parent is, if this worker speaks for its site. It may be dead although the connection stands: 11.5. */
static void relays_note(struct upward *up, uint64_t now_us)
{
	const struct upward_ports *ports = &up->all->ports;
	struct relay_view sum = {.waits_us = NEVER};

	if (up->relay_count == 0)
		return;
	for (uint32_t i = 0; i < up->relay_count; i++)
		ports->look(ports->context, up->relays[i], &sum);
	stream_looked(&sum.seen, up->relay_count);
	link_sees(up->link, &sum.seen);
	link_waits(up->link, sum.waits_us, now_us);
	up->look_us = now_us + LOOK_US;
}

static uint64_t upward_due(const struct upward *up)
{
	/* Whether datagrams pass no longer matters once the worker has ended. */
	uint64_t due_us =
		up->peer != NULL ? link_deadline(up->link) : link_deadline_lines(up->link);

	sooner(&due_us, up->again_us);
	sooner(&due_us, up->until_us);
	if (up->relay_count > 0)
		sooner(&due_us, up->look_us);
	return due_us;
}

void upward_turn(struct upward *up)
{
	const uint64_t now_us = now_of(up->all);

	if (now_us >= up->again_us) {
		up->again_us = NEVER;
		turn_at(up, upward_due(up));
		up->all->ports.connect(up->carrier);
		return;
	}
	link_tick(up->link, now_us);
	if (up->link->state == LINK_FAILED || now_us >= up->until_us) {
		lines_out(up, now_us);
		upward_failed(up);
		return;
	}
	if (link_pings(up->link, now_us))
		doing_note(up);
	relays_note(up, now_us);
	knocks_out(up, now_us);
	if (up->link->state == LINK_PROBED && up->ready > 0)
		link_ready(up->link, lesser(up->ready, up->link->size));
	lines_out(up, now_us);
	turn_at(up, upward_due(up));
	news_tell(up, now_us);
}

void upwards_turn(struct upwards *all)
{
	const uint64_t now_us = now_of(all);
	struct upward *up, *next;

	for (up = LIST_FIRST(&all->list); up != NULL; up = next) {
		const uint64_t ended = all->ended;

		next = LIST_NEXT(up, place);
		if (up->due_us > now_us)
			turn_at(up, up->due_us);
		else
			upward_turn(up);
		/* It may have ended its job, and so others: perhaps the next one. */
		if (all->ended != ended)
			next = LIST_FIRST(&all->list);
	}
}

/* ---- in ---- */

struct link *upward_link(const struct upward *up)
{
	return up->link;
}

void upward_connected(struct upward *up, bool carries)
{
	link_connected(up->link, now_of(up->all));
	up->carries = carries;
	upward_turn(up);
}

void upward_carries(struct upward *up)
{
	up->carries = true;
	upward_turn(up);
}

void upward_unreachable(struct upward *up, const char *reason)
{
	const uint64_t now_us = now_of(up->all);

	if (now_us - up->since_us < CONNECT_US)
		up->again_us = now_us + AGAIN_US;
	else
		link_gone(up->link, reason);
	upward_turn(up);
}

void upward_lost(struct upward *up, const char *reason)
{
	up->carries = false;
	up->since_us = now_of(up->all);
	if (link_again(up->link))
		up->again_us = up->since_us + AGAIN_US;
	else
		link_gone(up->link, reason);
	upward_turn(up);
}

void upwards_answer(struct upwards *all, const uint8_t *data, uint32_t bytes)
{
	struct upward *up;
	struct packet head;

	if (packet_parse(data, bytes, true, &head) != WIRE_DROP_NONE)
		return;
	for (up = LIST_FIRST(&all->list); up != NULL; up = LIST_NEXT(up, place)) {
		struct packet packet = head;
		uint32_t channel;

		if (up->link->config.rank != head.worker ||
		    !link_channel(up->link, head.channel, &channel))
			continue;
		link_unseal(up->link, data, bytes, 0, &packet);
		if (packet.token != up->link->welcome.group_token)
			continue;
		link_packet(up->link, &packet, bytes, now_of(all));
		upward_turn(up);
		return;
	}
}

/* ---- for jobs.c ---- */

static struct upward *upward_of(const struct upwards *all, const struct jobs_peer *peer)
{
	struct upward *up;

	for (up = LIST_FIRST(&all->list); up != NULL; up = LIST_NEXT(up, place))
		if (up->peer == peer)
			return up;
	return NULL;
}

static int up_join(void *context, struct jobs_peer *peer, const struct control_message *join)
{
	struct upwards *all = context;
	const struct upwards_config *config = &all->config;
	const struct link_config link = {
		.job = join->job,
		.host = join->host,
		.rank = join->rank,
		.world = join->world,
		.keyed = config->keyed,
		.payload = lesser(join->payload, config->payload_max),
		/* So the parent's window is one that both of our ways take. */
		.rcvbuf = lesser(join->rcvbuf, config->rcvbuf),
		.silence_us = (uint64_t)join->silence_ms * 1000,
		.stall_us = (uint64_t)join->stall_ms * 1000,
		.join_us = JOIN_US,
		.site = config->site,
		.via = config->via,
	};
	struct upward *up = calloc(1, sizeof(*up));
	const uint64_t now_us = now_of(all);
	int err = up != NULL ? 0 : -ENOMEM;

	if (err == 0)
		err = link_open(&link, now_us, &up->link);
	if (err == 0)
		err = all->ports.begin(all->ports.context, up, &up->carrier);
	if (err != 0) {
		if (up != NULL)
			link_close(up->link);
		free(up);
		return err;
	}
	up->all = all;
	up->peer = peer;
	up->since_us = now_us;
	up->again_us = now_us;
	up->until_us = NEVER;
	LIST_INSERT_HEAD(&all->list, up, place);
	turn_at(up, now_us);
	return 0;
}

static void up_ready(void *context, const struct jobs_peer *peer, uint32_t payload)
{
	struct upward *up = upward_of(context, peer);

	if (up == NULL)
		return;
	up->ready = payload;
	turn_at(up, now_of(up->all));
}

static int up_relay(void *context, const struct jobs_peer *peer, uint16_t id,
                    struct channel *channel)
{
	struct upwards *all = context;
	struct upward *up = upward_of(all, peer);
	struct relay *relay;

	if (up == NULL || relay_open(up->link, id, channel, &relay) != 0)
		return -ENOMEM;
	all->ports.relay(all->ports.context, id, relay);
	up->relays[up->relay_count++] = id;
	up->look_us = now_of(all) + LOOK_US;
	turn_at(up, upward_due(up));
	return 0;
}

static void up_late(void *context, const struct jobs_peer *peer, char text[CONTROL_TEXT_BYTES])
{
	const struct upward *up = upward_of(context, peer);

	text[0] = '\0';
	if (up != NULL && up->carries)
		memcpy(text, up->link->late, CONTROL_TEXT_BYTES);
	else if (up != NULL)
		snprintf(text, CONTROL_TEXT_BYTES, "waiting for the parent %s to answer",
		         up->all->config.parent);
}

static void up_end(void *context, const struct jobs_peer *peer, enum jobs_up_end how,
                   const char *code, const char *text)
{
	struct upward *up = upward_of(context, peer);
	uint64_t now_us;

	if (up == NULL)
		return;
	if (how == JOBS_UP_CUT || !up->carries) {
		upward_end(up);
		return;
	}
	now_us = now_of(up->all);
	up->peer = NULL;
	up->relay_count = 0;
	up->until_us = now_us + LINGER_US;
	if (how == JOBS_UP_LEAVE)
		link_leave(up->link);
	else if (how == JOBS_UP_ABORT)
		link_abort(up->link, code, text);
	lines_out(up, now_us);
	turn_at(up, upward_due(up));
}

/* ---- all ---- */

int upwards_open(const struct upwards_config *config, const struct upward_ports *ports,
                 struct upwards **out)
{
	struct upwards *all = calloc(1, sizeof(*all) + config->payload_max);

	if (all == NULL)
		return -ENOMEM;
	all->config = *config;
	all->ports = *ports;
	*out = all;
	return 0;
}

void upwards_serve(struct upwards *all, struct jobs_ports *ports)
{
	ports->up = all;
	ports->up_join = up_join;
	ports->up_ready = up_ready;
	ports->up_relay = up_relay;
	ports->up_late = up_late;
	ports->up_end = up_end;
}

void upwards_told(struct upwards *all, struct jobs *jobs)
{
	all->jobs = jobs;
}

bool upwards_none(const struct upwards *all)
{
	return LIST_EMPTY(&all->list);
}

void upwards_cut(struct upwards *all)
{
	while (!LIST_EMPTY(&all->list))
		upward_end(LIST_FIRST(&all->list));
}

void upwards_close(struct upwards *all)
{
	free(all);
}
