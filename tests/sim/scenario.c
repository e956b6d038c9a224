// SPDX-License-Identifier: BSD-3-Clause
/* scenario.c - see scenario.h */

#include "tests/sim/scenario.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ebpf/wire.h"
#include "tests/sim/world_impl.h"

#define LISTED_MAX 4 /* aggregators in the workers' lists */
#define SITES_MAX 4

/* ---- what all nodes of a world have in common, unless it is uneven ---- */

struct usual {
	bool uneven; /* every node has its own of some of these */
	bool clean;  /* nothing is lost, doubled, delayed differently, or too much */
	struct simnet_path out, in;
	uint64_t turn_us;
	uint32_t pause_ppm;
	uint64_t pause_us;
	uint64_t stall_us;
};

static void faulty_path(struct dice *dice, struct usual *usual)
{
	usual->in.loss_ppm = PICK(dice, 0, 1000, 10000, 50000, 150000, 300000);
	usual->in.duplicate_ppm = PICK(dice, 0, 10000, 100000);
	usual->in.reorder_ppm = PICK(dice, 0, 10000, 200000);
	usual->in.reorder_us = 500;
	if (one_in(dice, 6))
		usual->in.mtu = PICK(dice, 1472, 1300, 600);
	if (one_in(dice, 6)) {
		usual->in.rate_bytes_s = PICK(dice, 10000000, 100000000);
		usual->in.queue_bytes = PICK(dice, 20000, 200000);
	}
	if (one_in(dice, 6)) {
		usual->out.rate_bytes_s = PICK(dice, 10000000, 100000000);
		usual->out.queue_bytes = PICK(dice, 3000, 200000);
	}
	if (one_in(dice, 4)) {
		usual->pause_ppm = PICK(dice, 100, 5000);
		usual->pause_us = PICK(dice, 2000, 50000);
	}
}

static void usual_make(struct dice *dice, struct usual *usual)
{
	*usual = (struct usual){.uneven = one_in(dice, 3), .clean = one_in(dice, 3)};
	usual->in.delay_us_min = PICK(dice, 1, 20, 50, 500);
	usual->in.delay_us_max = usual->in.delay_us_min + PICK(dice, 0, 0, 10, 200, 2000);
	usual->turn_us = PICK(dice, 0, 0, 20, 200);
	if (!usual->clean)
		faulty_path(dice, usual);
	/* Slow is not stalled. */
	usual->stall_us = usual->in.loss_ppm > 10000 || usual->in.rate_bytes_s != 0 ||
	                                  usual->out.rate_bytes_s != 0 || usual->pause_ppm != 0
	                          ? 60000000
	                          : 4000000;
}

/* In an uneven world: far away, or by a narrow road, or behind a slow connection. */
static void path_bend(struct dice *dice, const struct usual *usual, struct simnet_path *path)
{
	if (!usual->uneven)
		return;
	if (one_in(dice, 3)) {
		path->delay_us_min += PICK(dice, 100, 1000, 10000);
		path->delay_us_max = path->delay_us_min + PICK(dice, 0, 100, 2000);
	}
	if (one_in(dice, 3))
		path->line_us = PICK(dice, 1000, 20000, 100000);
	if (usual->clean)
		return;
	if (one_in(dice, 4))
		path->mtu = PICK(dice, 8972, 3470, 1472, 1300, 600);
	if (one_in(dice, 4))
		path->loss_ppm = PICK(dice, 0, 10000, 100000);
}

/* ---- nodes ---- */

static void aggregator_make(struct dice *dice, const struct usual *usual,
                            struct aggregator_spec *out)
{
	*out = (struct aggregator_spec){.out = usual->out, .in = usual->in};
	path_bend(dice, usual, &out->out);
	path_bend(dice, usual, &out->in);
	out->turn_us = usual->turn_us;
	out->rcvbuf = PICK(dice, 212992, 1u << 20, 1u << 22);
	out->threads = one_in(dice, 2) ? 1 : between(dice, 1, 3);
	out->payload_max = one_in(dice, 4) ? between(dice, WIRE_PAYLOAD_MIN, 9000)
	                                   : PICK(dice, WIRE_PAYLOAD_MIN, 1472, 3470, 8972);
	out->window_bytes = PICK(dice, 8192, 65536, 1048576);
	out->op_slots = PICK(dice, 1, 2, 4, 12, 32);
	out->segments_ahead = PICK(dice, 1, 2, 8, 20);
	out->fast = one_in(dice, 2);
	out->no_room = one_in(dice, 4);
	out->bypass_ppm = PICK(dice, 0, 0, 50000, 500000);
}

static void aggregators_make(struct dice *dice, const struct usual *usual, struct world_spec *out)
{
	out->aggregator_count = one_in(dice, 2) ? 1 : between(dice, 1, LISTED_MAX);
	for (uint32_t i = 0; i < out->aggregator_count; i++) {
		if (i == 0 || usual->uneven)
			aggregator_make(dice, usual, &out->aggregators[i]);
		else
			out->aggregators[i] = out->aggregators[0];
	}
}

static void worker_make(struct dice *dice, const struct usual *usual, const struct world_spec *spec,
                        uint32_t multicast_ppm, struct worker_spec *out)
{
	*out = (struct worker_spec){
		.out = usual->out,
		.in = usual->in,
		.turn_us = usual->turn_us,
		.connect_us = between(dice, 0, 3000),
		.rcvbuf = 1u << 22,
		.payload = spec->aggregators[0].payload_max,
		.hears_multicast = roll(dice) % 1000000 < multicast_ppm,
		.pause_ppm = usual->pause_ppm,
		.pause_us = usual->pause_us,
		.silence_us = 2000000,
		.stall_us = usual->stall_us,
	};
	path_bend(dice, usual, &out->out);
	path_bend(dice, usual, &out->in);
	if (!usual->uneven)
		return;
	out->connect_us = between(dice, 0, PICK(dice, 3000, 3000, 2000000));
	out->silence_us = PICK(dice, SILENCE_US_MIN, 2000000, 10000000);
	out->stall_us += PICK(dice, 0, 1000000, 10000000);
	out->rcvbuf = PICK(dice, 212992, 1u << 22);
	if (one_in(dice, 3))
		out->payload = PICK(dice, WIRE_PAYLOAD_MIN, 1472, 3470, 8972);
}

/* Operations of a worker that computes in between may be so far from another's. */
static uint64_t apart_us(const struct job_spec *job)
{
	return job->op_count * job->gap_us;
}

static void workers_make(struct dice *dice, const struct usual *usual, struct world_spec *out)
{
	uint32_t multicast_ppm = PICK(dice, 0, 500000, 1000000);

	for (uint32_t j = 0; j < out->job_count; j++) {
		out->jobs[j].first_worker = out->worker_count;
		out->worker_count += out->jobs[j].world;
	}
	out->workers = calloc(out->worker_count, sizeof(*out->workers));
	if (out->workers == NULL)
		abort();
	for (uint32_t i = 0; i < out->worker_count; i++)
		worker_make(dice, usual, out, multicast_ppm, &out->workers[i]);
	for (uint32_t j = 0; j < out->job_count; j++)
		for (uint32_t rank = 0; rank < out->jobs[j].world; rank++)
			out->workers[out->jobs[j].first_worker + rank].stall_us +=
				apart_us(&out->jobs[j]);
}

/* ---- queues of switches ---- */

/* On which host a worker is: those of a rank share one. */
static uint32_t host_of(const struct world_spec *spec, uint32_t worker)
{
	uint32_t rank = worker;

	for (uint32_t j = 0; j < spec->job_count; j++)
		if (worker >= spec->jobs[j].first_worker)
			rank = worker - spec->jobs[j].first_worker;
	return rank % (WORLD_QUEUES_MAX / 2);
}

/* At aggregators' ports, or at hosts of workers. */
static void queue_lay(struct world_spec *out, const struct simnet_queue *queue, bool hosts,
                      bool both_ways)
{
	uint32_t nodes = hosts ? out->worker_count : out->aggregator_count;

	for (uint32_t i = 0; i < nodes; i++) {
		struct simnet_path *in = hosts ? &out->workers[i].in : &out->aggregators[i].in;
		struct simnet_path *way = hosts ? &out->workers[i].out : &out->aggregators[i].out;
		uint32_t number = 2 * (hosts ? host_of(out, i) : i);

		in->queue = number + 1;
		if (both_ways) {
			way->queue = number + 2;
			way->rate_bytes_s = 0;
		}
		if (out->queue_count < number + 2)
			out->queue_count = number + 2;
	}
	for (uint32_t i = 0; i < out->queue_count; i++)
		out->queues[i] = *queue;
}

/* No dice: worlds of seeds are otherwise what they were without. True: nodes meet at queues. */
static bool queues_make(uint64_t seed, struct world_spec *out)
{
	struct dice dice = {seed * UINT64_C(0x9e6c63d0876a9a47) + 7};
	struct simnet_queue queue;
	bool hosts, both_ways;

	if (!one_in(&dice, 5))
		return false;
	queue.rate_bits_s = UINT64_C(1000000) * PICK(&dice, 50, 300, 1000, 10000);
	queue.buffer_bytes = PICK(&dice, 10000, 30000, 100000, 1000000);
	queue.mark_bytes = one_in(&dice, 2) ? 0 : queue.buffer_bytes / PICK(&dice, 2, 10, 30);
	hosts = one_in(&dice, 2);
	both_ways = one_in(&dice, 2);
	queue_lay(out, &queue, hosts, both_ways);
	/* Slow is not stalled. */
	for (uint32_t i = 0; i < out->worker_count; i++)
		if (out->workers[i].stall_us < 60000000)
			out->workers[i].stall_us += 60000000;
	return true;
}

/* ---- a world ---- */

/* Nothing may be sent twice where nothing goes wrong, and nothing takes longer than a time-out. */
static bool must_not_waste(const struct world_spec *spec, const struct usual *usual)
{
	for (uint32_t j = 0; j < spec->job_count; j++)
		if (spec->jobs[j].fault_count > 0 || spec->jobs[j].gpu_ppm > 0)
			return false;
	return usual->clean && !usual->uneven && usual->in.delay_us_max == usual->in.delay_us_min;
}

/* Hosts run for as long as they like: 32 bits of their clocks wrap, or soon will, or pass half of that. */
static void clocks_set(uint64_t seed, struct world_spec *out)
{
	struct dice dice = {seed * UINT64_C(0x9fb21c651e98df25) + 7};

	for (uint32_t i = 0; i < out->worker_count; i++) {
		uint64_t edge = (uint64_t)between(&dice, 1, 9) << 31;

		if (one_in(&dice, 2))
			out->workers[i].clock_us = edge - between(&dice, 0, 3000000);
		else
			out->workers[i].clock_us = roll(&dice) >> 16;
	}
}

static struct dice world_begin(uint64_t seed, const char *name, struct world_spec *out)
{
	struct dice dice = {seed * UINT64_C(0xd1342543de82ef95) + 99};
	static const char *const isas[] = {NULL, "scalar", "avx2", "avx512"};

	memset(out, 0, sizeof(*out));
	out->seed = seed;
	out->class_name = name;
	out->limit_us = 2000000000; /* where a third is lost, 60 workers are slow */
	out->isa = isas[between(&dice, 0, 3)];
	return dice;
}

void scenario_make(uint64_t seed, struct world_spec *out)
{
	struct dice dice = world_begin(seed, "any", out);
	struct usual usual;

	if (scenario_class(seed, &dice, out))
		return;
	usual_make(&dice, &usual);
	aggregators_make(&dice, &usual, out);
	out->job_count = one_in(&dice, 3) ? between(&dice, 2, WORLD_JOBS_MAX) : 1;
	for (uint32_t i = 0; i < out->job_count; i++)
		scenario_job(&dice, out, &out->jobs[i]);
	workers_make(&dice, &usual, out);
	for (uint32_t i = 0, overlooked = one_in(&dice, 4); i < out->aggregator_count; i++)
		out->aggregators[i].overlooks_stalls = overlooked;
	clocks_set(seed, out);
	out->bounds.nothing_wasted = !queues_make(seed, out) && must_not_waste(out, &usual);
}

/* ---- a world with two levels ---- */

/* A parent, and sites of it that differ from it in what they may: not in the number of threads. */
static void sites_make(struct dice *dice, const struct usual *usual, struct world_spec *out)
{
	aggregator_make(dice, usual, &out->aggregators[0]);
	out->site_count = between(dice, 2, SITES_MAX);
	out->aggregator_count = 1 + out->site_count;
	for (uint32_t i = 1; i < out->aggregator_count; i++) {
		if (usual->uneven)
			aggregator_make(dice, usual, &out->aggregators[i]);
		else
			out->aggregators[i] = out->aggregators[0];
		out->aggregators[i].threads = out->aggregators[0].threads;
	}
}

/* What sites do not take is left out: f32 in 8 or 16 bits. */
static void sites_op(struct op_spec *op)
{
	if (op->form == WIRE_FIXED16 || op->form == WIRE_FIXED8)
		op->form = WIRE_FIXED32;
}

/* Of a worker, a site, or the parent, and soon. */
static void death(struct dice *dice, const struct world_spec *out, struct job_spec *job)
{
	struct fault_spec *fault = &job->faults[0];

	job->fault_count = 1;
	*fault = (struct fault_spec){
		.kind = PICK(dice, FAULT_CRASH, FAULT_FREEZE, FAULT_AGGREGATOR, FAULT_AGGREGATOR),
		.after_us = between(dice, 0, PICK(dice, 100, 1000, 10000, 100000)),
	};
	fault->who = between(dice, 0,
	                     fault->kind == FAULT_AGGREGATOR ? out->site_count : job->world - 1);
}

static void sites_job(struct dice *dice, const struct world_spec *out, struct job_spec *job)
{
	scenario_job(dice, out, job);
	for (uint32_t i = 0; i < job->op_count; i++)
		sites_op(&job->ops[i]);
	for (uint32_t i = 0; i < job->fault_count; i++)
		sites_op(&job->faults[i].other_op);
	if (out->job_count == 1 && one_in(dice, 4))
		death(dice, out, job);
}

/* Where each worker is: at any site, or at none, which is the parent itself. */
static void homes_choose(struct dice *dice, const struct usual *usual, struct world_spec *out)
{
	uint32_t alone = PICK(dice, 0, 0, 1); /* with workers that have no site */

	for (uint32_t i = 0; i < out->worker_count; i++)
		out->workers[i].home = between(dice, 1 - alone, out->site_count);
	/* Slow is not stalled: a site with few operation slots keeps those waiting that have more. */
	for (uint32_t i = 0; i < out->worker_count && usual->uneven; i++)
		if (out->workers[i].stall_us < 60000000)
			out->workers[i].stall_us += 60000000;
}

void scenario_sites(uint64_t seed, struct world_spec *out)
{
	struct dice dice = world_begin(seed, "sites", out);
	struct usual usual;

	usual_make(&dice, &usual);
	sites_make(&dice, &usual, out);
	out->job_count = one_in(&dice, 4) ? 2 : 1;
	for (uint32_t i = 0; i < out->job_count; i++)
		sites_job(&dice, out, &out->jobs[i]);
	workers_make(&dice, &usual, out);
	homes_choose(&dice, &usual, out);
	clocks_set(seed, out);
	out->bounds.nothing_wasted = !queues_make(seed, out) && must_not_waste(out, &usual);
}

void scenario_calm(struct world_spec *out, const char *name, uint32_t jobs, uint32_t world,
                   uint64_t delay_us)
{
	const struct simnet_path way = {.delay_us_min = delay_us, .delay_us_max = delay_us};

	out->class_name = name;
	out->aggregator_count = 1;
	out->aggregators[0] = (struct aggregator_spec){
		.in = way,
		.rcvbuf = 32u << 20,
		.threads = 1,
		.payload_max = 1472,
		.window_bytes = 2u << 20,
		.op_slots = 32,
		.segments_ahead = 8,
	};
	out->job_count = jobs;
	for (uint32_t j = 0; j < jobs; j++)
		out->jobs[j] = (struct job_spec){
			.world = world, .first_worker = j * world, .eager_ppm = 1000000};
	out->worker_count = jobs * world;
	out->workers = calloc(out->worker_count, sizeof(*out->workers));
	if (out->workers == NULL)
		abort();
	for (uint32_t i = 0; i < out->worker_count; i++)
		out->workers[i] = (struct worker_spec){
			.in = way,
			.rcvbuf = 32u << 20,
			.payload = 1472,
			.silence_us = 2000000,
			.stall_us = 60000000,
		};
}

void scenario_free(struct world_spec *spec)
{
	free(spec->workers);
	spec->workers = NULL;
}

/* ---- in words ---- */

__attribute__((format(printf, 3, 4))) static void add(char *text, size_t room, const char *format,
                                                      ...)
{
	size_t used = strlen(text);
	va_list args;

	va_start(args, format);
	vsnprintf(text + used, room - used, format, args);
	va_end(args);
}

static void describe_job(const struct job_spec *job, char *text, size_t room)
{
	add(text, room, " [world=%u ops=%u%s%s%s", job->world, job->op_count,
	    job->gpu_ppm > 0 ? " gpu" : "", job->own_order ? " own-order" : "",
	    job->priority_max == 0 ? ""
	    : job->own_priorities  ? " own-priorities"
	                           : " priorities");
	for (uint32_t i = 0; i < job->fault_count; i++)
		add(text, room, " %s(%u after %lluus)", fault_name(job->faults[i].kind),
		    job->faults[i].who, (unsigned long long)job->faults[i].after_us);
	add(text, room, "]");
}

void scenario_describe(const struct world_spec *spec, char *text, size_t room)
{
	const struct aggregator_spec *a = &spec->aggregators[0];
	const struct simnet_path *in = &spec->workers[0].in;

	snprintf(text, room, "%s: %u aggregators(payload=%u window=%u slots=%u%s)",
	         spec->class_name, spec->aggregator_count, a->payload_max, a->window_bytes,
	         a->op_slots, a->fast ? " fast" : "");
	add(text, room, " in(%llu-%lluus loss=%.1f%% mtu=%u)", (unsigned long long)in->delay_us_min,
	    (unsigned long long)in->delay_us_max, in->loss_ppm / 1e4, in->mtu);
	if (spec->site_count > 0)
		add(text, room, " sites(%u payload=%u window=%u slots=%u)", spec->site_count,
		    spec->aggregators[1].payload_max, spec->aggregators[1].window_bytes,
		    spec->aggregators[1].op_slots);
	if (spec->queue_count > 0)
		add(text, room, " queues(rate=%llu buffer=%llu)",
		    (unsigned long long)spec->queues[0].rate_bits_s,
		    (unsigned long long)spec->queues[0].buffer_bytes);
	for (uint32_t i = 0; i < spec->job_count; i++)
		describe_job(&spec->jobs[i], text, room);
}
