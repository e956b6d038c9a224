// SPDX-License-Identifier: BSD-3-Clause
/*
 * jobs_state.c - peers and jobs: telling them, ending them; how jobs fail
 *
 * At a job's door newcomers wait for admission by its members, and former members that come back
 * wait for the others. After a loss the remaining members keep their connections if they can
 * continue: see jobs_members.c.
 */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/jobs/jobs_state.h"

void jobs_log(struct jobs *jobs, const char *level, const char *event,
              const struct log_field fields[], const char *text)
{
	jobs->ports.log(jobs->ports.context, level, event, fields, text);
}

struct job *job_with(const struct jobs *jobs, uint16_t channel_id)
{
	for (uint32_t i = 0; i < jobs->config.jobs_max; i++)
		for (uint32_t c = 0; c < jobs->jobs[i].channel_count; c++)
			if (job_channel_id(jobs, &jobs->jobs[i], c) == channel_id)
				return &jobs->jobs[i];
	return NULL;
}

/* 2.3: "The low byte of the channel number, modulo the aggregator's number of threads, gives the thread" */
uint16_t job_channel_id(const struct jobs *jobs, const struct job *job, uint32_t thread)
{
	uint32_t index = (uint32_t)(job - jobs->jobs), threads = jobs->config.threads;

	return (uint16_t)(index / (256 / threads) * 256 + index % (256 / threads) * threads +
	                  thread);
}

uint32_t members_count(const struct job *job, enum peer_state least)
{
	uint32_t count = 0;

	for (uint32_t rank = 0; rank < job->world; rank++)
		count += job->members[rank] != NULL && job->members[rank]->state >= least;
	return count;
}

/* ---- peers ---- */

void peer_send(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *message)
{
	char *line = message_format(message);

	if (line != NULL) /* else the peer's time-out will end it */
		jobs->ports.send(jobs->ports.context, peer, line);
	message_free(line);
}

void door_leave(struct jobs *jobs, struct jobs_peer *peer)
{
	if (peer->state == PEER_AT_DOOR)
		TAILQ_REMOVE(&jobs->doorsteps, peer, doorstep);
	peer->state = PEER_STRANGER;
}

void peer_enter(struct jobs *jobs, struct jobs_peer *peer)
{
	door_leave(jobs, peer);
	if (!crowd_remove(&jobs->waiting, peer))
		crowd_remove(&jobs->newcomers, peer);
}

void peer_note(struct jobs_peer *peer, const struct control_message *join)
{
	peer->asks.payload = join->payload;
	peer->asks.rcvbuf = join->rcvbuf;
	snprintf(peer->worker.host, sizeof(peer->worker.host), "%s", join->host);
	snprintf(peer->where, sizeof(peer->where), "%s%s%s", join->host,
	         *join->site != '\0' ? ", site " : "", join->site);
	snprintf(peer->worker.site, sizeof(peer->worker.site), "%s", join->site);
	peer->via = join->via;
	peer->asks.silence_us = (uint64_t)join->silence_ms * 1000;
	peer->asks.stall_us = (uint64_t)join->stall_ms * 1000;
}

void peer_end(struct jobs *jobs, struct jobs_peer *peer)
{
	if (peer->job == NULL && !crowd_remove(&jobs->waiting, peer))
		crowd_remove(&jobs->newcomers, peer);
	door_leave(jobs, peer);
	if (jobs->next == peer)
		jobs->next = LIST_NEXT(peer, place);
	LIST_REMOVE(peer, place);
	LIST_INSERT_HEAD(&jobs->free, peer, place);
	if (peer->up.state != UP_NONE)
		jobs->ports.up_end(jobs->ports.up, peer, JOBS_UP_CUT, "", "");
	peer->up.state = UP_NONE;
	peer->state = PEER_FREE;
	peer->job = NULL;
	jobs->totals.peers--;
	jobs->ports.close(jobs->ports.context, peer);
}

const char *const jobs_refusals[JOBS_REFUSALS] = {"other", "key",      "version",  "world",
                                                  "rank",  "payload",  "draining", "running",
                                                  "jobs",  "protocol", "timeout",  "connections"};

void jobs_count_refusal(struct jobs *jobs, const char *code)
{
	uint32_t at = JOBS_REFUSALS - 1;

	while (at > 0 && strcmp(code, jobs_refusals[at]) != 0)
		at--;
	jobs->totals.joins_refused++;
	jobs->totals.refused[at]++;
}

/* Tells a connection that is not a member of a job why it is refused, and closes it. */
void peer_refuse(struct jobs *jobs, struct jobs_peer *peer, const char *code, const char *format,
                 ...)
{
	struct control_message message = {.kind = CONTROL_FAILED};
	va_list args;

	va_start(args, format);
	vsnprintf(message.text, sizeof(message.text), format, args);
	va_end(args);
	snprintf(message.code, sizeof(message.code), "%s", code);
	jobs_count_refusal(jobs, code);
	jobs_log(jobs, "warn", "refused",
	         LOG_FIELDS(LOG_WORD("peer", peer->worker.address), LOG_WORD("code", code)),
	         message.text);
	peer_send(jobs, peer, &message);
	peer_end(jobs, peer);
}

bool peer_has_key(const struct jobs_peer *peer, const struct job *job)
{
	return (*peer->keyed_for != '\0') == (job->wire.seals != NULL) &&
	       (job->wire.seals == NULL || peer->owner == job->owner);
}

/* ---- jobs ---- */

bool names_kin(const char *name, const char *other)
{
	const size_t length = message_name_base(name);

	return message_name_base(other) == length && strncmp(name, other, length) == 0;
}

struct job *job_kin(const struct jobs *jobs, const char *name)
{
	for (uint32_t i = 0; i < jobs->config.jobs_max; i++)
		if (jobs->jobs[i].state != JOB_FREE && names_kin(jobs->jobs[i].name, name))
			return &jobs->jobs[i];
	return NULL;
}

void job_finished(struct jobs *jobs, const struct job *job, const char *text)
{
	jobs->totals.jobs_finished++;
	jobs_log(jobs, "info", "job_finished",
	         LOG_FIELDS(LOG_WORD("job", job->name), LOG_NUMBER("world", job->world)), text);
}

void job_forget(struct job *job)
{
	free(job->members);
	free(job->seats);
	free(job->wire.tokens);
	free(job->wire.multicast);
	free(job->wire.speakers);
	if (job->wire.seals != NULL)
		explicit_bzero(job->wire.seals, seals_bytes(job->world));
	free(job->wire.seals);
	explicit_bzero(job, sizeof(*job)); /* wipes its keys */
}

/* Closes a job's channels with their memory. Its members stay. */
static void job_detach(struct jobs *jobs, struct job *job)
{
	for (uint32_t i = 0; i < job->channel_count; i++) {
		jobs->ports.detach(jobs->ports.context, job_channel_id(jobs, job, i));
		channel_close(job->channels[i].channel);
	}
	job->channel_count = 0;
	jobs->totals.bytes -= job->bytes;
	job->bytes = 0;
	crowd_remove(&jobs->unstarted, job);
}

/* Releases everything that a job holds. Its members have been told. */
void job_release(struct jobs *jobs, struct job *job)
{
	for (uint32_t rank = 0; job->members != NULL && rank < job->world; rank++)
		if (job->members[rank] != NULL)
			peer_end(jobs, job->members[rank]);
	job_detach(jobs, job);
	job_forget(job);
}

void job_tell(struct jobs *jobs, struct job *job, const struct control_message *message)
{
	char *line = message_format(message);

	for (uint32_t rank = 0; line != NULL && rank < job->world; rank++)
		if (job->members[rank] != NULL)
			jobs->ports.send(jobs->ports.context, job->members[rank], line);
	message_free(line);
}

/* ---- doors ---- */

/* Tells whether it is a newcomer of this job, in any membership, with the same key. */
static bool peer_fits(const struct job *job, const struct jobs_peer *peer)
{
	return !peer->stays && names_kin(peer->wanted, job->name) && peer_has_key(peer, job);
}

/* Returns the newcomer that has waited longest, or NULL. */
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
	if (*peer->keyed_for != '\0') { /* it is no stranger any more */
		crowd_remove(&jobs->waiting, peer);
		crowd_add(&jobs->newcomers, peer->owner, peer);
	}
	for (uint32_t i = 0; i < jobs->config.jobs_max; i++)
		if (jobs->jobs[i].state == JOB_RUNNING && peer_fits(&jobs->jobs[i], peer))
			door_tell(jobs, &jobs->jobs[i]);
}

/* ---- how jobs fail ---- */

void job_end(struct jobs *jobs, struct job *job)
{
	for (uint32_t rank = 0; rank < job->world; rank++) {
		struct jobs_peer *peer = job->members[rank];

		if (peer == NULL || !peer->gone)
			continue;
		job->members[rank] = NULL;
		peer_end(jobs, peer);
	}
	job_detach(jobs, job);
	job->state = JOB_ENDING;
	job->since_us = jobs->now_us;
	jobs->unsettled = true;
}

static void job_note_failure(struct jobs *jobs, const struct job *job,
                             const struct control_message *message)
{
	struct jobs_failure *failure = &jobs->failure;

	memcpy(failure->job, job->name, sizeof(failure->job));
	memcpy(failure->code, message->code, sizeof(failure->code));
	memcpy(failure->text, message->text, sizeof(failure->text));
	jobs->failed_us = jobs->now_us;
}

/* In a membership that somebody else has named, nobody depends on the members so far. */
bool job_has_next(const struct job *job)
{
	return job->state != JOB_FORMING || job->named;
}

/* Members that want to continue already know that it ends. */
static void job_tell_end(struct jobs *jobs, struct job *job, const struct control_message *message)
{
	for (uint32_t rank = 0; rank < job->world; rank++)
		if (job->members[rank] != NULL && !job->members[rank]->stays)
			peer_send(jobs, job->members[rank], message);
}

/*
 * The parent learns the reason in the name of the worker to blame, or of any. The other links stay until the parent ends
 * the job, or it would take their end for the reason.
 */
static void job_tell_parent(struct jobs *jobs, struct job *job, uint32_t rank, const char *code,
                            const char *text)
{
	for (uint32_t i = 0; i < job->world && rank == job->world; i++)
		if (job->members[i] != NULL)
			rank = i;
	for (uint32_t i = 0; i < job->world; i++) {
		struct jobs_peer *peer = job->members[i];

		if (peer == NULL || peer->up.state == UP_NONE)
			continue;
		peer->up.state = UP_NONE;
		jobs->ports.up_end(jobs->ports.up, peer, i == rank ? JOBS_UP_ABORT : JOBS_UP_LINGER,
		                   code, text);
	}
}

/* `rank` is the worker to blame, or job->world if there is none. */
void job_fail(struct jobs *jobs, struct job *job, uint32_t rank, const char *code,
              const char *format, ...)
{
	struct control_message message = {.kind = CONTROL_FAILED, .rank = rank};
	va_list args;

	va_start(args, format);
	vsnprintf(message.text, sizeof(message.text), format, args);
	va_end(args);
	snprintf(message.code, sizeof(message.code), "%s", code);
	if (strcmp(code, "moved") == 0) { /* as its members wanted */
		job_finished(jobs, job, message.text);
	} else if (job->state != JOB_ENDING) {
		jobs->totals.jobs_failed++;
		job_note_failure(jobs, job, &message);
		jobs_log(jobs, "warn", "job_failed",
		         LOG_FIELDS(LOG_WORD("job", job->name), LOG_WORD("code", code)),
		         message.text);
	}
	if (job->sited)
		job_tell_parent(jobs, job, rank, code, message.text);
	if (!job->sited && job->state != JOB_ENDING && job_has_next(job) &&
	    message_code_continues(code)) {
		job_tell_end(jobs, job, &message);
		job_end(jobs, job);
	} else {
		job_tell(jobs, job, &message);
		job_release(jobs, job);
	}
}

/* 11.2: "The lost worker receives it as well, if its connection still exists", which `stands` says. */
void peer_lost(struct jobs *jobs, struct jobs_peer *peer, const char *reason, bool stands)
{
	struct job *job = peer->job;
	const uint32_t rank = peer->rank;
	char host[JOBS_WHERE_BYTES];
	bool forms;

	if (job == NULL) {
		peer_end(jobs, peer);
		return;
	}
	forms = job->state == JOB_FORMING && !job->named;
	snprintf(host, sizeof(host), "%s", peer->where);
	if (!stands || forms || job->state == JOB_ENDING) {
		job->members[rank] = NULL;
		if (stands && forms)
			peer_refuse(jobs, peer, "protocol", "%s", reason);
		else
			peer_end(jobs, peer);
	}
	if (job->state == JOB_ENDING) {
		jobs->unsettled = true;
		return;
	}
	if (forms) { /* 11.2: "Before WELCOME a loss only frees the worker's rank" */
		if (members_count(job, PEER_JOINED) == 0)
			job_release(jobs, job);
		return;
	}
	if (job->members[rank] != NULL)
		peer->gone = true;
	job_fail(jobs, job, rank, "lost", "rank %u (%s) is lost: %s", rank, host, reason);
}

void jobs_garbage(struct jobs *jobs, struct jobs_peer *peer, const char *why)
{
	char reason[192];

	if (peer->state == PEER_FREE)
		return;
	if (peer->job == NULL) {
		peer_refuse(jobs, peer, "protocol", "%s", why);
		return;
	}
	snprintf(reason, sizeof(reason), "it sent something that is not a message: %s", why);
	peer_lost(jobs, peer, reason, true);
}
