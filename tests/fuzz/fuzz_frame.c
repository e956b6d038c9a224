// SPDX-License-Identifier: BSD-3-Clause
/*
 * fuzz_frame.c - what frame.c takes from the wire lies within it, and what it writes it reads again
 *
 * Byte 0 says what the port has checked already, whether lengths and checksums are mended, and
 * whether a frame is written from the script instead; the rest is the frame.
 */

#include "aggregator/net/dpdk/frame.h"
#include "tests/fuzz/fuzz.h"

#define FLAG_MEND 4
#define FLAG_WRITE 8
#define AT_IP 14
#define AT_TYPE 12
#define IP_BYTES 20

static bool inside(const uint8_t *at, size_t count, const uint8_t *bytes, size_t size)
{
	return at >= bytes && count <= size && (size_t)(at - bytes) <= size - count;
}

static void check(const struct frame *frame, const uint8_t *bytes, size_t size)
{
	switch (frame->kind) {
	case FRAME_UDP:
		assert(inside(frame->payload, frame->payload_bytes, bytes, size));
		assert(frame->payload >= bytes + FRAME_UDP_BYTES);
		break;
	case FRAME_ARP:
		assert(inside(frame->arp_mac, FRAME_MAC_BYTES, bytes, size));
		break;
	case FRAME_IGMP_QUERY:
	case FRAME_OTHER:
	case FRAME_DAMAGED:
	case FRAME_PIECE:
		break;
	case FRAME_CUT:
		assert(frame->payload == NULL && frame->payload_bytes == 0);
		assert(size >= FRAME_UDP_BYTES);
		break;
	}
	if (frame->kind != FRAME_DAMAGED) {
		assert(frame->to_mac == bytes && frame->from_mac == bytes + FRAME_MAC_BYTES);
		assert(size >= 2 * FRAME_MAC_BYTES + 2);
	}
}

/* Make of it an IP packet of its own length, with a right checksum. */
static void mend(uint8_t *bytes, size_t size)
{
	uint8_t *ip = bytes + AT_IP;
	size_t header;
	uint16_t sum;

	if (size < AT_IP + IP_BYTES)
		return;
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

static void check_written(struct script *script)
{
	struct frame_route route;
	struct frame frame;
	uint32_t bytes;
	uint8_t *out;

	route.from_ip = script_u32(script);
	route.to_ip = script_u32(script);
	route.from_port = script_u16(script);
	route.to_port = script_u16(script);
	route.ttl = script_u8(script);
	script_fill(script, route.from_mac, FRAME_MAC_BYTES);
	script_fill(script, route.to_mac, FRAME_MAC_BYTES);
	bytes = script_below(script, 2000);
	out = malloc(FRAME_UDP_BYTES + bytes);
	assert(out != NULL);
	script_fill(script, out + FRAME_UDP_BYTES, bytes);
	for (int finish = 0; finish < 2; finish++) {
		frame_udp(out, &route, bytes, frame_sum(out + FRAME_UDP_BYTES, bytes), finish);
		frame_parse(out, FRAME_UDP_BYTES + bytes, 0, &frame);
		assert(frame.kind == FRAME_UDP && frame.payload == out + FRAME_UDP_BYTES);
		assert(frame.payload_bytes == bytes && frame.from_ip == route.from_ip);
		assert(frame.to_ip == route.to_ip && frame.from_port == route.from_port);
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
