// SPDX-License-Identifier: BSD-3-Clause
/*
 * comm_ask.c - the socket by which winnow trace asks a communicator to start or stop recording
 *
 * Only the process's own user and root get an answer; the kernel authenticates the sender. The socket is
 * optional; WINNOW_TRACE_SOCKET=no leaves it out.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/comm/comm.h"

#define NUMBERS_MAX 64 /* communicators of a process */
#define LOOK_US 100000 /* how often the socket is read while the thread does not sleep */

void comm_ask_open(struct winnow_comm *comm)
{
	struct why unused; /* it has been asked before */
	bool wanted;
	int yes = 1;

	if (comm_ask_wanted(&wanted, &unused) != 0 || !wanted)
		return;
	if (comm_fork_socket(&comm->ask_fd, AF_UNIX, SOCK_DGRAM) < 0)
		return;
	if (setsockopt(comm->ask_fd, SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)) == 0) {
		for (uint32_t number = 0; number < NUMBERS_MAX; number++) {
			struct sockaddr_un address;
			socklen_t bytes = trace_ask_address((uint32_t)getpid(), number, &address);

			if (bind(comm->ask_fd, (struct sockaddr *)&address, bytes) == 0)
				return;
			if (errno != EADDRINUSE)
				break;
		}
	}
	comm_ask_close(comm);
}

void comm_ask_close(struct winnow_comm *comm)
{
	comm_fork_close(&comm->ask_fd);
}

/* The sender's user, from the kernel; -1: unknown. */
static uid_t sender(struct msghdr *message)
{
	struct ucred who;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS)
			continue;
		memcpy(&who, CMSG_DATA(c), sizeof(who));
		return who.uid;
	}
	return (uid_t)-1;
}

static void answer_to(struct winnow_comm *comm, const char *text, size_t bytes,
                      const struct msghdr *from)
{
	struct trace_request request;
	struct trace_answer answer;
	char reply[TRACE_ASK_BYTES];
	size_t reply_bytes;

	if (!trace_request_take(text, bytes, &request))
		return;
	comm_trace_order(comm, &request, &answer);
	reply_bytes = trace_answer_put(&answer, reply);
	(void)!sendto(comm->ask_fd, reply, reply_bytes, 0, from->msg_name, from->msg_namelen);
}

/* At most one request per turn, so that requests cannot keep the thread from its work. */
void comm_ask_turn(struct winnow_comm *comm, uint64_t now_us)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(struct ucred))];
	} control;
	char text[TRACE_ASK_BYTES];
	struct sockaddr_un from;
	struct iovec piece = {text, sizeof(text)};
	struct msghdr message = {.msg_name = &from,
	                         .msg_namelen = sizeof(from),
	                         .msg_iov = &piece,
	                         .msg_iovlen = 1,
	                         .msg_control = &control,
	                         .msg_controllen = sizeof(control)};
	ssize_t bytes;
	uid_t who;

	if (comm->ask_fd < 0 || now_us < comm->ask_due_us)
		return;
	comm->ask_due_us = now_us + LOOK_US;
	bytes = recvmsg(comm->ask_fd, &message, MSG_CMSG_CLOEXEC);
	if (bytes < 0 || (message.msg_flags & MSG_TRUNC))
		return;
	who = sender(&message);
	if (who == 0 || who == geteuid())
		answer_to(comm, text, (size_t)bytes, &message);
}
