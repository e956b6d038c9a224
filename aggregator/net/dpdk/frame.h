/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * frame.h - Ethernet frames with UDP over IPv4, ARP or IGMP in them: bytes to structs and back
 *
 * For roads that take whole frames. RFC 894 (Ethernet), 791 (IPv4), 768 (UDP), 826 (ARP), 1112 and
 * 2236 (IGMP), 1071 (checksums). Nothing here does I/O, keeps state or allocates. Addresses
 * and ports are in host byte order, MAC addresses 6 bytes as on the wire.
 */
#ifndef AGGREGATOR_NET_FRAME_H
#define AGGREGATOR_NET_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_MAC_BYTES 6
#define FRAME_UDP_BYTES 42    /* of all headers before a datagram's payload */
#define FRAME_IP_UDP_BYTES 28 /* of those that an MTU counts */
#define FRAME_SMALL_BYTES 60  /* of an ARP or IGMP frame, with Ethernet's padding */

enum frame_kind {
	FRAME_UDP,
	FRAME_ARP,
	FRAME_IGMP_QUERY,
	FRAME_OTHER,   /* other protocols, VLANs: not for us */
	FRAME_DAMAGED, /* lengths or a checksum are wrong */
	FRAME_PIECE,   /* of a datagram that was fragmented on the way */
	FRAME_CUT,     /* a datagram's beginning: all as for FRAME_UDP, but there is no payload */
};

struct frame {
	enum frame_kind kind;
	const uint8_t *to_mac, *from_mac; /* NULL when there are none */
	uint32_t from_ip, to_ip; /* UDP; ARP: sender and target; IGMP: to_ip is the group, or 0 */
	uint16_t from_port, to_port; /* UDP */
	const uint8_t *payload;      /* UDP */
	uint32_t payload_bytes;
	bool arp_request;
	const uint8_t *arp_mac; /* of the sender */
};

/* What the port has looked at already. */
#define FRAME_IP_CHECKED 1u
#define FRAME_UDP_CHECKED 2u

/*
 * frame_parse - bytes[0 .. size) as they came. A UDP checksum of 0 (none) is fine, and so is
 * one that holds the pseudo-header's sum alone: a virtual link hands datagrams on before
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
	uint32_t from_ip, to_ip;
	uint16_t from_port, to_port;
	uint8_t ttl;
};

/*
 * frame_udp - the headers before a payload of `payload_bytes`, whose frame_sum() is payload_sum.
 * finish: the port finishes the UDP checksum; it gets the pseudo-header's sum, and payload_sum
 * is not looked at.
 */
void frame_udp(uint8_t out[FRAME_UDP_BYTES], const struct frame_route *route,
               uint32_t payload_bytes, uint64_t payload_sum, bool finish);

/* frame_arp - a request for to_ip (to_mac NULL: to everyone), or the answer to one. */
void frame_arp(uint8_t out[FRAME_SMALL_BYTES], bool request, const uint8_t *from_mac,
               uint32_t from_ip, const uint8_t *to_mac, uint32_t to_ip);

/* frame_igmp_report - "somebody at from_ip listens to this group" (IGMP version 2). */
void frame_igmp_report(uint8_t out[FRAME_SMALL_BYTES], const uint8_t *from_mac, uint32_t from_ip,
                       uint32_t group);

bool frame_ip_multicast(uint32_t ip);
void frame_multicast_mac(uint32_t group, uint8_t mac[FRAME_MAC_BYTES]);

#endif /* AGGREGATOR_NET_FRAME_H */
