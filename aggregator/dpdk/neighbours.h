/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * neighbours.h - which MAC address an IP address has, and behind which port it is
 *
 * A table of fixed size that any thread may read and write at any time: readers never wait,
 * writers take turns. It does no I/O: who asks by ARP or neighbour
 * discovery tells it what was answered. Addresses are of either family, whatever their scope. A full table
 * forgets the entry that was heard of longest ago among those that the new one could replace.
 */
#ifndef AGGREGATOR_DPDK_NEIGHBOURS_H
#define AGGREGATOR_DPDK_NEIGHBOURS_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/net/net.h"

struct neighbours;

struct neighbour {
	uint8_t mac[6];
	uint8_t port;
	uint64_t heard_us; /* when it was learned last */
};

/* NULL: out of memory. */
struct neighbours *neighbours_new(void);
void neighbours_free(struct neighbours *neighbours);

bool neighbours_find(const struct neighbours *neighbours, const struct net_ip *ip,
                     struct neighbour *out);

/* neighbours_learn - net_ip_none() is nobody's and is not kept. */
void neighbours_learn(struct neighbours *neighbours, const struct net_ip *ip, const uint8_t mac[6],
                      uint8_t port, uint64_t now_us);

#endif /* AGGREGATOR_DPDK_NEIGHBOURS_H */
