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
	uint64_t count = share_of(w, spec), first = spec->scatter ? w->rank * count : 0, wrong;

	if (!op->submitted)
		return;
	if (op->dones != rounds_of(job_of(w))) {
		world_fail(world, "job %u rank %u op %u: done %u times; session: %s", w->job,
		           w->rank, number, op->dones, session_error(w->session));
		return;
	}
	if (op->task.status != WINNOW_OK) {
		if (world->out->failures++ == 0)
			snprintf(world->out->error, sizeof(world->out->error), "%s",
			         session_error(w->session));
		if (!fault_explains(w, number))
			world_fail(world, "job %u rank %u op %u: status %d; session: %s", w->job,
			           w->rank, number, op->task.status, session_error(w->session));
		return;
	}
	world->out->operations++;
	wrong = data_check(reference, op->recv, first, count);
	if (wrong < first + count)
		world_fail(world,
		           "job %u rank %u op %u%s: element %llu of %llu is %.17g, want %.17g",
		           w->job, w->rank, number, spec->scatter ? " (scatter)" : "",
		           (unsigned long long)wrong, (unsigned long long)spec->count,
		           data_value(spec->dtype, op->recv, wrong - first),
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

/* ---- counters ---- */

static void judge_equal(struct world *world, const char *what, uint64_t is, uint64_t want)
{
	if (is != want)
		world_fail(world, "counters: %s is %llu, must be %llu", what,
		           (unsigned long long)is, (unsigned long long)want);
}

/* What workers say of datagrams, and what they have in fact sent and been given. */
static void judge_traffic(struct world *world)
{
	for (uint32_t i = 0; i < world->spec->worker_count; i++) {
		const struct sim_worker *w = &world->workers[i];
		struct winnow_stats stats;

		session_stats(w->session, &stats);
		judge_equal(world, "sent_packets", stats.sent_packets, w->sent);
		judge_equal(world, "sent_bytes", stats.sent_bytes,
		            w->sent_bytes + w->sent * SIMNET_HEADER_BYTES);
		judge_equal(world, "received_packets", stats.received_packets, w->received);
		judge_equal(world, "received_bytes", stats.received_bytes,
		            w->received_bytes + w->received * SIMNET_HEADER_BYTES);
	}
	for (uint32_t i = 0; i < world->spec->aggregator_count; i++) {
		const struct sim_aggregator *a = &world->aggregators[i];

		if (a->spec->fast) /* the model of the kernel does not count */
			continue;
		judge_equal(world, "received", a->stats.received, a->received);
		judge_equal(world, "sent", a->stats.sent, a->pulled);
	}
}

/* What the channels of one level of aggregators must have counted. */
struct level_counts {
	uint64_t owned, united, operations, eager;
};

static void judge_level(struct world *world, bool sited, const struct level_counts *want)
{
	struct level_counts is = {0};

	for (uint32_t i = 0; i < world->spec->aggregator_count; i++) {
		const struct channel_stats *stats = &world->aggregators[i].stats;

		if (world->aggregators[i].sited != sited)
			continue;
		is.owned += stats->blocks_owned;
		is.united += stats->blocks_nonzero;
		is.operations += stats->operations;
		is.eager += stats->eager;
	}
	judge_equal(world, "blocks_owned", is.owned, want->owned);
	judge_equal(world, "blocks_nonzero", is.united, want->united);
	judge_equal(world, "operations", is.operations, want->operations);
	judge_equal(world, "eager", is.eager, want->eager);
}

static uint64_t job_sites(const struct world *world, const struct sim_job *job)
{
	uint64_t bits = 0;

	for (uint32_t rank = 0; rank < job->spec->world && world->spec->site_count > 0; rank++)
		bits |= UINT64_C(1) << job->sites[rank] & ~UINT64_C(1);
	return (uint64_t)__builtin_popcountll(bits);
}

/*
 * Blocks, as workers and aggregators count them; the inputs are counted by the reference. The parent of sites must not
 * get more than the union of each: that is what its line is spared.
 */
static void judge_blocks(struct world *world)
{
	struct level_counts top = {0}, sites = {0};
	uint64_t channels = 0;

	for (uint32_t i = 0; i < world->spec->aggregator_count; i++)
		channels += world->aggregators[i].sited ? 0 : world->spec->aggregators[i].threads;
	for (uint32_t j = 0; j < world->spec->job_count; j++) {
		const struct sim_job *job = &world->jobs[j];
		const uint64_t rounds = rounds_of(job->spec), here = job_sites(world, job);

		for (uint32_t op = 0; op < job->spec->op_count; op++) {
			const struct data_reference *reference = job->references[op];
			const bool eager = job->workers[0].ops[op].task.cut.eager;
			uint64_t sent = 0, sited = 0;

			for (uint32_t rank = 0; rank < job->spec->world; rank++) {
				const struct allreduce *task = &job->workers[rank].ops[op].task;

				sent += task->blocks_nonzero;
				sited += job->sites[rank] > 0 ? task->blocks_nonzero : 0;
				judge_equal(world, "an operation's blocks_union",
				            task->blocks_union, data_blocks_union(reference));
			}
			judge_equal(world, "an operation's blocks_nonzero", sent,
			            data_blocks_owned(reference));
			top.owned += rounds * data_blocks_upward(reference);
			top.united += rounds * data_blocks_union(reference);
			top.eager += rounds * eager;
			top.operations += rounds * (eager ? 1 : channels);
			sites.owned += rounds * sited;
			sites.united += rounds * here * data_blocks_union(reference);
			sites.eager += rounds * here * eager;
			sites.operations += rounds * here * (eager ? 1 : channels);
		}
	}
	judge_level(world, false, &top);
	judge_level(world, true, &sites);
}

static void judge_bound(struct world *world, const char *what, uint64_t is, uint64_t bound)
{
	if (bound > 0 && is > bound)
		world_fail(world, "%s: %llu, at most %llu would do", what, (unsigned long long)is,
		           (unsigned long long)bound);
}

static void judge_counters(struct world *world)
{
	bool lists = false;  /* a block of zeros that is listed is sent */
	bool gpus = false;   /* a slow one keeps sums waiting, so that they are asked for again */
	bool others = false; /* blocks of shares and of parts begin elsewhere */

	for (uint32_t j = 0; j < world->spec->job_count; j++) {
		if (world->spec->jobs[j].fault_count > 0)
			return;
		lists = lists || world->spec->jobs[j].list_ppm > 0;
		gpus = gpus || world->spec->jobs[j].gpu_ppm > 0;
		for (uint32_t op = 0; op < world->spec->jobs[j].op_count; op++)
			others = others || world->spec->jobs[j].ops[op].scatter ||
			         world->spec->jobs[j].ops[op].layout != 0;
	}
	judge_traffic(world);
	if (!lists && !others)
		judge_blocks(world);
	/* Whatever the network does, and however slow nodes are: not more than that. */
	if (!gpus)
		judge_bound(world, "PUSHes and RESULTs sent again in all",
		            world->out->sent_again + world->out->answered_again,
		            world->out->lost + world->out->overflowed + world->out->datagrams / 2 +
		                    100);
}

/* ---- bounds ---- */

static void judge_bounds(struct world *world)
{
	const struct world_bounds *bounds = &world->spec->bounds;
	const struct world_outcome *out = world->out;

	judge_bound(world, "microseconds", out->busy_us, bounds->time_us);
	judge_bound(world, "PUSHes sent again", out->sent_again, bounds->sent_again);
	judge_bound(world, "RESULTs sent again", out->answered_again, bounds->answered_again);
	judge_bound(world, "STATUSes that ask", out->asking, bounds->asking);
	judge_bound(world, "PUSHes and RESULTs sent again", out->sent_again + out->answered_again,
	            (out->lost + out->overflowed) * bounds->again_percent / 100);
	judge_bound(world, "datagrams that found a queue full", out->overflowed,
	            bounds->overflowed);
	if (bounds->nothing_wasted && (out->sent_again + out->answered_again + out->asked > 0 ||
	                               out->dropped > out->planned_again))
		world_fail(world,
		           "%llu PUSHes and %llu RESULTs sent again, %llu STATUSes that list "
		           "something, %llu "
		           "useless packets of which %llu are PLANs that crossed an announcement",
		           (unsigned long long)out->sent_again,
		           (unsigned long long)out->answered_again, (unsigned long long)out->asked,
		           (unsigned long long)out->dropped,
		           (unsigned long long)out->planned_again);
}

void world_judge(struct world *world)
{
	for (uint32_t i = 0; i < world->spec->aggregator_count; i++) {
		world->out->answered_again += world->aggregators[i].stats.result_resends;
		world->out->planned_again += world->aggregators[i].stats.plan_resends;
		world->out->sent_again += world->aggregators[i].above.retransmits;
		world->out->asked += world->aggregators[i].above.nacks;
		for (uint32_t drop = 0; drop < WIRE_DROP_COUNT; drop++)
			world->out->dropped += world->aggregators[i].above.drops[drop];
	}
	if (world->last_us > world->first_us)
		world->out->busy_us = world->last_us - world->first_us;
	judge_workers(world);
	judge_counters(world);
	judge_bounds(world);
}
