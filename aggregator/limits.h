/* SPDX-License-Identifier: BSD-3-Clause */
/* limits.h - the memory and descriptors that the system grants, and what winnowd may use of them */
#ifndef AGGREGATOR_LIMITS_H
#define AGGREGATOR_LIMITS_H

#include <stdint.h>

#include "bitmap/why.h"

/*
 * limits_memory - bytes that this process may use: the least of the machine's memory and the limits
 * of its cgroups, v1 and v2, its own and those above. `root` is put before /proc and /sys: "", or a
 * test's folder.
 */
uint64_t limits_memory(const char *root);

/*
 * limits_bytes - the memory that jobs may use: three quarters of what limits_memory() leaves after
 * this process's own memory and the `kernel_bytes` that the kernel holds for it, and at most
 * `preset`. Logs if it is less.
 */
uint64_t limits_bytes(uint64_t preset, uint64_t kernel_bytes);

/* limits_open - the number of descriptors that are open now. */
uint32_t limits_open(void);

/*
 * limits_descriptors - raises the soft limit of open descriptors to `wanted`, as far as the hard
 * limit allows. Returns the limit: `wanted`, or fewer.
 */
uint32_t limits_descriptors(uint32_t wanted);

/*
 * limits_connections - finds a descriptor for each of `wanted` connections, beside the descriptors
 * that are open now and `others` to come. If there are fewer, sets *out to the number that fits,
 * and logs. Returns 0, or -EMFILE with one line in `why` if hardly any fits.
 */
int limits_connections(uint32_t wanted, uint32_t others, uint32_t *out, struct why *why);

#endif /* AGGREGATOR_LIMITS_H */
