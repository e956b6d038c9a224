// SPDX-License-Identifier: BSD-3-Clause
/*
 * comm_members.c - another membership for a communicator: MEMBERS.md 2 and 3
 *
 * MEMBERS.md 1: "Channels, frame numbers, tokens, seeds, seals and tags are its own, so nothing of one membership can be
 * taken for another's". Addresses, the key, what the paths carry, the data socket, the pool of scanning threads and the
 * caller's requests stay.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/comm/comm_state.h"

/* ---- may it be? ---- */

static bool used(const struct winnow_comm *comm, const char *job)
{
	for (uint32_t i = 0; i < comm->move.member_count; i++)
		if (strcmp(comm->move.members[i], job) == 0)
			return true;
	return strcmp(comm->move.job, job) == 0;
}

/* Is the membership possible? Then `job` gets its name. */
static int check(const struct winnow_comm *comm, const struct winnow_membership *m,
                 char job[CONTROL_JOB_BYTES], struct why *why)
{
	int length =
		snprintf(job, CONTROL_JOB_BYTES, "%.*s/%s", (int)message_name_base(comm->move.job),
	                 comm->move.job, m->id != NULL ? m->id : "");

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
		realloc(comm->move.members, (comm->move.member_count + 1) * sizeof(*grown));

	if (grown == NULL)
		return why_set(why, WINNOW_ERR_MEMORY, "out of memory");
	comm->move.members = grown;
	memcpy(grown[comm->move.member_count++], comm->move.job, CONTROL_JOB_BYTES);
	return WINNOW_OK;
}

/* ---- one ends ---- */

/* MEMBERS.md 2: "It need not try in KNOCKs what did not pass before, nor wait for a PROBE where none came" */
static void learn(struct winnow_comm *comm)
{
	uint32_t passes = session_passes(comm->session);

	if (passes == 0)
		return;
	comm->move.config.payload = passes;
	for (uint32_t i = 0; i < comm->move.peer_count; i++) {
		comm->peers[i].no_multicast = !session_link(comm->session, i)->start.multicast;
		comm->peers[i].tries.look_us = 0;
	}
}

/* Stops the thread by this course. Returns the session, which the caller closes; NULL: none has begun. */
static struct session *end(struct winnow_comm *comm, enum comm_course course)
{
	struct session *session = comm->session;
	struct winnow_stats stats;

	comm_stop_thread(comm, course);
	if (session == NULL)
		return NULL;
	if (comm->move.role == COMM_MEMBER)
		learn(comm);
	comm->move.ended = link_ended(session_link(session, 0));
	session_stay(session, &comm->move.stay);
	session_stats(session, &stats);
	comm_stats_add(&comm->move.before, &stats);
	comm_trace_end(comm);
	comm_gpu_close(comm);
	comm->session = NULL;
	return session;
}

/* ---- another begins ---- */

static void reset(struct winnow_comm *comm, bool kept)
{
	struct comm_shared *shared = &comm->shared;

	pthread_mutex_lock(&shared->lock);
	shared->result = WINNOW_OK;
	shared->error.text[0] = '\0';
	shared->view = (struct comm_view){.rank = comm->move.config.rank,
	                                  .world = comm->move.config.world,
	                                  .number = shared->view.number + 1};
	shared->news = (struct comm_news){.stats = comm->move.before};
	shared->next_tag = 0;
	shared->says_new = true;
	comm->any.woken = true;
	pthread_mutex_unlock(&shared->lock);
	comm->run.full = false;
	comm->run.news = true;
	for (uint32_t i = 0; i < comm->move.peer_count; i++) {
		struct comm_peer *peer = &comm->peers[i];

		peer->udp.group_tried = false;
		peer->state = i == 0 && kept ? PEER_CONNECTED : PEER_WAITS;
	}
}

/* The session or its thread could not begin. */
static int fail(struct winnow_comm *comm, int result, const struct why *why)
{
	comm_peer_close(&comm->peers[0]);
	session_close(comm->session);
	comm->session = NULL;
	pthread_mutex_lock(&comm->shared.lock);
	comm->shared.result = (enum winnow_result)result;
	comm->shared.error = *why;
	comm_phase_set(comm, COMM_STRANDED);
	pthread_mutex_unlock(&comm->shared.lock);
	return result;
}

/*
 * Begins a session in place of `before`, which has ended by this course, and closes that one. A connection to the decider
 * that still stands continues.
 */
static int begin(struct winnow_comm *comm, struct session *before, enum comm_course course,
                 struct why *why)
{
	const bool keeps = course == COMM_KEEPS;
	const bool kept = keeps && before != NULL && comm->peers[0].tcp.fd >= 0;
	int result =
		comm->move.role != COMM_MEMBER && comm->move.ended ? WINNOW_ERR_LOST : WINNOW_OK;

	if (result != WINNOW_OK)
		why_set(why, result, "no aggregator says who continues: %.400s",
		        comm->shared.error.text);
	reset(comm, kept);
	if (result == WINNOW_OK)
		result = comm_open_session(comm, kept ? session_link(before, 0) : NULL, why);
	if (result == WINNOW_OK && keeps && !kept && comm->move.role == COMM_MEMBER) {
		comm->peers[0].state = PEER_GONE; /* Its connection has ended meanwhile. */
		session_gone(comm->session, 0, "connection closed");
	}
	session_close(before);
	if (result == WINNOW_OK)
		result = comm_start_thread(comm, why);
	return result == WINNOW_OK ? WINNOW_OK : fail(comm, result, why);
}

/*
 * Goes to the membership `m` of this name, without these aggregators, and waits for its other workers. The membership
 * before ends by this course.
 */
static int go(struct winnow_comm *comm, const char *job, const struct winnow_membership *m,
              uint64_t without, enum comm_course course)
{
	const uint64_t before = comm->move.left_out;
	struct session *session = end(comm, course);
	struct why why = {""};
	int result;

	comm->move.left_out = without;
	comm_leave_out(comm, without);
	comm_peers_left_out(comm, before);
	memmove(comm->move.job, job, strlen(job) + 1);
	comm->move.role = COMM_MEMBER;
	comm->move.config.rank = m->rank;
	comm->move.config.world = m->world;
	if (m->join_timeout_ms != 0)
		comm->move.config.join_timeout_ms = m->join_timeout_ms;
	result = begin(comm, session, course, &why);
	if (result == WINNOW_OK)
		result = comm_await_all(comm, m->give_up, &why);
	if (result == WINNOW_ERR_ABORTED)
		comm_end(comm, WINNOW_ERR_ABORTED, why.text);
	return result == WINNOW_OK ? WINNOW_OK : comm_fail(result, why.text);
}

/*
 * A caller begins to move the communicator. An end that was ordered before still ends the old membership, on all workers.
 * One that any thread orders from now on ends this call.
 */
static void move_begin(struct winnow_comm *comm)
{
	struct comm_shared *shared = &comm->shared;

	pthread_mutex_lock(&comm->move.lock);
	pthread_mutex_lock(&shared->lock);
	while (shared->end.result != WINNOW_OK && shared->result == WINNOW_OK)
		pthread_cond_wait(&shared->changed, &shared->lock);
	shared->end.result = WINNOW_OK;
	pthread_mutex_unlock(&shared->lock);
	comm->move.begins_by_us = 0;
}

static int move_end(struct winnow_comm *comm, int result)
{
	pthread_mutex_unlock(&comm->move.lock);
	return result;
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
	return go(comm, job, membership, 0, COMM_MOVES);
}

/* ---- those who are left ---- */

static bool over(struct winnow_comm *comm)
{
	bool failed;

	pthread_mutex_lock(&comm->shared.lock);
	failed = comm->shared.result != WINNOW_OK;
	pthread_mutex_unlock(&comm->shared.lock);
	return failed;
}

static bool next_makes_sense(const struct winnow_comm *comm, const struct control_message *next)
{
	size_t base = message_name_base(comm->move.job);

	return next->next_world > 0 && next->next_world <= WIRE_WORKERS_MAX &&
	       next->next_rank < next->next_world && (next->without & 1) == 0 &&
	       message_name_base(next->next) == base &&
	       memcmp(next->next, comm->move.job, base) == 0;
}

/*
 * How long all of it may take, however many workers are lost meanwhile. A newcomer waits to be let in. A member waits to
 * learn who is left, as long as an operation would wait for the others. Then they join.
 */
static uint64_t go_on_us(const struct winnow_comm *comm, const struct winnow_membership *how)
{
	const struct winnow_config *c = &comm->move.config;
	uint64_t join_ms = how->join_timeout_ms != 0 ? how->join_timeout_ms : c->join_timeout_ms;
	uint64_t learn_ms = c->timeout_ms + 2 * (uint64_t)c->silence_ms + COMM_LEAVE_US / 1000;

	return 1000 * (join_ms + (comm->move.role == COMM_NEWCOMER ? join_ms : learn_ms));
}

/* Does its session already wait at the door: a newcomer's, or that of a member that refused what NEXT said? */
static bool waits_there(struct winnow_comm *comm)
{
	return comm->move.role == COMM_NEWCOMER || (comm->move.role == COMM_STAYING && !over(comm));
}

/* Goes to the decider's door. A member sends STAY there, with these values. */
static int door(struct winnow_comm *comm, uint32_t admit, uint64_t without, struct why *why)
{
	struct session *session;

	session = end(comm, COMM_KEEPS);
	comm->move.stay.admit = admit;
	comm->move.stay.without |= without;
	comm->move.stay.holds = comm->any.holds;
	comm->move.role = comm->move.stay.kind != 0 ? COMM_STAYING : COMM_NEWCOMER;
	comm_leave_out(comm, UINT64_MAX);
	return begin(comm, session, COMM_KEEPS, why);
}

/* Waits for the membership in which this worker may continue, which is then in `next`. */
static int await_next(struct winnow_comm *comm, const struct winnow_membership *how,
                      struct control_message *next, struct why *why)
{
	struct comm_wait wait = {.began_us = clock_us()};
	int result = WINNOW_OK;

	pthread_mutex_lock(&comm->shared.lock);
	while (comm->shared.news.next.kind == 0 && comm->shared.phase == COMM_JOINING &&
	       !comm_given_up(how->give_up) && clock_us() < comm->move.begins_by_us)
		comm_wait_turn(comm, &wait);
	*next = comm->shared.news.next;
	if (comm->shared.result != WINNOW_OK)
		result = why_set(why, (int)comm->shared.result, "%s", comm->shared.error.text);
	pthread_mutex_unlock(&comm->shared.lock);
	if (next->kind == 0 && result == WINNOW_ERR_UNREACHABLE && comm->move.role == COMM_STAYING)
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
	return WINNOW_OK;
}

/* Others may die before the next membership has begun. Then there is another one after that. */
static bool continues(const struct winnow_comm *comm, int result)
{
	return comm->move.role == COMM_MEMBER && clock_us() < comm->move.begins_by_us &&
	       (result == WINNOW_ERR_MEMBERS || result == WINNOW_ERR_LOST ||
	        result == WINNOW_ERR_TIMEOUT || result == WINNOW_ERR_UNREACHABLE);
}

static int go_on(struct winnow_comm *comm, const struct winnow_membership *how, uint32_t admit,
                 uint64_t without)
{
	struct why why = {""}, both, ended;
	int result;

	pthread_mutex_lock(&comm->shared.lock);
	ended = comm->shared.error;
	pthread_mutex_unlock(&comm->shared.lock);
	comm->move.begins_by_us = clock_us() + go_on_us(comm, how);
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
		comm->move.came += next.came;
		result = go(comm, next.next, &membership, next.without, COMM_KEEPS);
		without = comm->move.left_out;
	} while (continues(comm, result));
	if (result != WINNOW_OK && result != WINNOW_ERR_ABORTED &&
	    clock_us() >= comm->move.begins_by_us) {
		why_set(&why, WINNOW_ERR_TIMEOUT, "no other membership has begun in time: %.400s",
		        winnow_last_error());
		return comm_fail(WINNOW_ERR_TIMEOUT, why.text);
	}
	if (result != WINNOW_ERR_LOST || comm->move.role == COMM_MEMBER || comm->move.ended ||
	    ended.text[0] == '\0')
		return result;
	/* The decider has refused it. Its program also wants to know what had ended the membership before. */
	why_set(&both, result, "%.200s: %.200s", why.text, ended.text);
	return comm_fail(result, both.text);
}

int winnow_comm_reconfigure(struct winnow_comm *comm, const struct winnow_membership *membership)
{
	int result;

	if (comm->inherited)
		return comm_fail(WINNOW_ERR_INVALID, comm_after_fork);
	move_begin(comm);
	if (membership->id != NULL)
		result = reconfigure(comm, membership);
	else if (!over(comm) && comm->move.role == COMM_MEMBER)
		result = comm_fail(WINNOW_ERR_INVALID,
		                   "the membership has not ended: say which other one is meant");
	else
		result = go_on(comm, membership, 0, comm->move.left_out);
	return move_end(comm, result);
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
	atomic_store_explicit(&comm->any.holds, true, memory_order_relaxed);
}

/*
 * MEMBERS.md 3: "By an operation members find out that one has heard of some, and make a boundary". MEMBERS.md 3: "By an
 * operation members find out which drain, or are left out and not found again by all".
 */
static int confer(struct winnow_comm *comm, bool *waiting, uint64_t *out)
{
	int32_t said[1 + SESSION_LINKS_MAX];
	int result;

	pthread_mutex_lock(&comm->shared.lock);
	said[0] = comm->shared.news.waiting > 0;
	*out = comm->shared.news.drains | (comm->move.left_out & ~comm->shared.news.back);
	pthread_mutex_unlock(&comm->shared.lock);
	for (uint32_t place = 0; place < comm->fixed.peers_known; place++)
		said[1 + place] = *out >> place & 1;
	result = winnow_allreduce(said, said, 1 + comm->fixed.peers_known, WINNOW_I32, WINNOW_MAX,
	                          comm);
	*waiting = said[0] > 0;
	*out = 0;
	for (uint32_t place = 0; place < comm->fixed.peers_known; place++)
		*out |= (uint64_t)(said[1 + place] > 0) << place;
	return result;
}

int winnow_comm_admit(struct winnow_comm *comm, uint32_t most, uint32_t *came)
{
	uint64_t out;
	struct winnow_membership how = {.world = 0};
	bool waiting;
	int result;

	*came = 0;
	if (comm->inherited)
		return comm_fail(WINNOW_ERR_INVALID, comm_after_fork);
	move_begin(comm);
	result = confer(comm, &waiting, &out);
	if (result != WINNOW_OK || (!waiting && out == comm->move.left_out))
		return move_end(comm, result);
	comm->move.came = 0;
	comm->move.config.log = NULL; /* winnow.h says that nothing is told. */
	result = go_on(comm, &how, most, out);
	comm->move.config.log = comm->fixed.config.log;
	*came = comm->move.came;
	return move_end(comm, result);
}
