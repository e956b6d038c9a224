/* SPDX-License-Identifier: BSD-3-Clause */
/* limits.h - what the system grants this process: memory, descriptors */
#ifndef AGGREGATOR_LIMITS_H
#define AGGREGATOR_LIMITS_H

#include <stdint.h>

/*
 * limits_memory - bytes that this process may have: the least of the machine's memory and of the
 * limits of its cgroups, v1 and v2, its own and those above. `root` goes before /proc and /sys:
 * "", or a test's folder.
 */
uint64_t limits_memory(const char *root);

/* limits_resident - bytes of memory that this process has now. */
uint64_t limits_resident(void);

#endif /* AGGREGATOR_LIMITS_H */
