// SPDX-License-Identifier: BSD-3-Clause
/* net_address.c - addresses as text, by name, and how to get there */

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/net/net.h"
#include "aggregator/net/sockaddr.h"

/* "::1", "[::1]:5555" and "::1:5555" are what a user of IPv6 writes. */
static bool is_ipv6(const char *text)
{
	char host[64];
	size_t length = strlen(text);
	const char *colon = strrchr(text, ':');
	struct in6_addr address;

	if (text[0] == '[')
		length = strcspn(++text, "]");
	else if (colon != NULL && inet_pton(AF_INET6, text, &address) != 1)
		length = (size_t)(colon - text);
	if (length >= sizeof(host))
		return false;
	memcpy(host, text, length);
	host[length] = '\0';
	return inet_pton(AF_INET6, host, &address) == 1;
}

/* "HOST:PORT" into its parts. */
static int split(const char *text, char host[256], uint16_t *port, struct why *why)
{
	const char *colon = strrchr(text, ':');
	char *end = NULL;
	unsigned long number = 0;

	if (is_ipv6(text))
		return why_set(
			why, -EINVAL,
			"'%.100s' is an IPv6 address: Winnow uses IPv4 only, give an IPv4 address",
			text);
	if (colon != NULL)
		number = strtoul(colon + 1, &end, 10);
	if (colon == NULL || colon == text || colon[1] == '\0' || *end != '\0' || number == 0 ||
	    number > 65535 || (size_t)(colon - text) >= 256)
		return why_set(why, -EINVAL, "'%.100s' is not HOST:PORT, such as 10.0.0.1:5555",
		               text);
	memcpy(host, text, (size_t)(colon - text));
	host[colon - text] = '\0';
	*port = (uint16_t)number;
	return 0;
}

/* The name service has no IPv4 address for it. Does it have another? */
static int tell_unknown(const char *host, int err, struct why *why)
{
	struct addrinfo hints = {.ai_family = AF_INET6, .ai_socktype = SOCK_STREAM}, *found;

	if (getaddrinfo(host, NULL, &hints, &found) != 0)
		return why_set(why, -EHOSTUNREACH, "cannot find host '%.100s': %s", host,
		               gai_strerror(err));
	freeaddrinfo(found);
	return why_set(
		why, -EHOSTUNREACH,
		"host '%.100s' has IPv6 addresses only: Winnow uses IPv4, give it an IPv4 address",
		host);
}

int net_resolve_all(const char *text, struct net_addr *out, uint32_t *count, struct why *why)
{
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
	uint32_t known = 0, i;
	char host[256];
	uint16_t port = 0;
	int err = split(text, host, &port, why);

	if (err != 0)
		return err;
	err = getaddrinfo(host, NULL, &hints, &found);
	if (err != 0)
		return tell_unknown(host, err, why);
	for (const struct addrinfo *at = found; at != NULL && known < NET_NAME_ADDRESSES_MAX;
	     at = at->ai_next) {
		const struct sockaddr_in *in = (const void *)at->ai_addr;

		out[known] = (struct net_addr){.ip = ntohl(in->sin_addr.s_addr), .port = port};
		for (i = 0; out[i].ip != out[known].ip;)
			i++;
		known += i == known;
	}
	freeaddrinfo(found);
	*count = known;
	return 0;
}

int net_resolve(const char *text, struct net_addr *out, struct why *why)
{
	struct net_addr all[NET_NAME_ADDRESSES_MAX];
	uint32_t count;
	int err = net_resolve_all(text, all, &count, why);

	if (err == 0)
		*out = all[0];
	return err;
}

int net_network(const char *text, uint32_t *ip, uint32_t *prefix_bits, struct why *why)
{
	const char *slash = strchr(text, '/');
	size_t length = slash != NULL ? (size_t)(slash - text) : strlen(text);
	struct in_addr address;
	char host[16], *end;
	unsigned long bits = slash != NULL ? strtoul(slash + 1, &end, 10) : 0;

	if (length < sizeof(host)) {
		memcpy(host, text, length);
		host[length] = '\0';
	}
	if (length >= sizeof(host) || inet_pton(AF_INET, host, &address) != 1 ||
	    (slash != NULL && (*end != '\0' || bits == 0 || bits > 32)))
		return why_set(why, -EINVAL,
		               "'%.100s' is not ADDR or ADDR/BITS, such as 10.0.0.1/24", text);
	*ip = ntohl(address.s_addr);
	*prefix_bits = (uint32_t)bits;
	return 0;
}

char *net_format(const struct net_addr *address, char *text)
{
	uint32_t ip = address->ip;

	sprintf(text, "%u.%u.%u.%u:%u", ip >> 24, ip >> 16 & 255, ip >> 8 & 255, ip & 255,
	        address->port);
	return text;
}

uint32_t net_route_mtu(const struct net_addr *to)
{
	struct sockaddr_in address = net_sockaddr(to);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), value = 0, err = 0;
	socklen_t size = sizeof(value);

	if (fd < 0)
		return 0;
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0)
		err = errno;
	else if (getsockopt(fd, IPPROTO_IP, IP_MTU, &value, &size) != 0 || value <= 0)
		value = 1500;
	close(fd);
	errno = err;
	return err == 0 ? (uint32_t)value : 0;
}
