// SPDX-License-Identifier: BSD-3-Clause
/*
 * jobs_end.c - how jobs fail, and how those who are left continue
 *
 * After a loss the members' connections stay. Each that wants to continue says so; when all have, and
 * who died has shown that it did, they are told of the membership that succeeds this one. PROTOCOL.md
 * section 5.8 has the rule, and why a membership never has two successors.
 */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/jobs/jobs_state.h"

/* ---- which membership succeeds which ---- */

/* What stands for a job: its name, if no other one ever has it, else the token of this run of it. */
static uint64_t job_mark(const struct job *job)
{
	if (message_name_follows(job->name))
		return message_name_hash(job->name);
	return job->token;
}

/* Of the membership of this job that `of` stands for: another job's workers have no say in it. */
static const struct jobs_succession *succession_find(const struct jobs *jobs, const char *name,
                                                     uint64_t of)
{
	for (uint32_t i = 0; i < jobs->remembered.count && of != 0; i++)
		if (jobs->successions[i].of == of && names_kin(jobs->successions[i].to, name))
			return &jobs->successions[i];
	return NULL;
}

/* When there are too many, the owner that has most forgets its oldest: nobody's memberships push out another's. */
static void succession_note(struct jobs *jobs, const struct job *job, uint64_t of, const char *to,
                            bool ours)
{
	struct jobs_succession *place = &jobs->successions[jobs->remembered.count];

	if (jobs->remembered.count == JOBS_SUCCESSIONS) {
		place = crowd_heaviest(&jobs->remembered).oldest;
		crowd_remove(&jobs->remembered, place);
	}
	crowd_add(&jobs->remembered, job->owner, place);
	*place = (struct jobs_succession){.of = of, .ours = ours};
	snprintf(place->to, sizeof(place->to), "%s", to);
}

bool job_named_here(const struct jobs *jobs, const struct job *job)
{
	for (uint32_t i = 0; i < jobs->remembered.count; i++)
		if (jobs->successions[i].ours && strcmp(jobs->successions[i].to, job->name) == 0)
			return true;
	return false;
}

/* Is any other membership here of the job of which `name` is one? */
static bool membership_lives(const struct jobs *jobs, const char *name)
{
	for (uint32_t i = 0; i < jobs->config.jobs_max; i++)
		if (jobs->jobs[i].state != JOB_FREE && names_kin(jobs->jobs[i].name, name) &&
		    strcmp(jobs->jobs[i].name, name) != 0)
			return true;
	return false;
}

const char *succession_forbids(const struct jobs *jobs, const char *name, uint64_t after)
{
	bool again = message_name_is(name, CONTROL_AGAIN_NAME);
	const struct jobs_succession *known;

	if (message_name_is(name, CONTROL_FIRST_NAME) && membership_lives(jobs, name))
		return "the job is here, and newcomers wait until its members admit them";
	if (!message_name_follows(name))
		return NULL;
	if (succession_find(jobs, name, message_name_hash(name)) != NULL)
		return "it is over, and its members have gone on in another one";
	known = succession_find(jobs, name, after);
	if (known != NULL && strcmp(known->to, name) != 0)
		return "others of your last one have gone on in another one";
	if (again && membership_lives(jobs, name))
		return "it is for when all aggregators have been restarted, but the job is here";
	return NULL;
}

void succession_take(struct jobs *jobs, const struct job *job, uint64_t after)
{
	if (!message_name_follows(job->name) || after == 0)
		return;
	if (succession_find(jobs, job->name, after) == NULL)
		succession_note(jobs, job, after, job->name, false);
	for (uint32_t i = 0; i < JOBS_FAILED; i++) {
		if (jobs->failed[i].of != after || !names_kin(jobs->failed[i].to, job->name))
			continue;
		jobs->failed[i].of = 0;
		jobs->totals.jobs_continued++;
	}
}

/* ---- who continues ---- */

struct roll {
	uint32_t here,
		stay;  /* members that are connected, and those of them that want to continue */
	uint32_t most; /* newcomers that all of these admit */
	uint64_t without, agreed;
	bool fewer, agree; /* on the same */
	struct majority {
		uint32_t of, voices; /* workers of whom it must stay, and those of them that do */
	} accepted, named;
	bool first;  /* among these the one with rank 0 */
	bool before; /* those who stay: is any no newcomer? */
};

/* Of the largest membership that anybody names. */
static void voice_count(struct majority *majority, uint32_t of)
{
	if (of > majority->of)
		*majority = (struct majority){.of = of};
	majority->voices += of > 0 && of == majority->of;
}

static bool majority_stays(const struct majority *majority, bool first)
{
	const uint64_t voices = 2 * (uint64_t)majority->voices;

	return voices > majority->of || (voices == majority->of && first);
}

static struct roll roll_call(const struct job *job)
{
	struct roll roll = {.most = UINT32_MAX, .agree = true};
	bool settled = false;

	for (uint32_t rank = 0; rank < job->world; rank++) {
		const struct jobs_peer *peer = job->members[rank];

		roll.here += peer != NULL;
		if (peer == NULL || !peer->stays)
			continue;
		if (roll.stay++ == 0)
			roll.agreed = peer->agreed;
		roll.before = roll.before || peer->of_before;
		roll.agree = roll.agree && peer->agreed == roll.agreed;
		roll.most = peer->most < roll.most ? peer->most : roll.most;
		roll.without |= peer->without;
		roll.fewer = roll.fewer || peer->fewer;
		settled = settled || !peer->fewer;
		roll.accepted.of = peer->of > roll.accepted.of ? peer->of : roll.accepted.of;
		roll.accepted.voices += peer->of > 0;
		voice_count(&roll.named, peer->named > 0 ? peer->named : peer->of);
		roll.first = roll.first || (peer->first && peer->of > 0);
	}
	if (settled) { /* one was accepted to this membership: all that are here are of it, and count */
		roll.accepted = roll.named = (struct majority){job->world, roll.stay};
		roll.first = job->members[0] != NULL && job->members[0]->stays;
	}
	return roll;
}

/* Why they may not; NULL: they may. */
static const char *succession_forbidden(const struct jobs *jobs, const struct job *job,
                                        const struct roll *roll)
{
	if (succession_find(jobs, job->name, job_mark(job)) != NULL)
		return "others have gone on in another membership";
	/* Those of before may not know of it, and begin the one before once more. */
	if (!job->begun && !roll->before)
		return "of its members of before none has come";
	if (roll->fewer && !(majority_stays(&roll->accepted, roll->first) &&
	                     majority_stays(&roll->named, roll->first)))
		return "an aggregator is lost too, and they are no majority";
	if (!roll->fewer && !job->begun && !job_named_here(jobs, job))
		return "the aggregator has been restarted, and not all have come back";
	return NULL;
}

/* Its name is then in message->next. */
static void name_next(struct jobs *jobs, const struct job *job, struct control_message *message)
{
	uint64_t number;

	jobs->ports.random(jobs->ports.context, &number, sizeof(number));
	snprintf(message->next, sizeof(message->next), "%.*s/" CONTROL_NEXT_NAME "%016llx",
	         (int)message_name_base(job->name), job->name, (unsigned long long)number);
	succession_note(jobs, job, job_mark(job), message->next, true);
}

static uint32_t newcomer_count(const struct jobs *jobs, const struct job *job,
                               const struct roll *roll)
{
	uint32_t count = door_count(jobs, job), most = roll->most;

	if (roll->stay + (uint64_t)most > jobs->config.workers_max)
		most = jobs->config.workers_max - roll->stay;
	return count < most ? count : most;
}

/*
 * Without which aggregators? What the members have agreed on holds only where all of them are here: otherwise
 * those who are not could be many, and continue at one that these do not ask.
 */
static uint64_t leaves_out(const struct job *job, const struct roll *roll)
{
	return job->whole && roll->agree && !roll->fewer ? roll->agreed : roll->without;
}

/*
 * Who gets which rank: a newcomer the one that it had, unless that is another newcomer's already; the members the
 * others, in their order; then come the other newcomers. Who had rank 0 does not say so: a member has it.
 */
static void seats_fill(struct jobs *jobs, const struct job *job, const struct control_message *next,
                       struct jobs_peer *seats[])
{
	struct jobs_peer **others = &seats[next->next_world];
	uint32_t other_count = 0, seat = 0;

	for (uint32_t i = 0; i < next->came; i++) {
		struct jobs_peer *peer = door_first(jobs, job);
		const bool own = peer->rank > 0 && peer->rank < next->next_world &&
		                 seats[peer->rank] == NULL;

		door_leave(jobs, peer);
		if (own)
			seats[peer->rank] = peer;
		else
			others[other_count++] = peer;
	}
	for (uint32_t i = 0; i < job->world + other_count; i++) {
		struct jobs_peer *peer = i < job->world ? job->members[i] : others[i - job->world];

		if (peer == NULL || (i < job->world && !peer->stays))
			continue;
		while (seats[seat] != NULL)
			seat++;
		seats[seat] = peer;
	}
}

/* Each is told its rank; the newcomers then go. */
static void tell_next(struct jobs *jobs, struct control_message *next, struct jobs_peer *seats[])
{
	for (uint32_t rank = 0; rank < next->next_world; rank++) {
		next->next_rank = rank;
		peer_send(jobs, seats[rank], next);
		if (seats[rank]->job == NULL)
			peer_end(jobs, seats[rank]);
	}
}

static void tell_none(struct jobs *jobs, const struct job *job, const struct control_message *next)
{
	for (uint32_t rank = 0; rank < job->world; rank++)
		if (job->members[rank] != NULL && job->members[rank]->stays)
			peer_send(jobs, job->members[rank], next);
}

static void job_continue(struct jobs *jobs, struct job *job, const struct roll *roll)
{
	const uint32_t came = roll->fewer ? 0 : newcomer_count(jobs, job, roll);
	struct control_message message = {.kind = CONTROL_NEXT,
	                                  .without = leaves_out(job, roll),
	                                  .majority = roll->fewer,
	                                  .drains = job->whole && jobs->totals.draining};
	const char *why = succession_forbidden(jobs, job, roll);
	struct jobs_peer **seats =
		calloc(roll->stay + 2 * (size_t)came, sizeof(struct jobs_peer *));

	why = why == NULL && seats == NULL ? "the aggregator is out of memory" : why;
	if (why == NULL) {
		name_next(jobs, job, &message);
		message.came = came;
		message.next_world = roll->stay + came;
		snprintf(message.text, sizeof(message.text),
		         "%u of %u workers continue, %u are new%s", roll->stay, job->world, came,
		         jobs->totals.draining              ? ", as this aggregator drains"
		         : message.without != roll->without ? ", with other aggregators"
		                                            : "");
		seats_fill(jobs, job, &message, seats);
	} else {
		snprintf(message.text, sizeof(message.text), "%u of %u workers are left: %s",
		         roll->stay, job->world, why);
	}
	jobs_log(jobs, why == NULL ? "info" : "warn", "members",
	         LOG_FIELDS(LOG_WORD("job", job->name),
	                    LOG_WORD("next", why == NULL ? message.next : "none")),
	         message.text);
	if (why == NULL)
		tell_next(jobs, &message, seats);
	else
		tell_none(jobs, job, &message);
	free(seats);
	job_release(jobs, job);
}

static void job_settle(struct jobs *jobs, struct job *job, bool late)
{
	struct roll roll = roll_call(job);

	if (roll.here == 0 || (late && roll.stay == 0))
		job_release(jobs, job);
	else if (roll.stay == roll.here || late)
		job_continue(jobs, job, &roll);
}

/* A member that lives may be busy with something else, and says so late: as late as it may be for an operation. */
void job_ending_tick(struct jobs *jobs, struct job *job)
{
	job_settle(jobs, job, jobs->now_us - job->since_us >= job->shape.stall_us);
}

/* Its members have been told; those who are not lost may continue. */
static void job_end(struct jobs *jobs, struct job *job)
{
	for (uint32_t rank = 0; rank < job->world; rank++) {
		struct jobs_peer *peer = job->members[rank];

		if (peer == NULL || !peer->gone)
			continue;
		job->members[rank] = NULL;
		peer_end(jobs, peer);
	}
	job->begun = job->state != JOB_FORMING;
	job_detach(jobs, job);
	job->state = JOB_ENDING;
	job->since_us = jobs->now_us;
	job_settle(jobs, job, false);
}

void stay_take(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *message)
{
	struct job *job = peer->job;
	struct roll roll;

	if (!(job->features & CONTROL_MEMBERS)) {
		jobs_garbage(jobs, peer, "stay: not all workers know that");
		return;
	}
	peer->stays = true;
	peer->fewer = message->fewer;
	peer->without = message->without;
	peer->agreed = message->agreed;
	peer->most = message->most;
	peer->of = message->of;
	peer->named = message->named;
	peer->first = message->first;
	roll = roll_call(job);
	if (job->state == JOB_ENDING) {
		job_settle(jobs, job, false);
	} else if (job->state == JOB_RUNNING && roll.stay == job->world) {
		/* They all want to go on, with newcomers or other aggregators: nothing has failed. */
		job_finished(jobs, job, "its members continue in another one");
		job->whole = true;
		job_end(jobs, job);
	} else if (job->state == JOB_PROBING) {
		job_fail(jobs, job, peer->rank, "lost", "rank %u (%s) wants to go on", peer->rank,
		         peer->host);
	}
}

/* ---- failing ---- */

static void job_note_failure(struct jobs *jobs, const struct job *job,
                             const struct control_message *message)
{
	struct jobs_succession *place = &jobs->failed[jobs->failed_count++ % JOBS_FAILED];
	struct jobs_failure *failure = &jobs->failure;

	memcpy(failure->job, job->name, sizeof(failure->job));
	memcpy(failure->code, message->code, sizeof(failure->code));
	memcpy(failure->text, message->text, sizeof(failure->text));
	jobs->failed_us = jobs->now_us;
	place->of = job_mark(job);
	memcpy(place->to, job->name, sizeof(place->to));
}

/* After these codes those who are still here can continue without the others. */
static bool has_next(const struct job *job, const char *code)
{
	return job->features & CONTROL_MEMBERS &&
	       (job->state != JOB_FORMING || message_name_is(job->name, CONTROL_NEXT_NAME)) &&
	       message_code_continues(code);
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
	job_tell(jobs, job, &message);
	if (job->state != JOB_ENDING && has_next(job, code))
		job_end(jobs, job);
	else
		job_release(jobs, job);
}

/* `stands`: the connection does, so the worker itself is told like the others. */
void peer_lost(struct jobs *jobs, struct jobs_peer *peer, const char *reason, bool stands)
{
	struct job *job = peer->job;

	if (job == NULL) {
		peer_end(jobs, peer);
		return;
	}
	if (!stands || job->state == JOB_FORMING || job->state == JOB_ENDING) {
		job->members[peer->rank] = NULL;
		peer_end(jobs, peer);
	}
	if (job->state == JOB_ENDING) {
		job_settle(jobs, job, false);
		return;
	}
	if (job->state == JOB_FORMING) { /* nobody depends on it yet: its place is free again */
		job->joined--;
		if (job->joined == 0)
			job_release(jobs, job);
		return;
	}
	peer->gone = true;
	job_fail(jobs, job, peer->rank, "lost", "rank %u (%s) is lost: %s", peer->rank, peer->host,
	         reason);
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
