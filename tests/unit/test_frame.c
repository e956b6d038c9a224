// SPDX-License-Identifier: BSD-3-Clause
/* test_frame.c - frames that are well: what is read is what was meant, what is written is what others write */

#include "tests/unit/test_frame.h"
#include "tests/unit/test_random.h"

#define ROUNDS 20000
#define ARP_BYTES 60 /* and of IGMP, with padding */

static const struct net_ip none;

/* ---- sums ---- */

/* On any CPU and on this one, of every size and place; no carry is lost where all words are the largest. */
TEST(sums)
{
	static uint8_t data[66000];
	const uint32_t large[] = {1480, 65507, 65530, 65535};

	for (uint32_t round = 0; round < 2; round++) {
		for (size_t i = 0; i < sizeof(data); i++)
			data[i] = round == 0 ? (uint8_t)random_bits() : 0xff;
		for (uint32_t i = 0; i < 300 * 9; i++) {
			const uint8_t *at = data + i % 9;
			size_t size = i < 4 ? large[i] : i / 9;
			uint16_t want = plain_sum(0, at, size), swapped;

			swapped = (uint16_t)(want << 8 | want >> 8);
			assert_int_equal(frame_fold(frame_sum(at, size)), swapped);
			assert_int_equal(frame_fold(frame_sum_any(at, size)), swapped);
		}
	}
}

/* ---- reading ---- */

/* Ethernet pads what is short, and some add more: the IP header says how long the datagram is. */
static void check_text(const char *text, const struct family *family)
{
	uint8_t bytes[256];
	size_t size;

	memset(bytes, 0xee, sizeof(bytes));
	size = from_hex(text, bytes);
	for (unsigned more = 0; more < 100; more++) {
		struct frame frame = parsed(bytes, size + more, more % (ALL_CHECKED + 1));

		assert_int_equal(frame.kind, FRAME_UDP);
		assert_memory_equal(frame.to_mac, there, 6);
		assert_memory_equal(frame.from_mac, here, 6);
		assert_true(net_ip_same(&frame.from_ip, &family->from));
		assert_true(net_ip_same(&frame.to_ip, &family->to));
		assert_int_equal(frame.from_port, 49152);
		assert_int_equal(frame.to_port, 5555);
		assert_int_equal(frame.payload_bytes, 7);
		assert_ptr_equal(frame.payload, bytes + size - 7);
		assert_memory_equal(frame.payload, "winnow!", 7);
	}
}

FAMILY_TEST(read_udp)
{
	struct frame frame;
	uint8_t bytes[128];
	size_t size;

	check_text(family->text, family);
	check_text(family->options, family);
	frame = parsed(bytes, from_hex(family->empty, bytes), 0);
	assert_true(frame.kind == FRAME_UDP && frame.payload_bytes == 0);
	assert_int_equal(kind_of(bytes, from_hex(family->zero, bytes)), FRAME_UDP);
	frame = parsed(bytes, from_hex(family->to_group, bytes), 0);
	assert_true(frame.kind == FRAME_UDP && net_ip_same(&frame.to_ip, &family->group));
	assert_true(frame.to_port == 7000 && frame.payload_bytes == 4);
	if (six)
		return;
	check_text(UDP_ALL_OPTIONS, family);
	/* A UDP datagram may be shorter than what IP carries: its checksum covers only its own. */
	size = from_hex(UDP_TEXT, bytes);
	word_put(bytes + AT_IP + 2, 20 + 8 + 7 + 5);
	mend_ip(bytes + AT_IP);
	frame = parsed(bytes, size + 5, 0);
	assert_true(frame.kind == FRAME_UDP && frame.payload_bytes == 7);
}

/* Of the four ECN fields one is a mark, whatever the class beside it, or IPv6's flow label. */
FAMILY_TEST(read_marks)
{
	uint8_t bytes[256];

	for (uint32_t i = 0; i < 2 * 256; i++) {
		size_t size = from_hex(i < 256 ? family->text : family->options, bytes);
		struct frame frame;

		if (six) {
			bytes[AT_IP] = (uint8_t)(0x60 | (i >> 4 & 15));
			bytes[AT_IP + 1] = (uint8_t)((i & 15) << 4 | random_below(16));
		} else {
			bytes[AT_IP + 1] = (uint8_t)i;
			mend_ip(bytes + AT_IP);
		}
		frame = parsed(bytes, size, 0);
		assert_int_equal(frame.kind, FRAME_UDP);
		assert_int_equal(frame.marked, i % 4 == 3);
	}
}

/* None, in IPv4; that of the pseudo-header alone, a virtual link's; every other but the right one is wrong. */
FAMILY_TEST(read_sums)
{
	uint8_t bytes[256];
	size_t size = from_hex(family->text, bytes);
	uint8_t *sum = bytes + family->at_udp + 6;
	uint32_t right = word_at(sum), pseudo = plain_pseudo(bytes + AT_IP, 17, 15);

	for (uint32_t value = 0; value <= 0xffff; value++) {
		bool good = value == right || value == pseudo || (value == 0 && !six);

		word_put(sum, value);
		assert_int_equal(parsed(bytes, size, value % 2 ? FRAME_IP_CHECKED : 0).kind,
		                 good ? FRAME_UDP : FRAME_DAMAGED);
		assert_int_equal(parsed(bytes, size, FRAME_UDP_CHECKED).kind, FRAME_UDP);
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

	/* A priority alone: any of the 8, and the bit beside it. */
	for (uint32_t tag = 0; tag <= 0xffff; tag += 0x0555) {
		size_t size = tagged(bytes, from_hex(UDP_TEXT, bytes), 0x8100, tag);

		assert_int_equal(kind_of(bytes, size),
		                 (tag & 0xfff) == 0 ? FRAME_UDP : FRAME_OTHER);
		size = tagged(bytes, from_hex(UDP_TEXT, bytes), 0x8100, tag & 0xf000);
		frame = parsed(bytes, size, 0);
		assert_true(frame.kind == FRAME_UDP && frame.payload_bytes == 7);
		assert_memory_equal(frame.payload, "winnow!", 7);
		/* Two of them, or one of a provider's: not for us. */
		size = tagged(bytes, size, 0x8100, tag & 0xf000);
		assert_int_equal(kind_of(bytes, size), FRAME_OTHER);
		size = tagged(bytes, from_hex(UDP_TEXT, bytes), 0x88a8, tag & 0xf000);
		assert_int_equal(kind_of(bytes, size), FRAME_OTHER);
	}
	assert_int_equal(kind_of(bytes, tagged(bytes, from_hex(ARP_ASKS, bytes), 0x8100, 0)),
	                 FRAME_NEIGHBOUR);
}

/* Who asks for whom, or tells it, with which MAC address; NULL: does not say. */
static void check_neighbour(const uint8_t *bytes, size_t size, bool asks, const uint8_t *mac,
                            const struct net_ip *from, const struct net_ip *to)
{
	struct frame frame = parsed(bytes, size, 0);

	assert_int_equal(frame.kind, FRAME_NEIGHBOUR);
	assert_int_equal(frame.asks, asks);
	assert_int_equal(frame.mac == NULL, mac == NULL);
	if (mac != NULL)
		assert_memory_equal(frame.mac, mac, 6);
	assert_true(net_ip_same(&frame.from_ip, from) && net_ip_same(&frame.to_ip, to));
}

TEST(read_neighbours)
{
	const struct family *four = &families[0], *six = &families[1];
	const struct net_ip everyone = {.bytes = {0xff, 2, [15] = 1}};
	uint8_t b[128];
	size_t size = from_hex(ARP_ASKS, b);

	check_neighbour(b, size, true, here, &four->from, &four->to);
	memcpy(b + 38, b + 28, 4); /* "I am here": sender and target are the same */
	check_neighbour(b, size, true, here, &four->from, &four->from);
	size = from_hex(ARP_ANSWERS, b);
	b[11] = 0x77; /* the address that counts is the packet's, not the frame's */
	check_neighbour(b, size, false, here, &four->from, &four->to);
	check_neighbour(b, from_hex(ND_ASKS, b), true, here, &six->from, &six->to);
	check_neighbour(b, from_hex(ND_ASKS_ONE, b), true, NULL, &six->from, &six->to);
	check_neighbour(b, from_hex(ND_TRIES, b), true, NULL, &none, &six->to);
	check_neighbour(b, from_hex(ND_ANSWERS, b), false, there, &six->to, &six->from);
	/* Of whom it speaks is in the message; who has sent it does not matter. */
	size = from_hex(ND_ANSWERS_ALL, b);
	b[AT_IP + 8 + 15] = 0x33;
	mend_icmp6(b);
	check_neighbour(b, size, false, there, &six->to, &everyone);
}

TEST(read_queries)
{
	static const struct {
		const char *text;
		enum frame_kind kind;
		struct net_ip group;
	} queries[] = {
		{IGMP_ASKS_ALL, FRAME_QUERY, NET_IPV4(0)},
		{IGMP_ASKS_ONE, FRAME_QUERY, NET_IPV4(GROUP)},
		{MLD_ASKS_ALL, FRAME_QUERY, {.scope = 0}},
		{MLD_ASKS_ONE, FRAME_QUERY, {.bytes = {0xff, 0x15, [12] = 0x80, 0x77, 0, 7}}},
		{IGMP_REPORTS, FRAME_OTHER, NET_IPV4(GROUP)},
		{MLD_REPORTS, FRAME_OTHER, {.scope = 0}}};
	uint8_t bytes[128];

	for (size_t i = 0; i < sizeof(queries) / sizeof(queries[0]); i++) {
		struct frame frame = parsed(bytes, from_hex(queries[i].text, bytes), 0);

		assert_int_equal(frame.kind, queries[i].kind);
		if (frame.kind == FRAME_QUERY)
			assert_true(net_ip_same(&frame.to_ip, &queries[i].group));
	}
}

/* ---- writing ---- */

static struct frame_route route_of(const struct family *family)
{
	return (struct frame_route){
		.from_mac = {2, 0, 0, 0, 0, 1},
		.to_mac = {2, 0, 0, 0, 0, 2},
		.from_ip = family->from,
		.to_ip = family->to,
		.from_port = 49152,
		.to_port = 5555,
		.hops = 64,
	};
}

static void check_written(const char *text, const struct frame_route *by, size_t at_udp)
{
	uint8_t want[256], got[256];
	size_t size = from_hex(text, want), at = at_udp + 8, payload = size - at;

	memset(got, 0xee, sizeof(got));
	memcpy(got + at, want + at, payload);
	frame_udp(got, by, (uint32_t)payload, frame_sum(want + at, payload), false);
	assert_memory_equal(got, want, size);
	assert_int_equal(got[size], 0xee);
	/* Left to the port: the pseudo-header's sum, not inverted. */
	frame_udp(got, by, (uint32_t)payload, 12345, true);
	word_put(want + at_udp + 6, plain_pseudo(want + AT_IP, 17, word_at(want + at_udp + 4)));
	assert_memory_equal(got, want, size);
}

FAMILY_TEST(write_udp)
{
	struct frame_route route = route_of(family);

	assert_int_equal(frame_udp_bytes(&family->to), six ? FRAME_UDP_BYTES_MAX : AT_PAYLOAD);
	check_written(family->text, &route, family->at_udp);
	check_written(family->empty, &route, family->at_udp);
	check_written(family->zero, &route, family->at_udp);
	route.to_ip = family->group;
	route.hops = 1;
	route.from_port = 5555;
	route.to_port = 7000;
	frame_multicast_mac(&family->group, route.to_mac);
	check_written(family->to_group, &route, family->at_udp);
}

/* The class goes where the kernel puts it, below IPv4's checksum of the header. */
FAMILY_TEST(write_class)
{
	struct frame_route by = route_of(family);
	uint8_t plain[80] = {0}, got[80] = {0};

	frame_udp(plain, &by, 8, 0, false);
	by.tos = 0xb9;
	frame_udp(got, &by, 8, 0, false);
	assert_memory_equal(plain + AT_IP, six ? "\x60\0" : "\x45\0", 2);
	assert_memory_equal(got + AT_IP, six ? "\x6b\x90" : "\x45\xb9", 2);
	if (!six)
		assert_int_equal(plain_sum(0, got + AT_IP, 20), 0xffff);
	memcpy(got + AT_IP, plain + AT_IP, six ? 2 : 12);
	assert_memory_equal(got, plain, sizeof(got));
}

static void check_small(const char *text, const uint8_t *got, uint32_t bytes)
{
	uint8_t want[128] = {0};
	size_t size = from_hex(text, want);

	assert_int_equal(bytes, size < ARP_BYTES ? ARP_BYTES : size);
	assert_memory_equal(got, want, bytes);
}

FAMILY_TEST(write_others)
{
	const struct frame_station us = {here, family->from}, them = {there, family->to};
	uint8_t got[FRAME_SMALL_BYTES_MAX];

	memset(got, 0xee, sizeof(got));
	check_small(six ? ND_ASKS : ARP_ASKS, got, frame_ask(got, &us, &family->to));
	memset(got, 0xee, sizeof(got));
	if (six)
		check_small(ND_ANSWERS, got, frame_answer(got, &them, &us));
	else
		check_small(ARP_ANSWERS, got, frame_answer(got, &us, &them));
	memset(got, 0xee, sizeof(got));
	check_small(six ? MLD_REPORTS : IGMP_REPORTS, got, frame_report(got, &us, &family->group));
	if (six)
		check_small(ND_ANSWERS_ALL, got,
		            frame_answer(got, &them, &(struct frame_station){here, none}));
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
FAMILY_TEST(round_trips)
{
	static uint8_t bytes[AT_SIX + 8 + 65536];
	uint8_t *udp = bytes + family->at_udp, *payload = udp + 8;

	random_seed();
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint32_t size = (uint32_t)random_below(i % 100 == 0 ? family->most + 1 : 2000);
		uint32_t cut = (uint32_t)random_below(size / 2 + 1) * 2;
		struct frame_route by = route_of(family);
		struct frame frame;

		random_fill(payload, size);
		random_fill(by.from_ip.bytes + (six ? 0 : 12), six ? 16 : 4);
		random_fill(by.to_ip.bytes + (six ? 0 : 12), six ? 16 : 4);
		by.from_port = (uint16_t)random_bits();
		by.to_port = (uint16_t)random_bits();
		frame_udp(bytes, &by, size,
		          frame_sum(payload, cut) + frame_sum(payload + cut, size - cut), false);
		if (!six)
			assert_int_equal(plain_sum(0, bytes + AT_IP, 20), 0xffff);
		assert_int_not_equal(word_at(udp + 6), 0);
		assert_int_equal(
			plain_sum(plain_pseudo(bytes + AT_IP, 17, size + 8), udp, size + 8),
			0xffff);
		frame_parse(bytes, family->at_udp + 8 + size, 0, &frame);
		assert_int_equal(frame.kind, FRAME_UDP);
		assert_true(net_ip_same(&frame.from_ip, &by.from_ip));
		assert_true(net_ip_same(&frame.to_ip, &by.to_ip));
		assert_true(frame.from_port == by.from_port && frame.to_port == by.to_port);
		assert_true(frame.payload == payload && frame.payload_bytes == size);
	}
}
