// SPDX-License-Identifier: BSD-3-Clause
/* jobs_state.c - peers and jobs: telling them, ending them, and what always holds of them */

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/jobs/jobs_impl.h"

void jobs_log(struct jobs *jobs, const char *level, const char *event,
              const struct log_field fields[], const char *text)
{
	jobs->ports.log(jobs->ports.context, level, event, fields, text);
}

struct job *job_with(struct jobs *jobs, uint16_t channel_id)
{
	for (uint32_t i = 0; i < jobs->config.jobs_max; i++)
		for (uint32_t c = 0; c < jobs->jobs[i].channel_count; c++)
			if (jobs->jobs[i].channel_ids[c] == channel_id)
				return &jobs->jobs[i];
	return NULL;
}

/* PROTOCOL.md section 2.3: the low byte chooses the thread. */
uint16_t job_channel_id(const struct jobs *jobs, const struct job *job, uint32_t thread)
{
	uint32_t index = (uint32_t)(job - jobs->jobs), threads = jobs->config.threads;

	return (uint16_t)(index / (256 / threads) * 256 + index % (256 / threads) * threads +
	                  thread);
}

/* ---- peers ---- */

void peer_send(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *message)
{
	char *line = line_prove(&peer->lines_out, message_format(message));

	if (line == NULL)
		return; /* out of memory: the peer's time-out will end it */
	if (message->kind == CONTROL_HELLO)
		transcript_add(&peer->transcript, line);
	jobs->ports.send(jobs->ports.context, peer, line);
	free(line);
}

void peer_end(struct jobs *jobs, struct jobs_peer *peer)
{
	crowd_remove(&jobs->waiting, peer);
	peer->used = false;
	peer->job = NULL;
	jobs->peer_count--;
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
	         LOG_FIELDS(LOG_WORD("peer", peer->address), LOG_WORD("code", code)), message.text);
	peer_send(jobs, peer, &message);
	peer_end(jobs, peer);
}

/* ---- jobs ---- */

const struct jobs_pause *job_pause(const struct jobs *jobs, const struct job *job)
{
	size_t length = message_name_base(job->name);

	for (uint32_t i = 0; i < JOBS_PAUSES && length > 0; i++)
		if (strncmp(jobs->pauses[i].name, job->name, length) == 0 &&
		    jobs->pauses[i].name[length] == '\0')
			return &jobs->pauses[i];
	return NULL;
}

uint8_t job_dscp(const struct jobs *jobs, const struct job *job)
{
	return (uint8_t)(job->share.dscp != 0 ? job->share.dscp : jobs->config.dscp);
}

void job_forget(struct job *job)
{
	free(job->members);
	free(job->tokens);
	free(job->multicast);
	free(job->seals);
	*job = (struct job){0};
}

/* Its channels go, and all their memory; its members stay. */
void job_detach(struct jobs *jobs, struct job *job)
{
	for (uint32_t i = 0; i < job->channel_count; i++) {
		jobs->ports.detach(jobs->ports.context, job->channel_ids[i]);
		channel_close(job->channels[i].channel);
	}
	job->channel_count = 0;
	jobs->bytes -= job->bytes;
	job->bytes = 0;
	crowd_remove(&jobs->unstarted, job);
}

/* Give back all that a job holds; its members have been told. */
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
	for (uint32_t rank = 0; rank < job->world; rank++)
		if (job->members[rank] != NULL)
			peer_send(jobs, job->members[rank], message);
}

/* ---- what always holds ---- */

static void check_peer(const struct jobs *jobs, const struct jobs_peer *peer)
{
	const struct job *job = peer->job;

	assert(peer->used || job == NULL);
	if (job == NULL)
		return;
	assert(job >= jobs->jobs && job < jobs->jobs + jobs->config.jobs_max);
	assert(job->state != JOB_FREE && peer->rank < job->world);
	assert(job->members[peer->rank] == peer);
	assert(peer->ready <= (job->state != JOB_FORMING));
	assert(job->silence_us <= peer->silence_us && job->shape.stall_us <= peer->stall_us);
}

/* Peers without a job, jobs that do not run yet: each is in its crowd, and nobody else. */
static void check_crowds(const struct jobs *jobs, uint32_t waiting, uint32_t unstarted)
{
	assert(jobs->waiting.count == waiting && jobs->unstarted.count == unstarted);
	for (uint32_t i = 0; i < waiting; i++) {
		const struct jobs_peer *peer = jobs->waiting.members[i].who;

		assert(peer->used && peer->job == NULL);
		assert(jobs->waiting.members[i].owner == net_ip_owner(&peer->ip));
	}
	for (uint32_t i = 0; i < unstarted; i++) {
		const struct job *job = jobs->unstarted.members[i].who;

		assert(job->state == JOB_FORMING || job->state == JOB_PROBING);
	}
}

static void check_members(const struct job *job)
{
	uint32_t present = 0, ready = 0;

	for (uint32_t rank = 0; rank < job->world; rank++) {
		const struct jobs_peer *peer = job->members[rank];

		if (peer == NULL)
			continue;
		assert(peer->used && peer->job == job && peer->rank == rank);
		present++;
		ready += peer->ready;
	}
	assert(present >= 1);
	if (job->state == JOB_ENDING)
		return;
	assert(present == job->joined - job->left);
	assert((job->state == JOB_FORMING) == (job->joined < job->world));
	assert((job->state == JOB_RUNNING) == (job->ready == job->world));
	assert(job->state == JOB_RUNNING ? ready == present : ready == job->ready);
	assert(job->state == JOB_RUNNING || job->left == 0);
}

static void check_channels(const struct jobs *jobs, const struct job *job)
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

		assert(job->channel_ids[i] == job_channel_id(jobs, job, i));
		assert((channel->channel != NULL) == (job->state == JOB_RUNNING));
		assert(!job->fast ||
		       (channel->fast != NULL && job->shape.window <= job->fast_window));
	}
}

void jobs_check(const struct jobs *jobs)
{
	uint32_t peers = 0, waiting = 0, running = 0, unstarted = 0;
	uint64_t refused = 0;
	size_t bytes = 0;

	for (uint32_t i = 0; i < jobs->places; i++) {
		check_peer(jobs, &jobs->peers[i]);
		peers += jobs->peers[i].used;
		waiting += jobs->peers[i].used && jobs->peers[i].job == NULL;
	}
	assert(peers == jobs->peer_count && peers < jobs->places);
	for (uint32_t i = 0; i < jobs->config.jobs_max; i++) {
		const struct job *job = &jobs->jobs[i];

		bytes += job->bytes;
		if (job->state == JOB_FREE) {
			assert(job->members == NULL && job->bytes == 0 && job->channel_count == 0);
			continue;
		}
		assert(job->world >= 1 && job->world <= jobs->config.workers_max);
		check_members(job);
		check_channels(jobs, job);
		running += job->state == JOB_RUNNING;
		unstarted += job->state == JOB_FORMING || job->state == JOB_PROBING;
		for (uint32_t j = 0; j < i && job->state != JOB_ENDING; j++)
			assert(jobs->jobs[j].state == JOB_ENDING ||
			       strcmp(jobs->jobs[j].name, job->name) != 0);
	}
	assert(bytes == jobs->bytes && bytes <= jobs->config.bytes_max);
	check_crowds(jobs, waiting, unstarted);
	assert(jobs->totals.jobs_started >= jobs->totals.jobs_finished + running);
	for (uint32_t i = 0; i < JOBS_REFUSALS; i++)
		refused += jobs->totals.refused[i];
	assert(refused == jobs->totals.joins_refused);
}
