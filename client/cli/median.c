// SPDX-License-Identifier: BSD-3-Clause
/* median.c - see median.h */

#include "client/cli/median.h"

#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double median(double values[], uint64_t count)
{
	qsort(values, count, sizeof(values[0]), ascending);
	return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}
