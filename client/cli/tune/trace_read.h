/* SPDX-License-Identifier: BSD-3-Clause */
/* trace_read.h - one worker's trace, mapped, and an index of it */
#ifndef CLIENT_CLI_TRACE_READ_H
#define CLIENT_CLI_TRACE_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bitmap/why.h"
#include "client/trace/trace_format.h"

struct trace_entry {
	struct trace_record record;
	const uint8_t *body; /* in the file's memory */
};

struct trace_file {
	char path[4200];
	const void *memory; /* [bytes] mapped */
	size_t bytes;
	struct trace_head head;
	struct trace_entry
		*entries; /* [count], operations only, by tag, and in order where one comes again */
	uint32_t count;
	bool ended; /* `end` is there */
	bool cut;   /* the file ends within a record, which is left out */
	struct trace_record end;
};

/* 0, or -errno and one line in `why`, without the path. */
int trace_file_open(const char *path, struct trace_file **out, struct why *why);
void trace_file_close(struct trace_file *file); /* NULL is fine */

/* file_map - a whole file for reading; file_unmap() ends that. 0, or -errno and one line in `why`, without the path. */
int file_map(const char *path, const void **data, size_t *bytes, struct why *why);
void file_unmap(const void *data, size_t bytes);

#endif /* CLIENT_CLI_TRACE_READ_H */
