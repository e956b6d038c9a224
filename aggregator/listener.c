// SPDX-License-Identifier: BSD-3-Clause
/* listener.c - see listener.h */

#include "aggregator/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "aggregator/log.h"
#include "bitmap/net/sockaddr.h"

#define BACKLOG 1024
#define TURN_MAX 16 /* connections accepted in one turn of the loop */
#define PAUSE_MS 100
#define SHORTAGE_MS 60000 /* a shortage is over when there has been none for so long */

/* Accepts one connection. Returns it, or -errno. */
static int connection_take(const struct listener *listener, struct net_addr *from)
{
	union net_sockaddr address;
	socklen_t size = sizeof(address);
	int fd = accept4(listener->fd, &address.any, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0)
		return -errno;
	*from = net_of_sockaddr(&address.any);
	return fd;
}

/* Logs each shortage once. */
static void say_full(struct listener *listener, int err)
{
	const uint64_t now_ms = uv_hrtime() / 1000000, before_ms = listener->short_ms;
	char text[NET_TEXT_BYTES];

	listener->short_ms = now_ms;
	if (before_ms != 0 && now_ms - before_ms < SHORTAGE_MS)
		return;
	log_event("warn", "no_descriptors",
	          LOG_FIELDS(LOG_WORD("port", net_format(&listener->address, text))),
	          "cannot accept a connection: %s%s", strerror(-err),
	          err == -EMFILE ? "; raise ulimit -n" : "");
}

static void listener_polled(uv_poll_t *poll, int status, int events);

static void listener_resume(uv_timer_t *timer)
{
	struct listener *listener = timer->data;

	uv_poll_start(&listener->poll, UV_READABLE, listener_polled);
}

/*
 * Returns false if connections wait in the kernel and we cannot accept them. accept() needs a
 * descriptor before it checks for a connection, so only the first failure in a turn means that one
 * waits.
 */
static bool take_turn(struct listener *listener)
{
	uint32_t failed = 0;

	for (uint32_t i = 0; i < TURN_MAX && listener->fd >= 0; i++) {
		struct net_addr from;
		int fd = connection_take(listener, &from);

		if (fd == -EAGAIN)
			return true;
		if (fd >= 0)
			listener->hooks.taken(listener->hooks.context, fd, &from);
		else if (fd != -EMFILE && fd != -ENFILE && fd != -ENOMEM && fd != -ENOBUFS)
			failed++; /* that connection is gone already */
		else if (i > 0)
			return true;
		else if (!listener->hooks.make_room(listener->hooks.context)) {
			say_full(listener, fd);
			return false;
		}
	}
	return failed < TURN_MAX;
}

static void listener_polled(uv_poll_t *poll, int status, int events)
{
	struct listener *listener = poll->data;

	(void)status;
	(void)events;
	if (take_turn(listener) || listener->fd < 0)
		return;
	uv_poll_stop(&listener->poll);
	uv_timer_start(&listener->pause, listener_resume, PAUSE_MS, 0);
}

static int socket_of(const struct net_addr *at)
{
	return socket(net_ip_is_v4(&at->ip) ? AF_INET : AF_INET6,
	              SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static int socket_listen(int fd, const struct net_addr *at)
{
	union net_sockaddr address;
	socklen_t size = net_sockaddr(at, &address);
	int on = 1, off = 0;

	if (address.any.sa_family == AF_INET6) /* whatever net.ipv6.bindv6only is */
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	return bind(fd, &address.any, size) != 0 || listen(fd, BACKLOG) != 0 ? -errno : 0;
}

int listener_bind(const struct net_addr *address, const char *what, struct why *why)
{
	struct net_addr at = *address;
	char text[NET_TEXT_BYTES];
	int fd = socket_of(&at), err;

	/* Without IPv6 in the system, [::] means all of IPv4, as for datagrams. */
	if (fd < 0 && errno == EAFNOSUPPORT && net_ip_none(&at.ip) && !net_ip_is_v4(&at.ip)) {
		at.ip = net_ipv4(0);
		fd = socket_of(&at);
	}
	err = fd < 0 ? -errno : socket_listen(fd, &at);
	if (err == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return why_set(why, err, "%s %s: %s", what, net_format(address, text), strerror(-err));
}

int listener_open(struct listener *listener, uv_loop_t *loop, int fd,
                  const struct net_addr *address, const struct listener_hooks *hooks,
                  struct why *why)
{
	char text[NET_TEXT_BYTES];
	int err;

	*listener = (struct listener){.hooks = *hooks, .address = *address, .fd = fd};
	err = uv_poll_init(loop, &listener->poll, fd);
	if (err != 0) {
		listener_close(listener);
		return why_set(why, err, "cannot watch TCP %s: %s", net_format(address, text),
		               strerror(-err));
	}
	uv_timer_init(loop, &listener->pause);
	listener->poll.data = listener;
	listener->pause.data = listener;
	uv_poll_start(&listener->poll, UV_READABLE, listener_polled);
	return 0;
}

void listener_stop(struct listener *listener)
{
	if (listener->fd < 0)
		return;
	uv_close((uv_handle_t *)&listener->poll, NULL);
	uv_close((uv_handle_t *)&listener->pause, NULL);
	listener_close(listener);
}

void listener_close(struct listener *listener)
{
	if (listener->fd >= 0)
		close(listener->fd);
	listener->fd = -1;
}
