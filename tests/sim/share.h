/* SPDX-License-Identifier: BSD-3-Clause */
/* share.h - a world in which jobs share queues, and what was measured in it; only for share*.c */
#ifndef TESTS_SIM_SHARE_H
#define TESTS_SIM_SHARE_H

#include "tests/sim/scenario.h"

#define SAMPLE_US 500

struct share {
	const char *name;
	struct world_spec spec;
	struct world_measures measures;
	struct world_outcome outcome;
	bool may_starve; /* it need not end in time */
	bool missed;     /* a bound that must be met */
};

/* From when to when all jobs run. */
void share_together(const struct share *s, uint64_t from_to_us[2]);

/* The first flow's part of what two flows send through a queue. Queues count from 1. */
double share_part(const struct share *s, uint32_t queue, const uint32_t flows[2],
                  const uint64_t from_to_us[2]);

/* What all flows send through a queue, of what its link could carry. */
double share_used(const struct share *s, uint32_t queue, const uint64_t from_to_us[2]);

/*
 * The time that `part` of a job's operations did not exceed, of those while all jobs ran: the others are forgotten.
 * NAN, which meets no goal, if there were none.
 */
double share_time_at(struct share *s, uint32_t job, double part);

/* From a job's first submission to the end of its last operation. */
double share_took_us(const struct share *s, uint32_t job);

/* How long a datagram waits in queue 1, on average from `from_us` until a job ends; HUGE_VAL if one ends before. */
double share_waiting_ms(const struct share *s, uint64_t from_us);

#endif /* TESTS_SIM_SHARE_H */
