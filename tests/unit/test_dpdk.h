/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_dpdk.h - frames in pcap files, as the world of a DPDK port; a net over them
 *
 * Our address is not the kernel's here: neighbours and groups are ours to do. Each scenario is run by IPv4
 * and by IPv6.
 */
#ifndef TESTS_UNIT_TEST_DPDK_H
#define TESTS_UNIT_TEST_DPDK_H

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "aggregator/dpdk/frame.h"
#include "bitmap/net/net.h"
#include "tests/unit/unit.h"

/* Numbers for address(): */
#define OUR_IP 0x0a090001u  /* 10.9.0.1/24 */
#define PEER_IP 0x0a090007u /* + n */
#define FAR_IP 0x0a0a0001u
#define GATEWAY_IP 0x0a0900feu
#define GROUP_IP 0xefc16207u
#define OUR_PORT 5555
#define PEER_PORT 7000
#define GROUP_PORT 5600
#define OUR_CLASS 18 /* DSCP */
#define FRAMES_MAX 4096
#define BYTES_MAX 1600

static const struct net_backend *dpdk;
static char folder[PATH_MAX];
static uint32_t gateway_ip = GATEWAY_IP;
static bool six;             /* the same by IPv6 */
static uint32_t prefix_bits; /* 0: those of address() */

/* 10.9.0.1 or fd09:a09::a09:1, 239.193.98.7 or ff15::efc1:6207; 0: none. */
static inline struct net_ip address(uint32_t number)
{
	const uint8_t b[] = {(uint8_t)(number >> 24), (uint8_t)(number >> 16),
	                     (uint8_t)(number >> 8), (uint8_t)number};

	if (!six || number == 0)
		return net_ipv4(number);
	if (b[0] >> 4 == 0xe)
		return (struct net_ip){.bytes = {0xff, 0x15, [12] = b[0], b[1], b[2], b[3]}};
	return (struct net_ip){.bytes = {0xfd, 9, b[0], b[1], [12] = b[0], b[1], b[2], b[3]}};
}

/* Of the headers before a datagram. */
static inline uint32_t heads(void)
{
	return six ? 62 : 42;
}

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

/* A datagram of peer `peer` with this class, to us or to a group, whose bytes all are `fill`. */
static inline void pcap_put_class(FILE *file, uint32_t peer, uint32_t to_ip, uint16_t to_port,
                                  uint8_t tos, uint8_t fill)
{
	struct frame_route route = {.from_ip = address(PEER_IP + peer),
	                            .from_port = PEER_PORT,
	                            .to_ip = address(to_ip),
	                            .to_port = to_port,
	                            .hops = 64,
	                            .tos = tos};
	uint8_t bytes[FRAME_UDP_BYTES_MAX + 100];

	peer_mac(peer, route.from_mac);
	memset(bytes + heads(), fill, 100);
	frame_udp(bytes, &route, 100, frame_sum(bytes + heads(), 100), false);
	pcap_put(file, bytes, heads() + 100);
}

static inline void pcap_put_udp(FILE *file, uint32_t peer, uint32_t to_ip, uint16_t to_port,
                                uint8_t fill)
{
	pcap_put_class(file, peer, to_ip, to_port, 0, fill);
}

/* Somebody with this address asks who we are, or tells us who he is. */
static inline void pcap_put_neighbour(FILE *file, uint32_t ip, uint32_t peer, bool asks)
{
	static const uint8_t our_mac[FRAME_MAC_BYTES] = {2, 0x70, 0x63, 0x61, 0x70, 0};
	uint8_t bytes[FRAME_SMALL_BYTES_MAX] = {0}, mac[FRAME_MAC_BYTES];
	const struct frame_station them = {mac, address(ip)}, us = {our_mac, address(OUR_IP)};

	peer_mac(peer, mac);
	pcap_put(file, bytes,
	         asks ? frame_ask(bytes, &them, &us.ip) : frame_answer(bytes, &them, &us));
}

/* "Somebody here listens to the group", to that group. */
static inline void assert_report(const struct out_frame *out, struct net_ip group)
{
	uint8_t mac[FRAME_MAC_BYTES];

	frame_multicast_mac(&group, mac);
	assert_int_equal(out->frame.kind, FRAME_OTHER); /* none of its checksums is wrong */
	assert_memory_equal(out->bytes, mac, FRAME_MAC_BYTES);
	assert_int_equal(out->bytes[six ? 62 : 38], six ? 131 : 0x16);
	assert_memory_equal(out->bytes + (six ? 70 : 42), group.bytes + (six ? 0 : 12),
	                    six ? 16 : 4);
}

/* Of those who ask for our address. */
static inline struct net_ip asked_group(void)
{
	return (struct net_ip){.bytes = {0xff, 2, [11] = 1, 0xff, 9, 0, 1}};
}

/*
 * What has been sent, by a port that is closed: sent[0 .. returned). In IPv6 the first, which is not among
 * these, tells that we are in the group of our address.
 */
static inline uint32_t pcap_read(const char *name)
{
	char path[PATH_MAX + 16], head[24];
	uint32_t count = 0, record[4];
	bool told = false;
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
		if (six && count == 1 && !told) {
			assert_report(out, asked_group());
			told = true;
			count--;
		}
	}
	assert_int_equal(told, six);
	fclose(file);
	return count;
}

/* ---- nets ---- */

static inline struct net *net_new(const char *vdevs, struct net_config config)
{
	struct net_port port = {.prefix_bits = prefix_bits != 0 ? prefix_bits
	                                       : six            ? 64
	                                                        : 24,
	                        .gateway = address(gateway_ip),
	                        .idle_us = 50};
	char eal[8 * PATH_MAX];
	struct why why = {""};
	struct net *net;

	snprintf(eal, sizeof(eal), "--no-shconf --no-huge -m 128 --no-pci %s", vdevs);
	port.eal = eal;
	config.port = &port;
	config.payload_max = 1472;
	config.dscp = OUR_CLASS;
	if (net_ip_none(&config.local.ip) && net_ip_none(&config.group))
		config.local = (struct net_addr){.ip = address(OUR_IP), .port = OUR_PORT};
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
		paths[i] = (struct net_path){.to = to[i]};
	return dpdk->send(net, paths, to_count, out, count);
}

static inline struct net_addr peer(uint32_t n)
{
	return (struct net_addr){.ip = address(PEER_IP + n), .port = PEER_PORT};
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

static inline void assert_ip(const struct net_ip *ip, uint32_t number)
{
	const struct net_ip want = address(number);

	assert_memory_equal(ip, &want, sizeof(want));
}

/* The TOS byte, or the traffic class. */
static inline uint32_t class_of(const struct out_frame *out)
{
	uint32_t word = (uint32_t)out->bytes[14] << 8 | out->bytes[15];

	return (six ? word >> 4 : word) & 0xff;
}

static inline void assert_datagram(const struct out_frame *out, uint32_t to, const uint8_t *mac,
                                   uint8_t fill)
{
	assert_int_equal(out->frame.kind, FRAME_UDP); /* checksums are right, too */
	assert_ip(&out->frame.to_ip, to);
	assert_ip(&out->frame.from_ip, OUR_IP);
	assert_int_equal(out->frame.from_port, OUR_PORT);
	assert_int_equal(class_of(out), OUR_CLASS << 2 | 2); /* ECT(0) */
	assert_memory_equal(out->frame.to_mac, mac, FRAME_MAC_BYTES);
	assert_int_equal(out->frame.payload_bytes, 100);
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(out->frame.payload[i], fill);
}

static inline void expect_trouble(struct net *net, const struct net_addr *with, int error,
                                  uint32_t count)
{
	struct net_trouble list[NET_TROUBLES_MAX];

	assert_int_equal(dpdk->troubles(net, list), 1);
	assert_true(net_addr_same(&list[0].peer, with));
	assert_int_equal(list[0].error, error);
	assert_int_equal(list[0].count, count);
	assert_int_equal(dpdk->troubles(net, list), 0);
}

/* ---- children ---- */

static inline bool plugin_open(void)
{
	char path[PATH_MAX], file[PATH_MAX + 32];
	const struct net_plugin *plugin;
	ssize_t size = readlink("/proc/self/exe", path, sizeof(path) - 1);
	void *object;

	assert_true(size > 0);
	path[size] = '\0';
	snprintf(file, sizeof(file), "%s/../../winnow-dpdk.so", dirname(path));
	object = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	plugin = object != NULL ? dlsym(object, NET_PLUGIN_SYMBOL) : NULL;
	dpdk = plugin != NULL ? plugin->backend : NULL;
	return dpdk != NULL;
}

static inline void run_scenario(void **state)
{
	void (*const *run)(void) = *state;

	(*run)();
}

/* Each scenario has a child of its own, because DPDK starts once a process. */
static inline void in_child(const char *name, void (*run)(void))
{
	const struct CMUnitTest test[] = {{name, run_scenario, NULL, NULL, &run}};
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0)
		exit(_cmocka_run_group_tests(name, test, 1, NULL, NULL));
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

#define PORT_TEST(name)                                                                            \
	static void name(void);                                                                    \
	TEST(name)                                                                                 \
	{                                                                                          \
		in_child(#name, name);                                                             \
	}                                                                                          \
	static void name(void)

static inline int remove_folder(void)
{
	static const char *const names[] = {"in", "in1", "out", "out1"};
	char path[PATH_MAX + 16];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		unlink(path);
	}
	return rmdir(folder);
}

/* All scenarios by IPv4 and by IPv6. */
int main(void)
{
	int failed = 0;

	if (!plugin_open()) {
		printf("built without DPDK\n");
		return 77;
	}
	snprintf(folder, sizeof(folder), "/tmp/test_dpdk-XXXXXX");
	if (mkdtemp(folder) == NULL)
		return 1;
	for (int family = 0; family < 2; family++) {
		six = family == 1;
		failed += unit_run(NULL, NULL);
	}
	return remove_folder() != 0 || failed;
}

#endif /* TESTS_UNIT_TEST_DPDK_H */
