// SPDX-License-Identifier: BSD-3-Clause
/*
 * fuzz_frame.c - what frame.c takes from the wire lies within it, and what it writes it reads again
 *
 * Byte 0 says what the port has checked already, whether lengths and checksums are mended (those of the
 * version that is there), and whether a frame is written from the script instead; the rest is the frame.
 */

#include <arpa/inet.h>

#include "aggregator/dpdk/frame.h"
#include "tests/fuzz/fuzz.h"

#define FLAG_MEND 4
#define FLAG_WRITE 8
#define AT_IP 14
#define AT_TYPE 12
#define IP_BYTES 20
#define SIX_BYTES 40
#define AT_SIX (AT_IP + SIX_BYTES)

static bool inside(const uint8_t *at, size_t count, const uint8_t *bytes, size_t size)
{
	return at >= bytes && count <= size && (size_t)(at - bytes) <= size - count;
}

static void check(const struct frame *frame, const uint8_t *bytes, size_t size)
{
	switch (frame->kind) {
	case FRAME_UDP:
		assert(inside(frame->payload, frame->payload_bytes, bytes, size));
		assert(frame->payload >= bytes + frame_udp_bytes(&frame->to_ip));
		break;
	case FRAME_NEIGHBOUR:
		assert(frame->mac == NULL || inside(frame->mac, FRAME_MAC_BYTES, bytes, size));
		assert(frame->mac != NULL || frame->asks || !net_ip_is_v4(&frame->from_ip));
		assert(!net_ip_none(&frame->from_ip) || frame->mac == NULL ||
		       net_ip_is_v4(&frame->from_ip));
		break;
	case FRAME_QUERY:
	case FRAME_OTHER:
	case FRAME_DAMAGED:
	case FRAME_PIECE:
		break;
	case FRAME_CUT:
		assert(frame->payload == NULL && frame->payload_bytes == 0);
		assert(size >= frame_udp_bytes(&frame->to_ip));
		break;
	}
	if (frame->kind != FRAME_DAMAGED) {
		assert(frame->to_mac == bytes && frame->from_mac == bytes + FRAME_MAC_BYTES);
		assert(size >= 2 * FRAME_MAC_BYTES + 2);
	}
}

/* As above. What is for ICMPv6 has a right checksum, if nothing is between. */
static void mend_six(uint8_t *bytes, size_t size)
{
	uint8_t *ip = bytes + AT_IP;
	uint32_t count = (uint32_t)(size - AT_SIX);
	uint16_t sum;

	bytes[AT_TYPE] = 0x86;
	bytes[AT_TYPE + 1] = 0xdd;
	ip[0] = 6 << 4;
	ip[4] = (uint8_t)(count >> 8);
	ip[5] = (uint8_t)count;
	if (count < 4 || ip[6] != IPPROTO_ICMPV6)
		return;
	memset(ip + SIX_BYTES + 2, 0, 2);
	sum = (uint16_t)~frame_fold(frame_sum(ip + 8, 32) + htons((uint16_t)count) +
	                            htons(IPPROTO_ICMPV6) + frame_sum(ip + SIX_BYTES, count));
	memcpy(ip + SIX_BYTES + 2, &sum, sizeof(sum));
}

/* Make of it an IP packet of its own length, with a right checksum. */
static void mend(uint8_t *bytes, size_t size)
{
	uint8_t *ip = bytes + AT_IP;
	size_t header;
	uint16_t sum;

	if (size < AT_IP + IP_BYTES)
		return;
	if (size >= AT_SIX && ip[0] >> 4 == 6) {
		mend_six(bytes, size);
		return;
	}
	bytes[AT_TYPE] = 8;
	bytes[AT_TYPE + 1] = 0;
	header = (ip[0] & 15u) * 4;
	if (header < IP_BYTES || header > size - AT_IP)
		header = IP_BYTES;
	ip[0] = (uint8_t)(4 << 4 | header / 4);
	ip[2] = (uint8_t)((size - AT_IP) >> 8);
	ip[3] = (uint8_t)(size - AT_IP);
	ip[6] &= 0x40;
	ip[7] = 0;
	memset(ip + 10, 0, 2);
	sum = (uint16_t)~frame_fold(frame_sum(ip, header));
	memcpy(ip + 10, &sum, sizeof(sum));
}

static struct net_ip address(struct script *script, bool six)
{
	struct net_ip ip = net_ipv4(six ? 0 : script_u32(script));

	if (six)
		script_fill(script, ip.bytes, sizeof(ip.bytes));
	if (six && net_ip_is_v4(&ip))
		ip.bytes[0] = 0xfd;
	return ip;
}

/* Of IPv6: that which no station has. */
static bool no_target(const struct net_ip *ip)
{
	return !net_ip_is_v4(ip) && (net_ip_multicast(ip) || net_ip_none(ip));
}

/* Questions, answers and reports are read as what they were written as. */
static void check_small(const struct frame_route *route)
{
	const struct frame_station from = {route->from_mac, route->from_ip};
	const struct frame_station to = {route->to_mac, route->to_ip};
	uint8_t *out = malloc(FRAME_SMALL_BYTES_MAX);
	struct frame frame;

	assert(out != NULL);
	frame_parse(out, frame_ask(out, &from, &to.ip), 0, &frame);
	assert(no_target(&to.ip) || net_ip_none(&from.ip) || frame.kind == FRAME_NEIGHBOUR);
	assert(frame.kind != FRAME_NEIGHBOUR || (frame.asks && net_ip_same(&frame.to_ip, &to.ip) &&
	                                         net_ip_same(&frame.from_ip, &from.ip)));
	frame_parse(out, frame_answer(out, &from, &to), 0, &frame);
	assert(no_target(&from.ip) || (no_target(&to.ip) && !net_ip_none(&to.ip)) ||
	       frame.kind == FRAME_NEIGHBOUR); /* one without an address: to all */
	assert(frame.kind != FRAME_NEIGHBOUR ||
	       (!frame.asks && net_ip_same(&frame.from_ip, &from.ip) &&
	        memcmp(frame.mac, from.mac, FRAME_MAC_BYTES) == 0));
	frame_parse(out, frame_report(out, &from, &to.ip), 0, &frame);
	assert(frame.kind == FRAME_OTHER);
	free(out);
}

static void check_written(struct script *script)
{
	struct frame_route route;
	struct frame frame;
	bool six = script_u8(script) % 2 != 0;
	uint32_t bytes, headers;
	uint8_t *out;

	route.from_ip = address(script, six);
	route.to_ip = address(script, six);
	headers = frame_udp_bytes(&route.to_ip);
	route.from_port = script_u16(script);
	route.to_port = script_u16(script);
	route.hops = script_u8(script);
	script_fill(script, route.from_mac, FRAME_MAC_BYTES);
	script_fill(script, route.to_mac, FRAME_MAC_BYTES);
	bytes = script_below(script, 2000);
	check_small(&route);
	out = malloc(headers + bytes);
	assert(out != NULL);
	script_fill(script, out + headers, bytes);
	for (int finish = 0; finish < 2; finish++) {
		frame_udp(out, &route, bytes, frame_sum(out + headers, bytes), finish);
		frame_parse(out, headers + bytes, 0, &frame);
		assert(frame.kind == FRAME_UDP && frame.payload == out + headers);
		assert(frame.payload_bytes == bytes);
		assert(net_ip_same(&frame.from_ip, &route.from_ip));
		assert(net_ip_same(&frame.to_ip, &route.to_ip));
		assert(frame.from_port == route.from_port);
		assert(frame.to_port == route.to_port);
	}
	free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t input_bytes)
{
	struct frame frame, checked;
	uint8_t *bytes;
	size_t size;

	if (input_bytes == 0)
		return 0;
	if (input[0] & FLAG_WRITE) {
		struct script script = {input + 1, input_bytes - 1};

		check_written(&script);
		return 0;
	}
	size = input_bytes - 1;
	bytes = exact_copy(input + 1, size);
	if (input[0] & FLAG_MEND)
		mend(bytes, size);
	frame_parse(bytes, size, input[0] & (FRAME_IP_CHECKED | FRAME_UDP_CHECKED), &frame);
	check(&frame, bytes, size);
	/* Who looks at less finds the same or more. */
	frame_parse(bytes, size, FRAME_IP_CHECKED | FRAME_UDP_CHECKED, &checked);
	check(&checked, bytes, size);
	assert(frame.kind == FRAME_DAMAGED || checked.kind == frame.kind);
	free(bytes);
	return 0;
}
