// SPDX-License-Identifier: BSD-3-Clause
/* http.c - see http.h */

#include "aggregator/http/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "aggregator/jobs/crowd.h"
#include "aggregator/listener.h"
#include "aggregator/net/sockaddr.h"

#define IDLE_S 10
#define CONNECTION_BYTES 8192 /* of memory, for the head of a request and of its answer */
#define LEAVING_MAX 16        /* connections that have been cut off, and are not closed yet */

struct http {
	struct MHD_Daemon *daemon;
	struct listener listener;
	uv_poll_t poll;
	uv_timer_t timer;
	struct crowd crowd; /* all connections, by address; each is its socket's number */
	struct http_sources sources;
	uint64_t since_us;
};

/* ---- answering ---- */

static enum MHD_Result respond(struct MHD_Connection *connection, unsigned status, const char *type,
                               char *body)
{
	struct MHD_Response *response;
	enum MHD_Result result;

	if (body == NULL)
		return MHD_NO;
	response = MHD_create_response_from_buffer(strlen(body), body, MHD_RESPMEM_MUST_FREE);
	if (response == NULL) {
		free(body);
		return MHD_NO;
	}
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	result = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_bytes, void **request)
{
	const struct http *http = context;
	struct jobs_totals totals;

	(void)version;
	(void)upload;
	(void)upload_bytes;
	(void)request;
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		return respond(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "text/plain",
		               strdup("only GET\n"));
	if (strcmp(url, "/metrics") == 0)
		return respond(connection, MHD_HTTP_OK, "text/plain; version=0.0.4",
		               http_metrics(&http->sources));
	if (strcmp(url, "/status") == 0)
		return respond(connection, MHD_HTTP_OK, "application/json",
		               http_status(&http->sources, uv_hrtime() / 1000 - http->since_us));
	if (strcmp(url, "/healthz") == 0)
		return respond(connection, MHD_HTTP_OK, "text/plain", strdup("ok\n"));
	jobs_totals(http->sources.jobs, &totals);
	if (strcmp(url, "/readyz") == 0)
		return respond(connection,
		               totals.draining ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_OK,
		               "text/plain", strdup(totals.draining ? "draining\n" : "ready\n"));
	return respond(connection, MHD_HTTP_NOT_FOUND, "text/plain",
	               strdup("try /metrics, /status, /healthz or /readyz\n"));
}

/* ---- on the loop ---- */

static void timed(uv_timer_t *timer);

static void work(struct http *http)
{
	MHD_UNSIGNED_LONG_LONG wait_ms;

	MHD_run(http->daemon);
	if (MHD_get_timeout(http->daemon, &wait_ms) == MHD_YES)
		uv_timer_start(&http->timer, timed, wait_ms, 0);
}

static void timed(uv_timer_t *timer)
{
	work(timer->data);
}

static void polled(uv_poll_t *poll, int status, int events)
{
	(void)status;
	(void)events;
	work(poll->data);
}

/* ---- connections ---- */

static void *member(int fd)
{
	return (void *)(intptr_t)fd;
}

/* The socket is the library's; it closes what has ended. False: there is none. */
static bool crowd_out(void *context)
{
	struct http *http = context;
	void *oldest = crowd_heaviest(&http->crowd).oldest;

	if (oldest == NULL)
		return false;
	crowd_remove(&http->crowd, oldest);
	shutdown((int)(intptr_t)oldest, SHUT_RDWR);
	work(http);
	return true;
}

static char *sorry(void *unused)
{
	(void)unused;
	return strdup("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n"
	              "Content-Length: 0\r\n\r\n");
}

/*
 * A client that asks for winnowd's state, above all a probe, gets an answer whatever strangers do:
 * a connection is served as soon as its request is complete, and until then only a newer connection
 * from an address that has as many may push it out.
 */
static void connection_new(void *context, int fd, const struct net_addr *from)
{
	struct http *http = context;
	union net_sockaddr address;
	socklen_t size = net_sockaddr(from, &address);

	if (http->crowd.count == HTTP_CONNECTIONS_MAX)
		crowd_out(http);
	crowd_add(&http->crowd, net_ip_owner(&from->ip), member(fd));
	/* If it does not take the connection it closes it, without calling connection_ended(). */
	if (MHD_add_connection(http->daemon, fd, &address.any, size) != MHD_YES)
		crowd_remove(&http->crowd, member(fd));
	work(http);
}

static void connection_ended(void *context, struct MHD_Connection *connection, void **unused,
                             enum MHD_ConnectionNotificationCode what)
{
	struct http *http = context;
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);

	(void)unused;
	if (what == MHD_CONNECTION_NOTIFY_CLOSED && info != NULL)
		crowd_remove(&http->crowd, member(info->connect_fd));
}

/* ---- life ---- */

static struct MHD_Daemon *daemon_start(struct http *http)
{
	return MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL, answer,
	                        http, MHD_OPTION_CONNECTION_LIMIT,
	                        HTTP_CONNECTIONS_MAX + LEAVING_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
	                        IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
	                        (size_t)CONNECTION_BYTES, MHD_OPTION_NOTIFY_CONNECTION,
	                        connection_ended, http, MHD_OPTION_END);
}

int http_open(const struct net_addr *listen, uv_loop_t *loop, const struct http_sources *sources,
              struct http **out, struct why *why)
{
	struct http *http = calloc(1, sizeof(*http));
	const struct listener_hooks hooks = {
		.context = http,
		.taken = connection_new,
		.make_room = crowd_out,
		.sorry = sorry,
	};
	const union MHD_DaemonInfo *info;
	int err, fd = why_set(why, -ENOMEM, "out of memory");

	if (http == NULL)
		return fd;
	http->listener = LISTENER_NONE;
	http->sources = *sources;
	http->since_us = uv_hrtime() / 1000;
	http->daemon = daemon_start(http);
	if (http->daemon != NULL && crowd_open(&http->crowd, HTTP_CONNECTIONS_MAX) == 0)
		fd = listener_bind(listen, "cannot serve HTTP on", why);
	err = fd < 0 ? fd : listener_open(&http->listener, loop, fd, listen, &hooks, why);
	if (err != 0) {
		http_close(http);
		return err;
	}
	info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	uv_poll_init(loop, &http->poll, info->epoll_fd);
	uv_timer_init(loop, &http->timer);
	http->poll.data = http;
	http->timer.data = http;
	uv_poll_start(&http->poll, UV_READABLE, polled);
	*out = http;
	return 0;
}

void http_close(struct http *http)
{
	if (http == NULL)
		return;
	if (http->daemon != NULL)
		MHD_stop_daemon(http->daemon);
	listener_close(&http->listener);
	crowd_close(&http->crowd);
	free(http);
}
