// SPDX-License-Identifier: BSD-3-Clause
/* test_frame_refused.c - frames that are cut, damaged, fragmented or not for us: each is told apart, none is read beyond its end */

#include "tests/unit/test_frame.h"

/* Bytes of all headers of a UDP frame. */
static size_t head_of(const uint8_t *bytes)
{
	return AT_IP + (bytes[AT_IP] & 15u) * 4 + 8;
}

TEST(cut)
{
	static const char *const whole[] = {UDP_TEXT, UDP_EMPTY, UDP_GROUP, UDP_OPTIONS,
	                                    UDP_ALL_OPTIONS};
	uint8_t bytes[256];

	for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
		size_t size = from_hex(whole[i], bytes);

		/* With all of its headers it is known whose it is. */
		for (size_t cut = 0; cut < size; cut++) {
			enum frame_kind want = cut < head_of(bytes) ? FRAME_DAMAGED : FRAME_CUT;

			assert_int_equal(kind_of(bytes, cut), want);
			assert_int_equal(parsed(bytes, cut, ALL_CHECKED).kind, want);
		}
	}
	from_hex(ARP_ASKS, bytes);
	for (size_t cut = 0; cut < 42; cut++)
		assert_int_equal(kind_of(bytes, cut), FRAME_DAMAGED);
	assert_int_equal(kind_of(bytes, 42), FRAME_NEIGHBOUR);
	from_hex(IGMP_ASKS_ONE, bytes);
	for (size_t cut = 0; cut < 46; cut++)
		assert_int_equal(kind_of(bytes, cut), FRAME_DAMAGED);
	assert_int_equal(kind_of(bytes, 46), FRAME_QUERY);
}

/* What has been cut off says where it is from and to, unless its headers do not agree. */
TEST(cut_off)
{
	struct frame frame;
	uint8_t bytes[256];

	from_hex(UDP_TEXT, bytes);
	frame_parse(bytes, AT_PAYLOAD + 3, 0, &frame);
	assert_int_equal(frame.kind, FRAME_CUT);
	assert_int_equal(net_ip_number(&frame.from_ip), HERE);
	assert_int_equal(net_ip_number(&frame.to_ip), THERE);
	assert_int_equal(frame.from_port, 49152);
	assert_int_equal(frame.to_port, 5555);
	assert_null(frame.payload);
	assert_int_equal(frame.payload_bytes, 0);
	bytes[AT_UDP + 5]++; /* UDP's length */
	assert_int_equal(parsed(bytes, AT_PAYLOAD + 3, ALL_CHECKED).kind, FRAME_DAMAGED);
	from_hex(UDP_TEXT, bytes);
	bytes[AT_IP + 8]--; /* the IP checksum does not hold */
	assert_int_equal(kind_of(bytes, AT_PAYLOAD + 3), FRAME_DAMAGED);
	bytes[AT_IP + 6] |= 0x20; /* a fragment */
	assert_int_equal(parsed(bytes, AT_PAYLOAD + 3, ALL_CHECKED).kind, FRAME_DAMAGED);
	from_hex(UDP_TEXT, bytes);
	bytes[AT_IP + 9] = 6; /* another protocol */
	assert_int_equal(parsed(bytes, AT_PAYLOAD + 3, ALL_CHECKED).kind, FRAME_DAMAGED);
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

/* Every one of these bits is covered by a checksum, or decides what the frame is. */
TEST(flipped)
{
	uint8_t bytes[64];
	size_t size = from_hex(UDP_TEXT, bytes);

	for (size_t bit = AT_TYPE * 8; bit < size * 8; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		if (bit < AT_IP * 8)
			assert_int_equal(kind_of(bytes, size), FRAME_OTHER);
		else
			assert_int_equal(kind_of(bytes, size), FRAME_DAMAGED);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
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
