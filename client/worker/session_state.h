/* SPDX-License-Identifier: BSD-3-Clause */
/* session_state.h - a session's state; for session.c and tests/check only */
#ifndef CLIENT_SESSION_STATE_H
#define CLIENT_SESSION_STATE_H

#include "client/worker/breaker.h"
#include "client/worker/session.h"

struct session {
	enum session_state state;
	enum winnow_result result;
	char error[512];
	struct session_config config; /* its lists are gone */
	uint32_t link_count;
	struct link *links[SESSION_LINKS_MAX];
	const char *names[SESSION_LINKS_MAX];
	uint32_t headers[SESSION_LINKS_MAX]; /* bytes before each datagram */
	uint64_t silence_us, stall_us;       /* that apply: the shortest of all links */
	uint32_t world;
	uint64_t left_due_us; /* a worker has left: operations must be done by this time */
	struct engine *engine;
	struct breaker breakers[SESSION_LINKS_MAX];
	uint64_t breakers_due_us;                     /* when to look at them */
	uint32_t first_stream[SESSION_LINKS_MAX + 1]; /* streams of link i begin here */
	uint64_t strays;                              /* datagrams for which no stream was found */
	uint64_t malformed;                           /* that are none of ours */
	char job[CONTROL_JOB_BYTES];
};

#endif /* CLIENT_SESSION_STATE_H */
