// SPDX-License-Identifier: BSD-3-Clause
/* jobs.c - memory, connections and their lines, time, snapshots */

#include "aggregator/jobs/jobs.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/jobs/jobs_state.h"

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
	jobs->totals = (struct jobs_totals){.bytes_max = config->bytes_max, .keys_fresh = true};
	jobs->places = config->peers_max + 1;
	jobs->peers = calloc(jobs->places, sizeof(*jobs->peers));
	jobs->jobs = calloc(config->jobs_max, sizeof(*jobs->jobs));
	if (jobs->peers == NULL || jobs->jobs == NULL ||
	    crowd_open(&jobs->waiting, jobs->places) != 0 ||
	    crowd_open(&jobs->newcomers, jobs->places) != 0 ||
	    crowd_open(&jobs->unstarted, config->jobs_max) != 0) {
		jobs_close(jobs);
		return -ENOMEM;
	}
	TAILQ_INIT(&jobs->doorsteps);
	for (uint32_t i = jobs->places; i-- > 0;)
		LIST_INSERT_HEAD(&jobs->free, &jobs->peers[i], place);
	*out = jobs;
	return 0;
}

void jobs_close(struct jobs *jobs)
{
	if (jobs == NULL)
		return;
	crowd_close(&jobs->waiting);
	crowd_close(&jobs->newcomers);
	crowd_close(&jobs->unstarted);
	free(jobs->peers);
	free(jobs->jobs);
	free(jobs);
}

/* ---- connections ---- */

bool jobs_crowd_out(struct jobs *jobs)
{
	const uint32_t few = jobs->config.peers_max >= 16 ? jobs->config.peers_max / 8 : 1;
	const bool strangers = jobs->waiting.count > few || jobs->newcomers.count == 0;
	const struct crowd_heaviest heaviest =
		crowd_heaviest(strangers ? &jobs->waiting : &jobs->newcomers);

	if (heaviest.oldest == NULL)
		return false;
	peer_refuse(jobs, heaviest.oldest, "connections",
	            "%u connections are open here, the limit (connections-max); %u %s",
	            jobs->config.peers_max, heaviest.count,
	            strangers ? "of your host's have not joined a job"
	                      : "newcomers with your key wait for a job's members");
	return true;
}

char *jobs_turn_away(struct jobs *jobs)
{
	const struct control_message message = {
		.kind = CONTROL_FAILED,
		.code = "connections",
		.text = "your host connects too often: try again later",
	};

	jobs_count_refusal(jobs, message.code);
	return message_format(&message);
}

static void hello_send(struct jobs *jobs, struct jobs_peer *peer)
{
	/* MEMBERS.md 3: "Draining aggregators say so (drains) in pings and HELLO" */
	struct control_message hello = {
		.kind = CONTROL_HELLO, .version = WIRE_VERSION, .drains = jobs->totals.draining};

	snprintf(hello.software, sizeof(hello.software), "%s", jobs->config.software);
	peer_send(jobs, peer, &hello);
}

struct jobs_peer *jobs_connected(struct jobs *jobs, const struct net_addr *from,
                                 const struct net_ip *local, void *handle, uint64_t now_us)
{
	struct jobs_peer *peer = LIST_FIRST(&jobs->free);

	LIST_REMOVE(peer, place);
	*peer = (struct jobs_peer){.state = PEER_STRANGER,
	                           .local = *local,
	                           .owner = net_ip_owner(&from->ip),
	                           .handle = handle,
	                           .since_us = now_us,
	                           .heard_us = now_us,
	                           .pinged_us = now_us};
	LIST_INSERT_HEAD(&jobs->used, peer, place);
	net_format(from, peer->worker.address);
	jobs->totals.peers++;
	crowd_add(&jobs->waiting, peer->owner, peer);
	if (jobs->totals.peers > jobs->config.peers_max)
		jobs_crowd_out(jobs);
	if (peer->state == PEER_FREE)
		return NULL;
	if (jobs->config.keys == 0)
		hello_send(jobs, peer);
	return peer;
}

void jobs_awaits_key(struct jobs_peer *peer, uint64_t now_us)
{
	if (peer->state == PEER_STRANGER)
		peer->since_us = now_us;
}

void jobs_secured(struct jobs *jobs, struct jobs_peer *peer, const char *name, uint64_t owner)
{
	snprintf(peer->keyed_for, sizeof(peer->keyed_for), "%s", name);
	peer->owner = owner;
	hello_send(jobs, peer);
}

void jobs_refuse(struct jobs *jobs, struct jobs_peer *peer, const char *code, const char *text)
{
	if (peer->state != PEER_FREE && peer->job == NULL)
		peer_refuse(jobs, peer, code, "%s", text);
}

void *jobs_peer_handle(const struct jobs_peer *peer)
{
	return peer->handle;
}

uint64_t jobs_peer_owner(const struct jobs_peer *peer)
{
	return peer->owner;
}

/* ---- lines ---- */

/* 11.4: "The last one to leave ends the job. LEFT tells the others." */
static void peer_left(struct jobs *jobs, struct jobs_peer *peer)
{
	struct control_message message = {.kind = CONTROL_LEFT, .rank = peer->rank};
	struct job *job = peer->job;

	snprintf(message.text, sizeof(message.text), "rank %u (%s) has left the job", peer->rank,
	         peer->where);
	job->members[peer->rank] = NULL;
	if (job->sited) {
		peer->up.state = UP_NONE;
		jobs->ports.up_end(jobs->ports.up, peer, JOBS_UP_LEAVE, "", "");
	}
	peer_end(jobs, peer);
	if (members_count(job, PEER_READY) > 0) {
		if (!job->sited) /* else the parent tells all */
			job_tell(jobs, job, &message);
		return;
	}
	job_finished(jobs, job, NULL);
	job_release(jobs, job);
}

void jobs_gone(struct jobs *jobs, struct jobs_peer *peer, const char *reason)
{
	if (peer->state != PEER_FREE)
		peer_lost(jobs, peer, reason, false);
	members_settle(jobs);
}

static void abort_take(struct jobs *jobs, struct jobs_peer *peer,
                       const struct control_message *message)
{
	struct job *job = peer->job;
	const char *code = "aborted";

	if (job->state == JOB_ENDING && strcmp(message->code, "aborted") != 0)
		return; /* it passes on a loss that we know */
	if (!job_has_next(job) || job->state == JOB_ENDING ||
	    (job->state == JOB_FORMING && strcmp(message->code, "aborted") == 0)) {
		peer_lost(jobs, peer, "it gave up", false);
		return;
	}
	if (strcmp(message->code, "moved") == 0 && job->state == JOB_RUNNING) {
		job_fail(jobs, job, peer->rank, "moved",
		         "rank %u (%s) has ended the membership: %s", peer->rank, peer->where,
		         message->text);
		return;
	}
	if (peer->via != 0) { /* a site has found the reason, and says whose it is */
		peer->gone = strcmp(message->code, "lost") == 0;
		job_fail(jobs, job, peer->rank, message->code, "%s", message->text);
		return;
	}
	/* Losses and channels' failures that a worker passes on keep their code. */
	if (strcmp(message->code, "lost") == 0 || strcmp(message->code, "gone") == 0 ||
	    strcmp(message->code, "stalled") == 0 || strcmp(message->code, "mismatch") == 0)
		code = message->code;
	job_fail(jobs, job, peer->rank, code, "rank %u (%s) aborted the job: %s", peer->rank,
	         peer->where, message->text);
}

/* A worker's first report has nothing to be compared with. */
static void seen_take(struct jobs_peer *peer, const struct control_seen *seen, uint64_t now_us)
{
	if (seen->frames == 0)
		return;
	if (peer->worker.seen.frames > 0) {
		peer->worker.seen_before = peer->worker.seen;
		peer->worker.seen_over_us = now_us - peer->does.seen_us;
	}
	peer->worker.seen = *seen;
	peer->does.seen_us = now_us;
}

/* A line from a peer that is not a member of a job, or waits at a door. */
static void stranger_says(struct jobs *jobs, struct jobs_peer *peer,
                          const struct control_message *message)
{
	if (peer->state == PEER_AT_DOOR) {
		if (message->kind == CONTROL_ABORT || message->kind == CONTROL_LEAVE)
			peer_end(jobs, peer);
		else if (message->kind == CONTROL_STAY && !peer->stays)
			stay_take(jobs, peer, message);
		else if (message->kind != CONTROL_PING)
			jobs_garbage(jobs, peer, "out of turn: the members have not admitted you");
	} else if (message->kind == CONTROL_JOIN) {
		join_take(jobs, peer, message, jobs->now_us);
	} else if (message->kind != CONTROL_PING) { /* workers without a key begin with PING */
		jobs_garbage(jobs, peer, "the first message is 'join'");
	}
}

static void member_says(struct jobs *jobs, struct jobs_peer *peer,
                        const struct control_message *message)
{
	switch (message->kind) {
	case CONTROL_JOIN:
		join_take(jobs, peer, message, jobs->now_us);
		break;
	case CONTROL_READY:
		ready_take(jobs, peer, message);
		break;
	case CONTROL_PING:
		if (message->open != peer->does.open || message->tag != peer->does.tag)
			peer->does.same_us = jobs->now_us;
		peer->does.open = message->open;
		peer->does.tag = message->tag;
		seen_take(peer, &message->seen, jobs->now_us);
		memcpy(peer->worker.says, message->says, sizeof(peer->worker.says));
		break;
	case CONTROL_LEAVE:
		if (peer->job->state == JOB_RUNNING)
			peer_left(jobs, peer);
		else
			peer_lost(jobs, peer, "it left before the job began", true);
		break;
	case CONTROL_ABORT:
		abort_take(jobs, peer, message);
		break;
	case CONTROL_PATH:
		path_take(jobs, peer, message);
		break;
	case CONTROL_STAY:
		if (peer->job->sited)
			job_fail(jobs, peer->job, peer->rank, "aborted",
			         "rank %u (%s) wants another membership, which a site (--parent) "
			         "does not have",
			         peer->rank, peer->where);
		else
			stay_take(jobs, peer, message);
		break;
	default:
		jobs_garbage(jobs, peer, "only aggregators send it, or it came out of turn");
	}
}

/* Tells whether it talks more than any worker needs to. */
static bool says_too_much(struct jobs_peer *peer, uint64_t now_us)
{
	const uint64_t passed_us = now_us - peer->talk.at_us;

	peer->talk.left_us -= passed_us < peer->talk.left_us ? passed_us : peer->talk.left_us;
	peer->talk.left_us += JOBS_LINE_US;
	peer->talk.at_us = now_us;
	return peer->talk.left_us > JOBS_LINES_US;
}

static void line_take(struct jobs *jobs, struct jobs_peer *peer, const char *line)
{
	static const char stranger[] = "this port speaks Winnow's protocol, one JSON object a line";
	struct control_message message;
	struct why why;

	if (says_too_much(peer, jobs->now_us)) {
		jobs_garbage(jobs, peer, "more lines than a worker needs to send");
		return;
	}
	peer->heard_us = jobs->now_us;
	if (message_parse(line, &message, &why) != 0)
		jobs_garbage(jobs, peer,
		             message.kind != 0 || peer->job != NULL ? why.text : stranger);
	else if (peer->job == NULL)
		stranger_says(jobs, peer, &message);
	else if (peer->job->state != JOB_ENDING || message.kind == CONTROL_STAY ||
	         message.kind == CONTROL_LEAVE || message.kind == CONTROL_ABORT)
		member_says(jobs, peer, &message); /* else it was sent before the end was known */
}

void jobs_line(struct jobs *jobs, struct jobs_peer *peer, const char *line, uint64_t now_us)
{
	jobs->now_us = now_us;
	if (peer->state != PEER_FREE)
		line_take(jobs, peer, line);
	members_settle(jobs);
}

/* ---- time ---- */

/* MEMBERS.md 3: "members are awaited for the stall time" */
static bool is_overdue(const struct jobs_peer *peer, uint64_t now_us)
{
	const struct job *job = peer->job;

	return job != NULL && job->state == JOB_ENDING && !peer->stays &&
	       now_us - job->since_us >= job->shape.stall_us;
}

static void peer_tick(struct jobs *jobs, struct jobs_peer *peer, uint64_t now_us)
{
	struct control_message ping = {.kind = CONTROL_PING};
	char reason[64];
	uint64_t silence_us = peer->asks.silence_us;

	if (peer->state == PEER_STRANGER) {
		if (now_us - peer->since_us >= jobs->config.hello_us)
			peer_refuse(jobs, peer, "timeout", "no JOIN within %.1f s",
			            (double)jobs->config.hello_us / 1e6);
		return;
	}
	/* 5.1: "which hold from then on, before that each worker's own" */
	if (peer->job != NULL && peer->job->state != JOB_FORMING)
		silence_us = peer->job->silence_us;
	peer->heard_us = control_heard_us(peer->heard_us, silence_us, jobs->ticked_us, now_us);
	if (now_us - peer->pinged_us >= silence_us / 4) {
		peer->pinged_us = now_us;
		if (peer->job != NULL) {
			ping = door_ping(jobs, peer->job);
			if (peer->job->sited)
				jobs->ports.up_late(jobs->ports.up, peer, ping.text);
			else
				late_text(jobs, peer, ping.text);
		}
		peer_send(jobs, peer, &ping);
	}
	/* 11.2: "that carries no line for the silence time, ends the job" */
	snprintf(reason, sizeof(reason), "silent for %.1f s", (double)silence_us / 1e6);
	if (now_us - peer->heard_us >= silence_us || is_overdue(peer, now_us))
		peer_lost(jobs, peer, reason, true);
}

static void job_tick(struct jobs *jobs, struct job *job, uint64_t now_us)
{
	const enum peer_state awaited = job->state == JOB_FORMING ? PEER_JOINED : PEER_READY;
	char missing[160] = "";
	uint64_t limit_us = jobs->config.join_us, soon_us;

	if (job->state == JOB_ENDING)
		return; /* members_tick() does it */
	/* The parent knows better who is missing, but for the datagrams of those who are here. */
	if (job->sited && (job->state != JOB_PROBING ||
	                   members_count(job, PEER_READY) == members_count(job, PEER_JOINED)))
		return;
	/*
	 * MEMBERS.md 3: "so do missing JOINs after the silence time, READYs after twice that". All
	 * members are alive, and may first have to find out that another aggregator is silent.
	 */
	soon_us = job->state == JOB_PROBING ? 2 * job->silence_us : job->silence_us;
	if (message_name_is_next(job->name) && soon_us < limit_us)
		limit_us = soon_us;
	if (job->state == JOB_RUNNING || now_us - job->since_us < limit_us)
		return;
	missing_text(job, missing, sizeof(missing));
	for (uint32_t rank = 0; rank < job->world; rank++)
		if (job->members[rank] != NULL)
			job->members[rank]->gone = job->members[rank]->state < awaited;
	if (job->state == JOB_FORMING)
		job_fail(jobs, job, job->world, "join_timeout",
		         "rank %s of %u did not join within %.0f s: start it, or check its "
		         "--job, --world and --aggregators",
		         missing, job->world, (double)limit_us / 1e6);
	else
		job_fail(jobs, job, job->world, "udp_timeout",
		         "no UDP answer for rank %s within %.0f s: does a firewall drop UDP to "
		         "the aggregator's port?",
		         missing, (double)limit_us / 1e6);
}

void jobs_tick(struct jobs *jobs, uint64_t now_us)
{
	struct jobs_peer *peer;

	assert(jobs->totals.peers < jobs->places && jobs->totals.bytes <= jobs->config.bytes_max);
	jobs->now_us = now_us;
	for (jobs->next = LIST_FIRST(&jobs->used); (peer = jobs->next) != NULL;) {
		jobs->next = LIST_NEXT(peer, place);
		peer_tick(jobs, peer, now_us);
	}
	for (uint32_t i = 0; i < jobs->config.jobs_max; i++)
		if (jobs->jobs[i].state != JOB_FREE)
			job_tick(jobs, &jobs->jobs[i], now_us);
	members_tick(jobs);
	jobs->ticked_us = now_us;
}

void jobs_drain(struct jobs *jobs)
{
	jobs->totals.draining = true;
	for (uint32_t i = 0; i < jobs->config.jobs_max; i++)
		if (jobs->jobs[i].state == JOB_RUNNING)
			door_tell(jobs, &jobs->jobs[i]);
}

void jobs_keys_set(struct jobs *jobs, uint32_t keys, bool fresh)
{
	jobs->config.keys = keys;
	jobs->totals.keys_fresh = fresh;
}

void jobs_end(struct jobs *jobs, const char *text)
{
	for (uint32_t i = 0; i < jobs->config.jobs_max; i++)
		if (jobs->jobs[i].state != JOB_FREE)
			job_fail(jobs, &jobs->jobs[i], jobs->jobs[i].world, "shutdown", "%s", text);
	while (!LIST_EMPTY(&jobs->used))
		peer_end(jobs, LIST_FIRST(&jobs->used));
}

/* ---- status and metrics ---- */

void jobs_totals(const struct jobs *jobs, struct jobs_totals *out)
{
	*out = jobs->totals;
	for (uint32_t i = 0; i < jobs->config.jobs_max; i++)
		out->jobs += jobs->jobs[i].state != JOB_FREE;
}

bool jobs_view(const struct jobs *jobs, uint32_t index, struct jobs_view *out)
{
	const struct job *job;

	if (index >= jobs->config.jobs_max || jobs->jobs[index].state == JOB_FREE)
		return false;
	job = &jobs->jobs[index];
	*out = (struct jobs_view){.state = job->state,
	                          .world = job->world,
	                          .joined = members_count(job, PEER_JOINED),
	                          .payload = job->shape.payload,
	                          .window = job->shape.window,
	                          .fast = job->fast.all,
	                          .bytes = job->bytes,
	                          .channel_count = job->channel_count,
	                          .group_token = job->shape.group_token,
	                          .state_us = jobs->now_us - job->since_us,
	                          .silence_us = job->silence_us,
	                          .stall_us = job->shape.stall_us,
	                          .newcomers = door_count(jobs, job)};
	memcpy(out->name, job->name, sizeof(out->name));
	for (uint32_t i = 0; i < job->channel_count; i++)
		out->channel_ids[i] = job_channel_id(jobs, job, i);
	if (job_troubled(jobs, job))
		memcpy(out->trouble, job->trouble.text, sizeof(out->trouble));
	for (uint32_t rank = 0; rank < job->world; rank++)
		out->multicast |= job->members[rank] != NULL && job->wire.multicast[rank];
	return true;
}

void jobs_worker(const struct jobs *jobs, uint32_t index, uint32_t rank, struct jobs_worker *out)
{
	const struct job *job = &jobs->jobs[index];
	const struct jobs_peer *peer = job->members[rank];
	static const char *const states[] = {
		[PEER_NAMED] = "missing", [PEER_JOINED] = "joined", [PEER_READY] = "ready"};

	*out = (struct jobs_worker){.state = job->state >= JOB_RUNNING ? "left" : "missing"};
	if (peer == NULL && job->sited &&
	    (job->state == JOB_FORMING || job->wire.speakers[rank] == WIRE_EVERYONE))
		out->state = "elsewhere";
	if (peer == NULL)
		return;
	*out = peer->worker;
	out->state = states[peer->state];
	out->multicast = job->wire.multicast[rank];
	out->silent_us = jobs->now_us - peer->heard_us;
	if (job->state == JOB_ENDING)
		out->state = peer->stays ? "stays" : "awaited";
}

bool jobs_last_failure(const struct jobs *jobs, struct jobs_failure *out)
{
	if (jobs->failure.code[0] == '\0')
		return false;
	*out = jobs->failure;
	out->age_us = jobs->now_us - jobs->failed_us;
	return true;
}

struct jobs_copy *jobs_copy(const struct jobs *jobs)
{
	struct jobs_totals totals;
	struct jobs_worker *workers;
	struct jobs_copy *copy;
	size_t bytes, world = 0;

	jobs_totals(jobs, &totals);
	for (uint32_t i = 0; i < jobs->config.jobs_max; i++)
		world += jobs->jobs[i].state != JOB_FREE ? jobs->jobs[i].world : 0;
	bytes = sizeof(*copy) + totals.jobs * sizeof(copy->jobs[0]);
	copy = malloc(bytes + world * sizeof(*workers));
	if (copy == NULL)
		return NULL;
	workers = (struct jobs_worker *)(void *)((uint8_t *)copy + bytes);
	copy->totals = totals;
	copy->failed = jobs_last_failure(jobs, &copy->failure);
	copy->job_count = 0;
	for (uint32_t i = 0; i < jobs->config.jobs_max; i++) {
		struct jobs_copied *job = &copy->jobs[copy->job_count];

		if (jobs->jobs[i].state == JOB_FREE)
			continue;
		(void)jobs_view(jobs, i, &job->view);
		job->workers = workers;
		for (uint32_t rank = 0; rank < job->view.world; rank++)
			jobs_worker(jobs, i, rank, workers++);
		copy->job_count++;
	}
	return copy;
}
