// SPDX-License-Identifier: BSD-3-Clause
/*
 * jobs_blame.c - finds the cause when a job makes no progress: a worker that does not call, or lost
 * datagrams
 *
 * It compares what a worker says about itself with what has been heard from it (PROTOCOL.md,
 * sections 5.3, 11.3 and 11.5). It also describes for people what the data plane sees of a bad path.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/jobs/jobs_state.h"

/* ---- lost datagrams ---- */

/*
 * A worker's datagrams get no answers, and it cannot know in which direction they are lost. We
 * know whether they arrive, because the channel knows when the worker's KNOCKs last came.
 */
void path_take(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *message)
{
	struct job *job = peer->job;
	uint64_t patience_us = control_path_us(job->silence_us, job->shape.stall_us);
	struct jobs_heard heard;
	uint32_t index = 0;
	bool arrive;

	while (index < job->channel_count && job_channel_id(jobs, job, index) != message->channel)
		index++;
	if (job->state != JOB_RUNNING || index == job->channel_count) {
		jobs_garbage(jobs, peer,
		             "path: it came out of turn, or names another job's channel");
		return;
	}
	peer->gone = true;
	jobs->ports.heard(jobs->ports.data, job_channel_id(jobs, job, index), peer->rank, &heard);
	arrive = (message->passing > 0 ? heard.whole_us : heard.any_us) < patience_us / 2;
	if (message->passing > 0)
		job_fail(jobs, job, peer->rank, "path",
		         "datagrams of %u bytes %s rank %u (%s) no longer pass, %u do: the path's "
		         "MTU has shrunk",
		         message->payload, arrive ? "to" : "from", peer->rank, peer->where,
		         message->passing);
	else if (arrive)
		job_fail(jobs, job, peer->rank, "path",
		         "the datagrams of rank %u (%s) arrive, but ours do not reach it (%u in "
		         "%.1f s): is UDP to it blocked?",
		         peer->rank, peer->where, message->sent, (double)patience_us / 1e6);
	else
		job_fail(jobs, job, peer->rank, "path",
		         "rank %u (%s) sends datagrams that do not arrive (%u in %.1f s): is UDP "
		         "from it blocked?",
		         peer->rank, peer->where, message->sent, (double)patience_us / 1e6);
}

/* ---- operations that wait ---- */

#define OP_BYTES 32

/*
 * People call an operation by its tag or, without a tag, by its number in order (PROTOCOL.md,
 * section 6.3).
 */
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

/*
 * Describes, by its heartbeats, what a worker does instead. It may have called the operation that the
 * others wait for, but after so many others that it has no slot for it. Then they all wait for each
 * other (PROTOCOL.md, section 6.3).
 */
static void doing_text(const struct jobs *jobs, const struct jobs_peer *peer, char *text,
                       size_t room)
{
	const uint32_t slots = jobs->config.op_slots;
	char op[OP_BYTES], full[96] = "";

	if (peer->does.open > slots)
		snprintf(full, sizeof(full),
		         ", %u at a time: do workers call them in different orders?", slots);
	if (peer->does.open == 0)
		snprintf(text, room, "it is alive, in no operation");
	else
		snprintf(text, room, "it is alive, in %s (%u under way%s)",
		         op_text(peer->does.tag, op), peer->does.open, full);
}

void jobs_stalled(struct jobs *jobs, uint16_t channel_id, const struct channel_stall *stall)
{
	struct job *job = job_with(jobs, channel_id);
	const struct jobs_peer *peer;
	char op[OP_BYTES], who[128], doing[192] = "it has left the job";
	uint32_t rank;
	double waited_s = (double)stall->waited_us / 1e6;

	if (job == NULL || stall->rank >= job->world)
		return;
	rank = stall->streaming ? stall->rank : site_culprit(job, stall->rank, stall->tag);
	peer = job->members[rank];
	snprintf(who, sizeof(who), "rank %u", rank);
	if (peer != NULL) {
		text_add(who, sizeof(who), " (%s)", peer->where);
		doing_text(jobs, peer, doing, sizeof(doing));
	}
	if (stall->missing > 1)
		text_add(who, sizeof(who), " and %u more", stall->missing - 1u);
	op_text(stall->tag, op);
	if (stall->streaming)
		job_fail(jobs, job, rank, "stalled", "%s has waited %.1f s for data of %s: %s", op,
		         waited_s, who, doing);
	else
		job_fail(jobs, job, rank, "stalled", "%s %s not called %s for %.1f s: %s", who,
		         stall->missing > 1 ? "have" : "has", op, waited_s, doing);
}

/* ---- late workers ---- */

/* Workers report every quarter of the silence time, so less than two reports are no evidence. */
static uint64_t late_us(const struct job *job)
{
	return job->silence_us / 2 > JOBS_LATE_US ? job->silence_us / 2 : JOBS_LATE_US;
}

static bool peer_waits(const struct jobs *jobs, const struct jobs_peer *peer)
{
	return peer != NULL && peer->does.open > 0 &&
	       jobs->now_us - peer->does.same_us >= late_us(peer->job);
}

/* Tells whether it has long been in no operation, or is frozen in one. */
static bool peer_idles(const struct jobs *jobs, const struct jobs_peer *peer)
{
	uint64_t since_us;

	if (peer == NULL)
		return false;
	since_us = peer->does.open == 0 && peer->does.same_us < peer->heard_us ? peer->does.same_us
	                                                                       : peer->heard_us;
	return jobs->now_us - since_us >= late_us(peer->job);
}

void missing_text(const struct job *job, char *text, size_t room)
{
	uint32_t missing = 0, named = 0;

	for (uint32_t rank = 0; rank < job->world; rank++) {
		const struct jobs_peer *peer = job->members[rank];

		if (peer == NULL && job->sited)
			continue; /* it may be another site's */
		if (peer != NULL &&
		    peer->state >= (job->state == JOB_FORMING ? PEER_JOINED : PEER_READY))
			continue;
		missing++;
		if (named == 8)
			continue;
		text_add(text, room, "%s%u", named > 0 ? ", " : "", rank);
		named++;
	}
	if (missing > named)
		text_add(text, room, " and %u more", missing - named);
}

/* Describes what a job waits for before START. */
static void start_text(const struct job *job, char text[CONTROL_TEXT_BYTES])
{
	char missing[160] = "";

	missing_text(job, missing, sizeof(missing));
	if (job->state == JOB_FORMING && *missing != '\0')
		snprintf(text, CONTROL_TEXT_BYTES, "waiting for rank %s of %u to join", missing,
		         job->world);
	else if (job->state == JOB_PROBING && *missing != '\0')
		snprintf(text, CONTROL_TEXT_BYTES, "waiting for the datagrams of rank %s of %u",
		         missing, job->world);
}

void late_text(const struct jobs *jobs, const struct jobs_peer *peer, char text[CONTROL_TEXT_BYTES])
{
	const struct jobs_peer *first = NULL;
	const struct job *job = peer->job;
	uint32_t late = 0, rank = 0;
	uint64_t since_us;
	char op[OP_BYTES], more[32] = "";

	text[0] = '\0';
	start_text(job, text);
	if (job->state != JOB_RUNNING || !peer_waits(jobs, peer))
		return;
	while (!peer_waits(jobs, job->members[rank]) || peer_idles(jobs, job->members[rank]))
		if (++rank == job->world)
			return;
	if (rank != peer->rank)
		return;
	for (rank = 0; rank < job->world; rank++) {
		if (!peer_idles(jobs, job->members[rank]))
			continue;
		first = first != NULL ? first : job->members[rank];
		late++;
	}
	if (first == NULL)
		return;
	since_us = first->does.open == 0 ? first->does.same_us : first->heard_us;
	if (late > 1)
		snprintf(more, sizeof(more), " and %u more", late - 1);
	snprintf(text, CONTROL_TEXT_BYTES, "waiting in %s for rank %u (%s)%s: %s for %.0f s",
	         op_text(peer->does.tag, op), first->rank, first->where, more,
	         first->does.open == 0 ? "in no operation" : "silent",
	         (double)(jobs->now_us - since_us) / 1e6);
}

/* ---- paths with problems ---- */

#define NAME_BYTES (JOBS_WHERE_BYTES + NET_TEXT_BYTES + 64)
#define ADVICE_BYTES 112
#define MERGED_US 2000000 /* A standstill or heavy loss ends the job after this time. */
#define MERGED_SHARE 8    /* Loss is heavy if it is an eighth of all datagrams. */
#define FRESH_US 5000000  /* An older report is out of date. */

/* Tells whether this trouble ends the job. */
static bool trouble_is_fatal(const struct job *job, const struct jobs_trouble *trouble)
{
	const int error = trouble->error;

	/* A size or a rule stays until somebody changes it, but a dead network may come back. */
	if (trouble->kind == JOBS_UNSENT)
		return error == EMSGSIZE || error == EPERM || error == EACCES ||
		       trouble->for_us >= job->silence_us;
	/* If no other datagrams pass, workers push more and more rarely, but ask as often as before. */
	return trouble->kind == JOBS_MERGED && trouble->for_us >= MERGED_US &&
	       (trouble->count * MERGED_SHARE >= trouble->of || trouble->stands_us >= MERGED_US);
}

static void trouble_advice(const struct job *job, int error, char out[ADVICE_BYTES])
{
	if (error == EMSGSIZE)
		snprintf(out, ADVICE_BYTES,
		         "its interface's MTU is now smaller than the %u that the job began with: "
		         "raise it, or join again",
		         job->shape.payload + net_headers(&job->wire.group_from));
	else if (error == EPERM || error == EACCES)
		snprintf(out, ADVICE_BYTES, "does a firewall on its host drop outgoing UDP?");
	else
		snprintf(out, ADVICE_BYTES, "is its address, or the route, gone?");
}

/* Names a worker by rank, host and address, or names the group. */
static void trouble_whom(const struct job *job, const struct jobs_trouble *trouble,
                         char out[NAME_BYTES])
{
	char group[NET_TEXT_BYTES];

	if (trouble->rank == WIRE_EVERYONE)
		snprintf(out, NAME_BYTES, "the multicast group %s",
		         net_ip_format(&job->wire.group, group));
	else
		snprintf(out, NAME_BYTES, "rank %u (%s, %s)", trouble->rank,
		         job->members[trouble->rank]->where,
		         job->members[trouble->rank]->worker.address);
	if (trouble->more > 0)
		text_add(out, NAME_BYTES, " and %u more", trouble->more);
}

static void trouble_text(const struct job *job, const struct jobs_trouble *trouble,
                         char out[CONTROL_TEXT_BYTES])
{
	unsigned long long count = trouble->count, of = trouble->of;
	double for_s = (double)trouble->for_us / 1e6;
	char whom[NAME_BYTES] = "", advice[ADVICE_BYTES];

	if (trouble->kind != JOBS_SLOW)
		trouble_whom(job, trouble, whom);
	trouble_advice(job, trouble->error, advice);
	if (trouble->kind == JOBS_UNSENT)
		snprintf(out, CONTROL_TEXT_BYTES,
		         "the aggregator cannot send to %.120s: %s (%llu datagrams in %.1f s): %s",
		         whom, strerror(trouble->error), count, for_s, advice);
	else if (trouble->kind == JOBS_MERGED)
		snprintf(out, CONTROL_TEXT_BYTES,
		         "datagrams of %.120s arrive merged and are lost (%llu in %.1f s), because "
		         "no network card splits them: on its host run ethtool -K IFACE "
		         "tx-udp-segmentation off",
		         whom, count, for_s);
	else
		snprintf(out, CONTROL_TEXT_BYTES,
		         "the kernel has added %llu of %llu PUSHes: the others arrive merged "
		         "(on the workers' hosts run ethtool -K IFACE tx-udp-segmentation "
		         "off), or not through the aggregator's --device",
		         count, of);
}

bool job_troubled(const struct jobs *jobs, const struct job *job)
{
	return job->trouble.text[0] != '\0' && jobs->now_us - job->trouble.at_us < FRESH_US;
}

void jobs_trouble(struct jobs *jobs, uint16_t channel_id, const struct jobs_trouble *trouble)
{
	struct job *job = job_with(jobs, channel_id);
	char text[CONTROL_TEXT_BYTES];
	bool known;

	if (job == NULL)
		return;
	if (trouble->rank != WIRE_EVERYONE && job->members[trouble->rank] == NULL)
		return; /* it has left and needs nothing */
	trouble_text(job, trouble, text);
	if (trouble_is_fatal(job, trouble)) {
		if (trouble->rank < job->world)
			job->members[trouble->rank]->gone = true;
		job_fail(jobs, job, trouble->rank < job->world ? trouble->rank : job->world, "path",
		         "%s", text);
		return;
	}
	known = job_troubled(jobs, job);
	memcpy(job->trouble.text, text, sizeof(job->trouble.text));
	job->trouble.at_us = jobs->now_us;
	if (!known)
		jobs_log(jobs, "warn", "trouble", LOG_FIELDS(LOG_WORD("job", job->name)), text);
}
