/* SPDX-License-Identifier: BSD-3-Clause */
/* udp_socket.h - a UDP socket with all options that net_udp.c wants; private to the udp back end */
#ifndef BITMAP_NET_UDP_SOCKET_H
#define BITMAP_NET_UDP_SOCKET_H

#include "bitmap/net/net.h"

/* udp_socket_open - a non-blocking socket, bound. 0; or -errno with one line in `why`, and out->fd is -1. */
int udp_socket_open(const struct net_config *config, struct net_facts *out, struct why *why);

/* udp_socket_limit - what is sent finds no room while so many bytes have not left the host; returns what is granted. */
uint32_t udp_socket_limit(int fd, uint32_t bytes);

#endif /* BITMAP_NET_UDP_SOCKET_H */
