// SPDX-License-Identifier: BSD-3-Clause
/* world.c - build a world, run it until all is over, and judge what the workers got */

#include "tests/sim/world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world_impl.h"

void world_fail(struct world *world, const char *format, ...)
{
	va_list args;

	if (world->failed)
		return;
	world->failed = true;
	va_start(args, format);
	vsnprintf(world->out->why, sizeof(world->out->why), format, args);
	va_end(args);
}

static void build(struct world *world)
{
	const struct world_spec *spec = world->spec;
	struct simnet_config net = spec->net;
	uint32_t index = 0;

	for (uint32_t j = 0; j < spec->jobs; j++)
		world->worker_count += spec->job[j].world;
	net.nodes = spec->aggregators + world->worker_count;
	net.seed = spec->seed;
	world->net = simnet_open(&net);
	world->engine = spec->isa != NULL ? bitmap_named(spec->isa) : bitmap_best();
	if (world->engine == NULL)
		world->engine = bitmap_best();
	if (bitmap_pool_open(world->engine, 1, &world->pool) != 0)
		abort();
	world->aggregators = calloc(spec->aggregators, sizeof(*world->aggregators));
	world->workers = calloc(world->worker_count, sizeof(*world->workers));
	world->flat = malloc(WIRE_PAYLOAD_MAX);
	world->scratch = malloc(WIRE_PAYLOAD_MAX);
	for (uint32_t i = 0; i < spec->aggregators; i++)
		aggregator_open(world, i);
	for (uint32_t j = 0; j < spec->jobs; j++) {
		world->jobs[j].spec = &spec->job[j];
		world->jobs[j].first_worker = index;
		for (uint32_t op = 0; op < spec->job[j].op_count; op++)
			world->jobs[j].references[op] =
				data_reference_make(&spec->job[j].ops[op], spec->job[j].world);
		for (uint32_t rank = 0; rank < spec->job[j].world; rank++)
			worker_open(world, index++, j, rank);
	}
}

static void tear_down(struct world *world)
{
	for (uint32_t i = 0; i < world->worker_count; i++)
		worker_close(&world->workers[i]);
	for (uint32_t i = 0; i < world->spec->aggregators; i++)
		aggregator_close(&world->aggregators[i]);
	for (uint32_t j = 0; j < world->spec->jobs; j++)
		for (uint32_t op = 0; op < world->spec->job[j].op_count; op++)
			data_reference_free(world->jobs[j].references[op]);
	bitmap_pool_close(world->pool);
	simnet_close(world->net);
	free(world->aggregators);
	free(world->workers);
	free(world->flat);
	free(world->scratch);
}

/* ---- judging ---- */

static bool status_expected(const struct sim_worker *w, uint32_t op)
{
	const struct job_spec *job = w->world->jobs[w->job].spec;
	int status = w->ops[op].task.status;

	switch (job->fault) {
	case FAULT_NONE:
		return status == WINNOW_OK;
	case FAULT_CRASH:
	case FAULT_FREEZE:
	case FAULT_AGGREGATOR:
		return status == WINNOW_OK || status == WINNOW_ERR_LOST;
	case FAULT_LEAVE: /* its absence from the last operation may be noticed first */
		return status == WINNOW_OK || status == WINNOW_ERR_LOST ||
		       status == WINNOW_ERR_TIMEOUT;
	case FAULT_ABORT:
		return status == WINNOW_OK || status == WINNOW_ERR_ABORTED;
	case FAULT_ABSENT:
		return status == WINNOW_OK || status == WINNOW_ERR_TIMEOUT;
	case FAULT_MISMATCH:
		return status == (op == job->fault_op ? WINNOW_ERR_MISMATCH : WINNOW_OK);
	}
	return false;
}

/* An error must name who is to blame. */
static void judge_error(struct world *world, const struct sim_worker *w, uint32_t op)
{
	const struct job_spec *job = world->jobs[w->job].spec;
	const struct plan_mismatch *m = &w->ops[op].task.mismatch;
	char blame[32];

	world->out->failures++;
	if (job->fault == FAULT_MISMATCH) {
		if (m->rank_a != job->fault_rank && m->rank_b != job->fault_rank)
			world_fail(world, "job %u op %u: ranks %u and %u are blamed, not %u",
			           w->job, op, m->rank_a, m->rank_b, job->fault_rank);
		return;
	}
	snprintf(blame, sizeof(blame), job->fault == FAULT_AGGREGATOR ? "agg%u" : "rank %u",
	         job->fault_rank);
	if (job->fault == FAULT_ABORT && w->rank == job->fault_rank)
		snprintf(blame, sizeof(blame), "aborted here");
	if (strstr(session_error(w->session), blame) == NULL)
		world_fail(world, "job %u rank %u: \"%s\" does not name %s", w->job, w->rank,
		           session_error(w->session), blame);
}

static void judge_op(struct world *world, const struct sim_worker *w, uint32_t number)
{
	const struct op_spec *spec = &world->jobs[w->job].spec->ops[number];
	const struct sim_op *op = &w->ops[number];
	const struct data_reference *reference = world->jobs[w->job].references[number];
	uint64_t wrong;

	if (!op->submitted)
		return;
	if (op->dones != 1) {
		world_fail(world, "job %u rank %u op %u: done %u times; session: %s", w->job,
		           w->rank, number, op->dones, session_error(w->session));
		return;
	}
	if (!status_expected(w, number)) {
		world_fail(world, "job %u rank %u op %u: status %d; session: %s", w->job, w->rank,
		           number, op->task.status, session_error(w->session));
		return;
	}
	if (op->task.status != WINNOW_OK) {
		judge_error(world, w, number);
		return;
	}
	world->out->operations++;
	wrong = data_check(reference, op->recv);
	if (wrong < spec->count)
		world_fail(world, "job %u rank %u op %u: element %llu of %llu is %.17g, want %.17g",
		           w->job, w->rank, number, (unsigned long long)wrong,
		           (unsigned long long)spec->count,
		           data_value(spec->dtype, op->recv, wrong),
		           data_reference_at(reference, wrong));
}

/* All workers have the same bits, which a comparison within bounds does not show. */
static void judge_same(struct world *world, const struct sim_worker *w, uint32_t number)
{
	const struct sim_job *job = &world->jobs[w->job];
	const struct op_spec *spec = &job->spec->ops[number];
	const struct sim_worker *first = &world->workers[job->first_worker];

	if (w->ops[number].dones != 1 || first->ops[number].dones != 1 ||
	    w->ops[number].task.status != WINNOW_OK || first->ops[number].task.status != WINNOW_OK)
		return;
	for (uint64_t i = 0; i < spec->count; i++) {
		double a = data_value(spec->dtype, first->ops[number].recv, i);
		double b = data_value(spec->dtype, w->ops[number].recv, i);

		if (a != b && a == a) {
			world_fail(world, "job %u op %u: ranks 0 and %u differ at %llu", w->job,
			           number, w->rank, (unsigned long long)i);
			return;
		}
	}
}

static void judge(struct world *world)
{
	for (uint32_t i = 0; i < world->worker_count; i++) {
		const struct sim_worker *w = &world->workers[i];
		struct winnow_stats stats;

		session_stats(w->session, &stats);
		world->out->retransmits += stats.retransmits;
		world->out->nacks += stats.nacks;
		world->out->dropped += stats.dropped;
		for (uint32_t op = 0; !w->dead && op < world->jobs[w->job].spec->op_count; op++) {
			judge_op(world, w, op);
			judge_same(world, w, op);
		}
	}
}

/* ---- running ---- */

/* The ends of a job's pending calls are due a fixed time after the fault. */
static void check_promptness(struct world *world, uint64_t now_us)
{
	const struct world_spec *spec = world->spec;

	for (uint32_t i = 0; i < world->worker_count; i++) {
		const struct sim_worker *w = &world->workers[i];
		const struct sim_job *job = &world->jobs[w->job];
		uint64_t patience_us = 2 * spec->silence_us + 3000000;

		if (job->fault_us == 0 || w->dead || job->spec->fault == FAULT_MISMATCH)
			continue;
		/* Its wait begins with the last operation, which may be a while off. */
		if (job->spec->fault == FAULT_ABSENT)
			patience_us +=
				spec->stall_us > 10000000 ? 2 * spec->stall_us : spec->stall_us;
		if (w->finished < w->submitted && now_us > job->fault_us + patience_us) {
			world_fail(world, "job %u rank %u: still waiting %.1f s after the fault",
			           w->job, w->rank, (double)(now_us - job->fault_us) / 1e6);
			return;
		}
	}
}

static bool all_over(const struct world *world)
{
	for (uint32_t i = 0; i < world->worker_count; i++)
		if (!world->workers[i].dead && !world->workers[i].left)
			return false;
	return true;
}

static void describe_hang(struct world *world)
{
	for (uint32_t i = 0; i < world->worker_count; i++) {
		const struct sim_worker *w = &world->workers[i];

		if (w->dead || w->left)
			continue;
		world_fail(world,
		           "hang: job %u rank %u has %u of %u operations done, session %d: %s",
		           w->job, w->rank, w->finished, w->submitted, session_state(w->session),
		           session_error(w->session));
	}
}

static void run(struct world *world)
{
	const struct world_spec *spec = world->spec;
	struct sim_event event;
	uint64_t over_us = UINT64_MAX;

	while (!world->failed && simnet_next(world->net, &event)) {
		uint64_t now_us = simnet_now(world->net);

		if (event.to >= spec->aggregators)
			worker_event(&world->workers[event.to - spec->aggregators], &event);
		else if (event.kind == SIM_TIMER && event.channel == TIMER_FAULT)
			aggregator_kill(&world->aggregators[event.to]);
		else
			aggregator_event(&world->aggregators[event.to], &event);
		if (event.kind == SIM_TIMER && event.channel == TIMER_FAULT)
			for (uint32_t j = 0; j < spec->jobs; j++)
				if (spec->job[j].fault == FAULT_AGGREGATOR)
					world->jobs[j].fault_us = now_us;
		simnet_free(&event);
		if (event.kind == SIM_TIMER)
			check_promptness(world, now_us);
		if (over_us == UINT64_MAX && all_over(world))
			over_us = now_us + 2 * spec->silence_us + 1000000; /* let LEAVEs arrive */
		if (now_us > over_us)
			break;
		if (now_us > spec->limit_us)
			describe_hang(world);
	}
	world->out->virtual_us = simnet_now(world->net);
}

void world_run(const struct world_spec *spec, struct world_outcome *out)
{
	struct world world = {.spec = spec, .out = out};

	*out = (struct world_outcome){.ok = false};
	build(&world);
	run(&world);
	if (!world.failed)
		judge(&world);
	out->datagrams = simnet_stats(world.net)->datagrams;
	out->lost = simnet_stats(world.net)->lost;
	out->overflowed = simnet_stats(world.net)->overflowed;
	tear_down(&world);
	out->ok = !world.failed;
}
