// SPDX-License-Identifier: BSD-3-Clause
/* http_snapshot.c - asks the data threads, through their mailboxes, for what HTTP shows */

#include <stdlib.h>
#include <string.h>

#include "aggregator/http/http_impl.h"
#include "aggregator/log.h"

/* The oldest operation and the longest wait may be on different channels. */
static void add_view(struct job_snapshot *job, const struct channel_view *one)
{
	struct channel_view *sum = &job->busy;
	struct channel_wait wait = sum->wait;
	uint32_t operations = sum->operations;

	if (one->wait.stall.missing > 0 &&
	    (wait.stall.missing == 0 || one->wait.stall.waited_us > wait.stall.waited_us))
		wait = one->wait;
	if (one->operations > 0 && (operations == 0 || one->age_us > sum->age_us))
		*sum = *one;
	sum->wait = wait;
	sum->operations = one->operations > operations ? one->operations : operations;
	job->slots += one->slots;
	job->slots_used += one->slots_used;
}

/* An operation is on all channels, but an eager one is on one of them. */
static void job_take(struct data *data, struct job_snapshot *job)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < job->view.channel_count; i++) {
		struct channel_stats stats;
		struct channel_view view;

		if (!data_channel_look(data, job->view.channel_ids[i], &stats, &view, job->waits))
			continue;
		counters_add(&job->stats, &stats, sizeof(stats));
		add_view(job, &view);
		if (i == 0) { /* for all: the slowest changes, and a counter must not go back */
			memcpy(job->times, stats.times, sizeof(job->times));
			job->times_us = stats.times_us;
		}
		if (stats.operations - stats.eager > most)
			most = stats.operations - stats.eager;
	}
	if (strcmp(job->view.state, "paused") == 0) /* nobody is waited for */
		job->busy.wait = (struct channel_wait){0};
	counters_add(job->times, job->stats.eager_times, sizeof(job->times));
	job->times_us += job->stats.eager_times_us;
	job->operations = job->stats.eager + most;
	job->blocks_zero = job->stats.blocks - job->stats.blocks_nonzero;
}

bool snapshot_take(const struct http_sources *sources, struct snapshot *out)
{
	*out = (struct snapshot){.log_lines_lost = log_lines_lost()};
	jobs_totals(sources->jobs, &out->totals);
	data_stats(sources->data, &out->data);
	offload_counters(sources->offload, out->fast);
	out->jobs = calloc(out->totals.jobs + 1, sizeof(*out->jobs));
	if (out->jobs == NULL)
		return false;
	for (uint32_t i = 0; i < JOBS_MAX && out->job_count < out->totals.jobs; i++) {
		struct job_snapshot *job = &out->jobs[out->job_count];

		if (!jobs_view(sources->jobs, i, &job->view))
			continue;
		job->index = i;
		job->waits = calloc(job->view.world, sizeof(*job->waits));
		if (job->waits == NULL) {
			snapshot_free(out);
			return false;
		}
		job_take(sources->data, job);
		out->job_count++;
	}
	for (uint32_t d = 0; d < WIRE_DROP_COUNT; d++) {
		out->drops[d] = out->data.drops[d];
		if (d != WIRE_DROP_DUPLICATE) /* is in the channels' own numbers */
			out->drops[d] += out->fast[d];
		for (uint32_t i = 0; i < out->job_count; i++)
			out->drops[d] += out->jobs[i].stats.drops[d];
	}
	return true;
}

/* Is `a` the one whose series go on, rather than `b`? */
static bool goes_before(const struct job_snapshot *a, const struct job_snapshot *b)
{
	static const char *const order[] = {"running", "paused", "probing", "forming"};
	const size_t count = sizeof(order) / sizeof(order[0]);
	size_t a_at = 0, b_at = 0;

	while (a_at < count && strcmp(a->view.state, order[a_at]) != 0)
		a_at++;
	while (b_at < count && strcmp(b->view.state, order[b_at]) != 0)
		b_at++;
	return a_at != b_at ? a_at < b_at : a->view.state_us < b->view.state_us;
}

static void name_cut(struct job_snapshot *job)
{
	size_t length = message_name_base(job->view.name);

	memcpy(job->name, job->view.name, length);
	job->name[length] = '\0';
}

void snapshot_name(struct snapshot *snapshot)
{
	uint32_t kept = 0, k;

	for (uint32_t i = 0; i < snapshot->job_count; i++) {
		struct job_snapshot job = snapshot->jobs[i];

		name_cut(&job);
		for (k = 0; k < kept && strcmp(snapshot->jobs[k].name, job.name) != 0;)
			k++;
		if (k == kept) {
			snapshot->jobs[kept++] = job;
			continue;
		}
		if (goes_before(&job, &snapshot->jobs[k])) {
			struct job_snapshot other = snapshot->jobs[k];

			snapshot->jobs[k] = job;
			job = other;
		}
		free(job.waits);
	}
	snapshot->job_count = kept;
}

void snapshot_free(struct snapshot *snapshot)
{
	for (uint32_t i = 0; i < snapshot->job_count; i++)
		free(snapshot->jobs[i].waits);
	free(snapshot->jobs);
}

bool snapshot_worker(const struct jobs *jobs, const struct job_snapshot *job, uint32_t rank,
                     struct worker_snapshot *out, struct jobs_worker *known)
{
	jobs_worker(jobs, job->index, rank, known);
	*out = (struct worker_snapshot){.seen = known->seen, .waits = job->waits[rank]};
	return known->seen.frames > 0;
}

const char *http_datapath(const struct http_sources *sources)
{
	return offload_works(sources->offload) ? "xdp" : data_backend(sources->data);
}
