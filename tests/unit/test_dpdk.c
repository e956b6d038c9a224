// SPDX-License-Identifier: BSD-3-Clause
/* test_dpdk.c - datagrams over DPDK's pcap and ring ports: what comes lies in a file, what goes ends in one */

#include <errno.h>

#include "tests/unit/test_dpdk.h"

/* Several datagrams in one, cut off where the ring's frames end, or whole: lost, and told of. */
static void merged_is_told(void)
{
	struct frame_route route = {.from_ip = address(PEER_IP + 2),
	                            .from_port = PEER_PORT,
	                            .to_ip = address(OUR_IP),
	                            .to_port = OUR_PORT,
	                            .hops = 64};
	const struct net_addr from = peer(2);
	FILE *in = pcap_new("in");
	static uint8_t bytes[FRAME_UDP_BYTES_MAX + 1480];
	struct net_stats stats;
	uint8_t fills[4];
	struct net *net;

	frame_udp(bytes, &route, 60000, 0, true); /* as the kernel leaves it to a card */
	pcap_put(in, bytes, 1500);
	frame_udp(bytes, &route, 1480, 0, true);
	pcap_put(in, bytes, heads() + 1480); /* the port takes 1472 bytes a datagram */
	route.to_port++;                     /* for nobody */
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

/* A group's frames and our own come out in the order of their arrival, whoever asks first. */
static void order_is_kept(void)
{
	FILE *in = pcap_new("in");
	struct net_config group = {.group = address(GROUP_IP), .local.port = GROUP_PORT};
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
	assert_report(&sent[0], address(GROUP_IP));
}

/* A net for each of two queues of a port. */
static void queues_open(struct net *nets[2])
{
	char vdevs[6 * PATH_MAX];

	snprintf(vdevs, sizeof(vdevs),
	         "--vdev=net_pcap0,rx_pcap=%s/in,rx_pcap=%s/in1,tx_pcap=%s/out,tx_pcap=%s/out1",
	         folder, folder, folder, folder);
	for (uint32_t q = 0; q < 2; q++)
		nets[q] = net_new(vdevs, (struct net_config){.queue = q, .queue_count = 2});
}

/*
 * The fifth byte of a datagram names the thread; the queue that it came by does not matter. Marks are told of those
 * that have one, also of those that another queue has handed over.
 */
static void frames_are_handed_over(void)
{
	uint32_t seen[2] = {0}, count;
	struct net_in in[NET_BURST_MAX];
	struct net *nets[2];

	for (uint32_t q = 0; q < 2; q++) {
		FILE *file = pcap_new(q == 0 ? "in" : "in1");

		for (uint32_t i = 0; i < 64; i++)
			pcap_put_class(file, 1, i & 32 ? GROUP_IP : OUR_IP,
			               i & 32 ? GROUP_PORT : OUR_PORT,
			               (uint8_t)(OUR_CLASS << 2 | i % 4), (uint8_t)i);
		fclose(file);
	}
	queues_open(nets);
	for (uint32_t turn = 0; turn < 4; turn++) /* their own, and what each hands over */
		while ((count = dpdk->recv(nets[turn % 2], in, NET_BURST_MAX)) > 0)
			for (uint32_t i = 0; i < count; i++) {
				assert_int_equal(in[i].data[0] % 2, turn % 2);
				assert_int_equal(in[i].marked, in[i].data[0] % 4 == 3);
				seen[turn % 2]++;
			}
	assert_true(seen[0] == 32 && seen[1] == 32); /* nobody here is in the group */
	dpdk->close(nets[0]);
	dpdk->close(nets[1]);
}

/* One payload to two neighbours, a stranger and a group: each gets its own headers and all bytes. */
static void receivers_share(void)
{
	FILE *in = pcap_new("in");
	struct net_addr to[] = {peer(1), {address(GROUP_IP), GROUP_PORT}, peer(2)};
	const uint32_t numbers[] = {PEER_IP + 1, GROUP_IP, PEER_IP + 2};
	uint8_t mac[FRAME_MAC_BYTES], fills[4];
	struct net *net;

	pcap_put_neighbour(in, PEER_IP + 1, 1, true);
	pcap_put_neighbour(in, PEER_IP + 2, 2, true);
	fclose(in);
	net = pcap_net();
	assert_int_equal(drain(net, fills, 4), 0);
	assert_int_equal(send_fill(net, to, 3, 2, 0x77), 3);
	dpdk->close(net);
	assert_int_equal(pcap_read("out"), 2 + 3 * 2);
	for (uint32_t i = 0; i < 3; i++) {
		peer_mac(i == 0 ? 1 : 2, mac);
		if (i == 1)
			frame_multicast_mac(&to[i].ip, mac);
		assert_datagram(&sent[2 + 2 * i], numbers[i], mac, 0x77);
		assert_datagram(&sent[3 + 2 * i], numbers[i], mac, 0x77);
		assert_int_equal(sent[3 + 2 * i].frame.to_port, to[i].port);
	}
}

/* A ring that comes back to us fills up: what it does not take is kept, and nothing is lost. */
static void full_ports_keep(void)
{
	const struct net_addr group = {address(GROUP_IP), GROUP_PORT};
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
	assert_int_equal(stats.rx_others, handed + six); /* they bear our own address */
	dpdk->close(net);
}

/* Again and again, to two receivers of which the second finds no room: no payload may stay behind. */
static void full_ports_give_back(void)
{
	const struct net_addr groups[] = {{address(GROUP_IP), GROUP_PORT},
	                                  {address(GROUP_IP + 1), GROUP_PORT}};
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

	fclose(pcap_new("in1"));
	for (uint32_t i = 0; i < 5000; i++)
		pcap_put_udp(in, 1, OUR_IP, OUR_PORT, 1); /* all of them the other's */
	fclose(in);
	queues_open(nets);
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
	struct frame_route route = {.from_ip = address(PEER_IP),
	                            .from_port = PEER_PORT,
	                            .to_ip = address(OUR_IP),
	                            .to_port = OUR_PORT,
	                            .hops = 64};
	uint8_t bytes[FRAME_UDP_BYTES_MAX + 100], fills[4];
	FILE *in = pcap_new("in");
	struct net_stats stats;
	struct net *net;

	memset(bytes, 5, sizeof(bytes));
	memcpy(route.from_mac, ours, FRAME_MAC_BYTES);
	frame_udp(bytes, &route, 100, frame_sum(bytes + heads(), 100), false);
	pcap_put(in, bytes, heads() + 100);
	pcap_put_neighbour(in, PEER_IP + 3, 3, true);
	pcap_put_udp(in, 1, OUR_IP, OUR_PORT, 6);
	fclose(in);
	net = pcap_net();
	assert_int_equal(drain(net, fills, 4), 1);
	assert_int_equal(fills[0], 6);
	dpdk->stats(net, &stats);
	assert_int_equal(stats.rx_others, 2); /* the neighbour's is one of them */
	dpdk->close(net);
	assert_int_equal(pcap_read("out"), 1);
	assert_memory_equal(sent[0].frame.from_mac, ours, FRAME_MAC_BYTES);
}

static const struct scenario scenarios[] = {
	{"merged is told", merged_is_told},
	{"order is kept", order_is_kept},
	{"frames are handed over", frames_are_handed_over},
	{"receivers share", receivers_share},
	{"full ports keep", full_ports_keep},
	{"full ports give back", full_ports_give_back},
	{"lost in hand-over", lost_in_hand_over},
	{"own frames are others'", own_frames_are_others},
};

int main(int argc, char **argv)
{
	return scenarios_run(scenarios, sizeof(scenarios) / sizeof(scenarios[0]), argc, argv);
}
