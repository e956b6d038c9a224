/* SPDX-License-Identifier: BSD-3-Clause */
/* scenario_breaker.h - worlds in which a path loses much for long: does the circuit breaker end the job, and only then? */
#ifndef TESTS_SIM_SCENARIO_BREAKER_H
#define TESTS_SIM_SCENARIO_BREAKER_H

#include <stdbool.h>

/* All of them, a line each; false: one went otherwise than it should. */
bool breaker_worlds(void);

#endif /* TESTS_SIM_SCENARIO_BREAKER_H */
