// SPDX-License-Identifier: BSD-3-Clause
/* sum.c - chooses an engine of sum.h; compiled for the baseline CPU */

#include "aggregator/net/dpdk/sum_loop.h"

const struct sum_engine *const sum_engines[] = {&sum_any, &sum_avx2, NULL};

bool sum_cpu_any(void)
{
	return true;
}

bool sum_cpu_avx2(void)
{
	return __builtin_cpu_supports("avx2");
}

sum_fn *sum_best(void)
{
	sum_fn *best = sum_engines[0]->sum;

	for (size_t i = 0; sum_engines[i] != NULL; i++)
		if (sum_engines[i]->usable())
			best = sum_engines[i]->sum;
	return best;
}
