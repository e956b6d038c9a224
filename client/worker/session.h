/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * session.h - everything that a worker does, as one machine without I/O
 *
 * One link for each aggregator, and, once all links run, the engine over all their channels.
 * Whatever ends one link ends the session: its operations fail, the other aggregators are told, and
 * one line says why. The communicator (comm.c) brings sockets and a clock; the simulation brings
 * its own. One thread; nothing blocks.
 */
#ifndef CLIENT_SESSION_H
#define CLIENT_SESSION_H

#include "client/worker/engine.h"
#include "client/worker/link.h"
#include "client/winnow.h"

#define SESSION_LINKS_MAX 64

struct session;

struct session_config {
	const struct link_config *links; /* [link_count]: the same but for `place` and `from` */
	const char *const *names;        /* [link_count] "host:port", for error texts */
	uint32_t link_count;
	struct bitmap_pool *pool;
	const struct bitmap_engine *bitmap;
	uint64_t bytes_max;   /* of memory that what the aggregators grant may take; 0: no limit */
	bool private_network; /* nobody else uses it: queues may be long, and loss ends nothing */
	/* What STAY says of memberships before: `begun`, `of`. With world 0 all of it; kind 0: it is a newcomer. */
	struct control_message stay;
};

enum session_state { SESSION_JOINING, SESSION_RUNNING, SESSION_FAILED };

int session_open(const struct session_config *config, uint64_t now_us, struct session **out);
void session_close(struct session *session);

enum session_state session_state(const struct session *session);
enum winnow_result session_result(const struct session *session); /* when failed */
const char *session_error(const struct session *session);         /* one line; "" if none */

/*
 * The link to aggregator `index`, for what concerns it alone. Its lines, datagrams and end go through the session,
 * as they concern all.
 */
struct link *session_link(const struct session *session, uint32_t index);

/* What its aggregators have agreed to, together; once it runs. */
struct session_shape {
	bool fast;               /* all add int32 frames in the kernel */
	uint32_t channels;       /* of all */
	uint32_t payload;        /* of a datagram */
	uint32_t window;         /* frames of the largest */
	uint32_t op_slots;       /* operations under way at a time, the fewest */
	uint32_t segments_ahead; /* of one operation, likewise */
};
struct session_shape session_shape(const struct session *session);

/* Of the job on all aggregators, in one number; when it runs. */
uint64_t session_tokens(const struct session *session);

/* Before each datagram to or from aggregator `index` stand so many bytes: WIRE_ETHERNET_BYTES by IPv4. */
void session_headers(struct session *session, uint32_t index, uint32_t bytes);

/* In: a line, the end of a connection, a datagram of aggregator `index`. */
void session_line(struct session *session, uint32_t index, const char *line, uint64_t now_us);
void session_gone(struct session *session, uint32_t index, const char *reason);
/* The same without the security that was wanted: link_plain(), link_refused(). */
void session_plain(struct session *session, uint32_t index, const char *line);
void session_refused(struct session *session, uint32_t index);
void session_unreachable(struct session *session, uint32_t index, const char *reason);
void session_datagram(struct session *session, uint32_t index, const struct arrival *in,
                      uint64_t now_us);

/*
 * session_submit - see engine_submit(). After a failure returns its result. Before the session
 * runs, operations are not accepted (INVALID).
 */
int session_submit(struct session *session, struct allreduce *task, uint64_t now_us);

/* Out, to aggregator `index`: control lines (malloc'ed, the caller frees), and datagrams. */
char *session_take_line(struct session *session, uint32_t index, uint64_t now_us);
bool session_pull(struct session *session, uint32_t index, uint64_t now_us, struct packet_out *out);
bool session_work(struct session *session, uint64_t now_us); /* see engine_work() */
uint64_t session_deadline(const struct session *session);
void session_tick(struct session *session, uint64_t now_us); /* at the deadline */

/* Nothing under way, everything acknowledged by all; operations under way or queued. */
bool session_quiet(const struct session *session);
bool session_busy(const struct session *session);

/*
 * How a worker continues, after a failure with those who are left, or at a boundary with newcomers: it closes this
 * session, waits in another one at the decider's door (world 0), says STAY there, and goes where link_next() says.
 * Either has the connection to the decider from the one before it, if that stands. MEMBERS.md.
 */

/* What STAY says of this membership, and which aggregators are lost to it; at the door what it has said there. */
void session_stay(const struct session *session, struct control_message *out);

/* Places of the aggregators that drain. */
uint64_t session_drains(const struct session *session);

void session_says(struct session *session, const char *text); /* to all aggregators: link_says() */
void session_leave(struct session *session);
void session_abort(struct session *session, const char *text);
/* To another membership, for which the connection to the decider is kept or not: this one ends, for all. */
void session_move(struct session *session, bool keeps);

/* session_fail - end everything, here with `result` and everywhere with the line `text`. */
void session_fail(struct session *session, enum winnow_result result, const char *text);

/* The largest datagram that has passed to and from all aggregators; 0: it has never run. */
uint32_t session_passes(const struct session *session);

/*
 * session_own_queue - how many bytes may wait in this host before they leave it, as far as windows would let them:
 * a millisecond's, or four super-packets. UINT32_MAX: nobody else uses the network.
 */
uint32_t session_own_queue(const struct session *session);

void session_stats(const struct session *session, struct winnow_stats *out);

/* Which worker has left in good order, in a line; "": none has. */
const char *session_who_left(const struct session *session);

/* Whom the job waits for, by the first link that says so: see struct link. */
const char *session_late(const struct session *session);

#endif /* CLIENT_SESSION_H */
