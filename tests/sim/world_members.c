// SPDX-License-Identifier: BSD-3-Clause
/*
 * world_members.c - what happens to members, and the book of memberships that finds what is mixed
 *
 * Every worker gives other numbers in each membership and turn. The book has who is in a membership in
 * which rank, so there is one right result for each operation, and nothing else may come out. It also has
 * when each membership made progress: none does once a later one has.
 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world_impl.h"

/* Timers of the world's own node. */
#define TIMER_RELEASE 0
#define TIMER_REVIVE 1 /* and up, by aggregator */

#define HELD_DATAGRAMS_MAX 64 /* in the socket of a process that stands still */
#define HOLE_BYTES 200        /* of a line that passes a hole: HELLO does, JOIN does not */

static uint32_t node_count(const struct world *world)
{
	return world->spec->aggregator_count + world->spec->worker_count;
}

/* ---- what arrives, and when ---- */

bool members_apart(const struct world *world, uint32_t one, uint32_t other)
{
	const struct sim_members *members = world->members;

	return simnet_now(world->net) <= members->whole_us &&
	       ((members->halves >> one ^ members->halves >> other) & 1);
}

/* A line waits with those before it on its connection. */
static bool held_before(const struct sim_members *members, const struct sim_event *event)
{
	for (uint32_t i = 0; i < members->held_count; i++) {
		const struct sim_event *held = &members->held[i];

		if (held->kind == SIM_LINE && held->from == event->from &&
		    held->connection == event->connection &&
		    (held->at_us < event->at_us ||
		     (held->at_us == event->at_us && held->order < event->order)))
			return true;
	}
	return false;
}

static bool in_hole(const struct world *world, const struct sim_event *event)
{
	const struct sim_members *members = world->members;

	return simnet_now(world->net) <= members->hole_us && event->kind == SIM_LINE &&
	       event->from == members->hole && event->to == 0 &&
	       (event->bytes > HOLE_BYTES || held_before(members, event));
}

static bool blocked(const struct world *world, const struct sim_event *event)
{
	if (event->to >= node_count(world))
		return false;
	return simnet_now(world->net) <= world->members->frozen_until_us[event->to] ||
	       in_hole(world, event) ||
	       (event->kind != SIM_TIMER && event->from < node_count(world) &&
	        members_apart(world, event->from, event->to));
}

static void hold(struct sim_members *members, struct sim_event *event)
{
	members->held = realloc(members->held, (members->held_count + 1) * sizeof(*members->held));
	members->held[members->held_count++] = *event;
	event->data = NULL;
}

/* A datagram is lost where its way is cut, and stays in the socket of one that stands still. */
static bool waits(struct world *world, struct sim_event *event)
{
	struct sim_members *members = world->members;
	uint32_t waiting = 0;

	if (!blocked(world, event))
		return false;
	for (uint32_t i = 0; i < members->held_count; i++)
		waiting += members->held[i].kind == SIM_DATAGRAM;
	if (event->kind != SIM_DATAGRAM ||
	    (!members_apart(world, event->from, event->to) && waiting < HELD_DATAGRAMS_MAX))
		hold(members, event);
	return true;
}

static void release(struct world *world)
{
	struct sim_members *members = world->members;

	for (uint32_t i = 0; i < members->held_count;) {
		struct sim_event event = members->held[i];

		if (blocked(world, &event)) {
			i++;
			continue;
		}
		members->held_count--;
		memmove(&members->held[i], &members->held[i + 1],
		        (members->held_count - i) * sizeof(event));
		world_deliver(world, &event);
	}
}

/* It was under way from one that has ended so that this is lost. */
static bool is_cut(const struct world *world, const struct sim_event *event)
{
	const struct sim_peer *peer;

	if (event->kind == SIM_TIMER || event->kind == SIM_GONE || event->from >= node_count(world))
		return false;
	if (world->members->mute[event->from])
		return true;
	if (event->kind != SIM_LINE)
		return false;
	peer = world->peers[event->connection];
	return peer->cut_short && event->from == peer->aggregator->node;
}

/* ---- what happens ---- */

static void aggregator_strike(struct world *world, const struct member_fault *fault)
{
	struct sim_aggregator *a = &world->aggregators[fault->node];

	if (a->dead)
		return;
	if (fault->kind != MEMBER_KILL) {
		world->members->mute[fault->node] = true;
		for (uint32_t i = 1; i <= world->peer_count; i++)
			if (world->peers[i]->aggregator == a)
				world->peers[i]->cut_short = true;
	}
	aggregator_kill(a, fault->kind != MEMBER_SILENT);
	if (fault->for_us > 0)
		simnet_timer(world->net, world->nobody, TIMER_REVIVE + fault->node,
		             simnet_now(world->net) + fault->for_us);
}

static void worker_strike(struct world *world, const struct member_fault *fault)
{
	struct sim_member *m = &world->members->list[fault->node - world->spec->aggregator_count];

	if (m->dead)
		return;
	world->members->mute[m->node] = fault->kind != MEMBER_KILL;
	member_die(m, fault->kind != MEMBER_SILENT);
}

static bool settled(const struct sim_member *m)
{
	return m->state == MEMBER_WORKS && session_state(m->session) == SESSION_RUNNING;
}

/*
 * An aggregator's host dies amid a change: whom this aggregator has told how to continue the others may not know.
 * Where its process alone dies, what it has said arrives.
 */
static bool divides(const struct world *world, const struct member_fault *fault)
{
	const struct sim_members *members = world->members;
	bool all = true;

	for (uint32_t i = 0; i < world->spec->worker_count; i++)
		all = all && (members->list[i].dead || members->list[i].roll == 0 ||
		              settled(&members->list[i]));
	return fault->node < world->spec->aggregator_count && !all &&
	       (fault->kind == MEMBER_CUT || fault->kind == MEMBER_SILENT);
}

static void strike(struct world *world, const struct member_fault *fault)
{
	struct sim_members *members = world->members;
	uint64_t until_us = simnet_now(world->net) + fault->for_us;

	if (members->spec->verbose)
		printf("%.6f #%llu fault %d of node %u, for %llu us\n",
		       (double)simnet_now(world->net) / 1e6, (unsigned long long)members->events,
		       (int)fault->kind, fault->node, (unsigned long long)fault->for_us);
	members->early = members->early || !members->all_began || divides(world, fault);
	members->late = members->late || members->leaving;
	if (until_us > members->calm_us)
		members->calm_us = until_us;
	if (fault->kind == MEMBER_FREEZE) {
		members->frozen_until_us[fault->node] = until_us;
	} else if (fault->kind == MEMBER_SEVER) {
		members->halves = fault->node;
		members->whole_us = until_us;
	} else if (fault->kind == MEMBER_HOLE) {
		members->hole = fault->node;
		members->hole_us = until_us;
	} else if (fault->node < world->spec->aggregator_count) {
		aggregator_strike(world, fault);
		return;
	} else {
		worker_strike(world, fault);
		return;
	}
	simnet_timer(world->net, world->nobody, TIMER_RELEASE, until_us + 1);
}

static void show(const struct world *world, const struct sim_event *event)
{
	static const char ping[] = "{\"type\":\"ping\"";
	const char *line = event->kind == SIM_LINE ? (const char *)event->data : "";

	if (!world->members->spec->verbose || strncmp(line, ping, sizeof(ping) - 1) == 0 ||
	    (event->kind != SIM_LINE && event->kind != SIM_GONE))
		return;
	printf("%.6f #%llu %u to %u, connection %u: %.*s\n", (double)event->at_us / 1e6,
	       (unsigned long long)world->members->events, event->from, event->to,
	       event->connection, event->kind == SIM_GONE ? 4 : (int)strcspn(line, "\n"),
	       event->kind == SIM_GONE ? "gone" : line);
}

bool members_keep(struct world *world, struct sim_event *event)
{
	struct sim_members *members = world->members;

	if (members->held_count > 0)
		release(world);
	show(world, event);
	if (event->kind != SIM_TIMER && !event->again) {
		for (uint32_t i = 0; i < members->spec->fault_count; i++)
			if (members->spec->faults[i].at == members->events)
				strike(world, &members->spec->faults[i]);
		members->events++;
	}
	return is_cut(world, event) || waits(world, event);
}

void members_timer(struct world *world, uint32_t timer)
{
	if (timer == TIMER_RELEASE)
		return; /* that it is time is enough */
	world->members->mute[timer - TIMER_REVIVE] = false;
	aggregator_revive(&world->aggregators[timer - TIMER_REVIVE]);
}

/* ---- the book ---- */

static struct roll *roll_named(struct sim_members *members, const char *name)
{
	struct roll *roll;

	for (uint32_t i = 1; i <= members->roll_count; i++)
		if (strcmp(members->rolls[i].name, name) == 0)
			return &members->rolls[i];
	members->roll_count++;
	members->rolls = realloc(members->rolls, (members->roll_count + 1) * sizeof(*roll));
	roll = &members->rolls[members->roll_count];
	*roll = (struct roll){0};
	snprintf(roll->name, sizeof(roll->name), "%s", name);
	roll->number = message_name_number(name);
	return roll;
}

void roll_enter(struct sim_member *m)
{
	struct sim_members *members = m->world->members;
	struct roll *roll = roll_named(members, m->job);
	uint32_t number = (uint32_t)(roll - members->rolls);

	if (roll->world != 0 && roll->world != m->world_size)
		world_fail(m->world, "'%s' has %u workers, and %u by what worker %u was told",
		           m->job, roll->world, m->world_size, m->number);
	roll->world = m->world_size;
	if (m->rank >= roll->world || roll->world > MEMBERS_MAX ||
	    (roll->who[m->rank] != 0 && roll->who[m->rank] != m->number + 1)) {
		world_fail(m->world, "rank %u of %u in '%s' is worker %u's, and another one's",
		           m->rank, roll->world, m->job, m->number);
		return;
	}
	roll->who[m->rank] = m->number + 1;
	m->roll = number;
}

void roll_begins(struct sim_member *m)
{
	struct sim_members *members = m->world->members;
	bool all = true;

	m->world->out->begun += !members->rolls[m->roll].begun;
	members->rolls[m->roll].begun = true;
	for (uint32_t i = 0; i < members->spec->founders; i++)
		all = all && members->list[i].state == MEMBER_WORKS;
	members->all_began = members->all_began || all;
}

uint64_t roll_seed(const struct sim_member *m, uint32_t op)
{
	return m->world->members->rolls[m->roll].number * 131 + m->ops[op].task.tag * 8191;
}

/* What elements share that have the same number. */
static uint32_t block_of(uint32_t op, uint32_t element)
{
	return op == 0 ? element : element / 64;
}

/* What a worker gives to this one's operation: mostly zeros, where that may be. */
int32_t roll_gives(uint64_t seed, uint32_t who, uint32_t op, uint32_t element)
{
	uint64_t z = seed + block_of(op, element) * UINT64_C(31) + who * UINT64_C(1000003);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	z ^= z >> 31;
	return op == 0 || z % 3 == 0 ? (int32_t)(1 + z / 3 % 1000) : 0;
}

static double found_at(const struct member_op *op, uint32_t element)
{
	float real;

	if (op->task.dtype != DTYPE_F32)
		return op->recv[element];
	memcpy(&real, &op->recv[element], sizeof(real));
	return (double)real;
}

static double roll_wants(const struct roll *roll, const struct member_op *op, uint64_t seed,
                         uint32_t element)
{
	uint32_t number = (uint32_t)(op - op->member->ops);
	double sum = 0;

	for (uint32_t rank = 0; rank < roll->world; rank++)
		sum += roll_gives(seed, roll->who[rank] - 1, number, element);
	return sum / (op->task.reduction == REDUCE_AVG ? roll->world : 1);
}

void roll_calls(const struct sim_member *m, uint32_t op)
{
	m->world->members->rolls[m->roll].called_us[m->ops[op].task.tag] =
		simnet_now(m->world->net);
}

/* An operation is over: had a later membership made progress before all had called this one? */
static void roll_progress(const struct sim_member *m, uint64_t tag)
{
	struct sim_members *members = m->world->members;
	struct roll *roll = &members->rolls[m->roll];

	for (uint32_t i = 1; i <= members->roll_count; i++) {
		const struct roll *later = &members->rolls[i];

		if (later->number > roll->number && later->progress_us != 0 &&
		    later->progress_us < roll->called_us[tag])
			world_fail(m->world, "'%s' makes progress after '%s'", roll->name,
			           later->name);
	}
	if (roll->progress_us == 0)
		roll->progress_us = simnet_now(m->world->net);
}

void roll_check(const struct sim_member *m, uint32_t number)
{
	const struct roll *roll = &m->world->members->rolls[m->roll];
	const struct member_op *op = &m->ops[number];
	uint64_t seed = roll_seed(m, number);
	double want = 0;

	roll_progress(m, op->task.tag);
	for (uint32_t rank = 0; rank < roll->world; rank++)
		if (roll->who[rank] == 0)
			world_fail(m->world,
			           "'%s': worker %u has a result, and rank %u has never come",
			           m->job, m->number, rank);
	for (uint32_t i = 0; i < op->task.count && number < 2 && !m->world->failed; i++) {
		double found = found_at(op, i);

		if (i == 0 || block_of(number, i) != block_of(number, i - 1))
			want = roll_wants(roll, op, seed, i);
		if (fabs(found - want) > fabs(want) * 1e-6)
			world_fail(m->world,
			           "'%s' of %u, operation %llu: element %u is %.9g on worker %u, "
			           "want %.9g",
			           m->job, roll->world, (unsigned long long)op->task.tag, i, found,
			           m->number, want);
	}
}

/* ---- the end ---- */

static bool outside(const struct sim_member *m)
{
	return m->dead || m->state == MEMBER_ENDED || m->roll == 0;
}

bool members_over(struct world *world)
{
	struct sim_members *members = world->members;
	uint64_t rest_us = 2 * world->spec->workers[0].silence_us;
	uint32_t in = 0;

	for (uint32_t i = 0; i < world->spec->worker_count; i++)
		in += !members->list[i].dead && members->list[i].state != MEMBER_ENDED;
	if (simnet_now(world->net) < members->calm_us + rest_us)
		return false;
	if (in == 0 || members->leaving)
		return in == 0;
	in = 0;
	for (uint32_t i = 0; i < world->spec->worker_count; i++) {
		const struct sim_member *m = &members->list[i];

		if (outside(m))
			continue;
		if (!member_idle(m))
			return false;
		if (in != 0 && in != m->roll)
			world_fail(world, "two halves are at work: in '%s' and in '%s'",
			           members->rolls[in].name, m->job);
		in = m->roll;
	}
	members->leaving = true;
	for (uint32_t i = 0; i < world->spec->worker_count; i++)
		if (!outside(&members->list[i]))
			member_run(&members->list[i]);
	return false;
}

void members_hang(struct world *world)
{
	for (uint32_t i = 0; i < world->spec->worker_count; i++) {
		const struct sim_member *m = &world->members->list[i];

		if (!m->dead && m->state != MEMBER_ENDED)
			world_fail(world,
			           "hang: worker %u in '%s', rank %u of %u, state %d, turn %u, %u "
			           "open, session %d: %s",
			           m->number, m->job, m->rank, m->world_size, m->state, m->turn,
			           m->open, session_state(m->session), session_error(m->session));
	}
}

/*
 * Must this worker, which lives, continue? Yes if nothing but deaths has happened, while all were members, and the
 * decider, if it has died, is back.
 */
static bool must_continue(const struct sim_member *m)
{
	const struct sim_members *members = m->world->members;

	if (members->early || members->late || m->world->aggregators[0].dead)
		return false;
	for (uint32_t i = 0; i < members->spec->fault_count; i++)
		if (members->spec->faults[i].at < members->events &&
		    members->spec->faults[i].kind >= MEMBER_FREEZE)
			return false;
	return m->holds;
}

void members_judge(struct world *world)
{
	for (uint32_t i = 0; i < world->spec->worker_count; i++) {
		const struct sim_member *m = &world->members->list[i];

		if (m->dead || !m->stuck || m->roll == 0)
			continue;
		world->out->stuck++;
		if (must_continue(m))
			world_fail(world, "worker %u in '%s' cannot continue: %s", m->number,
			           m->job, m->why);
	}
	world->out->events = world->members->events;
}

void members_open(struct world *world)
{
	world->members = calloc(1, sizeof(*world->members));
	world->members->spec = world->spec->members;
	for (uint32_t i = 0; i < world->spec->worker_count; i++)
		member_open(world, i);
}

void members_close(struct world *world)
{
	struct sim_members *members = world->members;

	if (members == NULL)
		return;
	for (uint32_t i = 0; i < world->spec->worker_count; i++)
		member_close(&members->list[i]);
	for (uint32_t i = 0; i < members->held_count; i++)
		simnet_free(&members->held[i]);
	free(members->held);
	free(members->rolls);
	free(members);
}
