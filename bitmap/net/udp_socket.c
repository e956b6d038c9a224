// SPDX-License-Identifier: BSD-3-Clause
/* udp_socket.c - see udp_socket.h */

#include "bitmap/net/sockaddr.h"
#include "bitmap/net/udp_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int socket_explain(struct why *why, const char *what, const struct net_addr *address)
{
	int err = errno;
	char text[NET_TEXT_BYTES];

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

/* IPv4 takes the device's address if that is one of IPv4, or else its index, as IPv6 does. */
static int set_group(int fd, const struct net_config *config)
{
	bool by_address = net_ip_is_v4(&config->group) && net_ip_is_v4(&config->device);

	return net_group_join(fd, &config->group, by_address ? 0 : net_ip_device(&config->device),
	                      &config->device);
}

/* 2.1: "Datagrams are not fragmented (DF is set)". They come only of groups that were joined; :: has both families. */
static void set_family(int fd, int family, const struct net_config *config)
{
	int on = 1, off = 0, probe = IP_PMTUDISC_PROBE, probe6 = IPV6_PMTUDISC_PROBE;
	bool any = net_ip_none(&config->local.ip) && net_ip_none(&config->group);
	int class = NET_TOS(config->dscp);
	/* By which interface datagrams leave; they come in by any, since this host may be the other end. */
	uint32_t by = htonl(config->interface != NULL ? if_nametoindex(config->interface) : 0);

	setsockopt(fd, IPPROTO_IP, IP_TOS, &class, sizeof(class));
	setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &on, sizeof(on));
	setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof(probe));
	setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &off, sizeof(off));
	setsockopt(fd, IPPROTO_IP, IP_UNICAST_IF, &by, sizeof(by));
	if (family == AF_INET) {
		if (any)
			setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on));
		return;
	}
	setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &class, sizeof(class));
	setsockopt(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, &on, sizeof(on));
	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	setsockopt(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &probe6, sizeof(probe6));
	setsockopt(fd, IPPROTO_IPV6, IPV6_DONTFRAG, &on, sizeof(on));
	setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, &off, sizeof(off));
	setsockopt(fd, IPPROTO_IPV6, IPV6_UNICAST_IF, &by, sizeof(by));
	if (any)
		setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on));
}

/* The system doubles what it is told, and counts what a datagram takes of its memory. */
uint32_t udp_socket_limit(int fd, uint32_t bytes)
{
	return set_buffer(fd, SO_SNDBUF, SO_SNDBUFFORCE, bytes / 2);
}

static void set_options(const struct net_config *config, struct net_facts *out)
{
	int on = 1, fd = out->fd;

	/*
	 * Workers on one machine share a group's port. Other sockets must not share theirs: among
	 * sockets that allow it, the system gives the same free port to two, and one of them hears
	 * nothing.
	 */
	if (!net_ip_none(&config->group))
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (config->queue_count > 1)
		setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
	setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on));
	out->buffer_bytes = set_buffer(fd, SO_RCVBUF, SO_RCVBUFFORCE, config->buffer_bytes);
	out->send_bytes = udp_socket_limit(fd, 2 * config->buffer_bytes);
}

static int bind_to(int fd, const struct net_config *config, const struct net_addr *at,
                   struct net_addr *local, struct why *why)
{
	union net_sockaddr address;
	socklen_t size = net_sockaddr(at, &address);

	if (bind(fd, &address.any, size) != 0 || net_end(getsockname, fd, local) != 0)
		return socket_explain(why, "cannot bind UDP", &config->local);
	if (config->queue_count > 1 && set_steering(fd, config->queue_count) != 0)
		return socket_explain(why, "cannot steer datagrams of UDP", &config->local);
	if (!net_ip_none(&config->group) && set_group(fd, config) != 0)
		return socket_explain(why, "cannot join the multicast group for", &config->local);
	return 0;
}

static int socket_of(const struct net_addr *at)
{
	int family = net_ip_is_v4(&at->ip) ? AF_INET : AF_INET6;

	return socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

int udp_socket_open(const struct net_config *config, struct net_facts *out, struct why *why)
{
	struct net_addr at = {.ip = net_ip_none(&config->group) ? config->local.ip : config->group,
	                      .port = config->local.port};
	int err;

	out->payload_max = config->payload_max;
	out->fd = socket_of(&at);
	/* A system without IPv6: then all that there is is IPv4. */
	if (out->fd < 0 && errno == EAFNOSUPPORT && net_ip_none(&at.ip)) {
		at.ip = net_ipv4(0);
		out->fd = socket_of(&at);
	}
	if (out->fd < 0)
		return socket_explain(why, "cannot open a UDP socket for", &config->local);
	set_family(out->fd, net_ip_is_v4(&at.ip) ? AF_INET : AF_INET6, config);
	set_options(config, out);
	err = bind_to(out->fd, config, &at, &out->address, why);
	if (err != 0) {
		close(out->fd);
		out->fd = -1;
	}
	return err;
}
