/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * budget.h - how much of a thread's time goes to one of those who want some
 *
 * A share of the time comes in steadily and is kept up to a limit, so that who comes rarely waits for nothing. Time
 * is spent first and then counted: a budget may be below zero, and whoever it is waits until it is not. Pure.
 */
#ifndef AGGREGATOR_BUDGET_H
#define AGGREGATOR_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#define BUDGET_SHARE 5        /* one part in so many of the time, */
#define BUDGET_MOST_US 400000 /* and so much at once */

/* All zero: full. */
struct budget {
	int64_t spent_us;    /* less what has come in since; below zero never */
	uint64_t counted_us; /* when that was right */
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
