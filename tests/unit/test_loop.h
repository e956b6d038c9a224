/* SPDX-License-Identifier: BSD-3-Clause */
/* test_loop.h - what runs on winnowd's loop, with real sockets on loopback; the other ends are in the same thread */
#ifndef TESTS_UNIT_TEST_LOOP_H
#define TESTS_UNIT_TEST_LOOP_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include <cmocka.h>

#include "bitmap/net/net.h"

#define LIMIT_MS 20000

static uv_loop_t loop;

/* Turn the loop until `condition`, which is looked at after each turn. */
#define UNTIL(condition)                                                                           \
	do {                                                                                       \
		uint64_t deadline_ms = uv_hrtime() / 1000000 + LIMIT_MS;                           \
                                                                                                   \
		while (!(condition)) {                                                             \
			if (uv_hrtime() / 1000000 > deadline_ms)                                   \
				fail_msg("not within %d s: %s", LIMIT_MS / 1000, #condition);      \
			turn();                                                                    \
		}                                                                                  \
	} while (0)

static inline void turn(void)
{
	uv_run(&loop, UV_RUN_NOWAIT);
	usleep(200);
}

static inline void turns(uint32_t count)
{
	while (count-- > 0)
		turn();
}

static inline void close_handle(uv_handle_t *handle, void *unused)
{
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

/* All handles are closed. */
static inline void loop_end(void)
{
	uv_walk(&loop, close_handle, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

/* A TCP port of 127.0.0.1 that nobody listens on. */
static inline struct net_addr free_address(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t size = sizeof(any);

	assert_int_equal(bind(fd, (struct sockaddr *)&any, sizeof(any)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&any, &size), 0);
	close(fd);
	return (struct net_addr){.ip = net_ipv4(INADDR_LOOPBACK), .port = ntohs(any.sin_port)};
}

/* A connection to it from 127.0.0.`host`, which does not block. */
static inline int dial(const struct net_addr *to, uint8_t host)
{
	struct sockaddr_in from = {.sin_family = AF_INET,
	                           .sin_addr.s_addr = htonl(0x7f000000u + host)};
	struct sockaddr_in address = {.sin_family = AF_INET,
	                              .sin_addr.s_addr = htonl(net_ip_number(&to->ip)),
	                              .sin_port = htons(to->port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	return fd;
}

static inline void say_text(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* What comes until the other end closes, or this many bytes; ends with 0. -1: it has not closed yet. */
static inline ssize_t hear(int fd, char *text, size_t room, size_t *used)
{
	ssize_t count = recv(fd, text + *used, room - 1 - *used, 0);

	if (count > 0) {
		*used += (size_t)count;
		text[*used] = '\0';
	}
	return count > 0 || (count < 0 && errno == EAGAIN) ? -1 : (ssize_t)*used;
}

/* So many descriptors more than now are allowed. Gives back the limit that was. */
static inline struct rlimit allow_descriptors(uint32_t more)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC); /* the lowest that is free */
	struct rlimit before, now;

	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	now = before;
	now.rlim_cur = (rlim_t)fd + more;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
	return before;
}

#endif /* TESTS_UNIT_TEST_LOOP_H */
