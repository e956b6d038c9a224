// SPDX-License-Identifier: BSD-3-Clause
/*
 * jobs_order.c - what an operator wants of a job that runs: that it pauses, resumes, or continues without a worker
 *
 * An order comes in place of a JOIN, from somebody who knows the job's key. PROTOCOL.md section 5.11.
 */

#include <stdio.h>
#include <string.h>

#include "aggregator/jobs/jobs_impl.h"

/* The answer to one that is has a proof, too. */
static bool order_proven(const struct jobs *jobs, struct jobs_peer *peer,
                         const struct control_message *order)
{
	const struct proof_key *key;
	uint8_t want[PROOF_BYTES];

	if (jobs->config.keys == NULL)
		return true;
	key = proof_keys_find(jobs->config.keys, order->job);
	if (key == NULL)
		return false;
	proof_of_order(key, peer->nonce, order, want);
	if (!proof_equal(want, order->proof))
		return false;
	line_proofs_early(key, order->job, 0, &peer->transcript, &peer->lines_in, &peer->lines_out);
	return true;
}

/* Of a job's name: whichever of its memberships is here. */
static struct job *job_meant(const struct jobs *jobs, const char *name)
{
	for (uint32_t i = 0; i < jobs->config.jobs_max; i++) {
		struct job *job = &jobs->jobs[i];

		if (job->state == JOB_RUNNING && names_kin(job->name, name) &&
		    (strchr(name, '/') == NULL || strcmp(job->name, name) == 0))
			return job;
	}
	return NULL;
}

/* ---- pauses ---- */

struct jobs_pause *pause_named(const struct jobs *jobs, const char *name)
{
	for (uint32_t i = 0; i < jobs->pause_places; i++)
		if (names_kin(jobs->pauses[i].name, name))
			return &jobs->pauses[i];
	return NULL;
}

/*
 * When all places are taken, at least half of them are of jobs that are not here now. Of their owners the one with
 * most of them gives up the first: nobody's pauses push out another's.
 */
static struct jobs_pause *pause_place(struct jobs *jobs)
{
	jobs->away.count = 0;
	for (uint32_t i = 0; i < jobs->pause_places; i++) {
		struct jobs_pause *pause = &jobs->pauses[i];

		if (pause->name[0] == '\0')
			return pause;
		if (pause->here == 0)
			crowd_add(&jobs->away, pause->owner, pause);
	}
	return crowd_heaviest(&jobs->away).oldest;
}

/* All memberships of this job that are here, and those that run are told. */
static void pauses_set(struct jobs *jobs, const struct job *like, struct jobs_pause *pause)
{
	for (uint32_t i = 0; i < jobs->config.jobs_max; i++) {
		struct job *job = &jobs->jobs[i];

		if (job->state == JOB_FREE || !names_kin(job->name, like->name))
			continue;
		job_pause_set(job, pause);
		if (pause == NULL)
			job->resumed_us = jobs->now_us;
		if (job->state == JOB_RUNNING)
			door_tell(jobs, job);
	}
}

static void pause(struct jobs *jobs, struct job *job)
{
	struct jobs_pause *place;

	if (job->pause != NULL)
		return;
	place = pause_place(jobs);
	*place = (struct jobs_pause){.owner = job->owner, .seen_us = jobs->now_us};
	snprintf(place->name, sizeof(place->name), "%.*s", (int)message_name_base(job->name),
	         job->name);
	pauses_set(jobs, job, place);
}

static void resume(struct jobs *jobs, struct job *job)
{
	struct jobs_pause *paused = job->pause;

	if (paused == NULL)
		return;
	pauses_set(jobs, job, NULL);
	paused->name[0] = '\0';
}

/* A job that is over needs no pause; between two memberships it is away for a moment. */
void pauses_tick(struct jobs *jobs)
{
	for (uint32_t i = 0; i < jobs->pause_places; i++) {
		struct jobs_pause *pause = &jobs->pauses[i];

		if (pause->here > 0)
			pause->seen_us = jobs->now_us;
		else if (jobs->now_us - pause->seen_us >= JOBS_PAUSE_FORGET_US)
			pause->name[0] = '\0';
	}
}

/* ---- orders ---- */

/* It is told why, as the others are. */
static void expel(struct jobs *jobs, struct job *job, const struct control_message *order)
{
	struct jobs_peer *peer = job->members[order->rank];

	peer->gone = true;
	job_fail(jobs, job, order->rank, "lost", "rank %u (%s) was taken out by an operator%s%s",
	         order->rank, peer->host, order->text[0] != '\0' ? ": " : "", order->text);
}

/* Why it cannot be done; NULL: it is. */
static const char *obey(struct jobs *jobs, struct job *job, const struct control_message *order)
{
	if (strcmp(order->order, "pause") == 0) {
		pause(jobs, job);
		return NULL;
	}
	if (strcmp(order->order, "resume") == 0) {
		resume(jobs, job);
		return NULL;
	}
	if (strcmp(order->order, "expel") != 0)
		return "no such order is known here";
	if (order->rank >= job->world || job->members[order->rank] == NULL)
		return "it has no such rank";
	if (!(job->features & CONTROL_MEMBERS))
		return "not all of its workers know how to continue without one";
	expel(jobs, job, order);
	return NULL;
}

void order_take(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *order)
{
	struct control_message done = {.kind = CONTROL_DONE};
	struct job *job;
	const char *why;

	if (order->version != WIRE_VERSION) {
		peer_refuse(jobs, peer, "version", "this aggregator speaks version %u",
		            WIRE_VERSION);
		return;
	}
	if (!order_proven(jobs, peer, order)) {
		peer_refuse(jobs, peer, "key",
		            "wrong key for job '%s': give the one that the aggregator has in its "
		            "--key-file",
		            order->job);
		return;
	}
	job = job_meant(jobs, order->job);
	why = job != NULL ? NULL : "it does not run here";
	if (job != NULL) {
		jobs_log(jobs, "info", "order",
		         LOG_FIELDS(LOG_WORD("peer", peer->address), LOG_WORD("job", job->name),
		                    LOG_WORD("order", order->order),
		                    LOG_NUMBER("rank", order->rank)),
		         order->text);
		snprintf(done.text, sizeof(done.text), "job '%s' of %u workers: %s", job->name,
		         job->world, order->order);
		why = obey(jobs, job, order);
	}
	if (why != NULL) {
		peer_refuse(jobs, peer, "order", "job '%s': %s", order->job, why);
		return;
	}
	peer_send(jobs, peer, &done);
	peer_end(jobs, peer);
}
