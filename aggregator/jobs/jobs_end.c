// SPDX-License-Identifier: BSD-3-Clause
/*
 * jobs_end.c - how jobs fail
 *
 * After a loss the connections of those who are left stand, if they can continue: see jobs_members.c.
 */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/jobs/jobs_state.h"

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

/* Of a membership that somebody else has named nobody depends on those who have come so far. */
bool job_has_next(const struct job *job)
{
	return job->state != JOB_FORMING || job->named;
}

/* Those who want to continue know that it ends. */
static void job_tell_end(struct jobs *jobs, struct job *job, const struct control_message *message)
{
	for (uint32_t rank = 0; rank < job->world; rank++)
		if (job->members[rank] != NULL && !job->members[rank]->stays)
			peer_send(jobs, job->members[rank], message);
}

/* `rank` is the worker to blame, or job->world when there is none. */
void job_fail(struct jobs *jobs, struct job *job, uint32_t rank, const char *code,
              const char *format, ...)
{
	struct control_message message = {.kind = CONTROL_FAILED, .rank = rank};
	va_list args;

	va_start(args, format);
	vsnprintf(message.text, sizeof(message.text), format, args);
	va_end(args);
	snprintf(message.code, sizeof(message.code), "%s", code);
	if (strcmp(code, "moved") == 0) { /* its members have wanted that */
		job_finished(jobs, job, message.text);
	} else if (job->state != JOB_ENDING) {
		jobs->totals.jobs_failed++;
		job_note_failure(jobs, job, &message);
		jobs_log(jobs, "warn", "job_failed",
		         LOG_FIELDS(LOG_WORD("job", job->name), LOG_WORD("code", code)),
		         message.text);
	}
	if (job->state != JOB_ENDING && job_has_next(job) && message_code_continues(code)) {
		job_tell_end(jobs, job, &message);
		job_end(jobs, job);
	} else {
		job_tell(jobs, job, &message);
		job_release(jobs, job);
	}
}

/* 11.2: "The lost worker receives it as well, if its connection still exists": it `stands`. */
void peer_lost(struct jobs *jobs, struct jobs_peer *peer, const char *reason, bool stands)
{
	struct job *job = peer->job;
	const uint32_t rank = peer->rank;
	char host[CONTROL_NAME_BYTES];
	bool forms;

	if (job == NULL) {
		peer_end(jobs, peer);
		return;
	}
	forms = job->state == JOB_FORMING && !job->named;
	snprintf(host, sizeof(host), "%s", peer->worker.host);
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
