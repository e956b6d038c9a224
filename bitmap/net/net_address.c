// SPDX-License-Identifier: BSD-3-Clause
/* net_address.c - addresses as text and by name, and the routes to them */

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bitmap/net/net.h"
#include "bitmap/net/sockaddr.h"

uint64_t net_ip_owner(const struct net_ip *ip)
{
	bool whole = net_ip_is_v4(ip) || net_ip_link_local(ip);
	uint64_t owner;

	memcpy(&owner, ip->bytes + (whole ? 8 : 0), sizeof(owner));
	return owner;
}

uint32_t net_ip_device(const struct net_ip *ip)
{
	struct ifaddrs *all = NULL;
	uint32_t found = 0;

	(void)!getifaddrs(&all);
	for (const struct ifaddrs *at = all; at != NULL && found == 0; at = at->ifa_next) {
		struct net_addr one;

		if (at->ifa_addr == NULL ||
		    (at->ifa_addr->sa_family != AF_INET && at->ifa_addr->sa_family != AF_INET6))
			continue;
		one = net_of_sockaddr(at->ifa_addr);
		if (memcmp(one.ip.bytes, ip->bytes, sizeof(ip->bytes)) == 0 &&
		    (ip->scope == 0 || one.ip.scope == ip->scope))
			found = if_nametoindex(at->ifa_name);
	}
	freeifaddrs(all);
	return found;
}

static bool is_ipv6(const char *text, size_t length)
{
	char host[INET6_ADDRSTRLEN];
	struct in6_addr address;

	snprintf(host, sizeof(host), "%.*s", (int)(length < sizeof(host) ? length : 0), text);
	return inet_pton(AF_INET6, host, &address) == 1;
}

int net_split(const char *text, char host[NET_HOST_BYTES], uint16_t *port, struct why *why)
{
	const char *colon = strrchr(text, ':');
	bool six = text[0] == '[';
	size_t length = colon != NULL ? (size_t)(colon - text) : 0;
	char *end = NULL;
	unsigned long number = 0;

	/* For example "::1" and "::1:5555". */
	if (!six && (is_ipv6(text, strlen(text)) || is_ipv6(text, length)))
		return why_set(
			why, -EINVAL,
			"'%.100s' is not HOST:PORT: an IPv6 address stands in brackets, such "
			"as [fd00::1]:5555",
			text);
	if (colon != NULL && colon[1] >= '0' && colon[1] <= '9')
		number = strtoul(colon + 1, &end, 10);
	if (number == 0 || number > 65535 || *end != '\0' || length == 0 ||
	    length >= NET_HOST_BYTES ||
	    (six && (colon[-1] != ']' || !is_ipv6(text + 1, strcspn(text, "%]") - 1))))
		return why_set(
			why, -EINVAL,
			"'%.100s' is not HOST:PORT, such as 10.0.0.1:5555 or [fd00::1]:5555%s",
			text, number > 65535 ? ": the highest port is 65535" : "");
	snprintf(host, NET_HOST_BYTES, "%.*s", (int)(length - 2 * six), text + six);
	*port = (uint16_t)number;
	return 0;
}

/* A link-local address is only complete with its interface. */
static int check_scope(const char *text, const struct net_addr *address, struct why *why)
{
	if (!net_ip_link_local(&address->ip) || address->ip.scope != 0)
		return 0;
	return why_set(why, -EINVAL,
	               "'%.100s' is valid on one link only: add the interface, such as "
	               "[fe80::1%%eth0]:5555",
	               text);
}

int net_resolve_all(const char *text, struct net_addr *out, uint32_t *count, struct why *why)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
	uint32_t known = 0, i;
	char host[NET_HOST_BYTES];
	uint16_t port = 0;
	int err = net_split(text, host, &port, why);
	bool later; /* the name may be fine */

	if (err != 0)
		return err;
	err = getaddrinfo(host, NULL, &hints, &found);
	later = err == EAI_AGAIN || err == EAI_SYSTEM || err == EAI_MEMORY;
	if (err != 0)
		return why_set(why, later ? -EAGAIN : -EHOSTUNREACH,
		               "cannot find host '%.100s': %s", host, gai_strerror(err));
	for (const struct addrinfo *at = found; at != NULL && known < NET_NAME_ADDRESSES_MAX;
	     at = at->ai_next) {
		if (at->ai_family != AF_INET && at->ai_family != AF_INET6)
			continue;
		out[known] = net_of_sockaddr(at->ai_addr);
		out[known].port = port;
		for (i = 0; !net_addr_same(&out[i], &out[known]);)
			i++;
		known += i == known;
	}
	freeaddrinfo(found);
	*count = known;
	return check_scope(text, &out[0], why);
}

int net_resolve(const char *text, struct net_addr *out, struct why *why)
{
	struct net_addr all[NET_NAME_ADDRESSES_MAX];
	uint32_t count, i = 0;
	int err = net_resolve_all(text, all, &count, why);

	if (err != 0)
		return err;
	while (i < count && !net_ip_is_v4(&all[i].ip))
		i++;
	*out = all[i < count ? i : 0];
	return 0;
}

int net_network(const char *text, struct net_ip *ip, uint32_t *prefix_bits, struct why *why)
{
	const char *slash = strchr(text, '/');
	size_t length = slash != NULL ? (size_t)(slash - text) : strlen(text);
	unsigned long bits = 0;
	char host[INET6_ADDRSTRLEN], *end = NULL;
	struct net_ip six = {.scope = 0};
	struct in_addr four;
	bool v4;

	snprintf(host, sizeof(host), "%.*s", (int)(length < sizeof(host) ? length : 0), text);
	v4 = inet_pton(AF_INET, host, &four) == 1;
	if (slash != NULL && slash[1] >= '0' && slash[1] <= '9')
		bits = strtoul(slash + 1, &end, 10);
	if ((!v4 && (inet_pton(AF_INET6, host, six.bytes) != 1 || net_ip_is_v4(&six))) ||
	    (slash != NULL && (end == NULL || *end != '\0' || bits == 0 || bits > (v4 ? 32 : 128))))
		return why_set(why, -EINVAL,
		               "'%.100s' is not ADDR or ADDR/BITS, such as 10.0.0.1/24 or "
		               "fd00::1/64",
		               text);
	*ip = v4 ? net_ipv4(ntohl(four.s_addr)) : six;
	*prefix_bits = (uint32_t)bits;
	return 0;
}

char *net_ip_format(const struct net_ip *ip, char *text)
{
	bool v4 = net_ip_is_v4(ip);
	char name[IF_NAMESIZE];

	inet_ntop(v4 ? AF_INET : AF_INET6, ip->bytes + (v4 ? 12 : 0), text, NET_TEXT_BYTES);
	if (ip->scope != 0 && if_indextoname(ip->scope, name) != NULL)
		text_add(text, NET_TEXT_BYTES, "%%%s", name);
	else if (ip->scope != 0)
		text_add(text, NET_TEXT_BYTES, "%%%u", ip->scope);
	return text;
}

char *net_format(const struct net_addr *address, char *text)
{
	bool v4 = net_ip_is_v4(&address->ip);
	char host[NET_TEXT_BYTES];

	snprintf(text, NET_TEXT_BYTES, v4 ? "%.60s:%u" : "[%.60s]:%u",
	         net_ip_format(&address->ip, host), address->port);
	return text;
}

int net_source_of(const char *text, struct net_source *out, struct why *why)
{
	struct why unused;
	uint32_t bits;

	*out = (struct net_source){.interface = ""};
	if (strlen(text) < sizeof(out->interface) && if_nametoindex(text) != 0) {
		strcpy(out->interface, text);
		return 0;
	}
	if (net_network(text, &out->ip, &bits, &unused) == 0 && bits == 0 &&
	    net_ip_device(&out->ip) != 0)
		return 0;
	return why_set(why, -EINVAL,
	               "'%.60s' is neither an interface nor an address of this host: see ip "
	               "address",
	               text);
}

/*
 * Binds to an interface alone, whatever the routes say, which needs CAP_NET_RAW before Linux 5.7.
 * Traffic within this host passes no interface.
 */
int net_source_bind(int fd, const struct net_source *source, const struct net_ip *to)
{
	const struct net_addr from = {.ip = source->ip};
	union net_sockaddr address;
	socklen_t size = net_sockaddr(&from, &address);

	if (source->interface[0] != '\0' && net_ip_device(to) == 0 &&
	    setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, source->interface,
	               (socklen_t)strlen(source->interface)) != 0)
		return -errno;
	if (net_ip_none(&source->ip))
		return 0;
	if (net_ip_is_v4(&source->ip) != net_ip_is_v4(to))
		return -EAFNOSUPPORT;
	return bind(fd, &address.any, size) == 0 ? 0 : -errno;
}

uint32_t net_route_mtu(const struct net_addr *to, const struct net_source *from)
{
	union net_sockaddr address;
	socklen_t length = net_sockaddr(to, &address), size = sizeof(int);
	bool v4 = address.any.sa_family == AF_INET;
	int fd = socket(address.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), value = 0, err = 0;

	if (fd < 0)
		return 0;
	err = -net_source_bind(fd, from, &to->ip);
	if (err == 0 && connect(fd, &address.any, length) != 0)
		err = errno;
	else if (err == 0 && (getsockopt(fd, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_MTU : IPV6_MTU,
	                                 &value, &size) != 0 ||
	                      value <= 0))
		value = 1500;
	close(fd);
	errno = err;
	return err == 0 ? (uint32_t)value : 0;
}
