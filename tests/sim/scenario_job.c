// SPDX-License-Identifier: BSD-3-Clause
/* scenario_job.c - see scenario.h */

#include "tests/sim/scenario.h"

#include <string.h>

#include "client/winnow.h"
#include "ebpf/wire.h"

/* A run costs about as many additions and copies as there are elements; keep it bounded. */
#define ELEMENTS_MAX 600000

/* ---- operations ---- */

/* How f32 travels: as int32 most often. */
static uint8_t form_of(struct dice *dice)
{
	static const uint8_t forms[] = {WIRE_FIXED32, WIRE_FIXED32, WIRE_FIXED32,
	                                WIRE_FIXED16, WIRE_FIXED8,  WIRE_BF16};

	return forms[between(dice, 0, 5)];
}

static void numbers(struct dice *dice, struct op_spec *op)
{
	op->dtype = (uint8_t)between(dice, WINNOW_F32, WINNOW_I64);
	op->reduction = (uint8_t)between(dice, WINNOW_SUM, WINNOW_PROD);
	if (one_in(dice, 4)) {
		op->dtype = WINNOW_F32;
		op->reduction = (uint8_t)between(dice, WINNOW_SUM, WINNOW_AVG);
		op->form = form_of(dice);
	}
	op->nonfinite = op->dtype <= WINNOW_F64 && one_in(dice, 8) && op->form < WIRE_FIXED16;
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

/*
 * No dice: worlds of seeds are otherwise what they were without. Some have shares of several segments: as many
 * elements as there may be, each a block, few of which are not zero.
 */
static void scatter(struct op_spec *op, uint32_t world, uint32_t count_max)
{
	op->scatter = op->seed % 4 == 0;
	if (op->scatter && (op->seed >> 2 & 3) == 0) {
		op->block = 1;
		op->count = count_max;
		op->density_ppm = 1000;
	}
	if (op->scatter)
		op->count -= op->count % world;
}

/* Likewise. */
static void layout(struct op_spec *op)
{
	if (!op->scatter && op->seed >> 16 & 1)
		op->layout = op->seed >> 20 << 1 | 1;
}

/* Tensors on GPUs have only flat parts, and those of the other workers are the same. */
static void layouts_flat(struct job_spec *job)
{
	for (uint32_t i = 0; i < job->op_count; i++)
		job->ops[i].layout &= ~UINT64_C(1);
	for (uint32_t i = 0; i < job->fault_count; i++)
		job->faults[i].other_op.layout &= ~UINT64_C(1);
}

/* ---- faults ---- */

static void other_op(struct dice *dice, const struct op_spec *op, uint32_t world,
                     struct op_spec *out)
{
	*out = *op;
	switch (between(dice, 0, 3)) {
	case 0:
		out->count += between(dice, 1, 100000);
		break;
	case 1:
		out->block = out->block % 5000 + 1;
		break;
	case 2:
		out->dtype = (uint8_t)(out->dtype % WINNOW_I64 + 1);
		break;
	default:
		out->reduction = (uint8_t)(out->reduction % WINNOW_PROD + 1);
	}
	if (out->dtype != WINNOW_F32 || out->reduction > WINNOW_AVG)
		out->form = WIRE_NATIVE;
	if (op->layout != 0 && op->count > 70000 && op->seed >> 9 & 1) {
		*out = *op; /* no eager one, which has no layout */
		out->layout += 2;
	}
	if (op->scatter && out->count != op->count)
		out->count = op->count + world * (out->count - op->count);
	if (op->seed >> 8 & 1 && op->count % world == 0) {
		*out = *op;
		out->scatter = !op->scatter;
		out->layout = 0;
	}
}

/* False: it makes no sense in this job. */
static bool fault_make(struct dice *dice, const struct world_spec *spec, const struct job_spec *job,
                       struct fault_spec *out)
{
	bool alone = job->world == 1;

	*out = (struct fault_spec){.kind = (enum fault_kind)between(dice, 0, FAULT_GPU)};
	out->who = between(dice, 0, job->world - 1);
	out->after_us = between(dice, 0, PICK(dice, 100, 2000, 30000, 1000000, 5000000));
	switch (out->kind) {
	case FAULT_AGGREGATOR_DEAF:
	case FAULT_AGGREGATOR_NARROW:
		out->for_us = one_in(dice, 2) ? between(dice, 1000, SILENCE_US_MIN / 2) : 0;
		/* fall through */
	case FAULT_AGGREGATOR:
		out->who = between(dice, 0, spec->aggregator_count - 1);
		return spec->job_count == 1; /* others would meet it too */
	case FAULT_MUTE:
	case FAULT_DEAF:
	case FAULT_NARROW_OUT:
	case FAULT_NARROW_IN: /* nobody notices where datagrams are that small already */
		out->for_us = one_in(dice, 2) ? between(dice, 1000, SILENCE_US_MIN / 2) : 0;
		return true;
	case FAULT_MISMATCH:
		out->op = between(dice, 0, job->op_count - 1);
		other_op(dice, &job->ops[out->op], job->world, &out->other_op);
		return !alone;
	case FAULT_LEAVE:
		return !alone && job->op_count > 1; /* else it would leave before it has joined */
	case FAULT_PAUSE:
		out->for_us = between(dice, 1000, SILENCE_US_MIN / 2);
		return true;
	case FAULT_FORGED:
	case FAULT_FLOOD:
		out->for_us = between(dice, 100, 100000); /* and once more then */
		return true;
	case FAULT_ABORT:
	case FAULT_MOVE:
		return true;
	default:
		return !alone;
	}
}

/* Two that spare themselves the last operation: no one else may be left that waits for it. */
static bool nobody_waits(const struct job_spec *job, const struct fault_spec *fault)
{
	bool spares = fault->kind == FAULT_LEAVE || fault->kind == FAULT_ABSENT;

	for (uint32_t i = 0; i < job->fault_count; i++)
		if (spares &&
		    (job->faults[i].kind == FAULT_LEAVE || job->faults[i].kind == FAULT_ABSENT))
			return true;
	return false;
}

static void faults_make(struct dice *dice, const struct world_spec *spec, struct job_spec *job)
{
	uint32_t count = one_in(dice, 3) ? between(dice, 1, WORLD_FAULTS_MAX) : 0;

	while (count-- > 0) {
		struct fault_spec *fault = &job->faults[job->fault_count];

		if (!fault_make(dice, spec, job, fault) || nobody_waits(job, fault))
			continue;
		job->fault_count++;
		/* So that the last operation is the same everywhere. */
		if (fault->kind == FAULT_LEAVE || fault->kind == FAULT_ABSENT)
			job->own_order = false;
	}
}

/* ---- a job ---- */

static void priorities(struct dice *dice, struct job_spec *job)
{
	job->priority_max = PICK(dice, 0, 0, 1, 5, UINT32_MAX);
	job->own_priorities = one_in(dice, 2);
	for (uint32_t i = 0; i < job->op_count && job->priority_max > 0; i++)
		job->ops[i].priority = (uint32_t)(roll(dice) % (job->priority_max + UINT64_C(1)));
}

static void gpus(struct dice *dice, struct job_spec *job)
{
	job->gpu_ppm = PICK(dice, 0, 0, 500000, 1000000);
	job->gpu_scan_us = PICK(dice, 5, 30, 300, 5000);
	job->gpu_out_us = PICK(dice, 5, 30, 300, 5000, 50000);
	job->gpu_in_us = PICK(dice, 5, 30, 300, 5000);
	job->gpu_bytes = PICK(dice, 0, 100000, 2000000, 1 << 26);
	for (uint32_t i = 0; i < job->fault_count; i++)
		if (job->faults[i].kind == FAULT_GPU)
			job->gpu_ppm = 1000000;
}

static uint32_t op_slots_least(const struct world_spec *spec)
{
	uint32_t least = UINT32_MAX;

	for (uint32_t i = 0; i < spec->aggregator_count; i++)
		if (spec->aggregators[i].op_slots < least)
			least = spec->aggregators[i].op_slots;
	return least;
}

void scenario_job(struct dice *dice, const struct world_spec *spec, struct job_spec *job)
{
	job->world = one_in(dice, 12) ? between(dice, 1, 64) : PICK(dice, 1, 2, 3, 4, 5, 8, 9);
	job->op_count = between(dice, 1, WORLD_OPS_MAX);
	job->in_place_ppm = PICK(dice, 0, 500000, 1000000);
	job->list_ppm = PICK(dice, 0, 0, 500000, 1000000);
	job->eager_ppm = 500000;
	job->gap_us = PICK(dice, 3000, 3000, 3000, 100000, 3000000);
	for (uint32_t i = 0; i < job->op_count; i++) {
		struct op_spec *op = &job->ops[i];
		uint32_t most = ELEMENTS_MAX / job->world / job->op_count / spec->job_count;

		operation(dice, op, i, most);
		if (job->list_ppm > 0 && op->count > op->block)
			op->count -= op->count % op->block;
		scatter(op, job->world, most);
		layout(op);
	}
	/* Any order is fine as long as each worker's operations all have slots (section 6.3). */
	job->own_order = job->op_count <= op_slots_least(spec) && one_in(dice, 2);
	faults_make(dice, spec, job);
	priorities(dice, job);
	gpus(dice, job);
	if (job->gpu_ppm > 0)
		layouts_flat(job);
}
