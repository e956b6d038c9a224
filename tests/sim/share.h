/* SPDX-License-Identifier: BSD-3-Clause */
/* share.h - named worlds in which jobs share queues, what they are like, and what they should be like */
#ifndef TESTS_SIM_SHARE_H
#define TESTS_SIM_SHARE_H

#include <stdbool.h>

/* A table of the world `name`, or of all (NULL). False: what must be met is not, or no world is called so. */
bool share_run(const char *name);
void share_list(void);

#endif /* TESTS_SIM_SHARE_H */
