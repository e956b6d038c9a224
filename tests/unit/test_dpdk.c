// SPDX-License-Identifier: BSD-3-Clause
/*
 * test_dpdk.c - nets over DPDK's pcap and ring ports: what comes lies in a file, what goes ends in one
 *
 * DPDK starts once a process, so each test is a child of its own. Our address is not the kernel's
 * here: ARP, IGMP and neighbours are ours to do.
 */

#include <dlfcn.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "aggregator/net/dpdk/frame.h"
#include "aggregator/net/net.h"
#include "aggregator/net/clock.h"
#include "tests/unit/test_dpdk.h"

/* ---- scenarios ---- */

/* Whoever asks for us gets an answer, and is known from then on. */
static void arp_is_answered(void)
{
	FILE *in = pcap_new("in");
	const struct net_addr to = peer(3);
	uint8_t mac[FRAME_MAC_BYTES], fills[4];
	struct net *net;

	pcap_put_arp(in, PEER_IP + 3, 3, true);
	fclose(in);
	net = pcap_net();
	assert_int_equal(drain(net, fills, 4), 0);
	assert_int_equal(send_fill(net, &to, 1, 2, 0x5a), 1);
	assert_true(dpdk->ready(net));
	dpdk->close(net);
	assert_int_equal(pcap_read("out"), 3);
	peer_mac(3, mac);
	assert_int_equal(sent[0].frame.kind, FRAME_ARP);
	assert_false(sent[0].frame.arp_request);
	assert_int_equal(sent[0].frame.from_ip, OUR_IP);
	assert_int_equal(sent[0].frame.to_ip, PEER_IP + 3);
	assert_memory_equal(sent[0].frame.to_mac, mac, FRAME_MAC_BYTES);
	assert_datagram(&sent[1], PEER_IP + 3, mac, 0x5a);
	assert_datagram(&sent[2], PEER_IP + 3, mac, 0x5a);
}

/*
 * Frames to a stranger are lost, those after the answer are not; beyond our network it is the
 * gateway that is asked for.
 */
static void stranger_is_asked_for(uint32_t to_ip, uint32_t asked_ip)
{
	FILE *in = pcap_new("in");
	const struct net_addr to = {.ip = net_ipv4(to_ip), .port = PEER_PORT};
	struct net_trouble list[NET_TROUBLES_MAX];
	uint8_t mac[FRAME_MAC_BYTES], fills[4];
	struct net_stats stats;
	struct net *net;

	pcap_put_arp(in, asked_ip, 4, false);
	fclose(in);
	net = pcap_net();
	assert_int_equal(send_fill(net, &to, 1, 3, 0x11), 1);
	assert_int_equal(drain(net, fills, 4), 0); /* hears the answer */
	assert_int_equal(send_fill(net, &to, 1, 3, 0x12), 1);
	dpdk->stats(net, &stats);
	assert_true(stats.tx_errors == 3 && stats.sent == 3);
	assert_int_equal(dpdk->troubles(net, list), 0);
	dpdk->close(net);
	assert_int_equal(pcap_read("out"), 4);
	peer_mac(4, mac);
	assert_int_equal(sent[0].frame.kind, FRAME_ARP);
	assert_true(sent[0].frame.arp_request);
	assert_int_equal(sent[0].frame.to_ip, asked_ip);
	for (uint32_t i = 1; i < 4; i++)
		assert_datagram(&sent[i], to_ip, mac, 0x12);
}

static void neighbour_is_asked_for(void)
{
	stranger_is_asked_for(PEER_IP + 4, PEER_IP + 4);
}

static void gateway_is_asked_for(void)
{
	stranger_is_asked_for(FAR_IP, GATEWAY_IP);
}

static void expect_trouble(struct net *net, const struct net_addr *with, int error, uint32_t count)
{
	struct net_trouble list[NET_TROUBLES_MAX];

	assert_int_equal(dpdk->troubles(net, list), 1);
	assert_true(net_addr_same(&list[0].peer, with));
	assert_int_equal(list[0].error, error);
	assert_int_equal(list[0].count, count);
	assert_int_equal(dpdk->troubles(net, list), 0);
}

/* Nobody answers: asked again and again, and told of after a second. */
static void strangers_are_told(void)
{
	const struct net_addr to = peer(9);
	struct net_trouble list[NET_TROUBLES_MAX];
	uint64_t since_us = clock_us();
	uint32_t troubles = 0, sends;
	struct net_stats stats;
	struct net *net;

	fclose(pcap_new("in"));
	net = pcap_net();
	for (sends = 0; troubles == 0 && sends < 1000; sends++) {
		usleep(10000);
		assert_int_equal(send_fill(net, &to, 1, 2, 0x22), 1);
		troubles = dpdk->troubles(net, list);
	}
	assert_true(clock_us() - since_us >= 1000000);
	assert_true(troubles == 1 && net_ip_same(&list[0].peer.ip, &to.ip) &&
	            list[0].error == EHOSTUNREACH);
	assert_int_equal(list[0].count, 2);
	dpdk->stats(net, &stats);
	assert_int_equal(stats.tx_errors, sends * 2);
	dpdk->close(net);
	assert_in_range(pcap_read("out"), 5, 40);
	assert_int_equal(sent[4].frame.kind, FRAME_ARP);
}

/* Several datagrams in one, cut off where the ring's frames end, or whole: lost, and told of. */
static void merged_is_told(void)
{
	struct frame_route route = {.from_ip = PEER_IP + 2,
	                            .from_port = PEER_PORT,
	                            .to_ip = OUR_IP,
	                            .to_port = OUR_PORT,
	                            .ttl = 64};
	const struct net_addr from = peer(2);
	FILE *in = pcap_new("in");
	static uint8_t bytes[FRAME_UDP_BYTES + 1480];
	struct net_stats stats;
	uint8_t fills[4];
	struct net *net;

	frame_udp(bytes, &route, 60000, 0, true); /* as the kernel leaves it to a card */
	pcap_put(in, bytes, 1500);
	frame_udp(bytes, &route, 1480, 0, true);
	pcap_put(in, bytes, sizeof(bytes)); /* the port takes 1472 bytes a datagram */
	route.to_port++;                    /* for nobody */
	frame_udp(bytes, &route, 60000, 0, true);
	pcap_put(in, bytes, 1500);
	pcap_put_udp(in, 2, OUR_IP, OUR_PORT, 7);
	fclose(in);
	net = pcap_net();
	assert_int_equal(drain(net, fills, 4), 1);
	dpdk->stats(net, &stats);
	assert_int_equal(stats.rx_errors, 3);
	expect_trouble(net, &from, NET_MERGED, 2);
	dpdk->close(net);
}

/* Beyond our network, and there is no gateway. */
static void no_road_is_told(void)
{
	const struct net_addr to = {.ip = net_ipv4(FAR_IP), .port = PEER_PORT};
	struct net *net;

	fclose(pcap_new("in"));
	gateway_ip = 0;
	net = pcap_net();
	assert_int_equal(send_fill(net, &to, 1, 3, 0x22), 1);
	expect_trouble(net, &to, ENETUNREACH, 3);
	dpdk->close(net);
	assert_int_equal(pcap_read("out"), 0);
}

/* A group's frames and our own come out in the order of their arrival, whoever asks first. */
static void order_is_kept(void)
{
	FILE *in = pcap_new("in");
	struct net_config group = {.group = net_ipv4(GROUP_IP), .local.port = GROUP_PORT};
	struct net *own, *other;
	uint8_t fills[8];

	pcap_put_udp(in, 1, GROUP_IP, GROUP_PORT, 1);
	pcap_put_udp(in, 1, OUR_IP, OUR_PORT, 2);
	pcap_put_udp(in, 1, OUR_IP, OUR_PORT, 3);
	pcap_put_udp(in, 1, GROUP_IP, GROUP_PORT, 4);
	pcap_put_udp(in, 1, OUR_IP, OUR_PORT, 5);
	pcap_put_udp(in, 1, GROUP_IP, OUR_PORT, 6); /* another group's port, */
	pcap_put_udp(in, 1, OUR_IP, GROUP_PORT, 7); /* another of ours, */
	pcap_put_udp(in, 1, PEER_IP, OUR_PORT, 8);  /* another's address: for nobody */
	fclose(in);
	own = pcap_net();
	other = net_new("", group);
	assert_int_equal(drain(own, fills, 8), 0);
	assert_int_equal(drain(other, fills, 8), 1);
	assert_int_equal(fills[0], 1);
	assert_int_equal(drain(own, fills, 8), 2);
	assert_memory_equal(fills, ((uint8_t[]){2, 3}), 2);
	assert_int_equal(drain(own, fills, 8), 0);
	dpdk->close(other);                        /* its frame is at the head of the queue, */
	assert_int_equal(drain(own, fills, 8), 1); /* and in nobody's way */
	assert_int_equal(fills[0], 5);
	dpdk->close(own);
	assert_int_equal(pcap_read("out"), 1); /* the membership report */
	assert_int_equal(sent[0].bytes[FRAME_SMALL_BYTES - 22], 0x16);
}

/* The fifth byte of a datagram names the thread; the queue that it came by does not matter. */
static void frames_are_handed_over(void)
{
	struct net *nets[2];
	uint8_t fills[64];
	char vdevs[6 * PATH_MAX];

	for (uint32_t q = 0; q < 2; q++) {
		FILE *in = pcap_new(q == 0 ? "in" : "in1");

		for (uint32_t i = 0; i < 40; i++)
			pcap_put_udp(in, 1, OUR_IP, OUR_PORT, (uint8_t)(100 * q + i));
		fclose(in);
	}
	snprintf(vdevs, sizeof(vdevs),
	         "--vdev=net_pcap0,rx_pcap=%s/in,rx_pcap=%s/in1,tx_pcap=%s/out,tx_pcap=%s/out1",
	         folder, folder, folder, folder);
	for (uint32_t q = 0; q < 2; q++)
		nets[q] = net_new(vdevs, (struct net_config){.queue = q, .queue_count = 2});
	(void)drain(nets[1], fills, 64); /* its own, and what it hands over */
	for (uint32_t q = 0; q < 2; q++) {
		uint32_t count = drain(nets[q], fills, 64);

		assert_int_equal(count, q == 0 ? 40 : 20); /* the other 20 are gone above */
		for (uint32_t i = 0; i < count; i++)
			assert_int_equal(fills[i] % 2, q);
	}
	dpdk->close(nets[0]);
	dpdk->close(nets[1]);
}

/* One payload to two neighbours, a stranger and a group: each gets its own headers and all bytes. */
static void receivers_share(void)
{
	FILE *in = pcap_new("in");
	struct net_addr to[] = {peer(1), {NET_IPV4(GROUP_IP), GROUP_PORT}, peer(2)};
	uint8_t mac[FRAME_MAC_BYTES], fills[4];
	struct net *net;

	pcap_put_arp(in, PEER_IP + 1, 1, true);
	pcap_put_arp(in, PEER_IP + 2, 2, true);
	fclose(in);
	net = pcap_net();
	assert_int_equal(drain(net, fills, 4), 0);
	assert_int_equal(send_fill(net, to, 3, 2, 0x77), 3);
	dpdk->close(net);
	assert_int_equal(pcap_read("out"), 2 + 3 * 2);
	for (uint32_t i = 0; i < 3; i++) {
		peer_mac(i == 0 ? 1 : 2, mac);
		if (i == 1)
			frame_multicast_mac(GROUP_IP, mac);
		assert_datagram(&sent[2 + 2 * i], net_ip_number(&to[i].ip), mac, 0x77);
		assert_datagram(&sent[3 + 2 * i], net_ip_number(&to[i].ip), mac, 0x77);
		assert_int_equal(sent[3 + 2 * i].frame.to_port, to[i].port);
	}
}

/* A ring that comes back to us fills up: what it does not take is kept, and nothing is lost. */
static void full_ports_keep(void)
{
	const struct net_addr group = {NET_IPV4(GROUP_IP), GROUP_PORT};
	struct net *net = net_new("--vdev=net_ring0", (struct net_config){0});
	uint32_t handed = 0;
	struct net_stats stats;
	uint8_t fills[4];

	while (dpdk->ready(net) && handed < 100 * 200) {
		assert_int_equal(send_fill(net, &group, 1, 200, 1), 1);
		handed += 200;
	}
	assert_false(dpdk->ready(net));
	dpdk->stats(net, &stats);
	assert_true(stats.tx_waits > 0);
	for (uint32_t i = 0; i < 100 && !dpdk->ready(net); i++)
		assert_int_equal(drain(net, fills, 4), 0);
	assert_true(dpdk->ready(net));
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(drain(net, fills, 4), 0);
	dpdk->stats(net, &stats);
	assert_int_equal(stats.tx_errors, 0);
	assert_int_equal(stats.sent, handed);
	assert_int_equal(stats.rx_others, handed); /* they bear our own address */
	dpdk->close(net);
}

/* Again and again, to two receivers of which the second finds no room: no payload may stay behind. */
static void full_ports_give_back(void)
{
	const struct net_addr groups[] = {{NET_IPV4(GROUP_IP), GROUP_PORT},
	                                  {NET_IPV4(GROUP_IP + 1), GROUP_PORT}};
	struct net *net = net_new("--vdev=net_ring0", (struct net_config){0});
	uint32_t halves = 0;
	struct net_stats stats;
	uint8_t fills[4];

	/* There are 8,191 mbufs. */
	for (uint32_t round = 0; halves < 100 && round < 20000; round++) {
		if (dpdk->ready(net))
			halves += send_fill(net, groups, 2, 200, 1) == 1;
		else
			assert_int_equal(drain(net, fills, 4), 0);
	}
	assert_int_equal(halves, 100);
	dpdk->stats(net, &stats);
	assert_int_equal(stats.tx_errors, 0);
	dpdk->close(net);
}

/* A thread that does not take what is handed over to it: what finds no room is lost, and counted. */
static void lost_in_hand_over(void)
{
	FILE *in = pcap_new("in");
	struct net *nets[2];
	struct net_stats stats;
	static uint8_t fills[8192];
	char vdevs[6 * PATH_MAX];

	fclose(pcap_new("in1"));
	for (uint32_t i = 0; i < 5000; i++)
		pcap_put_udp(in, 1, OUR_IP, OUR_PORT, 1); /* all of them the other's */
	fclose(in);
	snprintf(vdevs, sizeof(vdevs),
	         "--vdev=net_pcap0,rx_pcap=%s/in,rx_pcap=%s/in1,tx_pcap=%s/out,tx_pcap=%s/out1",
	         folder, folder, folder, folder);
	for (uint32_t q = 0; q < 2; q++)
		nets[q] = net_new(vdevs, (struct net_config){.queue = q, .queue_count = 2});
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(drain(nets[0], fills, 8192), 0);
	dpdk->stats(nets[0], &stats);
	assert_int_equal(stats.received, 0);
	assert_int_equal(stats.rx_errors, 5000 - 4095); /* a ring of 4096 holds one less */
	for (uint32_t i = 0, got = 0; got < 4095 && i < 100; i++)
		got += drain(nets[1], fills, 8192);
	dpdk->stats(nets[1], &stats);
	assert_int_equal(stats.received, 4095);
	assert_int_equal(stats.rx_errors, 0);
	dpdk->close(nets[0]);
	dpdk->close(nets[1]);
}

/* What we have sent ourselves, as a packet socket shows it, is not for us. */
static void own_frames_are_others(void)
{
	static const uint8_t ours[FRAME_MAC_BYTES] = {2,    0x70, 0x63,
	                                              0x61, 0x70, 0}; /* of net_pcap0 */
	struct frame_route route = {.from_ip = PEER_IP,
	                            .from_port = PEER_PORT,
	                            .to_ip = OUR_IP,
	                            .to_port = OUR_PORT,
	                            .ttl = 64};
	uint8_t bytes[FRAME_UDP_BYTES + 100], fills[4];
	FILE *in = pcap_new("in");
	struct net_stats stats;
	struct net *net;

	memset(bytes, 5, sizeof(bytes));
	memcpy(route.from_mac, ours, FRAME_MAC_BYTES);
	frame_udp(bytes, &route, 100, frame_sum(bytes + FRAME_UDP_BYTES, 100), false);
	pcap_put(in, bytes, sizeof(bytes));
	pcap_put_arp(in, PEER_IP + 3, 3, true);
	pcap_put_udp(in, 1, OUR_IP, OUR_PORT, 6);
	fclose(in);
	net = pcap_net();
	assert_int_equal(drain(net, fills, 4), 1);
	assert_int_equal(fills[0], 6);
	dpdk->stats(net, &stats);
	assert_int_equal(stats.rx_others, 2); /* ARP is one of them */
	dpdk->close(net);
	assert_int_equal(pcap_read("out"), 1);
	assert_memory_equal(sent[0].frame.from_mac, ours, FRAME_MAC_BYTES);
}

/* ---- children ---- */

static bool plugin_open(void)
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

struct scenario {
	const char *name;
	void (*run)(void);
};

static const struct scenario scenarios[] = {
	{"ARP is answered", arp_is_answered},
	{"a neighbour is asked for", neighbour_is_asked_for},
	{"the gateway is asked for", gateway_is_asked_for},
	{"strangers are given up", strangers_are_told},
	{"no road is told", no_road_is_told},
	{"merged is told", merged_is_told},
	{"order is kept", order_is_kept},
	{"frames are handed over", frames_are_handed_over},
	{"receivers share", receivers_share},
	{"full ports keep", full_ports_keep},
	{"full ports give back", full_ports_give_back},
	{"lost in hand-over", lost_in_hand_over},
	{"own frames are others'", own_frames_are_others},
};

#define SCENARIOS (sizeof(scenarios) / sizeof(scenarios[0]))

/* This program again, for one scenario. */
static void in_child(void **state)
{
	const struct scenario *scenario = *state;
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		execl("/proc/self/exe", "test_dpdk", scenario->name, folder, NULL);
		_exit(127);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void run_scenario(void **state)
{
	((const struct scenario *)*state)->run();
}

static int child(const char *name, const char *files)
{
	assert_true(plugin_open());
	snprintf(folder, sizeof(folder), "%s", files);
	for (size_t i = 0; i < SCENARIOS; i++) {
		const struct CMUnitTest test[] = {{scenarios[i].name, run_scenario, NULL, NULL,
		                                   (void *)(uintptr_t)&scenarios[i]}};

		if (strcmp(scenarios[i].name, name) == 0)
			return cmocka_run_group_tests(test, NULL, NULL);
	}
	return 1;
}

static int remove_folder(void)
{
	static const char *const names[] = {"in", "in1", "out", "out1"};
	char path[PATH_MAX + 16];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		unlink(path);
	}
	return rmdir(folder);
}

int main(int argc, char **argv)
{
	struct CMUnitTest tests[SCENARIOS];
	int failed;

	if (argc == 3)
		return child(argv[1], argv[2]);
	if (!plugin_open()) {
		printf("built without DPDK\n");
		return 77;
	}
	snprintf(folder, sizeof(folder), "/tmp/test_dpdk-XXXXXX");
	if (mkdtemp(folder) == NULL)
		return 1;
	for (size_t i = 0; i < SCENARIOS; i++)
		tests[i] = (struct CMUnitTest){scenarios[i].name, in_child, NULL, NULL,
		                               (void *)(uintptr_t)&scenarios[i]};
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	return remove_folder() != 0 || failed;
}
