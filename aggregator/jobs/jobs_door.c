// SPDX-License-Identifier: BSD-3-Clause
/*
 * jobs_door.c - workers that are no members: newcomers, until the members of a job admit them, and such as were members
 *
 * They have joined with world 0, and belong to no job; those that were members say STAY. MEMBERS.md.
 */

#include <stdio.h>

#include "aggregator/jobs/jobs_state.h"

/* Is it a newcomer of this job: of the same name, whatever the membership, and with the same key? */
static bool peer_fits(const struct job *job, const struct jobs_peer *peer)
{
	return !peer->stays && names_kin(peer->wanted, job->name) && peer_has_key(peer, job);
}

/* The one that has waited longest; NULL: nobody waits. */
struct jobs_peer *door_first(const struct jobs *jobs, const struct job *job)
{
	struct jobs_peer *peer;

	TAILQ_FOREACH(peer, &jobs->doorsteps, doorstep)
	if (peer_fits(job, peer))
		return peer;
	return NULL;
}

uint32_t door_count(const struct jobs *jobs, const struct job *job)
{
	const struct jobs_peer *peer;
	uint32_t count = 0;

	TAILQ_FOREACH(peer, &jobs->doorsteps, doorstep)
	count += peer_fits(job, peer);
	return count;
}

struct control_message door_ping(const struct jobs *jobs, const struct job *job)
{
	return (struct control_message){.kind = CONTROL_PING,
	                                .waiting = door_count(jobs, job),
	                                .drains = jobs->totals.draining};
}

void door_tell(struct jobs *jobs, struct job *job)
{
	const struct control_message ping = door_ping(jobs, job);

	job_tell(jobs, job, &ping);
}

void door_take(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *join,
               uint64_t now_us)
{
	peer->state = PEER_AT_DOOR;
	TAILQ_INSERT_TAIL(&jobs->doorsteps, peer, doorstep);
	peer_note(peer, join);
	peer->rank = join->rank;
	peer->since_us = now_us;
	snprintf(peer->wanted, sizeof(peer->wanted), "%s", join->job);
	if (*peer->keyed_for != '\0') { /* no stranger any more */
		crowd_remove(&jobs->waiting, peer);
		crowd_add(&jobs->newcomers, peer->owner, peer);
	}
	for (uint32_t i = 0; i < jobs->config.jobs_max; i++)
		if (jobs->jobs[i].state == JOB_RUNNING && peer_fits(&jobs->jobs[i], peer))
			door_tell(jobs, &jobs->jobs[i]);
}
