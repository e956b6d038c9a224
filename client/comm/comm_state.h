/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm_state.h - a communicator: a session, its sockets and its thread; private to comm*.c
 *
 * comm.c          the public calls that begin and end communicators
 * comm_members.c  takes a communicator to another membership
 * comm_calls.c    the operations of winnow.h
 * comm_layout.c   makes a request of an operation, whose segments have their own blocks
 * comm_config.c   opens a session from a configuration: key, addresses, data path
 * comm_loop.c     the thread: reads sockets, runs the session, writes sockets
 * comm_net.c      chooses the data path and the size of its datagrams
 * comm_peers.c    the control connections
 * comm_resolve.c  looks up the aggregators' names
 * comm_log.c      tells a caller that joins what it waits for
 * comm_gpu.c      operations on the memory of GPUs
 * comm_trace.c    WINNOW_TRACE
 * comm_settings.c defaults, WINNOW_CONFIG, environment
 * comm_request.c  a request: queued, done, waited for, given back
 * comm_fork.c     closes our connections in a fork's child
 * comm_state.c    errors, waking, what callers see of the session; the public calls that only look
 *
 * Each file calls only those below it.
 *
 * The thread owns the session and the sockets. Callers and the thread share what is under the lock, and atomic fields:
 * docs/threads.md.
 */
#ifndef CLIENT_COMM_STATE_H
#define CLIENT_COMM_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "bitmap/control/job_keys.h"
#include "bitmap/control/lines.h"
#include "bitmap/control/tls.h"
#include "bitmap/net/clock.h"
#include "bitmap/net/net.h"
#include "bitmap/turn.h"
#include "client/worker/array.h"
#include "client/worker/rows.h"
#include "client/worker/session.h"
#include "client/gpu/staging.h"
#include "client/trace/trace.h"

/* How long to try to connect to an aggregator. */
#define COMM_CONNECT_US 30000000          /* that has never answered */
#define COMM_CONNECT_BEFORE_US 10000000   /* that was in an earlier membership */
#define COMM_CONNECT_ALIVE_US 500000      /* that the decider has just named */
#define COMM_CONNECT_ONCE_MORE_US 2000000 /* whose connection has ended without WELCOME */
#define COMM_CONNECT_TRY_US 10000000      /* by each of its name's addresses once */
#define COMM_CONNECT_AGAIN_US 200000      /* the pause before it is tried again */
#define COMM_LEAVE_US 2000000             /* how long to wait for acknowledgements when leaving */
#define COMM_FLUSH_US 500000              /* how long to wait for the last lines to go out */
/* How often to look whether a lost aggregator is back. It doubles each time that the aggregator is lost again. */
#define COMM_LOOK_US 1000000
#define COMM_LOOK_MAX_US 64000000
#define COMM_LOOK_ANSWER_US 500000 /* how long to wait for its HELLO */
#define COMM_LOOK_TURNS 5          /* how often to look for the HELLO meanwhile */
#define COMM_GIVE_UP_LOOK_US 50000 /* how often to look whether the caller gives up */
#define COMM_NEWS_US 10000         /* how old what callers are told may be */
#define COMM_DEVICES_MAX 64

/* A peer's connection. One that has ended is made again when it is due, or the peer is gone for this membership. */
enum comm_peer_state {
	PEER_WAITS,     /* -> CONNECTS, CONNECTED, or GONE when its time is up */
	PEER_CONNECTS,  /* -> CONNECTED, WAITS for its next address, or GONE */
	PEER_CONNECTED, /* -> WAITS where link_again() says so, or GONE */
	PEER_GONE,      /* -> WAITS in another membership */
};

/* The addresses of an aggregator's name, for TCP. */
struct comm_addresses {
	struct net_addr list[NET_NAME_ADDRESSES_MAX]; /* [count] */
	uint32_t count;
	uint32_t index;                 /* The address in use, or the one to try next. */
	struct comm_question *question; /* The look-up under way; NULL: none. */
};

/* When to connect to an aggregator. */
struct comm_tries {
	uint64_t due_us;           /* When to try next. */
	uint64_t until_us;         /* When to stop trying. */
	uint64_t patience_us;      /* How long until_us is after the first try. */
	uint64_t attempt_until_us; /* When to try the next address. */
	uint64_t look_us;    /* How often to look whether an aggregator that is left out is back. */
	uint32_t look_turns; /* How often we have looked for the HELLO of this connection. */
	int refused;         /* The errno of the last try; 0: none has failed yet. */
};

struct comm_connection {
	int fd;            /* Only comm_fork.c opens and closes it, under its lock; -1: none. */
	bool ready;        /* There may be something to read. */
	uint64_t since_us; /* When it was made; valid when connected. */
	struct lines lines;
	struct tls *tls; /* NULL: there is no key, or no connection yet. */
	/* PEER_SPEAKS: TLS or lines have come, as they should; PEER_PLAIN: lines although there is a key. */
	enum { PEER_SILENT, PEER_SPEAKS, PEER_PLAIN } heard;
	size_t out_bytes, out_at; /* The socket has taken out[] up to out_at. */
	char out[LINES_BYTES_MAX];
};

struct comm_datagrams {
	struct net_addr to;  /* Usually the address of the connection; valid when connected. */
	struct net_ip local; /* Our address towards it; valid when connected. */
	struct net *group;   /* The multicast group of its results; NULL: none. */
	bool group_tried;
	bool group_ready; /* The group may have something to read. */
};

/* An aggregator as seen from here. `name` and `place` are constant while there is a thread. */
struct comm_peer {
	char name[256]; /* As the user wrote it. */
	uint32_t place; /* In the list, from 0. */
	bool no_multicast; /* In an earlier membership no multicast came from it: do not wait for any. */
	enum comm_peer_state state;
	struct comm_addresses at;
	struct comm_tries tries;
	struct comm_connection tcp;
	struct comm_datagrams udp;
};

/* A membership as a caller sees it at one moment. */
struct comm_view {
	uint32_t rank, world;
	uint32_t number; /* The number of memberships before it. */
	bool fast;       /* All aggregators add int32 frames in the kernel. */
};

/*
 * A request belongs to its caller until it is queued, and to the thread until it is done; then it is only read.
 * staged.staging is under gpu_lock.
 */
struct winnow_request {
	struct winnow_comm *comm;
	struct allreduce task;
	uint32_t membership; /* The comm_view.number for which it was made. */
	uint64_t submitted_us, done_us;
	struct geometry_part *parts; /* Made by comm_layout.c; NULL: the tensor is one part. */
	struct winnow_rows *rows;    /* The list that is its tensor, or NULL. */
	struct staged staged;        /* comm_gpu.c: what it has on a GPU. */
	struct why why;              /* Valid when it has failed. */
	/* Under the lock. */
	bool done;
	uint32_t holders;       /* References: the caller's, and the library's until it is done. */
	pthread_cond_t changed; /* It is done. */
	STAILQ_ENTRY(winnow_request) next;  /* In `submitted`, or in `unused`. */
	struct winnow_request *made_before; /* The list of all requests. */
};

STAILQ_HEAD(request_list, winnow_request);

/* Constant once there is a thread, but for the scratch, which is the thread's. */
struct comm_fixed {
	struct winnow_config config; /* As the caller gave it, without its texts. */
	struct job_key key;
	struct tls_context *tls; /* NULL: there is no key. */
	uint32_t peers_known;    /* The number of aggregators in the list. */
	const struct net_backend *backend;
	struct net_source source; /* The interface or the address by which to reach aggregators. */
	struct net_port port;
	struct net *net;
	uint8_t *scratch; /* [NET_BURST_MAX * payload], a payload for each packet. */
	struct bitmap_pool *pool;
	int wake_fd;
};

/*
 * What the communicator does now. Only comm_phase_set() changes it, and refuses steps that are not in this table. "M" is
 * the caller that has `move`, or that creates or destroys the communicator; "T" is the thread.
 *
 *   phase      what happens                                        next phase
 *   FORMING    M opens a session, or frees everything              JOINING, STRANDED (M)
 *   STRANDED   nothing: the session or its thread did not begin    FORMING (M)
 *   JOINING    T connects, and waits for the other workers         RUNNING, FAILED (T); STOPPING, FORMING (M)
 *   RUNNING    T runs operations                                   FAILED (T); STOPPING (M)
 *   FAILED     T tells the aggregators                             STOPPING (M)
 *   STOPPING   M waits for T, which has not noticed yet            LEAVING (T)
 *   LEAVING    T waits for operations and acknowledgements         LEFT (T)
 *   LEFT       T sends its last lines, and ends                    FORMING (M)
 *
 * There is a thread from JOINING on. From JOINING it goes back to FORMING if the system has refused the thread.
 */
enum comm_phase {
	COMM_FORMING,
	COMM_STRANDED,
	COMM_JOINING,
	COMM_RUNNING,
	COMM_FAILED,
	COMM_STOPPING,
	COMM_LEAVING,
	COMM_LEFT,
};

/* What this worker is in the session that there is. All but a member wait at the decider's door: MEMBERS.md 3. */
enum comm_role {
	COMM_MEMBER,
	COMM_NEWCOMER, /* has been in no membership yet */
	COMM_STAYING,  /* was a member, and waits for the next membership with a STAY */
};

/* What follows the membership that a caller stops. */
enum comm_course {
	COMM_ENDS,  /* nothing follows */
	COMM_MOVES, /* another membership follows, by new connections */
	COMM_KEEPS, /* another membership follows, by the connection to the decider */
};

/*
 * Owned by the caller that reconfigures the communicator and holds `lock` meanwhile. The calls that create and destroy
 * one have it alone. The thread reads what is marked "ro" without the lock: that is constant while there is a thread.
 */
struct comm_move {
	pthread_mutex_t lock;
	pthread_t thread;
	char job[CONTROL_JOB_BYTES]; /* ro. The job's name, with its membership's if it has one. */
	uint32_t peer_count; /* ro. How many peers, from the first on, are in the membership. */
	/*
	 * ro but for `log`, which is NULL while nothing is to be told. rank, world, payload and join_timeout_ms are this
	 * membership's.
	 */
	struct winnow_config config;
	enum comm_role role;         /* ro */
	bool ended;                  /* The decider has ended the job for good. */
	struct control_message stay; /* What the next STAY says: session_config.stay. */
	uint64_t left_out; /* The places of aggregators that are not in the membership, as bits. */
	/* [member_count] The names of all memberships so far. */
	char (*members)[CONTROL_JOB_BYTES];
	uint32_t member_count;
	struct winnow_stats before; /* ro. What earlier memberships have sent and received. */
	uint32_t came; /* How many newcomers came with the last step into another membership. */
	uint64_t begins_by_us; /* When the next membership must have begun; 0: there is no limit. */
};

/* The thread's. The caller that starts the thread sets it up before. */
struct comm_run {
	uint64_t leave_until_us; /* When to stop waiting in LEAVING, and then in LEFT. */
	bool net_ready;          /* The net may have something to read. */
	bool full;               /* The net had no room when it was last asked to send. */
	uint64_t back; /* The places of left out aggregators that are there again, as bits. */
	bool news; /* Something has happened that callers have not been told: comm_publish_news(). */
	uint64_t news_due_us;  /* When to tell them. */
	uint64_t limit_due_us; /* When to look at the limit again. */
	uint32_t limit;        /* How many bytes may wait in this host; 0: no limit has been set. */
	struct net_in in[NET_BURST_MAX];
	struct net_out out[NET_BURST_MAX];
	struct packet_out packets[NET_BURST_MAX];
	struct trace *trace; /* NULL: none. */
	/* Its folder is NULL if no trace is wanted, or one was tried. */
	struct trace_config trace_config;
	uint64_t gpu_check_us; /* When to check busy GPUs for failures. */
	uint64_t gpu_moved_us; /* When a GPU last finished something. */
};

/* What a job that has not begun yet waits for. */
struct comm_awaits {
	char text[CONTROL_TEXT_BYTES + 256]; /* "": nothing. */
	uint64_t ranks_us; /* Since when it waits for workers; 0: it waits for an aggregator. */
};

/* What the thread tells callers of a membership, besides its phase. */
struct comm_news {
	struct winnow_stats stats; /* With those of earlier memberships. */
	struct comm_awaits awaits;
	char late[CONTROL_TEXT_BYTES];     /* What winnow_comm_late() returns. */
	char deserter[CONTROL_TEXT_BYTES]; /* Which worker has left; "": none. */
	struct control_message next;       /* What the decider has said at its door. */
	uint32_t waiting;                  /* How many newcomers wait at the first aggregator. */
	uint64_t drains; /* The places of aggregators that will end soon, as bits. */
	uint64_t back;   /* The places of left out aggregators that are there again, as bits. */
};

/* A caller ends the membership, or the one that is to come. */
struct comm_end {
	enum winnow_result result; /* OK: no caller does. */
	char text[CONTROL_TEXT_BYTES];
};

/*
 * Everybody's, under `lock`. What is marked "wo" is written only by the thread while there is one, and else only by the
 * caller that has `move`; these two read it without the lock.
 *
 * An operation that begins fails with `result` if that is not OK; else it is queued in RUNNING, and ends with MEMBERS in
 * all other phases.
 */
struct comm_shared {
	pthread_mutex_t lock;
	pthread_cond_t changed;         /* The phase, news.next or the end has changed. */
	_Atomic(enum comm_phase) phase; /* The thread also reads it without the lock. */
	enum winnow_result result;      /* wo. Why the membership has failed; OK: it has not. */
	struct why error;               /* wo. The same as a text. */
	struct session_shape shape;     /* wo. The shape of the last membership that has run. */
	struct comm_view view;
	/* Valid from STOPPING on, and constant then, so the thread reads it without the lock. */
	enum comm_course course;
	struct comm_end end;
	struct comm_news news; /* wo */
	struct turn turn;      /* How soon the thread gets a CPU: constant once a job is joined. */
	struct request_list submitted, unused;
	struct winnow_request *requests; /* All that exist. */
	uint64_t next_tag;               /* For operations that are matched by order. */
	char says[CONTROL_NAME_BYTES];   /* What this worker says to people who look at status. */
	bool says_new;                   /* The session does not know it yet. */
};

/* Anybody's. */
struct comm_any {
	atomic_bool woken;           /* The thread must read what has changed under the lock. */
	_Atomic bool holds;          /* This worker has the state of the job. */
	_Atomic uint32_t trace_fine; /* wo. Elements per bit of a present or coming trace, or 0. */
	_Atomic uint64_t pinned_bytes; /* How much of the host's memory is pinned for GPUs. */
	_Atomic(struct staging *) gpus[COMM_DEVICES_MAX]; /* By device number. */
	pthread_mutex_t gpu_lock; /* For adding to `gpus`, and for callers that use one. */
};

/*
 * Each part has an owner. A thread that holds one of the locks takes only those that follow it here: move.lock,
 * any.gpu_lock, shared.lock, that of comm_fork.c. The thread takes neither of the first two.
 */
struct winnow_comm {
	/* This process is a fork's child: it has no thread of ours, and a lock may be held for ever. */
	bool inherited;
	LIST_ENTRY(winnow_comm) forked; /* For comm_fork.c. */
	/* Session and peers are the thread's while there is one, else the caller's that has `move`. */
	struct session *session;
	struct comm_peer peers[SESSION_LINKS_MAX];
	struct comm_fixed fixed;
	struct comm_move move;
	struct comm_run run;
	struct comm_shared shared;
	struct comm_any any;
};

/* comm_log.c. What a caller that waits has been told. */
struct comm_wait {
	uint64_t began_us;
	uint64_t due_us; /* When to tell it more, after began_us. */
	char told[CONTROL_TEXT_BYTES + 256];
};

/* These run the caller's config.log, so call them without shared.lock. */
void comm_tell(const struct winnow_config *config, enum winnow_level level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void comm_tell_strangers(const struct winnow_config *config); /* see option_stranger() */
void comm_tell_wait(const struct winnow_config *config, struct comm_wait *wait, const char *text,
                    uint64_t ranks_since_us); /* 0: it waits for no rank. */
void comm_tell_joined(struct winnow_comm *comm);
/* Under the lock, which it gives up meanwhile. Waits a moment for a change, and tells the caller what it waits for. */
void comm_wait_turn(struct winnow_comm *comm, struct comm_wait *wait);
/* For the thread, under the lock. Sets news.awaits. */
void comm_awaits(struct winnow_comm *comm);

/* comm_request.c. A request without an operation; NULL: out of memory. */
struct winnow_request *comm_request_new(struct winnow_comm *comm);

/* An enum winnow_result, explained. Unless it is WINNOW_OK the request is not queued, and the caller must end it. */
int comm_request_queue(struct winnow_request *request, struct why *why);
void comm_request_drop(struct winnow_request *request); /* Releases one of its two references. */

/* The thread calls it when the request's operation is over. */
void comm_complete(struct winnow_request *request);

/* A request that was never queued is done, with this result. */
void comm_request_end(struct winnow_request *request, int result, const char *why);

void comm_requests_free(struct winnow_comm *comm); /* Frees all, when the thread has ended. */

/* comm_layout.c */

/* An operation that a caller wants to begin. */
struct comm_call {
	struct winnow_comm *comm;
	struct comm_view view; /* The membership that it is meant for: comm_view(). */
	/* It has buffers, count, dtype, reduction and access; tag and block_elems may be 0. */
	struct allreduce task;
	const struct winnow_options *options;  /* NULL: none. */
	const struct winnow_segment *segments; /* [segment_count] */
	uint32_t segment_count;
	struct winnow_rows *rows; /* The list that is its tensor, or NULL; comm_begin() takes it. */
	const char *wrong;        /* What is wrong with the arguments, or NULL. */
};

/*
 * Begins an operation as in winnow.h, if nothing is wrong. An enum winnow_result, explained. If the communicator is in
 * another membership by then, the operation ends with MEMBERS.
 */
int comm_begin(const struct comm_call *call, struct winnow_request **out);

/* What is wrong with a tensor's segments, or NULL. */
const char *comm_wrong_segments(const struct winnow_segment *segments, uint32_t segment_count,
                                uint64_t count, bool on_gpu);

/* comm_gpu.c */
bool comm_gpu_wanted(const struct winnow_options *options);

/*
 * The table of winnow-cuda.so, which the first call opens. WINNOW_CUDA_PLUGIN=PATH names another object, for tests.
 * Errors as of net_plugin_open(). Any thread.
 */
int comm_gpu_calls(const struct gpu_calls **out, struct why *why);

/*
 * An error of that table as an enum winnow_result, explained to the caller. A GPU that fails in a
 * caller's thread ends the job of `comm`, if that is not NULL; the caller's mistakes do no harm.
 */
int comm_gpu_result(struct winnow_comm *comm, int err, const struct why *why);

/* The GPU that the buffers are on: locate() of that table, and -EINVAL if they are on two. */
int comm_gpu_find(const struct gpu_calls *calls, const struct allreduce *task, int *device,
                  struct why *why);

/* For a request that is not queued yet. An enum winnow_result, explained. */
int comm_gpu_post(struct winnow_request *request, const struct winnow_options *options);
void comm_gpu_forget(struct winnow_request *request);    /* What was posted does not begin. */
int comm_gpu_open(struct winnow_comm *comm, int device); /* Else the first operation does it. */

/* For the thread. The state has the bits of all GPUs: while one is STAGING_FULL, receive nothing. */
bool comm_gpu_turn(struct winnow_comm *comm, uint64_t now_us);
uint64_t comm_gpu_due_us(struct winnow_comm *comm);
unsigned comm_gpu_state(const struct winnow_comm *comm);
void comm_gpu_close(struct winnow_comm *comm);

/* comm_members.c. A newcomer's session waits at the decider's door: become a member. */
int comm_enter(struct winnow_comm *comm, const volatile int *give_up, struct why *why);

/* Has the caller set the flag that says that it gives up? */
static inline bool comm_given_up(const volatile int *give_up)
{
	return give_up != NULL && __atomic_load_n(give_up, __ATOMIC_RELAXED) != 0;
}

/* comm_calls.c. Waits for what a call has begun, unless its `result` is an error, and frees the request. */
int comm_finish(int result, struct winnow_request *request);

/* comm_settings.c. Is `config` possible, and the file of WINNOW_CONFIG? An enum winnow_result, explained. */
int comm_check_config(const struct winnow_config *config, struct why *why);

/* comm_config.c and comm_net.c. Each returns an enum winnow_result, and explains a failure in `why`. */
int comm_configure(struct winnow_comm *comm, const struct winnow_config *config, struct why *why);
int comm_open_net(struct winnow_comm *comm, const struct winnow_config *config, struct why *why);
/* `from`: the link to the decider, if its connection continues; or NULL. */
int comm_open_session(struct winnow_comm *comm, const struct link *from, struct why *why);

void comm_net_turn(struct winnow_comm *comm, uint64_t now_us); /* For each turn of the thread. */

/* Leaves out the aggregators at the places whose bits `without` has, but never the first. */
void comm_leave_out(struct winnow_comm *comm, uint64_t without);

/*
 * comm_fork.c. Between add and remove, a fork's child closes the control connections. Open and close these descriptors
 * only by the last two calls. comm_fork_socket() makes a stream socket, close-on-exec and non-blocking.
 */
void comm_fork_add(struct winnow_comm *comm);
void comm_fork_remove(struct winnow_comm *comm);
int comm_fork_socket(int *fd, int domain);
void comm_fork_close(int *fd);

/* comm_peers.c. In each turn of the thread; true: something has been read. */
bool comm_peers_turn(struct winnow_comm *comm, uint64_t now_us);
/* There is no thread, and another membership begins. `before`: the places that were left out in the last one, as bits. */
void comm_peers_left_out(struct winnow_comm *comm, uint64_t before);
/* Datagrams to this aggregator go to this address. */
void comm_peer_data(struct winnow_comm *comm, struct comm_peer *peer, const struct net_addr *to);
void comm_peer_close(struct comm_peer *peer);
/* Tells the peer's link when its connection has a key of its own, once the TLS handshake is done. */
void comm_peer_secure(struct winnow_comm *comm, struct comm_peer *peer);
void comm_peer_write(struct winnow_comm *comm, struct comm_peer *peer, uint64_t now_us);

/*
 * comm_resolve.c. For the thread: takes the addresses that the look-up since the last call has found, if any, and begins
 * another look-up.
 */
void comm_resolve_again(struct comm_peer *peer);
/*
 * For the caller that creates the communicator: waits for the first addresses, and tells the caller why it waits. Where
 * workers and aggregators start together, names may be known a moment later. An enum winnow_result, explained.
 */
int comm_resolve_first(struct comm_peer *peer, const struct winnow_config *config,
                       uint64_t patience_us, struct why *why);
void comm_resolve_drop(struct comm_peer *peer); /* Nobody waits for the look-up any more. */

/*
 * comm_trace.c. comm_trace_open() reads the environment. Call comm_trace() for each operation that is submitted,
 * comm_trace_viewed() when the bitmap of a part of one on a GPU has arrived, and comm_trace_end() before the session is
 * closed.
 */
void comm_trace_open(struct winnow_comm *comm);
void comm_trace_viewed(void *request, const struct geometry_part *part, const uint64_t *bits);
void comm_trace(struct winnow_comm *comm, const struct allreduce *task);
void comm_trace_end(struct winnow_comm *comm);

/* comm_loop.c, for the caller that holds move.lock. The first returns an enum winnow_result, explained. */
int comm_start_thread(struct winnow_comm *comm, struct why *why);
/* Ends the session and the thread, if there is one. The phase is FORMING then. */
void comm_stop_thread(struct winnow_comm *comm, enum comm_course course);

/* Waits until all workers have joined. ABORTED: the caller has given up, while the thread still tries to join. */
int comm_await_all(struct winnow_comm *comm, const volatile int *give_up, struct why *why);

/* comm_state.c */
void comm_wake(struct winnow_comm *comm);

/* Has another worker left, in good order? Then `who` is the line for an operation that needs it. Any thread. */
bool comm_deserted(struct winnow_comm *comm, struct why *who);

/* Lets the thread end the membership for all, with this result and line. The first call in a membership counts. */
void comm_end(struct winnow_comm *comm, enum winnow_result result, const char *text);

#define COMM_TAG_BY_ORDER (UINT64_C(1) << 63) /* tags that the library makes have this bit */

#define COMM_WANTS_REQUEST "request is NULL: nobody would know when the operation is done"

/* Returns `result`; winnow_last_error() is `why` then. */
int comm_fail(int result, const char *why);

/* Why a call fails. */
extern const char comm_after_fork[]; /* The communicator is inherited. */
extern const char comm_moves[];      /* No membership runs. */

struct comm_view comm_view(const struct winnow_comm *comm);
/* Under the lock. It also wakes those who wait for `changed`. */
void comm_phase_set(struct winnow_comm *comm, enum comm_phase phase);
/* Under the lock: does the membership of this number run, so that operations may begin? */
bool comm_runs(const struct winnow_comm *comm, uint32_t membership);

/* The value of an enum as a task holds it. 0, which no enum has, stands for what does not fit. */
#define COMM_ENUM(value) (uint8_t)((unsigned int)(value) <= UINT8_MAX ? (value) : 0)

/* Why an operation with these arguments is impossible, or only on a GPU; NULL: it is not. */
const char *comm_wrong_argument(const struct allreduce *task, const struct winnow_options *options);
const char *comm_wrong_on_gpu(const struct winnow_comm *comm, const struct allreduce *task,
                              const struct winnow_options *options);

/* Waits in this library end at times of the monotonic clock. */
void comm_cond_init(pthread_cond_t *cond);
int comm_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock,
                   uint64_t until_us); /* UINT64_MAX: for ever. */

/* Starts a thread that takes no signals, which are the program's business. An enum winnow_result, explained. */
int comm_thread_start(pthread_t *thread, void *(*run)(void *), void *context, struct why *why);

/* Add the counters of `more`. */
void comm_stats_add(struct winnow_stats *stats, const struct winnow_stats *more);

/*
 * For the thread. comm_publish() shows callers that the session runs or has failed; comm_unpublished() says whether they
 * have not seen that yet. comm_publish_news() takes a snapshot of the rest, so that no caller waits for the thread: when
 * the last operation under way is done, and COMM_NEWS_US after other news. All but comm_unpublished() need the lock.
 */
bool comm_unpublished(const struct winnow_comm *comm);
void comm_publish(struct winnow_comm *comm);
void comm_publish_news(struct winnow_comm *comm);

#endif /* CLIENT_COMM_STATE_H */
