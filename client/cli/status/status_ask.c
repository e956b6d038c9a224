// SPDX-License-Identifier: BSD-3-Clause
/*
 * status_ask.c - chooses the aggregators to look at, and asks them all at the same time
 *
 * One plain HTTP request for each does not justify libcurl, which depends on 27 packages. Answers are
 * not trusted, and their size is limited.
 */

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bitmap/control/options.h"
#include "bitmap/net/clock.h"
#include "bitmap/net/net.h"
#include "bitmap/net/sockaddr.h"
#include "client/cli/cli.h"
#include "client/cli/status/status.h"

/* ---- choosing ---- */

/* Adds the port of METRICS_DEFAULT to an address that has none. */
static bool address_complete(char address[STATUS_ADDRESS_BYTES])
{
	const char *port = strrchr(METRICS_DEFAULT, ':');
	bool bare_six = strchr(address, ':') != NULL && address[0] != '[';
	char host[NET_HOST_BYTES], whole[STATUS_ADDRESS_BYTES + 16];
	struct why why;
	uint16_t number;

	if (net_split(address, host, &number, &why) == 0)
		return true;
	snprintf(whole, sizeof(whole), bare_six ? "[%s]%s" : "%s%s", address, port);
	if (strlen(whole) >= STATUS_ADDRESS_BYTES || net_split(whole, host, &number, &why) != 0)
		return false;
	strcpy(address, whole);
	return true;
}

/* Reads a list such as "a:1,b:2". */
static int list_read(const char *at, struct status_targets *out)
{
	while (at != NULL) {
		struct status_target *target = &out->list[out->count];

		if (out->count == STATUS_TARGETS_MAX)
			return cli_error(2, "more than %d aggregators are given",
			                 STATUS_TARGETS_MAX);
		at = option_item(at, target->address, sizeof(target->address));
		if (!address_complete(target->address))
			return cli_error(2,
			                 "'%.100s' is not HOST or HOST:PORT: give the address of "
			                 "winnowd's --metrics, such as " METRICS_DEFAULT,
			                 target->address);
		out->count++;
	}
	return 0;
}

int status_targets_read(const char *const operands[], uint32_t count, const char *fallback,
                        struct status_targets *out)
{
	int status = 0;

	if (fallback != NULL && strcmp(fallback, "auto") == 0) /* From winnowd's variable. */
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
		json_decref(targets->list[i].problems);
	}
}

const char *const status_health_names[] = {"healthy", "degraded", "unreachable"};

/* ---- asking ---- */

/* Parses the answer got[bytes], which a 0 follows. Returns NULL and a line in `why` if it is unusable. */
static json_t *answer_take(char *got, size_t bytes, bool ended, struct why *why)
{
	static const char field[] = "\r\nContent-Length:";
	char *body = strstr(got, "\r\n\r\n"), *length;
	json_t *report = NULL;
	int code = 0;

	if (body != NULL) { /* Search only the head for fields. */
		*body = '\0';
		body += 4;
	}
	length = strcasestr(got, field);
	if (bytes == 0)
		why_set(why, 0, "it closed the connection without an answer");
	else if (body == NULL || sscanf(got, "HTTP/1.%*d %3d", &code) != 1)
		why_set(why, 0, "the answer is not HTTP: give winnowd's --metrics address");
	else if (code != 200)
		why_set(why, 0, "it answers with HTTP %d", code);
	else if (!ended)
		why_set(why, 0, "the answer is too long");
	else if (length != NULL &&
	         strtoull(length + sizeof(field) - 1, NULL, 10) > bytes - (size_t)(body - got))
		why_set(why, 0, "the answer broke off");
	else
		report = report_parse(body, bytes - (size_t)(body - got), why);
	return report;
}

/* Like recv(), but waits until `end_us`. Returns -1 with errno, which is ETIMEDOUT if nothing has come. */
static ssize_t bytes_receive(int fd, void *to, size_t room, uint64_t end_us)
{
	for (;;) {
		struct pollfd in = {.fd = fd, .events = POLLIN};
		uint64_t now_us = clock_us();
		ssize_t bytes;

		poll(&in, 1, end_us > now_us ? (int)((end_us - now_us) / 1000 + 1) : 0);
		bytes = recv(fd, to, room, MSG_DONTWAIT);
		if (bytes >= 0 || (errno != EAGAIN && errno != EINTR))
			return bytes;
		if (now_us >= end_us) {
			errno = ETIMEDOUT;
			return -1;
		}
	}
}

/* HTTP/1.0 makes the body come in one piece, followed by the end of the connection. */
static void answer_read(struct status_target *target, int fd, uint64_t end_us)
{
	char request[400], *got = malloc(STATUS_BODY_MAX + 2);
	size_t bytes = 0;
	ssize_t more = -1;

	snprintf(request, sizeof(request),
	         "GET /status HTTP/1.0\r\nHost: %s\r\nConnection: close\r\n\r\n", target->address);
	(void)!send(fd, request, strlen(request), MSG_NOSIGNAL);
	while (got != NULL && bytes <= STATUS_BODY_MAX &&
	       (more = bytes_receive(fd, got + bytes, STATUS_BODY_MAX + 1 - bytes, end_us)) > 0)
		bytes += (size_t)more;
	if (got == NULL) {
		why_set(&target->why, 0, "no memory for its answer");
	} else if (more >= 0 || errno != ETIMEDOUT) {
		got[bytes] = '\0';
		target->report = answer_take(got, bytes, bytes <= STATUS_BODY_MAX, &target->why);
	}
	free(got);
}

/* Connects by TCP until `end_us`. Returns -1 with errno, which is ETIMEDOUT if the time is over. */
static int address_connect(const struct net_addr *to, uint64_t end_us)
{
	uint64_t now_us = clock_us(), left_us = end_us > now_us ? end_us - now_us : 1;
	const struct timeval limit = {.tv_sec = (time_t)(left_us / 1000000),
	                              .tv_usec = (suseconds_t)(left_us % 1000000)};
	union net_sockaddr address;
	socklen_t size = net_sockaddr(to, &address);
	int fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), err;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)); /* Limits connect(). */
	do
		err = connect(fd, &address.any, size) == 0 ? 0 : errno;
	while (err == EINTR);
	if (err == 0)
		return fd;
	close(fd);
	errno = err == EINPROGRESS ? ETIMEDOUT : err;
	return -1;
}

/* Connects to one of the addresses of its name. Returns -1 and a line in target->why on failure. */
static int target_connect(struct status_target *target, uint64_t end_us)
{
	struct net_addr to[NET_NAME_ADDRESSES_MAX];
	uint32_t count;
	int fd = -1;

	if (net_resolve_all(target->address, to, &count, &target->why) != 0) {
		text_safe(target->why.text, sizeof(target->why.text), target->why.text);
		return -1;
	}
	for (uint32_t i = 0; i < count && fd < 0; i++) {
		/* The user may copy 0.0.0.0 or :: from winnowd's options. Both also listen on loopback. */
		if (net_ip_none(&to[i].ip))
			to[i].ip = net_ipv4(INADDR_LOOPBACK);
		fd = address_connect(&to[i], end_us);
	}
	if (fd < 0 && errno != ETIMEDOUT)
		why_set(&target->why, 0,
		        "cannot connect: %s; check that winnowd runs there, and that this is its "
		        "--metrics address",
		        strerror(errno));
	return fd;
}

/* Each target is asked on its own thread. */
static void *target_ask(void *context)
{
	struct status_target *target = context;
	uint64_t end_us = clock_us() + target->all->timeout_us;
	int fd = target_connect(target, end_us);

	if (fd < 0)
		return NULL;
	target->owner = owner_of(fd);
	answer_read(target, fd, end_us);
	close(fd);
	if (target->report == NULL)
		return NULL;
	report_judge(target->report, target->all->late_s, target->problems);
	target->health = json_array_size(target->problems) > 0 ? STATUS_DEGRADED : STATUS_HEALTHY;
	return NULL;
}

enum status_health status_ask(struct status_targets *targets)
{
	enum status_health worst = STATUS_HEALTHY;
	bool asked[STATUS_TARGETS_MAX];

	for (uint32_t i = 0; i < targets->count; i++) {
		struct status_target *target = &targets->list[i];
		int err;

		json_decref(target->report);
		target->report = NULL;
		json_decref(target->problems);
		target->problems = json_array();
		target->health = STATUS_UNREACHABLE;
		target->owner = -1;
		target->all = targets;
		why_set(&target->why, 0, "no answer within %.1f s",
		        (double)targets->timeout_us / 1e6);
		err = pthread_create(&target->thread, NULL, target_ask, target);
		asked[i] = err == 0;
		if (err != 0)
			why_set(&target->why, 0, "cannot start a thread: %s", strerror(err));
	}
	for (uint32_t i = 0; i < targets->count; i++) {
		if (asked[i])
			pthread_join(targets->list[i].thread, NULL);
		if (targets->list[i].health > worst)
			worst = targets->list[i].health;
	}
	return worst;
}
