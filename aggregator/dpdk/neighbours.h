/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * neighbours.h - the MAC address that an IP address has, and the port that leads to it
 *
 * A table of fixed size that any thread may read and write at any time: readers never wait, and
 * writers take turns. It does no I/O; the code that uses ARP and neighbour discovery tells it the
 * answers. Addresses are of either family, whatever their scope. A full table drops the oldest of
 * the entries that the new one could replace.
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
	uint64_t heard_us; /* when it was last learned */
};

/* Returns NULL if memory is short. */
struct neighbours *neighbours_new(void);
void neighbours_free(struct neighbours *neighbours);

bool neighbours_find(const struct neighbours *neighbours, const struct net_ip *ip,
                     struct neighbour *out);

/* neighbours_learn - ignores net_ip_none(), which belongs to no host. */
void neighbours_learn(struct neighbours *neighbours, const struct net_ip *ip, const uint8_t mac[6],
                      uint8_t port, uint64_t now_us);

#endif /* AGGREGATOR_DPDK_NEIGHBOURS_H */
