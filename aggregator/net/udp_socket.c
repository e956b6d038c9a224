// SPDX-License-Identifier: BSD-3-Clause
/* udp_socket.c - see udp_socket.h */

#include "aggregator/net/sockaddr.h"
#include "aggregator/net/udp_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

static int explain(struct why *why, const char *what, const struct net_addr *address)
{
	int err = errno;
	char text[24];

	return why_set(why, -err, "%s %s: %s", what, net_format(address, text), strerror(err));
}

/* The granted size is up to the system's limit; CAP_NET_ADMIN may go beyond. */
static uint32_t set_buffer(int fd, int option, int force, uint32_t bytes)
{
	int value = (int)bytes, granted = 0;
	socklen_t size = sizeof(granted);

	if (setsockopt(fd, SOL_SOCKET, force, &value, sizeof(value)) != 0)
		setsockopt(fd, SOL_SOCKET, option, &value, sizeof(value));
	getsockopt(fd, SOL_SOCKET, option, &granted, &size);
	return (uint32_t)granted;
}

/* The steering byte names the net (classic BPF on the UDP payload; no privilege). */
static int set_steering(int fd, uint32_t queue_count)
{
	struct sock_filter code[] = {
		{BPF_LD | BPF_B | BPF_ABS, 0, 0, NET_STEERING_BYTE},
		{BPF_ALU | BPF_MOD | BPF_K, 0, 0, queue_count},
		{BPF_RET | BPF_A, 0, 0, 0},
	};
	struct sock_fprog program = {.len = 3, .filter = code};

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof(program));
}

static int set_group(int fd, const struct net_config *config)
{
	struct ip_mreqn request = {
		.imr_multiaddr.s_addr = htonl(config->group_ip),
		.imr_address.s_addr = htonl(config->device_ip),
	};

	return setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof(request));
}

static void set_options(int fd, const struct net_config *config, uint32_t *buffer_bytes)
{
	int on = 1, off = 0, probe = IP_PMTUDISC_PROBE;

	/*
	 * Workers on one machine share a group's port. Other sockets must not share theirs: among
	 * sockets that allow it, the system gives the same free port to two, and one of them hears
	 * nothing.
	 */
	if (config->group_ip != 0)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (config->queue_count > 1)
		setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
	setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof(probe));
	setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &off, sizeof(off));
	setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof(on));
	if (config->local.ip == 0 && config->group_ip == 0)
		setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on));
	*buffer_bytes = set_buffer(fd, SO_RCVBUF, SO_RCVBUFFORCE, config->buffer_bytes);
	set_buffer(fd, SO_SNDBUF, SO_SNDBUFFORCE, config->buffer_bytes);
}

static int bind_to(int fd, const struct net_config *config, struct net_addr *local, struct why *why)
{
	uint32_t ip = config->group_ip != 0 ? config->group_ip : config->local.ip;
	struct sockaddr_in address =
		net_sockaddr(&(struct net_addr){.ip = ip, .port = config->local.port});
	socklen_t size = sizeof(address);

	if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
	    getsockname(fd, (struct sockaddr *)&address, &size) != 0)
		return explain(why, "cannot bind UDP", &config->local);
	*local = net_of_sockaddr(&address);
	if (config->queue_count > 1 && set_steering(fd, config->queue_count) != 0)
		return explain(why, "cannot steer datagrams of UDP", &config->local);
	if (config->group_ip != 0 && set_group(fd, config) != 0)
		return explain(why, "cannot join the multicast group for", &config->local);
	return 0;
}

int udp_socket_open(const struct net_config *config, int *fd, struct net_addr *local,
                    uint32_t *buffer_bytes, struct why *why)
{
	int err;

	*fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (*fd < 0)
		return explain(why, "cannot open a UDP socket for", &config->local);
	set_options(*fd, config, buffer_bytes);
	err = bind_to(*fd, config, local, why);
	if (err != 0) {
		close(*fd);
		*fd = -1;
	}
	return err;
}
