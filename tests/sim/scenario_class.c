// SPDX-License-Identifier: BSD-3-Clause
/* scenario_class.c - see scenario.h */

#include "tests/sim/scenario.h"

#include "client/winnow.h"

#define FRAME_ELEMS 256 /* one block a frame */
#define FRAME_BYTES UINT64_C(1056)
#define NARROW_FRAMES 12000 /* of all workers */

/* ---- worlds in which nothing happens ---- */

/* One job of `world` workers on one aggregator of one thread, 50 us away; all is large enough. */
static void calm(struct dice *dice, struct world_spec *out, const char *name, uint32_t world)
{
	bool multicast = one_in(dice, 2);

	scenario_calm(out, name, 1, world, 25);
	out->aggregators[0].rcvbuf = 4u << 20;
	out->aggregators[0].window_bytes = 1u << 20;
	out->aggregators[0].op_slots = 12;
	for (uint32_t i = 0; i < world; i++) {
		out->workers[i].rcvbuf = 4u << 20;
		out->workers[i].hears_multicast = multicast;
		out->workers[i].silence_us = 10000000;
	}
}

/* Dense, so that every worker has something in each of its frames. */
static void dense_op(struct dice *dice, struct job_spec *job, uint32_t frames)
{
	struct op_spec *op = &job->ops[job->op_count++];

	*op = (struct op_spec){
		.seed = roll(dice),
		.tag = roll(dice) >> 8 << 4 | job->op_count,
		.count = (uint64_t)frames * FRAME_ELEMS,
		.block = FRAME_ELEMS,
		.dtype = WINNOW_F32,
		.reduction = WINNOW_SUM,
		.run = FRAME_ELEMS,
		.density_ppm = 1000000,
	};
}

/* ---- the classes ---- */

/* The aggregator's port is slow, and holds little: what is under way must shrink to what passes. */
static void narrow(struct dice *dice, struct world_spec *out)
{
	struct simnet_path *in;

	calm(dice, out, "narrow", between(dice, 2, 4));
	in = &out->aggregators[0].in;
	in->rate_bytes_s = between(dice, 10000000, 40000000);
	in->queue_bytes = between(dice, 300000, 400000);
	out->aggregators[0].rcvbuf = 212992;
	dense_op(dice, &out->jobs[0], NARROW_FRAMES / out->worker_count);
	out->bounds.sent_again = 4200 * (uint64_t)out->worker_count;
	out->bounds.time_us = NARROW_FRAMES * FRAME_BYTES * 1400000 / in->rate_bytes_s + 50000;
}

/* All begin at once, before a receive buffer of which they have been told: it must hold what comes first. */
static void burst(struct dice *dice, struct world_spec *out)
{
	struct aggregator_spec *a = &out->aggregators[0];

	calm(dice, out, "burst", between(dice, 4, 8));
	a->rcvbuf = 212992;
	a->in.rate_bytes_s = between(dice, 150000000, 400000000);
	a->in.queue_bytes = a->rcvbuf / 2; /* the kernel charges twice a datagram's bytes */
	dense_op(dice, &out->jobs[0], between(dice, 60, 120));
	out->bounds.overflowed = 55 * (uint64_t)out->worker_count;
	out->bounds.time_us = 15000;
}

/* One worker stands still for seconds in the middle of it: the others ask, but less and less. */
static void patience(struct dice *dice, struct world_spec *out)
{
	struct job_spec *job = &out->jobs[0];

	calm(dice, out, "patience", between(dice, 2, 5));
	for (uint32_t i = 0; i < out->worker_count; i++)
		out->workers[i].out =
			(struct simnet_path){.rate_bytes_s = 100000000, .queue_bytes = 50000};
	dense_op(dice, job, between(dice, 400, 1200));
	job->fault_count = 1;
	job->faults[0] = (struct fault_spec){
		.kind = FAULT_PAUSE,
		.who = between(dice, 0, job->world - 1),
		.after_us = between(dice, 200, 4000),
		.for_us = between(dice, 1000000, 5000000),
	};
	out->bounds.asking = 800 * (uint64_t)out->worker_count;
	out->bounds.time_us = job->faults[0].for_us + 500000;
}

/* Everything loses some, by chance: what is lost is sent again, and little else. */
static void lossy(struct dice *dice, struct world_spec *out)
{
	uint32_t loss_ppm = between(dice, 20000, 150000), delay_us = between(dice, 50, 5000);

	calm(dice, out, "lossy", between(dice, 2, 5));
	out->aggregators[0].in.loss_ppm = loss_ppm;
	out->aggregators[0].in.delay_us_min = out->aggregators[0].in.delay_us_max = delay_us;
	for (uint32_t i = 0; i < out->worker_count; i++)
		out->workers[i].in.loss_ppm = loss_ppm;
	dense_op(dice, &out->jobs[0], between(dice, 1000, 3000));
	out->bounds.again_percent = 200;
	out->bounds.time_us = 3000000;
}

/* A long way, and nothing lost on it: as much as the window allows is under way. */
static void far(struct dice *dice, struct world_spec *out)
{
	uint32_t delay_us = between(dice, 1000, 9000), frames = between(dice, 2000, 6000);

	calm(dice, out, "far", between(dice, 1, 3));
	out->aggregators[0].rcvbuf = PICK(dice, 212992, 4u << 20);
	out->aggregators[0].in.delay_us_min = out->aggregators[0].in.delay_us_max = delay_us;
	dense_op(dice, &out->jobs[0], frames);
	out->bounds.nothing_wasted = true;
	out->bounds.time_us = (22 + frames / 256) * (delay_us + 25);
}

/* A worker lives, and does not call the last operation. Half of the aggregators do not notice. */
static void absent(struct dice *dice, struct world_spec *out)
{
	struct job_spec *job = &out->jobs[0];

	calm(dice, out, "absent", between(dice, 2, 5));
	out->aggregators[0].overlooks_stalls = one_in(dice, 2);
	for (uint32_t i = 0; i < out->worker_count; i++) {
		out->workers[i].silence_us = between(dice, 1000000, 3000000);
		out->workers[i].stall_us = between(dice, 1000000, 8000000);
	}
	for (uint32_t i = between(dice, 1, 3); i > 0; i--)
		dense_op(dice, job, between(dice, 1, 100));
	job->fault_count = 1;
	job->faults[0] =
		(struct fault_spec){.kind = FAULT_ABSENT, .who = between(dice, 0, job->world - 1)};
	/* Workers wait for both times, the shortest of each; and ticks are not often. */
	out->bounds.time_us = 3000000 + 8000000 + 500000;
}

/* So many workers that what grows with their square would show. */
static void crowd(struct dice *dice, struct world_spec *out)
{
	uint32_t loss_ppm = PICK(dice, 0, 1000, 50000);

	calm(dice, out, "crowd", 256);
	out->aggregators[0].threads = between(dice, 1, 2);
	out->aggregators[0].in.loss_ppm = loss_ppm;
	for (uint32_t i = 0; i < out->worker_count; i++) {
		out->workers[i].in.loss_ppm = loss_ppm;
		out->workers[i].connect_us = between(dice, 0, 100000);
	}
	for (uint32_t i = 0; i < 3; i++)
		dense_op(dice, &out->jobs[0], between(dice, 1, 8));
}

bool scenario_class(uint64_t seed, struct dice *dice, struct world_spec *out)
{
	if (seed % 300 == 150) {
		crowd(dice, out);
		return true;
	}
	switch (seed % 40) {
	case 3:
		narrow(dice, out);
		return true;
	case 13:
		burst(dice, out);
		return true;
	case 8:
		patience(dice, out);
		return true;
	case 18:
		lossy(dice, out);
		return true;
	case 5:
		far(dice, out);
		return true;
	case 28:
		absent(dice, out);
		return true;
	default:
		return false;
	}
}
