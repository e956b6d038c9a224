// SPDX-License-Identifier: BSD-3-Clause
/*
 * status_ask.c - which aggregators to look at, and asking them all at once
 *
 * Plain HTTP inside a cluster: one request, and an answer until its end. libcurl would bring 27
 * packages along. The answers are bytes from a stranger, and bounded.
 */

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/control/options.h"
#include "aggregator/net/net.h"
#include "aggregator/net/sockaddr.h"
#include "client/cli/cli.h"
#include "client/cli/status/status.h"

/* ---- which ---- */

/* "a:1,b:2" */
static int list_read(const char *at, struct status_targets *out)
{
	while (at != NULL) {
		struct status_target *target = &out->list[out->count];
		size_t length = strcspn(at, ",");
		const char *item = at;
		char host[NET_HOST_BYTES];
		struct why why;
		uint16_t port;

		if (out->count == STATUS_TARGETS_MAX)
			return cli_error(2, "more than %d aggregators", STATUS_TARGETS_MAX);
		at = cli_item(at, target->address, sizeof(target->address));
		if (length >= sizeof(target->address) ||
		    net_split(target->address, host, &port, &why) != 0)
			return cli_error(2,
			                 "'%.*s' is not HOST:PORT: give the address of winnowd's "
			                 "--metrics, such as " METRICS_DEFAULT,
			                 length < 100 ? (int)length : 100, item);
		out->count++;
	}
	return 0;
}

int status_targets_read(const char *const operands[], uint32_t count, const char *fallback,
                        struct status_targets *out)
{
	int status = 0;

	if (fallback != NULL && strcmp(fallback, "auto") == 0) /* as winnowd's variable may say */
		fallback = METRICS_DEFAULT;
	memset(out, 0, sizeof(*out));
	for (uint32_t i = 0; i < count && status == 0; i++)
		status = list_read(operands[i], out);
	if (count == 0)
		status = list_read(fallback, out);
	return status;
}

void status_targets_free(struct status_targets *targets)
{
	for (uint32_t i = 0; i < targets->count; i++) {
		json_decref(targets->list[i].report);
		json_decref(targets->list[i].earlier);
		json_decref(targets->list[i].problems);
	}
}

const char *const status_health_names[] = {"healthy", "degraded", "unreachable"};

/* ---- asking ---- */

static struct {
	struct status_targets *targets;
	void (*done)(enum status_health worst);
	uv_timer_t timer;
	uint32_t open; /* calls */
	struct call {
		struct status_target *target;
		struct net_addr to[NET_NAME_ADDRESSES_MAX]; /* its name's addresses */
		uint32_t to_count, to_at;                   /* at: the next to try */
		uv_tcp_t tcp;
		uv_connect_t connect;
		uv_write_t write;
		char request[400];
		char *got; /* with a 0 behind it */
		size_t bytes, room;
	} calls[STATUS_TARGETS_MAX];
} asking;

static void all_over(uv_handle_t *timer)
{
	struct status_targets *targets = asking.targets;
	enum status_health worst = STATUS_HEALTHY;

	(void)timer;
	for (uint32_t i = 0; i < targets->count; i++)
		if (targets->list[i].health > worst)
			worst = targets->list[i].health;
	asking.done(worst);
}

static void end_if_over(void)
{
	if (asking.open == 0)
		uv_close((uv_handle_t *)&asking.timer, all_over);
}

static void call_try(struct call *call);

/* The name may have another address. */
static void on_closed(uv_handle_t *handle)
{
	struct call *call = handle->data;

	if (call->to_at < call->to_count) {
		call_try(call);
		return;
	}
	free(call->got);
	asking.open--;
	end_if_over();
}

/* `why` NULL: the target already has one. */
static void call_end(struct call *call, const char *why)
{
	call->to_at = call->to_count;
	if (uv_is_closing((uv_handle_t *)&call->tcp))
		return;
	if (why != NULL)
		why_set(&call->target->why, 0, "%s", why);
	uv_close((uv_handle_t *)&call->tcp, on_closed);
}

static void on_timeout(uv_timer_t *timer)
{
	struct status_targets *targets = asking.targets;

	(void)timer;
	for (uint32_t i = 0; i < targets->count; i++)
		if (asking.calls[i].tcp.data != NULL)
			call_end(&asking.calls[i], NULL);
}

/* All that has arrived. NULL, or what is wrong with it. */
static const char *answer_take(struct call *call, bool ended)
{
	static const char field[] = "\r\nContent-Length:";
	struct status_target *target = call->target;
	char *body = call->got != NULL ? strstr(call->got, "\r\n\r\n") : NULL, *length;
	size_t bytes;
	int code = 0;

	if (call->bytes == 0)
		return "the connection ended before the answer did";
	if (body == NULL || sscanf(call->got, "HTTP/1.%*d %3d", &code) != 1)
		return "what answers does not speak HTTP: is this its --metrics address?";
	*body = '\0'; /* the head is a text of its own */
	body += 4;
	bytes = call->bytes - (size_t)(body - call->got);
	length = strcasestr(call->got, field);
	if (code != 200)
		why_set(&target->why, 0, "it answers with HTTP %d", code);
	else if (!ended)
		return "the answer is too long";
	else if (length != NULL && strtoull(length + sizeof(field) - 1, NULL, 10) > bytes)
		return "the answer broke off";
	else
		target->report = report_parse(body, bytes, &target->why);
	if (target->report == NULL)
		return NULL;
	report_judge(target->report, asking.targets->late_s, target->problems);
	target->health = json_array_size(target->problems) > 0 ? STATUS_DEGRADED : STATUS_HEALTHY;
	return NULL;
}

static void on_room(uv_handle_t *handle, size_t wanted, uv_buf_t *out)
{
	struct call *call = handle->data;

	if (call->room - call->bytes <= wanted) {
		size_t room = call->room * 2 + wanted + 1;
		char *longer = realloc(call->got, room);

		*out = uv_buf_init(NULL, 0); /* which ends the call */
		if (longer == NULL)
			return;
		call->got = longer;
		call->room = room;
	}
	*out = uv_buf_init(call->got + call->bytes, (unsigned)(call->room - call->bytes - 1));
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *unused)
{
	struct call *call = stream->data;

	(void)unused;
	if (count > 0) {
		call->bytes += (size_t)count;
		call->got[call->bytes] = '\0';
	}
	if (count < 0 || call->bytes > STATUS_BODY_MAX)
		call_end(call, answer_take(call, count < 0));
}

/* HTTP/1.0, so that the body comes in one piece, and the connection ends with it. */
static void on_connect(uv_connect_t *connect, int status)
{
	struct call *call = connect->handle->data;
	uv_buf_t request = uv_buf_init(call->request, 0);
	uv_os_fd_t fd;

	if (status == UV_ECANCELED)
		return;
	if (status != 0 && call->to_at < call->to_count) {
		uv_close((uv_handle_t *)&call->tcp, on_closed);
		return;
	}
	if (uv_fileno((uv_handle_t *)&call->tcp, &fd) == 0)
		call->target->owner = owner_of(fd);
	request.len = (size_t)snprintf(call->request, sizeof(call->request),
	                               "GET /status HTTP/1.0\r\nHost: %s\r\n"
	                               "Connection: close\r\n\r\n",
	                               call->target->address);
	if (status != 0 || uv_write(&call->write, connect->handle, &request, 1, NULL) != 0 ||
	    uv_read_start(connect->handle, on_room, on_read) != 0)
		call_end(call, "cannot connect: does winnowd run there, and is this its --metrics "
		               "address?");
}

static void call_try(struct call *call)
{
	struct net_addr to = call->to[call->to_at++];
	union net_sockaddr address;
	int err;

	/* A daemon that listens everywhere shows as 0.0.0.0, or as ::, which takes IPv4 as well. */
	if (net_ip_none(&to.ip))
		to.ip = net_ipv4(INADDR_LOOPBACK);
	net_sockaddr(&to, &address);
	uv_tcp_init(asking.timer.loop, &call->tcp);
	call->tcp.data = call;
	err = uv_tcp_connect(&call->connect, &call->tcp, &address.any, on_connect);
	if (err == 0)
		return;
	why_set(&call->target->why, 0, "cannot make a connection: %s", uv_strerror(err));
	uv_close((uv_handle_t *)&call->tcp, on_closed);
}

static void call_start(struct call *call)
{
	struct status_target *target = call->target;

	if (net_resolve_all(target->address, call->to, &call->to_count, &target->why) != 0) {
		text_safe(target->why.text, sizeof(target->why.text), target->why.text);
		return;
	}
	asking.open++;
	call_try(call);
}

void status_ask(uv_loop_t *loop, struct status_targets *targets,
                void (*done)(enum status_health worst))
{
	memset(&asking, 0, sizeof(asking));
	asking.targets = targets;
	asking.done = done;
	uv_timer_init(loop, &asking.timer);
	uv_timer_start(&asking.timer, on_timeout, targets->timeout_us / 1000, 0);
	for (uint32_t i = 0; i < targets->count; i++) {
		struct status_target *target = &targets->list[i];

		json_decref(target->earlier);
		target->earlier = target->report;
		target->report = NULL;
		json_decref(target->problems);
		target->problems = json_array();
		target->health = STATUS_UNREACHABLE;
		target->owner = -1;
		why_set(&target->why, 0, "no answer within %.1f s",
		        (double)targets->timeout_us / 1e6);
		asking.calls[i].target = target;
		call_start(&asking.calls[i]);
	}
	end_if_over();
}
