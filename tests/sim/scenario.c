// SPDX-License-Identifier: BSD-3-Clause
/* scenario.c - see scenario.h */

#include "tests/sim/scenario.h"

#include <stdio.h>
#include <string.h>

#include "client/winnow.h"
#include "ebpf/wire.h"

/* A run costs about as many additions and copies as there are elements; keep it bounded. */
#define ELEMENTS_MAX 600000

struct dice {
	uint64_t state;
};

static uint64_t roll(struct dice *dice)
{
	uint64_t z = dice->state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static uint32_t between(struct dice *dice, uint32_t low, uint32_t high)
{
	return low + (uint32_t)(roll(dice) % (high - low + 1));
}

static bool one_in(struct dice *dice, uint32_t n)
{
	return roll(dice) % n == 0;
}

#define PICK(dice, ...)                                                                            \
	((const uint32_t[]){                                                                       \
		__VA_ARGS__}[roll(dice) % (sizeof((const uint32_t[]){__VA_ARGS__}) / 4)])

static void network(struct dice *dice, struct world_spec *spec)
{
	struct simnet_config *net = &spec->net;

	net->delay_us_min = PICK(dice, 1, 20, 50, 500);
	net->delay_us_max = net->delay_us_min + PICK(dice, 0, 0, 10, 200, 2000);
	net->reorder_us = 500;
	if (one_in(dice, 3))
		return; /* a clean network */
	net->loss_ppm = PICK(dice, 0, 1000, 10000, 50000, 150000, 300000);
	net->duplicate_ppm = PICK(dice, 0, 10000, 100000);
	net->reorder_ppm = PICK(dice, 0, 10000, 200000);
	if (one_in(dice, 6))
		net->mtu = PICK(dice, 1472, 1300, 600);
	if (one_in(dice, 6)) {
		net->rate_bytes_s = PICK(dice, 10000000, 100000000);
		net->queue_bytes = PICK(dice, 20000, 200000);
	}
	if (one_in(dice, 4)) {
		spec->pause_ppm = PICK(dice, 100, 5000);
		spec->pause_us = PICK(dice, 2000, 50000);
	}
}

static void numbers(struct dice *dice, struct op_spec *op)
{
	op->dtype = (uint8_t)between(dice, WINNOW_F32, WINNOW_I64);
	op->reduction = (uint8_t)between(dice, WINNOW_SUM, WINNOW_PROD);
	if (one_in(dice, 4)) {
		op->dtype = WINNOW_F32;
		op->reduction = (uint8_t)between(dice, WINNOW_SUM, WINNOW_AVG);
		op->fixed32 = true;
	}
	op->nonfinite = op->dtype <= WINNOW_F64 && one_in(dice, 8);
}

static void operation(struct dice *dice, struct op_spec *op, uint32_t number, uint32_t count_max)
{
	memset(op, 0, sizeof(*op));
	op->seed = roll(dice);
	op->tag = roll(dice) >> 8 << 4 | number;
	numbers(dice, op);
	op->block = one_in(dice, 3) ? between(dice, 1, 5000)
	                            : PICK(dice, 1, 8, 32, 64, 256, 1024, 4096);
	switch (between(dice, 0, 3)) {
	case 0:
		op->count = between(dice, 0, 300);
		break;
	case 1:
		op->count = between(dice, 0, 20000);
		break;
	default:
		op->count = between(dice, 0, count_max);
	}
	if (op->count > count_max)
		op->count = count_max;
	op->run = PICK(dice, 1, 17, 256, 1000);
	op->density_ppm = PICK(dice, 0, 1000, 10000, 100000, 500000, 1000000);
	op->shared_ppm = PICK(dice, 0, 0, 500000, 1000000);
}

static void fault(struct dice *dice, struct job_spec *job, uint32_t aggregators)
{
	job->fault = (enum fault_kind)between(dice, FAULT_CRASH, FAULT_LEAVE);
	job->fault_rank = between(dice, 0, job->world - 1);
	job->fault_after_us = between(dice, 0, PICK(dice, 100, 2000, 30000));
	if (job->fault == FAULT_AGGREGATOR)
		job->fault_rank = between(dice, 0, aggregators - 1);
	if (job->world == 1 && job->fault != FAULT_AGGREGATOR && job->fault != FAULT_ABORT)
		job->fault = FAULT_NONE;
	if (job->fault != FAULT_MISMATCH)
		return;
	job->fault_op = between(dice, 0, job->op_count - 1);
	job->fault_spec = job->ops[job->fault_op];
	switch (between(dice, 0, 3)) {
	case 0:
		job->fault_spec.count += between(dice, 1, 100000);
		break;
	case 1:
		job->fault_spec.block = job->fault_spec.block % 5000 + 1;
		break;
	case 2:
		job->fault_spec.dtype = (uint8_t)(job->fault_spec.dtype % WINNOW_I64 + 1);
		break;
	default:
		job->fault_spec.reduction = (uint8_t)(job->fault_spec.reduction % WINNOW_PROD + 1);
	}
	if (job->fault_spec.dtype != WINNOW_F32 || job->fault_spec.reduction > WINNOW_AVG)
		job->fault_spec.fixed32 = false;
}

static void one_job(struct dice *dice, struct world_spec *spec, uint32_t number)
{
	struct job_spec *job = &spec->job[number];

	job->world = one_in(dice, 12) ? between(dice, 1, 64) : PICK(dice, 1, 2, 3, 4, 5, 8, 9);
	job->op_count = between(dice, 1, WORLD_OPS_MAX);
	job->in_place_ppm = PICK(dice, 0, 500000, 1000000);
	for (uint32_t i = 0; i < job->op_count; i++)
		operation(dice, &job->ops[i], i,
		          ELEMENTS_MAX / job->world / job->op_count / spec->jobs);
	job->list_ppm = PICK(dice, 0, 0, 500000, 1000000);
	for (uint32_t i = 0; i < job->op_count; i++)
		if (job->list_ppm > 0 && job->ops[i].count > job->ops[i].block)
			job->ops[i].count -= job->ops[i].count % job->ops[i].block;
	/* Any order is fine as long as each worker's operations all have slots (section 6.3). */
	job->own_order = job->op_count <= spec->op_slots && one_in(dice, 2);
	if (one_in(dice, 8) && (number == 0 || spec->job[0].fault != FAULT_AGGREGATOR))
		fault(dice, job, spec->aggregators);
	if (job->fault == FAULT_LEAVE && job->op_count == 1)
		job->fault = FAULT_NONE; /* it would leave before it has joined */
	if (job->fault == FAULT_LEAVE || job->fault == FAULT_ABSENT)
		job->own_order = false; /* so that the last one is the same everywhere */
}

static void priorities(struct dice *dice, struct job_spec *job)
{
	job->priority_max = PICK(dice, 0, 0, 1, 5, UINT32_MAX);
	job->own_priorities = one_in(dice, 2);
	for (uint32_t i = 0; i < job->op_count && job->priority_max > 0; i++)
		job->ops[i].priority = (uint32_t)(roll(dice) % (job->priority_max + UINT64_C(1)));
}

void scenario_make(uint64_t seed, struct world_spec *out)
{
	struct dice dice = {seed * UINT64_C(0xd1342543de82ef95) + 99};
	static const char *const isas[] = {NULL, "scalar", "avx2", "avx512"};

	memset(out, 0, sizeof(*out));
	out->seed = seed;
	out->aggregators = one_in(&dice, 2) ? 1 : between(&dice, 1, 4);
	out->threads = one_in(&dice, 2) ? 1 : between(&dice, 1, 3);
	out->jobs = one_in(&dice, 3) ? between(&dice, 2, WORLD_JOBS_MAX) : 1;
	out->payload_max = one_in(&dice, 4) ? between(&dice, WIRE_PAYLOAD_MIN, 9000)
	                                    : PICK(&dice, WIRE_PAYLOAD_MIN, 1472, 3470, 8972);
	out->window_bytes = PICK(&dice, 8192, 65536, 1048576);
	out->op_slots = PICK(&dice, 1, 2, 4, 12, 32);
	out->segments_ahead = PICK(&dice, 1, 2, 8);
	out->multicast_ppm = PICK(&dice, 0, 500000, 1000000);
	out->silence_us = 2000000;
	out->stall_us = 4000000;
	out->limit_us = 600000000;
	out->isa = isas[between(&dice, 0, 3)];
	network(&dice, out);
	if (out->net.loss_ppm > 10000 || out->net.rate_bytes_s != 0 || out->pause_ppm != 0)
		out->stall_us = 60000000; /* slow is not stalled */
	for (uint32_t i = 0; i < out->jobs; i++)
		one_job(&dice, out, i);
	if (out->job[0].fault == FAULT_AGGREGATOR)
		out->jobs = 1;
	for (uint32_t i = 1; i < out->jobs; i++)
		if (out->job[i].fault == FAULT_AGGREGATOR)
			out->job[i].fault = FAULT_NONE;
	out->fast = one_in(&dice, 2);
	out->no_room = one_in(&dice, 4);
	out->bypass_ppm = PICK(&dice, 0, 0, 50000, 500000);
	for (uint32_t i = 0; i < out->jobs; i++)
		priorities(&dice, &out->job[i]);
}

void scenario_describe(const struct world_spec *spec, char *text, size_t room)
{
	static const char *const faults[] = {"none",  "crash",  "freeze",   "aggregator",
	                                     "abort", "absent", "mismatch", "leave"};
	int used = snprintf(
		text, room,
		"aggregators=%u threads=%u payload=%u window=%u slots=%u ahead=%u loss=%.1f%% "
		"dup=%.1f%% reorder=%.1f%% mtu=%u rate=%llu pause=%u fast=%d jobs:",
		spec->aggregators, spec->threads, spec->payload_max, spec->window_bytes,
		spec->op_slots, spec->segments_ahead, spec->net.loss_ppm / 1e4,
		spec->net.duplicate_ppm / 1e4, spec->net.reorder_ppm / 1e4, spec->net.mtu,
		(unsigned long long)spec->net.rate_bytes_s, spec->pause_ppm, spec->fast);

	for (uint32_t i = 0; i < spec->jobs && used > 0 && (size_t)used < room; i++)
		used += snprintf(text + used, room - (size_t)used,
		                 " [world=%u ops=%u%s%s fault=%s]", spec->job[i].world,
		                 spec->job[i].op_count, spec->job[i].own_order ? " own-order" : "",
		                 spec->job[i].priority_max == 0 ? ""
		                 : spec->job[i].own_priorities  ? " own-priorities"
		                                                : " priorities",
		                 faults[spec->job[i].fault]);
}
