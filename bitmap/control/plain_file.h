/* SPDX-License-Identifier: BSD-3-Clause */
/* plain_file.h - the text of a file that an operator has named, with options or keys */
#ifndef BITMAP_CONTROL_PLAIN_FILE_H
#define BITMAP_CONTROL_PLAIN_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "bitmap/why.h"

#define PLAIN_FILE_BYTES_MAX (16 << 20)

struct plain_file {
	char *text;   /* without UTF-8's byte order mark, and without zero bytes */
	size_t bytes; /* the length of `text` */
	char *next;   /* the line that plain_file_line() returns next */
	bool exposed; /* the file's mode lets every user of the machine read it */
};

/*
 * plain_file_read - reads a whole file without waiting. It accepts only a regular file of at most
 * PLAIN_FILE_BYTES_MAX, because a directory reads as if it were empty, a pipe may have no writer,
 * and a device may have no end. `what` stands before the path in error texts: "key file " or "".
 * Returns 0 and *out, which the caller frees, or -errno and `why`.
 */
int plain_file_read(const char *what, const char *path, struct plain_file *out, struct why *why);

/* plain_file_line - returns the next line, whose '\n' becomes a zero byte, or NULL at the end. */
char *plain_file_line(struct plain_file *file);

/* plain_file_free - wipes the text, because it may hold keys. */
void plain_file_free(struct plain_file *file);

#endif /* BITMAP_CONTROL_PLAIN_FILE_H */
