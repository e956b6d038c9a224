// SPDX-License-Identifier: BSD-3-Clause
/* http_snapshot.c - the pages' data: the control loop's copy, and the data threads' channels */

#include <stdlib.h>
#include <string.h>

#include "aggregator/http/http_state.h"
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

/* An operation is on all channels, except an eager one, which is on one. */
static void job_take(struct job_snapshot *job, const struct data_look looks[])
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < job->view.channel_count; i++) {
		const struct channel_stats *stats = &looks[i].stats;

		if (!looks[i].found)
			continue;
		counters_add(&job->stats, stats, sizeof(*stats));
		add_view(job, &looks[i].view);
		if (i == 0) { /* one for all: a changing choice would make counters decrease */
			memcpy(job->times, stats->times, sizeof(job->times));
			job->times_us = stats->times_us;
		}
		if (stats->operations - stats->eager > most)
			most = stats->operations - stats->eager;
	}
	counters_add(job->times, job->stats.eager_times, sizeof(job->times));
	job->times_us += job->stats.eager_times_us;
	job->operations = job->stats.eager + most;
	job->blocks_zero = job->stats.blocks - job->stats.blocks_nonzero;
}

/* Makes the questions for the data threads. NULL if memory is short. */
static struct data_look *looks_make(const struct snapshot *snapshot, uint32_t *count)
{
	struct data_look *looks, *look;

	*count = 0;
	for (uint32_t i = 0; i < snapshot->job_count; i++)
		*count += snapshot->jobs[i].view.channel_count;
	looks = look = calloc(*count + 1, sizeof(*looks));
	if (looks == NULL)
		return NULL;
	for (uint32_t i = 0; i < snapshot->job_count; i++) {
		const struct job_snapshot *job = &snapshot->jobs[i];

		for (uint32_t c = 0; c < job->view.channel_count; c++)
			*look++ = (struct data_look){.id = job->view.channel_ids[c],
			                             .group_token = job->view.group_token,
			                             .worker_count = job->view.world,
			                             .waits = job->waits};
	}
	return looks;
}

/* Returns false if memory is short. */
static bool jobs_take(const struct jobs_copy *copy, struct snapshot *out)
{
	out->jobs = calloc(copy->job_count + 1, sizeof(*out->jobs));
	if (out->jobs == NULL)
		return false;
	for (uint32_t i = 0; i < copy->job_count; i++) {
		struct job_snapshot *job = &out->jobs[i];

		job->view = copy->jobs[i].view;
		job->workers = copy->jobs[i].workers;
		job->waits = calloc(job->view.world, sizeof(*job->waits));
		if (job->waits == NULL)
			return false;
		for (uint32_t rank = 0; rank < job->view.world; rank++)
			job->here += !worker_elsewhere(&job->workers[rank]);
		out->job_count++;
	}
	return true;
}

static void drops_add(struct snapshot *out)
{
	for (uint32_t d = 0; d < WIRE_DROP_COUNT; d++) {
		out->drops[d] = out->data.drops[d];
		if (d != WIRE_DROP_DUPLICATE) /* duplicates are in the channels' own numbers */
			out->drops[d] += out->fast[d];
		for (uint32_t i = 0; i < out->job_count; i++)
			out->drops[d] += out->jobs[i].stats.drops[d];
	}
}

/* Running, probing, forming, ending; among several, the youngest. */
static bool goes_before(const struct jobs_view *a, const struct jobs_view *b)
{
	const int a_at = a->state % JOB_ENDING, b_at = b->state % JOB_ENDING;

	return a_at != b_at ? a_at > b_at : a->state_us < b->state_us;
}

static void series_choose(struct snapshot *out)
{
	for (uint32_t i = 0; i < out->job_count; i++) {
		struct job_snapshot *job = &out->jobs[i];

		snprintf(job->name, sizeof(job->name), "%.*s",
		         (int)message_name_base(job->view.name), job->view.name);
		job->series = true;
		for (uint32_t k = 0; k < i && job->series; k++) {
			struct job_snapshot *other = &out->jobs[k];

			if (!other->series || strcmp(other->name, job->name) != 0)
				continue;
			other->series = !goes_before(&job->view, &other->view);
			job->series = !other->series;
		}
	}
}

bool snapshot_take(const struct http_sources *sources, struct snapshot *out)
{
	struct data_look *looks = NULL;
	uint32_t count, first = 0;

	*out = (struct snapshot){.log_lines_lost = log_lines_lost()};
	out->copy = sources->copy(sources->context);
	if (out->copy != NULL && jobs_take(out->copy, out))
		looks = looks_make(out, &count);
	if (looks == NULL) {
		snapshot_free(out);
		return false;
	}
	out->totals = out->copy->totals;
	data_look(sources->data, looks, count, &out->data);
	offload_counters(sources->offload, out->fast);
	for (uint32_t i = 0; i < out->job_count; i++) {
		job_take(&out->jobs[i], &looks[first]);
		first += out->jobs[i].view.channel_count;
	}
	free(looks);
	drops_add(out);
	series_choose(out);
	return true;
}

void snapshot_free(struct snapshot *snapshot)
{
	for (uint32_t i = 0; i < snapshot->job_count; i++)
		free(snapshot->jobs[i].waits);
	free(snapshot->jobs);
	free(snapshot->copy);
}

bool snapshot_worker(const struct job_snapshot *job, uint32_t rank, struct worker_snapshot *out)
{
	*out = (struct worker_snapshot){.seen = job->workers[rank].seen, .waits = job->waits[rank]};
	return out->seen.frames > 0;
}

const char *http_datapath(const struct http_sources *sources)
{
	return offload_works(sources->offload) ? "xdp" : data_backend(sources->data);
}
