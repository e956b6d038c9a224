// SPDX-License-Identifier: BSD-3-Clause
/* test_net_refused.c - what the kernel does not send: no room, no road, too large; kept, counted, told of */

#include "tests/unit/test_net_udp.h"

/* What no road leads to, or no datagram holds, is counted, and the rest still goes. */
NETS_TEST(send_errors)
{
	const struct net_addr nowhere = {.ip = net_ipv4(0xffffffff),
	                                 .port = 9}; /* broadcast: not allowed */
	struct batch *batch = batch_new(), *large = batch_new();

	batch_add(batch, 100);
	batch_add(batch, 200);
	net_udp.send(from, &(struct net_path){.to = nowhere}, 1, batch->out, 2);
	assert_true(net_udp.ready(from));
	assert_int_equal(stats(from).tx_errors, 2);
	assert_int_equal(stats(from).sent, 0);
	batch_add(large, 66000); /* more than UDP carries */
	net_udp.send(from, &(struct net_path){.to = target}, 1, large->out, 1);
	assert_int_equal(stats(from).tx_errors, 3);
	net_udp.send(from, &(struct net_path){.to = target}, 1, batch->out, 2);
	check_batch(to, batch, &source, 4);
	assert_int_equal(stats(from).sent, 2);
}

/* What the kernel has no room for is kept, whole, until it has; then nothing is missing. */
NETS_TEST(backlog)
{
	for (int room = 0; room < 12; room++) {
		struct batch *batch = batch_new(), *copy = batch_new();

		for (uint32_t i = 0; i < 200; i++) {
			batch_add(batch, 100 + i % 13 * 100); /* more sizes than bins */
			batch_add(copy, 100 + i % 13 * 100);
		}
		sends_left = room;
		full = room % 3 == 1 ? ENOBUFS : EAGAIN;
		net_udp.send(from,
		             &(struct net_path){.to = target,
		                                .local = net_ipv4(room % 2 ? LOOPBACK : 0)},
		             1, batch->out, batch->count);
		/* The caller's memory is its own again: what is kept is a copy. */
		memset(batch->data, 0xee, batch->bytes);
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
	}
	assert_int_equal(stats(from).tx_errors, 0);
}

/* A batch above the limit is a bug of the caller's, and is seen before a byte of it is copied. */
NETS_TEST(batch_too_large)
{
	struct batch *batch = batch_new();
	struct net_out out[9];
	int status;
	pid_t pid;

	batch_add(batch, 60000);
	for (size_t i = 0; i < 9; i++)
		out[i] = batch->out[0];
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		close(STDERR_FILENO);
		signal(SIGABRT, SIG_DFL);
		sends_left = INT_MAX; /* even where nothing would have to be kept */
		net_udp.send(from, &(struct net_path){.to = target}, 1, out, 9);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* A road that does not segment: the same datagrams, one by one from then on. */
NETS_TEST(no_segmentation)
{
	refusal = EIO;
	for (int round = 0; round < 3; round++) {
		struct batch *batch = batch_new();
		uint64_t calls = stats(from).tx_calls;

		for (uint32_t i = 0; i < 20; i++)
			batch_add(batch, 1000);
		net_udp.send(from, &(struct net_path){.to = target}, 1, batch->out, batch->count);
		check_batch(to, batch, &source, NET_BURST_MAX);
		assert_int_equal(stats(from).tx_calls - calls, round == 0 ? 21 : 20);
		refusal = round == 0 ? EIO : 0; /* it is not tried again */
	}
	refusal = 0;
	assert_int_equal(stats(from).sent, 60);
	assert_int_equal(stats(from).tx_errors, 0);
}

/* What the system does not send is told of, by receiver. Too large is not a road that does not segment. */
NETS_TEST(troubles)
{
	const struct net_addr nowhere = {.ip = net_ipv4(0xffffffff), .port = 9};
	struct net_trouble troubles[NET_TROUBLES_MAX];
	struct batch *batch = batch_new();
	uint64_t calls;

	for (uint32_t i = 0; i < 20; i++)
		batch_add(batch, 1000);
	assert_int_equal(net_udp.troubles(from, troubles), 0);
	net_udp.send(from, &(struct net_path){.to = nowhere}, 1, batch->out, 2);
	refusal = EINVAL; /* as some kernels say of super-packets whose datagrams are too large */
	refusal_of_all = EMSGSIZE;
	net_udp.send(from, &(struct net_path){.to = target}, 1, batch->out, 20);
	net_udp.send(from, &(struct net_path){.to = nowhere}, 1, batch->out, 3);
	net_udp.send(from, &(struct net_path){.to = nowhere, .mark = 4}, 1, batch->out, 1);
	refusal = refusal_of_all = 0;
	assert_int_equal(net_udp.troubles(from, troubles), 3);
	assert_true(net_addr_same(&troubles[0].peer, &nowhere));
	assert_int_equal(troubles[0].error, EMSGSIZE); /* the last */
	assert_int_equal(troubles[0].count, 5);
	assert_true(net_addr_same(&troubles[1].peer, &target));
	assert_int_equal(troubles[1].error, EMSGSIZE);
	assert_int_equal(troubles[1].count, 20);
	assert_int_equal(troubles[1].mark, 0);
	assert_true(net_addr_same(&troubles[2].peer, &nowhere));
	assert_int_equal(troubles[2].mark, 4); /* the same address, by another path */
	assert_int_equal(troubles[2].count, 1);
	assert_int_equal(net_udp.troubles(from, troubles), 0);
	assert_int_equal(stats(from).tx_errors, 26);
	calls = stats(from).tx_calls;
	net_udp.send(from, &(struct net_path){.to = target}, 1, batch->out, 20);
	check_batch(to, batch, &source, NET_BURST_MAX);
	assert_int_equal(stats(from).tx_calls - calls, 1);
	/* Of many receivers the first are known. */
	refusal_of_all = EPERM;
	for (uint16_t i = 0; i < NET_TROUBLES_MAX + 10; i++)
		net_udp.send(from,
		             &(struct net_path){.to = {net_ipv4(LOOPBACK), (uint16_t)(i + 1)}}, 1,
		             batch->out, 1);
	/* What was kept is known as well. */
	refusal_of_all = 0;
	sends_left = 0;
	net_udp.send(from, &(struct net_path){.to = {net_ipv4(LOOPBACK), 7}}, 1, batch->out, 1);
	refusal_of_all = EPERM;
	sends_left = INT_MAX;
	assert_true(net_udp.ready(from));
	refusal_of_all = 0;
	assert_int_equal(net_udp.troubles(from, troubles), NET_TROUBLES_MAX);
	for (uint16_t i = 0; i < NET_TROUBLES_MAX; i++) {
		assert_int_equal(troubles[i].peer.port, i + 1);
		assert_int_equal(troubles[i].count, i + 1 == 7 ? 2 : 1);
	}
}
