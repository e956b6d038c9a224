// SPDX-License-Identifier: BSD-3-Clause
/* http.c - see http.h */

#include "aggregator/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECTIONS_MAX 32
#define IDLE_S 10

struct http {
	struct MHD_Daemon *daemon;
	uv_poll_t poll;
	uv_timer_t timer;
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

int http_open(const struct net_addr *listen, uv_loop_t *loop, const struct http_sources *sources,
              struct http **out, char *why)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(listen->ip),
		.sin_port = htons(listen->port),
	};
	struct http *http = calloc(1, sizeof(*http));
	const union MHD_DaemonInfo *info;
	char text[24];

	if (http == NULL) {
		snprintf(why, NET_WHY_BYTES, "out of memory");
		return -ENOMEM;
	}
	http->sources = *sources;
	http->since_us = uv_hrtime() / 1000;
	http->daemon = MHD_start_daemon(MHD_USE_EPOLL, listen->port, NULL, NULL, answer, http,
	                                MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_CONNECTION_LIMIT,
	                                CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S,
	                                MHD_OPTION_END);
	if (http->daemon == NULL) {
		snprintf(why, NET_WHY_BYTES, "cannot serve HTTP on %s: %s",
		         net_format(listen, text), strerror(errno));
		free(http);
		return errno != 0 ? -errno : -EADDRINUSE;
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
	MHD_stop_daemon(http->daemon);
	free(http);
}
