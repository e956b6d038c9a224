/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * budget.h - how much of a thread's time goes to one of those who want some
 *
 * A share of the time comes in steadily and is kept up to a limit, so that somebody who comes rarely does not wait.
 * Time is spent first and then counted: more than the limit may have been spent, and then its owner waits. Pure.
 */
#ifndef AGGREGATOR_BUDGET_H
#define AGGREGATOR_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#define BUDGET_SHARE 5        /* One part in so many of the time comes in. */
#define BUDGET_MOST_US 400000 /* So much is kept, and may be spent at once. */

/* All zero: full. */
struct budget {
	int64_t spent_us; /* What has been spent, less what has come in since; never below zero. */
	uint64_t counted_us; /* What had come in by this time is counted. */
};

/* True: it may spend. */
static inline bool budget_open(struct budget *budget, uint64_t now_us)
{
	const int64_t in_us = (int64_t)((now_us - budget->counted_us) / BUDGET_SHARE);

	budget->spent_us = budget->spent_us > in_us ? budget->spent_us - in_us : 0;
	budget->counted_us += (uint64_t)in_us * BUDGET_SHARE;
	return budget->spent_us < BUDGET_MOST_US;
}

static inline void budget_spend(struct budget *budget, uint64_t us)
{
	budget->spent_us += (int64_t)us;
}

#endif /* AGGREGATOR_BUDGET_H */
