/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trace_ask.h - what winnow trace and a communicator say to each other
 *
 * Each communicator has a datagram socket in Linux's abstract namespace, which is a network
 * namespace's own and leaves no file behind: "winnow-trace.PID.N". A request is one datagram, its
 * answer another, JSON both. Pure: names and bytes; sockets are the callers'.
 */
#ifndef CLIENT_TRACE_ASK_H
#define CLIENT_TRACE_ASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "client/trace/trace.h"

#define TRACE_ASK_PREFIX "winnow-trace."
#define TRACE_ASK_BYTES 16384 /* of a datagram */

enum trace_order { TRACE_SHOW, TRACE_START, TRACE_STOP };

struct trace_request {
	enum trace_order order;
	/* Of a start. */
	char folder[TRACE_PATH_BYTES]; /* absolute */
	uint64_t limit_bytes;
	uint32_t fine;
};

struct trace_answer {
	uint32_t pid, rank, world;
	char job[TRACE_JOB_BYTES];
	uint64_t operations;                /* recorded */
	char path[TRACE_PATH_BYTES];        /* that is being written; "": none */
	char error[TRACE_PATH_BYTES + 128]; /* "": what was asked for is done */
};

/* The address of the communicator number `number` of a process. */
socklen_t trace_ask_address(uint32_t pid, uint32_t number, struct sockaddr_un *out);

/* Bytes into text[TRACE_ASK_BYTES]; 0: out of memory. */
size_t trace_request_put(const struct trace_request *request, char *text);
size_t trace_answer_put(const struct trace_answer *answer, char *text);

/* false: it is none. */
bool trace_request_take(const char *text, size_t bytes, struct trace_request *out);
bool trace_answer_take(const char *text, size_t bytes, struct trace_answer *out);

#endif /* CLIENT_TRACE_ASK_H */
