/* SPDX-License-Identifier: BSD-3-Clause */
/* median.h - the median of measurements */
#ifndef CLIENT_CLI_MEDIAN_H
#define CLIENT_CLI_MEDIAN_H

#include <stdint.h>

/* median - of `count` values, 1 at least. Afterwards they are in ascending order. */
double median(double values[], uint64_t count);

#endif /* CLIENT_CLI_MEDIAN_H */
