// SPDX-License-Identifier: BSD-3-Clause
/* trace_read.c - see trace_read.h */

#include "client/cli/tune/trace_read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENTRIES_MAX (1u << 22)

static bool entry_add(struct trace_file *file, const struct trace_record *record, uint64_t body_at)
{
	if ((file->count & (file->count + 1)) == 0) { /* the room is a power of two less one */
		size_t room = (size_t)file->count * 2 + 1;
		void *longer = realloc(file->entries, room * sizeof(*file->entries));

		if (longer == NULL)
			return false;
		file->entries = longer;
	}
	file->entries[file->count++] = (struct trace_entry){*record, body_at};
	return true;
}

/* All records; one that is not whole ends the file, as a killed process leaves it. */
static int index_make(struct trace_file *file, uint64_t at, uint64_t file_bytes, struct why *why)
{
	uint8_t bytes[TRACE_RECORD_BYTES];
	struct trace_record record;

	while (at < file_bytes && !file->ended) {
		const char *wrong;

		if (file_bytes - at < sizeof(bytes)) {
			file->cut = true;
			return 0;
		}
		if (pread(file->fd, bytes, sizeof(bytes), (off_t)at) != (ssize_t)sizeof(bytes))
			return why_set(why, -EIO, "it cannot be read");
		wrong = trace_record_take(bytes, sizeof(bytes), &record);
		if (wrong != NULL)
			return why_set(why, -EINVAL, "%s (byte %llu)", wrong,
			               (unsigned long long)at);
		at += sizeof(bytes);
		if (record.body_bytes > file_bytes - at) {
			file->cut = true;
			return 0;
		}
		if (record.kind == TRACE_END) {
			file->ended = true;
			file->end = record;
		} else if (file->count == ENTRIES_MAX || !entry_add(file, &record, at)) {
			return why_set(why, -EINVAL, "it holds too many operations");
		}
		at += record.body_bytes;
	}
	return at == file_bytes ? 0 : why_set(why, -EINVAL, "something follows its end");
}

int trace_file_open(const char *path, struct trace_file **out, struct why *why)
{
	struct trace_file *file = calloc(1, sizeof(*file));
	uint8_t head[TRACE_HEAD_BYTES];
	const char *wrong;
	struct stat status;
	ssize_t bytes;
	int err;

	if (file == NULL)
		return why_set(why, -ENOMEM, "out of memory");
	snprintf(file->path, sizeof(file->path), "%s", path);
	file->fd = open(path, O_RDONLY | O_CLOEXEC);
	bytes = file->fd >= 0 ? pread(file->fd, head, sizeof(head), 0) : -1;
	if (bytes < 0 || fstat(file->fd, &status) != 0)
		wrong = strerror(errno);
	else
		wrong = trace_head_take(head, (size_t)bytes, &file->head);
	if (wrong != NULL)
		err = why_set(why, -EINVAL, "%s", wrong);
	else
		err = index_make(file, sizeof(head), (uint64_t)status.st_size, why);
	if (err != 0)
		trace_file_close(file);
	else
		*out = file;
	return err;
}

void trace_file_close(struct trace_file *file)
{
	if (file == NULL)
		return;
	if (file->fd >= 0)
		close(file->fd);
	free(file->entries);
	free(file);
}

int trace_file_bitmap(const struct trace_file *file, uint32_t index, uint64_t *bitmap,
                      struct why *why)
{
	const struct trace_entry *entry = &file->entries[index];
	uint8_t *body = malloc(entry->record.body_bytes + 1u);
	ssize_t bytes;
	int err = 0;

	if (body == NULL)
		return why_set(why, -ENOMEM, "out of memory");
	bytes = pread(file->fd, body, entry->record.body_bytes, (off_t)entry->body_at);
	if (bytes != (ssize_t)entry->record.body_bytes)
		err = why_set(why, -EIO, "it cannot be read");
	else if (!trace_bitmap_take(body, &entry->record, bitmap))
		err = why_set(why, -EINVAL, "a record's bitmap is damaged");
	free(body);
	return err;
}
