// SPDX-License-Identifier: BSD-3-Clause
/*
 * comm_members.c - another membership for a communicator: MEMBERS.md 2 and 3
 *
 * MEMBERS.md 1: "Channels, frame numbers, tokens, seeds, seals and tags are its own, so nothing of one membership can be
 * taken for another's". What was found out once stays: addresses, the key, what the paths carry; so do the data socket,
 * the pool of scanning threads and the caller's requests.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/comm/comm_state.h"

/* ---- may it be? ---- */

static bool used(const struct winnow_comm *comm, const char *job)
{
	for (uint32_t i = 0; i < comm->member_count; i++)
		if (strcmp(comm->members[i], job) == 0)
			return true;
	return strcmp(comm->job, job) == 0;
}

/* Its name is then in `job`. */
static int check(const struct winnow_comm *comm, const struct winnow_membership *m,
                 char job[CONTROL_JOB_BYTES], struct why *why)
{
	int length = snprintf(job, CONTROL_JOB_BYTES, "%.*s/%s", (int)message_name_base(comm->job),
	                      comm->job, m->id != NULL ? m->id : "");

	if (comm->inherited)
		return why_set(why, WINNOW_ERR_INVALID, "%s", comm_after_fork);
	if (length >= CONTROL_JOB_BYTES || !message_name_valid(job))
		return why_set(why, WINNOW_ERR_INVALID,
		               "membership '%.80s': want 1 to 64 letters, digits, '.', '_' or '-'",
		               m->id != NULL ? m->id : "");
	if (m->world == 0 || m->world > WIRE_WORKERS_MAX || m->rank >= m->world)
		return why_set(
			why, WINNOW_ERR_INVALID,
			"rank is %u and world is %u: want 1 to %d workers, and a rank below that",
			m->rank, m->world, WIRE_WORKERS_MAX);
	if (used(comm, job))
		return why_set(why, WINNOW_ERR_INVALID,
		               "membership '%s' was already used: each needs a name of its own",
		               m->id);
	return WINNOW_OK;
}

static int remember(struct winnow_comm *comm, struct why *why)
{
	char(*grown)[CONTROL_JOB_BYTES] =
		realloc(comm->members, (comm->member_count + 1) * sizeof(*grown));

	if (grown == NULL)
		return why_set(why, WINNOW_ERR_MEMORY, "out of memory");
	comm->members = grown;
	memcpy(grown[comm->member_count++], comm->job, CONTROL_JOB_BYTES);
	return WINNOW_OK;
}

/* ---- one ends ---- */

/* MEMBERS.md 2: "It need not try in KNOCKs what did not pass before, nor wait for a PROBE where none came" */
static void learn(struct winnow_comm *comm)
{
	uint32_t passes = session_passes(comm->session);

	if (passes == 0)
		return;
	comm->config.payload = passes;
	for (uint32_t i = 0; i < comm->peer_count; i++) {
		comm->peers[i].no_multicast = !session_link(comm->session, i)->start.multicast;
		comm->peers[i].look_us = 0;
	}
}

/* The session of before; its caller closes it. NULL: none has begun. */
static struct session *end(struct winnow_comm *comm)
{
	struct session *session;
	struct winnow_stats stats;

	comm_stop_thread(comm);
	session = comm->session;
	if (session == NULL)
		return NULL;
	if (!comm->at_door)
		learn(comm);
	comm->ended = link_ended(session_link(session, 0));
	session_stay(session, &comm->stay);
	session_stats(session, &stats);
	comm_stats_add(&comm->before, &stats);
	comm_trace_end(comm);
	for (struct winnow_request *r = comm->requests; r != NULL; r = r->made_before)
		r->staged.staging = NULL; /* all are done: winnow_stream_wait() then says no */
	comm_gpu_close(comm);
	comm->session = NULL;
	return session;
}

/* ---- another begins ---- */

static void reset(struct winnow_comm *comm, bool kept)
{
	pthread_mutex_lock(&comm->lock);
	comm->state = SESSION_JOINING;
	comm->result = WINNOW_OK;
	comm->error.text[0] = '\0';
	comm->awaits[0] = '\0';
	comm->shape.channels = 0;
	comm->stop = false;
	comm->next_tag = 0;
	comm->woken = true;
	comm->says_new = true;
	comm->deserter[0] = '\0';
	comm->waiting = 0;
	comm->next = (struct control_message){0};
	pthread_mutex_unlock(&comm->lock);
	comm->phase = COMM_WORKS;
	comm->full = false;
	for (uint32_t i = 0; i < comm->peer_count; i++) {
		struct comm_peer *peer = &comm->peers[i];

		peer->gone = peer->group_tried = false;
		if (i == 0 && kept)
			continue;
		peer->connected = false;
	}
}

/* Instead of the session `before`, which is closed; with its connection to the decider if that goes on. */
static int begin(struct winnow_comm *comm, struct session *before, struct why *why)
{
	const bool kept = comm->then == COMM_KEEPS && before != NULL && comm->peers[0].fd >= 0;
	int result = comm->at_door && comm->ended ? WINNOW_ERR_LOST : WINNOW_OK;

	if (result != WINNOW_OK)
		why_set(why, result, "no aggregator says who continues: %.400s", comm->error.text);
	reset(comm, kept);
	if (result == WINNOW_OK)
		result = comm_open_session(comm, kept ? session_link(before, 0) : NULL, why);
	if (result == WINNOW_OK && comm->then == COMM_KEEPS && !kept &&
	    !comm->at_door) { /* it has ended meanwhile */
		comm->peers[0].gone = true;
		session_gone(comm->session, 0, "connection closed");
	}
	comm->then = COMM_ENDS;
	session_close(before);
	if (result == WINNOW_OK)
		result = comm_start_thread(comm, why);
	if (result == WINNOW_OK)
		return WINNOW_OK;
	comm_peer_close(&comm->peers[0]);
	session_close(comm->session);
	comm->session = NULL; /* nobody serves requests: see comm_request_queue() */
	comm->result = (enum winnow_result)result;
	comm->error = *why;
	comm->state = SESSION_FAILED;
	return result;
}

/* Its name is `job`, with or without the membership's; `without` are the aggregators that it leaves out. */
static int go(struct winnow_comm *comm, const char *job, const struct winnow_membership *m,
              uint64_t without)
{
	const uint64_t before = comm->left_out;
	struct session *session = end(comm);
	struct why why = {""};
	int result;

	comm->left_out = without;
	comm_leave_out(comm, without);
	comm_peers_left_out(comm, before);
	memmove(comm->job, job, strlen(job) + 1);
	comm->at_door = false;
	comm->config.rank = m->rank;
	comm->config.world = m->world;
	if (m->join_timeout_ms != 0)
		comm->config.join_timeout_ms = m->join_timeout_ms;
	result = begin(comm, session, &why);
	if (result == WINNOW_OK)
		result = comm_await_all(comm, m->give_up, &why);
	if (result == WINNOW_ERR_ABORTED)
		comm_end(comm, WINNOW_ERR_ABORTED, why.text);
	return result == WINNOW_OK ? WINNOW_OK : comm_fail(result, why.text);
}

/* What has ended the membership before is over; what ends the job from now on, in whichever thread, ends the next one. */
static struct why before_why(struct winnow_comm *comm)
{
	struct why ended;

	pthread_mutex_lock(&comm->lock);
	ended = comm->error;
	if (comm->state == SESSION_FAILED)
		comm->abort_result = WINNOW_OK;
	pthread_mutex_unlock(&comm->lock);
	return ended;
}

static int reconfigure(struct winnow_comm *comm, const struct winnow_membership *membership)
{
	char job[CONTROL_JOB_BYTES];
	struct why why = {""};
	int result = check(comm, membership, job, &why);

	if (result == WINNOW_OK)
		result = remember(comm, &why);
	if (result != WINNOW_OK)
		return comm_fail(result, why.text);
	(void)before_why(comm);
	comm->begins_by_us = 0;
	comm->then = COMM_MOVES;
	return go(comm, job, membership, 0);
}

/* ---- those who are left ---- */

static bool over(struct winnow_comm *comm)
{
	bool failed;

	pthread_mutex_lock(&comm->lock);
	failed = comm->state == SESSION_FAILED;
	pthread_mutex_unlock(&comm->lock);
	return failed;
}

static bool next_makes_sense(const struct winnow_comm *comm, const struct control_message *next)
{
	size_t base = message_name_base(comm->job);

	return next->next_world > 0 && next->next_world <= WIRE_WORKERS_MAX &&
	       next->next_rank < next->next_world && (next->without & 1) == 0 &&
	       message_name_base(next->next) == base && memcmp(next->next, comm->job, base) == 0;
}

/*
 * How long all of it may take, however many are lost meanwhile: to learn who is left, for which those who live are
 * waited for as an operation would, or to be let in; and then to join.
 */
static uint64_t go_on_us(const struct winnow_comm *comm, const struct winnow_membership *how)
{
	const struct winnow_config *c = &comm->config;
	uint64_t join_ms = how->join_timeout_ms != 0 ? how->join_timeout_ms : c->join_timeout_ms;
	uint64_t learn_ms = c->timeout_ms + 2 * (uint64_t)c->silence_ms + COMM_LEAVE_US / 1000;

	return 1000 * (join_ms + (comm->stay.kind == 0 && comm->at_door ? join_ms : learn_ms));
}

/* Its session is at the door: a newcomer's, or that of a member who did not want to go where NEXT said. */
static bool waits_there(struct winnow_comm *comm)
{
	return comm->at_door && (comm->stay.kind == 0 || !over(comm));
}

/* Waits at the decider's door, with a member's STAY. */
static int door(struct winnow_comm *comm, uint32_t admit, uint64_t without, struct why *why)
{
	struct session *session;

	comm->then = COMM_KEEPS;
	session = end(comm);
	comm->stay.admit = admit;
	comm->stay.without |= without;
	comm->stay.holds = comm->holds;
	comm->at_door = true;
	comm_leave_out(comm, UINT64_MAX);
	return begin(comm, session, why);
}

/* The membership in which this worker may continue is then in `next`. */
static int await_next(struct winnow_comm *comm, const struct winnow_membership *how,
                      struct control_message *next, struct why *why)
{
	struct comm_wait wait = {.began_us = clock_us()};
	int result = WINNOW_OK;

	pthread_mutex_lock(&comm->lock);
	while (comm->next.kind == 0 && comm->state == SESSION_JOINING &&
	       !comm_given_up(how->give_up) && clock_us() < comm->begins_by_us)
		comm_wait_turn(comm, &wait);
	*next = comm->next;
	if (comm->state == SESSION_FAILED)
		result = why_set(why, (int)comm->result, "%s", comm->error.text);
	pthread_mutex_unlock(&comm->lock);
	if (next->kind == 0 && result == WINNOW_ERR_UNREACHABLE && comm->stay.kind != 0)
		return why_set(why, WINNOW_ERR_MEMBERS, "nobody says who is left: %.400s",
		               winnow_comm_error(comm));
	if (next->kind == 0 && result != WINNOW_OK)
		return result;
	if (next->kind == 0 && comm_given_up(how->give_up))
		return why_set(why, WINNOW_ERR_ABORTED, "given up before it was known who is left");
	if (next->kind == 0) {
		result = why_set(why, WINNOW_ERR_TIMEOUT,
		                 "the first aggregator has not said in time who is left");
		comm_end(comm, WINNOW_ERR_TIMEOUT, why->text);
		return result;
	}
	if (!next_makes_sense(comm, next))
		return why_set(why, WINNOW_ERR_PROTOCOL,
		               "an aggregator says how the job continues, which makes no sense: "
		               "'%.64s', rank %u of %u, without aggregators %llx",
		               next->next, next->next_rank, next->next_world,
		               (unsigned long long)next->without);
	if (next->next_world < how->world)
		return why_set(why, WINNOW_ERR_MEMBERS, "%u workers are left, and %u are wanted",
		               next->next_world, how->world);
	comm->then = COMM_KEEPS;
	return WINNOW_OK;
}

/* Others may die before the next membership has begun: then there is one after that. */
static bool continues(const struct winnow_comm *comm, int result)
{
	return !comm->at_door && clock_us() < comm->begins_by_us &&
	       (result == WINNOW_ERR_MEMBERS || result == WINNOW_ERR_LOST ||
	        result == WINNOW_ERR_TIMEOUT || result == WINNOW_ERR_UNREACHABLE);
}

static int go_on(struct winnow_comm *comm, const struct winnow_membership *how, uint32_t admit,
                 uint64_t without)
{
	struct why why = {""}, both, ended = before_why(comm);
	int result;

	comm->begins_by_us = clock_us() + go_on_us(comm, how);
	do {
		struct winnow_membership membership = *how;
		struct control_message next;

		result = waits_there(comm) ? WINNOW_OK : door(comm, admit, without, &why);
		if (result == WINNOW_OK)
			result = await_next(comm, how, &next, &why);
		if (result != WINNOW_OK) {
			comm_fail(result, why.text);
			break;
		}
		membership.rank = next.next_rank;
		membership.world = next.next_world;
		comm->came += next.came;
		result = go(comm, next.next, &membership, next.without);
		without = comm->left_out;
	} while (continues(comm, result));
	if (result != WINNOW_OK && result != WINNOW_ERR_ABORTED &&
	    clock_us() >= comm->begins_by_us) {
		why_set(&why, WINNOW_ERR_TIMEOUT, "no other membership has begun in time: %.400s",
		        winnow_last_error());
		return comm_fail(WINNOW_ERR_TIMEOUT, why.text);
	}
	if (result != WINNOW_ERR_LOST || !comm->at_door || comm->ended || ended.text[0] == '\0')
		return result;
	/* It was refused at the door. Its program also wants to know what had ended the membership before. */
	why_set(&both, result, "%.200s: %.200s", why.text, ended.text);
	return comm_fail(result, both.text);
}

int winnow_comm_reconfigure(struct winnow_comm *comm, const struct winnow_membership *membership)
{
	if (membership->id != NULL)
		return reconfigure(comm, membership);
	if (comm->inherited)
		return comm_fail(WINNOW_ERR_INVALID, comm_after_fork);
	if (!over(comm) && !comm->at_door)
		return comm_fail(WINNOW_ERR_INVALID,
		                 "the membership has not ended: say which other one is meant");
	return go_on(comm, membership, 0, comm->left_out);
}

/* ---- newcomers ---- */

int comm_enter(struct winnow_comm *comm, const volatile int *give_up, struct why *why)
{
	struct winnow_membership how = {.give_up = give_up};
	int result = go_on(comm, &how, 0, 0);

	return result == WINNOW_OK ? WINNOW_OK : why_set(why, result, "%s", winnow_last_error());
}

void winnow_comm_hold(struct winnow_comm *comm)
{
	atomic_store_explicit(&comm->holds, true, memory_order_relaxed);
}

/*
 * MEMBERS.md 3: "By an operation members find out that one has heard of some, and make a boundary". MEMBERS.md 3: "By an
 * operation members find out which drain, or are left out and not found again by all".
 */
static int confer(struct winnow_comm *comm, bool *waiting, uint64_t *out)
{
	int32_t said[1 + SESSION_LINKS_MAX] = {
		atomic_load_explicit(&comm->waiting, memory_order_relaxed) > 0};
	int result;

	*out = comm->left_out & ~atomic_load_explicit(&comm->back, memory_order_relaxed);
	*out |= atomic_load_explicit(&comm->drains, memory_order_relaxed);
	for (uint32_t place = 0; place < comm->peers_known; place++)
		said[1 + place] = *out >> place & 1;
	result = winnow_allreduce(said, said, 1 + comm->peers_known, WINNOW_I32, WINNOW_MAX, comm);
	*waiting = said[0] > 0;
	*out = 0;
	for (uint32_t place = 0; place < comm->peers_known; place++)
		*out |= (uint64_t)(said[1 + place] > 0) << place;
	return result;
}

int winnow_comm_admit(struct winnow_comm *comm, uint32_t most, uint32_t *came)
{
	uint64_t out;
	struct winnow_membership how = {.world = 0};
	void (*log)(void *, enum winnow_level, const char *) = comm->config.log;
	bool waiting;
	int result = confer(comm, &waiting, &out);

	*came = 0;
	if (result != WINNOW_OK || (!waiting && out == comm->left_out))
		return result;
	comm->came = 0;
	comm->config.log = NULL; /* see winnow.h */
	result = go_on(comm, &how, most, out);
	comm->config.log = log;
	*came = comm->came;
	return result;
}
