// SPDX-License-Identifier: BSD-3-Clause
/* trace_read.c - see trace_read.h */

#include "client/cli/tune/trace_read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/cli.h"

#define ENTRIES_MAX (1u << 22)

int file_map(const char *path, const void **data, size_t *bytes, struct why *why)
{
	/* O_NONBLOCK: open() of a pipe without a writer would wait. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), err = 0;
	struct stat status = {0};
	void *memory = NULL;

	if (fd < 0 || fstat(fd, &status) != 0)
		err = -errno;
	else if (!S_ISREG(status.st_mode))
		err = -EINVAL;
	if (err == 0 && status.st_size > 0)
		memory = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (memory == MAP_FAILED)
		err = -errno;
	if (fd >= 0)
		close(fd);
	*data = memory;
	*bytes = (size_t)status.st_size;
	if (err == -EINVAL)
		return why_set(why, err, "it is not a regular file, so it cannot be mapped");
	return err == 0 ? 0 : why_set(why, err, "%s", strerror(-err));
}

void file_unmap(const void *data, size_t bytes)
{
	if (bytes > 0)
		munmap((void *)(uintptr_t)data, bytes);
}

static void entry_add(struct trace_file *file, const struct trace_record *record,
                      const uint8_t *body)
{
	if ((file->count & (file->count + 1)) == 0) /* The room grows at 2^n - 1. */
		file->entries = cli_memory_more(
			file->entries, (file->count * 2 + 1ul) * sizeof(*file->entries), "traces");
	file->entries[file->count++] = (struct trace_entry){*record, body};
}

/* Indexes all records. A killed process leaves an incomplete one at the end, which is ignored. */
static int index_make(struct trace_file *file, struct why *why)
{
	const uint8_t *from = file->memory, *at = from + TRACE_HEAD_BYTES,
		      *end = from + file->bytes;
	struct trace_record record;

	while (at < end && !file->ended) {
		const char *wrong;

		file->cut = (size_t)(end - at) < TRACE_RECORD_BYTES;
		if (file->cut)
			return 0;
		wrong = trace_record_take(at, TRACE_RECORD_BYTES, &record);
		if (wrong != NULL)
			return why_set(why, -EINVAL, "%s (byte %zu)", wrong, (size_t)(at - from));
		at += TRACE_RECORD_BYTES;
		file->cut = (size_t)(end - at) < record.body_bytes;
		if (file->cut)
			return 0;
		if (record.kind == TRACE_END) {
			file->ended = true;
			file->end = record;
		} else if (file->count == ENTRIES_MAX) {
			return why_set(why, -EINVAL, "it holds too many operations");
		} else {
			entry_add(file, &record, at);
		}
		at += record.body_bytes;
	}
	return at == end ? 0 : why_set(why, -EINVAL, "bytes follow its end record");
}

static int entry_compare(const void *a, const void *b)
{
	const struct trace_entry *x = a, *y = b;

	if (x->record.tag != y->record.tag)
		return x->record.tag < y->record.tag ? -1 : 1;
	return x->body < y->body ? -1 : x->body > y->body;
}

int trace_file_open(const char *path, struct trace_file **out, struct why *why)
{
	struct trace_file *file = cli_memory(1, sizeof(*file), "traces");
	int err = file_map(path, &file->memory, &file->bytes, why);
	const char *wrong;

	if (err != 0) {
		free(file);
		return err;
	}
	snprintf(file->path, sizeof(file->path), "%s", path);
	wrong = trace_head_take(file->memory, file->bytes, &file->head);
	err = wrong != NULL ? why_set(why, -EINVAL, "%s", wrong) : index_make(file, why);
	if (err != 0) {
		trace_file_close(file);
		return err;
	}
	if (file->count > 0)
		qsort(file->entries, file->count, sizeof(*file->entries), entry_compare);
	*out = file;
	return 0;
}

void trace_file_close(struct trace_file *file)
{
	if (file == NULL)
		return;
	file_unmap(file->memory, file->bytes);
	free(file->entries);
	free(file);
}
