/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm_state.h - a communicator: a session, its sockets, its thread; private to comm*.c
 *
 * comm.c         the public calls that begin and end communicators
 * comm_members.c another membership for a communicator
 * comm_calls.c   the operations of winnow.h
 * comm_layout.c  an operation becomes a request: segments with their own blocks
 * comm_config.c  key, addresses, session
 * comm_loop.c    the thread: sockets in, session, sockets out
 * comm_net.c     which road datagrams take, and how large they may be
 * comm_peers.c   its control connections
 * comm_resolve.c the addresses of their names, asked for again
 * comm_log.c     what a caller that joins is told
 * comm_gpu.c     operations on the memory of GPUs
 * comm_trace.c   WINNOW_TRACE
 * comm_settings.c defaults, WINNOW_CONFIG, environment
 * comm_request.c a request: queued, done, waited for, given back
 * comm_fork.c    a fork's child keeps none of our connections
 * comm_state.c   errors, waking, what callers see of the session; the public calls that only look
 *
 * Each calls only what stands below it.
 *
 * The thread owns the session and the sockets. Callers and thread share what is under the lock, and atomic fields.
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
#include "client/worker/array.h"
#include "client/worker/rows.h"
#include "client/worker/session.h"
#include "client/gpu/staging.h"
#include "client/trace/trace.h"

#define COMM_CONNECT_US 30000000        /* how long to knock where nobody is, or nobody is known */
#define COMM_CONNECT_BEFORE_US 10000000 /* at one that was there some time ago */
#define COMM_CONNECT_ALIVE_US 500000    /* at one that was alive just before */
#define COMM_CONNECT_TRY_US 10000000    /* how long to try all of a name's addresses once */
#define COMM_CONNECT_AGAIN_US 200000
#define COMM_CONNECT_ONCE_MORE_US 2000000 /* after a connection that ended without WELCOME */
#define COMM_LEAVE_US 2000000             /* how long to wait for acknowledgements when leaving */
/* How often to look whether a lost aggregator is back; doubled each time that it was and came to nothing. */
#define COMM_LOOK_US 1000000
#define COMM_LOOK_MAX_US 64000000
#define COMM_LOOK_ANSWER_US 500000 /* when it must have said hello */
#define COMM_LOOK_TURNS 5          /* so often we look until then */
#define COMM_FLUSH_US 500000       /* how long to wait for the last lines to go out */
#define COMM_GIVE_UP_LOOK_US 50000 /* how often to look at it */
#define COMM_NEWS_US 10000         /* callers are told what has happened so much later at most */
#define COMM_DEVICES_MAX 64

/* What a peer's connection is. A closed one is made again when it is due, or the peer is gone for its membership. */
enum comm_peer_state {
	PEER_WAITS,     /* -> CONNECTS, CONNECTED, or GONE when its time is up */
	PEER_CONNECTS,  /* -> CONNECTED, WAITS for its next address, or GONE */
	PEER_CONNECTED, /* -> WAITS where link_again() says so, or GONE */
	PEER_GONE,      /* -> WAITS in another membership */
};

/* Where its name leads. */
struct comm_addresses {
	struct net_addr list[NET_NAME_ADDRESSES_MAX]; /* for TCP */
	uint32_t count, index;          /* index: the one in use, being tried, or next */
	struct comm_question *question; /* what they are now; NULL: nobody asks */
};

/* When to connect. */
struct comm_tries {
	uint64_t due_us, until_us;
	uint64_t patience_us;      /* from the first try to until_us */
	uint64_t attempt_until_us; /* when to try the next address */
	uint64_t look_us;          /* how often to look whether one that is left out is back */
	uint32_t look_turns;       /* so often we have looked at what it says */
	int refused;               /* errno of the last try; 0: none has failed yet */
};

struct comm_connection {
	int fd;            /* -1: none; made and closed by comm_fork.c, under its lock */
	bool ready;        /* it may have something to read */
	uint64_t since_us; /* valid when connected */
	struct lines lines;
	struct tls *tls; /* with a key, once connected */
	/* What has come is TLS or lines, as it should be; or lines although there is a key. */
	enum { PEER_SILENT, PEER_SPEAKS, PEER_PLAIN } heard;
	size_t out_bytes, out_at; /* what the socket has not taken yet, from out_at on */
	char out[LINES_BYTES_MAX];
};

struct comm_datagrams {
	struct net_addr to;            /* usually the same address; valid when connected */
	struct net_ip local;           /* our address towards it; valid when connected */
	struct net *group;             /* its results' multicast group; NULL: none */
	bool group_tried, group_ready; /* ready: it may have something to read */
};

/* An aggregator as seen from here. */
struct comm_peer {
	char name[256];    /* as the user wrote it; constant while there is a thread, like place */
	uint32_t place;    /* in the list, from 0 */
	bool no_multicast; /* none came from it in an earlier membership: do not wait for any */
	enum comm_peer_state state;
	struct comm_addresses at;
	struct comm_tries tries;
	struct comm_connection tcp;
	struct comm_datagrams udp;
};

/* The membership that a caller sees, all of it at one moment. */
struct comm_view {
	uint32_t rank, world;
	uint32_t number; /* memberships before it */
	bool fast;       /* all aggregators add int32 frames in the kernel */
};

/*
 * The caller's until it is queued, then the thread's until it is done, and then only read. staged.staging is under
 * gpu_lock.
 */
struct winnow_request {
	struct winnow_comm *comm;
	struct allreduce task;
	uint32_t membership; /* comm_view.number, for which it was made */
	uint64_t submitted_us, done_us;
	struct geometry_part *parts; /* comm_layout.c: of its tensor, or NULL */
	struct winnow_rows *rows;    /* the list that is its tensor, or NULL */
	struct staged staged;        /* comm_gpu.c: what it has on a GPU */
	struct why why;              /* when it has failed */
	/* Under the lock. */
	bool done;
	uint32_t holders; /* references: the caller's, and the library's until done */
	pthread_cond_t changed;
	STAILQ_ENTRY(winnow_request) next; /* in `submitted`, or in `unused` */
	struct winnow_request *made_before;
};

STAILQ_HEAD(request_list, winnow_request);

/* Constant once there is a thread; the scratch is the thread's. */
struct comm_fixed {
	struct winnow_config config; /* without the texts */
	struct job_key key;
	struct tls_context *tls; /* NULL: there is no key */
	uint32_t peers_known;    /* aggregators in the list */
	const struct net_backend *backend;
	struct net_source source; /* by which interface, or from which address, they are reached */
	struct net_port port;
	struct net *net;
	uint8_t *scratch; /* [NET_BURST_MAX * payload], one for each packet */
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
 * The caller's that reconfigures the communicator, and holds `lock` meanwhile; whoever creates or destroys it is alone.
 * What is marked "ro" the thread reads without the lock, as it is constant while there is a thread.
 */
struct comm_move {
	pthread_mutex_t lock;
	pthread_t thread;
	char job[CONTROL_JOB_BYTES]; /* ro; with its membership, if it has one */
	uint32_t peer_count; /* ro; in the membership; after them come those that are left out */
	/*
	 * ro but for `log`, which is NULL while nothing is to be told. As this membership has it: rank, world, payload
	 * and join_timeout_ms.
	 */
	struct winnow_config config;
	enum comm_role role;         /* ro */
	bool ended;                  /* the decider has ended the job for good */
	struct control_message stay; /* what STAY says, see session_config */
	uint64_t left_out;           /* places of aggregators that are not in the membership */
	char (*members)[CONTROL_JOB_BYTES]; /* names of memberships so far */
	uint32_t member_count;
	struct winnow_stats before; /* ro; what they have sent and received */
	uint32_t came;         /* newcomers, with this worker's last step into another membership */
	uint64_t begins_by_us; /* the next one has begun by then; 0: any time */
};

/* The thread's; nobody else looks while there is one. Before, the caller makes it ready who will start it. */
struct comm_run {
	uint64_t leave_until_us; /* when it stops waiting in LEAVING, and then in LEFT */
	bool net_ready;          /* the net may have something to read */
	bool full;               /* the net had no room when it was last asked to send */
	uint64_t back; /* places of aggregators that are left out, and are there again, as bits */
	bool news;     /* something has happened since callers were told: comm_publish_news() */
	uint64_t news_due_us;  /* when to tell them */
	uint64_t limit_due_us; /* when to look at */
	uint32_t limit;        /* what may wait in this host; 0: no limit has been set */
	struct net_in in[NET_BURST_MAX];
	struct net_out out[NET_BURST_MAX];
	struct packet_out packets[NET_BURST_MAX];
	struct trace *trace;              /* NULL: none */
	struct trace_config trace_config; /* folder NULL: none is wanted, or it was tried */
	uint64_t gpu_check_us;            /* when to check busy GPUs for failures */
	uint64_t gpu_moved_us;            /* when a GPU last finished something */
};

/* What a job that has not begun yet waits for. */
struct comm_awaits {
	char text[CONTROL_TEXT_BYTES + 256]; /* "": nothing */
	uint64_t ranks_us; /* since when that have been other workers; 0: it is an aggregator */
};

/* What the thread tells of a membership, besides whether it runs. */
struct comm_news {
	struct winnow_stats stats; /* with those of memberships before */
	struct comm_awaits awaits;
	char late[CONTROL_TEXT_BYTES];     /* see winnow_comm_late() */
	char deserter[CONTROL_TEXT_BYTES]; /* which worker has left; "": none */
	struct control_message next;       /* what the decider has said at its door */
	uint32_t waiting;                  /* newcomers, at the first aggregator */
	uint64_t drains;                   /* places of aggregators that will end soon, as bits */
	uint64_t back; /* places of those left out that are there again, as bits */
};

struct comm_end {
	enum winnow_result result; /* OK: nobody does */
	char text[CONTROL_TEXT_BYTES];
};

/*
 * Everybody's, under `lock`. What is marked "wo" only the thread writes while there is one, and else only the caller
 * that has `move`: both read it without the lock.
 *
 * An operation that begins fails with `result` if that is not OK; else it is queued in RUNNING, and ends with MEMBERS in
 * all other phases.
 */
struct comm_shared {
	pthread_mutex_t lock;
	pthread_cond_t changed;         /* phase, next, end */
	_Atomic(enum comm_phase) phase; /* the thread also reads it without the lock */
	enum winnow_result result;      /* wo; why the membership has failed; OK: it has not */
	struct why error;               /* wo; the same as a text */
	struct session_shape shape;     /* wo; of the last membership that has run */
	struct comm_view view;
	/* Valid from STOPPING on, and constant then, so the thread reads it without the lock. */
	enum comm_course course;
	struct comm_end end;   /* a caller ends the membership, or the one that is to come */
	struct comm_news news; /* wo */
	struct request_list submitted, unused;
	struct winnow_request *requests; /* all that exist */
	uint64_t next_tag;               /* for operations that are matched by order */
	char says[CONTROL_NAME_BYTES];   /* for people who look at status */
	bool says_new;                   /* the session does not know it yet */
};

/* Anybody's. */
struct comm_any {
	atomic_bool woken;             /* the thread must read what has changed under the lock */
	_Atomic bool holds;            /* this worker has the state of the job */
	_Atomic uint32_t trace_fine;   /* wo; elements per bit of a present or coming trace, or 0 */
	_Atomic uint64_t pinned_bytes; /* of the host's memory, for GPUs */
	_Atomic(struct staging *) gpus[COMM_DEVICES_MAX]; /* by device number */
	pthread_mutex_t gpu_lock; /* for adding to `gpus`, and for callers that use one */
};

/*
 * Each part has an owner. A thread that holds one of the locks takes only those that follow it here: move.lock,
 * any.gpu_lock, shared.lock, that of comm_fork.c. The thread takes neither of the first two.
 */
struct winnow_comm {
	bool inherited; /* this one is a fork's child, in which its thread is not, and a lock may be held for ever */
	LIST_ENTRY(winnow_comm) forked; /* for comm_fork.c */
	/* Of this membership. The thread's while there is one, like the peers; else the caller's that has `move`. */
	struct session *session;
	struct comm_peer peers[SESSION_LINKS_MAX];
	struct comm_fixed fixed;
	struct comm_move move;
	struct comm_run run;
	struct comm_shared shared;
	struct comm_any any;
};

/* comm_log.c. Tell: lines for the caller, who must not be in any other call of ours. */
struct comm_wait {
	uint64_t began_us, due_us;
	char told[CONTROL_TEXT_BYTES + 256];
};
void comm_tell(const struct winnow_config *config, enum winnow_level level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void comm_tell_strangers(const struct winnow_config *config); /* see option_stranger() */
void comm_tell_wait(const struct winnow_config *config, struct comm_wait *wait, const char *text,
                    uint64_t ranks_since_us); /* 0: it is no rank that is waited for */
void comm_tell_joined(struct winnow_comm *comm);
/* Under the lock, which it gives up meanwhile: waits a moment for a change, and tells the caller what is waited for. */
void comm_wait_turn(struct winnow_comm *comm, struct comm_wait *wait);
/* For the thread, under the lock: what the job waits for. */
void comm_awaits(struct winnow_comm *comm);

/* comm_request.c: a request without an operation; NULL: out of memory. */
struct winnow_request *comm_request_new(struct winnow_comm *comm);

/* An enum winnow_result, and why: unless it is WINNOW_OK the request is not queued, and has to be ended. */
int comm_request_queue(struct winnow_request *request, struct why *why);
void comm_request_drop(struct winnow_request *request); /* release one of its two references */

/* Called by the thread when the request's operation is over. */
void comm_complete(struct winnow_request *request);

/* One that was never queued is done; the result and why are its owner's. */
void comm_request_end(struct winnow_request *request, int result, const char *why);

void comm_requests_free(struct winnow_comm *comm); /* all of them, when the thread has ended */

/* comm_layout.c */

/* An operation that a caller wants to begin. */
struct comm_call {
	struct winnow_comm *comm;
	struct comm_view view; /* the membership that it is meant for: comm_view() */
	/* Buffers, count, dtype, reduction and access; and if not 0 its tag and block_elems. */
	struct allreduce task;
	const struct winnow_options *options;  /* NULL: none */
	const struct winnow_segment *segments; /* [segment_count] */
	uint32_t segment_count;
	struct winnow_rows *rows; /* the list that is its tensor, or NULL; comm_begin() takes it */
	const char *wrong;        /* what is wrong with the arguments, or NULL */
};

/*
 * Begin an operation as in winnow.h, if nothing is wrong; an enum winnow_result, explained. If the communicator is in
 * another membership by then, the operation ends with MEMBERS.
 */
int comm_begin(const struct comm_call *call, struct winnow_request **out);

/* What is wrong with a tensor's segments, or NULL. */
const char *comm_wrong_segments(const struct winnow_segment *segments, uint32_t segment_count,
                                uint64_t count, bool on_gpu);

/*
 * comm_gpu.c. comm_gpu_post() takes a request that is not queued yet; it returns an enum winnow_result
 * and explains it.
 */
bool comm_gpu_wanted(const struct winnow_options *options);

/*
 * The table of winnow-cuda.so, which is opened at the first call; WINNOW_CUDA_PLUGIN=PATH names another,
 * for tests. Errors as of net_plugin_open(). Any thread.
 */
int comm_gpu_calls(const struct gpu_calls **out, struct why *why);

/*
 * An error of that table as an enum winnow_result, explained to the caller. A GPU that fails in a
 * caller's thread ends the job of `comm`, if that is not NULL; the caller's mistakes do no harm.
 */
int comm_gpu_result(struct winnow_comm *comm, int err, const struct why *why);

/* Which GPU are the buffers on? As locate() of that table; -EINVAL: on two. */
int comm_gpu_find(const struct gpu_calls *calls, const struct allreduce *task, int *device,
                  struct why *why);

int comm_gpu_post(struct winnow_request *request, const struct winnow_options *options);
void comm_gpu_forget(struct winnow_request *request);    /* what was posted does not begin */
int comm_gpu_open(struct winnow_comm *comm, int device); /* else the first operation does */

/* For the thread. The state is that of all its GPUs: while it has STAGING_FULL, receive nothing. */
bool comm_gpu_turn(struct winnow_comm *comm, uint64_t now_us);
uint64_t comm_gpu_due_us(struct winnow_comm *comm);
unsigned comm_gpu_state(const struct winnow_comm *comm);
void comm_gpu_close(struct winnow_comm *comm);

/* comm_members.c. In: the communicator waits at the decider's door. */
int comm_enter(struct winnow_comm *comm, const volatile int *give_up, struct why *why);

/* Does the caller, through what he has passed, want to wait no longer? */
static inline bool comm_given_up(const volatile int *give_up)
{
	return give_up != NULL && __atomic_load_n(give_up, __ATOMIC_RELAXED) != 0;
}

/* comm_calls.c: what a call has begun, if its `result` is WINNOW_OK, to the end; its request is freed. */
int comm_finish(int result, struct winnow_request *request);

/* comm_settings.c: an enum winnow_result, explained: of WINNOW_CONFIG, the environment and `config`. */
int comm_check_config(const struct winnow_config *config, struct why *why);

/* comm_config.c; each returns an enum winnow_result and explains a failure in `why`. */
int comm_configure(struct winnow_comm *comm, const struct winnow_config *config, struct why *why);
int comm_open_net(struct winnow_comm *comm, const struct winnow_config *config, struct why *why);
/* `from`: the link to the decider, whose connection goes on; or NULL. */
int comm_open_session(struct winnow_comm *comm, const struct link *from, struct why *why);

void comm_net_turn(struct winnow_comm *comm, uint64_t now_us); /* in each turn of the thread */

/* Only with the aggregators at those places of the list that are not in `without`, bits, and with the first. */
void comm_leave_out(struct winnow_comm *comm, uint64_t without);

/*
 * comm_fork.c: between add and remove, a fork's child closes the control connections.
 * Open and close these descriptors only by the last two calls. comm_fork_socket() makes one for a stream,
 * close-on-exec and non-blocking.
 */
void comm_fork_add(struct winnow_comm *comm);
void comm_fork_remove(struct winnow_comm *comm);
int comm_fork_socket(int *fd, int domain);
void comm_fork_close(int *fd);

/* comm_peers.c */
bool comm_peers_turn(struct winnow_comm *comm, uint64_t now_us); /* has anything been read? */
/* There is no thread, and another membership begins; so many were left out before, as bits. */
void comm_peers_left_out(struct winnow_comm *comm, uint64_t before);
/* Datagrams of this aggregator go there. */
void comm_peer_data(struct winnow_comm *comm, struct comm_peer *peer, const struct net_addr *to);
void comm_peer_close(struct comm_peer *peer);
/* Its link goes on by its connection, which is secured if there is a key. */
void comm_peer_secure(struct winnow_comm *comm, struct comm_peer *peer);
void comm_peer_write(struct winnow_comm *comm, struct comm_peer *peer, uint64_t now_us);

/*
 * comm_resolve.c. For the thread: the peer's addresses are what its name was found to have since the last call, if
 * anything; asks for them again. drop: it is not asked any more.
 */
void comm_resolve_again(struct comm_peer *peer);
/*
 * Likewise for the caller, who has no thread yet, and is told why it waits: where workers and aggregators start together,
 * names may be known a moment later. An enum winnow_result, explained.
 */
int comm_resolve_first(struct comm_peer *peer, const struct winnow_config *config,
                       uint64_t patience_us, struct why *why);
void comm_resolve_drop(struct comm_peer *peer);

/*
 * comm_trace.c. Call open to read the environment; comm_trace for each operation submitted; viewed
 * when the bitmap of a part of one on a GPU has arrived; end before the session is closed.
 */
void comm_trace_open(struct winnow_comm *comm);
void comm_trace_viewed(void *request, const struct geometry_part *part, const uint64_t *bits);
void comm_trace(struct winnow_comm *comm, const struct allreduce *task);
void comm_trace_end(struct winnow_comm *comm);

/* comm_loop.c: for the caller that holds move.lock */
int comm_start_thread(struct winnow_comm *comm, struct why *why); /* an enum winnow_result */
void comm_stop_thread(struct winnow_comm *comm, enum comm_course course);

/* Wait until all workers have joined. WINNOW_OK, or why not; ABORTED: the caller gave up, it may still join. */
int comm_await_all(struct winnow_comm *comm, const volatile int *give_up, struct why *why);

/* comm_state.c */
void comm_wake(struct winnow_comm *comm);

/* Has another worker left, in good order? The line for an operation that needs it. Any thread. */
bool comm_deserted(struct winnow_comm *comm, struct why *who);

/* The thread ends the membership for all with this result and line. The first call counts, until another one begins. */
void comm_end(struct winnow_comm *comm, enum winnow_result result, const char *text);

#define COMM_TAG_BY_ORDER (UINT64_C(1) << 63) /* tags that the library makes have this bit */

#define COMM_WANTS_REQUEST "request is NULL: nobody would know when the operation is done"

int comm_fail(int result, const char *why); /* returns result; `why` is winnow_last_error() */

extern const char comm_after_fork[]; /* why: it is inherited */
extern const char comm_moves[];      /* why: no membership runs */

struct comm_view comm_view(const struct winnow_comm *comm);
/* Under the lock. It also wakes those who wait for `changed`. */
void comm_phase_set(struct winnow_comm *comm, enum comm_phase phase);
/* Under the lock: does the membership of this number run, so that operations may begin? */
bool comm_runs(const struct winnow_comm *comm, uint32_t membership);

/* An enum's value as a task holds it; 0, which none has, for what does not fit. */
#define COMM_ENUM(value) (uint8_t)((unsigned int)(value) <= UINT8_MAX ? (value) : 0)

/* Why an operation with these arguments is impossible, or only on a GPU; NULL: it is not. */
const char *comm_wrong_argument(const struct allreduce *task, const struct winnow_options *options);
const char *comm_wrong_on_gpu(const struct winnow_comm *comm, const struct allreduce *task,
                              const struct winnow_options *options);

/* Waits in this library end at times of the monotonic clock. */
void comm_cond_init(pthread_cond_t *cond);
int comm_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock,
                   uint64_t until_us); /* UINT64_MAX: no end */

/* Signals are the program's business: the thread takes none. 0, or an errno. */
int comm_thread_start(pthread_t *thread, void *(*run)(void *), void *context);

/* Add the counters of `more`. */
void comm_stats_add(struct winnow_stats *stats, const struct winnow_stats *more);

/*
 * For the thread, under the lock: what callers see of the session is what it is now. Counters and who is late are a
 * snapshot, so that no caller waits for the thread: when the last operation under way is done, and COMM_NEWS_US after
 * other news.
 */
bool comm_unpublished(const struct winnow_comm *comm); /* needs no lock */
void comm_publish(struct winnow_comm *comm);
void comm_publish_news(struct winnow_comm *comm);

#endif /* CLIENT_COMM_STATE_H */
