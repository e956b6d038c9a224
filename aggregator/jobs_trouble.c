// SPDX-License-Identifier: BSD-3-Clause
/* jobs_trouble.c - jobs whose datagrams the aggregator cannot send: why, in a line for people */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/jobs_impl.h"

#define IP_UDP_BYTES 28
#define NAME_BYTES (CONTROL_NAME_BYTES + ADDRESS_BYTES + 64)

static struct job *job_with(struct jobs *jobs, uint16_t channel_id)
{
	for (uint32_t i = 0; i < jobs->config.jobs_max; i++)
		for (uint32_t c = 0; c < jobs->jobs[i].channel_count; c++)
			if (jobs->jobs[i].channel_ids[c] == channel_id)
				return &jobs->jobs[i];
	return NULL;
}

/* A size or a rule stays until somebody changes it; a network that is down may come back. */
static bool stays(int error)
{
	return error == EMSGSIZE || error == EPERM || error == EACCES;
}

static void advise(const struct job *job, int error, char *out, size_t room)
{
	if (error == EMSGSIZE)
		snprintf(
			out, room,
			"; its interface's MTU is now smaller than the %u that the job began with: "
			"raise it, or join again",
			job->payload + IP_UDP_BYTES);
	else if (error == EPERM || error == EACCES)
		snprintf(out, room, "; does a firewall on its host drop outgoing UDP?");
	else
		snprintf(out, room, "; is its address, or the route, gone?");
}

/* Rank, host and address of a worker, or the group. */
static void name(const struct job *job, uint16_t rank, char out[NAME_BYTES])
{
	uint32_t ip = job->group_ip;

	if (rank == WIRE_EVERYONE)
		snprintf(out, NAME_BYTES, "the multicast group %u.%u.%u.%u", ip >> 24,
		         ip >> 16 & 255, ip >> 8 & 255, ip & 255);
	else
		snprintf(out, NAME_BYTES, "rank %u (%s, %s)", rank, job->members[rank]->host,
		         job->members[rank]->address);
}

void jobs_trouble(struct jobs *jobs, uint16_t channel_id, const struct jobs_trouble *trouble)
{
	struct job *job = job_with(jobs, channel_id);
	char whom[NAME_BYTES], more[32] = "", advice[160];

	if (job == NULL || (!stays(trouble->error) && trouble->for_us < job->silence_us))
		return;
	if (trouble->rank != WIRE_EVERYONE && job->members[trouble->rank] == NULL)
		return; /* it has left, and needs nothing any more */
	name(job, trouble->rank, whom);
	if (trouble->more > 0)
		snprintf(more, sizeof(more), " and %u more", trouble->more);
	advise(job, trouble->error, advice, sizeof(advice));
	job_fail(jobs, job, trouble->rank < job->world ? trouble->rank : job->world, "path",
	         "the aggregator cannot send to %s%s: %s (%llu datagrams in %.1f s)%s", whom, more,
	         strerror(trouble->error), (unsigned long long)trouble->count,
	         (double)trouble->for_us / 1e6, advice);
}
