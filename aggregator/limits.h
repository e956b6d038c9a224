/* SPDX-License-Identifier: BSD-3-Clause */
/* limits.h - what the system grants this process, and what winnowd may have of it: memory, descriptors */
#ifndef AGGREGATOR_LIMITS_H
#define AGGREGATOR_LIMITS_H

#include <stdint.h>

#include "bitmap/why.h"

/*
 * limits_memory - bytes that this process may have: the least of the machine's memory and of the
 * limits of its cgroups, v1 and v2, its own and those above. `root` goes before /proc and /sys:
 * "", or a test's folder.
 */
uint64_t limits_memory(const char *root);

/*
 * limits_bytes - what jobs may have: three quarters of what limits_memory() leaves beside what this
 * process has already and `kernel_bytes` that the kernel has for it; at most `preset`. Logs if less.
 */
uint64_t limits_bytes(uint64_t preset, uint64_t kernel_bytes);

/*
 * limits_descriptors - see to it that so many may be open at a time, by raising the soft limit as far
 * as the hard one allows. Returns how many may be: `wanted`, or less.
 */
uint32_t limits_descriptors(uint32_t wanted);

/*
 * limits_connections - a descriptor for each of `wanted` connections beside those that are open now
 * and `others` to come; *out connections, if there may not be so many, which is logged. -EMFILE,
 * with one line in `why`: hardly any.
 */
int limits_connections(uint32_t wanted, uint32_t others, uint32_t *out, struct why *why);

#endif /* AGGREGATOR_LIMITS_H */
