/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * frame.h - parses and builds Ethernet frames with UDP over IP, and the frames that IP needs besides
 *
 * RFC 894 and 2464 (Ethernet), 791 (IPv4), 8200 (IPv6), 768 (UDP), 1071 (checksums), 826 (ARP), 4861
 * (neighbour discovery), 1112 and 2236 (IGMP), 2710 (MLD). The protocols for IPv4 and IPv6 have the
 * same functions here, and the family of the addresses chooses. No function does I/O, keeps state or
 * allocates. Ports are in host byte order, MAC addresses 6 bytes as on the wire, and addresses
 * without a scope.
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
#define FRAME_SMALL_BYTES_MAX 86 /* of frames other than UDP */

enum frame_kind {
	FRAME_UDP,
	FRAME_NEIGHBOUR, /* ARP or neighbour discovery */
	FRAME_QUERY,     /* IGMP or MLD asks for listeners of groups */
	FRAME_OTHER,     /* not for us: other protocols, VLANs, what must not leave a link */
	FRAME_DAMAGED,   /* a length or a checksum is wrong */
	FRAME_PIECE,     /* a fragment of a datagram */
	FRAME_CUT,       /* the beginning of a datagram: as FRAME_UDP, but without payload */
};

struct frame {
	enum frame_kind kind;
	const uint8_t *to_mac, *from_mac; /* NULL if there are none */
	/*
	 * UDP: sender and receiver. Neighbour: `mac` is the address of from_ip, or NULL if it is
	 * not given; the frame asks for to_ip, or tells it. Query: to_ip is the group, or none.
	 */
	struct net_ip from_ip, to_ip;
	uint16_t from_port, to_port; /* UDP */
	const uint8_t *payload;      /* UDP */
	uint32_t payload_bytes;
	bool marked; /* UDP: ECN's CE */
	bool asks;   /* neighbour: it is a question */
	const uint8_t *mac;
};

/* Checks that the port has already made. */
#define FRAME_IP_CHECKED 1u
#define FRAME_UDP_CHECKED 2u

/*
 * frame_parse - parses bytes[0 .. size). A UDP checksum of 0 (none) is allowed in IPv4. A checksum
 * of only the pseudo-header is always allowed, because a virtual link passes datagrams on before
 * anyone has finished theirs. A priority tag (VLAN 0) is skipped. *out points into `bytes`.
 */
void frame_parse(const uint8_t *bytes, size_t size, unsigned checked, struct frame *out);

/*
 * frame_sum - the sum of 16-bit words as they lie in memory, not folded; an odd last byte is padded
 * with 0. A software port needs it for every byte in and out, so it is the largest part of a
 * frame's cost there. frame_sum_any() is the same for CPUs without AVX2.
 */
uint64_t frame_sum(const void *data, size_t size);
uint64_t frame_sum_any(const void *data, size_t size);

/* Folds a sum. Sums of pieces can be added if an even number of bytes comes before each. */
uint16_t frame_fold(uint64_t sum);

struct frame_route {
	uint8_t from_mac[FRAME_MAC_BYTES], to_mac[FRAME_MAC_BYTES];
	struct net_ip from_ip, to_ip; /* of the same family */
	uint16_t from_port, to_port;
	uint8_t hops;
	uint8_t tos; /* the traffic class in IPv6 */
};

/* Bytes of all headers before a datagram's payload to this address. */
static inline uint32_t frame_udp_bytes(const struct net_ip *to)
{
	return FRAME_ETHER_BYTES + net_headers(to);
}

/*
 * frame_udp - writes the frame_udp_bytes() before a payload of `payload_bytes`, whose frame_sum()
 * is payload_sum. With `finish` the port completes the UDP checksum: it gets the pseudo-header's
 * sum, and payload_sum is not used.
 */
void frame_udp(uint8_t *out, const struct frame_route *route, uint32_t payload_bytes,
               uint64_t payload_sum, bool finish);

/* A host on the link. */
struct frame_station {
	const uint8_t *mac;
	struct net_ip ip;
};

/* frame_asked_group - the group that hears questions for this address; none for IPv4. */
struct net_ip frame_asked_group(const struct net_ip *ip);

/*
 * frame_ask - asks who has `ip`. frame_answer - says that we have it, to the host that asked, or to
 * all if that has no address yet (it tries an IPv6 address). Return the frame's size.
 */
uint32_t frame_ask(uint8_t out[FRAME_SMALL_BYTES_MAX], const struct frame_station *from,
                   const struct net_ip *ip);
uint32_t frame_answer(uint8_t out[FRAME_SMALL_BYTES_MAX], const struct frame_station *from,
                      const struct frame_station *to);

/* frame_report - says that this host listens to a group (IGMP version 2, MLD version 1). */
uint32_t frame_report(uint8_t out[FRAME_SMALL_BYTES_MAX], const struct frame_station *from,
                      const struct net_ip *group);

void frame_multicast_mac(const struct net_ip *group, uint8_t mac[FRAME_MAC_BYTES]);

#endif /* AGGREGATOR_DPDK_FRAME_H */
