// SPDX-License-Identifier: BSD-3-Clause
/* fetch.c - see fetch.h */

#include "client/cli/status/fetch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "aggregator/net/clock.h"
#include "aggregator/net/net.h"
#include "aggregator/net/sockaddr.h"
#include "client/cli/status/owner.h"

#define STOP_CHECK_MS 100
#define CHUNK_BYTES 65536

struct call {
	struct fetch *fetch;
	int fd; /* -1: it is over */
	bool asked;
	char *got; /* with a 0 behind it */
	size_t bytes, room;
};

static void call_end(struct call *call, const char *why)
{
	close(call->fd);
	call->fd = -1;
	if (why != NULL)
		why_set(&call->fetch->why, 0, "%s", why);
}

static void call_start(struct call *call)
{
	struct sockaddr_in in;
	struct net_addr to;

	if (net_resolve(call->fetch->address, &to, &call->fetch->why) != 0)
		return;
	/* A daemon that listens everywhere shows as 0. */
	to.ip = to.ip != 0 ? to.ip : INADDR_LOOPBACK;
	in = net_sockaddr(&to);
	call->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (call->fd < 0)
		why_set(&call->fetch->why, 0, "cannot make a connection: %s", strerror(errno));
	else
		(void)connect(call->fd, (const struct sockaddr *)&in, sizeof(in));
}

/* The connection is made, or has failed. HTTP/1.0, so that the body comes in one piece. */
static void ask(struct call *call, const char *path)
{
	char request[1024];
	int length = snprintf(request, sizeof(request),
	                      "GET %s HTTP/1.0\r\nHost: %s\r\nConnection: close\r\n\r\n", path,
	                      call->fetch->address);

	call->asked = true;
	call->fetch->owner = owner_of(call->fd);
	if (send(call->fd, request, (size_t)length, MSG_NOSIGNAL) != length)
		call_end(call, "cannot connect: does winnowd run there, and is this its --metrics "
		               "address?");
}

static void body_take(struct call *call, const char *body, size_t bytes)
{
	memmove(call->got, body, bytes);
	call->got[bytes] = '\0';
	call->fetch->body = call->got;
	call->fetch->bytes = bytes;
	call->got = NULL;
	call_end(call, NULL);
}

/* Is what has arrived an answer? `ended`: nothing more will arrive. */
static void look(struct call *call, bool ended)
{
	static const char begin[] = "HTTP/1.", field[] = "\r\nContent-Length:";
	size_t seen = call->bytes < sizeof(begin) - 1 ? call->bytes : sizeof(begin) - 1;
	char *body = memmem(call->got, call->bytes, "\r\n\r\n", 4), *length;
	size_t bytes, wanted = SIZE_MAX;
	int code = 0;

	if (memcmp(call->got, begin, seen) != 0 || (body == NULL && call->bytes > FETCH_HEAD_MAX)) {
		call_end(call, "what answers does not speak HTTP");
		return;
	}
	if (body == NULL) {
		if (ended)
			call_end(call, "the connection ended before the answer did");
		return;
	}
	bytes = call->bytes - (size_t)(body + 4 - call->got);
	*body = '\0'; /* the head is a text of its own */
	length = strcasestr(call->got, field);
	if (length != NULL)
		wanted = strtoull(length + sizeof(field) - 1, NULL, 10);
	if (sscanf(call->got, "HTTP/1.%*d %3d", &code) != 1) {
		call_end(call, "what answers does not speak HTTP");
	} else if (code != 200) {
		call_end(call, NULL);
		why_set(&call->fetch->why, 0, "it answers with HTTP %d", code);
	} else if (bytes > FETCH_BODY_MAX || (length != NULL && wanted > FETCH_BODY_MAX)) {
		call_end(call, "the answer is too long");
	} else if (bytes >= wanted || (ended && length == NULL)) {
		body_take(call, body + 4, bytes < wanted ? bytes : wanted);
	} else if (ended) {
		call_end(call, "the answer broke off");
	} else {
		*body = '\r';
	}
}

static void take(struct call *call)
{
	ssize_t count;

	if (call->room - call->bytes <= CHUNK_BYTES) {
		size_t room = call->room * 2 + CHUNK_BYTES * 2;
		void *longer = realloc(call->got, room);

		if (longer == NULL) {
			call_end(call, "out of memory");
			return;
		}
		call->got = longer;
		call->room = room;
	}
	count = recv(call->fd, call->got + call->bytes, CHUNK_BYTES, 0);
	if (count < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (count > 0)
		call->bytes += (size_t)count;
	call->got[call->bytes] = '\0';
	look(call, count <= 0);
}

/* False: all calls are over. */
static bool turn(struct call calls[], struct pollfd fds[], uint32_t count, const char *path,
                 uint64_t left_us)
{
	int wait_ms = left_us / 1000 < STOP_CHECK_MS ? (int)(left_us / 1000) + 1 : STOP_CHECK_MS;
	uint32_t open = 0;

	for (uint32_t i = 0; i < count; i++) {
		short events = calls[i].asked ? POLLIN : POLLOUT;

		fds[i] = (struct pollfd){.fd = calls[i].fd, .events = events};
		open += calls[i].fd >= 0;
	}
	if (open == 0)
		return false;
	if (poll(fds, count, wait_ms) <= 0)
		return true;
	for (uint32_t i = 0; i < count; i++) {
		if (fds[i].revents != 0 && calls[i].asked)
			take(&calls[i]);
		else if (fds[i].revents != 0)
			ask(&calls[i], path);
	}
	return true;
}

void fetch_all(struct fetch fetches[], uint32_t count, const char *path, uint64_t timeout_us,
               bool (*stop)(void))
{
	struct call *calls = calloc(count, sizeof(*calls));
	struct pollfd *fds = calloc(count, sizeof(*fds));
	uint64_t end_us = clock_us() + timeout_us, now_us;
	bool ready = calls != NULL && fds != NULL;

	for (uint32_t i = 0; i < count; i++) {
		fetches[i].body = NULL;
		fetches[i].bytes = 0;
		fetches[i].owner = -1;
		if (ready)
			why_set(&fetches[i].why, 0, "no answer within %.1f s",
			        (double)timeout_us / 1e6);
		else
			why_set(&fetches[i].why, 0, "out of memory");
		if (ready) {
			calls[i] = (struct call){.fetch = &fetches[i], .fd = -1};
			call_start(&calls[i]);
		}
	}
	while (ready && (now_us = clock_us()) < end_us && (stop == NULL || !stop()) &&
	       turn(calls, fds, count, path, end_us - now_us))
		;
	for (uint32_t i = 0; ready && i < count; i++) {
		if (calls[i].fd >= 0)
			close(calls[i].fd);
		free(calls[i].got);
	}
	free(calls);
	free(fds);
}
