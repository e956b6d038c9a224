// SPDX-License-Identifier: BSD-3-Clause
/* lines.c - see lines.h */

#include "bitmap/control/lines.h"

#include <errno.h>
#include <string.h>

char *lines_room(struct lines *lines, size_t *bytes)
{
	*bytes = sizeof(lines->buffer) - lines->used;
	return lines->buffer + lines->used;
}

void lines_added(struct lines *lines, size_t bytes)
{
	lines->used += bytes;
}

int lines_next(struct lines *lines, const char **out)
{
	char *line = lines->buffer + lines->from;
	size_t bytes = lines->used - lines->from;
	char *end = memchr(line, '\n', bytes);
	size_t length = end != NULL ? (size_t)(end - line) : bytes;

	if (memchr(line, '\0', length) != NULL || length + (end != NULL) >= LINES_BYTES_MAX)
		return -EMSGSIZE;
	if (end == NULL) {
		memmove(lines->buffer, line, bytes);
		lines->from = 0;
		lines->used = bytes;
		return 0;
	}
	*end = '\0';
	lines->from += length + 1;
	*out = line;
	return 1;
}

int lines_feed(struct lines *lines, const char *data, size_t bytes, lines_fn *take, void *context)
{
	const char *line;
	size_t room;
	int err = 0;

	while (bytes > 0 && err == 0) {
		char *to = lines_room(lines, &room);

		room = room < bytes ? room : bytes;
		memcpy(to, data, room);
		lines_added(lines, room);
		data += room;
		bytes -= room;
		while ((err = lines_next(lines, &line)) > 0) {
			err = take(context, line);
			if (err == 0)
				continue;
			lines->from = lines->used = 0;
			return err;
		}
	}
	return err;
}
