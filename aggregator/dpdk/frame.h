/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * frame.h - Ethernet frames with UDP over IP in them, and what IP needs around it: bytes to structs and back
 *
 * For roads that take whole frames. RFC 894 and 2464 (Ethernet), 791 (IPv4), 8200 (IPv6), 768
 * (UDP), 1071 (checksums). Who has an address: 826 (ARP), 4861 (neighbour discovery). Who listens
 * to a group: 1112 and 2236 (IGMP), 2710 (MLD). Each pair is one thing here, and the family of the
 * addresses chooses. Nothing here does I/O, keeps state or allocates. Ports are in host byte
 * order, MAC addresses 6 bytes as on the wire, addresses without a scope.
 */
#ifndef AGGREGATOR_DPDK_FRAME_H
#define AGGREGATOR_DPDK_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bitmap/net/net.h"

#define FRAME_MAC_BYTES 6
#define FRAME_ETHER_BYTES 14
#define FRAME_UDP_BYTES_MAX 62   /* frame_udp_bytes() of IPv6 */
#define FRAME_SMALL_BYTES_MAX 86 /* of the frames that are not UDP */

enum frame_kind {
	FRAME_UDP,
	FRAME_NEIGHBOUR, /* ARP, neighbour discovery */
	FRAME_QUERY,     /* IGMP, MLD: who listens? */
	FRAME_OTHER, /* other protocols, VLANs; from beyond a link that it should not leave: not for us */
	FRAME_DAMAGED, /* lengths or a checksum are wrong */
	FRAME_PIECE,   /* of a datagram that was fragmented on the way */
	FRAME_CUT,     /* a datagram's beginning: all as for FRAME_UDP, but there is no payload */
};

struct frame {
	enum frame_kind kind;
	const uint8_t *to_mac, *from_mac; /* NULL when there are none */
	/*
	 * UDP: from whom and to whom. Neighbour: from_ip has `mac`, or does not say which (NULL); it
	 * asks for to_ip, or tells it. Query: to_ip is the group, or none.
	 */
	struct net_ip from_ip, to_ip;
	uint16_t from_port, to_port; /* UDP */
	const uint8_t *payload;      /* UDP */
	uint32_t payload_bytes;
	bool marked; /* UDP: ECN's CE */
	bool asks;   /* neighbour */
	const uint8_t *mac;
};

/* What the port has looked at already. */
#define FRAME_IP_CHECKED 1u
#define FRAME_UDP_CHECKED 2u

/*
 * frame_parse - bytes[0 .. size) as they came. A UDP checksum of 0 (none) is fine in IPv4, and one
 * that holds the pseudo-header's sum alone always is: a virtual link hands datagrams on before
 * anyone has finished theirs. A priority tag (VLAN 0) is skipped. What *out points to is in `bytes`.
 */
void frame_parse(const uint8_t *bytes, size_t size, unsigned checked, struct frame *out);

/*
 * frame_sum - of 16-bit words as they lie in memory, not folded; an odd last byte is padded with 0.
 * A software port has it made over every byte that comes and goes, so it is the largest single part
 * of what a frame costs there. frame_sum_any() is the same for CPUs without AVX2.
 */
uint64_t frame_sum(const void *data, size_t size);
uint64_t frame_sum_any(const void *data, size_t size);

/* Sums of pieces with an even number of bytes before them can be added; the result is folded. */
uint16_t frame_fold(uint64_t sum);

struct frame_route {
	uint8_t from_mac[FRAME_MAC_BYTES], to_mac[FRAME_MAC_BYTES];
	struct net_ip from_ip, to_ip; /* of one family */
	uint16_t from_port, to_port;
	uint8_t hops;
	uint8_t tos; /* of IPv6: the traffic class */
};

/* Of all headers before a datagram's payload to this address. */
static inline uint32_t frame_udp_bytes(const struct net_ip *to)
{
	return FRAME_ETHER_BYTES + net_headers(to);
}

/*
 * frame_udp - the frame_udp_bytes() before a payload of `payload_bytes`, whose frame_sum() is payload_sum.
 * finish: the port finishes the UDP checksum; it gets the pseudo-header's sum, and payload_sum
 * is not looked at.
 */
void frame_udp(uint8_t *out, const struct frame_route *route, uint32_t payload_bytes,
               uint64_t payload_sum, bool finish);

/* One who has an address of the link. */
struct frame_station {
	const uint8_t *mac;
	struct net_ip ip;
};

/* frame_asked_group - where a question for this address is sent: a group; in IPv4 none, but to all. */
struct net_ip frame_asked_group(const struct net_ip *ip);

/*
 * frame_ask, frame_answer - "who has `ip`?", and "I have". The answer goes to the host that asked, or
 * to all if that has no address yet (it tries whether an IPv6 address is free). Return the frame's size.
 */
uint32_t frame_ask(uint8_t out[FRAME_SMALL_BYTES_MAX], const struct frame_station *from,
                   const struct net_ip *ip);
uint32_t frame_answer(uint8_t out[FRAME_SMALL_BYTES_MAX], const struct frame_station *from,
                      const struct frame_station *to);

/* frame_report - "somebody here listens to this group" (IGMP version 2, MLD version 1). */
uint32_t frame_report(uint8_t out[FRAME_SMALL_BYTES_MAX], const struct frame_station *from,
                      const struct net_ip *group);

void frame_multicast_mac(const struct net_ip *group, uint8_t mac[FRAME_MAC_BYTES]);

#endif /* AGGREGATOR_DPDK_FRAME_H */
