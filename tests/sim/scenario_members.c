// SPDX-License-Identifier: BSD-3-Clause
/* scenario_members.c - see scenario.h */

#include "tests/sim/scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_US 300000000
#define WRONG_MAX 5

static const char *const kinds[] = {
	[MEMBER_KILL] = "kill",     [MEMBER_CUT] = "cut",     [MEMBER_SILENT] = "silent",
	[MEMBER_FREEZE] = "freeze", [MEMBER_SEVER] = "sever", [MEMBER_HOLE] = "hole",
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

struct scene {
	struct world_spec world;
	struct worker_spec workers[MEMBERS_MAX];
	struct members_spec members;
};

struct tally {
	uint64_t worlds, wrong, stuck, begun, operations;
};

/* ---- a world ---- */

static void scene_make(struct scene *scene, uint32_t workers, uint32_t aggregators, uint64_t seed)
{
	const struct simnet_path way = {.delay_us_min = 20, .delay_us_max = 60};

	*scene = (struct scene){.world = {.seed = seed,
	                                  .class_name = "members",
	                                  .aggregator_count = aggregators,
	                                  .worker_count = workers,
	                                  .limit_us = LIMIT_US},
	                        .members = {.founders = workers, .turns = 2, .pause_us = 2000}};
	scene->world.workers = scene->workers;
	scene->world.members = &scene->members;
	for (uint32_t i = 0; i < aggregators; i++)
		scene->world.aggregators[i] = (struct aggregator_spec){.out = way,
		                                                       .in = way,
		                                                       .rcvbuf = 1 << 20,
		                                                       .threads = 1,
		                                                       .payload_max = 584,
		                                                       .window_bytes = 8192,
		                                                       .op_slots = 4,
		                                                       .segments_ahead = 1};
	for (uint32_t i = 0; i < workers; i++)
		scene->workers[i] = (struct worker_spec){.out = way,
		                                         .in = way,
		                                         .connect_us = 50 + 10 * i,
		                                         .rcvbuf = 1 << 20,
		                                         .payload = 584,
		                                         .hears_multicast = seed % 2 == 0,
		                                         .silence_us = 300000,
		                                         .stall_us = 1200000};
}

static void describe(const struct scene *scene, char *text, size_t room)
{
	size_t used = (size_t)snprintf(text, room, "%u %u %llu", scene->members.founders,
	                               scene->world.aggregator_count,
	                               (unsigned long long)scene->world.seed);

	for (uint32_t i = 0; i < scene->members.fault_count && used < room; i++) {
		const struct member_fault *fault = &scene->members.faults[i];

		used += (size_t)snprintf(text + used, room - used, " %s:%u@%llu",
		                         kinds[fault->kind], fault->node,
		                         (unsigned long long)fault->at);
		if (fault->for_us > 0 && used < room)
			used += (size_t)snprintf(text + used, room - used, "+%llu",
			                         (unsigned long long)fault->for_us / 1000);
	}
}

/* Returns how many events it had. */
static uint64_t run(const struct scene *scene, struct tally *tally)
{
	struct world_outcome outcome;
	char text[256];

	world_run(&scene->world, &outcome);
	tally->worlds++;
	tally->stuck += outcome.stuck > 0;
	tally->begun += outcome.begun;
	tally->operations += outcome.operations;
	if (!outcome.ok) {
		tally->wrong++;
		describe(scene, text, sizeof(text));
		printf("wrong: %s\n  in: %s\n", outcome.why, text);
	}
	return outcome.events;
}

/* ---- every death ---- */

static uint32_t nodes_of(const struct scene *scene)
{
	return scene->world.aggregator_count + scene->world.worker_count;
}

/* What node `node` may die of as death `index`, before event `at`, and how long for. */
static void death_set(struct scene *scene, uint32_t index, uint32_t kind, uint32_t node,
                      uint64_t at)
{
	scene->members.faults[index] =
		(struct member_fault){.kind = (enum member_fault_kind)kind, .node = node, .at = at};
	scene->members.fault_count = index + 1;
	/* The only aggregator comes back. */
	if (node < scene->world.aggregator_count && scene->world.aggregator_count == 1)
		scene->members.faults[index].for_us = 400000;
}

static void second_deaths(struct scene *scene, uint64_t events, uint32_t stride,
                          struct tally *tally)
{
	const struct member_fault first = scene->members.faults[0];
	uint64_t phase = (first.at * 7 + first.node * 3 + first.kind) % stride;

	for (uint64_t at = first.at + phase; at < events; at += stride)
		for (uint32_t node = 0; node < nodes_of(scene); node++)
			if (node != first.node && tally->wrong < WRONG_MAX) {
				death_set(scene, 1, (uint32_t)((at + node) % MEMBER_FREEZE), node,
				          at);
				run(scene, tally);
			}
	scene->members.fault_count = 1;
}

static bool walk(uint32_t workers, uint32_t aggregators, uint32_t stride)
{
	struct tally none = {0}, one = {0}, two = {0};
	struct scene scene;
	uint64_t events;

	scene_make(&scene, workers, aggregators, workers + aggregators);
	events = run(&scene, &none);
	for (uint64_t at = 0; at < events && one.wrong + two.wrong < WRONG_MAX; at++)
		for (uint32_t node = 0; node < nodes_of(&scene); node++)
			for (uint32_t kind = 0; kind < MEMBER_FREEZE; kind++) {
				uint64_t more;

				if (stride == 0 && kind != (at + node) % MEMBER_FREEZE)
					continue;
				death_set(&scene, 0, kind, node, at);
				more = run(&scene, &one);
				if (stride > 0)
					second_deaths(&scene, more, stride, &two);
			}
	printf("%u workers, %u aggregators: %llu events; one death: %llu worlds, in %llu some "
	       "cannot continue; two: %llu worlds, %llu; %llu memberships, %llu results right, "
	       "%llu worlds wrong\n",
	       workers, aggregators, (unsigned long long)events, (unsigned long long)one.worlds,
	       (unsigned long long)one.stuck, (unsigned long long)two.worlds,
	       (unsigned long long)two.stuck, (unsigned long long)(one.begun + two.begun),
	       (unsigned long long)(one.operations + two.operations),
	       (unsigned long long)(none.wrong + one.wrong + two.wrong));
	fflush(stdout);
	if (none.wrong + one.wrong + two.wrong > 0)
		printf("  replay: sim --death, and what stands behind \"in:\"\n");
	return none.wrong + one.wrong + two.wrong == 0;
}

bool members_walk(uint32_t stride, uint32_t workers, uint32_t aggregators)
{
	bool right = true;

	if (workers > 0)
		return walk(workers, aggregators, stride);
	for (workers = 2; workers <= (stride > 0 ? 4 : 3); workers++)
		for (aggregators = 1; aggregators <= 2; aggregators++)
			right = walk(workers, aggregators, stride) && right;
	return right;
}

/* Prints what it counted. Returns whether nothing was wrong. */
static bool tally_end(const struct tally *tally)
{
	printf("%llu worlds, in %llu some cannot continue; %llu memberships, %llu results right, "
	       "%llu worlds wrong\n",
	       (unsigned long long)tally->worlds, (unsigned long long)tally->stuck,
	       (unsigned long long)tally->begun, (unsigned long long)tally->operations,
	       (unsigned long long)tally->wrong);
	return tally->wrong == 0;
}

/*
 * A worker is cut off from both aggregators while it is in a membership that an aggregator has named, so that it
 * comes to that once more. The first aggregator then hears its HELLO and not its JOIN, and the second one, which is
 * killed before some event and comes back, has forgotten how the other worker went on.
 */
static bool splits(uint64_t seed, uint64_t at, struct tally *tally)
{
	struct scene scene;

	scene_make(&scene, 3, 2, seed);
	scene.members.fault_count = 4;
	scene.members.faults[0] = (struct member_fault){.kind = MEMBER_KILL, .node = 4, .at = 60};
	scene.members.faults[1] = (struct member_fault){
		.kind = MEMBER_SEVER, .node = 1 << 2, .at = 180, .for_us = 900000};
	scene.members.faults[2] =
		(struct member_fault){.kind = MEMBER_HOLE, .node = 2, .at = 180, .for_us = 4000000};
	scene.members.faults[3] =
		(struct member_fault){.kind = MEMBER_KILL, .node = 1, .at = at, .for_us = 100000};
	run(&scene, tally);
	return tally->wrong < WRONG_MAX;
}

bool members_split(void)
{
	struct tally tally = {0};

	for (uint64_t seed = 1; seed <= 30; seed++)
		for (uint64_t at = 200; at <= 600 && splits(seed, at, &tally); at += 10)
			;
	return tally_end(&tally);
}

static bool fault_read(const char *text, struct member_fault *out)
{
	unsigned long long at, for_ms = 0;
	char name[16];
	unsigned node;

	if (sscanf(text, "%15[a-z]:%u@%llu+%llu", name, &node, &at, &for_ms) < 3)
		return false;
	for (uint32_t kind = 0; kind < KINDS; kind++) {
		if (strcmp(name, kinds[kind]) != 0)
			continue;
		*out = (struct member_fault){.kind = (enum member_fault_kind)kind,
		                             .node = node,
		                             .at = at,
		                             .for_us = for_ms * 1000};
		return true;
	}
	return false;
}

bool members_replay(int argc, char **argv)
{
	struct tally tally = {0};
	struct scene scene;
	uint64_t events;

	if (argc < 3 || argc > 3 + MEMBER_FAULTS_MAX)
		return false;
	scene_make(&scene, (uint32_t)atoi(argv[0]), (uint32_t)atoi(argv[1]),
	           strtoull(argv[2], NULL, 10));
	for (int i = 3; i < argc; i++)
		if (!fault_read(argv[i], &scene.members.faults[scene.members.fault_count++]))
			return false;
	scene.members.verbose = true;
	events = run(&scene, &tally);
	printf("%llu events, %llu memberships, %llu results right, %s\n",
	       (unsigned long long)events, (unsigned long long)tally.begun,
	       (unsigned long long)tally.operations,
	       tally.stuck > 0 ? "some cannot continue" : "all who live continue");
	return tally.wrong == 0;
}

/* ---- seeds ---- */

static struct simnet_path way_from(struct dice *dice, bool in)
{
	struct simnet_path way = {.delay_us_min = PICK(dice, 1, 20, 500)};

	way.delay_us_max = way.delay_us_min + PICK(dice, 0, 50, 2000);
	way.line_us = PICK(dice, 0, 0, 300, 20000);
	if (!in)
		return way;
	way.loss_ppm = PICK(dice, 0, 0, 10000, 100000, 300000);
	way.duplicate_ppm = PICK(dice, 0, 10000, 200000);
	way.reorder_ppm = PICK(dice, 0, 10000, 200000);
	way.reorder_us = 3000;
	return way;
}

static void scene_from(struct scene *scene, struct dice *dice, uint64_t seed)
{
	uint32_t founders = between(dice, 2, 6), newcomers = PICK(dice, 0, 0, 1, 2);
	bool lossy = false;

	scene_make(scene, founders + newcomers, between(dice, 1, 3), seed);
	scene->members.founders = founders;
	scene->members.turns = between(dice, 1, 5);
	scene->members.admit = newcomers > 0 ? between(dice, 1, 2) : 0;
	scene->members.pause_us = PICK(dice, 100, 2000, 50000);
	for (uint32_t i = 0; i < scene->world.aggregator_count; i++) {
		struct aggregator_spec *a = &scene->world.aggregators[i];

		a->out = way_from(dice, false);
		a->in = way_from(dice, true);
		a->threads = between(dice, 1, 2);
		a->fast = one_in(dice, 4);
		a->turn_us = PICK(dice, 0, 0, 200);
		lossy = lossy || a->in.loss_ppm > 10000;
	}
	for (uint32_t i = 0; i < founders + newcomers; i++) {
		struct worker_spec *w = &scene->workers[i];

		w->out = way_from(dice, false);
		w->in = way_from(dice, true);
		w->connect_us = between(dice, 0, 3000);
		w->hears_multicast = one_in(dice, 2);
		w->stall_us = 3000000;
		lossy = lossy || w->in.loss_ppm > 10000;
	}
	for (uint32_t i = 0; lossy && i < founders + newcomers; i++)
		scene->workers[i].stall_us = 30000000; /* slow is not stalled */
}

static void fault_from(struct scene *scene, struct dice *dice, uint64_t events)
{
	struct member_fault *fault = &scene->members.faults[scene->members.fault_count++];

	fault->kind = (enum member_fault_kind)between(dice, 0, KINDS - 1);
	fault->at = roll(dice) % (events * 5 / 4);
	fault->node = between(dice, 0, nodes_of(scene) - 1);
	if (fault->kind == MEMBER_SEVER)
		fault->node = between(dice, 1, (1u << nodes_of(scene)) - 2);
	if (fault->kind == MEMBER_SEVER || fault->kind == MEMBER_FREEZE)
		fault->for_us = PICK(dice, 30000, 200000, 500000, 2000000);
	else if (fault->node < scene->world.aggregator_count)
		fault->for_us = PICK(dice, 0, 10000, 300000, 1000000);
}

static void seed_run(uint64_t seed, bool verbose, struct tally *tally)
{
	struct dice dice = {.state = seed * 977};
	struct scene scene;
	char text[256];
	uint64_t events;

	scene_from(&scene, &dice, seed);
	events = run(&scene, tally);
	for (uint32_t i = between(&dice, 1, 5); i > 0; i--)
		fault_from(&scene, &dice, events);
	if (verbose) {
		describe(&scene, text, sizeof(text));
		printf("seed %llu: %u workers, %u newcomers: %s\n", (unsigned long long)seed,
		       scene.members.founders, scene.world.worker_count - scene.members.founders,
		       text);
		scene.members.verbose = true;
	}
	run(&scene, tally);
}

bool members_seeds(uint64_t from, uint64_t count)
{
	struct tally tally = {0};

	for (uint64_t seed = from; seed < from + count && tally.wrong < WRONG_MAX; seed++) {
		uint64_t wrong = tally.wrong;

		seed_run(seed, count == 1, &tally);
		if (tally.wrong > wrong)
			printf("  replay: sim --members %llu 1\n", (unsigned long long)seed);
	}
	return tally_end(&tally);
}
