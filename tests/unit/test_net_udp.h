/* SPDX-License-Identifier: BSD-3-Clause */
/* test_net_udp.h - sockets on the loopback, a system call that refuses on demand, datagrams that say who they are */
#ifndef TESTS_UNIT_TEST_NET_UDP_H
#define TESTS_UNIT_TEST_NET_UDP_H

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/udp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bitmap/net/net.h"
#include "tests/unit/unit.h"

#define LOOPBACK 0x7f000001u
#define PIECES 3

/* ---- the system call, in between ---- */

static int sends_left = INT_MAX; /* before the socket is full, */
static int full = EAGAIN;        /* or its device's queue is: ENOBUFS */
static int refusal;              /* errno for super-packets; 0: they pass */
static int refusal_of_all;       /* errno for others */

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	const struct cmsghdr *first = CMSG_FIRSTHDR(message);

	if (refusal != 0 && first != NULL && first->cmsg_level == SOL_UDP) {
		errno = refusal;
		return -1;
	}
	if (refusal_of_all != 0) {
		errno = refusal_of_all;
		return -1;
	}
	if (sends_left == 0) {
		errno = full;
		return -1;
	}
	sends_left -= sends_left != INT_MAX;
	return syscall(SYS_sendmsg, fd, message, flags);
}

static inline struct net *opened_at(struct net_ip ip, uint16_t port, uint32_t queue,
                                    uint32_t queue_count)
{
	const struct net_config config = {
		.local = {.ip = ip, .port = port},
		.payload_max = 65000,
		.buffer_bytes = 4 << 20,
		.queue = queue,
		.queue_count = queue_count,
	};
	struct why why = {""};
	struct net *net;

	if (net_udp.open(&config, &net, &why) != 0)
		fail_msg("%s", why.text);
	assert_true(net_udp.facts(net)->buffer_bytes >= 65536);
	return net;
}

static inline struct net *opened(uint16_t port, uint32_t queue, uint32_t queue_count)
{
	return opened_at(net_ipv4(LOOPBACK), port, queue, queue_count);
}

/* A test on two sockets, with their addresses. */
#define NETS_TEST(name)                                                                            \
	static void test_##name##_on(struct net *, struct net *, struct net_addr,                  \
	                             struct net_addr);                                             \
	TEST(name)                                                                                 \
	{                                                                                          \
		struct net *from = opened(0, 0, 1), *to = opened(0, 0, 1);                         \
                                                                                                   \
		test_##name##_on(from, to, net_udp.facts(from)->address,                           \
		                 net_udp.facts(to)->address);                                      \
		net_udp.close(from);                                                               \
		net_udp.close(to);                                                                 \
	}                                                                                          \
	static void test_##name##_on(struct net *from, struct net *to,                             \
	                             const struct net_addr source, const struct net_addr target)

static inline struct net_stats stats(const struct net *net)
{
	struct net_stats out;

	net_udp.stats(net, &out);
	return out;
}

static inline bool wait_for(const struct net *net, int timeout_ms)
{
	struct pollfd fd = {.fd = net_udp.facts(net)->fd, .events = POLLIN};

	return poll(&fd, 1, timeout_ms) == 1;
}

/* Up to `max` datagrams; gives up when none comes for half a second. */
static inline uint32_t receive(struct net *net, struct net_in in[], uint32_t max)
{
	uint32_t count = net_udp.recv(net, in, max);

	while (count == 0 && wait_for(net, 500))
		count = net_udp.recv(net, in, max);
	return count;
}

/* ---- a batch of datagrams that say who they are ---- */

struct batch {
	uint32_t count, bytes;
	uint8_t data[NET_BATCH_BYTES_MAX];
	struct iovec pieces[NET_BURST_MAX][PIECES];
	struct net_out out[NET_BURST_MAX];
};

/* All are steered alike, or they would not share super-packets. */
static inline uint8_t expected(uint32_t number, uint32_t at)
{
	if (at == NET_STEERING_BYTE)
		return 0;
	return (uint8_t)(number * 31 + at * 7 + at / 256);
}

/* Datagram `number` begins with its number, in three pieces that lie anywhere. */
static inline void batch_add(struct batch *batch, uint32_t bytes)
{
	uint32_t number = batch->count++, cut = bytes > 6 ? bytes / 3 : 4;
	uint8_t *data = batch->data + batch->bytes;

	memcpy(data, &number, 4);
	for (uint32_t i = 4; i < bytes; i++)
		data[i] = expected(number, i);
	batch->pieces[number][0] = (struct iovec){data, cut};
	batch->pieces[number][1] = (struct iovec){data + cut, (bytes - cut) / 2};
	batch->pieces[number][2] =
		(struct iovec){data + cut + (bytes - cut) / 2, bytes - cut - (bytes - cut) / 2};
	batch->out[number] = (struct net_out){batch->pieces[number], PIECES, bytes};
	batch->bytes += bytes;
	assert_true(batch->bytes <= NET_BATCH_BYTES_MAX);
}

/* Empty, and a test's own until it has asked for two others. */
static inline struct batch *batch_new(void)
{
	static struct batch batches[3];
	static uint32_t next;
	struct batch *batch = &batches[next++ % 3];

	batch->count = batch->bytes = 0;
	return batch;
}

/* Its number; the contents and the size must be what batch_add() made. */
static inline uint32_t check_datagram(const struct batch *batch, const struct net_in *in,
                                      const struct net_addr *from)
{
	uint32_t number;

	assert_true(in->bytes >= 4);
	memcpy(&number, in->data, 4);
	assert_true(number < batch->count);
	assert_int_equal(in->bytes, batch->out[number].bytes);
	for (uint32_t i = 4; i < in->bytes; i++)
		assert_int_equal(in->data[i], expected(number, i));
	assert_true(net_addr_same(&in->from, from));
	return number;
}

/* Everything arrives once; of one size, in order. */
static inline void check_batch(struct net *to, const struct batch *batch,
                               const struct net_addr *from, uint32_t at_a_time)
{
	uint8_t seen[NET_BURST_MAX] = {0};
	struct net_in in[NET_BURST_MAX];
	uint32_t arrived = 0, count;

	while (arrived < batch->count && (count = receive(to, in, at_a_time)) > 0) {
		assert_true(count <= at_a_time);
		for (uint32_t i = 0; i < count; i++) {
			uint32_t number = check_datagram(batch, &in[i], from);

			assert_int_equal(seen[number], 0);
			seen[number] = 1;
			for (uint32_t k = number + 1; k < batch->count; k++)
				assert_false(seen[k] &&
				             batch->out[k].bytes == batch->out[number].bytes);
		}
		arrived += count;
	}
	assert_int_equal(arrived, batch->count);
}

#endif /* TESTS_UNIT_TEST_NET_UDP_H */
