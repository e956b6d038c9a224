/* SPDX-License-Identifier: BSD-3-Clause */
/* explain.h - what workers disagree about, in words */
#ifndef CLIENT_EXPLAIN_H
#define CLIENT_EXPLAIN_H

#include <stddef.h>

#include "client/allreduce.h"

/* One line for an operation that failed with WINNOW_ERR_MISMATCH. */
void explain_mismatch(const struct allreduce *task, char *text, size_t room);

#endif /* CLIENT_EXPLAIN_H */
