// SPDX-License-Identifier: BSD-3-Clause
/* kernel_routes.c - see kernel.h: neighbours and gateways, by rtnetlink, which has both families in one form */

#include "aggregator/dpdk/kernel.h"

#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_BYTES 32768
#define USABLE (NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT | NUD_NOARP)

struct request {
	struct nlmsghdr head;
	union {
		struct ndmsg neighbour;
		struct rtmsg route;
	} body;
	struct rtattr attribute;
	uint8_t address[16];
};

_Static_assert(sizeof(struct ndmsg) == sizeof(struct rtmsg), "the attribute follows either");

/* Of one kind of address: how many bytes, and where they are in a struct net_ip. */
static size_t address_bytes(bool six)
{
	return six ? sizeof(struct in6_addr) : sizeof(struct in_addr);
}

static const uint8_t *address_of(const struct net_ip *ip)
{
	return ip->bytes + sizeof(ip->bytes) - address_bytes(!net_ip_is_v4(ip));
}

/* The value of one of a message's attributes, if it has this length. */
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

/* Ask, and look at every message of the answer until one is what was wanted. */
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
