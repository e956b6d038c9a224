// SPDX-License-Identifier: BSD-3-Clause
/*
 * jobs_blame.c - a job gets no further: who is it that does not call, or which way do datagrams get lost?
 *
 * What a worker says of itself is held against what has been heard of it. PROTOCOL.md sections 5.3,
 * 11.3 and 11.5.
 */

#include <stdio.h>

#include "aggregator/jobs/jobs_impl.h"

/* ---- datagrams that get lost ---- */

/*
 * A worker's datagrams are not answered. Which way they get lost it cannot know, but we know whether
 * they came: it has knocked until just now.
 */
void path_take(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *message)
{
	struct job *job = peer->job;
	uint64_t patience_us = control_path_us(job->silence_us, job->stall_us);
	struct jobs_heard heard;
	uint32_t index = 0;
	bool arrive;

	while (index < job->channel_count && job->channel_ids[index] != message->channel)
		index++;
	if (job->state != JOB_RUNNING || index == job->channel_count) {
		jobs_garbage(jobs, peer, "path: not now, or not one of your channels");
		return;
	}
	jobs->ports.heard(jobs->ports.context, message->channel, peer->rank, &heard);
	arrive = (message->passing > 0 ? heard.whole_us : heard.any_us) < patience_us / 2;
	if (message->passing > 0)
		job_fail(jobs, job, peer->rank, "path",
		         "datagrams of %u bytes %s rank %u (%s) no longer pass, %u do: the path's "
		         "MTU has shrunk",
		         message->payload, arrive ? "to" : "from", peer->rank, peer->host,
		         message->passing);
	else if (arrive)
		job_fail(jobs, job, peer->rank, "path",
		         "the datagrams of rank %u (%s) arrive, but ours do not reach it (%u in "
		         "%.1f s): is UDP to it blocked?",
		         peer->rank, peer->host, message->sent, (double)patience_us / 1e6);
	else
		job_fail(jobs, job, peer->rank, "path",
		         "rank %u (%s) sends datagrams that do not arrive (%u in %.1f s): is UDP "
		         "from it blocked?",
		         peer->rank, peer->host, message->sent, (double)patience_us / 1e6);
}

/*
 * A worker gets no answers, and its address may be another now: it wants to knock from there. Who
 * can only read or forge datagrams does not learn the number.
 */
void move_take(struct jobs *jobs, struct jobs_peer *peer)
{
	struct control_message answer = {.kind = CONTROL_MOVE};
	struct job *job = peer->job;

	if (job->state != JOB_RUNNING) {
		jobs_garbage(jobs, peer, "move: the job has not started");
		return;
	}
	while (answer.number == 0)
		jobs->ports.random(jobs->ports.context, &answer.number, sizeof(answer.number));
	for (uint32_t i = 0; i < job->channel_count; i++)
		jobs->ports.move(jobs->ports.context, job->channel_ids[i], peer->rank,
		                 answer.number);
	peer_send(jobs, peer, &answer);
}

/* ---- operations that wait ---- */

#define OP_BYTES 32

/* What people call an operation: its tag, or, where they gave none, which one it was (PROTOCOL.md section 6.3). */
static const char *op_text(uint64_t tag, char text[OP_BYTES])
{
	const uint64_t untagged = UINT64_C(1) << 63, parts = untagged + (UINT64_C(1) << 62);

	if (tag >= untagged && tag < parts)
		snprintf(text, OP_BYTES, "operation #%llu",
		         (unsigned long long)(tag - untagged + 1));
	else
		snprintf(text, OP_BYTES, "operation %#llx", (unsigned long long)tag);
	return text;
}

/* What a worker does instead of what it is awaited for, by its heartbeats. */
static void doing_text(const struct jobs_peer *peer, char *text, size_t room)
{
	char op[OP_BYTES];

	if (peer->open == 0)
		snprintf(text, room, "it is alive, in no operation");
	else
		snprintf(text, room, "it is alive, in %s (%u under way)", op_text(peer->tag, op),
		         peer->open);
}

static void job_stalled(struct jobs *jobs, struct job *job, const struct channel_stall *stall)
{
	const struct jobs_peer *peer = job->members[stall->rank];
	char op[OP_BYTES], who[128], doing[96] = "it has left the job";
	double waited_s = (double)stall->waited_us / 1e6;
	int used;

	used = snprintf(who, sizeof(who), "rank %u", stall->rank);
	if (peer != NULL) {
		used += snprintf(who + used, sizeof(who) - (size_t)used, " (%s)", peer->host);
		doing_text(peer, doing, sizeof(doing));
	}
	if (stall->missing > 1)
		snprintf(who + used, sizeof(who) - (size_t)used, " and %u more",
		         stall->missing - 1u);
	op_text(stall->tag, op);
	if (stall->streaming)
		job_fail(jobs, job, stall->rank, "stalled",
		         "%s has waited %.1f s for data of %s: %s", op, waited_s, who, doing);
	else
		job_fail(jobs, job, stall->rank, "stalled", "%s %s not called %s for %.1f s: %s",
		         who, stall->missing > 1 ? "have" : "has", op, waited_s, doing);
}

void jobs_stalled(struct jobs *jobs, uint16_t channel_id, const struct channel_stall *stall)
{
	struct job *job = job_with(jobs, channel_id);

	if (job != NULL && stall->rank < job->world)
		job_stalled(jobs, job, stall);
}
