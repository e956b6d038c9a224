// SPDX-License-Identifier: BSD-3-Clause
/* test_dpdk_neighbours.c - who has an address, and who listens to a group, over DPDK's pcap port: asked and answered */

#include <errno.h>

#include "bitmap/net/clock.h"
#include "tests/unit/test_dpdk.h"
#include "tests/unit/test_frame.h"

/* Whoever asks for us gets an answer, and is known from then on. */
static void neighbour_is_answered(void)
{
	FILE *in = pcap_new("in");
	const struct net_addr to = peer(3);
	uint8_t mac[FRAME_MAC_BYTES], fills[4];
	struct net *net;

	pcap_put_neighbour(in, PEER_IP + 3, 3, true);
	fclose(in);
	net = pcap_net();
	assert_int_equal(drain(net, fills, 4), 0);
	assert_int_equal(send_fill(net, &to, 1, 2, 0x5a), 1);
	assert_true(dpdk->ready(net));
	dpdk->close(net);
	assert_int_equal(pcap_read("out"), 3);
	peer_mac(3, mac);
	assert_int_equal(sent[0].frame.kind, FRAME_NEIGHBOUR);
	assert_false(sent[0].frame.asks);
	assert_ip(&sent[0].frame.from_ip, OUR_IP);
	assert_ip(&sent[0].frame.to_ip, PEER_IP + 3);
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
	const struct net_addr to = {.ip = address(to_ip), .port = PEER_PORT};
	struct net_trouble list[NET_TROUBLES_MAX];
	uint8_t mac[FRAME_MAC_BYTES], fills[4];
	struct net_stats stats;
	struct net *net;

	pcap_put_neighbour(in, asked_ip, 4, false);
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
	assert_int_equal(sent[0].frame.kind, FRAME_NEIGHBOUR);
	assert_true(sent[0].frame.asks);
	assert_ip(&sent[0].frame.to_ip, asked_ip);
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

/* A network of four, whose border is within a byte: its last is asked for, of the next one the gateway. */
static void last_is_asked_for(void)
{
	prefix_bits = six ? 126 : 30;
	stranger_is_asked_for(OUR_IP + 2, OUR_IP + 2);
}

static void next_is_beyond(void)
{
	prefix_bits = six ? 126 : 30;
	stranger_is_asked_for(OUR_IP + 3, GATEWAY_IP);
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
	assert_int_equal(sent[4].frame.kind, FRAME_NEIGHBOUR);
}

/* Beyond our network, and there is no gateway. */
static void no_road_is_told(void)
{
	const struct net_addr to = {.ip = address(FAR_IP), .port = PEER_PORT};
	struct net *net;

	fclose(pcap_new("in"));
	gateway_ip = 0;
	net = pcap_net();
	assert_int_equal(send_fill(net, &to, 1, 3, 0x22), 1);
	expect_trouble(net, &to, ENETUNREACH, 3);
	dpdk->close(net);
	assert_int_equal(pcap_read("out"), 0);
}

/* Who listens to this group, or to any? */
static void pcap_put_query(FILE *file, uint32_t group)
{
	uint8_t bytes[128], *last;
	size_t size;

	if (six) {
		size = from_hex(MLD_ASKS_ALL, bytes);
		last = bytes + 70 + 12;
		if (group != 0)
			memcpy(bytes + 70, address(group).bytes, 16);
		word_put(bytes + 64, 0);
		word_put(bytes + 64,
		         (uint16_t)~plain_sum(plain_pseudo(bytes + 14, 58, 24), bytes + 62, 24));
	} else {
		size = from_hex(IGMP_ASKS_ALL, bytes);
		last = bytes + 42;
		if (group != 0)
			memcpy(last, address(group).bytes + 12, 4);
	}
	pcap_put(file, bytes, (uint32_t)size);
}

static void query_is_answered(void)
{
	struct net_config group = {.group = address(GROUP_IP), .local.port = GROUP_PORT};
	FILE *in = pcap_new("in");
	struct net *own, *other;
	uint8_t fills[4];

	pcap_put_query(in, 0);
	pcap_put_query(in, GROUP_IP + 1);
	pcap_put_query(in, GROUP_IP);
	fclose(in);
	own = pcap_net();
	other = net_new("", group);
	assert_int_equal(drain(own, fills, 4), 0);
	dpdk->close(other);
	dpdk->close(own);
	/* The first by itself; in IPv6 two for whoever asks for all. */
	assert_int_equal(pcap_read("out"), 3 + six);
	for (uint32_t i = 0; i < 3 + (uint32_t)six; i++)
		assert_report(&sent[i], six && i == 2 ? asked_group() : address(GROUP_IP));
}

/* Where its address is of one family, nothing of the other goes or is heard. */
static void one_family(void)
{
	const struct net_ip other =
		six ? net_ipv4(GROUP_IP) : (struct net_ip){.bytes = {0xff, 0x15, [15] = 1}};
	const struct net_addr to = {.ip = six ? net_ipv4(PEER_IP)
	                                      : (struct net_ip){.bytes = {0xfd, [15] = 1}},
	                            .port = 7};
	const struct net_config config = {.group = other, .local.port = GROUP_PORT};
	struct net *net, *group = NULL;
	struct why why = {""};

	fclose(pcap_new("in"));
	net = pcap_net();
	assert_int_equal(dpdk->open(&config, &group, &why), -EAFNOSUPPORT);
	assert_null(group);
	assert_int_equal(send_fill(net, &to, 1, 3, 0x22), 1);
	expect_trouble(net, &to, ENETUNREACH, 3);
	assert_int_equal(send_fill(net, &(struct net_addr){.ip = other, .port = 7}, 1, 3, 0x22), 1);
	dpdk->close(net);
	assert_int_equal(pcap_read("out"), 0);
}

/* Whom we know may move and say so to all; of those we do not know we keep nothing that they say to others. */
static void moved_neighbours(void)
{
	FILE *in = pcap_new("in");
	const struct net_addr known = peer(3), other = peer(4);
	const struct net_ip none = {.scope = 0};
	uint8_t bytes[FRAME_SMALL_BYTES_MAX] = {0}, mac[FRAME_MAC_BYTES], fills[4];
	struct net *net;

	pcap_put_neighbour(in, PEER_IP + 3, 3, true);
	for (uint32_t i = 3; i < 5; i++) {
		const struct frame_station now = {mac, address(PEER_IP + i)};

		peer_mac(9, mac);
		/* To itself in IPv4, to all in IPv6. */
		pcap_put(in, bytes,
		         frame_answer(bytes, &now,
		                      &(struct frame_station){mac, six ? none : now.ip}));
	}
	fclose(in);
	net = pcap_net();
	assert_int_equal(drain(net, fills, 4), 0);
	assert_int_equal(send_fill(net, &known, 1, 1, 0x5a), 1);
	assert_int_equal(send_fill(net, &other, 1, 1, 0x5a), 1);
	dpdk->close(net);
	assert_int_equal(pcap_read("out"), 3);
	peer_mac(9, mac);
	assert_int_equal(sent[0].frame.kind, FRAME_NEIGHBOUR);
	assert_datagram(&sent[1], PEER_IP + 3, mac, 0x5a);
	assert_int_equal(sent[2].frame.kind, FRAME_NEIGHBOUR);
	assert_true(sent[2].frame.asks);
}

/* Of a solicitation, what says from which MAC address it is. */
static void without_option(uint8_t *bytes)
{
	word_put(bytes + 18, 24);
	word_put(bytes + 56, 0);
	word_put(bytes + 56,
	         (uint16_t)~plain_sum(plain_pseudo(bytes + 14, 58, 24), bytes + 54, 24));
}

/* What RFC 4861 has beside the usual: who tries out our address, who does not say his own, who is far away. */
static void odd_neighbours(void)
{
	uint8_t bytes[FRAME_SMALL_BYTES_MAX] = {0}, mac[FRAME_MAC_BYTES], fills[4];
	const struct net_ip ours = address(OUR_IP), theirs = address(PEER_IP + 5);
	FILE *in = pcap_new("in");
	struct net_stats stats;
	struct net *net;

	peer_mac(5, mac);
	(void)frame_ask(bytes, &(struct frame_station){mac, theirs}, &ours);
	if (six) {
		bytes[21] = 64; /* hops: from beyond the link */
		pcap_put(in, bytes, 86);
		bytes[21] = 255;
		bytes[54 + 23]++; /* who has another address? Its checksum is wrong, too */
		pcap_put(in, bytes, 86);
		bytes[54 + 23]--;
		without_option(bytes); /* does not say his MAC address */
		pcap_put(in, bytes, 78);
		memset(bytes + 22, 0, 16); /* nor has an address */
		without_option(bytes);
		pcap_put(in, bytes, 78);
	} else {
		memset(bytes + 28, 0, 4); /* a probe has no address */
		pcap_put(in, bytes, 60);
	}
	fclose(in);
	net = pcap_net();
	assert_int_equal(drain(net, fills, 4), 0);
	dpdk->stats(net, &stats);
	assert_int_equal(stats.rx_errors, six);
	assert_int_equal(stats.rx_others, six ? 3 : 1);
	assert_int_equal(send_fill(net, &(struct net_addr){theirs, PEER_PORT}, 1, 1, 0x5a), 1);
	dpdk->close(net);
	assert_int_equal(pcap_read("out"), six ? 3 : 2);
	for (uint32_t i = 0; i < (six ? 2 : 1); i++) {
		assert_int_equal(sent[i].frame.kind, FRAME_NEIGHBOUR);
		assert_false(sent[i].frame.asks);
		assert_ip(&sent[i].frame.from_ip, OUR_IP);
		if (i == 0)
			assert_memory_equal(sent[i].frame.to_mac, mac, FRAME_MAC_BYTES);
		else
			assert_memory_equal(sent[i].frame.to_mac, "\x33\x33\0\0\0\1",
			                    FRAME_MAC_BYTES);
	}
	assert_true(sent[six ? 2 : 1].frame.asks); /* whoever has said nothing is not known */
}

static const struct scenario scenarios[] = {
	{"a neighbour is answered", neighbour_is_answered},
	{"a neighbour is asked for", neighbour_is_asked_for},
	{"the gateway is asked for", gateway_is_asked_for},
	{"the network's last is asked for", last_is_asked_for},
	{"the next is beyond", next_is_beyond},
	{"strangers are given up", strangers_are_told},
	{"no road is told", no_road_is_told},
	{"queries are answered", query_is_answered},
	{"one family", one_family},
	{"moved neighbours", moved_neighbours},
	{"odd neighbours", odd_neighbours},
};

int main(int argc, char **argv)
{
	return scenarios_run(scenarios, sizeof(scenarios) / sizeof(scenarios[0]), argc, argv);
}
