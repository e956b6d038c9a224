/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_frame.h - frames that another program (scapy 2.5) has made, and checksums as RFC 1071 words them
 *
 * From 10.77.0.1, 02:00:00:00:00:01, port 49152 to 10.77.0.101, 02:00:00:00:00:02, port 5555.
 */
#ifndef TESTS_UNIT_TEST_FRAME_H
#define TESTS_UNIT_TEST_FRAME_H

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/dpdk/frame.h"
#include "tests/unit/unit.h"

#define HERE 0x0a4d0001u
#define THERE 0x0a4d0065u
#define GROUP 0xefcd0007u
#define ALL_CHECKED (FRAME_IP_CHECKED | FRAME_UDP_CHECKED)

/* Places in a frame without a tag and without IP options. */
#define AT_TYPE 12
#define AT_IP 14
#define AT_UDP 34
#define AT_PAYLOAD 42
#define AT_SIX 54 /* what follows the IPv6 header */

/* "winnow!": an odd number of bytes. */
#define UDP_TEXT                                                                                   \
	"020000000002020000000001080045000023000040004011"                                         \
	"25cb0a4d00010a4d0065c00015b3000f9ecd77696e6e6f7721"
#define UDP_EMPTY                                                                                  \
	"02000000000202000000000108004500001c00004000401125d20a4d00010a4d0065c00015b30008152b"
/* Its checksum comes out as 0, which is written as ffff. */
#define UDP_ZERO                                                                                   \
	"02000000000202000000000108004500001e00004000401125d00a4d00010a4d0065c00015b3000affff1527"
#define UDP_GROUP                                                                                  \
	"01005e4d0007020000000001080045000020000040000111"                                         \
	"7fab0a4d0001efcd000715b31b58000cd2a400010203"
/* As UDP_TEXT, with 8 and with 40 bytes of IP options. */
#define UDP_OPTIONS                                                                                \
	"02000000000202000000000108004700002b006300000911965d0a4d00010a4d0065"                     \
	"0101010101010100c00015b3000f9ecd77696e6e6f7721"
#define UDP_ALL_OPTIONS                                                                            \
	"02000000000202000000000108004f00004b0063000009117e2c0a4d00010a4d0065"                     \
	"01010101010101010101010101010101010101010101010101010101010101010101010101010101"         \
	"c00015b3000f9ecd77696e6e6f7721"
#define ARP_ASKS                                                                                   \
	"ffffffffffff020000000001080600010800060400010200000000010a4d00010000000000000a4d0065"     \
	"000000000000000000000000000000000000"
#define ARP_ANSWERS                                                                                \
	"020000000002020000000001080600010800060400020200000000010a4d00010200000000020a4d0065"     \
	"000000000000000000000000000000000000"
#define IGMP_REPORTS                                                                               \
	"01005e4d0007020000000001080046000020000040000102eab50a4d0001efcd0007"                     \
	"940400001600fa2aefcd0007"
#define IGMP_ASKS_ALL                                                                              \
	"01005e00000102000000000908004600002000070000"                                             \
	"01023a7a0a4d0009e0000001940400001164ee9b00000000"                                         \
	"0000000000000000000000000000"
#define IGMP_ASKS_ONE                                                                              \
	"01005e00000102000000000908004600002000070000"                                             \
	"01022aa70a4d0009efcd0007940400001164fec6efcd0007"                                         \
	"0000000000000000000000000000"

/* From fd77::1 to fd77::65, and to ff15::8077:7. With hop-by-hop options, destination options and a routing header. */
#define UDP6_TEXT                                                                                  \
	"02000000000202000000000186dd60000000000f1140fd770000000000000000000000000001"             \
	"fd770000000000000000000000000065c00015b3000fb87777696e6e6f7721"
#define UDP6_EMPTY                                                                                 \
	"02000000000202000000000186dd6000000000081140fd770000000000000000000000000001"             \
	"fd770000000000000000000000000065c00015b300082ed5"
#define UDP6_GROUP                                                                                 \
	"33338077000702000000000186dd60000000000c1101fd770000000000000000000000000001"             \
	"ff15000000000000000000008077000715b31b58000c4fba00010203"
#define UDP6_ZERO                                                                                  \
	"02000000000202000000000186dd60000000000a1140fd770000000000000000000000000001"             \
	"fd770000000000000000000000000065c00015b3000affff2ed1"
#define UDP6_OPTIONS                                                                               \
	"02000000000202000000000186dd60000000003f0040fd770000000000000000000000000001"             \
	"fd7700000000000000000000000000653c000104000000002b01010c00000000000000000000"             \
	"00001102020000000000ff150000000000000000000080770007c00015b3000fb87777696e6e"             \
	"6f7721"
#define UDP6_PIECE                                                                                 \
	"02000000000202000000000186dd6000000000182c40fd770000000000000000000000000001"             \
	"fd7700000000000000000000000000651100000100000007c00015b30010b85477696e6e6f77"             \
	"2121"
#define ND_ASKS                                                                                    \
	"3333ff00006502000000000186dd6000000000203afffd770000000000000000000000000001"             \
	"ff0200000000000000000001ff00006587007be300000000fd77000000000000000000000000"             \
	"00650101020000000001"
#define ND_ASKS_ONE                                                                                \
	"02000000000202000000000186dd6000000000183afffd770000000000000000000000000001"             \
	"fd77000000000000000000000000006587007f7a00000000fd77000000000000000000000000"             \
	"0065"
#define ND_TRIES                                                                                   \
	"3333ff00006502000000000186dd6000000000183aff00000000000000000000000000000000"             \
	"ff0200000000000000000001ff00006587007c6600000000fd77000000000000000000000000"             \
	"0065"
#define ND_ANSWERS                                                                                 \
	"02000000000102000000000286dd6000000000203afffd770000000000000000000000000065"             \
	"fd77000000000000000000000000000188001a6f60000000fd77000000000000000000000000"             \
	"00650201020000000002"
#define ND_ANSWERS_ALL                                                                             \
	"33330000000102000000000286dd6000000000203afffd770000000000000000000000000065"             \
	"ff020000000000000000000000000001880058e420000000fd77000000000000000000000000"             \
	"00650201020000000002"
#define MLD_REPORTS                                                                                \
	"33338077000702000000000186dd6000000000200001fe80000000000000000000fffe000001"             \
	"ff1500000000000000000000807700073a000502000001008300800200000000ff1500000000"             \
	"00000000000080770007"
#define MLD_ASKS_ALL                                                                               \
	"33330000000102000000000986dd6000000000200001fe80000000000000000000fffe000009"             \
	"ff0200000000000000000000000000013a0005020000010082007d3703e80000000000000000"             \
	"00000000000000000000"
#define MLD_ASKS_ONE                                                                               \
	"33338077000702000000000986dd6000000000240001fe80000000000000000000fffe000009"             \
	"ff1500000000000000000000807700073a000502000001008200809200640000ff1500000000"             \
	"0000000000008077000700000000"

/* Into `out`, which is large enough; how many bytes. */
static inline size_t from_hex(const char *text, uint8_t *out)
{
	size_t bytes = strlen(text) / 2;

	for (size_t i = 0; i < bytes; i++) {
		unsigned value;

		if (sscanf(text + 2 * i, "%2x", &value) != 1)
			return 0;
		out[i] = (uint8_t)value;
	}
	return bytes;
}

static const uint8_t here[] = {2, 0, 0, 0, 0, 1}, there[] = {2, 0, 0, 0, 0, 2};

/* What differs by family; most tests are of both. */
static const struct family {
	const char *text, *options, *empty, *zero, *to_group;
	size_t at_udp;
	uint32_t most; /* bytes of a payload */
	struct net_ip from, to, group;
} families[] = {{UDP_TEXT, UDP_OPTIONS, UDP_EMPTY, UDP_ZERO, UDP_GROUP, AT_UDP, 65507,
                 NET_IPV4(HERE), NET_IPV4(THERE), NET_IPV4(GROUP)},
                {UDP6_TEXT,
                 UDP6_OPTIONS,
                 UDP6_EMPTY,
                 UDP6_ZERO,
                 UDP6_GROUP,
                 AT_SIX,
                 65527,
                 {.bytes = {0xfd, 0x77, [15] = 1}},
                 {.bytes = {0xfd, 0x77, [15] = 0x65}},
                 {.bytes = {0xff, 0x15, [12] = 0x80, 0x77, 0, 7}}}};

#define FAMILY_TEST(name)                                                                          \
	static void test_##name##_of(const struct family *family, bool six);                       \
	TEST(name)                                                                                 \
	{                                                                                          \
		test_##name##_of(&families[0], false);                                             \
		test_##name##_of(&families[1], true);                                              \
	}                                                                                          \
	static void test_##name##_of(const struct family *family, bool six)

/* What is read of a copy in memory of exactly its size, at an odd address: a sanitizer sees a read beyond. */
static inline struct frame parsed(const uint8_t *bytes, size_t size, unsigned checked)
{
	uint8_t *copy = malloc(size + 1);
	struct frame frame;

	assert_non_null(copy);
	if (size > 0)
		memcpy(copy + 1, bytes, size);
	memset(&frame, 0xa5, sizeof(frame));
	frame_parse(copy + 1, size, checked, &frame);
	if (frame.kind == FRAME_UDP) {
		assert_true(frame.payload >= copy + 1 + AT_PAYLOAD);
		assert_true(frame.payload + frame.payload_bytes <= copy + 1 + size);
		frame.payload = bytes + (frame.payload - (copy + 1));
		frame.to_mac = bytes + (frame.to_mac - (copy + 1));
		frame.from_mac = bytes + (frame.from_mac - (copy + 1));
	}
	if (frame.kind == FRAME_NEIGHBOUR && frame.mac != NULL) {
		assert_true(frame.mac >= copy + 1 && frame.mac + 6 <= copy + 1 + size);
		frame.mac = bytes + (frame.mac - (copy + 1));
	}
	free(copy);
	return frame;
}

static inline enum frame_kind kind_of(const uint8_t *bytes, size_t size)
{
	return parsed(bytes, size, 0).kind;
}

/* RFC 1071 in its plainest words: big-endian words, the carry added at once. */
static inline uint16_t plain_sum(uint16_t sum, const uint8_t *bytes, size_t count)
{
	for (size_t i = 0; i < count; i += 2) {
		uint32_t word = (uint32_t)bytes[i] << 8 | (i + 1 < count ? bytes[i + 1] : 0u);
		uint32_t total = sum + word;

		sum = (uint16_t)(total > 0xffff ? total - 0xffff : total);
	}
	return sum;
}

static inline uint32_t word_at(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] << 8 | bytes[1];
}

static inline void word_put(uint8_t *bytes, uint32_t word)
{
	bytes[0] = (uint8_t)(word >> 8);
	bytes[1] = (uint8_t)word;
}

/* The sum of the pseudo-header of what the packet at `ip`, of either family, carries: so many bytes. */
static inline uint16_t plain_pseudo(const uint8_t *ip, uint8_t protocol, uint32_t bytes)
{
	bool of_six = ip[0] >> 4 == 6;
	uint8_t rest[4] = {0, protocol, (uint8_t)(bytes >> 8), (uint8_t)bytes};

	return plain_sum(plain_sum(0, ip + (of_six ? 8 : 12), of_six ? 32 : 8), rest, sizeof(rest));
}

/* Make the checksum of an ICMPv6 message right again. */
static inline void mend_icmp6(uint8_t *bytes)
{
	uint32_t count = word_at(bytes + AT_IP + 4);
	uint8_t *message = bytes + AT_SIX;

	word_put(message + 2, 0);
	word_put(message + 2,
	         (uint16_t)~plain_sum(plain_pseudo(bytes + AT_IP, 58, count), message, count));
}

/* Make the IP checksum right again. */
static inline void mend_ip(uint8_t *ip)
{
	word_put(ip + 10, 0);
	word_put(ip + 10, (uint16_t)~plain_sum(0, ip, (size_t)(ip[0] & 15u) * 4));
}

#endif /* TESTS_UNIT_TEST_FRAME_H */
