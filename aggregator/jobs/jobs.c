// SPDX-License-Identifier: BSD-3-Clause
/* jobs.c - connections, heartbeats and how jobs end; joining is in jobs_join.c */

#include "aggregator/jobs/jobs.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/jobs/jobs_impl.h"

int jobs_open(const struct jobs_config *config, const struct jobs_ports *ports, struct jobs **out)
{
	struct jobs *jobs;

	if (config->jobs_max == 0 || config->jobs_max > JOBS_MAX || config->threads == 0 ||
	    config->threads > JOBS_THREADS_MAX || config->peers_max == 0 ||
	    config->workers_max == 0 || config->workers_max > WIRE_WORKERS_MAX)
		return -EINVAL;
	jobs = calloc(1, sizeof(*jobs));
	if (jobs == NULL)
		return -ENOMEM;
	jobs->config = *config;
	jobs->ports = *ports;
	jobs->places = config->peers_max + 1;
	jobs->peers = calloc(jobs->places, sizeof(*jobs->peers));
	jobs->jobs = calloc(config->jobs_max, sizeof(*jobs->jobs));
	if (jobs->peers == NULL || jobs->jobs == NULL ||
	    crowd_open(&jobs->waiting, jobs->places) != 0 ||
	    crowd_open(&jobs->unstarted, config->jobs_max) != 0) {
		jobs_close(jobs);
		return -ENOMEM;
	}
	*out = jobs;
	return 0;
}

void jobs_close(struct jobs *jobs)
{
	if (jobs == NULL)
		return;
	crowd_close(&jobs->waiting);
	crowd_close(&jobs->unstarted);
	free(jobs->peers);
	free(jobs->jobs);
	free(jobs);
}

void jobs_log(struct jobs *jobs, const char *level, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	jobs->ports.log(jobs->ports.context, level, text);
}

/* ---- peers ---- */

void peer_send(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *message)
{
	char *line = message_format(message);

	if (line == NULL)
		return; /* out of memory: the peer's time-out will end it */
	jobs->ports.send(jobs->ports.context, peer, line);
	free(line);
}

static void peer_end(struct jobs *jobs, struct jobs_peer *peer)
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

static void count_refusal(struct jobs *jobs, const char *code)
{
	uint32_t at = JOBS_REFUSALS - 1;

	while (at > 0 && strcmp(code, jobs_refusals[at]) != 0)
		at--;
	jobs->totals.joins_refused++;
	jobs->totals.refused[at]++;
}

/* A connection that is no member of a job is told why, and closed. */
void peer_refuse(struct jobs *jobs, struct jobs_peer *peer, const char *code, const char *format,
                 ...)
{
	struct control_message message = {.kind = CONTROL_FAILED};
	va_list args;

	va_start(args, format);
	vsnprintf(message.text, sizeof(message.text), format, args);
	va_end(args);
	snprintf(message.code, sizeof(message.code), "%s", code);
	count_refusal(jobs, code);
	jobs_log(jobs, "warn", "event=refused peer=%s code=%s text=\"%s\"", peer->address, code,
	         message.text);
	peer_send(jobs, peer, &message);
	peer_end(jobs, peer);
}

bool jobs_crowd_out(struct jobs *jobs)
{
	const struct crowd_heaviest heaviest = crowd_heaviest(&jobs->waiting);

	if (heaviest.oldest == NULL)
		return false;
	peer_refuse(jobs, heaviest.oldest, "connections",
	            "%u connections are open here, the limit (connections_max); %u of your host's "
	            "have not joined a job",
	            jobs->config.peers_max, heaviest.count);
	return true;
}

char *jobs_no_room(struct jobs *jobs)
{
	struct control_message message = {.kind = CONTROL_FAILED, .code = "connections"};

	snprintf(message.text, sizeof(message.text),
	         "the aggregator has no descriptor left for your connection: see its log");
	count_refusal(jobs, message.code);
	return message_format(&message);
}

static void hello_send(struct jobs *jobs, struct jobs_peer *peer)
{
	struct control_message hello = {.kind = CONTROL_HELLO, .version = WIRE_VERSION};

	jobs->ports.random(jobs->ports.context, peer->nonce, sizeof(peer->nonce));
	memcpy(hello.nonce, peer->nonce, sizeof(hello.nonce));
	hello.key = jobs->config.keys != NULL;
	snprintf(hello.software, sizeof(hello.software), "%s", jobs->config.software);
	peer_send(jobs, peer, &hello);
}

struct jobs_peer *jobs_connected(struct jobs *jobs, const struct net_addr *from, uint32_t local_ip,
                                 void *handle, uint64_t now_us)
{
	struct jobs_peer *peer = jobs->peers;

	while (peer->used)
		peer++;
	*peer = (struct jobs_peer){.used = true,
	                           .local_ip = local_ip,
	                           .ip = from->ip,
	                           .handle = handle,
	                           .since_us = now_us,
	                           .heard_us = now_us,
	                           .pinged_us = now_us};
	net_format(from, peer->address);
	jobs->peer_count++;
	crowd_add(&jobs->waiting, from->ip, peer);
	if (jobs->peer_count > jobs->config.peers_max)
		jobs_crowd_out(jobs);
	if (!peer->used)
		return NULL;
	hello_send(jobs, peer);
	return peer;
}

void *jobs_peer_handle(const struct jobs_peer *peer)
{
	return peer->handle;
}

/* ---- ends ---- */

/* Give back all that a job holds; its members have been told. */
void job_release(struct jobs *jobs, struct job *job)
{
	for (uint32_t rank = 0; job->members != NULL && rank < job->world; rank++)
		if (job->members[rank] != NULL)
			peer_end(jobs, job->members[rank]);
	for (uint32_t i = 0; i < job->channel_count; i++) {
		jobs->ports.detach(jobs->ports.context, job->channel_ids[i]);
		channel_close(job->channels[i].channel);
	}
	jobs->bytes -= job->bytes;
	crowd_remove(&jobs->unstarted, job);
	free(job->members);
	free(job->tokens);
	*job = (struct job){0};
}

static void tell_all(struct jobs *jobs, struct job *job, const struct control_message *message)
{
	for (uint32_t rank = 0; rank < job->world; rank++)
		if (job->members[rank] != NULL)
			peer_send(jobs, job->members[rank], message);
}

static void failure_note(struct jobs *jobs, const struct job *job,
                         const struct control_message *message)
{
	struct jobs_failure *failure = &jobs->failure;

	memcpy(failure->job, job->name, sizeof(failure->job));
	memcpy(failure->code, message->code, sizeof(failure->code));
	memcpy(failure->text, message->text, sizeof(failure->text));
	failure->age_us = jobs->now_us;
}

/* `rank` is the worker that is to blame, or job->world when none is. */
void job_fail(struct jobs *jobs, struct job *job, uint32_t rank, const char *code,
              const char *format, ...)
{
	struct control_message message = {.kind = CONTROL_FAILED, .rank = rank};
	va_list args;

	va_start(args, format);
	vsnprintf(message.text, sizeof(message.text), format, args);
	va_end(args);
	snprintf(message.code, sizeof(message.code), "%s", code);
	jobs->totals.jobs_failed++;
	failure_note(jobs, job, &message);
	jobs_log(jobs, "warn", "event=job_failed job=%s code=%s text=\"%s\"", job->name, code,
	         message.text);
	tell_all(jobs, job, &message);
	job_release(jobs, job);
}

/* A worker goes in peace; the job ends with the last. */
static void peer_left(struct jobs *jobs, struct jobs_peer *peer)
{
	struct control_message message = {.kind = CONTROL_LEFT, .rank = peer->rank};
	struct job *job = peer->job;

	snprintf(message.text, sizeof(message.text), "rank %u (%s) has left the job", peer->rank,
	         peer->host);
	job->members[peer->rank] = NULL;
	job->left++;
	peer_end(jobs, peer);
	if (job->left < job->world) {
		tell_all(jobs, job, &message);
		return;
	}
	jobs->totals.jobs_finished++;
	jobs_log(jobs, "info", "event=job_finished job=%s world=%u", job->name, job->world);
	job_release(jobs, job);
}

/* `stands`: the connection does, so the worker itself is told like the others. */
static void peer_lost(struct jobs *jobs, struct jobs_peer *peer, const char *reason, bool stands)
{
	struct job *job = peer->job;
	uint32_t rank = peer->rank;
	char host[CONTROL_NAME_BYTES];

	if (job == NULL) {
		peer_end(jobs, peer);
		return;
	}
	snprintf(host, sizeof(host), "%s", peer->host);
	if (!stands || job->state == JOB_FORMING) {
		job->members[rank] = NULL;
		peer_end(jobs, peer);
	}
	if (job->state == JOB_FORMING) { /* nobody depends on it yet: its place is free again */
		job->joined--;
		if (job->joined == 0)
			job_release(jobs, job);
		return;
	}
	job_fail(jobs, job, rank, "lost", "rank %u (%s) is lost: %s", rank, host, reason);
}

void jobs_gone(struct jobs *jobs, struct jobs_peer *peer, const char *reason)
{
	if (peer->used)
		peer_lost(jobs, peer, reason, false);
}

void jobs_garbage(struct jobs *jobs, struct jobs_peer *peer, const char *why)
{
	char reason[192];

	if (!peer->used)
		return;
	if (peer->job == NULL) {
		peer_refuse(jobs, peer, "protocol", "%s", why);
		return;
	}
	snprintf(reason, sizeof(reason), "it sent something that is not a message: %s", why);
	peer_lost(jobs, peer, reason, true);
}

/* ---- lines ---- */

static void abort_take(struct jobs *jobs, struct jobs_peer *peer,
                       const struct control_message *message)
{
	struct job *job = peer->job;
	uint32_t rank = peer->rank;
	const char *code = "aborted";
	char host[CONTROL_NAME_BYTES];

	snprintf(host, sizeof(host), "%s", peer->host);
	if (job->state == JOB_FORMING) {
		peer_lost(jobs, peer, "it gave up", false);
		return;
	}
	/* A worker that was told of a loss elsewhere passes it on as what it is. */
	if (strcmp(message->code, "lost") == 0 || strcmp(message->code, "stalled") == 0)
		code = message->code;
	job_fail(jobs, job, rank, code, "rank %u (%s) aborted the job: %s", rank, host,
	         message->text);
}

void jobs_line(struct jobs *jobs, struct jobs_peer *peer, const char *line, uint64_t now_us)
{
	static const char stranger[] = "this port speaks Winnow's protocol, one JSON object a line";
	struct control_message message;
	char why[128];

	if (!peer->used)
		return;
	jobs->now_us = now_us;
	peer->heard_us = now_us;
	if (message_parse(line, &message, why) != 0) {
		jobs_garbage(jobs, peer, message.kind != 0 || peer->job != NULL ? why : stranger);
		return;
	}
	if (peer->job == NULL) {
		if (message.kind == CONTROL_JOIN)
			join_take(jobs, peer, &message, now_us);
		else
			jobs_garbage(jobs, peer, "the first message is 'join'");
		return;
	}
	switch (message.kind) {
	case CONTROL_READY:
		ready_take(jobs, peer, &message);
		break;
	case CONTROL_PING:
		peer->open = message.open;
		peer->tag = message.tag;
		break;
	case CONTROL_LEAVE:
		if (peer->job->state == JOB_RUNNING)
			peer_left(jobs, peer);
		else
			peer_lost(jobs, peer, "it left before the job began", true);
		break;
	case CONTROL_ABORT:
		abort_take(jobs, peer, &message);
		break;
	case CONTROL_PATH:
		path_take(jobs, peer, &message);
		break;
	case CONTROL_MOVE:
		move_take(jobs, peer);
		break;
	default:
		jobs_garbage(jobs, peer, "it is an aggregator's, or out of turn");
	}
}

/* ---- time ---- */

static void peer_tick(struct jobs *jobs, struct jobs_peer *peer, uint64_t now_us)
{
	struct control_message ping = {.kind = CONTROL_PING};
	char reason[64];
	uint64_t silence_us;

	if (peer->job == NULL) {
		if (now_us - peer->since_us >= jobs->config.hello_us)
			peer_refuse(jobs, peer, "timeout", "no JOIN within %.1f s",
			            (double)jobs->config.hello_us / 1e6);
		return;
	}
	/* What others ask for it does not know before WELCOME. */
	silence_us = peer->job->state == JOB_FORMING ? peer->silence_us : peer->job->silence_us;
	if (now_us - peer->pinged_us >= silence_us / 4) {
		peer->pinged_us = now_us;
		peer_send(jobs, peer, &ping);
	}
	if (now_us - peer->heard_us < silence_us)
		return;
	snprintf(reason, sizeof(reason), "silent for %.1f s", (double)silence_us / 1e6);
	peer_lost(jobs, peer, reason, true);
}

/* "1, 3 and 5 more": the ranks that have not come this far. */
static void list_missing(const struct job *job, char *text, size_t room)
{
	uint32_t missing = 0, named = 0;
	size_t used = 0;

	for (uint32_t rank = 0; rank < job->world; rank++) {
		const struct jobs_peer *peer = job->members[rank];

		if (peer != NULL && (job->state == JOB_FORMING || peer->ready))
			continue;
		missing++;
		if (named == 8)
			continue;
		used += (size_t)snprintf(text + used, room - used, "%s%u", named > 0 ? ", " : "",
		                         rank);
		named++;
	}
	if (missing > named)
		snprintf(text + used, room - used, " and %u more", missing - named);
}

static void job_tick(struct jobs *jobs, struct job *job, uint64_t now_us)
{
	char missing[160] = "";

	if (job->state == JOB_RUNNING || now_us - job->since_us < jobs->config.join_us)
		return;
	list_missing(job, missing, sizeof(missing));
	if (job->state == JOB_FORMING)
		job_fail(jobs, job, job->world, "join_timeout",
		         "rank %s of %u did not join within %.0f s: start it, or check its "
		         "--job, --world and --aggregator",
		         missing, job->world, (double)jobs->config.join_us / 1e6);
	else
		job_fail(jobs, job, job->world, "udp_timeout",
		         "no UDP answer for rank %s within %.0f s: does a firewall drop UDP to "
		         "the aggregator's port?",
		         missing, (double)jobs->config.join_us / 1e6);
}

void jobs_tick(struct jobs *jobs, uint64_t now_us)
{
	jobs->now_us = now_us;
	for (uint32_t i = 0; i < jobs->places; i++)
		if (jobs->peers[i].used)
			peer_tick(jobs, &jobs->peers[i], now_us);
	for (uint32_t i = 0; i < jobs->config.jobs_max; i++)
		if (jobs->jobs[i].state != JOB_FREE)
			job_tick(jobs, &jobs->jobs[i], now_us);
}

void jobs_drain(struct jobs *jobs)
{
	jobs->draining = true;
}

void jobs_keys_set(struct jobs *jobs, const struct proof_keys *keys)
{
	jobs->config.keys = keys;
}

void jobs_end(struct jobs *jobs, const char *text)
{
	for (uint32_t i = 0; i < jobs->config.jobs_max; i++)
		if (jobs->jobs[i].state != JOB_FREE)
			job_fail(jobs, &jobs->jobs[i], jobs->jobs[i].world, "shutdown", "%s", text);
	for (uint32_t i = 0; i < jobs->places; i++)
		if (jobs->peers[i].used)
			peer_end(jobs, &jobs->peers[i]);
}
