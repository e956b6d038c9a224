/* SPDX-License-Identifier: BSD-3-Clause */
/* session_state.h - a session's state; for session.c and tests/check only */
#ifndef CLIENT_SESSION_STATE_H
#define CLIENT_SESSION_STATE_H

#include "client/worker/breaker.h"
#include "client/worker/gather.h"
#include "client/worker/session.h"

struct session {
	enum session_state state;
	enum winnow_result result;
	char error[512];
	struct session_config config; /* Its lists are not valid. */
	uint32_t link_count;
	struct link *links[SESSION_LINKS_MAX];
	const char *names[SESSION_LINKS_MAX];
	uint32_t headers[SESSION_LINKS_MAX]; /* Bytes of headers before each datagram. */
	uint64_t silence_us, stall_us;       /* The times that apply: the shortest of all links. */
	uint32_t world;
	uint64_t left_due_us; /* When operations must be done, because a worker has left. */
	struct engine *engine;
	struct gather gather;
	struct breaker breakers[SESSION_LINKS_MAX];
	uint64_t breakers_due_us;                     /* When to look at the breakers. */
	uint32_t first_stream[SESSION_LINKS_MAX + 1]; /* The streams of link i begin here. */
	uint64_t strays;                              /* Datagrams for which no stream was found. */
	uint64_t malformed;                           /* Datagrams that are not of our protocol. */
	char job[CONTROL_JOB_BYTES];
};

#endif /* CLIENT_SESSION_STATE_H */
