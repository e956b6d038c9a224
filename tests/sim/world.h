/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * world.h - aggregators and workers on a simulated network, run to the end
 *
 * Every node runs the machines of the product, from the first HELLO to the last LEAVE:
 * jobs.c and channel_*.c on aggregators, session.c on workers. The world brings what the
 * daemons' and the library's shells bring: addresses, threads' channel tables, timers.
 */
#ifndef TESTS_SIM_WORLD_H
#define TESTS_SIM_WORLD_H

#include "tests/sim/reference.h"
#include "tests/sim/simnet.h"

#define WORLD_JOBS_MAX 4
#define WORLD_OPS_MAX 12
#define WORLD_ALL UINT32_MAX

enum fault_kind {
	FAULT_NONE,
	FAULT_CRASH,      /* a worker ends; its connections are reset */
	FAULT_FREEZE,     /* a worker falls silent; its connections stay open */
	FAULT_AGGREGATOR, /* an aggregator ends */
	FAULT_ABORT,      /* a worker calls abort */
	FAULT_ABSENT,     /* a worker never submits its last operation */
	FAULT_MISMATCH,   /* a worker submits one operation with other parameters */
	FAULT_LEAVE,      /* a worker leaves before its last operation */
};

struct job_spec {
	uint32_t world;
	uint32_t op_count;
	bool own_order;        /* each worker submits in an order of its own */
	uint32_t priority_max; /* operations have random ones up to it */
	bool own_priorities;   /* on each worker others */
	uint32_t in_place_ppm;
	uint32_t list_ppm; /* operations that a worker gives as a list of blocks */
	struct op_spec ops[WORLD_OPS_MAX];
	enum fault_kind fault;
	uint32_t fault_rank;       /* or the aggregator */
	uint32_t fault_op;         /* MISMATCH: which operation */
	uint64_t fault_after_us;   /* of the start of the job's first operation */
	struct op_spec fault_spec; /* MISMATCH: what the worker submits instead */
};

struct world_spec {
	uint64_t seed;
	struct simnet_config net; /* nodes is filled in */
	uint32_t aggregators, threads;
	uint32_t jobs;
	struct job_spec job[WORLD_JOBS_MAX];
	uint32_t payload_max;
	uint32_t window_bytes;
	uint32_t op_slots, segments_ahead;
	uint32_t multicast_ppm; /* share of workers that multicast reaches */
	bool fast;              /* a kernel that adds int32 frames before the aggregators */
	bool no_room;           /* where packets cannot grow */
	uint32_t bypass_ppm;    /* chance that a packet comes by another road */
	uint32_t pause_ppm;     /* chance that a worker pauses before a packet */
	uint64_t pause_us;      /* for up to so long */
	uint64_t silence_us, stall_us;
	uint64_t limit_us; /* virtual time in which all must be over */
	const char *isa;   /* bitmap engine; NULL: best */
};

struct world_outcome {
	bool ok;
	char why[512];
	uint64_t virtual_us;
	uint64_t operations; /* finished on a worker, right */
	uint64_t failures;   /* ended with an error, as they should */
	uint64_t datagrams, lost, overflowed;
	uint64_t retransmits, nacks;
	uint64_t dropped; /* received by workers and of no use */
	uint64_t forced;  /* NACKs of workers that have waited for a time-out */
};

void world_run(const struct world_spec *spec, struct world_outcome *out);

#endif /* TESTS_SIM_WORLD_H */
