/* SPDX-License-Identifier: BSD-3-Clause */
/* sockaddr.h - struct net_addr as the system has it, and back */
#ifndef AGGREGATOR_NET_SOCKADDR_H
#define AGGREGATOR_NET_SOCKADDR_H

#include <arpa/inet.h>
#include <netinet/in.h>

#include "aggregator/net/net.h"

static inline struct sockaddr_in net_sockaddr(const struct net_addr *address)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
	                            .sin_addr.s_addr = htonl(address->ip),
	                            .sin_port = htons(address->port)};
}

static inline struct net_addr net_of_sockaddr(const struct sockaddr_in *address)
{
	return (struct net_addr){.ip = ntohl(address->sin_addr.s_addr),
	                         .port = ntohs(address->sin_port)};
}

#endif /* AGGREGATOR_NET_SOCKADDR_H */
