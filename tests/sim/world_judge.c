// SPDX-License-Identifier: BSD-3-Clause
/* world_judge.c - were the results right, the errors true, the counters honest, the effort within bounds? */

#include <stdio.h>

#include "tests/sim/world_impl.h"

/* ---- results ---- */

static void judge_op(struct world *world, const struct sim_worker *w, uint32_t number)
{
	const struct op_spec *spec = worker_op(w, number);
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
	if (op->task.status != WINNOW_OK) {
		if (world->out->failures++ == 0)
			snprintf(world->out->error, sizeof(world->out->error), "%s",
			         session_error(w->session));
		if (!fault_explains(w, number))
			world_fail(world,
			           "job %u rank %u op %u: status %d, mismatch %u/%u; session: %s",
			           w->job, w->rank, number, op->task.status,
			           op->task.mismatch.rank_a, op->task.mismatch.rank_b,
			           session_error(w->session));
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

static void judge_workers(struct world *world)
{
	for (uint32_t i = 0; i < world->spec->worker_count; i++) {
		const struct sim_worker *w = &world->workers[i];
		struct winnow_stats stats;

		session_stats(w->session, &stats);
		world->out->sent_again += stats.retransmits;
		world->out->asked += stats.nacks;
		world->out->dropped += stats.dropped;
		for (uint32_t op = 0; !w->dead && op < world->jobs[w->job].spec->op_count; op++)
			judge_op(world, w, op);
	}
}

/* ---- bounds ---- */

static void judge_bound(struct world *world, const char *what, uint64_t is, uint64_t bound)
{
	if (bound > 0 && is > bound)
		world_fail(world, "%s: %llu, at most %llu would do", what, (unsigned long long)is,
		           (unsigned long long)bound);
}

static void judge_bounds(struct world *world)
{
	const struct world_bounds *bounds = &world->spec->bounds;
	const struct world_outcome *out = world->out;

	judge_bound(world, "microseconds", out->busy_us, bounds->time_us);
	judge_bound(world, "PUSHes sent again", out->sent_again, bounds->sent_again);
	judge_bound(world, "RESULTs sent again", out->answered_again, bounds->answered_again);
	judge_bound(world, "NACKs", out->asked, bounds->asked);
	judge_bound(world, "datagrams that found a queue full", out->overflowed,
	            bounds->overflowed);
	if (bounds->nothing_wasted && (out->sent_again + out->answered_again + out->forced > 0 ||
	                               out->dropped > out->planned_again))
		world_fail(
			world,
			"%llu PUSHes and %llu RESULTs sent again, %llu forced NACKs, %llu useless "
			"packets of which %llu are PLANs that crossed an announcement",
			(unsigned long long)out->sent_again,
			(unsigned long long)out->answered_again, (unsigned long long)out->forced,
			(unsigned long long)out->dropped, (unsigned long long)out->planned_again);
}

void world_judge(struct world *world)
{
	for (uint32_t i = 0; i < world->spec->aggregator_count; i++) {
		world->out->answered_again += world->aggregators[i].stats.result_resends;
		world->out->planned_again += world->aggregators[i].stats.plan_resends;
	}
	if (world->last_us > world->first_us)
		world->out->busy_us = world->last_us - world->first_us;
	judge_workers(world);
	judge_bounds(world);
}
