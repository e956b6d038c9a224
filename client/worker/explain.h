/* SPDX-License-Identifier: BSD-3-Clause */
/* explain.h - explains a mismatch in words, and turns an aggregator's code into a result for callers */
#ifndef CLIENT_EXPLAIN_H
#define CLIENT_EXPLAIN_H

#include <stddef.h>

#include "client/worker/allreduce.h"
#include "client/winnow.h"

/* Writes a line that explains WINNOW_ERR_MISMATCH. */
void explain_mismatch(const struct wire_mismatch *m, char *text, size_t room);

/* The result for a code of FAILED (PROTOCOL.md section 5.4), or for a code of link.c. */
enum winnow_result explain_code(const char *code, bool joined);

#endif /* CLIENT_EXPLAIN_H */
