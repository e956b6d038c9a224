/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernel.h - asks the kernel about an interface that it shares with a DPDK port
 *
 * If our address is the kernel's own, the kernel answers for it, knows the neighbours and the
 * route, and joins multicast groups. It must not answer our datagrams.
 */
#ifndef AGGREGATOR_DPDK_KERNEL_H
#define AGGREGATOR_DPDK_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/net/net.h"

/*
 * kernel_address - returns true, with the prefix, if the interface has *ip. 0.0.0.0 and :: become
 * its first address of that family that is not link-local, or else of the other family.
 */
bool kernel_address(uint32_t if_index, struct net_ip *ip, uint32_t *prefix_bits);

/* The default gateway through that interface, or none. */
struct net_ip kernel_gateway(uint32_t if_index, bool six);

uint32_t kernel_mtu(uint32_t if_index); /* 0: no such interface */
bool kernel_carrier(uint32_t if_index);

/* The number of receive queues, or 0 if unknown. */
uint32_t kernel_rx_queues(uint32_t if_index);

/* kernel_neighbour - finds the MAC address of `ip` there. False: not known (yet). */
bool kernel_neighbour(uint32_t if_index, const struct net_ip *ip, uint8_t mac[6]);

/* kernel_ask - has the kernel find out who has `ip`, in its own time. */
void kernel_ask(uint32_t if_index, const struct net_ip *ip);

/*
 * kernel_reserve - opens a socket on ip and *port (0: any) that receives nothing, so that no other
 * program takes the port and the kernel does not report it unreachable. Returns its fd, or -errno.
 */
int kernel_reserve(const struct net_ip *ip, uint16_t *port);

/*
 * kernel_single_frames - the other end of a veth sends super-packets, which no card has split, and
 * a packet socket receives them whole. An XDP program on this end, even one that lets everything
 * pass, has the kernel split them. Returns the program's fd, which the caller closes; -ENOTSUP if
 * it is not a veth; -EBUSY if it already has a program, which serves as well; or -errno.
 */
int kernel_single_frames(uint32_t if_index);

/* kernel_join - opens a socket that joins the group on the interface. Returns its fd, or -errno. */
int kernel_join(uint32_t if_index, const struct net_ip *group);

/*
 * kernel_hear_groups - opens a socket; while it is open, the interface takes datagrams to any
 * group, even if no program here listens. Returns its fd, or -errno.
 */
int kernel_hear_groups(uint32_t if_index);

#endif /* AGGREGATOR_DPDK_KERNEL_H */
