// SPDX-License-Identifier: BSD-3-Clause
/* test_net_udp.c - datagrams over real sockets on the loopback: nothing cut, joined, lost or mixed up */

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/udp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "aggregator/net/net.h"

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

static struct net *opened(uint16_t port, uint32_t queue, uint32_t queue_count)
{
	const struct net_config config = {
		.local = {.ip = LOOPBACK, .port = port},
		.payload_max = 65000,
		.buffer_bytes = 4 << 20,
		.queue = queue,
		.queue_count = queue_count,
	};
	char why[NET_WHY_BYTES] = "";
	struct net *net;

	if (net_udp.open(&config, &net, why) != 0)
		fail_msg("%s", why);
	assert_true(net_udp.buffer(net) >= 65536);
	return net;
}

static struct net_stats stats(const struct net *net)
{
	struct net_stats out;

	net_udp.stats(net, &out);
	return out;
}

static bool wait_for(const struct net *net, int timeout_ms)
{
	struct pollfd fd = {.fd = net_udp.fd(net), .events = POLLIN};

	return poll(&fd, 1, timeout_ms) == 1;
}

/* Up to `max` datagrams; gives up when none comes for half a second. */
static uint32_t receive(struct net *net, struct net_in in[], uint32_t max)
{
	uint32_t count = net_udp.recv(net, in, max);

	while (count == 0 && wait_for(net, 500))
		count = net_udp.recv(net, in, max);
	return count;
}

/* ---- a batch of datagrams that say who they are ---- */

struct batch {
	uint32_t count, bytes;
	uint8_t *data;
	struct iovec pieces[NET_BURST_MAX][PIECES];
	struct net_out out[NET_BURST_MAX];
};

static uint8_t expected(uint32_t number, uint32_t at)
{
	return (uint8_t)(number * 31 + at * 7 + at / 256);
}

/* Datagram `number` begins with its number, in three pieces that lie anywhere. */
static void batch_add(struct batch *batch, uint32_t bytes)
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

static struct batch *batch_new(void)
{
	struct batch *batch = calloc(1, sizeof(*batch));

	assert_non_null(batch);
	batch->data = malloc(NET_BATCH_BYTES_MAX);
	assert_non_null(batch->data);
	return batch;
}

static void batch_free(struct batch *batch)
{
	free(batch->data);
	free(batch);
}

/* Its number; the contents and the size must be what batch_add() made. */
static uint32_t check_datagram(const struct batch *batch, const struct net_in *in,
                               const struct net_addr *from)
{
	uint32_t number;

	assert_true(in->bytes >= 4);
	memcpy(&number, in->data, 4);
	assert_true(number < batch->count);
	assert_int_equal(in->bytes, batch->out[number].bytes);
	for (uint32_t i = 4; i < in->bytes; i++)
		assert_int_equal(in->data[i], expected(number, i));
	assert_int_equal(in->from.ip, from->ip);
	assert_int_equal(in->from.port, from->port);
	return number;
}

/* Everything arrives once; of one size, in order. */
static void check_batch(struct net *to, const struct batch *batch, const struct net_addr *from,
                        uint32_t at_a_time)
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

/* ---- tests ---- */

/* Sizes of which many share a super-packet, all different ones, and the largest. */
static void test_boundaries(void **state)
{
	struct net *from = opened(0, 0, 1), *to = opened(0, 0, 1);
	const struct net_addr source = net_udp.address(from), target = net_udp.address(to);
	const struct net_addr *const address = &source;
	static const uint32_t mixed[] = {1472, 40, 1472, 584, 1472, 40, 8972, 72, 1000, 1472, 33};
	uint32_t sent = 0, sent_bytes = 0;

	(void)state;
	assert_true(target.port != 0 && target.ip == LOOPBACK && source.port != target.port);
	for (uint32_t round = 0; round < 40; round++) {
		struct batch *batch = batch_new();

		for (uint32_t i = 0; i < 200; i++) {
			uint32_t bytes = mixed[(i * (round + 1) + i / 7) % 11];

			if (round % 4 == 1)
				bytes = 1472;
			if (round % 4 == 2)
				bytes = 40 + i;
			if (round % 4 == 3)
				bytes = i < 7 ? 65000 : 4 + i % 3;
			if (batch->bytes + bytes <= NET_BATCH_BYTES_MAX / 2)
				batch_add(batch, bytes);
		}
		assert_true(net_udp.ready(from));
		net_udp.send(from, &(struct net_path){target, round % 2 ? 0 : LOOPBACK}, 1,
		             batch->out, batch->count);
		while (!net_udp.ready(from))
			poll(NULL, 0, 1);
		check_batch(to, batch, address, round % 3 == 0 ? NET_BURST_MAX : 7);
		sent += batch->count;
		sent_bytes += batch->bytes;
		batch_free(batch);
	}
	assert_int_equal(stats(from).sent, sent);
	assert_int_equal(stats(from).sent_bytes, sent_bytes);
	assert_int_equal(stats(to).received, sent);
	assert_int_equal(stats(to).received_bytes, sent_bytes);
	assert_int_equal(stats(from).tx_errors, 0);
	assert_false(wait_for(to, 0));
	net_udp.close(from);
	net_udp.close(to);
}

/* Equal datagrams go out in few system calls: 44 of 1472 bytes to a super-packet. */
static void test_super_packets(void **state)
{
	struct net *from = opened(0, 0, 1), *to = opened(0, 0, 1);
	const struct net_addr source = net_udp.address(from), target = net_udp.address(to);
	struct batch *batch = batch_new();
	bool segments;

	(void)state;
	for (uint32_t i = 0; i < 88; i++)
		batch_add(batch, 1472);
	for (uint32_t i = 0; i < 130; i++) /* 64 to a super-packet */
		batch_add(batch, 16);
	net_udp.send(from, &(struct net_path){target, 0}, 1, batch->out, batch->count);
	check_batch(to, batch, &source, NET_BURST_MAX);
	segments = stats(from).tx_calls < 20; /* else the kernel is old */
	batch->count = batch->bytes = 0;
	for (uint32_t i = 0; i < 40; i++) /* two sizes by turns: two super-packets */
		batch_add(batch, i % 2 ? 1472 : 584);
	net_udp.send(from, &(struct net_path){target, 0}, 1, batch->out, batch->count);
	check_batch(to, batch, &source, NET_BURST_MAX);
	if (segments)
		assert_int_equal(stats(from).tx_calls, 2 + 3 + 2);
	batch_free(batch);
	net_udp.close(from);
	net_udp.close(to);
}

/* Datagrams that wait at `to` were all sent to `ip` of ours. */
static void expect_local(struct net *to, uint32_t count, uint32_t ip)
{
	struct net_in in[NET_BURST_MAX];

	while (count > 0) {
		uint32_t got = receive(to, in, NET_BURST_MAX);

		assert_in_range(got, 1, count);
		for (uint32_t i = 0; i < got; i++)
			assert_int_equal(in[i].local_ip, ip);
		count -= got;
	}
}

/* A socket of all addresses knows at which one it was asked, and answers from there. */
static void test_local_address(void **state)
{
	const struct net_config config = {
		.payload_max = 1472, .buffer_bytes = 65536, .queue_count = 1};
	struct net *to = opened(0, 0, 1), *from;
	const struct net_addr target = net_udp.address(to);
	struct batch *batch = batch_new();
	char why[NET_WHY_BYTES];

	(void)state;
	assert_int_equal(net_udp.open(&config, &from, why), 0);
	for (uint32_t i = 0; i < 4; i++) {
		struct net_addr source = net_udp.address(from);

		batch->count = batch->bytes = 0;
		batch_add(batch, 100);
		batch_add(batch, 100 + i % 2); /* a super-packet, and single ones */
		source.ip = LOOPBACK + i;
		net_udp.send(from, &(struct net_path){target, i > 0 ? source.ip : 0}, 1, batch->out,
		             batch->count);
		check_batch(to, batch, &source, 4);
		net_udp.send(to, &(struct net_path){source, 0}, 1, batch->out, batch->count);
		expect_local(from, batch->count, source.ip);
		net_udp.send(from, &(struct net_path){target, 0}, 1, batch->out, batch->count);
		expect_local(to, batch->count, LOOPBACK); /* bound to this one */
	}
	batch_free(batch);
	net_udp.close(from);
	net_udp.close(to);
}

/* An empty datagram, from anybody, is received as one and nothing stops. */
static void test_empty_datagram(void **state)
{
	struct net *to = opened(0, 0, 1);
	struct sockaddr_in address = {.sin_family = AF_INET,
	                              .sin_addr.s_addr = htonl(LOOPBACK),
	                              .sin_port = htons(net_udp.address(to).port)};
	const int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct net_in in[4];
	uint32_t got = 0;

	(void)state;
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(
			sendto(fd, "x", i % 2, 0, (struct sockaddr *)&address, sizeof(address)),
			i % 2);
	while (got < 3) {
		uint32_t count = receive(to, in, 4);

		assert_true(count > 0);
		for (uint32_t i = 0; i < count; i++)
			assert_int_equal(in[i].bytes, (got + i) % 2);
		got += count;
	}
	assert_int_equal(net_udp.recv(to, in, 4), 0);
	close(fd);
	net_udp.close(to);
}

/* Nobody listens: that is the receiver's business, and the socket goes on working. */
static void test_port_unreachable(void **state)
{
	struct net *from = opened(0, 0, 1), *gone = opened(0, 0, 1), *to = opened(0, 0, 1);
	const struct net_addr source = net_udp.address(from), target = net_udp.address(to);
	const struct net_addr nobody = net_udp.address(gone);
	struct batch *batch = batch_new();
	struct net_in in[4];

	(void)state;
	net_udp.close(gone);
	batch_add(batch, 100);
	for (int i = 0; i < 5; i++) {
		net_udp.send(from, &(struct net_path){nobody, 0}, 1, batch->out, 1);
		assert_true(net_udp.ready(from));
		assert_int_equal(net_udp.recv(from, in, 4), 0);
	}
	net_udp.send(from, &(struct net_path){target, 0}, 1, batch->out, 1);
	check_batch(to, batch, &source, 4);
	assert_int_equal(stats(from).sent, 6);
	assert_int_equal(stats(from).tx_errors, 0);
	batch_free(batch);
	net_udp.close(from);
	net_udp.close(to);
}

/* What no road leads to, or no datagram holds, is counted, and the rest still goes. */
static void test_send_errors(void **state)
{
	struct net *from = opened(0, 0, 1), *to = opened(0, 0, 1);
	const struct net_addr source = net_udp.address(from), target = net_udp.address(to);
	const struct net_addr nowhere = {.ip = 0xffffffff, .port = 9}; /* broadcast: not allowed */
	struct batch *batch = batch_new(), *large = batch_new();

	(void)state;
	batch_add(batch, 100);
	batch_add(batch, 200);
	net_udp.send(from, &(struct net_path){nowhere, 0}, 1, batch->out, 2);
	assert_true(net_udp.ready(from));
	assert_int_equal(stats(from).tx_errors, 2);
	assert_int_equal(stats(from).sent, 0);
	batch_add(large, 66000); /* more than UDP carries */
	net_udp.send(from, &(struct net_path){target, 0}, 1, large->out, 1);
	assert_int_equal(stats(from).tx_errors, 3);
	net_udp.send(from, &(struct net_path){target, 0}, 1, batch->out, 2);
	check_batch(to, batch, &source, 4);
	assert_int_equal(stats(from).sent, 2);
	batch_free(batch);
	batch_free(large);
	net_udp.close(from);
	net_udp.close(to);
}

/* What the kernel has no room for is kept, whole, until it has; then nothing is missing. */
static void test_backlog(void **state)
{
	struct net *from = opened(0, 0, 1), *to = opened(0, 0, 1);
	const struct net_addr source = net_udp.address(from), target = net_udp.address(to);

	(void)state;
	for (int room = 0; room < 12; room++) {
		struct batch *batch = batch_new(), *copy = batch_new();

		for (uint32_t i = 0; i < 200; i++) {
			batch_add(batch, 100 + i % 7 * 200);
			batch_add(copy, 100 + i % 7 * 200);
		}
		sends_left = room;
		full = room % 3 == 1 ? ENOBUFS : EAGAIN;
		net_udp.send(from, &(struct net_path){target, room % 2 ? LOOPBACK : 0}, 1,
		             batch->out, batch->count);
		/* The caller's memory is its own again: what is kept is a copy. */
		memset(batch->data, 0xee, batch->bytes);
		batch_free(batch);
		assert_int_equal(stats(from).tx_waits, room + 1);
		while (!net_udp.ready(from)) {
			assert_int_equal(sends_left, 0);
			sends_left = 1;
		}
		sends_left = INT_MAX;
		assert_true(net_udp.ready(from));
		check_batch(to, copy, &source, NET_BURST_MAX);
		assert_int_equal(stats(from).sent, 200 * (room + 1));
		assert_false(wait_for(to, 0));
		batch_free(copy);
	}
	assert_int_equal(stats(from).tx_errors, 0);
	net_udp.close(from);
	net_udp.close(to);
}

/* A batch above the limit is a bug of the caller's, and is seen before a byte of it is copied. */
static void test_batch_too_large(void **state)
{
	struct net *from = opened(0, 0, 1), *to = opened(0, 0, 1);
	const struct net_addr target = net_udp.address(to);
	struct batch *batch = batch_new();
	struct net_out out[9];
	int status;
	pid_t pid;

	(void)state;
	batch_add(batch, 60000);
	for (size_t i = 0; i < 9; i++)
		out[i] = batch->out[0];
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		close(STDERR_FILENO);
		signal(SIGABRT, SIG_DFL);
		sends_left = INT_MAX; /* even where nothing would have to be kept */
		net_udp.send(from, &(struct net_path){target, 0}, 1, out, 9);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	batch_free(batch);
	net_udp.close(from);
	net_udp.close(to);
}

/* A road that does not segment: the same datagrams, one by one from then on. */
static void test_no_segmentation(void **state)
{
	struct net *from = opened(0, 0, 1), *to = opened(0, 0, 1);
	const struct net_addr source = net_udp.address(from), target = net_udp.address(to);

	(void)state;
	refusal = EIO;
	for (int round = 0; round < 3; round++) {
		struct batch *batch = batch_new();
		uint64_t calls = stats(from).tx_calls;

		for (uint32_t i = 0; i < 20; i++)
			batch_add(batch, 1000);
		net_udp.send(from, &(struct net_path){target, 0}, 1, batch->out, batch->count);
		check_batch(to, batch, &source, NET_BURST_MAX);
		assert_int_equal(stats(from).tx_calls - calls, round == 0 ? 21 : 20);
		refusal = round == 0 ? EIO : 0; /* it is not tried again */
		batch_free(batch);
	}
	refusal = 0;
	assert_int_equal(stats(from).sent, 60);
	assert_int_equal(stats(from).tx_errors, 0);
	net_udp.close(from);
	net_udp.close(to);
}

/* What the system does not send is told of, by receiver. Too large is not a road that does not segment. */
static void test_troubles(void **state)
{
	struct net *from = opened(0, 0, 1), *to = opened(0, 0, 1);
	const struct net_addr source = net_udp.address(from), target = net_udp.address(to);
	const struct net_addr nowhere = {.ip = 0xffffffff, .port = 9};
	struct net_trouble troubles[NET_TROUBLES_MAX];
	struct batch *batch = batch_new();
	uint64_t calls;

	(void)state;
	for (uint32_t i = 0; i < 20; i++)
		batch_add(batch, 1000);
	assert_int_equal(net_udp.troubles(from, troubles), 0);
	net_udp.send(from, &(struct net_path){nowhere, 0}, 1, batch->out, 2);
	refusal = EINVAL; /* as some kernels say of super-packets whose datagrams are too large */
	refusal_of_all = EMSGSIZE;
	net_udp.send(from, &(struct net_path){target, 0}, 1, batch->out, 20);
	net_udp.send(from, &(struct net_path){nowhere, 0}, 1, batch->out, 3);
	refusal = refusal_of_all = 0;
	assert_int_equal(net_udp.troubles(from, troubles), 2);
	assert_true(troubles[0].peer.ip == nowhere.ip && troubles[0].peer.port == nowhere.port);
	assert_int_equal(troubles[0].error, EMSGSIZE); /* the last */
	assert_int_equal(troubles[0].count, 5);
	assert_true(troubles[1].peer.ip == target.ip && troubles[1].peer.port == target.port);
	assert_int_equal(troubles[1].error, EMSGSIZE);
	assert_int_equal(troubles[1].count, 20);
	assert_int_equal(net_udp.troubles(from, troubles), 0);
	assert_int_equal(stats(from).tx_errors, 25);
	calls = stats(from).tx_calls;
	net_udp.send(from, &(struct net_path){target, 0}, 1, batch->out, 20);
	check_batch(to, batch, &source, NET_BURST_MAX);
	assert_int_equal(stats(from).tx_calls - calls, 1);
	/* Of many receivers the first are known. */
	refusal_of_all = EPERM;
	for (uint16_t i = 0; i < NET_TROUBLES_MAX + 10; i++)
		net_udp.send(from, &(struct net_path){{LOOPBACK, (uint16_t)(i + 1)}, 0}, 1,
		             batch->out, 1);
	/* What was kept is known as well. */
	refusal_of_all = 0;
	sends_left = 0;
	net_udp.send(from, &(struct net_path){{LOOPBACK, 7}, 0}, 1, batch->out, 1);
	refusal_of_all = EPERM;
	sends_left = INT_MAX;
	assert_true(net_udp.ready(from));
	refusal_of_all = 0;
	assert_int_equal(net_udp.troubles(from, troubles), NET_TROUBLES_MAX);
	for (uint16_t i = 0; i < NET_TROUBLES_MAX; i++) {
		assert_int_equal(troubles[i].peer.port, i + 1);
		assert_int_equal(troubles[i].count, i + 1 == 7 ? 2 : 1);
	}
	batch_free(batch);
	net_udp.close(from);
	net_udp.close(to);
}

/* Datagrams in many pieces: one system call takes 1024 of them. */
static void test_many_pieces(void **state)
{
	struct net *from = opened(0, 0, 1), *to = opened(0, 0, 1);
	const struct net_addr source = net_udp.address(from), target = net_udp.address(to);
	struct iovec pieces[40][60];
	struct batch *batch = batch_new();

	(void)state;
	for (uint32_t i = 0; i < 40; i++) {
		uint8_t *data = batch->data + batch->bytes;

		batch_add(batch, 600);
		for (uint32_t k = 0; k < 60; k++)
			pieces[i][k] = (struct iovec){data + k * 10, 10};
		batch->out[i].pieces = pieces[i];
		batch->out[i].piece_count = 60;
	}
	net_udp.send(from, &(struct net_path){target, 0}, 1, batch->out, batch->count);
	check_batch(to, batch, &source, NET_BURST_MAX);
	batch_free(batch);
	net_udp.close(from);
	net_udp.close(to);
}

/* Byte 4 of a datagram chooses the queue. */
static void test_steering(void **state)
{
	struct net *queues[3], *from = opened(0, 0, 1);
	const struct net_addr source = net_udp.address(from);
	struct net_addr target;

	(void)state;
	queues[0] = opened(0, 0, 3);
	target = net_udp.address(queues[0]);
	queues[1] = opened(target.port, 1, 3);
	queues[2] = opened(target.port, 2, 3);
	for (uint32_t value = 0; value < 256; value++) {
		struct batch *batch = batch_new();
		struct net_in in[4];

		batch_add(batch, 64);
		batch->data[4] = (uint8_t)value;
		net_udp.send(from, &(struct net_path){target, 0}, 1, batch->out, 1);
		assert_int_equal(receive(queues[value % 3], in, 4), 1);
		assert_int_equal(in[0].data[4], value);
		assert_int_equal(in[0].from.port, source.port);
		batch_free(batch);
	}
	for (int i = 0; i < 3; i++)
		net_udp.close(queues[i]);
	net_udp.close(from);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_boundaries),       cmocka_unit_test(test_super_packets),
		cmocka_unit_test(test_empty_datagram),   cmocka_unit_test(test_local_address),
		cmocka_unit_test(test_port_unreachable), cmocka_unit_test(test_send_errors),
		cmocka_unit_test(test_backlog),          cmocka_unit_test(test_no_segmentation),
		cmocka_unit_test(test_steering),         cmocka_unit_test(test_many_pieces),
		cmocka_unit_test(test_batch_too_large),  cmocka_unit_test(test_troubles),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
