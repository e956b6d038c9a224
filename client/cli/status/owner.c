// SPDX-License-Identifier: BSD-3-Clause
/* owner.c - as which user a daemon of this machine runs: the kernel's table of TCP sockets says it */

#include "client/cli/status/status.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sys/socket.h>

#define STATE_LISTEN 0x0a

/* The other end of a connection within the machine has one of its addresses. */
static bool peer_is_here(int fd, struct sockaddr_in *peer)
{
	socklen_t peer_bytes = sizeof(*peer), own_bytes = sizeof(*peer);
	struct sockaddr_in own;

	if (getpeername(fd, (struct sockaddr *)peer, &peer_bytes) != 0 ||
	    getsockname(fd, (struct sockaddr *)&own, &own_bytes) != 0 ||
	    peer->sin_family != AF_INET)
		return false;
	return peer->sin_addr.s_addr == own.sin_addr.s_addr ||
	       ntohl(peer->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

int64_t owner_of(int fd)
{
	unsigned ip, port, state, uid;
	struct sockaddr_in peer;
	int64_t found = -1;
	char line[512];
	FILE *table;

	if (!peer_is_here(fd, &peer))
		return -1;
	table = fopen("/proc/net/tcp", "re");
	if (table == NULL)
		return -1;
	while (fgets(line, sizeof(line), table) != NULL) {
		if (sscanf(line, " %*d: %8X:%4X %*8X:%*4X %2X %*X:%*X %*X:%*X %*X %u", &ip, &port,
		           &state, &uid) != 4 ||
		    state != STATE_LISTEN || port != ntohs(peer.sin_port))
			continue;
		/* Who listens at that very address comes before who listens at all. */
		if (ip == peer.sin_addr.s_addr || (ip == 0 && found < 0))
			found = uid;
	}
	fclose(table);
	return found;
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
