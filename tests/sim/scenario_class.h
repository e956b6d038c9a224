/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * scenario_class.h - worlds of a kind, where it is known what the effort may be
 *
 * Most seeds are worlds of any kind, and little but their results can be judged. One seed in eight belongs
 * to a class: alike in what matters, so that there is a bound for what they send again, and how long they
 * take, which a machine that does not back off, or does not shrink its window, does not keep.
 */
#ifndef TESTS_SIM_SCENARIO_CLASS_H
#define TESTS_SIM_SCENARIO_CLASS_H

#include "tests/sim/dice.h"
#include "tests/sim/world.h"

/* False: the seed belongs to no class. */
bool scenario_class(uint64_t seed, struct dice *dice, struct world_spec *out);

#endif /* TESTS_SIM_SCENARIO_CLASS_H */
