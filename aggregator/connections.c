// SPDX-License-Identifier: BSD-3-Clause
/* connections.c - see connections.h */

#include "aggregator/connections.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "aggregator/control/lines.h"
#include "aggregator/net/sockaddr.h"

struct connection {
	uv_tcp_t tcp;
	struct connections *all;
	struct jobs_peer *peer; /* NULL: jobs.c is done with it */
	const char *why;        /* why we have cut it off; NULL: we have not */
	uint64_t shut_us;
	uv_shutdown_t shutdown;
	LIST_ENTRY(connection) place; /* in one of the two lists */
	struct lines lines;
};

/* A line on its way out. */
struct written {
	uv_write_t request;
	size_t bytes;
	char line[];
};

bool connections_none(const struct connections *connections)
{
	return LIST_EMPTY(&connections->open) && LIST_EMPTY(&connections->shut);
}

/* ---- ends ---- */

static void closed(uv_handle_t *handle)
{
	free(handle->data);
}

/* The socket is closed at once; the memory stays until the loop has finished with it. */
static void connection_end(struct connection *connection)
{
	if (uv_is_closing((uv_handle_t *)&connection->tcp))
		return;
	LIST_REMOVE(connection, place);
	uv_close((uv_handle_t *)&connection->tcp, closed);
}

static void shut_done(uv_shutdown_t *request, int status)
{
	(void)status;
	connection_end(request->data);
}

/*
 * Close when everything written has left; connections_tick() deals with peers that take too long.
 */
void connections_shut(void *unused, struct jobs_peer *peer)
{
	struct connection *connection = jobs_peer_handle(peer);

	(void)unused;
	connection->peer = NULL;
	connection->shut_us = uv_hrtime() / 1000;
	connection->shutdown.data = connection;
	LIST_REMOVE(connection, place);
	LIST_INSERT_HEAD(&connection->all->shut, connection, place);
	if (uv_shutdown(&connection->shutdown, (uv_stream_t *)&connection->tcp, shut_done) != 0)
		connection_end(connection);
}

void connections_tick(struct connections *connections, uint64_t now_us)
{
	struct connection *next;

	for (struct connection *c = LIST_FIRST(&connections->shut); c != NULL; c = next) {
		next = LIST_NEXT(c, place);
		if (now_us - c->shut_us > CONNECTIONS_LINGER_US)
			connection_end(c);
	}
}

/* jobs.c must also learn that the peer is gone, but not before its call to us has returned. */
static void cut_off(struct connection *connection, const char *why)
{
	int fd;

	connection->why = why;
	if (uv_fileno((uv_handle_t *)&connection->tcp, &fd) == 0)
		shutdown(fd, SHUT_RDWR);
}

/* ---- out ---- */

static void write_done(uv_write_t *request, int status)
{
	(void)status; /* a broken connection shows up in connection_read() */
	free(request->data);
}

void connections_send(void *unused, struct jobs_peer *peer, const char *line)
{
	struct connection *connection = jobs_peer_handle(peer);
	uv_stream_t *stream = (uv_stream_t *)&connection->tcp;
	size_t bytes = strlen(line);
	struct written *written;
	uv_buf_t buffer;

	(void)unused;
	if (connection->why != NULL)
		return;
	if (uv_stream_get_write_queue_size(stream) + bytes > CONNECTIONS_QUEUE_BYTES) {
		cut_off(connection, "it does not read what it is sent");
		return;
	}
	written = malloc(sizeof(*written) + bytes);
	if (written == NULL) {
		cut_off(connection, "the aggregator is out of memory");
		return;
	}
	memcpy(written->line, line, bytes);
	written->request.data = written;
	buffer = uv_buf_init(written->line, (unsigned)bytes);
	if (uv_write(&written->request, stream, &buffer, 1, write_done) != 0)
		free(written);
}

/* ---- in ---- */

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
		jobs_line(connection->all->jobs, connection->peer, line, uv_hrtime() / 1000);
	return connection->peer != NULL ? 0 : 1;
}

/* The connection ended by itself, or because we cut it off. */
static void connection_gone(struct connection *connection, ssize_t why)
{
	const char *reason = why == UV_EOF ? "connection closed" : uv_strerror((int)why);
	struct jobs_peer *peer = connection->peer;

	connection->peer = NULL;
	if (peer != NULL)
		jobs_gone(connection->all->jobs, peer,
		          connection->why != NULL ? connection->why : reason);
	connection_end(connection);
}

static void connection_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
	struct connection *connection = stream->data;

	if (count < 0)
		connection_gone(connection, count);
	if (count <= 0)
		return;
	if (lines_feed(&connection->lines, buffer->base, (size_t)count, take_line, connection) <
	            0 &&
	    connection->peer != NULL)
		jobs_garbage(connection->all->jobs, connection->peer,
		             "a line is too long, or has a zero byte");
}

/* ---- new ones ---- */

static void connection_new(void *context, int fd, const struct net_addr *from)
{
	struct connections *all = context;
	struct connection *connection = calloc(1, sizeof(*connection));
	struct net_addr local;
	int err;

	if (connection == NULL) {
		close(fd);
		return;
	}
	uv_tcp_init(all->loop, &connection->tcp);
	connection->tcp.data = connection;
	connection->all = all;
	LIST_INSERT_HEAD(&all->open, connection, place);
	err = uv_tcp_open(&connection->tcp, fd);
	if (err != 0)
		close(fd);
	else
		err = uv_read_start((uv_stream_t *)&connection->tcp, give_buffer, connection_read);
	if (err != 0) {
		connection_end(connection);
		return;
	}
	uv_tcp_nodelay(&connection->tcp, 1);
	(void)net_end(getsockname, fd, &local);
	connection->peer =
		jobs_connected(all->jobs, from, &local.ip, connection, uv_hrtime() / 1000);
}

/*
 * No descriptor is left: a connection that has nothing more to do, or that has not joined, gives up
 * its own.
 */
static bool make_room(void *context)
{
	struct connections *all = context;

	if (LIST_EMPTY(&all->shut) && !jobs_crowd_out(all->jobs))
		return false;
	if (!LIST_EMPTY(&all->shut))
		connection_end(LIST_FIRST(&all->shut));
	return true;
}

static char *sorry(void *context)
{
	struct connections *all = context;

	return jobs_no_room(all->jobs);
}

int connections_open(struct connections *connections, uv_loop_t *loop, struct jobs *jobs, int fd,
                     const struct net_addr *listen, struct why *why)
{
	const struct listener_hooks hooks = {
		.context = connections,
		.taken = connection_new,
		.make_room = make_room,
		.sorry = sorry,
	};

	connections->loop = loop;
	connections->jobs = jobs;
	return listener_open(&connections->listener, loop, fd, listen, &hooks, why);
}

void connections_end(struct connections *connections)
{
	while (!LIST_EMPTY(&connections->open))
		connection_end(LIST_FIRST(&connections->open));
	while (!LIST_EMPTY(&connections->shut))
		connection_end(LIST_FIRST(&connections->shut));
	listener_stop(&connections->listener);
}
