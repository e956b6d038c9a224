/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lines.h - cuts a byte stream into lines of bounded length
 *
 * The control connection carries one JSON object a line (PROTOCOL.md, section 5). A line that
 * grows beyond the limit is an error, so a peer that never sends a newline costs a fixed amount of
 * memory.
 */
#ifndef BITMAP_CONTROL_LINES_H
#define BITMAP_CONTROL_LINES_H

#include <stddef.h>

#define LINES_BYTES_MAX 8192

struct lines {
	size_t from, used; /* the bytes in [from, used) have not been handed out */
	char buffer[LINES_BYTES_MAX];
};

/*
 * lines_room - returns the place for bytes that arrive, and how many fit. lines_added() then says
 * how many came. While lines_next() returns 0 there is room for at least one.
 */
char *lines_room(struct lines *lines, size_t *bytes);
void lines_added(struct lines *lines, size_t bytes);

/*
 * lines_next - returns 1 with the next line in *out, ended by a zero byte instead of its newline
 * and valid until the next call; 0 if none is complete; -EMSGSIZE if one is too long or has a zero
 * byte.
 */
int lines_next(struct lines *lines, const char **out);

/* lines_fn - called for each line, without its newline. Any result but 0 stops lines_feed(). */
typedef int lines_fn(void *context, const char *line);

/*
 * lines_feed - adds `bytes` bytes and hands out the lines that are now whole. Returns 0, -EMSGSIZE
 * when a line is too long or holds a zero byte, or the result with which `take` stopped it. The
 * rest is then lost.
 */
int lines_feed(struct lines *lines, const char *data, size_t bytes, lines_fn *take, void *context);

#endif /* BITMAP_CONTROL_LINES_H */
