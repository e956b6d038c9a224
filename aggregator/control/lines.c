// SPDX-License-Identifier: BSD-3-Clause
/* lines.c - see lines.h */

#include "aggregator/control/lines.h"

#include <errno.h>

int lines_feed(struct lines *lines, const char *data, size_t bytes, lines_fn *take, void *context)
{
	for (size_t i = 0; i < bytes; i++) {
		int err;

		if (data[i] == '\0' || lines->used + 1 >= sizeof(lines->buffer))
			return -EMSGSIZE;
		if (data[i] != '\n') {
			lines->buffer[lines->used++] = data[i];
			continue;
		}
		lines->buffer[lines->used] = '\0';
		lines->used = 0;
		err = take(context, lines->buffer);
		if (err != 0)
			return err;
	}
	return 0;
}
