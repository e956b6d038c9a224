// SPDX-License-Identifier: BSD-3-Clause
/* net.c - the list of back ends, and addresses as text */

#include "aggregator/net/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct net_backend *const net_backends[] = {&net_udp, NULL};

const struct net_backend *net_backend_named(const char *name)
{
	for (size_t i = 0; net_backends[i] != NULL; i++)
		if (strcmp(net_backends[i]->name, name) == 0)
			return net_backends[i];
	return NULL;
}

int net_resolve(const char *text, struct net_addr *out, char *why)
{
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
	const char *colon = strrchr(text, ':');
	struct addrinfo *found;
	char host[256], *end = NULL;
	unsigned long port = 0;
	int err;

	if (colon != NULL)
		port = strtoul(colon + 1, &end, 10);
	if (colon == NULL || colon == text || colon[1] == '\0' || *end != '\0' || port == 0 ||
	    port > 65535 || (size_t)(colon - text) >= sizeof(host)) {
		snprintf(why, NET_WHY_BYTES, "'%.100s' is not HOST:PORT, such as 10.0.0.1:5555",
		         text);
		return -EINVAL;
	}
	memcpy(host, text, (size_t)(colon - text));
	host[colon - text] = '\0';
	err = getaddrinfo(host, NULL, &hints, &found);
	if (err != 0) {
		snprintf(why, NET_WHY_BYTES, "cannot find host '%.100s': %s", host,
		         gai_strerror(err));
		return -EHOSTUNREACH;
	}
	out->ip =
		ntohl(((const struct sockaddr_in *)(const void *)found->ai_addr)->sin_addr.s_addr);
	out->port = (uint16_t)port;
	freeaddrinfo(found);
	return 0;
}

char *net_format(const struct net_addr *address, char *text)
{
	uint32_t ip = address->ip;

	sprintf(text, "%u.%u.%u.%u:%u", ip >> 24, ip >> 16 & 255, ip >> 8 & 255, ip & 255,
	        address->port);
	return text;
}
