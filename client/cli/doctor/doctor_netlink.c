// SPDX-License-Identifier: BSD-3-Clause
/*
 * doctor_netlink.c - what a device's driver reports that it can do with XDP, by generic netlink
 *
 * The family "netdev" exists since Linux 6.3. Headers and libbpf of older distributions do not know
 * it, so the few numbers that it needs are defined here.
 */

#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "client/cli/doctor/doctor.h"

#define FAMILY "netdev"
#define DEV_GET 1       /* NETDEV_CMD_DEV_GET */
#define ATTR_IFINDEX 1  /* NETDEV_A_DEV_IFINDEX */
#define ATTR_FEATURES 3 /* NETDEV_A_DEV_XDP_FEATURES */
#define MESSAGE_BYTES 8192
#define ANSWER_LIMIT_US 500000
#define ATTR_HEAD sizeof(struct nlattr) /* NLA_HDRLEN, which is of type int */
#define HEAD_BYTES ((size_t)NLMSG_LENGTH(GENL_HDRLEN))

/* Sends a command with one attribute, of 8 bytes at most: the length of the answer, or 0. */
static size_t ask(int fd, uint16_t type, uint8_t command, uint16_t attribute, const void *value,
                  uint16_t bytes, uint8_t answer[MESSAGE_BYTES])
{
	struct {
		struct nlmsghdr head;
		struct genlmsghdr general;
		struct nlattr attribute;
		uint8_t value[8];
	} message = {
		.head = {.nlmsg_len = sizeof(message),
	                 .nlmsg_type = type,
	                 .nlmsg_flags = NLM_F_REQUEST},
		.general = {.cmd = command, .version = 1},
		.attribute = {.nla_len = (uint16_t)(ATTR_HEAD + bytes), .nla_type = attribute},
	};
	struct nlmsghdr head;
	ssize_t count;

	memcpy(message.value, value, bytes);
	message.head.nlmsg_len -= 8u - (uint32_t)NLA_ALIGN(bytes);
	if (send(fd, &message, message.head.nlmsg_len, 0) < 0)
		return 0;
	count = recv(fd, answer, MESSAGE_BYTES, 0);
	if (count < (ssize_t)HEAD_BYTES)
		return 0;
	memcpy(&head, answer, sizeof(head));
	return head.nlmsg_type == NLMSG_ERROR || head.nlmsg_len > (size_t)count ? 0
	                                                                        : head.nlmsg_len;
}

/* The value of an attribute, if it is there with at least `room` bytes. */
static bool attribute_get(const uint8_t *answer, size_t bytes, uint16_t type, void *out,
                          size_t room)
{
	size_t at = HEAD_BYTES;
	struct nlattr attribute;

	while (at + ATTR_HEAD <= bytes) {
		memcpy(&attribute, answer + at, sizeof(attribute));
		if (attribute.nla_len < ATTR_HEAD || at + attribute.nla_len > bytes)
			return false;
		if ((attribute.nla_type & NLA_TYPE_MASK) == type &&
		    attribute.nla_len >= ATTR_HEAD + room) {
			memcpy(out, answer + at + ATTR_HEAD, room);
			return true;
		}
		at += (size_t)NLA_ALIGN(attribute.nla_len);
	}
	return false;
}

bool doctor_xdp_features(uint32_t index, uint64_t *out)
{
	struct timeval limit = {.tv_usec = ANSWER_LIMIT_US};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);
	uint8_t answer[MESSAGE_BYTES];
	uint16_t family = 0;
	bool found = false;
	size_t bytes;

	if (fd < 0)
		return false;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	bytes = ask(fd, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, FAMILY,
	            sizeof(FAMILY), answer);
	if (attribute_get(answer, bytes, CTRL_ATTR_FAMILY_ID, &family, sizeof(family))) {
		bytes = ask(fd, family, DEV_GET, ATTR_IFINDEX, &index, sizeof(index), answer);
		found = attribute_get(answer, bytes, ATTR_FEATURES, out, sizeof(*out));
	}
	close(fd);
	return found;
}
