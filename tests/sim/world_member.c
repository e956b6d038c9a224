// SPDX-License-Identifier: BSD-3-Clause
/*
 * world_member.c - a worker's shell when members come and go: what comm_members.c and comm_loop.c do
 *
 * The worker reduces turn after turn. When its membership ends it says STAY and goes where the decider says, with
 * the same connection to that one, as winnow_comm_reconfigure() does; it calls for newcomers as winnow_comm_admit()
 * does, and is one as in winnow_comm_enter().
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/worker/array.h"
#include "tests/check/check.h"
#include "tests/flatten.h"
#include "tests/sim/world_impl.h"

/* As in comm_state.h, but ten times shorter, as are the silence times of these worlds. */
#define JOIN_US 4000000
#define DOOR_US 12000000
#define CONNECT_US (JOIN_US / 4 * 3)
#define CONNECT_ALIVE_US 50000
#define CONNECT_AGAIN_US 20000
#define CONNECT_ONCE_MORE_US 200000
#define LEAVE_US 200000

static uint64_t now_of(const struct sim_member *m)
{
	return simnet_now(m->world->net);
}

static uint64_t pause_us(const struct sim_member *m)
{
	return simnet_between(m->world->net, 0, m->world->members->spec->pause_us);
}

/* ---- a session begins ---- */

static void links_fill(struct sim_member *m, const char *host, const char *job,
                       const struct link *from, struct link_config links[])
{
	for (uint32_t i = 0; i < m->peer_count; i++) {
		links[i] = (struct link_config){
			.job = job,
			.host = host,
			.rank = m->rank,
			.world = m->at_door ? 0 : m->world_size,
			.keyed = m->world->keyed,
			.payload = m->spec->payload,
			.rcvbuf = m->spec->rcvbuf,
			.silence_us = m->spec->silence_us,
			.stall_us = m->spec->stall_us,
			.join_us = m->at_door ? DOOR_US : JOIN_US,
			.multicast = m->spec->hears_multicast,
			.place = m->peers[i].place,
			.from = i == 0 ? from : NULL,
		};
	}
}

/* `from`: the link to the decider whose connection goes on, or NULL. */
static void session_begin(struct sim_member *m, const struct link *from)
{
	const char *used[WORLD_AGGREGATORS_MAX];
	struct link_config links[WORLD_AGGREGATORS_MAX] = {0};
	struct session_config config = {.links = links,
	                                .names = used,
	                                .pool = m->world->pool,
	                                .bitmap = m->world->engine,
	                                .stay = m->stay,
	                                .private_network = true};
	const uint32_t kept = from != NULL ? m->peers[0].connection : 0;
	const uint64_t without = m->at_door ? ~UINT64_C(1) : m->left_out;
	const uint64_t now_us = now_of(m);
	char host[16], job[CONTROL_JOB_BYTES];

	snprintf(host, sizeof(host), "host%u", m->number);
	snprintf(job, sizeof(job), "%.*s",
	         (int)(m->at_door ? message_name_base(m->job) : strlen(m->job)), m->job);
	m->peer_count = 0;
	for (uint32_t place = 0; place < m->world->spec->aggregator_count; place++) {
		bool alive = message_name_is_next(m->job) && !m->at_door;

		if (without >> place & 1)
			continue;
		m->peers[m->peer_count] =
			(struct member_peer){.place = place,
		                             .connection = place == 0 ? kept : 0,
		                             .due_us = now_us + m->spec->connect_us,
		                             .until_us = now_us + (m->at_door ? DOOR_US
		                                                   : alive    ? CONNECT_ALIVE_US
		                                                              : CONNECT_US)};
		used[m->peer_count++] = m->world->names[place];
	}
	links_fill(m, host, job, from, links);
	config.link_count = m->peer_count;
	if (session_open(&config, now_us, &m->session) != 0)
		abort();
	if (from != NULL)
		connection_secure(m->world, kept, job, session_link(m->session, 0));
	m->state = m->at_door ? MEMBER_ASKS : MEMBER_JOINS;
	m->open = m->turn = m->admit = 0;
	m->failed = false;
	m->act_us = m->by_us = NEVER;
	if (!m->at_door)
		roll_enter(m);
}

/* ---- and ends ---- */

static void lines_out(struct sim_member *m)
{
	for (uint32_t i = 0; i < m->peer_count; i++) {
		struct member_peer *peer = &m->peers[i];
		char *line;

		while (peer->connection != 0 &&
		       (line = session_take_line(m->session, i, now_of(m))) != NULL) {
			simnet_line(m->world->net, peer->connection, m->node, peer->place, line);
			free(line);
		}
	}
}

static void connections_end(struct sim_member *m, uint32_t first)
{
	for (uint32_t i = first; i < m->peer_count; i++) {
		if (m->peers[i].connection != 0)
			simnet_gone(m->world->net, m->peers[i].connection, m->node,
			            m->peers[i].place);
		m->peers[i].connection = 0;
	}
}

/* Its caller closes the session; all connections end but, if it is kept and stands, the one to the decider. */
static struct session *session_over(struct sim_member *m, bool keeps)
{
	struct session *session = m->session;

	lines_out(m);
	connections_end(m, keeps && link_stands(session_link(session, 0)) ? 1 : 0);
	session_stay(session, &m->stay);
	m->session = NULL;
	return session;
}

/* It cannot continue: it says so, as winnow_comm_destroy() does. */
static void end_stuck(struct sim_member *m, const char *why)
{
	m->stuck = true;
	snprintf(m->why, sizeof(m->why), "%s", why);
	if (session_state(m->session) == SESSION_FAILED &&
	    session_result(m->session) == WINNOW_ERR_REFUSED &&
	    strstr(why, " is taken by ") == NULL && /* by its own connection, half open */
	    (m->holds || strstr(why, "has the state") == NULL))
		world_fail(m->world, "worker %u in '%s' may not come back: %s", m->number, m->job,
		           why);
	if (session_state(m->session) == SESSION_JOINING)
		session_abort(m->session, "it gave up");
	session_close(session_over(m, false));
	m->state = MEMBER_ENDED;
}

void member_die(struct sim_member *m, bool resets)
{
	m->dead = true;
	if (resets)
		connections_end(m, 0);
}

/* ---- operations ---- */

static void task_done(struct allreduce *task)
{
	struct member_op *op = task->context;
	struct sim_member *m = op->member;

	m->open--;
	if (task->status == WINNOW_OK) {
		m->world->out->operations++;
		roll_check(m, (uint32_t)(op - m->ops));
		return;
	}
	m->world->out->failures++;
	m->failed = true;
}

/* A sum that is announced with its values; an average in frames; whether anybody waits to be admitted. */
static void op_fill(struct sim_member *m, uint32_t number)
{
	static const struct allreduce kinds[MEMBER_OPS] = {
		{.count = 24, .dtype = DTYPE_I32, .reduction = REDUCE_SUM, .block_elems = 8},
		{.count = MEMBER_ELEMS,
	         .dtype = DTYPE_F32,
	         .reduction = REDUCE_AVG,
	         .block_elems = 64},
		{.count = 1, .dtype = DTYPE_I32, .reduction = REDUCE_MAX, .block_elems = 1},
	};
	struct member_op *op = &m->ops[number];
	uint64_t seed;

	op->member = m;
	op->task = kinds[number];
	op->task.send = (const uint8_t *)op->send;
	op->task.recv = (uint8_t *)op->recv;
	op->task.access = &array_access;
	op->task.tag = 1 + m->turn * MEMBER_OPS + number; /* the same in each membership */
	op->task.form = WIRE_NATIVE;
	op->task.done = task_done;
	op->task.context = op;
	memset(op->recv, 0x5a, sizeof(op->recv));
	seed = roll_seed(m, number);
	for (uint32_t i = 0; i < op->task.count; i++) {
		int32_t value = roll_gives(seed, m->number, number, i);
		float real = (float)value;

		op->send[i] = value;
		if (op->task.dtype == DTYPE_F32)
			memcpy(&op->send[i], &real, sizeof(real));
	}
	if (number == 2)
		op->send[0] = session_link(m->session, 0)->waiting > 0;
}

static void turn_begin(struct sim_member *m)
{
	uint32_t count = m->world->members->spec->admit > 0 ? MEMBER_OPS : MEMBER_OPS - 1;

	m->failed = false;
	for (uint32_t i = 0; i < count; i++) {
		op_fill(m, i);
		m->open++;
		roll_calls(m, i);
		m->ops[i].task.status = session_submit(m->session, &m->ops[i].task, now_of(m));
		if (m->ops[i].task.status != 0)
			task_done(&m->ops[i].task);
	}
}

static void turn_look(struct sim_member *m)
{
	const struct members_spec *spec = m->world->members->spec;

	if (m->open > 0 || m->act_us != NEVER)
		return;
	if (session_state(m->session) == SESSION_FAILED) {
		m->act_us = now_of(m) + pause_us(m);
		return;
	}
	m->holds = m->holds || (m->turn > 0 && !m->failed);
	if (m->failed) {
		world_fail(m->world, "worker %u in '%s': an operation failed, and the session not",
		           m->number, m->job);
		return;
	}
	if (spec->admit > 0 && m->turn > 0 && m->ops[2].recv[0] > 0) {
		m->state = MEMBER_PARTS;
		m->admit = spec->admit;
		m->by_us = now_of(m) + LEAVE_US;
		return;
	}
	if (m->turn < spec->turns)
		m->act_us = now_of(m) + pause_us(m);
}

/* Whatever it did before its next step is done. */
static void act(struct sim_member *m)
{
	if (now_of(m) < m->act_us)
		return;
	m->act_us = NEVER;
	if (session_state(m->session) == SESSION_FAILED) {
		m->state = MEMBER_PARTS;
		return;
	}
	turn_begin(m);
	m->turn++;
}

bool member_idle(const struct sim_member *m)
{
	return m->state == MEMBER_WORKS && m->open == 0 && m->act_us == NEVER &&
	       session_state(m->session) == SESSION_RUNNING &&
	       m->turn == m->world->members->spec->turns;
}

static void connection_gone(struct sim_member *m, uint32_t index)
{
	struct member_peer *peer = &m->peers[index];

	peer->connection = 0;
	if (link_again(session_link(m->session, index))) {
		peer->due_us = now_of(m) + CONNECT_AGAIN_US;
		peer->until_us =
			now_of(m) + (m->at_door                     ? DOOR_US
		                     : message_name_is_next(m->job) ? CONNECT_ALIVE_US
		                                                    : CONNECT_ONCE_MORE_US);
		return;
	}
	peer->gone = true;
	session_gone(m->session, index, "connection reset");
}

/* ---- from one membership to the next ---- */

static bool goes_on(enum winnow_result result)
{
	return result == WINNOW_ERR_MEMBERS || result == WINNOW_ERR_LOST ||
	       result == WINNOW_ERR_TIMEOUT || result == WINNOW_ERR_UNREACHABLE;
}

static void join_look(struct sim_member *m)
{
	if (session_state(m->session) == SESSION_RUNNING) {
		m->state = MEMBER_WORKS;
		roll_begins(m);
		m->act_us = now_of(m) + pause_us(m);
	} else if (session_state(m->session) == SESSION_FAILED) {
		if (strchr(m->job, '/') == NULL || !goes_on(session_result(m->session)))
			end_stuck(m, session_error(m->session));
		else
			m->state = MEMBER_PARTS;
	}
}

/* The door is shut to it. */
static void none(struct sim_member *m)
{
	const bool overtaken = m->at_door && session_result(m->session) == WINNOW_ERR_LOST;

	if (!overtaken || m->world->members->spec->admit == 0 || m->stay.kind == 0) {
		end_stuck(m, session_error(m->session));
		return;
	}
	session_close(session_over(m, false));
	m->stay = (struct control_message){0};
	m->roll = 0;
	m->holds = false;
	snprintf(m->job, sizeof(m->job), "job");
	session_begin(m, NULL);
}

/* Where the decider says, by the same connection. */
static void ask(struct sim_member *m)
{
	const struct control_message *next = link_next(session_link(m->session, 0));
	struct session *before;
	bool kept;

	if (next == NULL && session_state(m->session) == SESSION_FAILED)
		none(m);
	if (next == NULL)
		return;
	memcpy(m->job, next->next, sizeof(m->job));
	m->rank = next->next_rank;
	m->world_size = next->next_world;
	m->left_out = next->without;
	m->at_door = false;
	before = session_over(m, true);
	kept = m->peers[0].connection != 0;
	session_begin(m, kept ? session_link(before, 0) : NULL);
	session_close(before);
	if (kept)
		return;
	m->peers[0].gone = true;
	session_gone(m->session, 0, "connection closed");
}

/* From its membership to the decider's door. */
static void part(struct sim_member *m)
{
	struct session *before;

	if (session_state(m->session) == SESSION_RUNNING) {
		if (!session_quiet(m->session) && now_of(m) < m->by_us)
			return;
		session_move(m->session, true);
	}
	if (link_ended(session_link(m->session, 0))) {
		end_stuck(m, session_error(m->session));
		return;
	}
	before = session_over(m, true);
	m->stay.without |= m->left_out;
	m->stay.admit = m->admit;
	m->stay.holds = m->holds;
	m->at_door = true;
	session_begin(m, m->peers[0].connection != 0 ? session_link(before, 0) : NULL);
	session_close(before);
}

static void leave(struct sim_member *m)
{
	if (session_state(m->session) == SESSION_RUNNING) {
		if (!session_quiet(m->session) && now_of(m) < m->by_us)
			return;
		session_leave(m->session);
	}
	session_close(session_over(m, false));
	m->state = MEMBER_ENDED;
}

static void step(struct sim_member *m)
{
	enum member_state before;

	do {
		before = m->state;
		if (m->state == MEMBER_JOINS)
			join_look(m);
		if (m->state == MEMBER_WORKS)
			turn_look(m);
		if (m->state == MEMBER_WORKS)
			act(m);
		if (m->state == MEMBER_WORKS && m->world->members->leaving) {
			m->state = MEMBER_LEAVES;
			m->by_us = now_of(m) + LEAVE_US;
		}
		if (m->state == MEMBER_ASKS)
			ask(m);
		if (m->state == MEMBER_PARTS)
			part(m);
		if (m->state == MEMBER_LEAVES)
			leave(m);
	} while (m->state != before && m->state != MEMBER_ENDED);
}

/* ---- connections ---- */

static void connect_try(struct sim_member *m, uint32_t index)
{
	struct member_peer *peer = &m->peers[index];
	struct sim_aggregator *aggregator = &m->world->aggregators[peer->place];
	uint64_t now_us = now_of(m);

	if (peer->connection != 0 || peer->gone || now_us < peer->due_us)
		return;
	if (!aggregator->dead && !members_apart(m->world, m->node, peer->place)) {
		peer->connection = aggregator_connect(aggregator, m->node, m->job,
		                                      session_link(m->session, index));
		link_connected(session_link(m->session, index), now_us);
	} else if (now_us < peer->until_us) {
		peer->due_us = now_us + CONNECT_AGAIN_US;
	} else {
		peer->gone = true;
		session_unreachable(m->session, index, "no answer");
	}
}

/* ---- running ---- */

static void groups_look(struct sim_member *m)
{
	struct sim_worker *w = &m->world->workers[m->number];

	for (uint32_t i = 0; i < m->peer_count; i++)
		if (has_group(session_link(m->session, i)))
			w->group_known[m->peers[i].place] = true;
}

static void datagrams_out(struct sim_member *m)
{
	struct packet_out out = {.scratch = m->world->scratch};
	struct simnet *net = m->world->net;

	for (uint32_t i = 0; i < m->peer_count; i++)
		while (session_pull(m->session, i, now_of(m), &out)) {
			packet_flatten(&out, m->world->flat);
			simnet_send(net, m->node, &m->peers[i].place, 1, m->world->flat, out.bytes);
		}
}

static void wake_at(struct sim_member *m, uint64_t due_us)
{
	uint64_t now_us = now_of(m);

	if (due_us == NEVER)
		return;
	due_us = due_us > now_us ? due_us : now_us + 1;
	if (m->wake_us > now_us && m->wake_us <= due_us)
		return;
	m->wake_us = due_us;
	simnet_timer(m->world->net, m->node, TIMER_WAKE, due_us);
}

static void wake_again(struct sim_member *m)
{
	wake_at(m, session_deadline(m->session));
	wake_at(m, m->act_us);
	if (m->state >= MEMBER_ASKS && m->by_us > 0)
		wake_at(m, m->by_us > now_of(m) ? m->by_us : NEVER);
	for (uint32_t i = 0; i < m->peer_count; i++)
		if (m->peers[i].connection == 0 && !m->peers[i].gone)
			wake_at(m, m->peers[i].due_us);
}

void member_run(struct sim_member *m)
{
	if (m->state == MEMBER_OUTSIDE)
		session_begin(m, NULL);
	if (m->at_door && m->peers[0].connection != 0 &&
	    !link_stands(session_link(m->session, 0))) {
		connections_end(m, 0);
		connection_gone(m, 0);
	}
	for (uint32_t i = 0; i < m->peer_count; i++)
		connect_try(m, i);
	session_tick(m->session, now_of(m));
	groups_look(m);
	step(m);
	if (m->state == MEMBER_ENDED)
		return;
	do
		datagrams_out(m);
	while (session_work(m->session, now_of(m)));
	session_check(m->session);
	step(m);
	if (m->state == MEMBER_ENDED)
		return;
	lines_out(m);
	wake_again(m);
}

/* What comes by a connection or from an aggregator of an earlier membership is not for this one. */
static void take(struct sim_member *m, const struct sim_event *event)
{
	for (uint32_t i = 0; i < m->peer_count; i++) {
		if (m->peers[i].place != event->from)
			continue;
		if (event->kind == SIM_DATAGRAM)
			session_datagram(m->session, i,
			                 &(struct arrival){.data = event->data,
			                                   .bytes = event->bytes,
			                                   .came_us = event->came_us,
			                                   .marked = event->marked},
			                 now_of(m));
		else if (event->connection != m->peers[i].connection)
			continue;
		else if (event->kind == SIM_LINE)
			session_line(m->session, i, (const char *)event->data, now_of(m));
		else if (event->kind == SIM_GONE)
			connection_gone(m, i);
	}
}

void member_event(struct sim_member *m, struct sim_event *event)
{
	if (m->dead || m->state == MEMBER_ENDED)
		return;
	if (m->session != NULL && event->kind != SIM_TIMER)
		take(m, event);
	member_run(m);
}

void member_open(struct world *world, uint32_t number)
{
	struct sim_member *m = &world->members->list[number];
	bool founder = number < world->members->spec->founders;

	m->world = world;
	m->spec = &world->spec->workers[number];
	m->number = number;
	m->node = world->spec->aggregator_count + number;
	m->rank = number % (world->members->spec->founders + 1); /* a newcomer: that it had */
	m->world_size = founder ? world->members->spec->founders : 0;
	m->at_door = !founder;
	m->holds = founder;
	m->wake_us = NEVER;
	snprintf(m->job, sizeof(m->job), "job");
	world->workers[number].spec = m->spec;
	world->workers[number].node = m->node;
	simnet_timer(world->net, m->node, TIMER_CONNECT,
	             founder ? 0 : simnet_between(world->net, 0, 300000));
}

void member_close(struct sim_member *m)
{
	if (m->session != NULL)
		session_close(m->session);
}
