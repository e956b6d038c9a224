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

struct message {
	struct nlmsghdr head;
	struct genlmsghdr general;
	uint8_t attributes[64];
};

static void message_begin(struct message *message, uint16_t type, uint8_t command)
{
	*message = (struct message){
		.head = {.nlmsg_len = HEAD_BYTES, .nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST},
		.general = {.cmd = command, .version = 1},
	};
}

/* Attributes here are small enough for the room that struct message has. */
static void attribute_put(struct message *message, uint16_t type, const void *value, uint16_t bytes)
{
	struct nlattr attribute = {.nla_len = (uint16_t)(ATTR_HEAD + bytes), .nla_type = type};
	uint8_t *to = (uint8_t *)message + message->head.nlmsg_len;

	memcpy(to, &attribute, sizeof(attribute));
	memcpy(to + ATTR_HEAD, value, bytes);
	message->head.nlmsg_len += (uint32_t)NLA_ALIGN(attribute.nla_len);
}

/* Sends the message and receives the answer: returns its length, or 0 for an error or no answer. */
static size_t exchange(int fd, const struct message *message, uint8_t answer[MESSAGE_BYTES])
{
	struct nlmsghdr head;
	ssize_t bytes;

	if (send(fd, message, message->head.nlmsg_len, 0) < 0)
		return 0;
	bytes = recv(fd, answer, MESSAGE_BYTES, 0);
	if (bytes < (ssize_t)HEAD_BYTES)
		return 0;
	memcpy(&head, answer, sizeof(head));
	if (head.nlmsg_type == NLMSG_ERROR || head.nlmsg_len > (size_t)bytes)
		return 0;
	return head.nlmsg_len;
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
	struct message message;
	uint16_t family = 0;
	bool found = false;
	size_t bytes;

	if (fd < 0)
		return false;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	message_begin(&message, GENL_ID_CTRL, CTRL_CMD_GETFAMILY);
	attribute_put(&message, CTRL_ATTR_FAMILY_NAME, FAMILY, sizeof(FAMILY));
	bytes = exchange(fd, &message, answer);
	if (attribute_get(answer, bytes, CTRL_ATTR_FAMILY_ID, &family, sizeof(family))) {
		message_begin(&message, family, DEV_GET);
		attribute_put(&message, ATTR_IFINDEX, &index, sizeof(index));
		bytes = exchange(fd, &message, answer);
		found = attribute_get(answer, bytes, ATTR_FEATURES, out, sizeof(*out));
	}
	close(fd);
	return found;
}
