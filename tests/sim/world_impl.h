/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * world_impl.h - what the world_*.c files share
 *
 * world.c             builds a world, hands out its events, knows when all is over
 * world_aggregator.c  an aggregator's shell: what control.c does
 * world_packets.c     its datagrams: what data_packets.c does
 * world_site.c        a site's connections to its parent, and its datagrams there: what parent.c and data_above.c do
 * world_kernel.c      the XDP program before it
 * world_worker.c      a worker's shell: what comm_loop.c does, and what it submits
 * world_rows.c        operations whose tensors have parts, or are given as lists
 * world_gpu.c         operations whose tensors are on a GPU: what comm_gpu.c does, and the GPU
 * world_fault.c       what happens to a job, and what its workers may be told then
 * world_cross.c       a flow as TCP's beside the jobs
 * world_measure.c     what jobs and flows got of the queues, and how long operations took
 * world_judge.c       were the results right, the errors true, the effort within bounds
 * world_member.c      a worker's shell when members come and go: what comm_members.c and comm_loop.c do
 * world_members.c     what happens to them, and the book of memberships that finds what is mixed
 */
#ifndef TESTS_SIM_WORLD_IMPL_H
#define TESTS_SIM_WORLD_IMPL_H

#include "aggregator/data.h"
#include "aggregator/site/upward.h"
#include "aggregator/jobs/knocks.h"
#include "client/worker/rows.h"
#include "client/worker/session.h"
#include "client/gpu/staging.h"
#include "ebpf/seal.h"
#include "tests/sim/world.h"

#define PORTS_MAX 128
#define SIM_WORLD_MAX 1024

/* Timers, by the `channel` of their event. */
#define TIMER_TICK 0 /* an aggregator's heartbeat */
#define TIMER_WAKE 1 /* a worker's deadline */
#define TIMER_SUBMIT 2
#define TIMER_TURN 3    /* it has gathered enough */
#define TIMER_CONNECT 4 /* a worker's control connections stand */
#define TIMER_FAULT                                                                                \
	5 /* of the world's own node, beside TICK, when it takes a sample: this and up, by job, number, and begin or end */

/* A thread that is busy leaves what comes in its socket. */
struct sim_thread {
	uint64_t busy_until_us;
	struct cpu_spec cpu;
	uint64_t has_cpu_until_us;
	uint32_t rcvbuf, waiting_bytes;
	bool turn_due; /* TIMER_TURN is set */
	bool sleeps; /* While datagrams gather. It answers all that are there at once, by TIMER_TURN. */
};

/* A channel that an aggregator's data plane knows. */
struct sim_port {
	bool dirty; /* may have something to send */
	struct jobs_channel info;
	struct channel *channel;         /* NULL before the start */
	uint32_t address[SIM_WORLD_MAX]; /* by rank; 0: has not knocked */
	uint32_t node[SIM_WORLD_MAX];    /* likewise: the node that has it */
	bool multicast[SIM_WORLD_MAX];
	struct knocker knockers[SIM_WORLD_MAX];
	uint32_t base; /* as it was last told, */
	uint16_t sequence;
	bool base_known; /* if they ever were */
	uint32_t probe_bytes;
	uint64_t probe_us;         /* when the last PROBE went out */
	struct fast_channel *fast; /* NULL: no kernel before this one */
	struct fast_slot *fast_slots;
	struct relay *relay;   /* NULL: no parent */
	uint32_t serial;       /* no other port of the world has it */
	uint32_t serial_above; /* that of the parent's port */
	bool refused;          /* the parent has refused an operation, and jobs.c knows */
};

struct sim_carrier; /* the connection of a site's link to its parent */

struct sim_aggregator {
	struct world *world;
	const struct aggregator_spec *spec;
	uint32_t node;
	bool dead;
	struct jobs *jobs;
	struct sim_thread thread;
	struct sim_port *ports[PORTS_MAX]; /* NULL: none */
	struct fast_channel *fast;         /* of the channel that is being made */
	struct fast_slot *fast_slots;
	struct channel_stats stats; /* of channels that are no more */
	uint64_t received, pulled;  /* by channels, as the shell has seen it */
	uint64_t strange; /* datagrams that came from elsewhere than their worker knocked from */
	bool sited;
	char site[16];                /* its name */
	struct upwards *links;        /* to its parent */
	struct sim_carrier *carriers; /* their connections, a list */
	uint64_t wake_us;             /* a site's: TIMER_WAKE */
	struct {
		uint64_t ms; /* of the virtual time */
		uint32_t times;
	} hurry; /* when its links were last due at once, and how often in that millisecond */
	struct stream_stats above; /* of a site's streams that are no more */
};

/* Returns the port of this channel id, or NULL. */
static inline struct sim_port *port_named(struct sim_aggregator *a, uint16_t id)
{
	for (uint32_t i = 0; i < PORTS_MAX; i++)
		if (a->ports[i] != NULL && a->ports[i]->info.id == id)
			return a->ports[i];
	return NULL;
}

/* One control connection: its handle on the aggregator. */
struct sim_peer {
	struct sim_aggregator *aggregator;
	uint32_t worker_node, connection;
	struct jobs_peer *peer; /* NULL: closed */
	bool cut_short;         /* no line that is under way arrives any more */
};

#define SIM_PARTS_MAX 4

struct sim_op {
	struct sim_worker *worker;
	struct allreduce task;
	uint8_t *send, *recv;
	struct geometry_part parts[SIM_PARTS_MAX];
	struct winnow_rows *rows; /* NULL: the whole tensor is submitted */
	uint8_t *list;            /* their values */
	struct staged staged;
	bool on_gpu;
	bool in_place; /* recv is in send */
	uint64_t submitted_us;
	uint32_t dones;
	bool submitted;
};

struct sim_worker {
	struct world *world;
	const struct worker_spec *spec;
	uint32_t node, job, rank;
	bool begun, dead, left;
	bool group_known[WORLD_AGGREGATORS_MAX];
	uint32_t connections[WORLD_AGGREGATORS_MAX]; /* by link; 0: none yet */
	struct sim_thread thread;
	uint64_t wake_us;
	struct session *session;
	struct staging *staging; /* NULL: no operation has been on its GPU yet */
	struct gpu *gpu;
	bool gpu_dead;
	uint64_t gpu_refused_us; /* when it was first asked for something since; 0: not yet */
	uint64_t gpu_check_us;
	uint32_t order[WORLD_OPS_MAX];
	uint32_t submitted, finished;
	uint64_t sent, sent_bytes, received,
		received_bytes; /* by streams, as the shell has seen it */
	struct sim_op ops[WORLD_OPS_MAX];
};

struct sim_fault {
	const struct fault_spec *spec;
	uint64_t struck_us;        /* 0: not yet */
	bool lasts;                /* what it has changed, is so now */
	struct simnet_path before; /* and was so */
};

struct sim_job {
	const struct job_spec *spec;
	struct sim_worker *workers; /* [spec->world] */
	uint32_t *sites;            /* [spec->world] each worker's, from 1; 0: none */
	struct data_reference *references[WORLD_OPS_MAX];
	bool started;
	uint64_t silence_us, stall_us; /* the shortest of its workers */
	struct sim_fault faults[WORLD_FAULTS_MAX];
};

/* A sender that keeps `window` datagrams under way, to a sink that answers each. */
#define CROSS_RING 65536

struct sim_cross {
	struct world *world;
	uint32_t node; /* and the sink's, the next one */
	double window, threshold;
	uint32_t next, oldest,
		highest;  /* datagrams: to send, neither answered nor lost, answered */
	uint32_t recover; /* until this one is, another loss counts as the same */
	uint32_t under_way;
	uint64_t srtt_us, heard_us, lost, until_us;
	bool answered[CROSS_RING];
};

struct world {
	const struct world_spec *spec;
	struct world_outcome *out;
	struct simnet *net;
	struct bitmap_pool *pool;
	const struct bitmap_engine *engine;
	struct sim_aggregator *aggregators; /* nodes 0 and up */
	uint32_t peer_count;
	struct sim_peer **peers;    /* by connection, from 1 */
	struct sim_worker *workers; /* nodes after these */
	struct sim_job jobs[WORLD_JOBS_MAX];
	bool keyed;                 /* jobs have a key, so datagrams have seals */
	uint32_t nobody;            /* the node of what happens from outside; after it: */
	struct sim_cross *crosses;  /* two each */
	bool over;                  /* all workers have left */
	uint64_t first_us, last_us; /* operations: the first one's start, the last one's end */
	uint8_t *flat, *scratch;    /* [WIRE_PAYLOAD_MAX] */
	const char *names[WORLD_AGGREGATORS_MAX];  /* of aggregators: "agg0" and on */
	char name_texts[WORLD_AGGREGATORS_MAX][8]; /* what these point to */
	struct sim_members *members;               /* NULL: there are none */
	uint32_t ports;                            /* there have been so many */
	bool failed;
};

/* ---- members ---- */

#define MEMBER_OPS 3
#define ROLL_TAGS 32
#define MEMBER_ELEMS 640 /* of the largest operation */

enum member_state {
	MEMBER_OUTSIDE, /* it has not come yet */
	MEMBER_JOINS,
	MEMBER_WORKS,
	MEMBER_ASKS,   /* how it continues, at the door */
	MEMBER_PARTS,  /* from its membership, to the door */
	MEMBER_LEAVES, /* for good: all have done what they wanted */
	MEMBER_ENDED,
};

struct member_op {
	struct sim_member *member;
	struct allreduce task;
	int32_t send[MEMBER_ELEMS], recv[MEMBER_ELEMS]; /* or floats */
};

/* A connection to an aggregator of the membership. */
struct member_peer {
	uint32_t place;
	uint32_t connection; /* 0: it does not stand */
	bool gone;
	uint64_t due_us, until_us; /* the next attempt to connect, the last one */
};

struct sim_member {
	struct world *world;
	const struct worker_spec *spec;
	uint32_t number, node;
	enum member_state state;
	bool dead, stuck;
	char job[CONTROL_JOB_BYTES];
	bool at_door; /* it waits at the decider until it is a member */
	bool holds;   /* it has the state of the job: it has done a turn, or is a founder */
	struct control_message stay; /* what it says of memberships before: see session_config */
	uint32_t rank, world_size;   /* 0: it is no member yet */
	uint32_t roll;               /* its membership in the book; 0: none yet */
	uint64_t left_out;           /* by place */
	uint32_t peer_count;
	struct member_peer peers[WORLD_AGGREGATORS_MAX];
	struct session *session;
	uint32_t turn, open;
	bool failed; /* an operation of this turn has */
	uint32_t admit;
	uint64_t act_us, by_us, wake_us;
	struct member_op ops[MEMBER_OPS];
	char why[512];
};

/* One of the book: who is in it, what came before, and what after. */
struct roll {
	char name[CONTROL_JOB_BYTES];
	uint32_t world;
	uint32_t who[MEMBERS_MAX]; /* by rank: 1 + the worker; 0: not known yet */
	uint64_t number;           /* it is higher the later it was named */
	uint64_t progress_us;      /* when the first operation was over on a worker; 0: none was */
	uint64_t called_us[ROLL_TAGS]; /* when the last worker has called an operation, by tag */
	bool begun;                    /* START has come to one of its members */
};

struct sim_members {
	const struct members_spec *spec;
	struct sim_member list[MEMBERS_MAX];
	uint32_t roll_count;
	struct roll *rolls; /* from 1 */
	uint64_t events;
	uint64_t frozen_until_us[WORLD_AGGREGATORS_MAX + MEMBERS_MAX];
	uint32_t held_count;
	struct sim_event *held; /* that wait for one that stands still, or for a way that is cut */
	bool mute[WORLD_AGGREGATORS_MAX +
	          MEMBERS_MAX]; /* what is under way from it does not arrive */
	uint32_t halves; /* one of two between which nothing passes, as bits; 0: all passes */
	uint64_t whole_us;
	uint32_t hole;    /* this node's long lines do not reach the first aggregator */
	uint64_t hole_us; /* until then */
	bool all_began;   /* once all founders have */
	uint64_t calm_us; /* when the last thing has happened to them */
	bool leaving;
	bool early,
		late; /* something happened before all had begun, or amid a change; after they began to leave */
};

/* world.c */
void world_fail(struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
void world_deliver(struct world *world, struct sim_event *event);
/* True: the thread is busy, and has the event later, or never. */
bool thread_busy(struct world *world, struct sim_thread *thread, struct sim_event *event);
/* True: what has come is answered at TIMER_TURN, with what comes until then. */
bool thread_gathers(struct world *world, struct sim_thread *thread, uint32_t node,
                    uint64_t turn_us);

/* world_aggregator.c */
void aggregator_open(struct world *world, uint32_t index);
void aggregator_close(struct sim_aggregator *aggregator);
void aggregator_event(struct sim_aggregator *aggregator, struct sim_event *event);
/* By which `link` is to join this membership, or to wait at its door. */
uint32_t aggregator_connect(struct sim_aggregator *aggregator, uint32_t worker_node,
                            const char *membership, struct link *link);
/* Where there is a key: the link goes on by this connection. */
void connection_secure(const struct world *world, uint32_t connection, const char *membership,
                       struct link *link);
/* It ends: its connections are reset, or it is silent. And it begins again, and knows nothing. */
void aggregator_kill(struct sim_aggregator *aggregator, bool resets);
void aggregator_revive(struct sim_aggregator *aggregator);

/* world_packets.c */
void packets_take(struct sim_aggregator *a, struct sim_event *event); /* a datagram has come */
void packets_drain(struct sim_aggregator *a); /* what channels have to say is sent */

/* world_site.c. All of it is for sites alone. */
void site_begin(struct sim_aggregator *a, struct jobs_config *config, struct jobs_ports *ports);
void site_die(struct sim_aggregator *a, bool resets);
void site_line(struct sim_aggregator *a,
               const struct sim_event *event); /* or the end of a connection */
void site_turn(struct sim_aggregator *a);      /* at TIMER_WAKE */
void site_wake_at(struct sim_aggregator *a, uint64_t due_us);
/* True: the datagram comes from the parent. */
bool site_datagram(struct sim_aggregator *a, struct sim_event *event);
void relay_drain(struct sim_aggregator *a, struct sim_port *port);
void relay_end(struct sim_aggregator *a, struct sim_port *port);

/* world_kernel.c */
const char *kernel_share(void *context, const struct jobs_channel *channel,
                         struct channel_config *config);
void kernel_attach(struct sim_aggregator *a, struct sim_port *port);
void kernel_unshare(void *context, uint16_t id);
void kernel_release(struct sim_port *port);
/* True when the kernel has kept the datagram; its answers are sent. */
bool kernel_takes(struct sim_aggregator *a, struct sim_port *port, const struct sim_event *event,
                  bool at_home);

/* world_rows.c: sometimes the operation is given as a list of its blocks, and its result is one. */
void rows_make(struct sim_worker *w, struct sim_op *op, const struct op_spec *spec);
void rows_scatter(struct sim_op *op, const struct op_spec *spec);

/* The parts of the task's tensor, as op->parts: which may be matrices in tiles. */
void layout_make(struct sim_op *op, const struct op_spec *spec);

/* world_gpu.c. False: the GPU has as many operations as there may be. Then what the GPU has done. */
void gpu_post(struct sim_worker *w, struct sim_op *op);
bool gpu_turn(struct sim_worker *w);
uint64_t gpu_due_us(struct sim_worker *w);

/* world_worker.c */
static inline const struct job_spec *job_of(const struct sim_worker *w)
{
	return w->world->jobs[w->job].spec;
}

/* Which aggregators it lists, by link; and the link to a node. */
static inline uint32_t links_of(const struct sim_worker *w)
{
	return w->world->spec->site_count > 0 ? 1 : w->world->spec->aggregator_count;
}

static inline uint32_t aggregator_of(const struct sim_worker *w, uint32_t link)
{
	return w->world->spec->site_count > 0 ? w->spec->home : link;
}

static inline uint32_t link_to(const struct sim_worker *w, uint32_t node)
{
	return w->world->spec->site_count > 0 ? 0 : node;
}

void op_over(struct sim_op *op); /* it is done, and its tensors are the caller's again */

/* How often each of its operations is done. */
static inline uint32_t rounds_of(const struct job_spec *job)
{
	return 1 + job->again;
}

/* Elements of the result that a worker gets. */
static inline uint64_t share_of(const struct sim_worker *w, const struct op_spec *spec)
{
	return spec->scatter ? spec->count / job_of(w)->world : spec->count;
}

void worker_open(struct world *world, uint32_t index, uint32_t job, uint32_t rank);
void worker_close(struct sim_worker *worker);
void worker_event(struct sim_worker *worker, struct sim_event *event);
void worker_run(struct sim_worker *worker);
const struct op_spec *worker_op(const struct sim_worker *worker, uint32_t op);
uint32_t worker_ops(const struct sim_worker *worker); /* that it will submit */

/* world_fault.c */
void faults_arm(struct world *world, uint32_t job); /* its first operation is submitted */
void fault_strike(struct world *world, uint32_t timer);
struct sim_fault *fault_of(struct world *world, const struct sim_worker *worker,
                           enum fault_kind kind);
bool fault_explains(const struct sim_worker *worker, uint32_t op); /* its status and error line */
void faults_check_prompt(struct world *world);
const char *fault_name(enum fault_kind kind);

/* world_cross.c */
void cross_open(struct world *world, uint32_t index);
void cross_event(struct sim_cross *cross, const struct sim_event *event);

/* world_measure.c: all do nothing when nobody wants to know. */
void measure_begin(struct world *world);
void measure_sample(struct world *world);
void measure_time(struct sim_worker *worker, uint64_t us);
void measure_channel(struct sim_aggregator *aggregator, const struct sim_port *port);
void measure_end(struct world *world);

/* world_judge.c */
void world_judge(struct world *world);

/* world_member.c */
void member_open(struct world *world, uint32_t number);
void member_close(struct sim_member *member);
void member_event(struct sim_member *member, struct sim_event *event);
void member_die(struct sim_member *member, bool resets);
void member_run(struct sim_member *member);
bool member_idle(const struct sim_member *member); /* it has done all that it wanted */

/* Does a worker join a group by what it knows of this link now? */
static inline bool has_group(const struct link *link)
{
	return link_welcome(link) != NULL && *link_welcome(link)->group != '\0';
}

/* world_members.c */
void members_open(struct world *world);
void members_close(struct world *world);
/* True: the event does not arrive, or later. */
bool members_keep(struct world *world, struct sim_event *event);
void members_timer(struct world *world, uint32_t timer);
bool members_over(struct world *world);
void members_hang(struct world *world);
void members_judge(struct world *world);
bool members_apart(const struct world *world, uint32_t one, uint32_t other); /* nothing passes */
void roll_enter(struct sim_member *member);  /* it joins the membership that it has the name of */
void roll_begins(struct sim_member *member); /* it runs */
uint64_t roll_seed(const struct sim_member *member, uint32_t op); /* of what all give to it */
int32_t roll_gives(uint64_t seed, uint32_t who, uint32_t op, uint32_t element);
void roll_calls(const struct sim_member *member, uint32_t op); /* it is called here, */
void roll_check(const struct sim_member *member, uint32_t op); /* and done here, without an error */

#endif /* TESTS_SIM_WORLD_IMPL_H */
