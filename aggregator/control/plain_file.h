/* SPDX-License-Identifier: BSD-3-Clause */
/* plain_file.h - opens a file that an operator has named: options, keys */
#ifndef AGGREGATOR_CONTROL_PLAIN_FILE_H
#define AGGREGATOR_CONTROL_PLAIN_FILE_H

#include <stdio.h>

#include "bitmap/why.h"

#define PLAIN_FILE_BYTES_MAX (16 << 20)

/*
 * plain_file_open - for reading, and never waits. It takes a regular file of at most
 * PLAIN_FILE_BYTES_MAX alone: a directory reads as if it were empty, a pipe may have no writer, a
 * device may have no end. `what` stands before the path in the error text: "key file ", or "".
 * Returns 0 and *out, which the caller closes; or -errno and `why`.
 */
int plain_file_open(const char *what, const char *path, FILE **out, struct why *why);

#endif /* AGGREGATOR_CONTROL_PLAIN_FILE_H */
