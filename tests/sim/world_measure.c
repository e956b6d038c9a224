// SPDX-License-Identifier: BSD-3-Clause
/* world_measure.c - what jobs and flows got of the queues, and how long operations took */

#include <stdlib.h>

#include "tests/sim/world_impl.h"

/* Room for one more, in a list that doubles. */
static void *grown(void *list, uint32_t count, uint32_t *room, size_t bytes)
{
	if (count < *room)
		return list;
	*room = *room > 0 ? 2 * *room : 1024;
	list = realloc(list, *room * bytes);
	if (list == NULL)
		abort();
	return list;
}

void measure_begin(struct world *world)
{
	struct world_measures *m = world->spec->measures;

	if (m != NULL && m->sample_us > 0)
		simnet_timer(world->net, world->nobody, TIMER_TICK, 0);
}

static uint64_t queue_bytes(const struct world *world, uint32_t queue, uint32_t flow)
{
	const struct world_spec *spec = world->spec;
	uint32_t jobs = spec->job_count, first, count;
	uint64_t bytes = 0;

	if (flow < jobs) {
		first = spec->aggregator_count + spec->jobs[flow].first_worker;
		count = spec->jobs[flow].world;
	} else {
		first = world->crosses[flow - jobs].node;
		count = 1;
	}
	for (uint32_t i = 0; i < count; i++)
		bytes += simnet_meter(world->net, queue, first + i)->bytes;
	return bytes;
}

void measure_sample(struct world *world)
{
	struct world_measures *m = world->spec->measures;
	uint32_t flows = world->spec->job_count + world->spec->cross_count;
	struct world_sample *sample;

	m->samples = grown(m->samples, m->sample_count, &m->sample_room, sizeof(*m->samples));
	sample = &m->samples[m->sample_count++];
	sample->at_us = simnet_now(world->net);
	for (uint32_t queue = 0; queue < world->spec->queue_count; queue++) {
		struct simnet_queue_stats stats;

		simnet_queue_stats(world->net, queue + 1, &stats);
		sample->waiting[queue] = stats.bytes_us;
		for (uint32_t flow = 0; flow < flows; flow++)
			sample->bytes[queue][flow] = queue_bytes(world, queue + 1, flow);
	}
	if (!world->over)
		simnet_timer(world->net, world->nobody, TIMER_TICK, sample->at_us + m->sample_us);
}

void measure_time(struct sim_worker *worker, uint64_t us)
{
	uint64_t now_us = simnet_now(worker->world->net);
	struct job_measures *job;

	if (worker->world->spec->measures == NULL)
		return;
	job = &worker->world->spec->measures->jobs[worker->job];
	job->times = grown(job->times, job->time_count, &job->time_room, sizeof(*job->times));
	job->times[job->time_count++] = (struct op_time){.end_us = now_us, .us = us};
	if (job->first_us == 0 || now_us - us < job->first_us)
		job->first_us = now_us - us;
	job->last_us = now_us;
}

void measure_channel(struct sim_aggregator *aggregator, const struct sim_port *port)
{
	struct world *world = aggregator->world;
	const uint32_t first = world->spec->aggregator_count;
	uint32_t worker = 0;

	/* Any worker that has sent something here. A parent may have heard sites alone: such worlds have one job. */
	for (uint32_t rank = 0; rank < port->info.worker_count; rank++)
		if (port->node[rank] >= first)
			worker = port->node[rank] - first;
	if (world->spec->measures != NULL)
		world->spec->measures->jobs[world->workers[worker].job].came_again +=
			channel_stats(port->channel)->result_resends;
}

static void measure_worker(struct world *world, const struct sim_worker *w)
{
	struct job_measures *job = &world->spec->measures->jobs[w->job];
	struct winnow_stats stats;

	session_stats(w->session, &stats);
	job->sent += stats.sent_packets;
	job->received += stats.received_packets;
	job->sent_again += stats.retransmits;
	for (uint32_t queue = 1; queue <= world->spec->queue_count; queue++) {
		const struct simnet_meter *meter = simnet_meter(world->net, queue, w->node);

		job->marked += meter->marked;
		job->dropped += meter->dropped;
		if (meter->burst_max > job->burst_max)
			job->burst_max = meter->burst_max;
	}
}

void measure_end(struct world *world)
{
	struct world_measures *m = world->spec->measures;

	if (m == NULL)
		return;
	for (uint32_t queue = 0; queue < world->spec->queue_count; queue++)
		simnet_queue_stats(world->net, queue + 1, &m->queues[queue]);
	for (uint32_t i = 0; i < world->spec->worker_count; i++)
		measure_worker(world, &world->workers[i]);
	for (uint32_t i = 0; i < world->spec->cross_count; i++)
		m->cross_lost[i] = world->crosses[i].lost;
	for (uint32_t j = 0; j < world->spec->job_count; j++)
		if (world->spec->jobs[j].op_count > 0)
			m->jobs[j].united = data_blocks_union(world->jobs[j].references[0]);
}

void world_measures_free(struct world_measures *measures)
{
	for (uint32_t i = 0; i < WORLD_JOBS_MAX; i++)
		free(measures->jobs[i].times);
	free(measures->samples);
}
