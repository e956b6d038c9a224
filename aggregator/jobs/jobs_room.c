// SPDX-License-Identifier: BSD-3-Clause
/*
 * jobs_room.c - divides the places and the memory for jobs among owners
 *
 * Half of each is kept for the keys of the key file, in equal shares, whether a key has jobs here or
 * not. The other half goes to the first comers. So no jobs, not even running ones, keep out
 * another key's first jobs.
 */

#include "aggregator/jobs/jobs_state.h"

static size_t held_by(const struct jobs *jobs, uint64_t owner, enum room room)
{
	size_t held = 0;

	for (uint32_t i = 0; i < jobs->config.jobs_max; i++)
		if (jobs->jobs[i].state != JOB_FREE && jobs->jobs[i].owner == owner)
			held += room == ROOM_JOBS ? 1 : jobs->jobs[i].bytes;
	return held;
}

/* Tells whether no earlier job has the same owner. */
static bool first_of_owner(const struct jobs *jobs, uint32_t index)
{
	for (uint32_t i = 0; i < index; i++)
		if (jobs->jobs[i].state != JOB_FREE &&
		    jobs->jobs[i].owner == jobs->jobs[index].owner)
			return false;
	return true;
}

/* Returns the unused part of the shares of `others` other owners. */
static size_t kept_for(const struct jobs *jobs, uint32_t others, uint64_t owner, size_t share,
                       enum room room)
{
	size_t kept = 0;

	for (uint32_t i = 0; i < jobs->config.jobs_max && others > 0; i++) {
		const struct job *job = &jobs->jobs[i];
		size_t held;

		if (job->state == JOB_FREE || job->owner == owner || !first_of_owner(jobs, i))
			continue;
		held = held_by(jobs, job->owner, room);
		kept += held < share ? share - held : 0;
		others--;
	}
	return kept + others * share;
}

bool room_is_kept(const struct jobs *jobs, uint64_t owner, enum room room, size_t need,
                  size_t unused)
{
	const uint32_t keys = jobs->config.keys > 0 ? jobs->config.keys : 1;
	const size_t all = room == ROOM_JOBS ? jobs->config.jobs_max : jobs->config.bytes_max;
	const size_t share = all / 2 / keys;

	return held_by(jobs, owner, room) + need > share &&
	       kept_for(jobs, keys - 1, owner, share, room) > unused - need;
}
