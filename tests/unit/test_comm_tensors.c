// SPDX-License-Identifier: BSD-3-Clause
/* test_comm_tensors.c - what a call's tensor may be: rows, segments, tiles; and which are refused; the test is the communicator's thread */

#include "tests/unit/test_comm.h"

/* Rows have two holders, too: the operation, and who reads them. */
TEST(rows)
{
	const int64_t index[] = {4, 0};

	for (int order = 0; order < 6; order++) {
		/* What happens first, second and third. */
		static const char *const orders[] = {"rqd", "rdq", "qrd", "qdr", "drq", "dqr"};
		struct winnow_comm *comm = comm_made(1);
		struct winnow_request *request;
		struct winnow_rows *rows;

		assert_int_equal(winnow_allreduce_rows_async(given, index, 2, 4, COUNT, WINNOW_I32,
		                                             WINNOW_SUM, NULL, comm, &rows,
		                                             &request),
		                 WINNOW_OK);
		assert_ptr_equal(taken(comm)->rows, rows);
		for (int i = 0; i < 3; i++) {
			struct winnow_request *only = comm->shared.requests;

			if (orders[order][i] == 'r') {
				winnow_rows_free(&rows);
				assert_null(rows);
				winnow_rows_free(&rows);
			} else if (orders[order][i] == 'q') {
				winnow_request_free(&request);
			} else {
				/* It reads what it sends until it is done. */
				assert_int_equal(only->rows->count, 2);
				end(only, WINNOW_OK);
			}
			if (rows != NULL)
				assert_int_equal(winnow_rows_count(rows), 0);
		}
		assert_int_equal(unused(comm), 1);
		closed(comm);
	}
}

/* The last call was refused: it says this, gives no request, and nothing is queued. */
static void refused(const struct winnow_comm *comm, int result, const char *text,
                    struct winnow_request **request)
{
	assert_int_equal(result, WINNOW_ERR_INVALID);
	if (strstr(winnow_last_error(), text) == NULL)
		fail_msg("'%s' does not say '%s'", winnow_last_error(), text);
	assert_true(request == NULL || *request == NULL);
	assert_true(STAILQ_EMPTY(&comm->shared.submitted));
}

static int list_begin(struct winnow_comm *comm, const struct winnow_options *options,
                      struct winnow_rows **rows, struct winnow_request **request)
{
	static const int64_t index[] = {4, 0};

	return winnow_allreduce_rows_async(given, index, 2, 4, COUNT, WINNOW_I32, WINNOW_SUM,
	                                   options, comm, rows, request);
}

static int sparse_begin(struct winnow_comm *comm, const struct winnow_options *options,
                        struct winnow_request **request)
{
	static const int64_t index[] = {4, 0};

	return winnow_allreduce_sparse_block_async(given, index, 2, 4, received, COUNT, WINNOW_I32,
	                                           WINNOW_SUM, options, comm, request);
}

static int empty_begin(struct winnow_comm *comm, enum winnow_dtype dtype,
                       const struct winnow_options *options, struct winnow_request **request)
{
	return winnow_allreduce_sparse_block_async(NULL, NULL, 0, 1, NULL, 0, dtype, WINNOW_SUM,
	                                           options, comm, request);
}

/* Lists that cannot be; and calls that are told nowhere to put what they make. */
COMM_TEST(lists_refused, comm_made(1))
{
	const struct winnow_options gpu = {.memory = WINNOW_MEMORY_CUDA};
	const struct winnow_options odd = {.wire = 99};
	struct winnow_request *request;
	struct winnow_rows *rows;

	/* An empty tensor needs no buffers; what else is wrong with it is still seen. */
	refused(comm, empty_begin(comm, WINNOW_F32, &odd, &request), "unknown wire form", &request);
	refused(comm, empty_begin(comm, (enum winnow_dtype)99, NULL, &request),
	        "unknown element type", &request);
	assert_int_equal(empty_begin(comm, WINNOW_F32, NULL, &request), WINNOW_OK);
	end(taken(comm), WINNOW_OK);
	winnow_request_free(&request);
	refused(comm, sparse_begin(comm, &gpu, &request), "none is taken from a GPU", &request);
	refused(comm, list_begin(comm, &gpu, &rows, &request), "none is taken from a GPU",
	        &request);
	assert_null(rows);
	refused(comm, sparse_begin(comm, NULL, NULL), "request is NULL", NULL);
	refused(comm, list_begin(comm, NULL, &rows, NULL), "request is NULL", NULL);
	refused(comm, list_begin(comm, NULL, NULL, &request), "rows is NULL", &request);
	refused(comm,
	        winnow_allreduce_async(given, received, COUNT, WINNOW_I32, WINNOW_SUM, NULL, comm,
	                               NULL),
	        "request is NULL", NULL);
}

/* Sanitizers, too, say by NULL that there is no memory. They ask before they are ready themselves. */
#define ASKED __attribute__((visibility("default"), no_sanitize("address", "thread")))

ASKED const char *__asan_default_options(void);
ASKED const char *__tsan_default_options(void);

const char *__asan_default_options(void)
{
	return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void)
{
	return "allocator_may_return_null=1";
}

/* A list that no memory takes: the caller, who may free what he has got, has got nothing. */
COMM_TEST(lists_too_large, comm_made(1))
{
	const uint64_t blocks = UINT64_C(1) << 45;
	struct winnow_request *request = (struct winnow_request *)(uintptr_t)1;
	struct winnow_rows *rows = (struct winnow_rows *)(uintptr_t)1;
	const int64_t index = 0;

	assert_int_equal(winnow_allreduce_rows_async(given, &index, blocks, 1, blocks, WINNOW_I32,
	                                             WINNOW_SUM, NULL, comm, &rows, &request),
	                 WINNOW_ERR_MEMORY);
	assert_null(request);
	assert_null(rows);
	assert_true(STAILQ_EMPTY(&comm->shared.submitted));
}

static const struct winnow_segment two[] = {{0, 2 * COUNT, 16, 0, 0},
                                            {2 * COUNT, 2 * COUNT, 32, 0, 0}};

static struct winnow_request *begin_parts(struct winnow_comm *comm,
                                          const struct winnow_segment *segments, uint32_t count)
{
	struct winnow_request *request;

	assert_int_equal(winnow_allreduce_segments_async(given, received, 4 * COUNT, WINNOW_I32,
	                                                 WINNOW_SUM, segments, count, NULL, comm,
	                                                 &request),
	                 WINNOW_OK);
	return request;
}

/* One operation, whose layout is the request's until that is freed. */
TEST(parts)
{
	for (int freed = 0; freed < 2; freed++) {
		struct winnow_comm *comm = comm_made(1);
		struct winnow_request *request = begin_parts(comm, two, 2), *queued = taken(comm);
		struct winnow_op_stats stats;

		assert_ptr_equal(queued, request);
		assert_true(STAILQ_EMPTY(&comm->shared.submitted));
		assert_int_equal(queued->task.part_count, 2);
		assert_int_equal(queued->task.parts[0].count, 2 * COUNT);
		assert_int_equal(queued->task.parts[0].tile_columns, 16);
		assert_int_equal(queued->task.parts[1].count, 2 * COUNT);
		assert_int_equal(queued->task.parts[1].tile_columns, 32);
		if (freed)
			winnow_request_free(&request);
		end(queued, WINNOW_OK);
		if (!freed)
			assert_int_equal(winnow_wait(request, 0, &stats), WINNOW_OK);
		winnow_request_free(&request);
		assert_int_equal(unused(comm), 1);
		assert_int_equal(made(comm), 1);
		/* The next operation has no parts. */
		begin(comm);
		assert_int_equal(taken(comm)->task.part_count, 0);
		closed(comm);
	}
}

/* What lies between segments has the usual block; neighbours with the same block and grid are one part. */
TEST(parts_of_segments)
{
	static const struct {
		struct winnow_segment segments[3];
		uint32_t count, parts;
		struct {
			uint64_t count;
			uint32_t block, columns;
		} want[3];
	} cases[] = {
		{{{0}}, 0, 0, {{0}}},
		{{{0, 64, 0, 0, 0}}, 1, 1, {{64, 256, 0}}},
		{{{16, 16, 16, 0, 0}}, 1, 3, {{16, 256, 0}, {16, 16, 0}, {32, 256, 0}}},
		{{{0, 16, 16, 0, 0}, {16, 32, 16, 0, 0}, {48, 16, 16, 0, 0}}, 3, 1, {{64, 16, 0}}},
		{{{0, 24, 16, 0, 0}, {24, 40, 16, 0, 0}}, 2, 2, {{24, 16, 0}, {40, 16, 0}}},
		{{{0, 64, 4, 0, 0}}, 1, 1, {{64, 16, 0}}},
		{{{0, 64, 3, 0, 0}}, 1, 1, {{64, 18, 0}}},
		/* A matrix in tiles is a part of its own. */
		{{{0, 16, 16, 0, 0}, {16, 32, 8, 2, 16}, {48, 16, 16, 0, 0}},
	         3,
	         3,
	         {{16, 16, 0}, {32, 16, 8}, {16, 16, 0}}},
		{{{0, 0, 8, 2, 3}, {0, 64, 8, 2, 3}}, 2, 1, {{64, 3, 8}}},
	};

	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		struct winnow_comm *comm = comm_made(1);
		struct winnow_request *request =
			begin_parts(comm, cases[c].segments, cases[c].count);

		taken(comm);
		assert_int_equal(request->task.part_count, cases[c].parts);
		for (uint32_t i = 0; i < cases[c].parts; i++) {
			assert_int_equal(request->task.parts[i].count, cases[c].want[i].count);
			assert_int_equal(request->task.parts[i].tile_columns,
			                 cases[c].want[i].block);
			assert_int_equal(request->task.parts[i].columns, cases[c].want[i].columns);
			assert_int_equal(request->task.parts[i].tile_rows,
			                 cases[c].want[i].columns > 0 ? 2 : 1);
		}
		end(request, WINNOW_OK);
		closed(comm);
	}
}

/* Tiles that cannot be: nothing is queued. */
COMM_TEST(tiles_refused, comm_made(1))
{
	static const struct {
		struct winnow_segment segment;
		const char *why;
	} cases[] = {
		{{0, 64, 8, 2, 0}, "one of the two is 0"},
		{{0, 64, 8, 0, 2}, "one of the two is 0"},
		{{0, 64, 0, 2, 2}, "no matrix"},
		{{0, 63, 8, 2, 2}, "no matrix"},
		{{8, 64, 8, 2, 2}, "outside of the tensor"},
	};
	const struct winnow_options gpu = {.memory = WINNOW_MEMORY_CUDA};
	const struct winnow_segment good = {0, 64, 8, 2, 2}, large = {0, 1 << 20, 1024, 65, 1009};
	struct winnow_request *request;

	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
		refused(comm,
		        winnow_allreduce_segments_async(given, received, 4 * COUNT, WINNOW_I32,
		                                        WINNOW_SUM, &cases[c].segment, 1, NULL,
		                                        comm, &request),
		        cases[c].why, &request);
	assert_non_null(strstr(comm_wrong_segments(&large, 1, 1 << 20, false), "65536 elements"));
	refused(comm,
	        winnow_allreduce_segments_async(given, received, 4 * COUNT, WINNOW_I32, WINNOW_SUM,
	                                        &good, 1, &gpu, comm, &request),
	        "has no tiles", &request);
}

/* What only the job, or the whole of an operation, makes impossible; and nothing is queued. */
COMM_TEST(impossible, comm_made(1))
{
	struct winnow_options fixed8 = {.wire = WINNOW_WIRE_FIXED8}, fine = {.block = 1};
	const struct {
		uint64_t count;
		int dtype, op;
		const struct winnow_options *options;
		const char *why;
	} cases[] = {
		{4, WINNOW_F32, WINNOW_SUM, &fixed8, "at most 256 workers"},
		{UINT64_C(1) << 39, WINNOW_F32, WINNOW_SUM, &fine, "has 2^38 blocks or more"},
		{4, 257, WINNOW_SUM, NULL, "unknown element type"},
		{4, WINNOW_F32, 257, NULL, "unknown operation"},
	};
	struct winnow_request *request;
	static float one[4];

	comm->shared.view.world = 257;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		refused(comm,
		        winnow_allreduce_async(
				one, one, cases[i].count, (enum winnow_dtype)cases[i].dtype,
				(enum winnow_op)cases[i].op, cases[i].options, comm, &request),
		        cases[i].why, &request);
	refused(comm,
	        winnow_allreduce_segments_async(one, one, 4, WINNOW_F32, WINNOW_SUM, NULL, 1, NULL,
	                                        comm, &request),
	        "segments is NULL", &request);
	comm->shared.view.world = 2; /* it has been reconfigured since */
	assert_int_equal(winnow_allreduce_async(one, one, 4, WINNOW_F32, WINNOW_SUM, &fixed8, comm,
	                                        &request),
	                 WINNOW_OK);
	end(taken(comm), WINNOW_OK);
	winnow_request_free(&request);
	winnow_comm_abort(comm, "one\nand \x1btwo");
	assert_string_equal(comm->shared.end.text, "one?and ?two");
}
