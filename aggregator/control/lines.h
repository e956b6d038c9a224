/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lines.h - a byte stream as lines of bounded length
 *
 * The control connection carries one JSON object a line (PROTOCOL.md section 5). This
 * collects bytes until a line is whole; a line that grows beyond the limit is an error,
 * so a peer that never sends a newline costs a fixed amount of memory.
 */
#ifndef AGGREGATOR_CONTROL_LINES_H
#define AGGREGATOR_CONTROL_LINES_H

#include <stddef.h>

#define LINES_BYTES_MAX 8192

struct lines {
	size_t used;
	char buffer[LINES_BYTES_MAX];
};

/* Called for each line, without its newline, terminated by a zero byte. Non-zero stops. */
typedef int lines_fn(void *context, const char *line);

/*
 * lines_feed - add `bytes` bytes and hand out the lines that are now whole. Returns 0;
 * -EMSGSIZE when a line is too long or holds a zero byte; or what `take` returned to stop.
 */
int lines_feed(struct lines *lines, const char *data, size_t bytes, lines_fn *take, void *context);

#endif /* AGGREGATOR_CONTROL_LINES_H */
