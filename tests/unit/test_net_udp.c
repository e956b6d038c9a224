// SPDX-License-Identifier: BSD-3-Clause
/* test_net_udp.c - datagrams over real sockets on the loopback: nothing cut, joined, lost or mixed up */

#include "tests/unit/test_net_udp.h"

#include <netinet/in.h>

#include "bitmap/net/clock.h"
#include "bitmap/net/sockaddr.h"

/* ---- tests ---- */

/* Sizes of which many share a super-packet, all different ones, and the largest. */
NETS_TEST(boundaries)
{
	const struct net_addr *const address = &source;
	static const uint32_t mixed[] = {1472, 40, 1472, 584, 1472, 40, 8972, 72, 1000, 1472, 33};
	uint32_t sent = 0, sent_bytes = 0;

	assert_true(target.port != 0 && net_ip_number(&target.ip) == LOOPBACK &&
	            source.port != target.port);
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
		net_udp.send(from,
		             &(struct net_path){.to = target,
		                                .local = net_ipv4(round % 2 ? 0 : LOOPBACK)},
		             1, batch->out, batch->count);
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
}

/* Equal datagrams go out in few system calls: 44 of 1472 bytes to a super-packet. */
NETS_TEST(super_packets)
{
	struct batch *batch = batch_new();
	bool segments;

	for (uint32_t i = 0; i < 88; i++)
		batch_add(batch, 1472);
	for (uint32_t i = 0; i < 130; i++) /* 64 to a super-packet */
		batch_add(batch, 16);
	net_udp.send(from, &(struct net_path){.to = target}, 1, batch->out, batch->count);
	check_batch(to, batch, &source, NET_BURST_MAX);
	segments = stats(from).tx_calls < 20; /* else the kernel is old */
	batch->count = batch->bytes = 0;
	for (uint32_t i = 0; i < 40; i++) /* two sizes by turns: two super-packets */
		batch_add(batch, i % 2 ? 1472 : 584);
	net_udp.send(from, &(struct net_path){.to = target}, 1, batch->out, batch->count);
	check_batch(to, batch, &source, NET_BURST_MAX);
	if (segments)
		assert_int_equal(stats(from).tx_calls, 2 + 3 + 2);
	batch_free(batch);
}

/* Datagrams that wait at `to` were all sent to `ip` of ours. */
static void expect_local(struct net *to, uint32_t count, uint32_t ip)
{
	struct net_in in[NET_BURST_MAX];

	while (count > 0) {
		uint32_t got = receive(to, in, NET_BURST_MAX);

		assert_in_range(got, 1, count);
		for (uint32_t i = 0; i < got; i++)
			assert_int_equal(net_ip_number(&in[i].local), ip);
		count -= got;
	}
}

/* A socket of all addresses knows at which one it was asked, and answers from there. */
TEST(local_address)
{
	const struct net_config config = {
		.payload_max = 1472, .buffer_bytes = 65536, .queue_count = 1};
	struct net *to = opened(0, 0, 1), *from;
	const struct net_addr target = net_udp.facts(to)->address;
	struct batch *batch = batch_new();
	struct why why;

	assert_int_equal(net_udp.open(&config, &from, &why), 0);
	for (uint32_t i = 0; i < 4; i++) {
		struct net_addr source = net_udp.facts(from)->address;

		batch->count = batch->bytes = 0;
		batch_add(batch, 100);
		batch_add(batch, 100 + i % 2); /* a super-packet, and single ones */
		source.ip = net_ipv4(LOOPBACK + i);
		net_udp.send(
			from,
			&(struct net_path){.to = target, .local = i > 0 ? source.ip : net_ipv4(0)},
			1, batch->out, batch->count);
		check_batch(to, batch, &source, 4);
		net_udp.send(to, &(struct net_path){.to = source}, 1, batch->out, batch->count);
		expect_local(from, batch->count, LOOPBACK + i);
		net_udp.send(from, &(struct net_path){.to = target}, 1, batch->out, batch->count);
		expect_local(to, batch->count, LOOPBACK); /* bound to this one */
	}
	batch_free(batch);
	net_udp.close(from);
	net_udp.close(to);
}

/* A socket of :: has both families: super-packets, and answers from the address that was asked. */
TEST(families)
{
	const struct net_ip loopbacks[] = {{.bytes = {[15] = 1}}, NET_IPV4(LOOPBACK)};
	struct batch *batch = batch_new();
	struct net *dual;

	if (access("/proc/net/if_inet6", F_OK) != 0 || net_ip_device(&loopbacks[0]) == 0)
		skip();
	dual = opened_at((struct net_ip){.scope = 0}, 0, 0, 1);
	for (uint32_t i = 0; i < 40; i++)
		batch_add(batch, 1452);
	for (uint32_t i = 0; i < 2; i++) {
		struct net *one = opened_at(loopbacks[i], 0, 0, 1);
		const struct net_addr other = net_udp.facts(one)->address;
		const struct net_addr at_dual = {loopbacks[i], net_udp.facts(dual)->address.port};
		uint64_t calls = stats(dual).tx_calls;
		struct net_in in[NET_BURST_MAX];

		assert_true(net_ip_same(&other.ip, &loopbacks[i]));
		net_udp.send(one, &(struct net_path){.to = at_dual}, 1, batch->out, batch->count);
		assert_int_equal(receive(dual, in, 1), 1);
		assert_true(net_addr_same(&in[0].from, &other));
		assert_true(net_ip_same(&in[0].local, &loopbacks[i]));
		for (uint32_t got = 1; got < batch->count;)
			got += receive(dual, in, NET_BURST_MAX);
		net_udp.send(dual, &(struct net_path){.to = other, .local = loopbacks[i]}, 1,
		             batch->out, batch->count);
		check_batch(one, batch, &at_dual, NET_BURST_MAX);
		assert_int_equal(stats(dual).tx_calls - calls, 1);
		net_udp.close(one);
	}
	assert_int_equal(stats(dual).tx_errors, 0);
	net_udp.close(dual);
	batch_free(batch);
}

/* An empty datagram, from anybody, is received as one and nothing stops. */
TEST(empty_datagram)
{
	struct net *to = opened(0, 0, 1);
	struct sockaddr_in address = {.sin_family = AF_INET,
	                              .sin_addr.s_addr = htonl(LOOPBACK),
	                              .sin_port = htons(net_udp.facts(to)->address.port)};
	const int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct net_in in[4];
	uint32_t got = 0;

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

/* Datagrams in many pieces: one system call takes 1024 of them. */
NETS_TEST(many_pieces)
{
	struct iovec pieces[40][60];
	struct batch *batch = batch_new();

	for (uint32_t i = 0; i < 40; i++) {
		uint8_t *data = batch->data + batch->bytes;

		batch_add(batch, 600);
		for (uint32_t k = 0; k < 60; k++)
			pieces[i][k] = (struct iovec){data + k * 10, 10};
		batch->out[i].pieces = pieces[i];
		batch->out[i].piece_count = 60;
	}
	net_udp.send(from, &(struct net_path){.to = target}, 1, batch->out, batch->count);
	check_batch(to, batch, &source, NET_BURST_MAX);
	batch_free(batch);
}

/*
 * Byte 4 of a datagram chooses the queue. A super-packet goes to one queue, whole: what is steered to another queue
 * must not be in it.
 */
TEST(steering)
{
	struct net *queues[3], *from = opened(0, 0, 1);
	struct batch *batch = batch_new();
	uint32_t expect[3] = {0};
	struct net_addr target;

	queues[0] = opened(0, 0, 3);
	target = net_udp.facts(queues[0])->address;
	queues[1] = opened(target.port, 1, 3);
	queues[2] = opened(target.port, 2, 3);
	for (uint32_t i = 0; i < 256; i++) {
		uint8_t value = i & 0xfc; /* four of them may go together */

		batch_add(batch, 200);
		batch->data[200 * i + NET_STEERING_BYTE] = value;
		expect[value % 3]++;
	}
	net_udp.send(from, &(struct net_path){.to = target}, 1, batch->out, batch->count);
	for (uint32_t queue = 0, count; queue < 3; queue++) {
		struct net_in in[NET_BURST_MAX];

		for (uint32_t got = 0; got < expect[queue]; got += count) {
			count = receive(queues[queue], in, NET_BURST_MAX);
			assert_in_range(count, 1, expect[queue] - got);
			for (uint32_t i = 0; i < count; i++)
				assert_int_equal(in[i].data[NET_STEERING_BYTE] % 3, queue);
		}
		assert_int_equal(net_udp.recv(queues[queue], in, 1), 0);
		net_udp.close(queues[queue]);
	}
	batch_free(batch);
	net_udp.close(from);
}

/* What goes out may be marked by the network, and marks of what comes in are seen; and when it came. */
TEST(marks)
{
	for (int family = AF_INET; family == AF_INET || family == AF_INET6;
	     family += AF_INET6 - AF_INET) {
		bool six = family == AF_INET6;
		const struct net_ip six_loopback = {.bytes[15] = 1};
		struct net_config config = {.local.ip = six ? six_loopback : net_ipv4(LOOPBACK),
		                            .payload_max = 1472,
		                            .buffer_bytes = 65536,
		                            .queue_count = 1};
		int level = six ? IPPROTO_IPV6 : IPPROTO_IP, on = 1, other;
		uint8_t control[64] = {0};
		struct iovec iovec = {.iov_base = control, .iov_len = 1};
		struct msghdr header = {.msg_iov = &iovec,
		                        .msg_iovlen = 1,
		                        .msg_control = control,
		                        .msg_controllen = sizeof(control)};
		union net_sockaddr at = {0};
		socklen_t size;
		struct net_addr local;
		struct net *net;
		struct net_in in;
		struct why why;

		other = socket(family, SOCK_DGRAM, 0);
		if (six && (other < 0 || net_udp.open(&config, &net, &why) != 0))
			break; /* a system without it */
		if (!six)
			assert_int_equal(net_udp.open(&config, &net, &why), 0);
		local = net_udp.facts(net)->address;
		size = net_sockaddr(&local, &at);
		for (int tos = 0; tos < 4; tos++) {
			uint64_t before_us = clock_us();

			assert_int_equal(setsockopt(other, level, six ? IPV6_TCLASS : IP_TOS, &tos,
			                            sizeof(tos)),
			                 0);
			assert_int_equal(sendto(other, "x", 1, 0, &at.any, size), 1);
			usleep(2000);
			assert_int_equal(receive(net, &in, 1), 1);
			assert_int_equal(in.marked, tos == 3);
			assert_in_range(in.came_us, before_us - 500, clock_us() - 1500);
		}
		setsockopt(other, level, six ? IPV6_RECVTCLASS : IP_RECVTOS, &on, sizeof(on));
		for (uint8_t dscp = 0; dscp < 64; dscp += 21) {
			struct net *sender;

			config.dscp = dscp;
			assert_int_equal(net_udp.open(&config, &sender, &why), 0);
			header.msg_controllen = sizeof(control);
			net_udp.send(
				sender, &(struct net_path){.to = in.from}, 1,
				&(struct net_out){
					&(struct iovec){.iov_base = control, .iov_len = 1}, 1, 1},
				1);
			assert_int_equal(recvmsg(other, &header, 0), 1);
			assert_non_null(CMSG_FIRSTHDR(&header));
			assert_int_equal(*CMSG_DATA(CMSG_FIRSTHDR(&header)), dscp << 2 | 2);
			net_udp.close(sender);
		}
		close(other);
		net_udp.close(net);
	}
}

/* The system counts in the limit what it doubles. */
TEST(limit)
{
	struct net *net = opened_at(net_ipv4(LOOPBACK), 0, 0, 1);
	int bytes;
	socklen_t size = sizeof(bytes);

	for (uint32_t limit = 40000; limit <= 160000; limit *= 2) {
		net_udp.limit(net, limit);
		assert_int_equal(
			getsockopt(net_udp.facts(net)->fd, SOL_SOCKET, SO_SNDBUF, &bytes, &size),
			0);
		assert_int_equal(bytes, limit);
	}
	net_udp.close(net);
}
