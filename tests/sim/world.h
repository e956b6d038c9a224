/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * world.h - aggregators and workers on a simulated network, run to the end
 *
 * Every node runs the machines of the product, from the first HELLO to the last LEAVE: jobs.c and
 * channel_*.c on aggregators, session.c on workers. The world brings what the daemons' and the
 * library's shells bring: addresses, threads' channel tables, timers, sockets that are full.
 *
 * A world is a list of aggregators, a list of workers, and jobs, which are runs of workers with
 * operations to reduce and things that happen to them. No two nodes need be alike.
 */
#ifndef TESTS_SIM_WORLD_H
#define TESTS_SIM_WORLD_H

#include "tests/sim/reference.h"
#include "tests/sim/simnet.h"

#define WORLD_AGGREGATORS_MAX 33 /* a parent and 32 sites */
#define WORLD_JOBS_MAX 4
#define WORLD_OPS_MAX 12
#define WORLD_FAULTS_MAX 2
#define WORLD_QUEUES_MAX 40
#define WORLD_CROSSES_MAX 2
#define WORLD_FLOWS_MAX (WORLD_JOBS_MAX + WORLD_CROSSES_MAX)

enum fault_kind {
	FAULT_CRASH,      /* a worker ends; its connections are reset */
	FAULT_FREEZE,     /* a worker falls silent; its connections stay open */
	FAULT_AGGREGATOR, /* an aggregator ends */
	FAULT_ABORT,      /* a worker calls abort */
	FAULT_ABSENT,     /* a worker never submits its last operation */
	FAULT_MISMATCH,   /* a worker submits one operation with other parameters */
	FAULT_LEAVE,      /* a worker leaves before its last operation */

	/* Of the ways that datagrams take; connections live. */
	FAULT_MUTE,              /* a worker's no longer arrive */
	FAULT_DEAF,              /* none reaches it any more */
	FAULT_NARROW_OUT,        /* its large ones no longer pass, small ones do, */
	FAULT_NARROW_IN,         /* or those to it */
	FAULT_AGGREGATOR_DEAF,   /* none reaches an aggregator */
	FAULT_AGGREGATOR_NARROW, /* its large ones no longer pass */
	FAULT_FORGED,            /* strangers who know its token send datagrams in its name */
	FAULT_FLOOD,             /* likewise, NACKs that ask for all frames, by its own address */
	FAULT_PAUSE,             /* a worker's thread stands still for a while */
	FAULT_MOVE, /* a worker's address becomes another, as behind a NAT that forgets */
	FAULT_GPU,  /* a worker's GPU fails */

	/* Not of seeds' worlds: 30 % of a worker's datagrams no longer arrive, or of those to it. */
	FAULT_LOSSY_OUT,
	FAULT_LOSSY_IN,
	FAULT_KINDS,
};

struct fault_spec {
	enum fault_kind kind;
	uint32_t who;            /* a rank; AGGREGATOR: which one */
	uint64_t after_us;       /* of the job's first operation */
	uint64_t for_us;         /* MUTE and on: then all is well again; 0: never */
	uint32_t op;             /* MISMATCH: which operation, */
	struct op_spec other_op; /* and what the worker submits instead */
};

struct job_spec {
	uint32_t world;
	uint32_t first_worker; /* its workers are neighbours in the list */
	uint32_t op_count;
	bool own_order;        /* each worker submits in an order of its own */
	uint32_t priority_max; /* operations have random ones up to it */
	bool own_priorities;   /* on each worker others */
	uint32_t in_place_ppm;
	uint32_t list_ppm; /* operations that a worker gives as a list of blocks */
	uint32_t gpu_ppm;  /* those whose tensors a worker has on its GPU */
	uint32_t gpu_scan_us, gpu_out_us, gpu_in_us; /* work there takes up to so long */
	uint64_t gpu_bytes;                          /* of pinned memory */
	uint32_t eager_ppm; /* chance that a worker submits the next operation at once; else */
	uint64_t gap_us;    /* it computes for up to so long */
	uint32_t again; /* so often again all operations follow, each when the one before is done */
	struct op_spec ops[WORLD_OPS_MAX];
	uint32_t fault_count;
	struct fault_spec faults[WORLD_FAULTS_MAX];
};

/* A host whose CPUs are busy: a thread waits for one for up to `wait_us`, then runs for `run_us` on average. */
struct cpu_spec {
	uint64_t run_us, wait_us; /* 0: never */
};

struct aggregator_spec {
	struct simnet_path out, in;
	uint64_t turn_us; /* it gathers what comes for up to so long before it sends anything */
	uint32_t rcvbuf;  /* what its socket holds while it is busy; jobs.c knows of it */
	uint32_t threads;
	uint32_t payload_max, window_bytes;
	uint32_t op_slots, segments_ahead;
	bool fast;           /* a kernel that adds int32 frames before it, */
	bool no_room;        /* where packets cannot grow */
	uint32_t bypass_ppm; /* chance that a packet comes by another road */
	bool overlooks_stalls; /* it never says that an operation has waited too long; then none does */
	struct cpu_spec cpu;
};

struct worker_spec {
	struct simnet_path out, in;
	uint64_t connect_us; /* until its control connections stand */
	uint64_t turn_us;
	uint32_t rcvbuf;
	uint32_t payload; /* that its interface carries */
	bool hears_multicast;
	uint32_t pause_ppm; /* chance that it pauses before a packet */
	uint64_t pause_us;  /* for up to so long */
	uint64_t silence_us, stall_us;
	uint64_t clock_us; /* of its host, when the world begins */
	uint32_t home;     /* where there are sites: the only aggregator that it lists */
	struct cpu_spec cpu;
};

/* Traffic beside the jobs: one flow as TCP's, with as much to send as it may. */
struct cross_spec {
	struct simnet_path out, in;           /* of its sender, */
	struct simnet_path sink_out, sink_in; /* and of its receiver */
	uint64_t start_us, until_us;          /* 0: it does not end */
};

/*
 * Instead of jobs: a job whose workers continue without those that they lose, and admit others. Each
 * worker works until it has done `turns` turns in one membership, and so have all others that live.
 */
#define MEMBERS_MAX 8
#define MEMBER_FAULTS_MAX 6

enum member_fault_kind {
	MEMBER_KILL, /* a process ends; what it has sent arrives, then its connections are reset */
	MEMBER_CUT,  /* likewise, but nothing arrives any more that is under way from it */
	MEMBER_SILENT, /* its host ends: nothing arrives any more, not even that */
	MEMBER_FREEZE, /* it stands still, and later continues */
	MEMBER_SEVER,  /* for a while nothing passes between one half of the nodes and the other */
	MEMBER_HOLE,   /* for a while its long lines do not reach the first aggregator */
};

struct member_fault {
	enum member_fault_kind kind;
	uint64_t
		at; /* before this event of the world arrives: a datagram, a line, an end; from 0 */
	uint32_t node;   /* aggregators, then workers; SEVER: those of one half, as bits */
	uint64_t for_us; /* of an aggregator that ends: then it is back, 0: never; else how long */
};

struct members_spec {
	uint32_t founders; /* the others are newcomers, who come at their connect_us */
	uint32_t turns;
	uint32_t admit;    /* newcomers at a time; 0: members do not ask whether any wait */
	uint64_t pause_us; /* up to so long a worker does something else before its next step */
	bool verbose;      /* what happens and what is said is printed */
	uint32_t fault_count;
	struct member_fault faults[MEMBER_FAULTS_MAX];
};

/* What the world as a whole may take: 0 is no limit. */
struct world_bounds {
	uint64_t time_us;        /* from the first operation to the last one's end */
	uint64_t sent_again;     /* PUSHes */
	uint64_t answered_again; /* RESULTs to one worker */
	uint64_t asking;         /* STATUSes that want an answer */
	uint64_t overflowed;     /* datagrams that found a queue full */
	uint64_t again_percent;  /* PUSHes and RESULTs sent again, of all datagrams that got lost */
	bool nothing_wasted;     /* nothing is sent twice, nothing is of no use */
};

struct world_spec {
	uint64_t seed;
	const char *class_name;
	uint32_t aggregator_count;
	struct aggregator_spec aggregators[WORLD_AGGREGATORS_MAX];
	uint32_t
		site_count; /* aggregators 1 and up are sites of the first; 0: workers list all aggregators */
	uint32_t worker_count;
	struct worker_spec *workers; /* [worker_count] */
	uint32_t job_count;
	struct job_spec jobs[WORLD_JOBS_MAX];
	const struct members_spec *members; /* NULL: there are jobs */
	bool private_network;               /* as workers are told */
	uint32_t queue_count;
	struct simnet_queue queues[WORLD_QUEUES_MAX]; /* what paths name: the first is 1 */
	uint32_t cross_count;
	struct cross_spec crosses[WORLD_CROSSES_MAX];
	struct world_measures *measures; /* NULL: nobody wants to know */
	uint64_t limit_us;               /* virtual time in which all must be over */
	struct world_bounds bounds;
	const char *isa; /* bitmap engine; NULL: best */
};

struct world_outcome {
	bool ok;
	char why[512];
	char error[512]; /* the first that a worker was told, as it should be */
	uint64_t virtual_us;
	uint64_t busy_us;    /* from the first operation to the last one's end */
	uint64_t operations; /* finished on a worker, right */
	uint64_t failures;   /* ended with an error, as they should */
	uint64_t datagrams, lost, overflowed, unsent;
	uint64_t sent_again, answered_again, planned_again, asked;
	uint64_t dropped; /* received by workers and of no use */
	uint64_t asking;  /* STATUSes of workers that want an answer */
	uint64_t turns;   /* of workers' threads */
	uint64_t events;  /* of members: datagrams, lines, ends of connections; */
	uint32_t begun;   /* memberships that have begun, */
	uint32_t stuck;   /* workers that live, and were told that they cannot continue */
};

/* Bytes that queues had taken from and for each job, and then each cross flow, at some time. */
struct world_sample {
	uint64_t at_us;
	uint64_t bytes[WORLD_QUEUES_MAX][WORLD_FLOWS_MAX];
	double waiting[WORLD_QUEUES_MAX]; /* simnet_queue_stats.bytes_us */
};

struct job_measures {
	uint64_t first_us, last_us;      /* the first submission, the last operation's end */
	uint64_t sent, received;         /* by workers: datagrams, */
	uint64_t sent_again, came_again; /* of these PUSHes, and RESULTs that were asked for */
	uint64_t marked, dropped;        /* at queues */
	uint64_t united;                 /* blocks of the first operation that any worker has */
	uint64_t burst_max; /* bytes that one worker has put into one within SIMNET_BURST_US */
	uint32_t time_count, time_room;
	struct op_time {
		uint64_t end_us;
		uint64_t us; /* since its submission */
	} * times;           /* of each operation on each worker */
};

/* What a world was like; zeroed but for sample_us when it begins. */
struct world_measures {
	uint64_t sample_us;
	uint32_t sample_count, sample_room;
	struct world_sample *samples;
	struct simnet_queue_stats queues[WORLD_QUEUES_MAX];
	struct job_measures jobs[WORLD_JOBS_MAX];
	uint64_t cross_lost[WORLD_CROSSES_MAX];
};

void world_measures_free(struct world_measures *measures);

void world_run(const struct world_spec *spec, struct world_outcome *out);

#endif /* TESTS_SIM_WORLD_H */
