// SPDX-License-Identifier: BSD-3-Clause
/* test_frame_six.c - IPv6 in frames: UDP behind what may stand before it, neighbour discovery, MLD; and all of that gone wrong */

#include "tests/unit/test_frame.h"
#include "tests/unit/test_random.h"

#define AT_SIX (AT_IP + 40) /* what follows the IP header */
#define AT_SUM (AT_SIX + 2) /* of ICMPv6 */
#define AT_TARGET (AT_SIX + 8)
#define AT_OPTION (AT_SIX + 24)
#define PAYLOAD (AT_SIX + 8)
#define ROUND_TRIPS 20000

static const struct net_ip from = {.bytes = {0xfd, 0x77, [15] = 1}},
			   to = {.bytes = {0xfd, 0x77, [15] = 0x65}},
			   group = {.bytes = {0xff, 0x15, [12] = 0x80, 0x77, 0, 7}}, none;

static void mend_icmp6(uint8_t *bytes)
{
	uint32_t count = word_at(bytes + AT_IP + 4);

	word_put(bytes + AT_SUM, 0);
	word_put(bytes + AT_SUM,
	         (uint16_t)~plain_sum(plain_icmp6(bytes + AT_IP, count), bytes + AT_SIX, count));
}

/* ---- well ---- */

TEST(read_udp)
{
	static const char *const texts[] = {UDP6_TEXT, UDP6_OPTIONS};
	uint8_t bytes[256];
	struct frame frame;
	size_t size;

	for (size_t i = 0; i < 2; i++) {
		size = from_hex(texts[i], bytes);
		for (size_t more = 0; more < 50; more++) {
			frame = parsed(bytes, size + more, (unsigned)more % 4);
			assert_int_equal(frame.kind, FRAME_UDP);
			assert_true(net_ip_same(&frame.from_ip, &from));
			assert_true(net_ip_same(&frame.to_ip, &to));
			assert_int_equal(frame.from_port, 49152);
			assert_int_equal(frame.to_port, 5555);
			assert_int_equal(frame.payload_bytes, 7);
			assert_memory_equal(frame.payload, "winnow!", 7);
		}
	}
	frame = parsed(bytes, from_hex(UDP6_EMPTY, bytes), 0);
	assert_true(frame.kind == FRAME_UDP && frame.payload_bytes == 0);
	assert_int_equal(kind_of(bytes, from_hex(UDP6_ZERO, bytes)), FRAME_UDP);
	frame = parsed(bytes, from_hex(UDP6_GROUP, bytes), 0);
	assert_true(frame.kind == FRAME_UDP && net_ip_same(&frame.to_ip, &group));
	assert_int_equal(kind_of(bytes, from_hex(UDP6_PIECE, bytes)), FRAME_PIECE);
}

/* The traffic class lies across two bytes; the flow label beside it may be anything. */
TEST(read_marks)
{
	static const char *const texts[] = {UDP6_TEXT, UDP6_OPTIONS};
	uint8_t bytes[256];

	for (uint32_t i = 0; i < 2 * 256; i++) {
		size_t size = from_hex(texts[i / 256], bytes);
		struct frame frame;

		bytes[AT_IP] = (uint8_t)(0x60 | (i >> 4 & 15));
		bytes[AT_IP + 1] = (uint8_t)((i & 15) << 4 | random_below(16));
		frame = parsed(bytes, size, 0);
		assert_int_equal(frame.kind, FRAME_UDP);
		assert_int_equal(frame.marked, i % 4 == 3);
	}
}

/* Unlike in IPv4 there must be a checksum; that of the pseudo-header alone is a virtual link's. */
TEST(read_sums)
{
	uint8_t bytes[256];
	size_t size = from_hex(UDP6_TEXT, bytes);
	uint8_t *sum = bytes + AT_SIX + 6, rest[4] = {0, 17, 0, 15};
	uint32_t right = word_at(sum);
	uint32_t pseudo = plain_sum(plain_sum(0, bytes + AT_IP + 8, 32), rest, 4);

	for (uint32_t value = 0; value <= 0xffff; value++) {
		word_put(sum, value);
		assert_int_equal(kind_of(bytes, size),
		                 value == right || value == pseudo ? FRAME_UDP : FRAME_DAMAGED);
		assert_int_equal(parsed(bytes, size, FRAME_UDP_CHECKED).kind, FRAME_UDP);
	}
}

TEST(read_neighbours)
{
	uint8_t bytes[128];
	struct frame frame = parsed(bytes, from_hex(ND_ASKS, bytes), 0);

	assert_true(frame.kind == FRAME_NEIGHBOUR && frame.asks);
	assert_memory_equal(frame.mac, here, 6);
	assert_true(net_ip_same(&frame.from_ip, &from) && net_ip_same(&frame.to_ip, &to));
	frame = parsed(bytes, from_hex(ND_ASKS_ONE, bytes), 0);
	assert_true(frame.kind == FRAME_NEIGHBOUR && frame.asks && frame.mac == NULL);
	assert_true(net_ip_same(&frame.from_ip, &from) && net_ip_same(&frame.to_ip, &to));
	frame = parsed(bytes, from_hex(ND_TRIES, bytes), 0);
	assert_true(frame.kind == FRAME_NEIGHBOUR && frame.asks && frame.mac == NULL);
	assert_true(net_ip_none(&frame.from_ip) && net_ip_same(&frame.to_ip, &to));
	frame = parsed(bytes, from_hex(ND_ANSWERS, bytes), 0);
	assert_true(frame.kind == FRAME_NEIGHBOUR && !frame.asks);
	assert_memory_equal(frame.mac, there, 6);
	assert_true(net_ip_same(&frame.from_ip, &to) && net_ip_same(&frame.to_ip, &from));
	/* Of whom it speaks is in the message; who has sent it does not matter. */
	bytes[AT_IP + 8 + 15] = 0x33;
	mend_icmp6(bytes);
	frame = parsed(bytes, from_hex(ND_ANSWERS_ALL, bytes), 0);
	assert_true(frame.kind == FRAME_NEIGHBOUR && !frame.asks);
	assert_true(net_ip_same(&frame.from_ip, &to) && net_ip_multicast(&frame.to_ip));
}

TEST(read_queries)
{
	uint8_t bytes[128];
	struct frame frame = parsed(bytes, from_hex(MLD_ASKS_ALL, bytes), 0);

	assert_true(frame.kind == FRAME_QUERY && net_ip_none(&frame.to_ip));
	frame = parsed(bytes, from_hex(MLD_ASKS_ONE, bytes), 0);
	assert_true(frame.kind == FRAME_QUERY && net_ip_same(&frame.to_ip, &group));
	assert_int_equal(kind_of(bytes, from_hex(MLD_REPORTS, bytes)), FRAME_OTHER);
}

static void check_written(const char *text, const struct frame_route *by)
{
	uint8_t want[256], got[256], rest[4] = {0, 17};
	size_t size = from_hex(text, want), payload = size - PAYLOAD;

	memset(got, 0xee, sizeof(got));
	memcpy(got + PAYLOAD, want + PAYLOAD, payload);
	frame_udp(got, by, (uint32_t)payload, frame_sum(want + PAYLOAD, payload), false);
	assert_memory_equal(got, want, size);
	assert_int_equal(got[size], 0xee);
	/* Left to the port: the pseudo-header's sum, not inverted. */
	frame_udp(got, by, (uint32_t)payload, 12345, true);
	memcpy(rest + 2, want + AT_SIX + 4, 2);
	word_put(want + AT_SIX + 6, plain_sum(plain_sum(0, want + AT_IP + 8, 32), rest, 4));
	assert_memory_equal(got, want, size);
}

TEST(write_class)
{
	const struct frame_route route = {.from_ip = from, .to_ip = to, .hops = 64};
	struct frame_route by = route;
	uint8_t plain[80] = {0}, got[80] = {0};

	by.tos = 0xb9;
	frame_udp(plain, &route, 8, 0, false);
	frame_udp(got, &by, 8, 0, false);
	assert_memory_equal(plain + AT_IP, "\x60\0\0\0", 4);
	assert_memory_equal(got + AT_IP, "\x6b\x90\0\0", 4);
	memcpy(got + AT_IP, plain + AT_IP, 4);
	assert_memory_equal(got, plain, sizeof(got));
}

TEST(write_udp)
{
	struct frame_route route = {.from_mac = {2, 0, 0, 0, 0, 1},
	                            .to_mac = {2, 0, 0, 0, 0, 2},
	                            .from_ip = from,
	                            .to_ip = to,
	                            .from_port = 49152,
	                            .to_port = 5555,
	                            .hops = 64};

	assert_int_equal(frame_udp_bytes(&to), FRAME_UDP_BYTES_MAX);
	check_written(UDP6_TEXT, &route);
	check_written(UDP6_EMPTY, &route);
	check_written(UDP6_ZERO, &route);
	route.to_ip = group;
	route.hops = 1;
	route.from_port = 5555;
	route.to_port = 7000;
	frame_multicast_mac(&group, route.to_mac);
	check_written(UDP6_GROUP, &route);
}

static void check_small(const char *text, const uint8_t *got, uint32_t bytes)
{
	uint8_t want[128];
	size_t size = from_hex(text, want);

	assert_int_equal(bytes, size);
	assert_memory_equal(got, want, size);
}

TEST(write_others)
{
	const struct frame_station us = {here, from}, them = {there, to}, nobody = {here, none};
	uint8_t got[FRAME_SMALL_BYTES_MAX];

	check_small(ND_ASKS, got, frame_ask(got, &us, &to));
	check_small(ND_ANSWERS, got, frame_answer(got, &them, &us));
	check_small(ND_ANSWERS_ALL, got, frame_answer(got, &them, &nobody));
	check_small(MLD_REPORTS, got, frame_report(got, &us, &group));
}

TEST(round_trips)
{
	static uint8_t bytes[PAYLOAD + 65536];

	random_seed();
	for (uint32_t i = 0; i < ROUND_TRIPS; i++) {
		uint32_t size = (uint32_t)random_below(i % 100 == 0 ? 65528 : 2000);
		struct frame_route by = {.hops = 1};
		struct frame frame;

		for (uint32_t k = 0; k < size; k++)
			bytes[PAYLOAD + k] = (uint8_t)random_bits();
		for (uint32_t k = 0; k < 16; k++) {
			by.from_ip.bytes[k] = (uint8_t)random_bits();
			by.to_ip.bytes[k] = (uint8_t)random_bits();
		}
		by.from_port = (uint16_t)random_bits();
		by.to_port = (uint16_t)random_bits();
		frame_udp(bytes, &by, size, frame_sum(bytes + PAYLOAD, size), false);
		assert_int_not_equal(word_at(bytes + AT_SIX + 6), 0);
		frame_parse(bytes, PAYLOAD + size, 0, &frame);
		assert_int_equal(frame.kind, FRAME_UDP);
		assert_true(net_ip_same(&frame.from_ip, &by.from_ip));
		assert_true(net_ip_same(&frame.to_ip, &by.to_ip));
		assert_true(frame.from_port == by.from_port && frame.to_port == by.to_port);
		assert_true(frame.payload == bytes + PAYLOAD && frame.payload_bytes == size);
	}
}

/* ---- gone wrong ---- */

TEST(cut)
{
	static const struct {
		const char *text;
		size_t head; /* from here on it is known whose it is */
	} whole[] = {
		{UDP6_TEXT, PAYLOAD}, {UDP6_EMPTY, PAYLOAD}, {UDP6_OPTIONS, PAYLOAD + 8 + 16 + 24},
		{UDP6_PIECE, 1000},   {ND_ASKS, 1000},       {ND_ANSWERS, 1000},
		{MLD_ASKS_ONE, 1000}};
	uint8_t bytes[256];

	for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
		size_t size = from_hex(whole[i].text, bytes);

		for (size_t cut = 0; cut < size; cut++) {
			enum frame_kind want = cut < whole[i].head ? FRAME_DAMAGED : FRAME_CUT;

			assert_int_equal(kind_of(bytes, cut), want);
			assert_int_equal(parsed(bytes, cut, ALL_CHECKED).kind, want);
		}
	}
	/* Headers of what follows that do not agree. */
	from_hex(UDP6_TEXT, bytes);
	bytes[AT_SIX + 5]++;
	assert_int_equal(parsed(bytes, PAYLOAD + 3, ALL_CHECKED).kind, FRAME_DAMAGED);
}

/* Everything but hops, traffic class and flow label is covered by a checksum, or decides what it is. */
TEST(flipped)
{
	uint8_t bytes[128];
	size_t size = from_hex(UDP6_TEXT, bytes);

	for (size_t bit = AT_TYPE * 8; bit < size * 8; bit++) {
		enum frame_kind kind;

		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		kind = kind_of(bytes, size);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		if (bit < AT_IP * 8 || bit / 8 == AT_IP + 6)
			assert_int_not_equal(kind, FRAME_UDP);
		else if ((bit / 8 > AT_IP && bit / 8 < AT_IP + 4) || bit / 8 == AT_IP + 7 ||
		         (bit / 8 == AT_IP && bit % 8 < 4))
			assert_int_equal(kind, FRAME_UDP);
		else
			assert_int_equal(kind, FRAME_DAMAGED);
	}
}

TEST(length)
{
	uint8_t bytes[128];
	size_t size = from_hex(UDP6_TEXT, bytes);

	for (uint32_t length = 0; length < 200; length++) {
		word_put(bytes + AT_IP + 4, length);
		assert_int_equal(kind_of(bytes, size), length == 15 ? FRAME_UDP : FRAME_DAMAGED);
	}
}

/* Extension headers that are longer than the packet, too many, or say that it is to go on. */
TEST(extensions)
{
	uint8_t bytes[256], many[400];
	size_t size = from_hex(UDP6_OPTIONS, bytes), at = AT_SIX;

	for (uint32_t length = 0; length < 256; length++) {
		bytes[AT_SIX + 1] = (uint8_t)length;
		if ((length + 1) * 8 > 63)
			assert_int_equal(kind_of(bytes, size), FRAME_DAMAGED);
	}
	bytes[AT_SIX + 1] = 0;
	bytes[AT_SIX + 8 + 16 + 3] = 1; /* segments left */
	assert_int_equal(kind_of(bytes, size), FRAME_OTHER);
	for (uint32_t count = 0; count < 20; count++) {
		size = from_hex(UDP6_TEXT, bytes);
		memcpy(many, bytes, AT_SIX);
		memset(many + AT_SIX, 0, sizeof(many) - AT_SIX);
		for (at = AT_SIX; at < AT_SIX + 8 * count; at += 8)
			many[at] = at + 8 < AT_SIX + 8 * count ? 60 : 17;
		many[AT_IP + 6] = count > 0 ? 60 : 17;
		word_put(many + AT_IP + 4, 15 + 8 * count);
		memcpy(many + at, bytes + AT_SIX, size - AT_SIX);
		assert_int_equal(kind_of(many, size + (size_t)8 * count),
		                 count <= 8 ? FRAME_UDP : FRAME_OTHER);
	}
	/* The last one is nothing but its beginning. */
	from_hex(UDP6_TEXT, bytes);
	bytes[AT_IP + 6] = 60;
	for (uint32_t length = 0; length < 8; length++) {
		word_put(bytes + AT_IP + 4, length);
		assert_int_equal(kind_of(bytes, AT_SIX + length), FRAME_DAMAGED);
	}
}

TEST(protocols)
{
	uint8_t bytes[128];
	size_t size = from_hex(UDP6_TEXT, bytes);

	for (unsigned protocol = 0; protocol < 256; protocol++) {
		enum frame_kind kind;

		bytes[AT_IP + 6] = (uint8_t)protocol;
		kind = parsed(bytes, size, ALL_CHECKED).kind;
		if (protocol == 17)
			assert_int_equal(kind, FRAME_UDP);
		else if (protocol == 44)
			assert_int_equal(kind, FRAME_PIECE);
		else if (protocol != 0 && protocol != 43 && protocol != 60)
			assert_int_equal(kind, FRAME_OTHER);
	}
	for (unsigned first = 0; first < 16; first++) {
		from_hex(UDP6_TEXT, bytes);
		bytes[AT_IP] = (uint8_t)(first << 4);
		assert_int_equal(kind_of(bytes, size), first == 6 ? FRAME_UDP : FRAME_DAMAGED);
	}
}

/* Whoever writes an address of IPv4 into IPv6 would be taken for its owner. */
TEST(mapped)
{
	uint8_t bytes[128];
	const struct net_ip four = net_ipv4(0x0a4d0001);
	size_t size;

	for (size_t at = AT_IP + 8; at <= AT_IP + 24; at += 16) {
		size = from_hex(UDP6_TEXT, bytes);
		memcpy(bytes + at, four.bytes, 16);
		assert_int_equal(parsed(bytes, size, ALL_CHECKED).kind, FRAME_OTHER);
	}
	size = from_hex(ND_ANSWERS, bytes);
	memcpy(bytes + AT_TARGET, four.bytes, 16);
	mend_icmp6(bytes);
	assert_int_equal(kind_of(bytes, size), FRAME_OTHER);
}

/* Hops, code, target, options: each as it must not be, the checksum being right. */
TEST(neighbours)
{
	static const char *const texts[] = {ND_ASKS, ND_ANSWERS};
	uint8_t bytes[128];
	struct frame frame;
	size_t size;

	for (size_t i = 0; i < 2; i++) {
		for (unsigned value = 0; value < 256; value++) {
			size = from_hex(texts[i], bytes);
			bytes[AT_IP + 7] = (uint8_t)value;
			assert_int_equal(kind_of(bytes, size),
			                 value == 255 ? FRAME_NEIGHBOUR : FRAME_OTHER);
			from_hex(texts[i], bytes);
			bytes[AT_SIX + 1] = (uint8_t)value;
			mend_icmp6(bytes);
			assert_int_equal(kind_of(bytes, size),
			                 value == 0 ? FRAME_NEIGHBOUR : FRAME_OTHER);
			from_hex(texts[i], bytes);
			bytes[AT_OPTION + 1] = (uint8_t)value;
			mend_icmp6(bytes);
			assert_int_equal(kind_of(bytes, size),
			                 value == 1 ? FRAME_NEIGHBOUR : FRAME_DAMAGED);
			from_hex(texts[i], bytes);
			bytes[AT_OPTION] =
				(uint8_t)value; /* another's meaning: it is passed over */
			mend_icmp6(bytes);
			frame = parsed(bytes, size, 0);
			assert_int_equal(frame.kind, FRAME_NEIGHBOUR);
			assert_int_equal(frame.mac != NULL, value == i + 1);
			from_hex(texts[i], bytes);
			bytes[AT_TARGET] = (uint8_t)value;
			mend_icmp6(bytes);
			assert_int_equal(kind_of(bytes, size),
			                 value == 255 ? FRAME_OTHER : FRAME_NEIGHBOUR);
		}
		/* No address is nobody's. */
		size = from_hex(texts[i], bytes);
		memset(bytes + AT_TARGET, 0, 16);
		mend_icmp6(bytes);
		assert_int_equal(kind_of(bytes, size), FRAME_OTHER);
		/* A byte or more after the last option. */
		for (uint32_t more = 1; more < 8; more++) {
			size = from_hex(texts[i], bytes);
			memset(bytes + size, 1, more);
			word_put(bytes + AT_IP + 4, 32 + more);
			mend_icmp6(bytes);
			assert_int_equal(kind_of(bytes, size + more), FRAME_DAMAGED);
		}
		/* Two options: the first is passed over. */
		size = from_hex(texts[i], bytes);
		memcpy(bytes + size, bytes + AT_OPTION, 8);
		bytes[AT_OPTION] = 14;
		word_put(bytes + AT_IP + 4, 40);
		mend_icmp6(bytes);
		frame = parsed(bytes, size + 8, 0);
		assert_true(frame.kind == FRAME_NEIGHBOUR && frame.mac == bytes + size + 2);
	}
	/* Whoever has no address yet has no MAC address to tell. */
	size = from_hex(ND_ASKS, bytes);
	memset(bytes + AT_IP + 8, 0, 16);
	mend_icmp6(bytes);
	assert_int_equal(kind_of(bytes, size), FRAME_OTHER);
	/* What nobody has asked for is not an answer. */
	size = from_hex(ND_ANSWERS_ALL, bytes);
	bytes[AT_SIX + 4] |= 0x40;
	mend_icmp6(bytes);
	assert_int_equal(kind_of(bytes, size), FRAME_OTHER);
}

TEST(icmp6)
{
	uint8_t bytes[128];
	size_t size;

	for (unsigned type = 0; type < 256; type++) {
		size = from_hex(ND_ASKS, bytes);
		bytes[AT_SIX] = (uint8_t)type;
		mend_icmp6(bytes);
		assert_int_equal(kind_of(bytes, size),
		                 type == 135 || type == 136 ? FRAME_NEIGHBOUR : FRAME_OTHER);
	}
	/* A ping is shorter; a solicitation is not. */
	from_hex(ND_ASKS, bytes);
	for (uint32_t length = 0; length < 24; length++) {
		word_put(bytes + AT_IP + 4, length);
		bytes[AT_SIX] = 128;
		assert_int_equal(kind_of(bytes, size), length < 8 ? FRAME_DAMAGED : FRAME_OTHER);
		bytes[AT_SIX] = 135;
		mend_icmp6(bytes);
		assert_int_equal(kind_of(bytes, size), FRAME_DAMAGED);
	}
	size = from_hex(ND_ASKS, bytes);
	for (size_t bit = (AT_IP + 8) * 8; bit < size * 8; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_not_equal(kind_of(bytes, size), FRAME_NEIGHBOUR);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	/* Routers ask from the link. */
	for (unsigned hops = 0; hops < 256; hops++) {
		size = from_hex(MLD_ASKS_ONE, bytes);
		bytes[AT_IP + 7] = (uint8_t)hops;
		assert_int_equal(kind_of(bytes, size), hops == 1 ? FRAME_QUERY : FRAME_OTHER);
	}
}
