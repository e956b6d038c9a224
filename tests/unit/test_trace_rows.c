// SPDX-License-Identifier: BSD-3-Clause
/* test_trace_rows.c - recording an operation that is given as a list of blocks */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/tune/source.h"
#include "client/worker/rows.h"
#include "client/trace/trace.h"
#include "tests/unit/unit.h"

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
	struct allreduce task = {
		.send = values,
		.count = 3000,
		.tag = 9,
		.block_elems = 3,
		.cut = {.elem_bytes = 4,
	                .part_count = 1,
	                .one = {.count = 3000, .tile_rows = 1, .tile_columns = 3, .copies = 1}},
		.dtype = DTYPE_F32,
		.reduction = REDUCE_SUM};
	char folder[] = "/tmp/winnow-trace-XXXXXX", path[128];
	struct trace_config config = {.folder = folder,
	                              .limit_bytes = 1 << 20,
	                              .fine = 2,
	                              .head = {.job = "job-a",
	                                       .world = 1,
	                                       .aggregators = 1,
	                                       .channels = 1,
	                                       .payload = 1472,
	                                       .window = 256}};
	struct winnow_rows *rows;
	struct trace *trace;
	struct why why = {""};
	uint64_t bits[1500 / 64 + 1];
	struct trace_file *file;
	const char *wrong;

	assert_non_null(values);
	assert_non_null(mkdtemp(folder));
	assert_int_equal(trace_open(&config, &trace, &why), 0);
	snprintf(path, sizeof(path), "%s/job-a.%016x.0.trace", folder, 0);
	memcpy(values, (const float[]){0, 0, 1, 1, 0, 0}, 6 * sizeof(*values)); /* 14 and 3 */
	assert_int_equal(rows_open(&input, &rows, &wrong), 0);
	task.access = rows_access(rows);
	task.access_state = rows;
	trace_operation(trace, &task);
	trace_close(trace, 0, 0, 0);
	rows_close(rows);
	free(values);
	assert_int_equal(trace_file_open(path, &file, &why), 0);
	assert_true(trace_bitmap_take(file->entries[0].body, &file->entries[0].record, bits));
	assert_int_equal(bits[0], 1 << 7 | 1 << 1);
	for (uint32_t i = 1; i < 1500 / 64 + 1; i++)
		assert_int_equal(bits[i], 0);
	trace_file_close(file);
	unlink(path);
	rmdir(folder);
}
