// SPDX-License-Identifier: BSD-3-Clause
/* source.c - see source.h; traces are in source_trace.c */

#include "client/cli/tune/source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bitmap/bitmap.h"
#include "client/cli/cli.h"

void source_close(struct source *s)
{
	for (uint32_t i = 0; i < s->trace_count; i++)
		trace_file_close(s->traces[i]);
	free((void *)s->traces);
	free(s->entries);
	free(s->ops);
}

void source_thin(struct source *s, uint32_t most)
{
	if (most == 0 || s->op_count <= most)
		return;
	for (uint32_t i = 0; i < most; i++)
		s->ops[i] = s->ops[(uint64_t)i * s->op_count / most];
	s->op_count = most;
}

/* ---- files ---- */

/* Maps a file of elements. */
static int elements_map(const char *path, enum dtype dtype, const void **data, size_t *bytes,
                        struct why *why)
{
	if (file_map(path, data, bytes, why) != 0)
		return why_set(why, 1, "cannot use %s: %s", path, why->text);
	if (*bytes >= 6 && memcmp(*data, "\x93NUMPY", 6) == 0)
		why_set(why, 1,
		        "cannot use %s: it is a .npy file: write raw elements, with "
		        "array.tofile(PATH)",
		        path);
	else if (*bytes == 0 || *bytes % dtype_bytes(dtype) != 0)
		why_set(why, 1, "cannot use %s: its %zu bytes are not a whole number of %s", path,
		        *bytes, dtype_name(dtype));
	else
		return 0;
	file_unmap(*data, *bytes);
	return 1;
}

static int file_op(struct source *s, uint32_t op, const char **paths, const struct source_op *like,
                   struct why *why)
{
	size_t bytes, first = 0;
	const void *data;

	for (uint32_t rank = 0; rank < s->world; rank++) {
		if (elements_map(paths[rank], like->dtype, &data, &bytes, why) != 0)
			return 1;
		file_unmap(data, bytes);
		first = rank == 0 ? bytes : first;
		if (bytes != first)
			return why_set(
				why, 1,
				"%s has %zu bytes and %s %zu: all workers' files of an operation "
				"must have the same size",
				paths[0], first, paths[rank], bytes);
	}
	s->ops[op] = *like;
	s->ops[op].count = first / dtype_bytes(like->dtype);
	s->ops[op].tag = op;
	s->ops[op].paths = paths;
	return 0;
}

int source_files(struct source *s, const char **paths, uint32_t count, const struct source_op *op,
                 uint32_t world, struct why *why)
{
	int status = 0;

	*s = (struct source){.world = world != 0 ? world : count, .fine = 1};
	if (s->world == 0 || count % s->world != 0)
		return why_set(why, 2,
		               "%u files are not a multiple of %u workers: give one file for each "
		               "worker and step",
		               count, s->world);
	s->op_count = count / s->world;
	s->ops = cli_memory(s->op_count, sizeof(*s->ops), "operations");
	for (uint32_t i = 0; i < s->op_count && status == 0; i++)
		status = file_op(s, i, paths + (uint64_t)i * s->world, op, why);
	return status;
}

static int file_bits(const struct source *s, const struct source_op *op, const char *path,
                     uint64_t *bits, struct why *why)
{
	struct bitmap_tensor tensor = {
		.count = op->count, .block_elems = s->fine, .dtype = op->dtype};
	size_t bytes;
	int err = elements_map(path, op->dtype, &tensor.data, &bytes, why);

	if (err != 0)
		return err;
	if (bytes == op->count * dtype_bytes(op->dtype))
		bitmap_best()->scan(&tensor, bits);
	else
		err = why_set(why, 1, "%s has changed while it was read", path);
	file_unmap(tensor.data, bytes);
	return err;
}

/* ---- patterns ---- */

void source_pattern(struct source *s, const struct pattern *pattern, const struct source_op *op,
                    uint32_t world)
{
	*s = (struct source){
		.world = world != 0 ? world : 4, .fine = 1, .op_count = 1, .pattern = *pattern};
	s->pattern.world = s->world;
	s->pattern.units = bitmap_block_count(op->count, op->row);
	s->ops = cli_memory(1, sizeof(*s->ops), "operations");
	s->ops[0] = *op;
}

/* ---- bits ---- */

int source_bits(const struct source *s, uint32_t op, uint32_t rank, uint64_t *bits, struct why *why)
{
	const struct source_op *o = &s->ops[op];
	const struct trace_entry *entry;

	memset(bits, 0, (source_bit_count(s, op) + 63) / 64 * 8);
	if (o->paths != NULL)
		return file_bits(s, o, o->paths[rank], bits, why);
	if (s->traces == NULL) {
		pattern_bits(&s->pattern, rank, o->row / s->fine, source_bit_count(s, 0), bits);
		return 0;
	}
	entry = &s->traces[rank]->entries[o->entries[rank]];
	return trace_bitmap_take(entry->body, &entry->record, bits)
	               ? 0
	               : why_set(why, 1, "cannot use %s: a record's bitmap is damaged",
	                         s->traces[rank]->path);
}
