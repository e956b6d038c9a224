/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * limits.h - what the system grants this process, and what winnowd may use of it: memory,
 * descriptors
 */
#ifndef AGGREGATOR_LIMITS_H
#define AGGREGATOR_LIMITS_H

#include <stdint.h>

#include "bitmap/why.h"

/*
 * limits_memory - bytes that this process may use: the smallest of the machine's memory and the
 * limits of its cgroups, v1 and v2, its own and those above. `root` goes before /proc and /sys: "",
 * or a test's folder.
 */
uint64_t limits_memory(const char *root);

/*
 * limits_bytes - what jobs may use: three quarters of what limits_memory() leaves after this
 * process's memory and `kernel_bytes` that the kernel holds for it; at most `preset`. Logs if it is
 * less.
 */
uint64_t limits_bytes(uint64_t preset, uint64_t kernel_bytes);

/* limits_open - so many descriptors are open now. */
uint32_t limits_open(void);

/*
 * limits_descriptors - lets `wanted` descriptors be open at a time, by raising the soft limit as
 * far as the hard limit allows. Returns how many may be: `wanted`, or fewer.
 */
uint32_t limits_descriptors(uint32_t wanted);

/*
 * limits_connections - finds a descriptor for each of `wanted` connections beside those that are
 * open now and `others` to come; *out connections, if there cannot be as many, which is logged.
 * -EMFILE, with one line in `why`: hardly any.
 */
int limits_connections(uint32_t wanted, uint32_t others, uint32_t *out, struct why *why);

#endif /* AGGREGATOR_LIMITS_H */
