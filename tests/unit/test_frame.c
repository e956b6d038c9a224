// SPDX-License-Identifier: BSD-3-Clause
/* test_frame.c - frames that are well: what is read is what was meant, what is written is what others write */

#include "tests/unit/test_frame.h"
#include "tests/unit/test_random.h"

#define BYTES_MAX 65536
#define ROUNDS 20000
#define ARP_BYTES 60 /* and of IGMP, with padding */

/* ---- reading ---- */

static void check_text(const char *text, const uint8_t *to_mac)
{
	uint8_t bytes[256];
	size_t size = from_hex(text, bytes);

	for (unsigned checked = 0; checked <= ALL_CHECKED; checked++) {
		struct frame frame = parsed(bytes, size, checked);

		assert_int_equal(frame.kind, FRAME_UDP);
		assert_memory_equal(frame.to_mac, to_mac, 6);
		assert_memory_equal(frame.from_mac, here, 6);
		assert_int_equal(net_ip_number(&frame.from_ip), HERE);
		assert_int_equal(net_ip_number(&frame.to_ip), THERE);
		assert_int_equal(frame.from_port, 49152);
		assert_int_equal(frame.to_port, 5555);
		assert_int_equal(frame.payload_bytes, 7);
		assert_ptr_equal(frame.payload, bytes + size - 7);
		assert_memory_equal(frame.payload, "winnow!", 7);
	}
}

TEST(read_udp)
{
	struct frame frame;
	uint8_t bytes[64];

	check_text(UDP_TEXT, there);
	check_text(UDP_OPTIONS, there);
	check_text(UDP_ALL_OPTIONS, there);
	frame = parsed(bytes, from_hex(UDP_EMPTY, bytes), 0);
	assert_int_equal(frame.kind, FRAME_UDP);
	assert_int_equal(frame.payload_bytes, 0);
	frame = parsed(bytes, from_hex(UDP_ZERO, bytes), 0);
	assert_int_equal(frame.kind, FRAME_UDP);
	frame = parsed(bytes, from_hex(UDP_GROUP, bytes), 0);
	assert_int_equal(frame.kind, FRAME_UDP);
	assert_int_equal(net_ip_number(&frame.to_ip), GROUP);
	assert_int_equal(frame.to_port, 7000);
	assert_int_equal(frame.payload_bytes, 4);
}

/* Of the four ECN fields one is a mark, whatever the class beside it. */
TEST(read_marks)
{
	struct frame frame;
	uint8_t bytes[64];

	for (uint32_t tos = 0; tos < 256; tos++) {
		size_t size = from_hex(UDP_TEXT, bytes);

		bytes[AT_IP + 1] = (uint8_t)tos;
		mend_ip(bytes + AT_IP);
		frame = parsed(bytes, size, 0);
		assert_int_equal(frame.kind, FRAME_UDP);
		assert_int_equal(frame.marked, tos % 4 == 3);
	}
}

/* Ethernet pads what is short, and some add more: the IP header says how long the datagram is. */
TEST(read_padded)
{
	struct frame frame;
	uint8_t bytes[256];
	size_t size;

	memset(bytes, 0xee, sizeof(bytes));
	size = from_hex(UDP_TEXT, bytes);
	for (size_t more = 0; more < 100; more++) {
		frame = parsed(bytes, size + more, 0);
		assert_int_equal(frame.kind, FRAME_UDP);
		assert_int_equal(frame.payload_bytes, 7);
	}
	/* A UDP datagram may be shorter than what IP carries, too: its checksum covers only its own. */
	size = from_hex(UDP_TEXT, bytes);
	word_put(bytes + AT_IP + 2, 20 + 8 + 7 + 5);
	mend_ip(bytes + AT_IP);
	frame = parsed(bytes, size + 5, 0);
	assert_int_equal(frame.kind, FRAME_UDP);
	assert_int_equal(frame.payload_bytes, 7);
}

TEST(read_sums)
{
	struct frame frame;
	uint8_t bytes[256];
	size_t size = from_hex(UDP_TEXT, bytes);
	uint8_t *sum = bytes + AT_UDP + 6;
	uint32_t right = word_at(sum), pseudo = plain_pseudo(bytes + AT_IP, bytes + AT_UDP);

	/* None; that of the pseudo-header alone; every other but the right one is wrong. */
	for (uint32_t value = 0; value <= 0xffff; value++) {
		bool good = value == 0 || value == right || value == pseudo;

		word_put(sum, value);
		frame = parsed(bytes, size, 0);
		assert_int_equal(frame.kind, good ? FRAME_UDP : FRAME_DAMAGED);
		frame_parse(bytes, size, FRAME_IP_CHECKED, &frame);
		assert_int_equal(frame.kind, good ? FRAME_UDP : FRAME_DAMAGED);
		frame_parse(bytes, size, FRAME_UDP_CHECKED, &frame);
		assert_int_equal(frame.kind, FRAME_UDP);
	}
}

/* Put a tag before the type; how many bytes it has now. */
static size_t tagged(uint8_t *bytes, size_t size, uint32_t type, uint32_t tag)
{
	memmove(bytes + AT_TYPE + 4, bytes + AT_TYPE, size - AT_TYPE);
	word_put(bytes + AT_TYPE, type);
	word_put(bytes + AT_TYPE + 2, tag);
	return size + 4;
}

TEST(read_tags)
{
	struct frame frame;
	uint8_t bytes[256];

	for (uint32_t tag = 0; tag <= 0xffff; tag += 0x0555) {
		size_t size = tagged(bytes, from_hex(UDP_TEXT, bytes), 0x8100, tag);

		frame = parsed(bytes, size, 0);
		assert_int_equal(frame.kind, (tag & 0xfff) == 0 ? FRAME_UDP : FRAME_OTHER);
	}
	/* A priority alone: any of the 8, and the bit beside it. */
	for (uint32_t priority = 0; priority < 16; priority++) {
		size_t size = tagged(bytes, from_hex(UDP_TEXT, bytes), 0x8100, priority << 12);

		frame = parsed(bytes, size, 0);
		assert_int_equal(frame.kind, FRAME_UDP);
		assert_int_equal(frame.payload_bytes, 7);
		assert_memory_equal(frame.payload, "winnow!", 7);
		/* Two of them, or one of a provider's: not for us. */
		size = tagged(bytes, size, 0x8100, priority << 12);
		frame = parsed(bytes, size, 0);
		assert_int_equal(frame.kind, FRAME_OTHER);
		frame_parse(bytes, tagged(bytes, from_hex(UDP_TEXT, bytes), 0x88a8, priority << 12),
		            0, &frame);
		assert_int_equal(frame.kind, FRAME_OTHER);
	}
	frame_parse(bytes, tagged(bytes, from_hex(ARP_ASKS, bytes), 0x8100, 0), 0, &frame);
	assert_int_equal(frame.kind, FRAME_NEIGHBOUR);
}

TEST(read_arp)
{
	struct frame frame;
	uint8_t bytes[64];
	size_t size = from_hex(ARP_ASKS, bytes);

	frame = parsed(bytes, size, 0);
	assert_int_equal(frame.kind, FRAME_NEIGHBOUR);
	assert_true(frame.asks);
	assert_memory_equal(frame.mac, here, 6);
	assert_int_equal(net_ip_number(&frame.from_ip), HERE);
	assert_int_equal(net_ip_number(&frame.to_ip), THERE);
	/* "I am here": sender and target are the same. */
	memcpy(bytes + 38, bytes + 28, 4);
	frame = parsed(bytes, size, 0);
	assert_int_equal(frame.kind, FRAME_NEIGHBOUR);
	assert_int_equal(net_ip_number(&frame.from_ip), HERE);
	assert_int_equal(net_ip_number(&frame.to_ip), HERE);
	size = from_hex(ARP_ANSWERS, bytes);
	/* The address that counts is the packet's, not the frame's. */
	bytes[11] = 0x77;
	frame = parsed(bytes, size, 0);
	assert_int_equal(frame.kind, FRAME_NEIGHBOUR);
	assert_false(frame.asks);
	assert_memory_equal(frame.mac, here, 6);
}

TEST(read_igmp)
{
	struct frame frame;
	uint8_t bytes[64];

	frame = parsed(bytes, from_hex(IGMP_ASKS_ALL, bytes), 0);
	assert_int_equal(frame.kind, FRAME_QUERY);
	assert_int_equal(net_ip_number(&frame.to_ip), 0);
	frame = parsed(bytes, from_hex(IGMP_ASKS_ONE, bytes), 0);
	assert_int_equal(frame.kind, FRAME_QUERY);
	assert_int_equal(net_ip_number(&frame.to_ip), GROUP);
	frame = parsed(bytes, from_hex(IGMP_REPORTS, bytes), 0);
	assert_int_equal(frame.kind, FRAME_OTHER);
}

/* ---- writing ---- */

static const struct frame_route route = {
	.from_mac = {2, 0, 0, 0, 0, 1},
	.to_mac = {2, 0, 0, 0, 0, 2},
	.from_ip = NET_IPV4(HERE),
	.to_ip = NET_IPV4(THERE),
	.from_port = 49152,
	.to_port = 5555,
	.hops = 64,
};

static void check_written(const char *text, const struct frame_route *by)
{
	uint8_t want[256], got[256];
	size_t size = from_hex(text, want), payload = size - AT_PAYLOAD;

	memset(got, 0xee, sizeof(got));
	memcpy(got + AT_PAYLOAD, want + AT_PAYLOAD, payload);
	frame_udp(got, by, (uint32_t)payload, frame_sum(want + AT_PAYLOAD, payload), false);
	assert_memory_equal(got, want, size);
	assert_int_equal(got[size], 0xee);
	/* Left to the port: the pseudo-header's sum, not inverted. */
	frame_udp(got, by, (uint32_t)payload, 12345, true);
	word_put(want + AT_UDP + 6, plain_pseudo(want + AT_IP, want + AT_UDP));
	assert_memory_equal(got, want, size);
}

/* The class goes where the kernel puts it, below the header's checksum. */
TEST(write_class)
{
	struct frame_route by = route;
	uint8_t plain[64] = {0}, got[64] = {0};

	by.tos = 0xb9;
	frame_udp(plain, &route, 8, 0, false);
	frame_udp(got, &by, 8, 0, false);
	assert_true(plain[AT_IP + 1] == 0 && got[AT_IP + 1] == 0xb9);
	assert_int_equal(frame_fold(frame_sum(got + AT_IP, 20)), 0xffff);
	got[AT_IP + 1] = 0;
	memcpy(got + AT_IP + 10, plain + AT_IP + 10, 2);
	assert_memory_equal(got, plain, sizeof(got));
}

TEST(write_udp)
{
	struct frame_route group = route;

	check_written(UDP_TEXT, &route);
	check_written(UDP_EMPTY, &route);
	check_written(UDP_ZERO, &route);
	group.to_ip = net_ipv4(GROUP);
	group.hops = 1;
	group.from_port = 5555;
	group.to_port = 7000;
	frame_multicast_mac(&group.to_ip, group.to_mac);
	check_written(UDP_GROUP, &group);
}

TEST(write_others)
{
	const struct frame_station us = {here, NET_IPV4(HERE)}, them = {there, NET_IPV4(THERE)};
	const struct net_ip group = net_ipv4(GROUP);
	uint8_t want[64], got[FRAME_SMALL_BYTES_MAX];

	from_hex(ARP_ASKS, want);
	memset(got, 0xee, sizeof(got));
	assert_int_equal(frame_ask(got, &us, &them.ip), ARP_BYTES);
	assert_memory_equal(got, want, ARP_BYTES);
	from_hex(ARP_ANSWERS, want);
	memset(got, 0xee, sizeof(got));
	assert_int_equal(frame_answer(got, &us, &them), ARP_BYTES);
	assert_memory_equal(got, want, ARP_BYTES);
	memset(want, 0, sizeof(want));
	from_hex(IGMP_REPORTS, want);
	memset(got, 0xee, sizeof(got));
	assert_int_equal(frame_report(got, &us, &group), ARP_BYTES);
	assert_memory_equal(got, want, ARP_BYTES);
}

TEST(groups)
{
	const struct net_ip all = net_ipv4(0xefffffff);
	uint8_t mac[6];

	frame_multicast_mac(&all, mac); /* 23 of 28 bits of a group are in its address */
	assert_memory_equal(mac, "\x01\x00\x5e\x7f\xff\xff", 6);
}

/* ---- both ---- */

static void random_fill(uint8_t *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		bytes[i] = (uint8_t)random_bits();
}

/* One after another, as they came over the wire, summed in pieces by the subject, whole by the reference. */
TEST(round_trips)
{
	static uint8_t bytes[AT_PAYLOAD + BYTES_MAX];

	random_seed();
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint32_t size = (uint32_t)random_below(i % 100 == 0 ? 65508 : 2000);
		uint32_t cut = (uint32_t)random_below(size / 2 + 1) * 2;
		uint8_t *payload = bytes + AT_PAYLOAD;
		struct frame_route by = route;
		struct frame frame;

		random_fill(payload, size);
		by.from_ip = net_ipv4((uint32_t)random_bits());
		by.to_ip = net_ipv4((uint32_t)random_bits());
		by.from_port = (uint16_t)random_bits();
		by.to_port = (uint16_t)random_bits();
		frame_udp(bytes, &by, size,
		          frame_sum(payload, cut) + frame_sum(payload + cut, size - cut), false);
		assert_int_equal(plain_sum(0, bytes + AT_IP, 20), 0xffff);
		assert_int_not_equal(word_at(bytes + AT_UDP + 6), 0);
		assert_int_equal(plain_sum(plain_pseudo(bytes + AT_IP, bytes + AT_UDP),
		                           bytes + AT_UDP, size + 8),
		                 0xffff);
		frame_parse(bytes, AT_PAYLOAD + size, 0, &frame);
		assert_int_equal(frame.kind, FRAME_UDP);
		assert_true(net_ip_same(&frame.from_ip, &by.from_ip));
		assert_true(net_ip_same(&frame.to_ip, &by.to_ip));
		assert_int_equal(frame.from_port, by.from_port);
		assert_int_equal(frame.to_port, by.to_port);
		assert_ptr_equal(frame.payload, payload);
		assert_int_equal(frame.payload_bytes, size);
	}
}
