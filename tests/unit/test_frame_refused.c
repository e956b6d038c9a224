// SPDX-License-Identifier: BSD-3-Clause
/* test_frame_refused.c - frames that are cut, damaged, in pieces or not for us: told apart, never read beyond their end */

#include "tests/unit/test_frame.h"

#define AT_TARGET (AT_SIX + 8)
#define AT_OPTION (AT_SIX + 24)
#define NEVER 1000

/* Of what is cut it is known whose it is once all headers are there, if ever. */
static void check_cut(const char *text, size_t size, size_t head, enum frame_kind whole)
{
	uint8_t bytes[256];

	from_hex(text, bytes);
	for (size_t cut = 0; cut < size; cut++) {
		enum frame_kind want = cut < head ? FRAME_DAMAGED : FRAME_CUT;

		assert_int_equal(kind_of(bytes, cut), want);
		assert_int_equal(parsed(bytes, cut, ALL_CHECKED).kind, want);
	}
	assert_int_equal(kind_of(bytes, size), whole);
}

TEST(cut)
{
	check_cut(UDP_TEXT, AT_PAYLOAD + 7, AT_PAYLOAD, FRAME_UDP);
	check_cut(UDP_EMPTY, AT_PAYLOAD, AT_PAYLOAD, FRAME_UDP);
	check_cut(UDP_OPTIONS, AT_PAYLOAD + 8 + 7, AT_PAYLOAD + 8, FRAME_UDP);
	check_cut(UDP_ALL_OPTIONS, AT_PAYLOAD + 40 + 7, AT_PAYLOAD + 40, FRAME_UDP);
	check_cut(ARP_ASKS, 42, NEVER, FRAME_NEIGHBOUR);
	check_cut(IGMP_ASKS_ONE, 46, NEVER, FRAME_QUERY);
	check_cut(UDP6_TEXT, AT_SIX + 8 + 7, AT_SIX + 8, FRAME_UDP);
	check_cut(UDP6_OPTIONS, AT_SIX + 56 + 7, AT_SIX + 56, FRAME_UDP);
	check_cut(UDP6_PIECE, AT_SIX + 24, NEVER, FRAME_PIECE);
	check_cut(ND_ASKS, AT_SIX + 32, NEVER, FRAME_NEIGHBOUR);
	check_cut(ND_ANSWERS, AT_SIX + 32, NEVER, FRAME_NEIGHBOUR);
	check_cut(MLD_ASKS_ONE, AT_SIX + 36, NEVER, FRAME_QUERY);
}

/* What has been cut off says where it is from and to, unless its headers do not agree. */
FAMILY_TEST(cut_off)
{
	const size_t cut = family->at_udp + 8 + 3;
	struct frame frame;
	uint8_t bytes[256];

	from_hex(family->text, bytes);
	frame_parse(bytes, cut, 0, &frame);
	assert_int_equal(frame.kind, FRAME_CUT);
	assert_true(net_ip_same(&frame.from_ip, &family->from));
	assert_true(net_ip_same(&frame.to_ip, &family->to));
	assert_true(frame.from_port == 49152 && frame.to_port == 5555);
	assert_true(frame.payload == NULL && frame.payload_bytes == 0);
	bytes[family->at_udp + 5]++; /* UDP's length */
	assert_int_equal(parsed(bytes, cut, ALL_CHECKED).kind, FRAME_DAMAGED);
	if (six)
		return;
	from_hex(UDP_TEXT, bytes);
	bytes[AT_IP + 8]--; /* the IP checksum does not hold */
	assert_int_equal(kind_of(bytes, cut), FRAME_DAMAGED);
	bytes[AT_IP + 6] |= 0x20; /* a fragment */
	assert_int_equal(parsed(bytes, cut, ALL_CHECKED).kind, FRAME_DAMAGED);
	from_hex(UDP_TEXT, bytes);
	bytes[AT_IP + 9] = 6; /* another protocol */
	assert_int_equal(parsed(bytes, cut, ALL_CHECKED).kind, FRAME_DAMAGED);
}

/* A tag, and then nothing. */
TEST(cut_tag)
{
	uint8_t bytes[18] = {0};

	word_put(bytes + AT_TYPE, 0x8100);
	for (size_t size = 14; size < 18; size++)
		assert_int_equal(kind_of(bytes, size), FRAME_OTHER);
	word_put(bytes + AT_TYPE + 4, 0x0800);
	assert_int_equal(kind_of(bytes, 18), FRAME_DAMAGED);
}

/*
 * Every bit is covered by a checksum, or decides what the frame is, but for IPv6's hops, traffic class and flow
 * label.
 */
FAMILY_TEST(flipped)
{
	uint8_t bytes[128];
	size_t size = from_hex(family->text, bytes);

	for (size_t bit = AT_TYPE * 8; bit < size * 8; bit++) {
		size_t at = bit / 8 - AT_IP;
		enum frame_kind kind;

		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		kind = kind_of(bytes, size);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		if (bit < AT_IP * 8 || (six && at == 6))
			assert_int_not_equal(kind, FRAME_UDP);
		else if (six &&
		         (at == 1 || at == 2 || at == 3 || at == 7 || (at == 0 && bit % 8 < 4)))
			assert_int_equal(kind, FRAME_UDP);
		else
			assert_int_equal(kind, FRAME_DAMAGED);
	}
	assert_int_equal(kind_of(bytes, size), FRAME_UDP);
}

/* Fields that contradict each other, checksums being right or looked at by the port. */
TEST(ip_header)
{
	uint8_t bytes[128] = {0}; /* the longest header fits */
	size_t size = from_hex(UDP_TEXT, bytes);
	uint8_t *ip = bytes + AT_IP;

	for (unsigned first = 0; first < 256; first++) {
		ip[0] = (uint8_t)first;
		mend_ip(ip);
		if (first == 0x45)
			assert_int_equal(kind_of(bytes, size), FRAME_UDP);
		else
			assert_int_not_equal(kind_of(bytes, size), FRAME_UDP);
		if (first >> 4 != 4 || (first & 15) < 5 || (first & 15) * 4 > 35)
			assert_int_equal(parsed(bytes, size, ALL_CHECKED).kind, FRAME_DAMAGED);
	}
	ip[0] = 0x45;
	for (uint32_t length = 0; length < 200; length++) {
		word_put(ip + 2, length);
		mend_ip(ip);
		assert_int_equal(kind_of(bytes, size), length == 35 ? FRAME_UDP : FRAME_DAMAGED);
	}
	from_hex(UDP_TEXT, bytes);
	ip[10] ^= 1;
	assert_int_equal(kind_of(bytes, size), FRAME_DAMAGED);
	assert_int_equal(parsed(bytes, size, FRAME_UDP_CHECKED).kind, FRAME_DAMAGED);
	assert_int_equal(parsed(bytes, size, FRAME_IP_CHECKED).kind, FRAME_UDP);
}

TEST(udp_length)
{
	uint8_t bytes[64];
	size_t size = from_hex(UDP_TEXT, bytes);

	for (uint32_t length = 0; length < 70000; length += length < 100 ? 1 : 997) {
		word_put(bytes + AT_UDP + 4, length & 0xffff);
		if ((length & 0xffff) < 8 || (length & 0xffff) > 15)
			assert_int_equal(parsed(bytes, size, ALL_CHECKED).kind, FRAME_DAMAGED);
		else
			assert_int_equal(parsed(bytes, size, ALL_CHECKED).kind, FRAME_UDP);
	}
}

TEST(pieces)
{
	uint8_t bytes[64];
	size_t size = from_hex(UDP_TEXT, bytes);

	/* "Don't fragment" and the bit that means nothing are no fragments; all others are. */
	for (uint32_t bits = 0; bits <= 0xffff; bits++) {
		word_put(bytes + AT_IP + 6, bits);
		mend_ip(bytes + AT_IP);
		if ((bits & 0x3fff) == 0)
			assert_int_equal(kind_of(bytes, size), FRAME_UDP);
		else
			assert_int_equal(kind_of(bytes, size), FRAME_PIECE);
	}
}

TEST(other_protocols)
{
	uint8_t bytes[64];
	size_t size = from_hex(UDP_TEXT, bytes);

	for (unsigned protocol = 0; protocol < 256; protocol++) {
		bytes[AT_IP + 9] = (uint8_t)protocol;
		mend_ip(bytes + AT_IP);
		if (protocol != 17)
			assert_int_equal(parsed(bytes, size, ALL_CHECKED).kind, FRAME_OTHER);
	}
	from_hex(UDP_TEXT, bytes);
	for (uint32_t type = 0; type <= 0xffff; type++) {
		word_put(bytes + AT_TYPE, type);
		if (type != 0x0800 && type != 0x0806 && type != 0x8100 && type != 0x86dd)
			assert_int_equal(kind_of(bytes, size), FRAME_OTHER);
	}
}

/* Other hardware, protocols, lengths of addresses, operations. */
TEST(arp)
{
	uint8_t bytes[64];
	size_t size = from_hex(ARP_ASKS, bytes);

	for (size_t at = AT_IP; at < AT_IP + 8; at++) {
		uint8_t right = bytes[at];

		for (unsigned value = 0; value < 256; value++) {
			bytes[at] = (uint8_t)value;
			if (value == right || (at == AT_IP + 7 && value == 2))
				assert_int_equal(kind_of(bytes, size), FRAME_NEIGHBOUR);
			else
				assert_int_equal(kind_of(bytes, size), FRAME_OTHER);
		}
		bytes[at] = right;
	}
}

/* ---- IPv6 ---- */

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
