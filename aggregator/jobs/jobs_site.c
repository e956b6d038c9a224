// SPDX-License-Identifier: BSD-3-Clause
/*
 * jobs_site.c - two levels: jobs that have a parent, and jobs whose workers come through sites
 *
 * A site is an aggregator that has a parent. It joins the parent's job in the name of each of its workers, so that the
 * parent knows all workers, forms the job, starts and ends it as if there were one level. On the wire one of them
 * speaks for all: the first, by rank. The others are mute in the parent's channels, as are all workers of other sites in
 * the site's own.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/jobs/jobs_state.h"

/* ---- at the parent ---- */

/* The first worker of the same site in the job, or the worker itself. */
static uint32_t site_speaker(const struct job *job, uint32_t rank)
{
	uint64_t via = job->members[rank]->via;

	for (uint32_t i = 0; i < rank && via != 0; i++)
		if (job->members[i] != NULL && job->members[i]->via == via)
			return i;
	return rank;
}

void job_speakers(struct job *job)
{
	for (uint32_t rank = 0; rank < job->world; rank++) {
		job->wire.speakers[rank] = job->members[rank] != NULL
		                                   ? (uint16_t)site_speaker(job, rank)
		                                   : WIRE_EVERYONE;
		job->parted = job->parted || job->wire.speakers[rank] != rank;
	}
}

uint32_t site_culprit(const struct job *job, uint32_t rank, uint64_t tag)
{
	const uint64_t via = job->members[rank] != NULL ? job->members[rank]->via : 0;

	for (uint32_t i = rank; i < job->world && via != 0; i++) {
		const struct jobs_peer *peer = job->members[i];

		if (peer != NULL && peer->via == via &&
		    (peer->does.open == 0 || peer->does.tag != tag))
			return i;
	}
	return rank;
}

const struct jobs_peer *site_with_name(const struct jobs *jobs, const struct control_message *join)
{
	const struct jobs_peer *peer;

	if (join->via == 0)
		return NULL;
	for (peer = LIST_FIRST(&jobs->used); peer != NULL; peer = LIST_NEXT(peer, place))
		if (peer->job != NULL && peer->via != 0 && peer->via != join->via &&
		    strcmp(peer->worker.site, join->site) == 0)
			return peer;
	return NULL;
}

/* ---- at the site ---- */

void site_join(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *join)
{
	int err = jobs->ports.up_join(jobs->ports.up, peer, join);

	if (err == 0)
		peer->up.state = UP_JOINS;
	else if (err == -ENOMEM)
		jobs_up_failed(jobs, peer, join->world, "memory",
		               "the aggregator is out of memory");
	else
		jobs_up_failed(jobs, peer, join->world, "key",
		               "this site has no key for the job: its keys have changed meanwhile");
}

bool site_formed(const struct job *job)
{
	for (uint32_t rank = 0; rank < job->world; rank++)
		if (job->members[rank] != NULL && job->members[rank]->up.state < UP_WELCOMED)
			return false;
	return true;
}

static bool site_started(const struct job *job)
{
	for (uint32_t rank = 0; rank < job->world; rank++)
		if (job->members[rank] != NULL && job->members[rank]->up.state < UP_STARTED)
			return false;
	return true;
}

static uint32_t lesser(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

void jobs_up_welcome(struct jobs *jobs, struct jobs_peer *peer,
                     const struct control_message *welcome, uint64_t now_us)
{
	struct job *job = peer->job;

	jobs->now_us = now_us;
	if (job == NULL || job->state != JOB_FORMING)
		return;
	if (welcome->channel_count != jobs->config.threads) {
		job_fail(jobs, job, job->world, "site",
		         "the parent has %u data threads, this site %u: start the site with "
		         "--threads %u",
		         welcome->channel_count, jobs->config.threads, welcome->channel_count);
		return;
	}
	peer->up.state = UP_WELCOMED;
	job->shape.first_frame = welcome->first_frame;
	job->shape.op_slots = lesser(jobs->config.op_slots, welcome->op_slots);
	job->shape.segments_ahead = lesser(jobs->config.segments_ahead, welcome->segments_ahead);
	job->silence_us = (uint64_t)welcome->silence_ms * 1000;
	job->shape.stall_us = (uint64_t)welcome->stall_ms * 1000;
	peer->asks.payload = lesser(peer->asks.payload, welcome->payload);
	if (site_formed(job))
		job_formed(jobs, job, now_us);
}

void jobs_up_start(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *start)
{
	struct job *job = peer->job;

	if (job == NULL || job->state != JOB_PROBING || peer->state != PEER_READY)
		return;
	peer->up.state = UP_STARTED;
	job->shape.payload = start->payload;
	job->shape.window = start->window;
	job->fast.above = start->fast;
	if (site_started(job))
		job_start(jobs, job);
}

bool site_relays_open(struct jobs *jobs, struct job *job)
{
	const struct jobs_peer *speaker = NULL;

	for (uint32_t rank = 0; rank < job->world && speaker == NULL; rank++)
		speaker = job->members[rank];
	for (uint32_t i = 0; i < job->channel_count; i++)
		if (jobs->ports.up_relay(jobs->ports.up, speaker, job_channel_id(jobs, job, i),
		                         job->channels[i].channel) != 0)
			return false;
	return true;
}

/* The parent refuses a worker, or ends the job. */
void jobs_up_failed(struct jobs *jobs, struct jobs_peer *peer, uint32_t rank, const char *code,
                    const char *text)
{
	struct job *job = peer->job;

	peer->up.state = UP_NONE; /* its link has ended */
	if (job == NULL)
		return;
	if (job->state == JOB_FORMING) {
		job->members[peer->rank] = NULL;
		peer_refuse(jobs, peer, code, "%s", text);
		if (members_count(job, PEER_JOINED) == 0)
			job_release(jobs, job);
		else if (site_formed(job)) /* the others have been waiting for this one alone */
			job_formed(jobs, job, jobs->now_us);
		return;
	}
	job_fail(jobs, job, rank < job->world ? rank : job->world, code, "%s", text);
}

void jobs_refused(struct jobs *jobs, uint16_t channel_id, const char *text)
{
	struct job *job = job_with(jobs, channel_id);

	if (job != NULL)
		job_fail(jobs, job, job->world, "mismatch", "%s", text);
}

void jobs_up_left(struct jobs *jobs, struct jobs_peer *peer, const char *text)
{
	struct control_message message = {.kind = CONTROL_LEFT};

	snprintf(message.text, sizeof(message.text), "%s", text);
	peer_send(jobs, peer, &message);
}

struct jobs_doing jobs_peer_doing(const struct jobs_peer *peer)
{
	return (struct jobs_doing){
		.open = peer->does.open, .tag = peer->does.tag, .says = peer->worker.says};
}
