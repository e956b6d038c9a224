// SPDX-License-Identifier: BSD-3-Clause
/* source.c - see source.h; traces are in source_trace.c */

#include "client/cli/tune/source.h"

#include <stdlib.h>
#include <string.h>

#include "bitmap/bitmap.h"
#include "client/cli/cli.h"
#include "client/cli/tune/npy.h"

void source_close(struct source *s)
{
	for (uint32_t i = 0; i < s->trace_count; i++)
		trace_file_close(s->traces[i]);
	free((void *)s->traces);
	free(s->entries);
	free(s->ops);
	*s = (struct source){0};
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

static int file_op(struct source *s, uint32_t op, const char **paths, struct why *why)
{
	struct npy npy, first = {0};

	for (uint32_t rank = 0; rank < s->world; rank++) {
		if (npy_read(paths[rank], &npy, NULL, why) != 0)
			return why_set(why, 1, "cannot use %s: %s", paths[rank], why->text);
		if (rank == 0)
			first = npy;
		if (npy.count != first.count || npy.dtype != first.dtype)
			return why_set(why, 1,
			               "%s has %llu elements of %s and %s %llu of %s: the workers "
			               "of an operation have the same",
			               paths[0], (unsigned long long)first.count,
			               dtype_name(first.dtype), paths[rank],
			               (unsigned long long)npy.count, dtype_name(npy.dtype));
	}
	s->ops[op] = (struct source_op){
		.count = first.count,
		.tag = op,
		.dtype = first.dtype,
		.row = first.dimensions > 1 ? first.shape[first.dimensions - 1] : 0,
		.paths = paths,
	};
	return 0;
}

int source_files(struct source *s, const char **paths, uint32_t count, uint32_t world,
                 struct why *why)
{
	int status = 0;

	*s = (struct source){.world = world != 0 ? world : count, .fine = 1};
	if (s->world == 0 || count % s->world != 0)
		return why_set(why, 2,
		               "%u files cannot be shared among %u workers: give a file for each "
		               "worker, step by step",
		               count, s->world);
	s->op_count = count / s->world;
	s->ops = cli_memory(s->op_count, sizeof(*s->ops), "operations");
	for (uint32_t op = 0; op < s->op_count && status == 0; op++)
		status = file_op(s, op, paths + (uint64_t)op * s->world, why);
	return status;
}

static int file_read(const struct source_op *op, uint32_t rank, void **data, struct why *why)
{
	struct npy npy;

	if (npy_read(op->paths[rank], &npy, data, why) != 0)
		return why_set(why, 1, "cannot read %s: %s", op->paths[rank], why->text);
	if (npy.count == op->count && npy.dtype == op->dtype)
		return 0;
	free(*data);
	*data = NULL;
	return why_set(why, 1, "%s has changed meanwhile", op->paths[rank]);
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

/* ---- bits and tensors ---- */

int source_bits(const struct source *s, uint32_t op, uint32_t rank, uint64_t *bits, struct why *why)
{
	const struct source_op *o = &s->ops[op];
	struct bitmap_tensor tensor = {
		.count = o->count, .block_elems = s->fine, .dtype = o->dtype};
	void *data = NULL;

	memset(bits, 0, (source_bit_count(s, op) + 63) / 64 * 8);
	if (o->paths != NULL) {
		if (file_read(o, rank, &data, why) != 0)
			return 1;
		tensor.data = data;
		bitmap_best()->scan(&tensor, bits);
		free(data);
	} else if (s->traces == NULL) {
		pattern_bits(&s->pattern, rank, o->row / s->fine, source_bit_count(s, 0), bits);
	} else {
		const struct trace_entry *entry = &s->traces[rank]->entries[o->entries[rank]];

		if (!trace_bitmap_take(entry->body, &entry->record, bits))
			return why_set(why, 1, "cannot use %s: a record's bitmap is damaged",
			               s->traces[rank]->path);
	}
	return 0;
}

static void *tensor_of_bits(const struct source *s, uint32_t op, const uint64_t *bits)
{
	const struct source_op *o = &s->ops[op];
	uint64_t bytes = o->count * dtype_bytes(o->dtype);
	void *tensor = cli_tensor(bytes);

	memset(tensor, 0, bytes);
	for (uint64_t bit = 0; bit < source_bit_count(s, op); bit++)
		if (bits[bit / 64] >> (bit % 64) & 1)
			pattern_put(tensor, bit * s->fine, o->dtype, 1);
	return tensor;
}

void *source_tensor(const struct source *s, uint32_t op, uint32_t rank, struct why *why)
{
	void *tensor = NULL;
	uint64_t *bits;

	if (s->ops[op].paths != NULL)
		return file_read(&s->ops[op], rank, &tensor, why) == 0 ? tensor : NULL;
	bits = cli_memory(source_bit_count(s, op) / 64 + 1, 8, "bitmaps");
	if (source_bits(s, op, rank, bits, why) == 0)
		tensor = tensor_of_bits(s, op, bits);
	free(bits);
	return tensor;
}
