/* SPDX-License-Identifier: BSD-3-Clause */
/* test_dpdk.h - frames in pcap files, as the world of a DPDK port; a net over them */
#ifndef TESTS_UNIT_TEST_DPDK_H
#define TESTS_UNIT_TEST_DPDK_H

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "aggregator/net/dpdk/frame.h"
#include "aggregator/net/net.h"

#define OUR_IP 0x0a090001u  /* 10.9.0.1/24 */
#define PEER_IP 0x0a090007u /* + n */
#define FAR_IP 0x0a0a0001u
#define GATEWAY_IP 0x0a0900feu
#define GROUP_IP 0xefc16207u
#define OUR_PORT 5555
#define PEER_PORT 7000
#define GROUP_PORT 5600
#define FRAMES_MAX 4096
#define BYTES_MAX 1600

static const struct net_backend *dpdk;
static char folder[PATH_MAX];
static uint32_t gateway_ip = GATEWAY_IP;

/* ---- frames in files ---- */

struct out_frame {
	uint8_t bytes[BYTES_MAX];
	uint32_t size;
	struct frame frame;
};

static struct out_frame sent[FRAMES_MAX];

static inline void peer_mac(uint32_t peer, uint8_t mac[FRAME_MAC_BYTES])
{
	memcpy(mac, (const uint8_t[]){2, 0, 0, 0, 9, (uint8_t)peer}, FRAME_MAC_BYTES);
}

static inline FILE *pcap_new(const char *name)
{
	static const uint32_t head[] = {0xa1b2c3d4, 4u << 16 | 2, 0, 0, 65535, 1};
	char path[PATH_MAX + 16];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(head, sizeof(head), 1, file), 1);
	return file;
}

static inline void pcap_put(FILE *file, const uint8_t *bytes, uint32_t size)
{
	const uint32_t head[] = {0, 0, size, size};

	assert_int_equal(fwrite(head, sizeof(head), 1, file), 1);
	assert_int_equal(fwrite(bytes, size, 1, file), 1);
}

/* A datagram of peer `peer`, to us or to a group, whose bytes all are `fill`. */
static inline void pcap_put_udp(FILE *file, uint32_t peer, uint32_t to_ip, uint16_t to_port,
                                uint8_t fill)
{
	struct frame_route route = {.from_ip = PEER_IP + peer,
	                            .from_port = PEER_PORT,
	                            .to_ip = to_ip,
	                            .to_port = to_port,
	                            .ttl = 64};
	uint8_t bytes[FRAME_UDP_BYTES + 100];

	peer_mac(peer, route.from_mac);
	memset(bytes + FRAME_UDP_BYTES, fill, 100);
	frame_udp(bytes, &route, 100, frame_sum(bytes + FRAME_UDP_BYTES, 100), false);
	pcap_put(file, bytes, sizeof(bytes));
}

static inline void pcap_put_arp(FILE *file, uint32_t ip, uint32_t peer, bool request)
{
	uint8_t bytes[FRAME_SMALL_BYTES], mac[FRAME_MAC_BYTES];

	peer_mac(peer, mac);
	frame_arp(bytes, request, mac, ip, NULL, OUR_IP);
	pcap_put(file, bytes, sizeof(bytes));
}

/* What has been sent, by a port that is closed: sent[0 .. returned). */
static inline uint32_t pcap_read(const char *name)
{
	char path[PATH_MAX + 16], head[24];
	uint32_t count = 0, record[4];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_int_equal(fread(head, sizeof(head), 1, file), 1);
	while (fread(record, sizeof(record), 1, file) == 1) {
		struct out_frame *out = &sent[count++];

		assert_in_range(record[2], 1, BYTES_MAX);
		assert_true(count < FRAMES_MAX);
		out->size = record[2];
		assert_int_equal(fread(out->bytes, out->size, 1, file), 1);
		frame_parse(out->bytes, out->size, 0, &out->frame);
	}
	fclose(file);
	return count;
}

/* ---- nets ---- */

static inline struct net *net_new(const char *vdevs, struct net_config config)
{
	struct net_port port = {.prefix_bits = 24, .gateway_ip = gateway_ip, .idle_us = 50};
	char eal[8 * PATH_MAX];
	struct why why = {""};
	struct net *net;

	snprintf(eal, sizeof(eal), "--no-shconf --no-huge -m 128 --no-pci %s", vdevs);
	port.eal = eal;
	config.port = &port;
	config.payload_max = 1472;
	if (net_ip_none(&config.local.ip) && net_ip_none(&config.group))
		config.local = (struct net_addr){.ip = net_ipv4(OUR_IP), .port = OUR_PORT};
	if (dpdk->open(&config, &net, &why) != 0)
		fail_msg("%s", why.text);
	return net;
}

static inline struct net *pcap_net(void)
{
	char vdevs[3 * PATH_MAX];

	snprintf(vdevs, sizeof(vdevs), "--vdev=net_pcap0,rx_pcap=%s/in,tx_pcap=%s/out", folder,
	         folder);
	return net_new(vdevs, (struct net_config){0});
}

static inline uint32_t send_fill(struct net *net, const struct net_addr to[], uint32_t to_count,
                                 uint32_t count, uint8_t fill)
{
	struct net_path paths[4] = {0};
	static uint8_t bytes[3][100];
	struct iovec pieces[2] = {{bytes[0], 33}, {bytes[1], 67}}; /* an odd first piece */
	struct net_out out[NET_BURST_MAX];

	memset(bytes, fill, sizeof(bytes));
	for (uint32_t i = 0; i < count; i++)
		out[i] = (struct net_out){.pieces = pieces, .piece_count = 2, .bytes = 100};
	assert_true(to_count <= 4);
	for (uint32_t i = 0; i < to_count; i++)
		paths[i].to = to[i];
	return dpdk->send(net, paths, to_count, out, count);
}

static inline struct net_addr peer(uint32_t n)
{
	return (struct net_addr){.ip = net_ipv4(PEER_IP + n), .port = PEER_PORT};
}

/* Everything that comes to this net now; the first byte of each datagram in `fills`. */
static inline uint32_t drain(struct net *net, uint8_t fills[], uint32_t max)
{
	struct net_in in[NET_BURST_MAX];
	uint32_t count = 0, got;

	while ((got = dpdk->recv(net, in, NET_BURST_MAX)) > 0)
		for (uint32_t i = 0; i < got; i++) {
			assert_int_equal(in[i].bytes, 100);
			for (uint32_t k = 0; k < 100; k++)
				assert_int_equal(in[i].data[k], in[i].data[0]);
			assert_true(count < max);
			fills[count++] = in[i].data[0];
		}
	return count;
}

static inline void assert_datagram(const struct out_frame *out, uint32_t to, const uint8_t *mac,
                                   uint8_t fill)
{
	assert_int_equal(out->frame.kind, FRAME_UDP); /* checksums are right, too */
	assert_int_equal(out->frame.to_ip, to);
	assert_int_equal(out->frame.from_ip, OUR_IP);
	assert_int_equal(out->frame.from_port, OUR_PORT);
	assert_memory_equal(out->frame.to_mac, mac, FRAME_MAC_BYTES);
	assert_int_equal(out->frame.payload_bytes, 100);
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(out->frame.payload[i], fill);
}

#endif /* TESTS_UNIT_TEST_DPDK_H */
