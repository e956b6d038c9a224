// SPDX-License-Identifier: BSD-3-Clause
/* fetch.c - see fetch.h */

#include "client/cli/status/fetch.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "aggregator/net/net.h"

#define LOOPBACK 0x7f000001
#define STOP_CHECK_US 100000

struct round;

struct call {
	struct round *round;
	struct fetch *fetch;
	struct evhttp_connection *connection;
	bool done;
	const char *broke; /* what the library has found wrong */
};

struct round {
	struct event_base *base;
	struct call *calls;
	uint32_t left;
	bool (*stop)(void);
};

static void failed(struct fetch *fetch, const char *text)
{
	why_set(&fetch->why, 0, "%s", text);
}

static void call_end(struct call *call)
{
	call->done = true;
	if (--call->round->left == 0)
		event_base_loopbreak(call->round->base);
}

static void broken(enum evhttp_request_error error, void *context)
{
	struct call *call = context;

	switch (error) {
	case EVREQ_HTTP_TIMEOUT:
		call->broke = "no answer in time";
		break;
	case EVREQ_HTTP_EOF:
		call->broke = "the connection ended before the answer did";
		break;
	case EVREQ_HTTP_INVALID_HEADER:
		call->broke = "what answers does not speak HTTP";
		break;
	case EVREQ_HTTP_DATA_TOO_LONG:
		call->broke = "the answer is too long";
		break;
	default:
		call->broke = "the answer broke off";
	}
}

static void take_body(struct fetch *fetch, struct evbuffer *buffer)
{
	size_t bytes = evbuffer_get_length(buffer);

	fetch->body = malloc(bytes + 1);
	if (fetch->body == NULL) {
		failed(fetch, "out of memory");
		return;
	}
	evbuffer_remove(buffer, fetch->body, bytes);
	fetch->body[bytes] = '\0';
	fetch->bytes = bytes;
}

static void answered(struct evhttp_request *request, void *context)
{
	struct call *call = context;
	int code = request != NULL ? evhttp_request_get_response_code(request) : 0;

	if (call->broke != NULL)
		failed(call->fetch, call->broke);
	else if (code == 0)
		failed(call->fetch, "cannot connect: does winnowd run there, and is this its "
		                    "--metrics address?");
	else if (code != HTTP_OK)
		why_set(&call->fetch->why, 0, "it answers with HTTP %d", code);
	else
		take_body(call->fetch, evhttp_request_get_input_buffer(request));
	call_end(call);
}

static void call_start(struct call *call, const char *path, uint64_t timeout_us)
{
	/* Longer than the round may last: that it is over says more than the library's timer. */
	struct timeval timeout = {.tv_sec = (time_t)(timeout_us / 1000000) + 2};
	struct evhttp_request *request = NULL;
	struct net_addr to;
	char host[24];

	if (net_resolve(call->fetch->address, &to, &call->fetch->why) != 0) {
		call_end(call);
		return;
	}
	if (to.ip == 0) /* what a daemon listens on when it listens everywhere */
		to.ip = LOOPBACK;
	net_format(&to, host);
	*strchr(host, ':') = '\0';
	call->connection = evhttp_connection_base_new(call->round->base, NULL, host, to.port);
	if (call->connection != NULL) {
		evhttp_connection_set_timeout_tv(call->connection, &timeout);
		evhttp_connection_set_max_body_size(call->connection, FETCH_BODY_MAX);
		evhttp_connection_set_max_headers_size(call->connection, FETCH_HEAD_MAX);
		request = evhttp_request_new(answered, call);
	}
	if (request != NULL) {
		evhttp_request_set_error_cb(request, broken);
		evhttp_add_header(evhttp_request_get_output_headers(request), "Host",
		                  call->fetch->address);
		evhttp_add_header(evhttp_request_get_output_headers(request), "Connection",
		                  "close");
		/* From here on the request is the connection's. */
		if (evhttp_make_request(call->connection, request, EVHTTP_REQ_GET, path) == 0)
			return;
	}
	if (!call->done) {
		failed(call->fetch, "cannot make a connection");
		call_end(call);
	}
}

static void check_stop(evutil_socket_t fd, short what, void *context)
{
	struct round *round = context;

	(void)fd;
	(void)what;
	if (round->stop())
		event_base_loopbreak(round->base);
}

static void wait_for_all(struct round *round, uint64_t timeout_us)
{
	struct timeval limit = {.tv_sec = (time_t)(timeout_us / 1000000),
	                        .tv_usec = (suseconds_t)(timeout_us % 1000000)};
	struct timeval often = {.tv_usec = STOP_CHECK_US};
	struct event *check = NULL;

	if (round->left == 0)
		return;
	if (round->stop != NULL)
		check = event_new(round->base, -1, EV_PERSIST, check_stop, round);
	if (check != NULL)
		event_add(check, &often);
	event_base_loopexit(round->base, &limit);
	event_base_dispatch(round->base);
	if (check != NULL)
		event_free(check);
}

void fetch_all(struct fetch fetches[], uint32_t count, const char *path, uint64_t timeout_us,
               bool (*stop)(void))
{
	struct round round = {.base = event_base_new(),
	                      .calls = calloc(count, sizeof(*round.calls)),
	                      .left = count,
	                      .stop = stop};

	for (uint32_t i = 0; i < count; i++) {
		fetches[i].body = NULL;
		fetches[i].bytes = 0;
		why_set(&fetches[i].why, 0, "no answer within %.1f s", (double)timeout_us / 1e6);
		if (round.base == NULL || round.calls == NULL) {
			failed(&fetches[i], "out of memory");
			continue;
		}
		round.calls[i] = (struct call){.round = &round, .fetch = &fetches[i]};
	}
	if (round.base != NULL && round.calls != NULL) {
		for (uint32_t i = 0; i < count; i++)
			call_start(&round.calls[i], path, timeout_us);
		wait_for_all(&round, timeout_us);
		for (uint32_t i = 0; i < count; i++)
			if (round.calls[i].connection != NULL)
				evhttp_connection_free(round.calls[i].connection);
	}
	free(round.calls);
	if (round.base != NULL)
		event_base_free(round.base);
}
