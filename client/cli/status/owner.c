// SPDX-License-Identifier: BSD-3-Clause
/* owner.c - finds the user of a daemon on this machine in the kernel's tables of TCP sockets */

#include "client/cli/status/status.h"

#include <netinet/in.h>
#include <pwd.h>
#include <string.h>
#include <sys/socket.h>

#include "bitmap/net/sockaddr.h"

#define STATE_LISTEN 0x0a

/* The other end is on this machine if it has our own address or one on loopback. */
static bool peer_is_here(int fd, struct net_addr *peer)
{
	struct net_addr own;

	if (net_end(getpeername, fd, peer) != 0 || net_end(getsockname, fd, &own) != 0)
		return false;
	return net_ip_same(&peer->ip, &own.ip) || net_ip_number(&peer->ip) >> 24 == IN_LOOPBACKNET;
}

/* Reads an address of the tables: one or four words in hex, in the machine's byte order. */
static struct net_ip ip_of(const char *hex)
{
	uint32_t words[4] = {0};
	struct net_ip ip = {.scope = 0};
	int count = sscanf(hex, "%8x%8x%8x%8x", &words[0], &words[1], &words[2], &words[3]);

	if (count == 1)
		return net_ipv4(ntohl(words[0]));
	memcpy(ip.bytes, words, sizeof(ip.bytes));
	return ip;
}

/* Writes the users that listen at this address, found[0], and at the wildcard address, found[1]. */
static void sockets_search(const char *path, const struct net_addr *peer, int64_t found[2])
{
	FILE *table = fopen(path, "re");
	unsigned port, state, uid;
	char line[512], hex[33];

	while (table != NULL && fgets(line, sizeof(line), table) != NULL) {
		struct net_ip ip;

		if (sscanf(line, " %*d: %32[0-9A-F]:%4X %*[0-9A-F]:%*4X %2X %*X:%*X %*X:%*X %*X %u",
		           hex, &port, &state, &uid) != 4 ||
		    state != STATE_LISTEN || port != peer->port)
			continue;
		ip = ip_of(hex);
		if (memcmp(ip.bytes, peer->ip.bytes, sizeof(ip.bytes)) == 0)
			found[0] = uid;
		else if (net_ip_none(&ip) && found[1] < 0)
			found[1] = uid;
	}
	if (table != NULL)
		fclose(table);
}

int64_t owner_of(int fd)
{
	struct net_addr peer;
	int64_t found[2] = {-1, -1};

	if (!peer_is_here(fd, &peer))
		return -1;
	sockets_search("/proc/net/tcp", &peer, found);
	sockets_search("/proc/net/tcp6", &peer, found);
	return found[0] >= 0 ? found[0] : found[1];
}

void owner_name(int64_t uid, char name[OWNER_NAME_BYTES])
{
	char memory[4096];
	struct passwd entry, *found = NULL;

	if (getpwuid_r((uid_t)uid, &entry, memory, sizeof(memory), &found) == 0 && found != NULL)
		snprintf(name, OWNER_NAME_BYTES, "%s", found->pw_name);
	else
		snprintf(name, OWNER_NAME_BYTES, "%lld", (long long)uid);
}
