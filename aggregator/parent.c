// SPDX-License-Identifier: BSD-3-Clause
/* parent.c - see parent.h */

#include "aggregator/parent.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "aggregator/connections.h"
#include "aggregator/site/relay.h"
#include "bitmap/control/lines.h"
#include "bitmap/control/secrets.h"
#include "bitmap/control/tls.h"
#include "bitmap/net/sockaddr.h"
#include "client/worker/link.h"

#define AGAIN_US 100000     /* between two attempts to connect */
#define CONNECT_US 10000000 /* how long to try */
#define LINGER_US 2000000   /* how long a link stays whose worker has ended */
#define TURN_MS_MAX 50      /* between two turns of a link */
#define PATH_US 250000      /* between two looks at whether datagrams pass */
#define JOIN_US 600000000   /* the parent's --join-timeout decides */

/* A worker's link to the parent. */
struct upward {
	struct parent *parent;
	struct jobs_peer *peer; /* NULL once the worker has ended. */
	struct link *link;      /* NULL once the link has ended, and its socket is being closed. */
	LIST_ENTRY(upward) place;
	uint64_t since_us; /* When it first tried to connect. */
	uint64_t again_us; /* When it tries again; 0: it is connected, or tries. */
	uint64_t until_us; /* When a link without a worker ends; 0: it has one. */
	uint64_t path_us;  /* When to look again whether datagrams pass. */
	uint32_t ready;    /* The size in the worker's READY; 0: it has not come. */
	enum { UPWARD_JOINS, UPWARD_WELCOMED, UPWARD_STARTED } told; /* What jobs.c knows. */
	uint32_t relay_count; /* The channels that speak in its name. */
	uint16_t relays[JOBS_THREADS_MAX];

	uv_tcp_t tcp;
	uv_connect_t connect;
	bool open;          /* It is connected. */
	bool plain;         /* The parent answers without TLS, although there is a key. */
	bool secured;       /* The handshake is over. */
	struct tls *tls;    /* NULL without keys, or before it is connected. */
	struct job_key key; /* Of the job; zero without keys. */
	char came[4096];    /* Bytes that have come, until they are fed. */
	struct lines lines;
};

struct parent {
	struct parent_config config;
	uv_loop_t *loop;
	struct jobs *jobs;
	struct tls_context *tls; /* NULL without keys */
	uint64_t via;            /* stands for this site, whatever its name */
	uv_timer_t timer;
	uint8_t *scratch; /* [payload_max] */
	LIST_HEAD(upwards, upward) all;
};

static void connect_begin(struct upward *up);
static void turn(struct upward *up);

static uint64_t loop_us(void)
{
	return uv_hrtime() / 1000;
}

static uint32_t lesser(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* ---- the end of a link ---- */

static void upward_free(struct upward *up)
{
	explicit_bzero(&up->key, sizeof(up->key));
	free(up);
}

static void upward_closed(uv_handle_t *handle)
{
	upward_free(handle->data);
}

static void upward_end(struct upward *up)
{
	LIST_REMOVE(up, place);
	link_close(up->link);
	tls_close(up->tls);
	up->link = NULL;
	up->tls = NULL;
	if (uv_is_closing((uv_handle_t *)&up->tcp))
		return; /* tcp_fresh() frees it */
	uv_close((uv_handle_t *)&up->tcp, upward_closed);
}

/* The worker learns why its link has failed; the parent has told it, or this site has found out. */
static void upward_failed(struct upward *up)
{
	struct parent *parent = up->parent;
	struct link *link = up->link;
	struct jobs_peer *peer = up->peer;
	char code[CONTROL_NAME_BYTES], text[CONTROL_TEXT_BYTES] = "";
	const bool told = link->failed.kind == CONTROL_FAILED;
	const uint32_t rank = told ? link->failed.rank : UINT32_MAX;

	snprintf(code, sizeof(code), "%s", link->error_code);
	if (told && up->told != UPWARD_JOINS) /* the job has ended; what is refused is this site */
		snprintf(text, sizeof(text), "%s", link->error);
	else
		snprintf(text, sizeof(text), "parent %s: %.*s", parent->config.text,
		         (int)(sizeof(text) * 3 / 4), link->error);
	upward_end(up);
	if (peer != NULL)
		jobs_up_failed(parent->jobs, peer, rank, code, text);
}

/* ---- out ---- */

/* What cannot be written is lost, and silence ends the link. */
static void bytes_send(struct upward *up, const char *from, size_t bytes)
{
	(void)connections_write(&up->tcp, from, bytes);
}

static void tls_flush(struct upward *up)
{
	char bytes[4096];
	size_t count;

	while (up->tls != NULL && (count = tls_pull(up->tls, bytes, sizeof(bytes))) > 0)
		bytes_send(up, bytes, count);
}

static void lines_flush(struct upward *up, uint64_t now_us)
{
	char *line;

	if (!up->open || (up->parent->tls != NULL && !up->secured))
		return;
	while ((line = link_take_line(up->link, now_us)) != NULL) {
		if (up->tls != NULL)
			(void)tls_write(up->tls, line, strlen(line));
		else
			bytes_send(up, line, strlen(line));
		message_free(line);
	}
	tls_flush(up);
}

/* KNOCKs leave by the thread that has the channel: 2.3 says which. */
static void knocks_flush(struct upward *up, uint64_t now_us)
{
	struct parent *parent = up->parent;
	struct packet_out out = {.scratch = parent->scratch};
	uint32_t channel;

	while (link_pull(up->link, now_us, &out)) {
		struct packet head;

		link_seal(up->link, &out, 0);
		if (packet_parse(out.pieces[0].iov_base, (uint32_t)out.pieces[0].iov_len, false,
		                 &head) == WIRE_DROP_NONE &&
		    link_channel(up->link, head.channel, &channel))
			data_send(parent->config.data, channel, &out);
	}
}

/* ---- in ---- */

static void give_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
	struct upward *up = handle->data;

	(void)suggested;
	*out = uv_buf_init(up->came, sizeof(up->came));
}

static void connection_lost(struct upward *up, const char *reason)
{
	const uint64_t now_us = loop_us();

	up->open = up->plain = up->secured = false;
	uv_read_stop((uv_stream_t *)&up->tcp);
	tls_close(up->tls);
	up->tls = NULL;
	up->lines = (struct lines){.from = 0};
	if (link_again(up->link))
		up->again_us = now_us + AGAIN_US;
	else
		link_gone(up->link, reason);
	turn(up);
}

static void lines_take(struct upward *up, uint64_t now_us)
{
	const char *line;
	int got = 0;

	while (up->link->state != LINK_FAILED && (got = lines_next(&up->lines, &line)) > 0)
		if (up->plain)
			link_plain(up->link, line);
		else
			link_line(up->link, line, now_us);
	if (got < 0)
		link_gone(up->link, "it sent something that is not a message");
}

/* Returns 0, or -errno: the connection is over. */
static ssize_t tls_take(struct upward *up, uint64_t now_us)
{
	struct seal_key own;
	ssize_t count;

	do {
		size_t room;
		char *to = lines_room(&up->lines, &room);

		count = tls_read(up->tls, to, room);
		if (!up->secured && tls_ready(up->tls) &&
		    tls_seal_key(up->tls, up->link->job, &own) == 0) {
			link_secured(up->link, &own);
			explicit_bzero(&own, sizeof(own));
			up->secured = true;
		}
		if (count > 0)
			lines_added(&up->lines, (size_t)count);
		lines_take(up, now_us);
	} while (count > 0);
	return count;
}

/* Its connection has ended with this -errno of TLS. */
static void tls_ended(struct upward *up, int error)
{
	char reason[320];

	if (error == EPROTO && tls_wrong_key(up->tls)) {
		link_refused(up->link);
		turn(up);
		return;
	}
	tls_end_text(up->tls, error, reason, sizeof(reason));
	connection_lost(up, reason);
}

/* Bytes that are lines: without a key, or the one line of a parent that has none. */
static void plain_take(struct upward *up, const char *from, size_t count, uint64_t now_us)
{
	while (count > 0) {
		size_t room;
		char *to = lines_room(&up->lines, &room);

		room = room < count ? room : count;
		if (room == 0)
			return; /* the link has failed */
		memcpy(to, from, room);
		lines_added(&up->lines, room);
		from += room;
		count -= room;
		lines_take(up, now_us);
	}
}

static void bytes_take(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
	struct upward *up = stream->data;
	const uint64_t now_us = loop_us();
	ssize_t err = 0;

	if (count < 0)
		connection_lost(up,
		                count == UV_EOF ? "connection closed" : uv_strerror((int)count));
	if (count <= 0)
		return;
	if (up->tls != NULL && !up->secured && *buffer->base == '{')
		up->plain = true;
	if (up->tls == NULL || up->plain) {
		plain_take(up, buffer->base, (size_t)count, now_us);
	} else {
		err = tls_feed(up->tls, buffer->base, (size_t)count);
		err = err == 0 ? tls_take(up, now_us) : err;
		tls_flush(up);
	}
	if (err < 0)
		tls_ended(up, (int)-err);
	else
		turn(up);
}

/* ---- connecting ---- */

static void tcp_fresh(uv_handle_t *handle)
{
	connect_begin(handle->data);
}

static void connected(uv_connect_t *request, int status)
{
	struct upward *up = request->data;
	const uint64_t now_us = loop_us();
	char reason[160];

	if (up->link == NULL)
		return; /* it has ended meanwhile */
	if (status != 0 && now_us - up->since_us < CONNECT_US) {
		up->again_us = now_us + AGAIN_US;
		return;
	}
	if (status != 0) {
		snprintf(reason, sizeof(reason), "no answer: %s; is winnowd running there?",
		         uv_strerror(status));
		link_gone(up->link, reason);
		turn(up);
		return;
	}
	up->open = true;
	uv_tcp_nodelay(&up->tcp, 1);
	if (up->parent->tls != NULL &&
	    tls_connect(up->parent->tls, up->link->job, up->key.bytes, &up->tls) != 0) {
		connection_lost(up, "out of memory");
		return;
	}
	link_connected(up->link, now_us);
	if (up->tls == NULL)
		bytes_send(up, LINK_FIRST_LINE, strlen(LINK_FIRST_LINE));
	tls_flush(up);
	uv_read_start((uv_stream_t *)&up->tcp, give_buffer, bytes_take);
	turn(up);
}

static void connect_begin(struct upward *up)
{
	union net_sockaddr address;
	int err;

	if (up->link == NULL) { /* it ended while its socket was closed */
		upward_free(up);
		return;
	}
	(void)net_sockaddr(&up->parent->config.address, &address);
	uv_tcp_init(up->parent->loop, &up->tcp);
	up->tcp.data = up->connect.data = up;
	err = uv_tcp_connect(&up->connect, &up->tcp, &address.any, connected);
	if (err != 0)
		up->again_us = loop_us() + AGAIN_US;
}

/* ---- turns ---- */

/* What the link has come to since the last turn. */
static void news_tell(struct upward *up)
{
	struct jobs *jobs = up->parent->jobs;
	struct link *link = up->link;

	if (up->peer == NULL)
		return;
	if (*link->left != '\0') {
		jobs_up_left(jobs, up->peer, link->left);
		link->left[0] = '\0';
	}
	if (link->state == LINK_PROBED && up->ready > 0)
		link_ready(link, up->ready < link->size ? up->ready : link->size);
	if (link->state >= LINK_PROBING && up->told == UPWARD_JOINS) {
		up->told = UPWARD_WELCOMED;
		jobs_up_welcome(jobs, up->peer, &link->welcome, loop_us());
	} else if (link->state == LINK_RUNNING && up->told == UPWARD_WELCOMED) {
		up->told = UPWARD_STARTED;
		jobs_up_start(jobs, up->peer, &link->start);
	}
}

static struct relay_view upward_of_channels(const struct upward *up)
{
	struct relay_view sum = {.waits_us = UINT64_MAX};

	for (uint32_t i = 0; i < up->relay_count; i++)
		data_relay_look(up->parent->config.data, up->relays[i], &sum);
	return sum;
}

/* For the heartbeat: what the worker does, and of the one that speaks for the site how its way is. */
static void doing_note(struct upward *up)
{
	struct jobs_doing doing;
	struct relay_view sum;

	if (up->peer == NULL)
		return;
	doing = jobs_peer_doing(up->peer);
	/* Before that nothing is called, and all are awaited. */
	if (up->link->state == LINK_RUNNING)
		link_doing(up->link, doing.open, doing.tag);
	link_says(up->link, doing.says);
	if (up->relay_count == 0)
		return;
	sum = upward_of_channels(up);
	link_sees(up->link, &sum.seen);
}

/* Datagrams may no longer pass although the connection stands: 11.5. */
static void path_look(struct upward *up, uint64_t now_us)
{
	if (up->link->state != LINK_RUNNING || up->relay_count == 0 || now_us < up->path_us)
		return;
	up->path_us = now_us + PATH_US;
	link_waits(up->link, upward_of_channels(up).waits_us, now_us);
}

/* May end the link, and with it the job. */
static void turn(struct upward *up)
{
	const uint64_t now_us = loop_us();

	if (up->again_us != 0 && now_us >= up->again_us) {
		up->again_us = 0;
		up->open = false;
		uv_close((uv_handle_t *)&up->tcp, tcp_fresh);
		return;
	}
	link_tick(up->link, now_us);
	if (up->link->state == LINK_FAILED || (up->until_us != 0 && now_us >= up->until_us)) {
		if (up->open)
			lines_flush(up, now_us);
		upward_failed(up);
		return;
	}
	if (link_pings(up->link, now_us))
		doing_note(up);
	path_look(up, now_us);
	lines_flush(up, now_us);
	knocks_flush(up, now_us);
	news_tell(up);
}

static void turns(uv_timer_t *timer)
{
	struct parent *parent = timer->data;
	struct upward *up, *next;
	uint64_t due_us = loop_us() + TURN_MS_MAX * 1000, now_us;

	for (up = LIST_FIRST(&parent->all); up != NULL; up = next) {
		/* A turn may end its job, and so this site's other links; none of these are removed then. */
		next = LIST_NEXT(up, place);
		if (!uv_is_closing((uv_handle_t *)&up->tcp))
			turn(up);
	}
	for (up = LIST_FIRST(&parent->all); up != NULL; up = LIST_NEXT(up, place))
		sooner(&due_us, link_deadline(up->link));
	now_us = loop_us();
	uv_timer_start(timer, turns, due_us > now_us + 1000 ? (due_us - now_us) / 1000 : 1, 0);
}

void parent_answer(struct parent *parent, const uint8_t *data, uint32_t bytes)
{
	struct upward *up;
	struct packet head;

	if (packet_parse(data, bytes, true, &head) != WIRE_DROP_NONE)
		return;
	for (up = LIST_FIRST(&parent->all); up != NULL; up = LIST_NEXT(up, place)) {
		struct packet packet = head;
		uint32_t channel;

		if (up->link->config.rank != head.worker ||
		    !link_channel(up->link, head.channel, &channel))
			continue;
		link_unseal(up->link, data, bytes, 0, &packet);
		if (packet.token != up->link->welcome.group_token)
			continue;
		link_packet(up->link, &packet, bytes, loop_us());
		turn(up);
		return;
	}
}

/* ---- for jobs.c ---- */

static struct upward *upward_of(const struct parent *parent, const struct jobs_peer *peer)
{
	struct upward *up;

	for (up = LIST_FIRST(&parent->all); up != NULL; up = LIST_NEXT(up, place))
		if (up->peer == peer)
			return up;
	return NULL;
}

int parent_up_join(void *context, struct jobs_peer *peer, const struct control_message *join)
{
	struct parent *parent = context;
	const struct parent_config *config = &parent->config;
	struct upward *up = calloc(1, sizeof(*up));
	struct link_config link = {
		.job = join->job,
		.host = join->host,
		.rank = join->rank,
		.world = join->world,
		.keyed = config->keys != NULL,
		.payload = lesser(join->payload, config->payload_max),
		/* So the parent's window is one that both of our ways take. */
		.rcvbuf = lesser(join->rcvbuf, config->rcvbuf),
		.silence_us = (uint64_t)join->silence_ms * 1000,
		.stall_us = (uint64_t)join->stall_ms * 1000,
		.join_us = JOIN_US,
		.site = config->site,
		.via = parent->via,
	};

	int err = up != NULL ? 0 : -ENOMEM;

	if (err == 0 && config->keys != NULL)
		err = job_keys_find(config->keys, join->job, &up->key);
	if (err == 0)
		err = link_open(&link, loop_us(), &up->link);
	if (err != 0) {
		free(up);
		return err;
	}
	up->parent = parent;
	up->peer = peer;
	up->since_us = loop_us();
	LIST_INSERT_HEAD(&parent->all, up, place);
	connect_begin(up);
	uv_timer_start(&parent->timer, turns, 1, 0);
	return 0;
}

void parent_up_ready(void *context, const struct jobs_peer *peer, uint32_t payload)
{
	struct parent *parent = context;
	struct upward *up = upward_of(parent, peer);

	if (up == NULL)
		return;
	up->ready = payload;
	uv_timer_start(&parent->timer, turns, 1, 0);
}

int parent_up_relay(void *context, const struct jobs_peer *peer, uint16_t id,
                    struct channel *channel)
{
	struct parent *parent = context;
	struct upward *up = upward_of(parent, peer);
	struct relay *relay;

	if (up == NULL || relay_open(up->link, id, channel, &relay) != 0)
		return -ENOMEM;
	data_relay(parent->config.data, id, relay);
	up->relays[up->relay_count++] = id;
	return 0;
}

void parent_up_late(void *context, const struct jobs_peer *peer, char text[CONTROL_TEXT_BYTES])
{
	const struct parent *parent = context;
	const struct upward *up = upward_of(parent, peer);

	text[0] = '\0';
	if (up != NULL && up->open)
		memcpy(text, up->link->late, CONTROL_TEXT_BYTES);
	else if (up != NULL)
		snprintf(text, CONTROL_TEXT_BYTES, "waiting for the parent %s to answer",
		         parent->config.text);
}

void parent_up_end(void *context, const struct jobs_peer *peer, enum jobs_up_end how,
                   const char *code, const char *text)
{
	struct parent *parent = context;
	struct upward *up = upward_of(parent, peer);

	if (up == NULL)
		return;
	up->peer = NULL;
	up->until_us = loop_us() + LINGER_US;
	if (how == JOBS_UP_CUT || !up->open) {
		upward_end(up);
		return;
	}
	if (how == JOBS_UP_LEAVE)
		link_leave(up->link);
	else if (how == JOBS_UP_ABORT)
		link_abort(up->link, code, text);
	lines_flush(up, loop_us());
	uv_timer_start(&parent->timer, turns, 1, 0);
}

/* ---- all ---- */

int parent_open(const struct parent_config *config, uv_loop_t *loop, struct parent **out,
                struct why *why)
{
	static const struct net_source any;
	struct parent *parent = calloc(1, sizeof(*parent));
	const uint32_t headers = net_headers(&config->address.ip);
	uint32_t mtu;

	if (parent == NULL)
		return why_set(why, -ENOMEM, "out of memory");
	parent->config = *config;
	parent->loop = loop;
	mtu = net_route_mtu(&config->address, &any);
	if (mtu > headers && mtu - headers < config->payload_max)
		parent->config.payload_max = mtu - headers;
	parent->scratch = malloc(config->payload_max);
	if (parent->scratch == NULL ||
	    (config->keys != NULL && tls_context_open(NULL, &parent->tls) != 0)) {
		parent_close(parent);
		return why_set(why, -ENOMEM, "out of memory");
	}
	random_bytes(&parent->via, sizeof(parent->via));
	parent->via |= 1;
	uv_timer_init(loop, &parent->timer);
	parent->timer.data = parent;
	*out = parent;
	return 0;
}

void parent_serve(struct parent *parent, struct jobs *jobs)
{
	if (parent != NULL)
		parent->jobs = jobs;
}

void parent_keys_set(struct parent *parent, const struct job_keys *keys)
{
	if (parent != NULL)
		parent->config.keys = keys;
}

bool parent_none(const struct parent *parent)
{
	return parent == NULL || LIST_EMPTY(&parent->all);
}

void parent_end(struct parent *parent)
{
	if (parent == NULL)
		return;
	while (!LIST_EMPTY(&parent->all))
		upward_end(LIST_FIRST(&parent->all));
	uv_timer_stop(&parent->timer);
}

void parent_close(struct parent *parent)
{
	if (parent == NULL)
		return;
	tls_context_close(parent->tls);
	free(parent->scratch);
	free(parent);
}
