/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lines.h - a byte stream as lines of bounded length
 *
 * The control connection carries one JSON object a line (PROTOCOL.md section 5). This
 * collects bytes until a line is whole; a line that grows beyond the limit is an error,
 * so a peer that never sends a newline costs a fixed amount of memory.
 */
#ifndef BITMAP_CONTROL_LINES_H
#define BITMAP_CONTROL_LINES_H

#include <stddef.h>

#define LINES_BYTES_MAX 8192

struct lines {
	size_t from, used; /* the bytes between them have not been handed out */
	char buffer[LINES_BYTES_MAX];
};

/*
 * lines_room - where to put bytes that arrive, and how many fit; lines_added() then says how many
 * came. While lines_next() returns 0 there is room for at least one.
 */
char *lines_room(struct lines *lines, size_t *bytes);
void lines_added(struct lines *lines, size_t bytes);

/*
 * lines_next - 1: *out is the next line, without its newline, terminated by a zero byte, until the
 * next call; 0: none is whole yet; -EMSGSIZE: a line is too long or holds a zero byte.
 */
int lines_next(struct lines *lines, const char **out);

/* Called for each line, without its newline, terminated by a zero byte. Non-zero stops. */
typedef int lines_fn(void *context, const char *line);

/*
 * lines_feed - add `bytes` bytes and hand out the lines that are now whole. Returns 0;
 * -EMSGSIZE when a line is too long or holds a zero byte; or what `take` returned to stop: then
 * the rest is forgotten.
 */
int lines_feed(struct lines *lines, const char *data, size_t bytes, lines_fn *take, void *context);

#endif /* BITMAP_CONTROL_LINES_H */
