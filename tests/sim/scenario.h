/* SPDX-License-Identifier: BSD-3-Clause */
/* scenario.h - a world from a seed: every seed is a different one, and the same every time */
#ifndef TESTS_SIM_SCENARIO_H
#define TESTS_SIM_SCENARIO_H

#include <stddef.h>

#include "tests/sim/world.h"

void scenario_make(uint64_t seed, struct world_spec *out);
void scenario_free(struct world_spec *spec);

/* One line about it. */
void scenario_describe(const struct world_spec *spec, char *text, size_t room);

#endif /* TESTS_SIM_SCENARIO_H */
