// SPDX-License-Identifier: BSD-3-Clause
/* jobs_view.c - jobs and their workers as status and metrics show them */

#include "aggregator/jobs/jobs_impl.h"

void jobs_totals(const struct jobs *jobs, struct jobs_totals *out)
{
	*out = jobs->totals;
	out->bytes = jobs->bytes;
	out->bytes_max = jobs->config.bytes_max;
	out->draining = jobs->draining;
	out->peers = jobs->peer_count;
	out->jobs = 0;
	for (uint32_t i = 0; i < jobs->config.jobs_max; i++)
		out->jobs += jobs->jobs[i].state != JOB_FREE;
}

bool jobs_view(const struct jobs *jobs, uint32_t index, struct jobs_view *out)
{
	static const char *const states[] = {"free", "forming", "probing", "running"};
	const struct job *job = &jobs->jobs[index];

	if (index >= jobs->config.jobs_max || job->state == JOB_FREE)
		return false;
	*out = (struct jobs_view){.name = job->name,
	                          .state = states[job->state],
	                          .world = job->world,
	                          .joined = job->joined - job->left,
	                          .payload = job->payload,
	                          .window = job->window,
	                          .fast = job->fast,
	                          .bytes = job->bytes,
	                          .channel_count = job->channel_count,
	                          .channel_ids = job->channel_ids,
	                          .state_us = jobs->now_us - job->since_us,
	                          .silence_us = job->silence_us,
	                          .stall_us = job->stall_us,
	                          .trouble = job_troubled(jobs, job) ? job->trouble : ""};
	for (uint32_t rank = 0; rank < job->world; rank++)
		if (job->members[rank] != NULL && job->members[rank]->multicast)
			out->multicast = true;
	return true;
}

void jobs_worker(const struct jobs *jobs, uint32_t index, uint32_t rank, struct jobs_worker *out)
{
	const struct job *job = &jobs->jobs[index];
	const struct jobs_peer *peer = job->members[rank];

	*out = (struct jobs_worker){
		.state = job->state == JOB_RUNNING ? "left" : "missing", .host = "", .address = ""};
	if (peer == NULL)
		return;
	*out = (struct jobs_worker){.state = peer->ready ? "ready" : "joined",
	                            .host = peer->host,
	                            .address = peer->address,
	                            .multicast = peer->multicast,
	                            .silent_us = jobs->now_us - peer->heard_us};
}

bool jobs_last_failure(const struct jobs *jobs, struct jobs_failure *out)
{
	if (jobs->failure.code[0] == '\0')
		return false;
	*out = jobs->failure;
	out->age_us = jobs->now_us - jobs->failure.age_us;
	return true;
}
