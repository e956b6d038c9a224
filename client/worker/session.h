/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * session.h - everything that a worker does, as one machine without I/O
 *
 * It has one link for each aggregator and, once all links run, an engine over all their channels.
 * When one link ends, the session ends: its operations fail, it tells the other aggregators, and has
 * one line with the reason. The communicator (comm.c) provides sockets and a clock, and the simulation
 * provides its own. One thread; nothing blocks.
 */
#ifndef CLIENT_SESSION_H
#define CLIENT_SESSION_H

#include "client/worker/engine.h"
#include "client/worker/link.h"
#include "client/winnow.h"

#define SESSION_LINKS_MAX 64

struct session;

struct session_config {
	const struct link_config *links; /* [link_count]; only `place` and `from` differ. */
	const char *const *names;        /* [link_count] "host:port", for error texts. */
	uint32_t link_count;
	struct bitmap_pool *pool;
	const struct bitmap_engine *bitmap;
	uint64_t bytes_max;   /* The most memory for what aggregators grant; 0: no limit. */
	bool private_network; /* Nobody else uses it: queues may be long, and loss ends nothing. */
	/* The STAY to send at the door; kind 0 for a newcomer. Otherwise only `begun` and `of` are used. */
	struct control_message stay;
};

enum session_state { SESSION_JOINING, SESSION_RUNNING, SESSION_FAILED };

int session_open(const struct session_config *config, uint64_t now_us, struct session **out);
void session_close(struct session *session);

enum session_state session_state(const struct session *session);
enum winnow_result session_result(const struct session *session); /* Valid after a failure. */
const char *session_error(const struct session *session);         /* A line, or "". */

/*
 * The link to aggregator `index`, for calls that concern it alone. Its lines, datagrams and end go through the session,
 * because they concern all links.
 */
struct link *session_link(const struct session *session, uint32_t index);

/* The terms of its aggregators together. Valid while it runs. */
struct session_shape {
	bool fast;               /* All aggregators add int32 frames in the kernel. */
	uint32_t channels;       /* The channels of all aggregators. */
	uint32_t payload;        /* Bytes of a datagram. */
	uint32_t window;         /* Frames of the largest window. */
	uint32_t op_slots;       /* The fewest operations that may be under way. */
	uint32_t segments_ahead; /* The fewest segments of an operation that may be under way. */
};
struct session_shape session_shape(const struct session *session);

/* A number that identifies the membership on all aggregators. Valid while it runs. */
uint64_t session_tokens(const struct session *session);

/* Sets the bytes of headers before each datagram to or from aggregator `index`; by default those of IPv4. */
void session_headers(struct session *session, uint32_t index, uint32_t bytes);

/* Input from aggregator `index`: a control line, the end of a connection, a datagram. */
void session_line(struct session *session, uint32_t index, const char *line, uint64_t now_us);
void session_gone(struct session *session, uint32_t index, const char *reason);
/* Input from a connection that could not be secured: link_plain(), link_refused(). */
void session_plain(struct session *session, uint32_t index, const char *line);
void session_refused(struct session *session, uint32_t index);
void session_unreachable(struct session *session, uint32_t index, const char *reason);
void session_datagram(struct session *session, uint32_t index, const struct arrival *in,
                      uint64_t now_us);

/* See engine_submit(). Returns INVALID before the session runs, and the session's result after a failure. */
int session_submit(struct session *session, struct allreduce *task, uint64_t now_us);

/* Output to aggregator `index`: control lines, which the caller frees, and datagrams. */
char *session_take_line(struct session *session, uint32_t index, uint64_t now_us);
bool session_pull(struct session *session, uint32_t index, uint64_t now_us, struct packet_out *out);
bool session_work(struct session *session, uint64_t now_us); /* See engine_work(). */
uint64_t session_deadline(const struct session *session);
void session_tick(struct session *session, uint64_t now_us); /* Call at the deadline. */

/* When nothing is left to do: how long to sleep while datagrams gather, at most; 0: they wake the thread. */
uint32_t session_gather_us(struct session *session, uint64_t now_us);

/* Quiet: nothing is under way, and everything is acknowledged. Busy: operations are under way or queued. */
bool session_quiet(const struct session *session);
bool session_busy(const struct session *session);

/*
 * A worker continues after a failure with the remaining workers, or at a boundary with newcomers. It closes this
 * session, waits in another one at the decider's door (world 0), sends STAY there, and joins the membership of
 * link_next(). Each session takes over the open connection to the decider from the one before. MEMBERS.md.
 */

/* Makes the STAY for this membership, with the aggregators that are lost to it; at the door returns the one there. */
void session_stay(const struct session *session, struct control_message *out);

/* The places of the aggregators that drain, as bits. */
uint64_t session_drains(const struct session *session);

void session_says(struct session *session, const char *text); /* link_says() on all links. */
void session_leave(struct session *session);
void session_abort(struct session *session, const char *text);
/* Ends this membership for all, to continue in another one. `keeps`: the connection to the decider stays open. */
void session_move(struct session *session, bool keeps);

/* Ends everything, here with `result` and for all workers with the line `text`. */
void session_fail(struct session *session, enum winnow_result result, const char *text);

/* The largest datagram that has passed to and from all aggregators, or 0 if the session has never run. */
uint32_t session_passes(const struct session *session);

/*
 * The bytes that may wait in this host before they leave it: those of a millisecond, but at least four super-packets.
 * UINT32_MAX on a private network.
 */
uint32_t session_own_queue(const struct session *session);

void session_stats(const struct session *session, struct winnow_stats *out);

/* A line about a worker that has left in good order, or "". */
const char *session_who_left(const struct session *session);

/* A line about workers that the job waits for, from the first link that has one: see struct link. */
const char *session_late(const struct session *session);

#endif /* CLIENT_SESSION_H */
