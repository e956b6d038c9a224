// SPDX-License-Identifier: BSD-3-Clause
/* parent.c - see parent.h */

#include "aggregator/parent.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/connections.h"
#include "bitmap/control/lines.h"
#include "bitmap/control/secrets.h"
#include "bitmap/control/tls.h"
#include "bitmap/net/sockaddr.h"

/* A link's connection. */
struct parent_tcp {
	struct parent *parent;
	struct upward *up; /* NULL once the link has ended, and the socket is being closed. */
	uv_tcp_t uv;
	uv_connect_t request;
	bool begun;         /* There is a socket. */
	bool plain;         /* The parent answers without TLS, although there is a key. */
	bool secured;       /* The handshake is over. */
	struct tls *tls;    /* NULL without keys, or before it is connected. */
	struct job_key key; /* Of the job; zero without keys. */
	struct lines lines;
};

struct parent {
	struct parent_config config;
	uv_loop_t *loop;
	struct upwards *upwards;
	struct tls_context *tls; /* NULL without keys */
	uv_timer_t timer;
	uint64_t due_us; /* When it fires; UINT64_MAX: it does not. */
	char came[4096]; /* Bytes of any connection, until they are fed. */
};

static uint64_t loop_us(void)
{
	return uv_hrtime() / 1000;
}

/* ---- out ---- */

/* What cannot be written is lost, and silence ends the link. */
static void bytes_send(struct parent_tcp *tcp, const char *from, size_t bytes)
{
	(void)connections_write(&tcp->uv, from, bytes);
}

static void tls_flush(struct parent_tcp *tcp)
{
	char bytes[4096];
	size_t count;

	while (tcp->tls != NULL && (count = tls_pull(tcp->tls, bytes, sizeof(bytes))) > 0)
		bytes_send(tcp, bytes, count);
}

static void port_line(void *carrier, const char *line)
{
	struct parent_tcp *tcp = carrier;

	if (tcp->tls != NULL)
		(void)tls_write(tcp->tls, line, strlen(line));
	else
		bytes_send(tcp, line, strlen(line));
	tls_flush(tcp);
}

/* ---- in ---- */

static void give_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
	struct parent_tcp *tcp = handle->data;

	(void)suggested;
	*out = uv_buf_init(tcp->parent->came, sizeof(tcp->parent->came));
}

static void connection_lost(struct parent_tcp *tcp, const char *reason)
{
	uv_read_stop((uv_stream_t *)&tcp->uv);
	tls_close(tcp->tls);
	tcp->tls = NULL;
	tcp->plain = tcp->secured = false;
	tcp->lines = (struct lines){.from = 0};
	upward_lost(tcp->up, reason);
}

static void lines_take(struct parent_tcp *tcp)
{
	struct link *link = upward_link(tcp->up);
	const char *line;
	int got = 0;

	while (link->state != LINK_FAILED && (got = lines_next(&tcp->lines, &line)) > 0)
		if (tcp->plain)
			link_plain(link, line);
		else
			link_line(link, line, loop_us());
	if (got < 0)
		link_gone(link, "it sent something that is not a message");
}

/* Returns 0, or -errno: the connection is over. */
static ssize_t tls_take(struct parent_tcp *tcp)
{
	struct link *link = upward_link(tcp->up);
	struct seal_key own;
	ssize_t count;

	do {
		size_t room;
		char *to = lines_room(&tcp->lines, &room);

		count = tls_read(tcp->tls, to, room);
		if (!tcp->secured && tls_ready(tcp->tls) &&
		    tls_seal_key(tcp->tls, link->job, &own) == 0) {
			link_secured(link, &own);
			explicit_bzero(&own, sizeof(own));
			tcp->secured = true;
		}
		if (count > 0)
			lines_added(&tcp->lines, (size_t)count);
		lines_take(tcp);
	} while (count > 0);
	return count;
}

/* Its connection has ended with this error of TLS. */
static void tls_ended(struct parent_tcp *tcp, int error)
{
	char reason[320];

	if (error == EPROTO && tls_wrong_key(tcp->tls)) {
		link_refused(upward_link(tcp->up));
		upward_turn(tcp->up);
		return;
	}
	tls_end_text(tcp->tls, error, reason, sizeof(reason));
	connection_lost(tcp, reason);
}

/* Bytes that are lines: without a key, or the one line of a parent that has none. */
static void plain_take(struct parent_tcp *tcp, const char *from, size_t count)
{
	while (count > 0) {
		size_t room;
		char *to = lines_room(&tcp->lines, &room);

		room = room < count ? room : count;
		if (room == 0)
			return; /* the link has failed */
		memcpy(to, from, room);
		lines_added(&tcp->lines, room);
		from += room;
		count -= room;
		lines_take(tcp);
	}
}

static void bytes_take(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
	struct parent_tcp *tcp = stream->data;
	ssize_t err = 0;

	if (count < 0)
		connection_lost(tcp,
		                count == UV_EOF ? "connection closed" : uv_strerror((int)count));
	if (count <= 0)
		return;
	if (tcp->tls != NULL && !tcp->secured && *buffer->base == '{')
		tcp->plain = true;
	if (tcp->tls == NULL || tcp->plain) {
		plain_take(tcp, buffer->base, (size_t)count);
	} else {
		err = tls_feed(tcp->tls, buffer->base, (size_t)count);
		err = err == 0 ? tls_take(tcp) : err;
		tls_flush(tcp);
	}
	if (err < 0)
		tls_ended(tcp, (int)-err);
	else if (tcp->secured)
		upward_carries(tcp->up);
	else
		upward_turn(tcp->up);
}

/* ---- connections ---- */

static void tcp_connect(struct parent_tcp *tcp);

static void tcp_free(struct parent_tcp *tcp)
{
	explicit_bzero(&tcp->key, sizeof(tcp->key));
	free(tcp);
}

/* The old socket is closed. */
static void tcp_closed(uv_handle_t *handle)
{
	struct parent_tcp *tcp = handle->data;

	if (tcp->up == NULL)
		tcp_free(tcp);
	else
		tcp_connect(tcp);
}

static void connected(uv_connect_t *request, int status)
{
	struct parent_tcp *tcp = request->data;
	struct parent *parent = tcp->parent;
	char reason[160];

	if (tcp->up == NULL)
		return; /* it has ended meanwhile */
	if (status != 0) {
		snprintf(reason, sizeof(reason), "no answer: %s; is winnowd running there?",
		         uv_strerror(status));
		upward_unreachable(tcp->up, reason);
		return;
	}
	uv_tcp_nodelay(&tcp->uv, 1);
	if (parent->tls != NULL &&
	    tls_connect(parent->tls, upward_link(tcp->up)->job, tcp->key.bytes, &tcp->tls) != 0) {
		connection_lost(tcp, "out of memory");
		return;
	}
	if (tcp->tls == NULL)
		bytes_send(tcp, LINK_FIRST_LINE, strlen(LINK_FIRST_LINE));
	tls_flush(tcp);
	uv_read_start((uv_stream_t *)&tcp->uv, give_buffer, bytes_take);
	upward_connected(tcp->up, tcp->tls == NULL);
}

static void tcp_connect(struct parent_tcp *tcp)
{
	union net_sockaddr address;
	int err;

	(void)net_sockaddr(&tcp->parent->config.address, &address);
	uv_tcp_init(tcp->parent->loop, &tcp->uv);
	tcp->uv.data = tcp->request.data = tcp;
	tcp->begun = true;
	err = uv_tcp_connect(&tcp->request, &tcp->uv, &address.any, connected);
	if (err != 0)
		connected(&tcp->request, err);
}

static int port_begin(void *context, struct upward *up, void **carrier)
{
	struct parent *parent = context;
	struct parent_tcp *tcp = calloc(1, sizeof(*tcp));
	int err = tcp != NULL ? 0 : -ENOMEM;

	if (err == 0 && parent->config.keys != NULL)
		err = job_keys_find(parent->config.keys, upward_link(up)->job, &tcp->key);
	if (err != 0) {
		free(tcp);
		return err;
	}
	tcp->parent = parent;
	tcp->up = up;
	*carrier = tcp;
	return 0;
}

static void port_connect(void *carrier)
{
	struct parent_tcp *tcp = carrier;

	if (tcp->begun)
		uv_close((uv_handle_t *)&tcp->uv, tcp_closed);
	else
		tcp_connect(tcp);
}

static void port_end(void *carrier)
{
	struct parent_tcp *tcp = carrier;

	tcp->up = NULL;
	tls_close(tcp->tls);
	tcp->tls = NULL;
	if (!tcp->begun)
		tcp_free(tcp);
	else if (!uv_is_closing((uv_handle_t *)&tcp->uv))
		uv_close((uv_handle_t *)&tcp->uv, tcp_closed);
}

/* ---- the loop and the data plane ---- */

static uint64_t port_now_us(void *context)
{
	(void)context;
	return loop_us();
}

static void timer_due(uv_timer_t *timer)
{
	struct parent *parent = timer->data;

	parent->due_us = UINT64_MAX;
	upwards_turn(parent->upwards);
}

static void port_wake(void *context, uint64_t due_us)
{
	struct parent *parent = context;
	const uint64_t now_us = loop_us();

	if (due_us >= parent->due_us)
		return;
	parent->due_us = due_us;
	uv_timer_start(&parent->timer, timer_due,
	               due_us > now_us + 1000 ? (due_us - now_us + 999) / 1000 : 1, 0);
}

/* From the thread that has the channel: 2.3 says which. */
static void port_knock(void *context, uint32_t channel, const struct packet_out *packet)
{
	const struct parent *parent = context;

	data_send(parent->config.data, channel, packet);
}

static void port_relay(void *context, uint16_t id, struct relay *relay)
{
	const struct parent *parent = context;

	data_relay(parent->config.data, id, relay);
}

static void port_look(void *context, uint16_t id, struct relay_view *sum)
{
	const struct parent *parent = context;

	data_relay_look(parent->config.data, id, sum);
}

/* ---- all ---- */

int parent_open(const struct parent_config *config, uv_loop_t *loop, struct parent **out,
                struct why *why)
{
	static const struct net_source any;
	struct parent *parent = calloc(1, sizeof(*parent));
	const uint32_t headers = net_headers(&config->address.ip);
	const uint32_t mtu = net_route_mtu(&config->address, &any);
	struct upwards_config upwards = {
		.parent = config->text,
		.site = config->site,
		.payload_max = config->payload_max,
		.rcvbuf = config->rcvbuf,
		.keyed = config->keys != NULL,
	};
	const struct upward_ports ports = {
		.context = parent,
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

	if (parent == NULL)
		return why_set(why, -ENOMEM, "out of memory");
	parent->config = *config;
	parent->loop = loop;
	parent->due_us = UINT64_MAX;
	if (mtu > headers && mtu - headers < upwards.payload_max)
		upwards.payload_max = mtu - headers;
	random_bytes(&upwards.via, sizeof(upwards.via));
	upwards.via |= 1; /* not 0 */
	if (upwards_open(&upwards, &ports, &parent->upwards) != 0 ||
	    (config->keys != NULL && tls_context_open(NULL, &parent->tls) != 0)) {
		parent_close(parent);
		return why_set(why, -ENOMEM, "out of memory");
	}
	uv_timer_init(loop, &parent->timer);
	parent->timer.data = parent;
	*out = parent;
	return 0;
}

struct upwards *parent_links(const struct parent *parent)
{
	return parent->upwards;
}

void parent_keys_set(struct parent *parent, const struct job_keys *keys)
{
	parent->config.keys = keys;
}

void parent_end(struct parent *parent)
{
	upwards_cut(parent->upwards);
	uv_timer_stop(&parent->timer);
}

void parent_close(struct parent *parent)
{
	tls_context_close(parent->tls);
	upwards_close(parent->upwards);
	free(parent);
}
