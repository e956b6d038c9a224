// SPDX-License-Identifier: BSD-3-Clause
/*
 * flood.c - datagrams of 1,056 bytes that no aggregator wants, as fast as they go
 *
 *   flood HOST:PORT COUNT
 *
 * They have the size of a PUSH of 256 elements and leave in the same way, but no magic number.
 */

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bitmap/net/net.h"

#define BURST 64
#define BYTES 1056

int main(int argc, char **argv)
{
	struct net_config config = {.payload_max = BYTES, .buffer_bytes = 1 << 20};
	struct why why = {"usage: flood HOST:PORT COUNT"};
	struct iovec pieces[BURST];
	struct net_out out[BURST];
	uint8_t data[BYTES];
	struct net_addr to;
	struct net *net;

	if (argc != 3 || net_resolve(argv[1], &to, &why) != 0 ||
	    net_udp.open(&config, &net, &why) != 0) {
		fprintf(stderr, "flood: %s\n", why.text);
		return 2;
	}
	memset(data, 'x', sizeof(data));
	for (uint32_t i = 0; i < BURST; i++) {
		pieces[i] = (struct iovec){.iov_base = data, .iov_len = BYTES};
		out[i] = (struct net_out){&pieces[i], 1, BYTES};
	}
	for (uint64_t sent = 0; sent < strtoull(argv[2], NULL, 10); sent += BURST) {
		struct pollfd full = {.fd = net_udp.facts(net)->fd, .events = POLLOUT};

		while (!net_udp.ready(net))
			poll(&full, 1, 10);
		net_udp.send(net, &(struct net_path){.to = to}, 1, out, BURST);
	}
	net_udp.close(net);
	return 0;
}
