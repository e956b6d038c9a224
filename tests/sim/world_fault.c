// SPDX-License-Identifier: BSD-3-Clause
/* world_fault.c - what happens to a job from outside, and what its workers may be told then */

#include <stdio.h>
#include <string.h>

#include "tests/sim/world_impl.h"

/* What a fault may bring its job's workers, beside success. */
static const struct rule {
	const char *name;
	bool of_worker; /* it happens to one; else to an aggregator */
	int status, other_status;
	bool waits_for_stall; /* nobody can know before the stall time has passed */
} rules[FAULT_KINDS] = {
	[FAULT_CRASH] = {"crash", true, WINNOW_ERR_LOST, 0, false},
	[FAULT_FREEZE] = {"freeze", true, WINNOW_ERR_LOST, 0, false},
	[FAULT_AGGREGATOR] = {"aggregator", false, WINNOW_ERR_LOST, 0, false},
	[FAULT_ABORT] = {"abort", true, WINNOW_ERR_ABORTED, 0, false},
	[FAULT_ABSENT] = {"absent", true, WINNOW_ERR_TIMEOUT, 0, true},
	[FAULT_MISMATCH] = {"mismatch", true, WINNOW_ERR_MISMATCH, 0, false},
	/* Its absence from the last operation may be noticed first. */
	[FAULT_LEAVE] = {"leave", true, WINNOW_ERR_LOST, WINNOW_ERR_TIMEOUT, false},
};

const char *fault_name(enum fault_kind kind)
{
	return rules[kind].name;
}

struct sim_fault *fault_of(struct world *world, const struct sim_worker *w, enum fault_kind kind)
{
	struct sim_job *job = &world->jobs[w->job];

	for (uint32_t i = 0; i < job->spec->fault_count; i++)
		if (job->spec->faults[i].kind == kind && job->spec->faults[i].who == w->rank)
			return &job->faults[i];
	return NULL;
}

/* ---- striking ---- */

void faults_arm(struct world *world, uint32_t index)
{
	struct sim_job *job = &world->jobs[index];

	if (job->started)
		return;
	job->started = true;
	for (uint32_t i = 0; i < job->spec->fault_count; i++)
		simnet_timer(world->net, world->nobody, TIMER_FAULT + index * WORLD_FAULTS_MAX + i,
		             simnet_now(world->net) + job->spec->faults[i].after_us);
}

static void worker_dies(struct sim_worker *w, bool resets)
{
	w->dead = true;
	for (uint32_t i = 0; resets && i < w->world->spec->aggregator_count; i++)
		simnet_gone(w->world->net, w->node, i);
}

void fault_strike(struct world *world, uint32_t timer)
{
	struct sim_job *job = &world->jobs[(timer - TIMER_FAULT) / WORLD_FAULTS_MAX];
	struct sim_fault *fault = &job->faults[(timer - TIMER_FAULT) % WORLD_FAULTS_MAX];
	struct sim_worker *w = &job->workers[fault->spec->who]; /* not of an AGGREGATOR */
	enum fault_kind kind = fault->spec->kind;

	if (rules[kind].of_worker && (w->dead || w->left))
		return;
	if (kind != FAULT_LEAVE && kind != FAULT_ABSENT) /* these know themselves */
		fault->struck_us = simnet_now(world->net);
	switch (kind) {
	case FAULT_CRASH:
	case FAULT_FREEZE:
		worker_dies(w, kind == FAULT_CRASH);
		break;
	case FAULT_AGGREGATOR:
		aggregator_kill(&world->aggregators[fault->spec->who]);
		break;
	case FAULT_ABORT:
		session_abort(w->session, "as the test asks", simnet_now(world->net));
		worker_run(w);
		break;
	default:
		break;
	}
}

/* ---- judging ---- */

/* Does the error name what this fault was, and whose? */
static bool blamed(const struct sim_fault *fault, const struct sim_worker *w, uint32_t op)
{
	const struct plan_mismatch *m = &w->ops[op].task.mismatch;
	uint32_t who = fault->spec->who;
	char blame[32];

	switch (fault->spec->kind) {
	case FAULT_MISMATCH:
		return fault->spec->op == op && (m->rank_a == who || m->rank_b == who);
	case FAULT_AGGREGATOR:
		snprintf(blame, sizeof(blame), "agg%u", who);
		break;
	case FAULT_ABORT:
		if (w->rank == who)
			return strstr(session_error(w->session), "aborted here") != NULL;
		snprintf(blame, sizeof(blame), "rank %u (", who);
		break;
	default:
		snprintf(blame, sizeof(blame), "rank %u (", who);
	}
	return strstr(session_error(w->session), blame) != NULL;
}

bool fault_explains(const struct sim_worker *w, uint32_t op)
{
	const struct sim_job *job = &w->world->jobs[w->job];
	int status = w->ops[op].task.status;

	for (uint32_t i = 0; i < job->spec->fault_count; i++) {
		const struct rule *rule = &rules[job->spec->faults[i].kind];

		if ((status == rule->status || status == rule->other_status) &&
		    blamed(&job->faults[i], w, op))
			return true;
	}
	return false;
}

/* ---- in time ---- */

/* An absence begins when all others have submitted all that they will. */
static void absence_look(struct world *world, struct sim_job *job, struct sim_fault *fault)
{
	for (uint32_t rank = 0; rank < job->spec->world; rank++)
		if (rank != fault->spec->who && !job->workers[rank].dead &&
		    job->workers[rank].submitted < job->spec->op_count)
			return;
	fault->struck_us = simnet_now(world->net);
}

static void fault_check_prompt(struct world *world, const struct sim_job *job,
                               const struct sim_fault *fault)
{
	uint64_t now_us = simnet_now(world->net);
	uint64_t patience_us = 2 * job->silence_us + 3000000;

	if (rules[fault->spec->kind].waits_for_stall)
		patience_us += job->stall_us > 10000000 ? 2 * job->stall_us : job->stall_us;
	if (fault->struck_us == 0 || fault->spec->kind == FAULT_MISMATCH ||
	    now_us <= fault->struck_us + patience_us)
		return;
	for (uint32_t rank = 0; rank < job->spec->world; rank++) {
		const struct sim_worker *w = &job->workers[rank];

		if (!w->dead && w->finished < w->submitted)
			world_fail(world, "job %u rank %u: still waiting %.1f s after the %s",
			           w->job, w->rank, (double)(now_us - fault->struck_us) / 1e6,
			           fault_name(fault->spec->kind));
	}
}

void faults_check_prompt(struct world *world)
{
	for (uint32_t j = 0; j < world->spec->job_count; j++) {
		struct sim_job *job = &world->jobs[j];

		for (uint32_t i = 0; i < job->spec->fault_count; i++) {
			if (job->spec->faults[i].kind == FAULT_ABSENT &&
			    job->faults[i].struck_us == 0)
				absence_look(world, job, &job->faults[i]);
			fault_check_prompt(world, job, &job->faults[i]);
		}
	}
}
