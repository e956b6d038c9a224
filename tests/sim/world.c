// SPDX-License-Identifier: BSD-3-Clause
/* world.c - see world.h and world_impl.h */

#include "tests/sim/world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/sim/world_impl.h"

#define PROMPT_CHECK_US 50000

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

/* ---- building ---- */

static void nodes_connect(struct world *world)
{
	const struct world_spec *spec = world->spec;

	for (uint32_t i = 0; i < spec->aggregator_count; i++) {
		*simnet_out(world->net, i) = spec->aggregators[i].out;
		*simnet_in(world->net, i) = spec->aggregators[i].in;
	}
	for (uint32_t i = 0; i < spec->worker_count; i++) {
		*simnet_out(world->net, spec->aggregator_count + i) = spec->workers[i].out;
		*simnet_in(world->net, spec->aggregator_count + i) = spec->workers[i].in;
	}
	for (uint32_t i = 0; i < spec->queue_count; i++)
		simnet_queue_add(world->net, &spec->queues[i]);
	/* Where datagrams get lost, some are changed. */
	for (uint32_t i = 0; i < world->nobody && world->keyed; i++) {
		struct simnet_path *in = simnet_in(world->net, i);

		in->flip_ppm = in->loss_ppm / 4;
		in->loss_ppm -= in->flip_ppm;
	}
}

static void job_build(struct world *world, uint32_t index)
{
	const struct job_spec *spec = &world->spec->jobs[index];
	struct sim_job *job = &world->jobs[index];

	job->spec = spec;
	job->workers = &world->workers[spec->first_worker];
	job->silence_us = job->stall_us = UINT64_MAX;
	for (uint32_t i = 0; i < spec->fault_count; i++)
		job->faults[i].spec = &spec->faults[i];
	job->sites = calloc(spec->world, sizeof(*job->sites));
	for (uint32_t rank = 0; rank < spec->world; rank++)
		job->sites[rank] = world->spec->workers[spec->first_worker + rank].home;
	for (uint32_t op = 0; op < spec->op_count; op++)
		job->references[op] = data_reference_make(&spec->ops[op], spec->world, job->sites);
	for (uint32_t rank = 0; rank < spec->world; rank++) {
		const struct worker_spec *worker = &world->spec->workers[spec->first_worker + rank];

		if (worker->silence_us < job->silence_us)
			job->silence_us = worker->silence_us;
		if (worker->stall_us < job->stall_us)
			job->stall_us = worker->stall_us;
		worker_open(world, spec->first_worker + rank, index, rank);
	}
}

static void build(struct world *world)
{
	const struct world_spec *spec = world->spec;

	world->nobody = spec->aggregator_count + spec->worker_count;
	world->net = simnet_open(spec->seed, world->nobody + 1 + 2 * spec->cross_count);
	world->keyed = spec->seed % 4 != 0;
	nodes_connect(world);
	world->engine = spec->isa != NULL ? bitmap_named(spec->isa) : bitmap_best();
	if (world->engine == NULL)
		world->engine = bitmap_best();
	if (bitmap_pool_open(world->engine, 1, &world->pool) != 0)
		abort();
	world->aggregators = calloc(spec->aggregator_count, sizeof(*world->aggregators));
	world->workers = calloc(spec->worker_count, sizeof(*world->workers));
	world->flat = malloc(WIRE_PAYLOAD_MAX);
	world->scratch = malloc(WIRE_PAYLOAD_MAX);
	for (uint32_t i = 0; i < spec->aggregator_count; i++) {
		snprintf(world->name_texts[i], sizeof(world->name_texts[i]), "agg%u", i);
		world->names[i] = world->name_texts[i];
		aggregator_open(world, i);
	}
	for (uint32_t j = 0; j < spec->job_count; j++)
		job_build(world, j);
	world->crosses = calloc(spec->cross_count, sizeof(*world->crosses));
	for (uint32_t i = 0; i < spec->cross_count; i++)
		cross_open(world, i);
	if (spec->members != NULL)
		members_open(world);
	measure_begin(world);
}

static void tear_down(struct world *world)
{
	members_close(world);
	for (uint32_t i = 0; i < world->spec->worker_count; i++)
		worker_close(&world->workers[i]);
	for (uint32_t j = 0; j < world->spec->job_count; j++) {
		for (uint32_t op = 0; op < world->spec->jobs[j].op_count; op++)
			data_reference_free(world->jobs[j].references[op]);
		free(world->jobs[j].sites);
	}
	bitmap_pool_close(world->pool);
	simnet_close(world->net);
	for (uint32_t i = 1; i <= world->peer_count; i++)
		free(world->peers[i]);
	free(world->peers);
	free(world->aggregators);
	free(world->workers);
	free(world->crosses);
	free(world->flat);
	free(world->scratch);
}

/* ---- threads ---- */

static void thread_waits_for_cpu(struct world *world, struct sim_thread *thread)
{
	uint64_t now_us = simnet_now(world->net);

	if (thread->cpu.wait_us == 0 || now_us < thread->has_cpu_until_us ||
	    now_us < thread->busy_until_us)
		return;
	thread->busy_until_us = now_us + simnet_between(world->net, 1, thread->cpu.wait_us);
	thread->has_cpu_until_us =
		thread->busy_until_us + simnet_between(world->net, 1, 2 * thread->cpu.run_us);
}

bool thread_busy(struct world *world, struct sim_thread *thread, struct sim_event *event)
{
	/* The kernel charges about twice a datagram's bytes to the buffer. */
	uint32_t charge = event->kind == SIM_DATAGRAM ? 2 * event->bytes : 0;
	bool behind;

	if (event->again)
		thread->waiting_bytes -= charge;
	thread_waits_for_cpu(world, thread);
	/* What comes in the very moment is behind what waits. */
	behind = !event->again && thread->waiting_bytes > 0;
	if (simnet_now(world->net) >= thread->busy_until_us + behind)
		return false;
	if (charge > 0 && thread->waiting_bytes + charge > thread->rcvbuf) {
		world->out->overflowed++;
		return true;
	}
	thread->waiting_bytes += charge;
	/* It reads its socket before it looks at the time. */
	simnet_postpone(world->net, event, thread->busy_until_us + (event->kind == SIM_TIMER));
	return true;
}

bool thread_gathers(struct world *world, struct sim_thread *thread, uint32_t node, uint64_t turn_us)
{
	if (thread->turn_due)
		return true;
	if (turn_us == 0 && !thread->sleeps)
		return false;
	thread->turn_due = true;
	simnet_timer(world->net, node, TIMER_TURN,
	             simnet_now(world->net) +
	                     (turn_us > 0 ? simnet_between(world->net, 0, turn_us) : 0));
	return true;
}

/* ---- running ---- */

static bool all_over(struct world *world)
{
	if (world->members != NULL)
		return members_over(world);
	for (uint32_t i = 0; i < world->spec->worker_count; i++)
		if (!world->workers[i].dead && !world->workers[i].left)
			return false;
	return true;
}

static void describe_hang(struct world *world)
{
	if (world->members != NULL) {
		members_hang(world);
		return;
	}
	for (uint32_t i = 0; i < world->spec->worker_count; i++) {
		const struct sim_worker *w = &world->workers[i];

		if (w->dead || w->left)
			continue;
		world_fail(world,
		           "hang: job %u rank %u has %u of %u operations done, session %d: %s",
		           w->job, w->rank, w->finished, w->submitted, session_state(w->session),
		           session_error(w->session));
	}
}

void world_deliver(struct world *world, struct sim_event *event)
{
	if (event->to > world->nobody)
		cross_event(&world->crosses[(event->to - world->nobody - 1) / 2], event);
	else if (world->members != NULL && event->to == world->nobody)
		members_timer(world, event->channel);
	else if (event->to == world->nobody && event->channel == TIMER_TICK)
		measure_sample(world);
	else if (event->to == world->nobody)
		fault_strike(world, event->channel);
	else if (world->members != NULL && event->to >= world->spec->aggregator_count)
		member_event(&world->members->list[event->to - world->spec->aggregator_count],
		             event);
	else if (event->to >= world->spec->aggregator_count)
		worker_event(&world->workers[event->to - world->spec->aggregator_count], event);
	else
		aggregator_event(&world->aggregators[event->to], event);
	simnet_free(event);
}

static void take_event(struct world *world, struct sim_event *event)
{
	if (world->members != NULL && members_keep(world, event))
		simnet_free(event);
	else
		world_deliver(world, event);
}

static uint64_t longest_silence_us(const struct world *world)
{
	uint64_t longest_us = 0;

	for (uint32_t i = 0; i < world->spec->worker_count; i++)
		if (world->spec->workers[i].silence_us > longest_us)
			longest_us = world->spec->workers[i].silence_us;
	return longest_us;
}

static void run(struct world *world)
{
	uint64_t over_us = UINT64_MAX, check_us = 0;
	struct sim_event event;

	while (!world->failed && simnet_next(world->net, &event)) {
		uint64_t now_us = simnet_now(world->net);

		take_event(world, &event);
		if (now_us > over_us)
			break;
		if (now_us < check_us)
			continue;
		check_us = now_us + PROMPT_CHECK_US;
		faults_check_prompt(world);
		if (!world->over && all_over(world)) { /* let LEAVEs arrive */
			world->over = true;
			over_us = now_us + 2 * longest_silence_us(world) + 1000000;
		}
		if (now_us > world->spec->limit_us)
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
	out->datagrams = simnet_stats(world.net)->datagrams;
	out->lost = simnet_stats(world.net)->lost;
	out->overflowed += simnet_stats(world.net)->overflowed;
	for (uint32_t i = 0; i < spec->aggregator_count; i++)
		aggregator_close(&world.aggregators[i]);
	if (!world.failed && spec->members != NULL)
		members_judge(&world);
	else if (!world.failed)
		world_judge(&world);
	measure_end(&world);
	tear_down(&world);
	out->ok = !world.failed;
}
