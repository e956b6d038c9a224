/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * frame_state.h - shared by reading (frame.c) and writing (frame_write.c)
 *
 * Headers are copied to and from the system's structs, because frames lie at any address.
 */
#ifndef AGGREGATOR_DPDK_FRAME_STATE_H
#define AGGREGATOR_DPDK_FRAME_STATE_H

#include <arpa/inet.h>
#include <net/ethernet.h>
#include <netinet/icmp6.h>
#include <netinet/if_ether.h>
#include <netinet/igmp.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <string.h>

#include "aggregator/dpdk/frame.h"

#define ND_HOPS 255 /* no host beyond the link can send that */
#define LINK_HOPS 1
#define SIX_CLASS_AT 20 /* place of the traffic class in the first word of an IPv6 header */

/* Words of 32 bits fold to the same as their halves of 16 bits. 2^32 of them fit the sum. */
__attribute__((always_inline)) static inline uint64_t sum_loop(const uint8_t *at, size_t size)
{
	size_t words = size / sizeof(uint32_t);
	uint64_t sum = 0;
	uint32_t word;

	for (size_t i = 0; i < words; i++) {
		memcpy(&word, at + i * sizeof(word), sizeof(word));
		sum += word;
	}
	word = 0;
	memcpy(&word, at + words * sizeof(word), size % sizeof(word));
	return sum + word;
}

/*
 * The pseudo-header's sum. The family does not matter: the prefix of a mapped IPv4 address adds up
 * to 0xffff, which folds to nothing.
 */
static inline uint64_t pseudo_sum(const struct net_ip *from, const struct net_ip *to,
                                  uint8_t protocol, uint32_t bytes)
{
	return sum_loop(from->bytes, sizeof(from->bytes)) + sum_loop(to->bytes, sizeof(to->bytes)) +
	       htons(protocol) + htons((uint16_t)bytes);
}

#endif /* AGGREGATOR_DPDK_FRAME_STATE_H */
