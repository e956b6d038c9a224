// SPDX-License-Identifier: BSD-3-Clause
/*
 * jobs_members.c - the decider, which names memberships of jobs whose members do not name them
 *
 * To the decider a job is IDLE (no membership is known here, but former members may be at its
 * door), FORMING (JOB_FORMING, JOB_PROBING), RUNNING or ENDED (JOB_ENDING). MEMBERS.md 3 has the
 * rules, and tests/model/members.pml shows that no two memberships make progress.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/jobs/jobs_state.h"

/* ---- the members that continue ---- */

struct roll {
	uint32_t stay;          /* How many continue. */
	uint32_t all;           /* How many have said STAY. */
	uint32_t admit;         /* Newcomers that every member that continues would admit. */
	uint64_t without;       /* Aggregators that any of these members leaves out. */
	uint64_t number;        /* The number of the newest membership known to them, or to us. */
	bool holds;             /* One of them has the state of the job. */
	struct jobs_peer **who; /* [all]: first those that continue, by rank. */
};

static void roll_add(struct roll *roll, struct jobs_peer *peer)
{
	const struct jobs_stay *stay = &peer->stay;
	const uint64_t numbers[] = {message_name_number(stay->job),
	                            message_name_number(stay->begun)};

	for (size_t i = 0; i < 2; i++)
		roll->number = numbers[i] > roll->number ? numbers[i] : roll->number;
	roll->admit = stay->admit < roll->admit ? stay->admit : roll->admit;
	roll->without |= stay->without;
	roll->holds = roll->holds || stay->holds;
	roll->who[roll->all++] = peer;
	roll->stay = roll->all;
}

static const char gone_on[] = "the others have gone on without this worker";

/* Refuses the members from `first` on, because nobody continues, or the others do without them. */
static void roll_refuse(struct jobs *jobs, const struct roll *roll, uint32_t first, bool orphaned)
{
	for (uint32_t i = first; i < roll->all; i++) {
		struct jobs_peer *peer = roll->who[i];

		if (peer->job != NULL)
			peer->job->members[peer->rank] = NULL;
		peer->job = NULL;
		if (orphaned)
			peer_refuse(jobs, peer, "orphaned",
			            "no worker is left that has the state of job '%.*s': start it "
			            "again",
			            (int)message_name_base(peer->stay.job), peer->stay.job);
		else
			peer_refuse(jobs, peer, "running", gone_on);
	}
}

/* ---- the next membership ---- */

/* MEMBERS.md 3: "Each gets the rank that it asks for, if above 0, below the new world and free" */
static void seats_fill(struct jobs *jobs, const struct job *door, const struct roll *roll,
                       uint32_t came, struct jobs_peer *seats[])
{
	const uint32_t world = roll->stay + came;
	struct jobs_peer **others = &seats[world];
	uint32_t other_count = 0, seat = 0;

	for (uint32_t i = 0; i < came; i++) {
		struct jobs_peer *peer = door_first(jobs, door);
		const bool own = peer->rank > 0 && peer->rank < world && seats[peer->rank] == NULL;

		door_leave(jobs, peer);
		if (own)
			seats[peer->rank] = peer;
		else
			others[other_count++] = peer;
	}
	for (uint32_t i = 0; i < roll->stay + other_count; i++) {
		while (seats[seat] != NULL)
			seat++;
		seats[seat] = i < roll->stay ? roll->who[i] : others[i - roll->stay];
	}
}

/* Makes the peer a member. Its next line is JOIN, or STAY once more. */
static void seat_give(struct jobs *jobs, struct job *job, uint32_t rank, struct jobs_peer *peer)
{
	struct job_seat *seat = &job->seats[rank];

	if (peer->stays) {
		memcpy(seat->job, peer->stay.job, sizeof(seat->job));
		seat->rank = peer->stay.rank;
	}
	if (peer->job == NULL)
		peer_enter(jobs, peer);
	peer->job = job;
	peer->rank = rank;
	peer->state = PEER_NAMED;
	peer->stays = false;
	peer->does.open = 0;
	job->members[rank] = peer;
}

/*
 * MEMBERS.md 3: "the microseconds since 1970, or one more than the highest in any job and begun,
 * and in the name before, if that is more"
 */
static void name_next(const struct jobs *jobs, const char *name, uint64_t known, char *next)
{
	uint64_t number = jobs->config.epoch_us + jobs->now_us;

	number = number > known ? number : known + 1;
	snprintf(next, CONTROL_JOB_BYTES, "%.*s/" CONTROL_NEXT_NAME "%016llx",
	         (int)message_name_base(name), name, (unsigned long long)number);
}

/* `job` is free, or has ended and makes room for this one. */
static void job_name(struct jobs *jobs, struct job *job, const struct roll *roll, uint32_t came)
{
	/* MEMBERS.md 3: "without is the union, never with the decider" */
	struct control_message message = {.kind = CONTROL_NEXT,
	                                  .without = roll->without & ~UINT64_C(1),
	                                  .came = came,
	                                  .next_world = roll->stay + came};
	struct jobs_peer **seats =
		calloc(roll->stay + 2 * (size_t)came, sizeof(struct jobs_peer *));
	const char *of = roll->who[0]->stay.job;
	char text[64];

	name_next(jobs, of, roll->number, message.next);
	if (job->state != JOB_FREE)
		job_forget(job);
	if (seats == NULL ||
	    !job_begin(jobs, job, roll->who[0], message.next, message.next_world)) {
		for (uint32_t i = 0; i < roll->stay; i++) {
			roll->who[i]->job = NULL;
			peer_refuse(jobs, roll->who[i], "memory",
			            "the aggregator is out of memory");
		}
		free(seats);
		return;
	}
	seats_fill(jobs, job, roll, came, seats);
	job->named = true;
	snprintf(text, sizeof(text), "%u workers continue, %u are new", roll->stay, came);
	jobs_log(jobs, "info", "members",
	         LOG_FIELDS(LOG_WORD("job", of), LOG_WORD("next", message.next)), text);
	for (uint32_t rank = 0; rank < message.next_world; rank++) {
		message.next_rank = rank;
		seat_give(jobs, job, rank, seats[rank]);
		peer_send(jobs, seats[rank], &message);
	}
	job_agree(job);
	free(seats);
}

/* ---- ENDED ---- */

/* MEMBERS.md 3: "The first come, as many as the least admit" */
static uint32_t newcomers(const struct jobs *jobs, const struct job *job, const struct roll *roll)
{
	uint32_t count = job->boundary ? door_count(jobs, job) : 0, most = roll->admit;

	if (roll->stay + (uint64_t)most > jobs->config.workers_max)
		most = jobs->config.workers_max - roll->stay;
	return count < most ? count : most;
}

/* MEMBERS.md 3: "When each whose connection stands has said stay, and one holds, the next one is named" */
static void job_settle(struct jobs *jobs, struct job *job)
{
	struct roll roll = {.admit = UINT32_MAX, .number = message_name_number(job->name)};
	uint32_t stand = 0;

	roll.who = calloc(job->world, sizeof(struct jobs_peer *));
	if (roll.who == NULL) {
		job_fail(jobs, job, job->world, "memory", "the aggregator is out of memory");
		return;
	}
	for (uint32_t rank = 0; rank < job->world; rank++)
		if (job->members[rank] != NULL && job->members[rank]->stays)
			roll_add(&roll, job->members[rank]);
		else
			stand += job->members[rank] != NULL;
	if (stand + roll.stay == 0 || (job->boundary && jobs->totals.draining)) {
		job_release(jobs, job); /* a member that comes back finds the job IDLE */
	} else if (stand == 0 && roll.holds) {
		jobs->totals.jobs_continued += !job->boundary;
		job_name(jobs, job, &roll, newcomers(jobs, job, &roll));
	} else if (stand == 0 && jobs->now_us - job->since_us >= jobs->config.join_us) {
		roll_refuse(jobs, &roll, 0, true);
		job_release(jobs, job);
	}
	free(roll.who);
}

/* ---- IDLE ---- */

static bool waits_like(const struct jobs_peer *peer, const struct jobs_peer *one)
{
	return peer->stays && names_kin(peer->wanted, one->wanted) &&
	       (*one->keyed_for == '\0' || peer->owner == one->owner);
}

/* MEMBERS.md 3: "E is the newest membership begun by anybody at the door": no later one can have made progress. */
static bool is_later(const char *begun, const char *than)
{
	return message_name_number(begun) > message_name_number(than) ||
	       (*than == '\0' && *begun != '\0');
}

/* MEMBERS.md 3: "Those count that have begun or joined it, or joined a later one" */
static bool counts(const struct jobs_stay *stay, const char *last)
{
	return strcmp(stay->begun, last) == 0 || strcmp(stay->job, last) == 0 ||
	       message_name_number(stay->job) > message_name_number(last);
}

static int by_rank(const void *a, const void *b)
{
	const struct jobs_peer *x = *(struct jobs_peer *const *)a,
			       *y = *(struct jobs_peer *const *)b;

	return x->stay.rank < y->stay.rank ? -1 : x->stay.rank > y->stay.rank;
}

static void door_name(struct jobs *jobs, struct roll *roll)
{
	struct job *job;

	qsort(roll->who, roll->stay, sizeof(struct jobs_peer *), by_rank);
	if (roll->stay > jobs->config.workers_max) /* anybody can claim to have been a member */
		roll->stay = jobs->config.workers_max;
	job = job_opened(jobs, roll->who[0]);
	if (job != NULL)
		job_name(jobs, job, roll, 0);
	for (uint32_t i = 1; job == NULL && i < roll->stay; i++) /* the first is refused already */
		peer_refuse(jobs, roll->who[i], "jobs",
		            "job '%s' cannot continue: no place is free for it (jobs-max)",
		            roll->who[i]->wanted);
	roll_refuse(jobs, roll, roll->stay, false);
}

/* MEMBERS.md 3: "When as many as E's of have come, or the time of joining is over, and one holds". False: no memory. */
static bool door_settle(struct jobs *jobs, const struct jobs_peer *one)
{
	struct roll roll = {.admit = 0};
	const struct jobs_stay *last = &one->stay;
	uint64_t since_us = one->since_us;
	struct jobs_peer *peer;
	bool late;

	TAILQ_FOREACH(peer, &jobs->doorsteps, doorstep)
	if (waits_like(peer, one)) {
		last = is_later(peer->stay.begun, last->begun) ? &peer->stay : last;
		since_us = peer->since_us < since_us ? peer->since_us : since_us;
	}
	late = jobs->now_us - since_us >= jobs->config.join_us;
	roll.who = calloc(jobs->totals.peers, sizeof(struct jobs_peer *));
	if (roll.who == NULL)
		return false;
	TAILQ_FOREACH(peer, &jobs->doorsteps, doorstep)
	if (waits_like(peer, one) && counts(&peer->stay, last->begun))
		roll_add(&roll, peer);
	TAILQ_FOREACH(peer, &jobs->doorsteps, doorstep)
	if (waits_like(peer, one) && !counts(&peer->stay, last->begun))
		roll.who[roll.all++] = peer;
	if (roll.holds && (late || (last->of > 0 && roll.stay >= last->of)))
		door_name(jobs, &roll);
	else if (late && !roll.holds)
		roll_refuse(jobs, &roll, 0, true);
	free(roll.who);
	return true;
}

/* ---- STAY ---- */

/* Finds the job in which this worker claims a seat, and the rank. NULL: there is none here. */
static struct job *seat_find(const struct jobs *jobs, const struct jobs_peer *peer, uint32_t *rank)
{
	const struct jobs_stay *stay = &peer->stay;

	for (uint32_t i = 0; i < jobs->config.jobs_max; i++) {
		struct job *job = &jobs->jobs[i];

		if (job->state == JOB_FREE || !names_kin(job->name, stay->job) ||
		    !peer_has_key(peer, job))
			continue;
		*rank = stay->rank;
		if (strcmp(job->name, stay->job) == 0 && stay->rank < job->world)
			return job;
		/* MEMBERS.md 3: "has made its worker a member, which has not joined yet" */
		for (*rank = 0; *rank < job->world; (*rank)++)
			if (strcmp(job->seats[*rank].job, stay->job) == 0 &&
			    job->seats[*rank].rank == stay->rank)
				return job;
	}
	return NULL;
}

/* MEMBERS.md 3: "The older connection ends; so does the membership" */
static void seat_take(struct jobs *jobs, struct job *job, uint32_t rank, struct jobs_peer *peer)
{
	struct jobs_peer *before = job->members[rank];

	if (job->state == JOB_ENDING && before != NULL)
		peer_end(jobs, before);
	else if (before != NULL)
		before->gone = true;
	if (job->state != JOB_ENDING)
		job_fail(jobs, job, rank, "lost", "rank %u (%s) has come by another connection",
		         rank, peer->where);
	peer_enter(jobs, peer);
	peer->state = PEER_NAMED;
	peer->job = job;
	peer->rank = rank;
	job->members[rank] = peer;
	jobs->unsettled = true;
}

/* Finds an older connection of the same worker, which it has given up. */
static struct jobs_peer *door_twin(const struct jobs *jobs, const struct jobs_peer *peer)
{
	struct jobs_peer *other;

	TAILQ_FOREACH(other, &jobs->doorsteps, doorstep)
	if (other != peer && waits_like(other, peer) && other->stay.rank == peer->stay.rank &&
	    strcmp(other->stay.job, peer->stay.job) == 0)
		return other;
	return NULL;
}

static void door_stay(struct jobs *jobs, struct jobs_peer *peer)
{
	struct jobs_peer *other;
	uint32_t rank = 0;
	struct job *job = seat_find(jobs, peer, &rank);

	if (job != NULL && job_has_next(job)) {
		seat_take(jobs, job, rank, peer);
		return;
	}
	/* MEMBERS.md 3: "Otherwise, while any membership of NAME is here: running" */
	if (job != NULL || job_kin(jobs, peer->wanted) != NULL) {
		peer_refuse(jobs, peer, "running", gone_on);
		return;
	}
	other = door_twin(jobs, peer);
	if (other != NULL)
		peer_end(jobs, other);
	/* MEMBERS.md 3: "There, a draining decider closes all connections; its door waits for its return" */
	if (!jobs->totals.draining)
		(void)door_settle(jobs, peer);
}

static uint32_t stay_count(const struct job *job)
{
	uint32_t stay = 0;

	for (uint32_t rank = 0; rank < job->world; rank++)
		stay += job->members[rank] != NULL && job->members[rank]->stays;
	return stay;
}

static void member_stay(struct jobs *jobs, struct jobs_peer *peer)
{
	struct job *job = peer->job;
	uint32_t rank = 0;

	if (!job_has_next(job) || seat_find(jobs, peer, &rank) != job || rank != peer->rank) {
		jobs_garbage(jobs, peer, "stay: it came out of turn, or from another membership");
	} else if (job->state == JOB_RUNNING && stay_count(job) == job->world) {
		/* MEMBERS.md 3: "so does stay of all, a boundary, without FAILED" */
		job_finished(jobs, job, "its members continue in another one");
		job->boundary = true;
		job_end(jobs, job);
	} else if (job->state == JOB_FORMING || job->state == JOB_PROBING) {
		job_fail(jobs, job, peer->rank, "lost",
		         "rank %u (%s) has asked for the next membership", peer->rank, peer->where);
	}
	jobs->unsettled = true;
}

void stay_take(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *message)
{
	struct jobs_stay *stay = &peer->stay;

	*stay = (struct jobs_stay){.rank = message->rank,
	                           .of = message->of,
	                           .admit = message->admit,
	                           .without = message->without,
	                           .holds = message->holds};
	memcpy(stay->job, message->job, sizeof(stay->job));
	memcpy(stay->begun, message->begun, sizeof(stay->begun));
	if (message_name_number(stay->job) == UINT64_MAX ||
	    message_name_number(stay->begun) == UINT64_MAX) {
		jobs_garbage(jobs, peer,
		             "stay: no membership can follow the one with the highest number");
		return;
	}
	if (!names_kin(stay->job, peer->job != NULL ? peer->job->name : peer->wanted)) {
		jobs_garbage(jobs, peer, "stay: it is for another job");
		return;
	}
	peer->stays = true;
	if (peer->job != NULL)
		member_stay(jobs, peer);
	else
		door_stay(jobs, peer);
}

/* ---- time ---- */

void members_settle(struct jobs *jobs)
{
	if (!jobs->unsettled)
		return;
	jobs->unsettled = false;
	for (uint32_t i = 0; i < jobs->config.jobs_max; i++)
		if (jobs->jobs[i].state == JOB_ENDING)
			job_settle(jobs, &jobs->jobs[i]);
}

/* Finds a member that has waited at a door for as long as it may wait for the others. */
static struct jobs_peer *door_late(const struct jobs *jobs)
{
	struct jobs_peer *peer;

	TAILQ_FOREACH(peer, &jobs->doorsteps, doorstep)
	if (peer->stays && jobs->now_us - peer->since_us >= jobs->config.join_us)
		return peer;
	return NULL;
}

void members_tick(struct jobs *jobs)
{
	struct jobs_peer *peer;

	jobs->unsettled = true;
	members_settle(jobs);
	while (!jobs->totals.draining && (peer = door_late(jobs)) != NULL)
		if (!door_settle(jobs, peer)) /* takes the others of its job along */
			return;
}
