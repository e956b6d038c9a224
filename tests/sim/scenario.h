/* SPDX-License-Identifier: BSD-3-Clause */
/* scenario.h - worlds: from seeds, where every one is different, and the same every time; and those that have names */
#ifndef TESTS_SIM_SCENARIO_H
#define TESTS_SIM_SCENARIO_H

#include <stddef.h>

#include "tests/sim/dice.h"
#include "tests/sim/world.h"

/* The shortest silence time of a worker in a world from a seed: nobody notices a fault of half of that. */
#define SILENCE_US_MIN 1000000

/* scenario.c. A world's `workers` are freed by scenario_free(). */
void scenario_make(uint64_t seed, struct world_spec *out);
void scenario_free(struct world_spec *spec);

/* A world with two levels: a parent, sites of it, and workers at these and at the parent. */
void scenario_sites(uint64_t seed, struct world_spec *out);

/* One line about it. */
void scenario_describe(const struct world_spec *spec, char *text, size_t room);

/* An aggregator of one thread and `jobs` of `world` workers, `delay_us` one way; nothing has a rate, all is large enough. */
void scenario_calm(struct world_spec *out, const char *name, uint32_t jobs, uint32_t world,
                   uint64_t delay_us);

/* scenario_job.c: draws what a job does and what happens to it. The world has its aggregators and its job_count. */
void scenario_job(struct dice *dice, const struct world_spec *spec, struct job_spec *job);

/*
 * scenario_class.c: worlds of a kind, where it is known what the effort may be. Most seeds are worlds of any kind,
 * and little but their results can be judged. One seed in eight belongs to a class: alike in what matters, so that
 * there is a bound for what they send again, and how long they take, which a machine that does not back off, or does
 * not shrink its window, does not keep. False: the seed belongs to no class.
 */
bool scenario_class(uint64_t seed, struct dice *dice, struct world_spec *out);

/*
 * scenario_members.c: worlds of 2 to 4 workers and 1 or 2 aggregators, or of these alone: before each event a death,
 * of everybody, in every manner; and a second one before every `stride`-th of the events after it. Stride 0: no
 * second one, at most 3 workers, manners in turn. False: a world was wrong.
 */
bool members_walk(uint32_t stride, uint32_t workers, uint32_t aggregators);

/* A worker that is cut off, and an aggregator that is killed meanwhile: not both halves of the job may continue. */
bool members_split(void);

/* One of them: WORKERS AGGREGATORS SEED KIND:NODE@EVENT[+MS].. */
bool members_replay(int argc, char **argv);

bool members_seeds(uint64_t from, uint64_t count); /* one: with words */

/*
 * scenario_breaker.c: worlds in which a path loses much for long. Does the circuit breaker end the job, and only then?
 * All of them, a line each; false: one went otherwise than it should.
 */
bool breaker_worlds(void);

/*
 * share.c: named worlds in which jobs share queues, what they are like, and what they should be like. A table of the
 * world `name`, or of all (NULL). False: what must be met is not, or no world is called so.
 */
bool share_run(const char *name);
void share_list(void);

#endif /* TESTS_SIM_SCENARIO_H */
