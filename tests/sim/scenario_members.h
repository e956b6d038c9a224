/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * scenario_members.h - worlds whose members come and go: every death of small ones, one by one; others from seeds
 */
#ifndef TESTS_SIM_SCENARIO_MEMBERS_H
#define TESTS_SIM_SCENARIO_MEMBERS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * members_walk - worlds of 2 to 4 workers and 1 or 2 aggregators, or of these alone: before each event a death,
 * of everybody, in every manner; and a second one before every `stride`-th of the events after it. Stride 0: no
 * second one, at most 3 workers, manners in turn. False: a world was wrong.
 */
bool members_walk(uint32_t stride, uint32_t workers, uint32_t aggregators);

/* A worker that is cut off, and an aggregator that is killed meanwhile: not both halves of the job may continue. */
bool members_split(void);

/* One of them: WORKERS AGGREGATORS SEED KIND:NODE@EVENT[+MS].. */
bool members_replay(int argc, char **argv);

bool members_seeds(uint64_t from, uint64_t count); /* one: with words */

#endif /* TESTS_SIM_SCENARIO_MEMBERS_H */
