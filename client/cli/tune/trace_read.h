/* SPDX-License-Identifier: BSD-3-Clause */
/* trace_read.h - maps one worker's trace and indexes it */
#ifndef CLIENT_CLI_TRACE_READ_H
#define CLIENT_CLI_TRACE_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bitmap/why.h"
#include "client/trace/trace_format.h"

struct trace_entry {
	struct trace_record record;
	const uint8_t *body; /* Points into the file's memory. */
};

struct trace_file {
	char path[4200];
	const void *memory; /* The mapped [bytes]. */
	size_t bytes;
	struct trace_head head;
	struct trace_entry *entries; /* [count] operations, by tag and then in the file's order. */
	uint32_t count;
	bool ended; /* The file has an end record: `end`. */
	bool cut;   /* The file ends within a record, which is left out. */
	struct trace_record end;
};

/* Returns 0, or -errno and a line in `why` without the path. */
int trace_file_open(const char *path, struct trace_file **out, struct why *why);
void trace_file_close(struct trace_file *file); /* Accepts NULL. */

/* Maps a whole file for reading, until file_unmap(). Returns 0, or -errno and a line in `why` without the path. */
int file_map(const char *path, const void **data, size_t *bytes, struct why *why);
void file_unmap(const void *data, size_t bytes);

#endif /* CLIENT_CLI_TRACE_READ_H */
