/* SPDX-License-Identifier: BSD-3-Clause */
/* world_impl.h - what world.c, world_aggregator.c, world_kernel.c and world_worker.c share */
#ifndef TESTS_SIM_WORLD_IMPL_H
#define TESTS_SIM_WORLD_IMPL_H

#include "aggregator/jobs.h"
#include "client/rows.h"
#include "client/session.h"
#include "tests/sim/world.h"

#define PORTS_MAX 128
#define SIM_WORLD_MAX 1024
#define TIMER_TICK 0 /* an aggregator's heartbeat */
#define TIMER_WAKE 1 /* a worker's deadline */
#define TIMER_SUBMIT 2
#define TIMER_FAULT 3

/* A channel that an aggregator's data plane knows. */
struct sim_port {
	bool used;
	struct jobs_channel info;
	struct channel *channel; /* NULL before the start */
	uint32_t node[SIM_WORLD_MAX]; /* by rank; 0: unknown */
	bool multicast[SIM_WORLD_MAX];
	struct fast_channel *fast; /* NULL: no kernel before this one */
	struct fast_slot *fast_slots;
};

struct sim_aggregator {
	struct world *world;
	uint32_t node;
	bool dead;
	struct jobs *jobs;
	struct sim_port ports[PORTS_MAX];
	struct sim_peer *peers;    /* [worker nodes] */
	struct fast_channel *fast; /* of the channel that is being made */
	struct fast_slot *fast_slots;
};

/* One control connection: its handle on the aggregator. */
struct sim_peer {
	struct sim_aggregator *aggregator;
	uint32_t worker_node;
	struct jobs_peer *peer; /* NULL: closed */
};

struct sim_op {
	struct sim_worker *worker;
	struct allreduce task;
	uint8_t *send, *recv;
	struct winnow_rows *rows; /* NULL: the whole tensor is submitted */
	uint8_t *list;            /* their values */
	uint32_t dones;
	bool submitted;
};

struct sim_worker {
	struct world *world;
	uint32_t node, job, rank;
	bool dead, left, leaving;
	bool hears_multicast;
	bool group_known[SESSION_LINKS_MAX];
	uint64_t pause_until_us;
	uint64_t wake_us;
	struct session *session;
	uint32_t order[WORLD_OPS_MAX];
	uint32_t submitted, finished;
	struct sim_op ops[WORLD_OPS_MAX];
};

struct sim_job {
	const struct job_spec *spec;
	uint32_t first_worker; /* index into workers */
	struct data_reference *references[WORLD_OPS_MAX];
	bool started;
	uint64_t fault_us; /* when the fault struck; 0: not yet */
};

struct world {
	const struct world_spec *spec;
	struct world_outcome *out;
	struct simnet *net;
	struct bitmap_pool *pool;
	const struct bitmap_engine *engine;
	uint32_t worker_count;
	struct sim_aggregator *aggregators;
	struct sim_worker *workers; /* node of worker i: spec->aggregators + i */
	struct sim_job jobs[WORLD_JOBS_MAX];
	uint8_t *flat, *scratch; /* [WIRE_PAYLOAD_MAX] */
	bool failed;
};

void world_fail(struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));

void aggregator_open(struct world *world, uint32_t index);
void aggregator_close(struct sim_aggregator *aggregator);

/* world_kernel.c */
const char *kernel_share(void *context, const struct jobs_channel *channel,
                         struct channel_config *config);
void kernel_attach(struct sim_aggregator *a, struct sim_port *port);
void kernel_release(struct sim_port *port);
/* True when the kernel has kept the datagram; its answers are sent. */
bool kernel_takes(struct sim_aggregator *a, struct sim_port *port, const struct sim_event *event);

void aggregator_event(struct sim_aggregator *aggregator, const struct sim_event *event);
void aggregator_connect(struct sim_aggregator *aggregator, uint32_t worker_node);
void aggregator_kill(struct sim_aggregator *aggregator);

/* Sometimes: give the operation as the list of its blocks. And its result, if that is a list. */
void rows_make(struct sim_worker *w, struct sim_op *op, const struct op_spec *spec);
void rows_scatter(struct sim_op *op, const struct op_spec *spec);

void worker_open(struct world *world, uint32_t index, uint32_t job, uint32_t rank);
void worker_close(struct sim_worker *worker);
void worker_event(struct sim_worker *worker, const struct sim_event *event);
void worker_run(struct sim_worker *worker);
void worker_fault(struct sim_worker *worker, enum fault_kind kind);

#endif /* TESTS_SIM_WORLD_IMPL_H */
