// SPDX-License-Identifier: BSD-3-Clause
/* jobs_check.c - what always holds of jobs between two calls */

#include <assert.h>
#include <string.h>

#include "aggregator/jobs/jobs_state.h"
#include "tests/check/check.h"

static void check_peer(const struct jobs *jobs, const struct jobs_peer *peer)
{
	const struct job *job = peer->job;

	assert((peer->state >= PEER_NAMED) == (job != NULL));
	if (job == NULL)
		return;
	assert(job >= jobs->jobs && job < jobs->jobs + jobs->config.jobs_max);
	assert(job->state != JOB_FREE && peer->rank < job->world);
	assert(job->members[peer->rank] == peer);
	assert(peer->state < PEER_READY || job->state != JOB_FORMING);
	assert(job->silence_us <= peer->asks.silence_us &&
	       job->shape.stall_us <= peer->asks.stall_us);
}

/* Each peer is in one of two lists, and at a doorstep only if it waits at a door. */
static void check_places(const struct jobs *jobs)
{
	uint32_t used = 0, unused = 0, doors = 0, doorsteps = 0;
	const struct jobs_peer *peer;

	for (peer = LIST_FIRST(&jobs->used); peer != NULL; peer = LIST_NEXT(peer, place)) {
		assert(peer->state != PEER_FREE);
		used++;
		doors += peer->state == PEER_AT_DOOR;
	}
	for (peer = LIST_FIRST(&jobs->free); peer != NULL; peer = LIST_NEXT(peer, place)) {
		assert(peer->state == PEER_FREE);
		unused++;
	}
	for (peer = TAILQ_FIRST(&jobs->doorsteps); peer != NULL;
	     peer = TAILQ_NEXT(peer, doorstep)) {
		assert(peer->state == PEER_AT_DOOR);
		doorsteps++;
	}
	assert(used == jobs->totals.peers && used + unused == jobs->places);
	assert(doors == doorsteps);
}

static bool is_newcomer(const struct jobs_peer *peer)
{
	return peer->state == PEER_AT_DOOR && *peer->keyed_for != '\0';
}

/* Peers without a job, jobs that do not run yet: each is in its crowd, and nobody else. */
static void check_crowds(const struct jobs *jobs, uint32_t waiting, uint32_t newcomers,
                         uint32_t unstarted)
{
	assert(jobs->waiting.count == waiting && jobs->unstarted.count == unstarted);
	assert(jobs->newcomers.count == newcomers);
	for (uint32_t i = 0; i < waiting; i++) {
		const struct jobs_peer *peer = jobs->waiting.members[i].who;

		assert(peer->state != PEER_FREE && peer->job == NULL && !is_newcomer(peer));
		assert(*peer->keyed_for != '\0' || jobs->waiting.members[i].owner == peer->owner);
	}
	for (uint32_t i = 0; i < newcomers; i++)
		assert(is_newcomer(jobs->newcomers.members[i].who));
	for (uint32_t i = 0; i < unstarted; i++) {
		const struct job *job = jobs->unstarted.members[i].who;

		assert(job->state == JOB_FORMING || job->state == JOB_PROBING);
	}
}

/* The links to the parent are as far as the job, or farther. */
static void check_sited(const struct job *job)
{
	assert(!job->named && !job->fast.all && (job->parted || job->state == JOB_FORMING));
	for (uint32_t rank = 0; rank < job->world; rank++) {
		const struct jobs_peer *peer = job->members[rank];

		if (peer == NULL)
			continue;
		assert(peer->up.state >= UP_JOINS);
		assert(job->state != JOB_PROBING || peer->up.state >= UP_WELCOMED);
		assert(job->state != JOB_RUNNING || peer->up.state == UP_STARTED);
	}
}

static void check_members(const struct job *job)
{
	const uint32_t present = members_count(job, PEER_NAMED);
	const uint32_t joined = members_count(job, PEER_JOINED);
	const uint32_t ready = members_count(job, PEER_READY);

	for (uint32_t rank = 0; rank < job->world; rank++)
		assert(job->members[rank] == NULL ||
		       (job->members[rank]->job == job && job->members[rank]->rank == rank));
	if (job->state == JOB_ENDING)
		return;
	assert(present >= 1);
	assert(present == (job->named && job->state == JOB_FORMING ? job->world : joined));
	assert(job->state == JOB_FORMING ? ready == 0 : joined == present);
	assert(job->state != JOB_RUNNING || ready == present);
	if (job->sited) {
		check_sited(job);
		return;
	}
	assert(job->state != JOB_FORMING || joined < job->world);
	assert(job->state != JOB_PROBING || present == job->world);
	assert(job->state == JOB_RUNNING || ready < job->world);
}

/* `all`: of all the jobs, no other one has a channel of this one's. */
static void check_channels(const struct jobs *jobs, const struct job *job, bool all)
{
	bool formed = job->state == JOB_PROBING || job->state == JOB_RUNNING;

	assert(job->channel_count == (formed ? jobs->config.threads : 0));
	assert((job->bytes > 0) == formed);
	assert(job->bytes <= jobs->config.job_bytes_max);
	if (job->state == JOB_ENDING)
		return;
	assert(!formed || job->shape.payload >= WIRE_PAYLOAD_MIN);
	assert(job->shape.payload <= jobs->config.payload_max &&
	       job->shape.window <= WIRE_WINDOW_MAX);
	assert((job->shape.window & (job->shape.window - 1)) == 0);
	for (uint32_t i = 0; i < job->channel_count; i++) {
		const struct job_channel *channel = &job->channels[i];

		assert(!all || job_with(jobs, job_channel_id(jobs, job, i)) == job);
		assert((channel->channel != NULL) == (job->state == JOB_RUNNING));
		assert(!job->fast.all ||
		       (channel->fast != NULL && job->shape.window <= job->fast.window));
	}
}

void jobs_check(const struct jobs *jobs)
{
	uint32_t peers = 0, waiting = 0, newcomers = 0, running = 0, unstarted = 0;
	bool pairs = check_walks(jobs->config.jobs_max);
	uint64_t refused = 0;
	size_t bytes = 0;

	check_places(jobs);
	for (uint32_t i = 0; i < jobs->places; i++) {
		check_peer(jobs, &jobs->peers[i]);
		peers += jobs->peers[i].state != PEER_FREE;
		newcomers += is_newcomer(&jobs->peers[i]);
		waiting += jobs->peers[i].state != PEER_FREE && jobs->peers[i].job == NULL;
	}
	assert(peers == jobs->totals.peers && peers < jobs->places);
	for (uint32_t i = 0; i < jobs->config.jobs_max; i++) {
		const struct job *job = &jobs->jobs[i];

		bytes += job->bytes;
		if (job->state == JOB_FREE) {
			assert(job->members == NULL && job->bytes == 0 && job->channel_count == 0);
			continue;
		}
		assert(job->world >= 1 && job->world <= jobs->config.workers_max);
		check_members(job);
		check_channels(jobs, job, pairs);
		running += job->state == JOB_RUNNING;
		unstarted += job->state == JOB_FORMING || job->state == JOB_PROBING;
		for (uint32_t j = 0; pairs && j < i && job->state != JOB_ENDING; j++)
			assert(jobs->jobs[j].state == JOB_ENDING ||
			       strcmp(jobs->jobs[j].name, job->name) != 0);
	}
	assert(bytes == jobs->totals.bytes && bytes <= jobs->config.bytes_max);
	check_crowds(jobs, waiting - newcomers, newcomers, unstarted);
	assert(jobs->totals.jobs_started >= jobs->totals.jobs_finished + running);
	for (uint32_t i = 0; i < JOBS_REFUSALS; i++)
		refused += jobs->totals.refused[i];
	assert(refused == jobs->totals.joins_refused);
}
