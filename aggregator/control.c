// SPDX-License-Identifier: BSD-3-Clause
/* control.c - see control.h */

#include "aggregator/control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "aggregator/control/lines.h"
#include "aggregator/http.h"
#include "aggregator/log.h"
#include "aggregator/service.h"

#define TICK_MS 50
#define BACKLOG 128
#define QUEUE_BYTES_MAX (256u * 1024) /* what a peer may leave unread before it is cut off */
#define LINGER_US 2000000             /* to let the last line reach a peer */

struct connection {
	struct control *control;
	uv_tcp_t tcp;
	struct jobs_peer *peer; /* NULL: no more to do with jobs */
	struct lines lines;
	bool shutting;
	uint64_t shut_us;
	struct connection *next;
};

struct control {
	struct control_config config;
	uv_loop_t loop;
	uv_tcp_t listener;
	uv_timer_t timer;
	struct service service;
	uv_async_t async;
	struct jobs *jobs;
	struct http *http;
	struct connection *connections;
	uint64_t drain_until_us; /* 0: not draining */
	bool ending;
	bool lost; /* a data thread has said that the network port is gone */
};

static uint64_t loop_us(const struct control *control)
{
	(void)control;
	return uv_hrtime() / 1000;
}

/* ---- connections ---- */

static void connection_closed(uv_handle_t *handle)
{
	struct connection *connection = handle->data;
	struct connection **place = &connection->control->connections;

	while (*place != connection)
		place = &(*place)->next;
	*place = connection->next;
	free(connection);
}

static void connection_end(struct connection *connection)
{
	if (!uv_is_closing((uv_handle_t *)&connection->tcp))
		uv_close((uv_handle_t *)&connection->tcp, connection_closed);
}

static void shut_done(uv_shutdown_t *request, int status)
{
	struct connection *connection = request->data;

	(void)status;
	free(request);
	connection_end(connection);
}

/* Close when what was written has gone; tick() closes those that take too long. */
static void connection_shut(struct connection *connection)
{
	uv_shutdown_t *request = connection->shutting ? NULL : malloc(sizeof(*request));

	if (connection->shutting)
		return;
	connection->shutting = true;
	connection->shut_us = loop_us(connection->control);
	if (request != NULL)
		request->data = connection;
	if (request == NULL ||
	    uv_shutdown(request, (uv_stream_t *)&connection->tcp, shut_done) != 0) {
		free(request);
		connection_end(connection);
	}
}

struct written {
	uv_write_t request;
	char *line;
};

static void write_done(uv_write_t *request, int status)
{
	struct written *written = (struct written *)(void *)request;

	(void)status; /* a broken connection shows up in connection_read() */
	free(written->line);
	free(written);
}

static void port_send(void *context, struct jobs_peer *peer, const char *line)
{
	struct connection *connection = jobs_peer_handle(peer);
	struct written *written = malloc(sizeof(*written));
	uv_buf_t buffer;

	(void)context;
	if (written == NULL)
		return;
	written->line = strdup(line);
	if (written->line == NULL || connection->shutting ||
	    uv_stream_get_write_queue_size((uv_stream_t *)&connection->tcp) > QUEUE_BYTES_MAX)
		goto drop;
	buffer = uv_buf_init(written->line, (unsigned)strlen(written->line));
	if (uv_write(&written->request, (uv_stream_t *)&connection->tcp, &buffer, 1, write_done) ==
	    0)
		return;
drop:
	free(written->line);
	free(written);
}

static void port_close(void *context, struct jobs_peer *peer)
{
	struct connection *connection = jobs_peer_handle(peer);

	(void)context;
	connection->peer = NULL;
	connection_shut(connection);
}

static void give_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
	static char buffer[65536]; /* one loop, one read at a time */

	(void)handle;
	(void)suggested;
	*out = uv_buf_init(buffer, sizeof(buffer));
}

static int take_line(void *context, const char *line)
{
	struct connection *connection = context;

	if (connection->peer != NULL)
		jobs_line(connection->control->jobs, connection->peer, line,
		          loop_us(connection->control));
	return connection->peer != NULL ? 0 : 1;
}

static void connection_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
	struct connection *connection = stream->data;
	struct jobs *jobs = connection->control->jobs;

	if (count == 0)
		return;
	if (count < 0) {
		if (connection->peer != NULL)
			jobs_gone(jobs, connection->peer,
			          count == UV_EOF ? "connection closed" : uv_strerror((int)count));
		connection_end(connection);
		return;
	}
	if (connection->peer == NULL)
		return; /* on its way out */
	if (lines_feed(&connection->lines, buffer->base, (size_t)count, take_line, connection) <
	            0 &&
	    connection->peer != NULL)
		jobs_garbage(jobs, connection->peer, "a line is too long, or has a zero byte");
}

static void address_text(const struct sockaddr_storage *from, struct net_addr *out, char *text)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)from;

	*out = (struct net_addr){.ip = ntohl(in->sin_addr.s_addr), .port = ntohs(in->sin_port)};
	net_format(out, text);
}

static void connection_new(uv_stream_t *listener, int status)
{
	struct control *control = listener->data;
	struct connection *connection = calloc(1, sizeof(*connection));
	struct sockaddr_storage name;
	struct net_addr peer, local;
	char text[24], unused[24];
	int size = sizeof(name);

	if (status != 0 || connection == NULL) {
		free(connection);
		return;
	}
	connection->control = control;
	uv_tcp_init(&control->loop, &connection->tcp);
	connection->tcp.data = connection;
	connection->next = control->connections;
	control->connections = connection;
	if (uv_accept(listener, (uv_stream_t *)&connection->tcp) != 0 ||
	    uv_tcp_getpeername(&connection->tcp, (struct sockaddr *)&name, &size) != 0) {
		connection_end(connection);
		return;
	}
	address_text(&name, &peer, text);
	size = sizeof(name);
	uv_tcp_getsockname(&connection->tcp, (struct sockaddr *)&name, &size);
	address_text(&name, &local, unused);
	uv_tcp_nodelay(&connection->tcp, 1);
	connection->peer =
		jobs_connected(control->jobs, text, local.ip, connection, loop_us(control));
	if (connection->peer == NULL ||
	    uv_read_start((uv_stream_t *)&connection->tcp, give_buffer, connection_read) != 0)
		connection_end(connection);
}

static void end(struct control *control, const char *text)
{
	if (control->ending)
		return;
	control->ending = true;
	jobs_end(control->jobs, text);
	uv_close((uv_handle_t *)&control->listener, NULL);
}

/* ---- data threads ---- */

static void wake(void *context)
{
	uv_async_send(&((struct control *)context)->async);
}

/* Workers are told, and winnowd ends: whoever started it will know what to do. */
static void port_lost(struct control *control, const char *why)
{
	char text[NET_WHY_BYTES + 64];

	log_event("error", "event=port_lost text=\"%s\"", why);
	snprintf(text, sizeof(text), "the aggregator has lost its network port: %s", why);
	end(control, text);
	control->lost = true;
	control->drain_until_us = 1;
}

static void take_reports(uv_async_t *async)
{
	struct control *control = async->data;
	struct report_stall stalls[REPORTS_STALLS_MAX];
	char lost[NET_WHY_BYTES];
	uint32_t count = reports_take(control->config.reports, stalls, lost);

	if (lost[0] != '\0' && !control->ending)
		port_lost(control, lost);
	for (uint32_t i = 0; i < count; i++)
		jobs_stalled(control->jobs, stalls[i].id, &stalls[i].stall);
}

static const char *port_share(void *context, const struct jobs_channel *channel,
                              struct channel_config *config)
{
	return offload_share(((struct control *)context)->config.offload, channel, config);
}

static int port_attach(void *context, const struct jobs_channel *channel)
{
	struct control *control = context;
	int err = data_attach(control->config.data, channel);

	if (err != 0)
		offload_release(control->config.offload, channel->id);
	return err;
}

static void port_start(void *context, uint16_t id, uint32_t payload, uint32_t window,
                       const bool multicast[])
{
	data_start(((struct control *)context)->config.data, id, payload, window, multicast);
}

static void port_unshare(void *context, uint16_t id)
{
	offload_unshare(((struct control *)context)->config.offload, id);
}

static void port_detach(void *context, uint16_t id)
{
	struct control *control = context;

	data_detach(control->config.data, id);
	offload_release(control->config.offload, id);
	reports_forget(control->config.reports, id); /* the next job may get this number */
}

/* ---- time and signals ---- */

static void tick(uv_timer_t *timer)
{
	struct control *control = timer->data;
	struct jobs_totals totals;
	uint64_t now_us = loop_us(control);

	jobs_tick(control->jobs, now_us);
	log_flush(false);
	for (struct connection *c = control->connections; c != NULL; c = c->next)
		if (c->shutting && now_us - c->shut_us > LINGER_US)
			connection_end(c);
	if (control->drain_until_us == 0)
		return;
	jobs_totals(control->jobs, &totals);
	if (totals.jobs == 0)
		end(control, "");
	else if (now_us >= control->drain_until_us)
		end(control, "the aggregator is shutting down");
	if (control->ending && control->connections == NULL)
		uv_stop(&control->loop);
}

static void end_asked(void *context, int number)
{
	struct control *control = context;
	struct jobs_totals totals;

	jobs_totals(control->jobs, &totals);
	if (control->drain_until_us == 0) {
		log_event("info", "event=drain signal=%d jobs=%u limit_s=%.0f", number, totals.jobs,
		          (double)control->config.drain_us / 1e6);
		service_tell("STOPPING=1\nSTATUS=draining: %u jobs may go on for %.0f s",
		             totals.jobs, (double)control->config.drain_us / 1e6);
		jobs_drain(control->jobs);
		control->drain_until_us = loop_us(control) + control->config.drain_us;
	} else {
		control->drain_until_us = 1; /* the second time is meant */
	}
	tick(&control->timer);
}

static void reload_asked(void *context)
{
	struct control *control = context;

	service_tell("RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long)loop_us(control));
	jobs_keys_set(control->jobs, control->config.reload());
	service_tell("READY=1");
}

/* A data thread answers only if it turns. */
static void alive_asked(void *context)
{
	struct control *control = context;
	struct data_stats stats;

	data_stats(control->config.data, &stats);
}

/* ---- life ---- */

static int listen_on(struct control *control, char *why)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(control->config.listen.ip),
		.sin_port = htons(control->config.listen.port),
	};
	char text[24];
	int err = uv_tcp_bind(&control->listener, (const struct sockaddr *)&address, 0);

	if (err == 0)
		err = uv_listen((uv_stream_t *)&control->listener, BACKLOG, connection_new);
	if (err != 0)
		snprintf(why, NET_WHY_BYTES, "cannot listen on TCP %s: %s",
		         net_format(&control->config.listen, text), uv_strerror(err));
	return err;
}

static void handles_init(struct control *control)
{
	const struct service_hooks hooks = {
		.context = control,
		.end = end_asked,
		.reload = reload_asked,
		.alive = alive_asked,
	};

	uv_tcp_init(&control->loop, &control->listener);
	uv_timer_init(&control->loop, &control->timer);
	uv_async_init(&control->loop, &control->async, take_reports);
	control->listener.data = control;
	control->timer.data = control;
	control->async.data = control;
	reports_listen(control->config.reports, wake, control);
	uv_timer_start(&control->timer, tick, TICK_MS, TICK_MS);
	service_start(&control->service, &control->loop, &hooks);
}

static int serve_http(struct control *control, char *why)
{
	const struct control_config *config = &control->config;
	struct http_sources sources = {
		.jobs = control->jobs,
		.data = config->data,
		.offload = config->offload,
		.listen = config->listen,
		.threads = config->jobs.threads,
		.rcvbuf_bytes = config->jobs.rcvbuf_bytes,
		.bytes_from = config->bytes_from,
	};
	int err = http_open(&config->metrics, &control->loop, &sources, &control->http, why);

	if (err == 0 || !config->metrics_auto)
		return err;
	log_event("info", "event=no_metrics text=\"%s; going on without\"", why);
	return 0;
}

int control_open(const struct control_config *config, struct control **out, char *why)
{
	struct control *control = calloc(1, sizeof(*control));
	struct jobs_ports ports = {
		.context = control,
		.send = port_send,
		.close = port_close,
		.share = port_share,
		.unshare = port_unshare,
		.attach = port_attach,
		.start = port_start,
		.detach = port_detach,
		.random = proof_random_for,
		.log = log_line,
	};
	int err;

	if (control == NULL || uv_loop_init(&control->loop) != 0) {
		free(control);
		snprintf(why, NET_WHY_BYTES, "cannot make an event loop");
		return -ENOMEM;
	}
	control->config = *config;
	handles_init(control);
	err = jobs_open(&config->jobs, &ports, &control->jobs);
	if (err != 0)
		snprintf(why, NET_WHY_BYTES, "cannot set up jobs: %s", strerror(-err));
	if (err == 0)
		err = listen_on(control, why);
	if (err == 0 && config->metrics.port != 0)
		err = serve_http(control, why);
	if (err != 0) {
		control_close(control);
		return err;
	}
	*out = control;
	return 0;
}

int control_run(struct control *control)
{
	uv_run(&control->loop, UV_RUN_DEFAULT);
	return control->lost ? -ENODEV : 0;
}

static void close_handle(uv_handle_t *handle, void *context)
{
	struct control *control = context;
	bool is_connection = handle->type == UV_TCP && handle != (uv_handle_t *)&control->listener;

	if (!uv_is_closing(handle))
		uv_close(handle, is_connection ? connection_closed : NULL);
}

void control_close(struct control *control)
{
	if (control->jobs != NULL)
		jobs_end(control->jobs, "the aggregator is shutting down");
	reports_listen(control->config.reports, NULL, NULL);
	uv_walk(&control->loop, close_handle, control);
	uv_run(&control->loop, UV_RUN_DEFAULT);
	uv_loop_close(&control->loop);
	http_close(control->http); /* its handles were on the loop */
	jobs_close(control->jobs);
	free(control);
}
