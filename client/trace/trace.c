// SPDX-License-Identifier: BSD-3-Clause
/* trace.c - see trace.h */

#include "client/trace/trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bitmap/control/options.h"
#include "bitmap/coded.h"
#include "client/worker/array.h"
#include "client/worker/rows.h"

struct trace {
	struct trace_config config;
	FILE *file; /* NULL after the trace has ended early. */
	char path[4200];
	uint64_t bytes, operations;
	uint64_t *bitmap;
	uint8_t *body;
	uint64_t room_bits; /* The bits that `bitmap` and `body` have room for. */
};

bool trace_config_read(struct trace_config *config)
{
	const struct option list[] = {
		{"trace", "FOLDER", OPTION_TEXT, &config->folder, NULL, NULL, 0, 0, NULL},
		{"trace-limit", "SIZE", OPTION_SIZE, &config->limit_bytes, "64M", NULL, 1, 0, NULL},
		/* The rows of embeddings are multiples of the default. */
		{"trace-block", "ELEMENTS", OPTION_COUNT32, &config->fine, "4", NULL, 1,
	         TRACE_FINE_MAX, NULL},
		{0},
	};
	struct why why;

	*config = (struct trace_config){0};
	options_preset(list);
	for (const struct option *o = list; o->name != NULL; o++) {
		if (option_env(o, &why) != 0) {
			fprintf(stderr, "winnow: %s; no trace is written\n", why.text);
			return false;
		}
		if (config->folder == NULL)
			return false;
	}
	return true;
}

/* Ends the trace when the disk is full or the limit is reached. The file remains. */
static void trace_stop(struct trace *trace, const char *why)
{
	fprintf(stderr, "winnow: the trace %s ends after %llu operations: %s; the job continues\n",
	        trace->path, (unsigned long long)trace->operations, why);
	fclose(trace->file);
	trace->file = NULL;
}

static bool bytes_write(struct trace *trace, const void *bytes, size_t count)
{
	if (fwrite(bytes, 1, count, trace->file) == count)
		return true;
	trace_stop(trace, strerror(errno));
	return false;
}

int trace_open(const struct trace_config *config, struct trace **out, struct why *why)
{
	const struct trace_head *head = &config->head;
	struct trace *trace = calloc(1, sizeof(*trace));
	uint8_t bytes[TRACE_HEAD_BYTES];

	if (trace == NULL)
		return why_set(why, -ENOMEM, "out of memory");
	trace->config = *config;
	snprintf(trace->path, sizeof(trace->path), "%.4000s/%s.%016llx.%u.trace", config->folder,
	         head->job, (unsigned long long)head->run, head->rank);
	(void)mkdir(config->folder, 0777); /* fopen() reports an error. */
	trace->file = fopen(trace->path, "wxe");
	if (trace->file == NULL) {
		int err = why_set(why, -errno, "cannot create the trace %s: %s", trace->path,
		                  strerror(errno));

		free(trace);
		return err;
	}
	trace_head_put(head, bytes);
	trace->bytes = sizeof(bytes);
	bytes_write(trace, bytes, sizeof(bytes));
	*out = trace;
	return 0;
}

bool trace_writes(const struct trace *trace)
{
	return trace->file != NULL;
}

static bool room_for(struct trace *trace, uint64_t bits)
{
	if (bits <= trace->room_bits)
		return true;
	free(trace->bitmap);
	free(trace->body);
	trace->bitmap = malloc(bitmap_word_count(bits) * 8);
	trace->body = malloc(bitmap_word_count(bits) * 8);
	trace->room_bits = trace->bitmap != NULL && trace->body != NULL ? bits : 0;
	return trace->room_bits > 0;
}

static void record_write(struct trace *trace, const struct trace_record *record)
{
	uint8_t bytes[TRACE_RECORD_BYTES];

	trace_record_put(record, bytes);
	if (!bytes_write(trace, bytes, sizeof(bytes)) ||
	    !bytes_write(trace, trace->body, record->body_bytes))
		return;
	if (fflush(trace->file) != 0) {
		trace_stop(trace, strerror(errno));
		return;
	}
	trace->bytes += sizeof(bytes) + record->body_bytes;
	trace->operations += record->kind == TRACE_OPERATION;
}

/* Scans the blocks of a list, because the tensor itself does not exist. */
static void list_scan(const struct allreduce *task, uint32_t fine, uint64_t *bits)
{
	uint32_t length = task->block_elems, bytes = dtype_bytes((enum dtype)task->dtype) * length;
	const struct bitmap_engine *engine = bitmap_best();
	const struct winnow_rows *rows = task->access_state;
	uint64_t found[WIRE_BLOCK_ELEMS_MAX / 64];
	struct bitmap_tensor block = {.block_elems = 1, .dtype = task->dtype};

	for (uint64_t i = 0; i < rows->count; i++) {
		uint64_t first = rows->blocks[i] * length;

		block.data = rows->values + i * bytes;
		block.count = task->count - first < length ? task->count - first : length;
		engine->scan(&block, found);
		for (uint64_t e = 0; e < block.count; e++)
			if (bit_test(found, e))
				bit_set(bits, (first + e) / fine);
	}
}

/* Fills in a record. Returns false if there is nothing to write, or it cannot be written. */
static bool record_begin(struct trace *trace, const struct allreduce *task,
                         const struct geometry_part *part, struct trace_record *record)
{
	*record = (struct trace_record){
		.kind = TRACE_OPERATION,
		.dtype = task->dtype,
		.reduction = task->reduction,
		.form = task->form,
		.block = part->tile_rows * part->tile_columns,
		.fine = trace->config.fine,
		.tag = task->tag,
		.count = part->count * part->copies,
		.first = part->first,
		.parts = task->cut.parts != NULL ? task->cut.part_count : 0,
		.columns = part->columns,
		.tile_rows = part->columns != 0 ? part->tile_rows : 0,
	};
	if (trace->file == NULL || record->count == 0)
		return false;
	if (trace_bits(record) <= BITS_COUNT_MAX && room_for(trace, trace_bits(record)))
		return true;
	trace_stop(trace, "no memory for a bitmap");
	return false;
}

static void record_end(struct trace *trace, struct trace_record *record, const uint64_t *bits)
{
	trace_bitmap_put(bits, record, trace->bitmap, trace->body);
	if (trace->bytes + TRACE_RECORD_BYTES + record->body_bytes > trace->config.limit_bytes)
		trace_stop(trace, "WINNOW_TRACE_LIMIT is reached");
	else
		record_write(trace, record);
}

static void part_look(struct trace *trace, const struct allreduce *task,
                      const struct geometry_part *part)
{
	const uint8_t *send = task->send;
	struct trace_record record;
	struct bitmap_tensor tensor = {.count = part->count * part->copies,
	                               .block_elems = trace->config.fine,
	                               .dtype = task->dtype};

	if (!record_begin(trace, task, part, &record))
		return;
	memset(trace->bitmap, 0, bitmap_word_count(trace_bits(&record)) * 8);
	if (task->access != &array_access) {
		list_scan(task, record.fine, trace->bitmap);
	} else if (send != NULL) {
		tensor.data = send + part->first * dtype_bytes((enum dtype)task->dtype);
		bitmap_pool_scan(trace->config.pool, &tensor, trace->bitmap, NULL);
	}
	record_end(trace, &record, trace->bitmap);
}

void trace_operation(struct trace *trace, const struct allreduce *task)
{
	for (uint32_t i = 0; i < task->cut.part_count; i++)
		part_look(trace, task, geometry_part(&task->cut, i));
}

void trace_bitmap(struct trace *trace, const struct allreduce *task,
                  const struct geometry_part *part, const uint64_t *bits)
{
	struct trace_record record;

	if (bits == NULL && trace->file != NULL)
		trace_stop(trace, "no memory for a bitmap");
	else if (record_begin(trace, task, part, &record))
		record_end(trace, &record, bits);
}

void trace_close(struct trace *trace, uint64_t sent_bytes, uint64_t received_bytes,
                 uint64_t retransmits)
{
	if (trace == NULL)
		return;
	if (trace->file != NULL)
		record_write(trace, &(struct trace_record){.kind = TRACE_END,
		                                           .operations = trace->operations,
		                                           .sent_bytes = sent_bytes,
		                                           .received_bytes = received_bytes,
		                                           .retransmits = retransmits});
	if (trace->file != NULL && fclose(trace->file) != 0)
		fprintf(stderr, "winnow: cannot write the trace %s: %s\n", trace->path,
		        strerror(errno));
	free(trace->bitmap);
	free(trace->body);
	free(trace);
}
