// SPDX-License-Identifier: BSD-3-Clause
/* world_worker.c - a worker's shell in the simulation, and what it submits */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world_impl.h"

static const struct job_spec *job_of(const struct sim_worker *w)
{
	return w->world->jobs[w->job].spec;
}

static const struct op_spec *op_of(const struct sim_worker *w, uint32_t op)
{
	const struct job_spec *job = job_of(w);

	if (job->fault == FAULT_MISMATCH && op == job->fault_op && w->rank == job->fault_rank)
		return &job->fault_spec;
	return &job->ops[op];
}

/* ---- life ---- */

static void session_begin(struct sim_worker *w)
{
	static const char *const names[SESSION_LINKS_MAX] = {"agg0", "agg1", "agg2", "agg3",
	                                                     "agg4", "agg5", "agg6", "agg7"};
	const struct world_spec *spec = w->world->spec;
	struct link_config links[SESSION_LINKS_MAX];
	struct session_config config = {
		.links = links,
		.names = names,
		.link_count = spec->aggregators,
		.pool = w->world->pool,
		.bitmap = w->world->engine,
	};
	char job[16], host[16];

	snprintf(job, sizeof(job), "job%u", w->job);
	snprintf(host, sizeof(host), "host%u", w->node);
	for (uint32_t i = 0; i < spec->aggregators; i++) {
		links[i] = (struct link_config){
			.job = job,
			.host = host,
			.rank = w->rank,
			.world = job_of(w)->world,
			.payload = spec->payload_max,
			.rcvbuf = 1u << 22,
			.silence_us = spec->silence_us,
			.stall_us = spec->stall_us,
			.join_us = 30000000,
			.multicast = true,
		};
		memset(links[i].nonce, (int)w->node, sizeof(links[i].nonce));
	}
	if (session_open(&config, simnet_now(w->world->net), &w->session) != 0)
		abort();
	for (uint32_t i = 0; i < spec->aggregators; i++) {
		aggregator_connect(&w->world->aggregators[i], w->node);
		session_connected(w->session, i, simnet_now(w->world->net));
	}
}

static void task_done(struct allreduce *task)
{
	struct sim_op *op = task->context;

	if (op->rows != NULL && op->rows->gather && task->status == 0)
		rows_scatter(op, op_of(op->worker, (uint32_t)(op - op->worker->ops)));
	op->dones++;
	op->worker->finished++;
}

static void shuffle(struct sim_worker *w, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		w->order[i] = i;
	for (uint32_t i = count; job_of(w)->own_order && i > 1; i--) {
		uint32_t j = (uint32_t)simnet_between(w->world->net, 0, i - 1);
		uint32_t keep = w->order[i - 1];

		w->order[i - 1] = w->order[j];
		w->order[j] = keep;
	}
}

void worker_open(struct world *world, uint32_t index, uint32_t job, uint32_t rank)
{
	struct sim_worker *w = &world->workers[index];

	w->world = world;
	w->node = world->spec->aggregators + index;
	w->job = job;
	w->rank = rank;
	w->wake_us = UINT64_MAX;
	w->hears_multicast = simnet_chance(world->net, world->spec->multicast_ppm);
	shuffle(w, job_of(w)->op_count);
	session_begin(w);
	simnet_timer(world->net, w->node, TIMER_WAKE, simnet_between(world->net, 0, 3000));
}

static void buffers_make(struct sim_worker *w, uint32_t number)
{
	const struct op_spec *spec = op_of(w, number);
	struct sim_op *op = &w->ops[number];
	size_t bytes = spec->count * data_elem_bytes(spec->dtype);
	size_t room = bytes > 0 ? bytes : 1;

	op->send = malloc(room);
	op->recv = op->send;
	data_fill(spec, w->rank, op->send);
	if (simnet_chance(w->world->net, job_of(w)->in_place_ppm))
		return;
	op->recv = malloc(room);
	memset(op->recv, 0xa5, room);
	rows_make(w, op, spec);
}

void worker_close(struct sim_worker *worker)
{
	session_close(worker->session);
	for (uint32_t i = 0; i < WORLD_OPS_MAX; i++) {
		rows_close(worker->ops[i].rows);
		free(worker->ops[i].list);
		if (worker->ops[i].recv != worker->ops[i].send)
			free(worker->ops[i].recv);
		free(worker->ops[i].send);
	}
}

/* ---- operations ---- */

static uint32_t priority_of(const struct sim_worker *w, const struct op_spec *spec)
{
	uint64_t most = job_of(w)->priority_max;

	return job_of(w)->own_priorities ? (uint32_t)simnet_between(w->world->net, 0, most)
	                                 : spec->priority;
}

static void submit(struct sim_worker *w)
{
	uint32_t number = w->order[w->submitted];
	const struct op_spec *spec = op_of(w, number);
	struct sim_op *op = &w->ops[number];
	int result;

	buffers_make(w, number);
	op->worker = w;
	op->task = (struct allreduce){
		.send = op->send,
		.recv = op->recv,
		.count = spec->count,
		.access = rows_access(op->rows),
		.access_state = op->rows,
		.tag = spec->tag,
		.priority = priority_of(w, spec),
		.block_elems = spec->block,
		.dtype = spec->dtype,
		.reduction = spec->reduction,
		.form = spec->fixed32 ? WIRE_FIXED32 : WIRE_NATIVE,
		.done = task_done,
		.context = op,
	};
	result = session_submit(w->session, &op->task, simnet_now(w->world->net));
	op->submitted = true;
	w->submitted++;
	if (result == 0)
		return;
	op->task.status = result;
	task_done(&op->task);
	if (session_state(w->session) != SESSION_FAILED)
		world_fail(w->world, "job %u rank %u: submit gave %d", w->job, w->rank, result);
}

static uint32_t ops_to_submit(const struct sim_worker *w)
{
	const struct job_spec *job = job_of(w);
	bool fewer = (job->fault == FAULT_ABSENT || job->fault == FAULT_LEAVE) &&
	             w->rank == job->fault_rank;

	return job->op_count - fewer;
}

static void submit_some(struct sim_worker *w)
{
	struct world *world = w->world;
	struct sim_job *job = &world->jobs[w->job];

	if (session_state(w->session) == SESSION_JOINING || w->submitted == ops_to_submit(w))
		return;
	if (!job->started && job->spec->fault != FAULT_NONE) {
		uint32_t node =
			world->spec->aggregators + job->first_worker + job->spec->fault_rank;

		if (job->spec->fault == FAULT_AGGREGATOR)
			node = job->spec->fault_rank;
		simnet_timer(world->net, node, TIMER_FAULT,
		             simnet_now(world->net) + job->spec->fault_after_us);
	}
	job->started = true;
	submit(w);
	simnet_timer(world->net, w->node, TIMER_SUBMIT,
	             simnet_now(world->net) + (simnet_chance(world->net, 500000)
	                                               ? 0
	                                               : simnet_between(world->net, 0, 3000)));
}

static void leave_when_done(struct sim_worker *w)
{
	bool waits_for_abort = job_of(w)->fault == FAULT_ABSENT && w->rank == job_of(w)->fault_rank;

	if (w->left || w->finished < ops_to_submit(w) || w->submitted < ops_to_submit(w))
		return;
	if (session_state(w->session) == SESSION_FAILED) {
		w->left = true;
		return;
	}
	if (waits_for_abort || !session_quiet(w->session))
		return;
	w->left = true;
	if (job_of(w)->fault == FAULT_LEAVE && w->rank == job_of(w)->fault_rank)
		w->world->jobs[w->job].fault_us = simnet_now(w->world->net);
	session_leave(w->session);
}

/* ---- running ---- */

static void lines_out(struct sim_worker *w)
{
	for (uint32_t i = 0; i < w->world->spec->aggregators; i++) {
		char *line;

		while ((line = session_take_line(w->session, i, simnet_now(w->world->net))) !=
		       NULL) {
			if (!w->world->aggregators[i].dead)
				simnet_line(w->world->net, w->node, i, 0, line);
			free(line);
		}
	}
}

static void groups_join(struct sim_worker *w)
{
	for (uint32_t i = 0; i < w->world->spec->aggregators; i++) {
		uint32_t ip;
		uint16_t port;

		if (session_group(w->session, i, &ip, &port))
			w->group_known[i] = true;
	}
}

void worker_run(struct sim_worker *w)
{
	struct packet_out out = {.scratch = w->world->scratch};
	uint64_t now_us = simnet_now(w->world->net), due_us;
	bool worked;

	session_tick(w->session, now_us);
	groups_join(w);
	submit_some(w);
	leave_when_done(w);
	do {
		for (uint32_t i = 0; i < w->world->spec->aggregators; i++) {
			while (session_pull(w->session, i, now_us, &out)) {
				packet_flatten(&out, w->world->flat);
				simnet_send(w->world->net, w->node, i, w->world->flat, out.bytes);
			}
		}
		worked = session_work(w->session, now_us);
	} while (worked);
	lines_out(w);
	due_us = session_deadline(w->session);
	if (due_us == UINT64_MAX || w->left)
		return;
	if (due_us <= now_us)
		due_us = now_us + 1;
	if (w->wake_us <= now_us || due_us < w->wake_us) {
		w->wake_us = due_us;
		simnet_timer(w->world->net, w->node, TIMER_WAKE, due_us);
	}
}

void worker_fault(struct sim_worker *w, enum fault_kind kind)
{
	struct world *world = w->world;

	if (kind != FAULT_LEAVE)
		world->jobs[w->job].fault_us = simnet_now(world->net);
	if (kind == FAULT_ABORT) {
		session_abort(w->session, "as the test asks", simnet_now(world->net));
		worker_run(w);
		return;
	}
	if (kind != FAULT_CRASH && kind != FAULT_FREEZE)
		return;
	w->dead = true;
	for (uint32_t i = 0; kind == FAULT_CRASH && i < world->spec->aggregators; i++)
		simnet_gone(world->net, w->node, i, 0);
}

void worker_event(struct sim_worker *w, const struct sim_event *event)
{
	struct world *world = w->world;
	uint64_t now_us = simnet_now(world->net);

	if (w->dead || (w->left && event->kind != SIM_LINE))
		return;
	if (now_us < w->pause_until_us) {
		simnet_postpone(world->net, event, w->pause_until_us);
		return;
	}
	switch (event->kind) {
	case SIM_DATAGRAM:
		if (simnet_chance(world->net, world->spec->pause_ppm))
			w->pause_until_us =
				now_us + simnet_between(world->net, 1, world->spec->pause_us);
		session_datagram(w->session, event->from, event->data, event->bytes, now_us);
		break;
	case SIM_LINE:
		session_line(w->session, event->from, (const char *)event->data, now_us);
		break;
	case SIM_GONE:
		session_gone(w->session, event->from, "connection reset", now_us);
		break;
	case SIM_TIMER:
		if (event->channel == TIMER_FAULT)
			worker_fault(w, job_of(w)->fault);
	}
	if (!w->dead)
		worker_run(w);
}
