/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernel.h - what the kernel knows of an interface that a DPDK port shares with it
 *
 * Where our address is the kernel's own, the kernel answers for it, knows the neighbours and the way
 * out, and joins multicast groups. It must not answer our datagrams.
 */
#ifndef AGGREGATOR_DPDK_KERNEL_H
#define AGGREGATOR_DPDK_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/net/net.h"

/*
 * kernel_address - does interface if_index have *ip? Then all about it. 0.0.0.0 and :: are its first
 * address of that family that is not the link's alone, or else of the other.
 */
bool kernel_address(uint32_t if_index, struct net_ip *ip, uint32_t *prefix_bits);

/* The default gateway by that interface; none: net_ip_none(). */
struct net_ip kernel_gateway(uint32_t if_index, bool six);

uint32_t kernel_mtu(uint32_t if_index); /* 0: there is no such interface */
bool kernel_carrier(uint32_t if_index);

/* Queues that frames arrive in; 0: not known. */
uint32_t kernel_rx_queues(uint32_t if_index);

/* kernel_neighbour - the MAC address of `ip` there; false: not known (yet). */
bool kernel_neighbour(uint32_t if_index, const struct net_ip *ip, uint8_t mac[6]);

/* kernel_ask - let the kernel find out who has `ip`, in its own time. */
void kernel_ask(uint32_t if_index, const struct net_ip *ip);

/*
 * kernel_reserve - a socket on ip and *port (0: any) that takes nothing, so that nobody else takes the
 * port and the kernel does not call it unreachable. Its fd, or -errno.
 */
int kernel_reserve(const struct net_ip *ip, uint16_t *port);

/*
 * kernel_single_frames - the other end of a veth sends super-packets, which no card has cut apart, and a
 * packet socket sees them whole. With an XDP program on this end, even one that lets everything pass,
 * the kernel cuts them. Returns the program's fd, which the caller closes; -ENOTSUP: it is not a veth;
 * -EBUSY: it already has a program, which serves as well; or -errno.
 */
int kernel_single_frames(uint32_t if_index);

/* kernel_join - a socket that makes the interface a member of the group. Its fd, or -errno. */
int kernel_join(uint32_t if_index, const struct net_ip *group);

/*
 * kernel_hear_groups - a socket; while it is open, the interface takes what is sent to any group,
 * whether or not anybody here listens. Its fd, or -errno.
 */
int kernel_hear_groups(uint32_t if_index);

#endif /* AGGREGATOR_DPDK_KERNEL_H */
