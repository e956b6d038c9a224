// SPDX-License-Identifier: BSD-3-Clause
/* jobs_trouble.c - jobs with a path on which something is wrong: what, in a line for people */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/jobs/jobs_impl.h"

#define NAME_BYTES (CONTROL_NAME_BYTES + ADDRESS_BYTES + 64)
#define IP_UDP_BYTES 28
#define ADVICE_BYTES 112
#define MERGED_US 2000000 /* a job that loses */
#define MERGED_SHARE 8    /* one datagram in so many, or more, for so long, gets nowhere */
#define FRESH_US 5000000  /* what was told so long ago is over */

struct job *job_with(struct jobs *jobs, uint16_t channel_id)
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

/* Does the job end for it? */
static bool fatal(const struct job *job, const struct jobs_trouble *trouble)
{
	if (trouble->kind == JOBS_UNSENT)
		return stays(trouble->error) || trouble->for_us >= job->silence_us;
	return trouble->kind == JOBS_MERGED && trouble->for_us >= MERGED_US &&
	       trouble->count * MERGED_SHARE >= trouble->of;
}

static void advise(const struct job *job, int error, char out[ADVICE_BYTES])
{
	if (error == EMSGSIZE)
		snprintf(out, ADVICE_BYTES,
		         "its interface's MTU is now smaller than the %u that the job began with: "
		         "raise it, or join again",
		         job->payload + IP_UDP_BYTES);
	else if (error == EPERM || error == EACCES)
		snprintf(out, ADVICE_BYTES, "does a firewall on its host drop outgoing UDP?");
	else
		snprintf(out, ADVICE_BYTES, "is its address, or the route, gone?");
}

/* Rank, host and address of a worker, or the group. */
static void name(const struct job *job, const struct jobs_trouble *trouble, char out[NAME_BYTES])
{
	uint32_t ip = job->group_ip;
	int used;

	if (trouble->rank == WIRE_EVERYONE)
		used = snprintf(out, NAME_BYTES, "the multicast group %u.%u.%u.%u", ip >> 24,
		                ip >> 16 & 255, ip >> 8 & 255, ip & 255);
	else
		used = snprintf(out, NAME_BYTES, "rank %u (%s, %s)", trouble->rank,
		                job->members[trouble->rank]->host,
		                job->members[trouble->rank]->address);
	if (trouble->more > 0)
		snprintf(out + used, NAME_BYTES - (size_t)used, " and %u more", trouble->more);
}

static void describe(const struct job *job, const struct jobs_trouble *trouble,
                     char out[CONTROL_TEXT_BYTES])
{
	unsigned long long count = trouble->count, of = trouble->of;
	double for_s = (double)trouble->for_us / 1e6;
	char whom[NAME_BYTES] = "", advice[ADVICE_BYTES];

	if (trouble->kind != JOBS_SLOW)
		name(job, trouble, whom);
	advise(job, trouble->error, advice);
	if (trouble->kind == JOBS_UNSENT)
		snprintf(out, CONTROL_TEXT_BYTES,
		         "the aggregator cannot send to %.120s: %s (%llu datagrams in %.1f s): %s",
		         whom, strerror(trouble->error), count, for_s, advice);
	else if (trouble->kind == JOBS_MERGED)
		snprintf(
			out, CONTROL_TEXT_BYTES,
			"datagrams of %.120s come several in one and are lost (%llu in %.1f s): no "
			"network card cuts them apart: on its host ethtool -K IFACE "
			"tx-udp-segmentation off",
			whom, count, for_s);
	else
		snprintf(out, CONTROL_TEXT_BYTES,
		         "the kernel has added %llu of %llu PUSHes that it might have: the others "
		         "come several in one (on the workers' hosts ethtool -K IFACE "
		         "tx-udp-segmentation off), or not by the aggregator's --device",
		         count, of);
}

bool job_troubled(const struct jobs *jobs, const struct job *job)
{
	return job->trouble[0] != '\0' && jobs->now_us - job->trouble_us < FRESH_US;
}

void jobs_trouble(struct jobs *jobs, uint16_t channel_id, const struct jobs_trouble *trouble)
{
	struct job *job = job_with(jobs, channel_id);
	char text[CONTROL_TEXT_BYTES];
	bool known;

	if (job == NULL)
		return;
	if (trouble->rank != WIRE_EVERYONE && job->members[trouble->rank] == NULL)
		return; /* it has left, and needs nothing any more */
	describe(job, trouble, text);
	if (fatal(job, trouble)) {
		job_fail(jobs, job, trouble->rank < job->world ? trouble->rank : job->world, "path",
		         "%s", text);
		return;
	}
	known = job_troubled(jobs, job);
	memcpy(job->trouble, text, sizeof(job->trouble));
	job->trouble_us = jobs->now_us;
	if (!known)
		jobs_log(jobs, "warn", "event=trouble job=%s text=\"%s\"", job->name, text);
}
