// SPDX-License-Identifier: BSD-3-Clause
/* test_trace.c - traces: recording, reading, and which files belong together */

#include <signal.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/worker/array.h"
#include "client/worker/rows.h"
#include "client/cli/tune/source.h"
#include "client/trace/trace.h"
#include "tests/unit/test_trace.h"
#include "tests/unit/unit.h"

static char folder[] = "/tmp/winnow-trace-XXXXXX";
static struct bitmap_pool *pool;

/* ---- recording and reading ---- */

static const float tensor[8] = {0, 0, 0, 0, 0, 1, 0, 0};

static struct trace *opened(uint32_t rank, uint64_t run, uint64_t limit)
{
	struct trace_config config = {.folder = folder,
	                              .limit_bytes = limit,
	                              .fine = 2,
	                              .pool = pool,
	                              .head = a_head(rank, run)};
	struct trace *trace = NULL;
	struct why why;

	return trace_open(&config, &trace, &why) == 0 ? trace : NULL;
}

/* An operation on so many numbers in blocks of so many. */
static struct allreduce task_of(const float *send, uint64_t count, uint32_t block, uint64_t tag)
{
	return (struct allreduce){.send = send,
	                          .count = count,
	                          .tag = tag,
	                          .block_elems = block,
	                          .cut = {.elem_bytes = 4,
	                                  .part_count = 1,
	                                  .one = {.count = count,
	                                          .tile_rows = 1,
	                                          .tile_columns = block,
	                                          .copies = 1}},
	                          .dtype = DTYPE_F32,
	                          .reduction = REDUCE_SUM,
	                          .access = &array_access};
}

static void record(struct trace *trace, uint64_t tag)
{
	struct allreduce task = task_of(tensor, 7, 4, tag);

	trace_operation(trace, &task);
}

static const char *path_of(uint32_t rank, uint64_t run)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/job-a.%016llx.%u.trace", folder, (unsigned long long)run,
	         rank);
	return path;
}

/* What can be read of a trace, as far as it is whole. */
static struct trace_file *read_back(uint32_t rank)
{
	struct why why;
	struct trace_file *file;

	assert_int_equal(trace_file_open(path_of(rank, 1), &file, &why), 0);
	return file;
}

/* A whole trace of rank 0, with the operations of tags 1 to `count`. */
static void written(uint64_t count)
{
	struct trace *trace = opened(0, 1, 1 << 20);

	assert_non_null(trace);
	for (uint64_t tag = 1; tag <= count; tag++)
		record(trace, tag);
	trace_close(trace, 1, 2, 3);
}

static void remove_all(void)
{
	for (uint64_t run = 1; run < 9; run++)
		for (uint32_t rank = 0; rank < 2; rank++)
			unlink(path_of(rank, run));
}

TEST(record_and_read)
{
	struct trace *trace = opened(0, 1, 1 << 20);
	struct trace_file *file;
	uint64_t bits;

	assert_non_null(trace);
	assert_null(opened(0, 1, 1 << 20)); /* never over another's */
	record(trace, 5);
	record(trace, 6);
	trace_close(trace, 10, 20, 3);
	trace_close(NULL, 0, 0, 0);
	file = read_back(0);
	assert_int_equal(file->count, 2);
	assert_int_equal(file->entries[1].record.tag, 6);
	assert_int_equal(file->entries[1].record.count, 7);
	assert_int_equal(file->entries[1].record.block, 4);
	assert_int_equal(file->entries[1].record.first, 0);
	assert_int_equal(file->entries[1].record.parts, 0);
	assert_true(file->ended);
	assert_false(file->cut);
	assert_int_equal(file->end.received_bytes, 20);
	assert_true(trace_bitmap_take(file->entries[1].body, &file->entries[1].record, &bits));
	assert_int_equal(bits, 4); /* pairs of elements: 0 0 1 0 */
	trace_file_close(file);
	remove_all();
}

/* Each part is a record, with its own block. */
TEST(parts)
{
	struct geometry_part parts[] = {
		{.count = 2, .columns = 1, .tile_rows = 2, .tile_columns = 1, .copies = 1},
		{.first = 2, .count = 5, .tile_rows = 1, .tile_columns = 3, .copies = 1}};
	struct allreduce task = task_of(tensor, 7, 1, 9);
	struct trace *trace = opened(0, 1, 1 << 20);
	const uint64_t want[] = {0, 2};
	struct trace_file *file;

	assert_non_null(trace);
	task.cut.part_count = 2;
	task.cut.parts = parts;
	trace_operation(trace, &task);
	trace_bitmap(trace, &task, &parts[1], want + 1);
	trace_close(trace, 0, 0, 0);
	file = read_back(0);
	assert_int_equal(file->count, 3);
	for (uint32_t i = 0; i < 3; i++) {
		const struct trace_record *record = &file->entries[i].record;
		const struct geometry_part *part = &parts[i > 0];
		uint64_t bits;

		assert_int_equal(record->tag, 9);
		assert_int_equal(record->parts, 2);
		assert_int_equal(record->first, part->first);
		assert_int_equal(record->count, part->count);
		assert_int_equal(record->block, part->tile_rows * part->tile_columns);
		assert_int_equal(record->columns, part->columns);
		assert_int_equal(record->tile_rows, part->columns > 0 ? part->tile_rows : 0);
		assert_true(trace_bitmap_take(file->entries[i].body, record, &bits));
		assert_int_equal(bits, want[i > 0]);
	}
	trace_file_close(file);
	remove_all();
}

/* Of a list of blocks there is no tensor to be read. */
TEST(lists)
{
	const int64_t index[] = {12, 3};
	float *values = malloc(6 * sizeof(*values)); /* no more: sanitizers see what goes beyond */
	struct rows_input input = {.values = values,
	                           .index = index,
	                           .block_count = 2,
	                           .block_elems = 3,
	                           .elem_bytes = 4,
	                           .elems = 3000};
	struct allreduce task = task_of(values, 3000, 3, 9);
	struct trace *trace = opened(0, 1, 1 << 20);
	uint64_t bits[1500 / 64 + 1];
	struct winnow_rows *rows;
	struct trace_file *file;
	const char *wrong;

	assert_non_null(values);
	memcpy(values, (const float[]){0, 0, 1, 1, 0, 0}, 6 * sizeof(*values)); /* 14 and 3 */
	assert_int_equal(rows_open(&input, &rows, &wrong), 0);
	task.access = rows_access(rows);
	task.access_state = rows;
	trace_operation(trace, &task);
	trace_close(trace, 0, 0, 0);
	rows_close(rows);
	free(values);
	file = read_back(0);
	assert_true(trace_bitmap_take(file->entries[0].body, &file->entries[0].record, bits));
	assert_int_equal(bits[0], 1 << 7 | 1 << 1);
	for (uint32_t i = 1; i < 1500 / 64 + 1; i++)
		assert_int_equal(bits[i], 0);
	trace_file_close(file);
	remove_all();
}

/* Wherever a process is killed, what is whole can be read. */
TEST(cut)
{
	struct why why;
	struct trace_file *file;
	struct stat status;

	written(3);
	assert_int_equal(stat(path_of(0, 1), &status), 0);
	for (off_t bytes = status.st_size - 1; bytes >= 0; bytes--) {
		assert_int_equal(truncate(path_of(0, 1), bytes), 0);
		if (bytes < TRACE_HEAD_BYTES) {
			assert_int_equal(trace_file_open(path_of(0, 1), &file, &why), -EINVAL);
			continue;
		}
		file = read_back(0);
		assert_true(file->count <= 3 && !file->ended);
		for (uint32_t i = 0; i < file->count; i++)
			assert_int_equal(file->entries[i].record.tag, i + 1);
		trace_file_close(file);
	}
	remove_all();
}

TEST(garbage)
{
	struct why why;
	struct trace_file *file;
	FILE *out;

	written(1);
	out = fopen(path_of(0, 1), "ae");
	assert_non_null(out);
	fputs("more", out);
	fclose(out);
	assert_int_equal(trace_file_open(path_of(0, 1), &file, &why), -EINVAL);
	assert_non_null(strstr(why.text, "bytes follow its end record"));
	out = fopen(path_of(0, 1), "r+e");
	assert_non_null(out);
	fseek(out, TRACE_HEAD_BYTES, SEEK_SET);
	fputs("X", out);
	fclose(out);
	assert_int_equal(trace_file_open(path_of(0, 1), &file, &why), -EINVAL);
	assert_non_null(strstr(why.text, "byte 128"));
	remove_all();
}

/* The limit, and a disk that takes no more: the trace ends, is readable, and nobody is stopped. */
TEST(limits)
{
	struct trace *trace = opened(0, 1, 400);
	struct rlimit before, limit;
	struct trace_file *file;

	for (uint64_t tag = 1; tag <= 9; tag++)
		record(trace, tag);
	trace_close(trace, 1, 2, 3);
	file = read_back(0);
	assert_in_range(file->count, 2, 4);
	trace_file_close(file);

	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &before);
	limit = before;
	limit.rlim_cur = 500;
	setrlimit(RLIMIT_FSIZE, &limit);
	trace = opened(1, 1, 1 << 20);
	for (uint64_t tag = 1; tag <= 30; tag++)
		record(trace, tag);
	trace_close(trace, 1, 2, 3);
	setrlimit(RLIMIT_FSIZE, &before);
	file = read_back(1);
	assert_in_range(file->count, 3, 6);
	assert_false(file->ended);
	trace_file_close(file);
	remove_all();
}

TEST(environment)
{
	struct trace_config config;

	unsetenv("WINNOW_TRACE");
	assert_false(trace_config_read(&config));
	setenv("WINNOW_TRACE", folder, 1);
	assert_true(trace_config_read(&config));
	assert_int_equal(config.limit_bytes, 64 << 20);
	assert_int_equal(config.fine, 4);
	setenv("WINNOW_TRACE_LIMIT", "1M", 1);
	setenv("WINNOW_TRACE_BLOCK", "32", 1);
	assert_true(trace_config_read(&config));
	assert_int_equal(config.limit_bytes, 1 << 20);
	assert_int_equal(config.fine, 32);
	setenv("WINNOW_TRACE_BLOCK", "0", 1);
	assert_false(trace_config_read(&config));
	setenv("WINNOW_TRACE_BLOCK", "4x", 1);
	assert_false(trace_config_read(&config));
	setenv("WINNOW_TRACE_BLOCK", "4", 1);
	setenv("WINNOW_TRACE_LIMIT", "much", 1);
	assert_false(trace_config_read(&config));
	unsetenv("WINNOW_TRACE_LIMIT");
	unsetenv("WINNOW_TRACE_BLOCK");
}

/* ---- what belongs together ---- */

static void traces_make(uint64_t run, uint32_t ranks)
{
	for (uint32_t rank = 0; rank < ranks; rank++) {
		struct trace *trace = opened(rank, run, 1 << 20);

		/* Submitted in another order on worker 1, tag 9 twice, and 4 on one of them only. */
		if (rank == 0)
			record(trace, 4);
		record(trace, rank == 0 ? 8 : 9);
		record(trace, rank == 0 ? 9 : 8);
		record(trace, 9);
		trace_close(trace, 1, 2, 3);
	}
}

TEST(source)
{
	struct why why = {""};
	struct source source;
	uint64_t bits = 0;

	assert_int_equal(source_trace(&source, folder, NULL, 0, &why), 1);
	assert_non_null(strstr(why.text, "holds no trace"));
	source_close(&source);
	traces_make(1, 2);
	traces_make(2, 2);
	assert_int_equal(source_trace(&source, folder, NULL, 0, &why), 0);
	assert_int_equal(source.world, 2);
	assert_int_equal(source.fine, 2);
	assert_int_equal(source.op_count, 3);
	assert_int_equal(source.ops[0].tag, 8);
	assert_int_equal(source.ops[1].tag, 9);
	/* Worker 1's 8 came between its two of 9. */
	assert_int_equal(source.traces[1]->entries[source.ops[0].entries[1]].record.tag, 8);
	assert_true(source.traces[1]->entries[1].body < source.traces[1]->entries[0].body);
	assert_true(source.traces[1]->entries[0].body < source.traces[1]->entries[2].body);
	assert_int_equal(source.ops[1].entries[1], 1);
	assert_int_equal(source.ops[2].entries[1], 2);
	assert_non_null(strstr(source.note, "latest"));
	assert_int_equal(source.traces[0]->head.run, 2);
	assert_int_equal(source_bits(&source, 2, 1, &bits, &why), 0);
	assert_int_equal(bits, 4);
	source_thin(&source, 2);
	assert_int_equal(source.op_count, 2);
	assert_int_equal(source.ops[1].tag, 9);
	source_close(&source);
	assert_int_equal(source_trace(&source, folder, "job-b", 0, &why), 1);
	source_close(&source);
	assert_int_equal(source_trace(&source, folder, NULL, 3, &why), 2);
	source_close(&source);
	traces_make(3, 1);
	assert_int_equal(source_trace(&source, folder, NULL, 0, &why), 1);
	assert_non_null(strstr(why.text, "worker 1 of job job-a is missing"));
	source_close(&source);
	assert_int_equal(source_trace(&source, folder, NULL, 1, &why), 0);
	source_close(&source);
	remove_all();
}

int main(void)
{
	int failed;

	if (mkdtemp(folder) == NULL || bitmap_pool_open(bitmap_best(), 1, &pool) != 0)
		return 1;
	failed = unit_run(NULL, NULL);
	bitmap_pool_close(pool);
	rmdir(folder);
	return failed;
}
