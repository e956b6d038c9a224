// SPDX-License-Identifier: BSD-3-Clause
/* kernel.c - see kernel.h */

#include "aggregator/net/dpdk/kernel.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <linux/bpf.h>
#include <linux/ethtool.h>
#include <linux/filter.h>
#include <linux/if_link.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PORT_DISCARD 9
#define ARP_COMPLETE 0x2

static uint32_t ip_of(const struct sockaddr *address)
{
	return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr);
}

bool kernel_address(uint32_t if_index, uint32_t *ip, uint32_t *prefix_bits)
{
	struct ifaddrs *list;
	bool found = false;

	if (if_index == 0 || getifaddrs(&list) != 0)
		return false;
	for (const struct ifaddrs *a = list; a != NULL && !found; a = a->ifa_next) {
		if (a->ifa_addr == NULL || a->ifa_addr->sa_family != AF_INET ||
		    a->ifa_netmask == NULL || if_nametoindex(a->ifa_name) != if_index ||
		    (*ip != 0 && ip_of(a->ifa_addr) != *ip))
			continue;
		*ip = ip_of(a->ifa_addr);
		*prefix_bits = (uint32_t)__builtin_popcount(ip_of(a->ifa_netmask));
		found = true;
	}
	freeifaddrs(list);
	return found;
}

uint32_t kernel_gateway(uint32_t if_index)
{
	FILE *file = fopen("/proc/thread-self/net/route", "re");
	char line[256], name[IF_NAMESIZE], device[IF_NAMESIZE];
	uint32_t found = 0;

	if (file == NULL)
		return 0;
	while (if_indextoname(if_index, device) != NULL && found == 0 &&
	       fgets(line, sizeof(line), file) != NULL) {
		uint32_t to, by;

		if (sscanf(line, "%15s %" SCNx32 " %" SCNx32, name, &to, &by) == 3 && to == 0 &&
		    strcmp(name, device) == 0)
			found = ntohl(by);
	}
	fclose(file);
	return found;
}

/* One ioctl about an interface; false when there is none. */
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

/* `what` is one of the structs of <linux/ethtool.h>, its cmd filled in. */
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

bool kernel_neighbour(uint32_t if_index, uint32_t ip, uint8_t mac[6])
{
	FILE *file = fopen("/proc/thread-self/net/arp", "re");
	char line[256], address[16], name[IF_NAMESIZE], device[IF_NAMESIZE];
	bool found = false;

	if (file == NULL)
		return false;
	while (if_indextoname(if_index, device) != NULL && !found &&
	       fgets(line, sizeof(line), file) != NULL) {
		struct in_addr there;
		unsigned flags, m[6];

		found = sscanf(line, "%15s %*s %x %x:%x:%x:%x:%x:%x %*s %15s", address, &flags,
		               &m[0], &m[1], &m[2], &m[3], &m[4], &m[5], name) == 9 &&
		        inet_pton(AF_INET, address, &there) == 1 && ntohl(there.s_addr) == ip &&
		        (flags & ARP_COMPLETE) != 0 && strcmp(name, device) == 0;
		for (int i = 0; i < 6 && found; i++)
			mac[i] = (uint8_t)m[i];
	}
	fclose(file);
	return found;
}

static int socket_on(uint32_t if_index)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	char device[IF_NAMESIZE];

	/* Without the right to bind to it, the routing table finds the same one. */
	if (fd >= 0 && if_index != 0 && if_indextoname(if_index, device) != NULL)
		setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device, (socklen_t)strlen(device) + 1);
	return fd;
}

void kernel_ask(uint32_t if_index, uint32_t ip)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
	                         .sin_addr.s_addr = htonl(ip),
	                         .sin_port = htons(PORT_DISCARD)};
	int fd = socket_on(if_index);

	if (fd < 0)
		return;
	(void)!sendto(fd, "", 0, MSG_DONTWAIT, (const struct sockaddr *)&to, sizeof(to));
	close(fd);
}

/* `fd`, or -errno, and it is closed. */
static int unless(bool failed, int fd)
{
	int err = -errno;

	if (failed && fd >= 0)
		close(fd);
	return failed ? err : fd;
}

/* A filter that lets nothing in. */
static int refuse_all(int fd)
{
	struct sock_filter code[] = {{BPF_RET | BPF_K, 0, 0, 0}};
	struct sock_fprog program = {.len = 1, .filter = code};

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

int kernel_reserve(uint32_t ip, uint16_t *port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(ip), .sin_port = htons(*port)};
	socklen_t size = sizeof(address);
	int fd = socket_on(0);
	bool failed = fd < 0 || refuse_all(fd) != 0 ||
	              bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
	              getsockname(fd, (struct sockaddr *)&address, &size) != 0;

	fd = unless(failed, fd);
	*port = ntohs(address.sin_port);
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
	attr.prog_flags = BPF_F_XDP_HAS_FRAGS; /* whatever the MTU */
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

int kernel_join(uint32_t if_index, uint32_t group_ip)
{
	struct ip_mreqn request = {.imr_multiaddr.s_addr = htonl(group_ip),
	                           .imr_ifindex = (int)if_index};
	int fd = socket_on(if_index);

	return unless(fd < 0 || setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request,
	                                   sizeof(request)) != 0,
	              fd);
}
