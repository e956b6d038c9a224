/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * explain.h - in words what workers disagree about, and what an aggregator's code means for callers
 */
#ifndef CLIENT_EXPLAIN_H
#define CLIENT_EXPLAIN_H

#include <stddef.h>

#include "client/worker/allreduce.h"
#include "client/winnow.h"

/* One line for what ends a job with WINNOW_ERR_MISMATCH. */
void explain_mismatch(const struct wire_mismatch *m, char *text, size_t room);

/*
 * What callers are told for a code of FAILED (PROTOCOL.md section 5.4), or for one that link.c
 * makes.
 */
enum winnow_result explain_code(const char *code, bool joined);

#endif /* CLIENT_EXPLAIN_H */
