/* SPDX-License-Identifier: BSD-3-Clause */
/* sockaddr.h - converts struct net_addr to the system's addresses and back */
#ifndef BITMAP_NET_SOCKADDR_H
#define BITMAP_NET_SOCKADDR_H

#include <arpa/inet.h>
#include <netinet/in.h>

#include "bitmap/net/net.h"

union net_sockaddr {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

/* For a socket of AF_INET6; IPv4 addresses stay mapped. Both functions return the size. */
static inline socklen_t net_sockaddr6(const struct net_addr *address, union net_sockaddr *out)
{
	out->in6 = (struct sockaddr_in6){.sin6_family = AF_INET6,
	                                 .sin6_scope_id = address->ip.scope,
	                                 .sin6_port = htons(address->port)};
	memcpy(&out->in6.sin6_addr, address->ip.bytes, sizeof(address->ip.bytes));
	return sizeof(out->in6);
}

/* For a socket of the address's own family, out->any.sa_family. */
static inline socklen_t net_sockaddr(const struct net_addr *address, union net_sockaddr *out)
{
	if (!net_ip_is_v4(&address->ip))
		return net_sockaddr6(address, out);
	out->in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(address->port)};
	memcpy(&out->in.sin_addr, address->ip.bytes + 12, 4);
	return sizeof(out->in);
}

/* Reads only the part that the address's family has. */
static inline struct net_addr net_of_sockaddr(const struct sockaddr *address)
{
	const struct sockaddr_in *in = (const void *)address;
	const struct sockaddr_in6 *in6 = (const void *)address;
	struct net_addr out;

	if (address->sa_family != AF_INET6)
		return (struct net_addr){.ip = net_ipv4(ntohl(in->sin_addr.s_addr)),
		                         .port = ntohs(in->sin_port)};
	out = (struct net_addr){.ip.scope = in6->sin6_scope_id, .port = ntohs(in6->sin6_port)};
	memcpy(out.ip.bytes, &in6->sin6_addr, sizeof(out.ip.bytes));
	return out;
}

/* Joins a group on interface `if_index`. For IPv4, `device` may name it by its address instead. */
static inline int net_group_join(int fd, const struct net_ip *group, uint32_t if_index,
                                 const struct net_ip *device)
{
	struct ip_mreqn four = {
		.imr_multiaddr.s_addr = htonl(net_ip_number(group)),
		.imr_address.s_addr = htonl(net_ip_number(device)),
		.imr_ifindex = (int)if_index,
	};
	struct ipv6_mreq six = {.ipv6mr_interface = if_index};

	if (net_ip_is_v4(group))
		return setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &four, sizeof(four));
	memcpy(&six.ipv6mr_multiaddr, group->bytes, sizeof(six.ipv6mr_multiaddr));
	return setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &six, sizeof(six));
}

/* Calls getsockname() or getpeername() for `get`. Returns what that returns. */
static inline int net_end(int get(int, struct sockaddr *, socklen_t *), int fd,
                          struct net_addr *out)
{
	union net_sockaddr address = {.any.sa_family = AF_INET};
	socklen_t size = sizeof(address);
	int err = get(fd, &address.any, &size);

	*out = net_of_sockaddr(&address.any);
	return err;
}

#endif /* BITMAP_NET_SOCKADDR_H */
