// SPDX-License-Identifier: BSD-3-Clause
/* kernel.c - see kernel.h; rtnetlink knows neighbours and gateways of both families */

#include "aggregator/dpdk/kernel.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/bpf.h>
#include <linux/ethtool.h>
#include <linux/filter.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bitmap/net/sockaddr.h"

#define PORT_DISCARD 9
#define ANSWER_BYTES 32768
#define USABLE (NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT | NUD_NOARP)

static uint32_t bits_of(const struct sockaddr *mask)
{
	const struct net_ip ip = net_of_sockaddr(mask).ip;
	uint32_t bits = 0;

	for (size_t i = 0; i < sizeof(ip.bytes); i++)
		bits += (uint32_t)__builtin_popcount(ip.bytes[i]);
	return mask->sa_family == AF_INET ? bits - 16 : bits; /* without the mapped prefix */
}

/* `six` chooses the family if any address will do. */
static bool address_find(const struct ifaddrs *list, uint32_t if_index, bool six, struct net_ip *ip,
                         uint32_t *prefix_bits)
{
	for (const struct ifaddrs *a = list; a != NULL; a = a->ifa_next) {
		struct net_ip one;

		if (a->ifa_addr == NULL || a->ifa_netmask == NULL ||
		    a->ifa_addr->sa_family != (six ? AF_INET6 : AF_INET) ||
		    if_nametoindex(a->ifa_name) != if_index)
			continue;
		one = net_of_sockaddr((const void *)a->ifa_addr).ip;
		if (net_ip_none(ip) ? net_ip_link_local(&one)
		                    : memcmp(one.bytes, ip->bytes, sizeof(one.bytes)) != 0)
			continue;
		*ip = one;
		*prefix_bits = bits_of(a->ifa_netmask);
		return true;
	}
	return false;
}

bool kernel_address(uint32_t if_index, struct net_ip *ip, uint32_t *prefix_bits)
{
	bool six = !net_ip_is_v4(ip), found;
	struct ifaddrs *list;

	if (if_index == 0 || getifaddrs(&list) != 0)
		return false;
	found = address_find(list, if_index, six, ip, prefix_bits) ||
	        (net_ip_none(ip) && address_find(list, if_index, !six, ip, prefix_bits));
	freeifaddrs(list);
	return found;
}

/* Makes one ioctl about an interface. False if it fails. */
static bool interface_ask(uint32_t if_index, unsigned long what, struct ifreq *request)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool done = fd >= 0 && if_indextoname(if_index, request->ifr_name) != NULL &&
	            ioctl(fd, what, request) == 0;

	if (fd >= 0)
		close(fd);
	return done;
}

uint32_t kernel_mtu(uint32_t if_index)
{
	struct ifreq request = {0};

	return interface_ask(if_index, SIOCGIFMTU, &request) ? (uint32_t)request.ifr_mtu : 0;
}

bool kernel_carrier(uint32_t if_index)
{
	struct ifreq request = {0};

	return interface_ask(if_index, SIOCGIFFLAGS, &request) &&
	       (request.ifr_flags & IFF_RUNNING) != 0;
}

/* `what` is a struct of <linux/ethtool.h> whose cmd is filled in. */
static bool ethtool_ask(uint32_t if_index, void *what)
{
	struct ifreq request = {.ifr_data = what};

	return interface_ask(if_index, SIOCETHTOOL, &request);
}

uint32_t kernel_rx_queues(uint32_t if_index)
{
	struct ethtool_channels channels = {.cmd = ETHTOOL_GCHANNELS};

	return ethtool_ask(if_index, &channels) ? channels.combined_count + channels.rx_count : 0;
}

static int socket_on(uint32_t if_index, int family)
{
	int fd = socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	char device[IF_NAMESIZE];

	/* Without the right to bind to the interface, the routing table finds the same one. */
	if (fd >= 0 && if_index != 0 && if_indextoname(if_index, device) != NULL)
		setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device, (socklen_t)strlen(device) + 1);
	return fd;
}

void kernel_ask(uint32_t if_index, const struct net_ip *ip)
{
	struct net_addr to = {.ip = *ip, .port = PORT_DISCARD};
	union net_sockaddr address;
	socklen_t size;
	int fd;

	if (net_ip_link_local(ip))
		to.ip.scope = if_index;
	size = net_sockaddr(&to, &address);
	fd = socket_on(if_index, address.any.sa_family);
	if (fd < 0)
		return;
	(void)!sendto(fd, "", 0, MSG_DONTWAIT, &address.any, size);
	close(fd);
}

/* Returns `fd`, or closes it and returns -errno. */
static int fd_unless(bool failed, int fd)
{
	int err = -errno;

	if (failed && fd >= 0)
		close(fd);
	return failed ? err : fd;
}

/* Attaches a filter that lets nothing in. */
static int refuse_all(int fd)
{
	struct sock_filter code[] = {{BPF_RET | BPF_K, 0, 0, 0}};
	struct sock_fprog program = {.len = 1, .filter = code};

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

int kernel_reserve(const struct net_ip *ip, uint16_t *port)
{
	struct net_addr local = {.ip = *ip, .port = *port};
	union net_sockaddr address;
	socklen_t size = net_sockaddr(&local, &address);
	int fd = socket_on(0, address.any.sa_family);
	bool failed = fd < 0 || refuse_all(fd) != 0 || bind(fd, &address.any, size) != 0 ||
	              net_end(getsockname, fd, &local) != 0;

	fd = fd_unless(failed, fd);
	*port = local.port;
	return fd;
}

static int pass_program(void)
{
	const struct bpf_insn code[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = XDP_PASS},
		{.code = BPF_JMP | BPF_EXIT},
	};
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.prog_type = BPF_PROG_TYPE_XDP;
	attr.expected_attach_type = BPF_XDP;
	attr.insns = (uint64_t)(uintptr_t)code;
	attr.insn_cnt = sizeof(code) / sizeof(code[0]);
	attr.license = (uint64_t)(uintptr_t) "BSD";
	attr.prog_flags = BPF_F_XDP_HAS_FRAGS; /* for any MTU */
	memcpy(attr.prog_name, "winnow_pass", sizeof("winnow_pass"));
	return (int)syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr));
}

int kernel_single_frames(uint32_t if_index)
{
	struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
	union bpf_attr attr;
	int program, link;

	if (!ethtool_ask(if_index, &info) || strcmp(info.driver, "veth") != 0)
		return -ENOTSUP;
	program = pass_program();
	if (program < 0)
		return -errno;
	memset(&attr, 0, sizeof(attr));
	attr.link_create.prog_fd = (uint32_t)program;
	attr.link_create.target_ifindex = if_index;
	attr.link_create.attach_type = BPF_XDP;
	attr.link_create.flags = XDP_FLAGS_DRV_MODE;
	link = (int)syscall(SYS_bpf, BPF_LINK_CREATE, &attr, sizeof(attr));
	if (link < 0)
		link = errno == EEXIST ? -EBUSY : -errno;
	close(program);
	return link;
}

int kernel_join(uint32_t if_index, const struct net_ip *group)
{
	const struct net_ip any = {.scope = 0};
	int fd = socket_on(if_index, net_ip_is_v4(group) ? AF_INET : AF_INET6);

	return fd_unless(fd < 0 || net_group_join(fd, group, if_index, &any) != 0, fd);
}

int kernel_hear_groups(uint32_t if_index)
{
	struct packet_mreq request = {.mr_ifindex = (int)if_index, .mr_type = PACKET_MR_ALLMULTI};
	int fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	return fd_unless(fd < 0 || setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request,
	                                      sizeof(request)) != 0,
	                 fd);
}

/* ---- neighbours and gateways ---- */

struct request {
	struct nlmsghdr head;
	union {
		struct ndmsg neighbour;
		struct rtmsg route;
	} body;
	struct rtattr attribute;
	uint8_t address[16];
};

_Static_assert(sizeof(struct ndmsg) == sizeof(struct rtmsg), "the attribute follows either struct");

/* The size of an address, and where it is in a struct net_ip. */
static size_t address_bytes(bool six)
{
	return six ? sizeof(struct in6_addr) : sizeof(struct in_addr);
}

static const uint8_t *address_of(const struct net_ip *ip)
{
	return ip->bytes + sizeof(ip->bytes) - address_bytes(!net_ip_is_v4(ip));
}

/* Returns the value of one of a message's attributes, if it has this length. */
static const void *attribute_find(struct nlmsghdr *message, size_t body, uint16_t type,
                                  size_t value)
{
	struct rtattr *one = (void *)((uint8_t *)NLMSG_DATA(message) + NLMSG_ALIGN(body));
	int left = (int)NLMSG_PAYLOAD(message, body);

	for (; RTA_OK(one, left); one = RTA_NEXT(one, left))
		if (one->rta_type == type && RTA_PAYLOAD(one) == value)
			return RTA_DATA(one);
	return NULL;
}

/* Sends a request and looks at every message of the answer until one is right. */
static bool request_answered(const struct request *request,
                             bool (*look)(struct nlmsghdr *message, uint32_t if_index, void *out),
                             uint32_t if_index, void *out)
{
	_Alignas(struct nlmsghdr) uint8_t answer[ANSWER_BYTES];
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	bool found = false, more = fd >= 0 && send(fd, request, request->head.nlmsg_len, 0) >= 0;

	while (more && !found) {
		int left = (int)recv(fd, answer, sizeof(answer), 0);
		struct nlmsghdr *message = (void *)answer;

		more = left > 0;
		for (; more && !found && left > 0; message = NLMSG_NEXT(message, left)) {
			more = NLMSG_OK(message, left) && message->nlmsg_type != NLMSG_DONE &&
			       message->nlmsg_type != NLMSG_ERROR;
			found = more && look(message, if_index, out);
			more = more && (message->nlmsg_flags & NLM_F_MULTI) != 0;
		}
	}
	if (fd >= 0)
		close(fd);
	return found;
}

static bool look_at_neighbour(struct nlmsghdr *message, uint32_t if_index, void *mac)
{
	const struct ndmsg *body = NLMSG_DATA(message);
	const void *found = attribute_find(message, sizeof(*body), NDA_LLADDR, 6);

	if (message->nlmsg_type != RTM_NEWNEIGH || (uint32_t)body->ndm_ifindex != if_index ||
	    (body->ndm_state & USABLE) == 0 || found == NULL)
		return false;
	memcpy(mac, found, 6);
	return true;
}

bool kernel_neighbour(uint32_t if_index, const struct net_ip *ip, uint8_t mac[6])
{
	bool six = !net_ip_is_v4(ip);
	size_t bytes = address_bytes(six);
	struct request request = {
		.head = {.nlmsg_len = (uint32_t)(offsetof(struct request, address) + bytes),
	                 .nlmsg_type = RTM_GETNEIGH,
	                 .nlmsg_flags = NLM_F_REQUEST},
		.body.neighbour = {.ndm_family = six ? AF_INET6 : AF_INET,
	                           .ndm_ifindex = (int)if_index},
		.attribute = {.rta_len = (uint16_t)(sizeof(struct rtattr) + bytes),
	                      .rta_type = NDA_DST},
	};

	memcpy(request.address, address_of(ip), bytes);
	return if_index != 0 && request_answered(&request, look_at_neighbour, if_index, mac);
}

static bool look_at_route(struct nlmsghdr *message, uint32_t if_index, void *gateway)
{
	const struct rtmsg *body = NLMSG_DATA(message);
	bool six = body->rtm_family == AF_INET6;
	const void *by = attribute_find(message, sizeof(*body), RTA_GATEWAY, address_bytes(six));
	const void *device = attribute_find(message, sizeof(*body), RTA_OIF, sizeof(if_index));
	struct net_ip found = net_ipv4(0);

	if (message->nlmsg_type != RTM_NEWROUTE || body->rtm_dst_len != 0 || by == NULL ||
	    device == NULL || memcmp(device, &if_index, sizeof(if_index)) != 0)
		return false;
	if (six)
		found = (struct net_ip){.scope = 0};
	memcpy(found.bytes + sizeof(found.bytes) - address_bytes(six), by, address_bytes(six));
	memcpy(gateway, &found, sizeof(found));
	return true;
}

struct net_ip kernel_gateway(uint32_t if_index, bool six)
{
	const struct request request = {
		.head = {.nlmsg_len = offsetof(struct request, attribute),
	                 .nlmsg_type = RTM_GETROUTE,
	                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
		.body.route = {.rtm_family = six ? AF_INET6 : AF_INET},
	};
	struct net_ip gateway = {.scope = 0};

	(void)request_answered(&request, look_at_route, if_index, &gateway);
	return gateway;
}
