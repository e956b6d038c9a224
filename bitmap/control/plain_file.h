/* SPDX-License-Identifier: BSD-3-Clause */
/* plain_file.h - the text of a file that an operator has named: options, keys */
#ifndef BITMAP_CONTROL_PLAIN_FILE_H
#define BITMAP_CONTROL_PLAIN_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "bitmap/why.h"

#define PLAIN_FILE_BYTES_MAX (16 << 20)

struct plain_file {
	char *text;   /* without a mark of its byte order (UTF-8's); it holds no zero byte */
	size_t bytes; /* of it */
	char *next;   /* the line that plain_file_line() returns next */
	bool exposed; /* by the file's mode every user of the machine may read it */
};

/*
 * plain_file_read - all of it, without waiting. It takes a regular file of at most
 * PLAIN_FILE_BYTES_MAX alone: a directory reads as if it were empty, a pipe may have no writer, a
 * device may have no end. `what` stands before the path in the error text: "key file ", or "".
 * Returns 0 and *out, which the caller frees; or -errno and `why`.
 */
int plain_file_read(const char *what, const char *path, struct plain_file *out, struct why *why);

/* plain_file_line - the next line, without its '\n', which the text loses. NULL: there is none. */
char *plain_file_line(struct plain_file *file);

/* What the file said is wiped: it may be a key. */
void plain_file_free(struct plain_file *file);

#endif /* BITMAP_CONTROL_PLAIN_FILE_H */
