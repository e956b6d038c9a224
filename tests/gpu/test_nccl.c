// SPDX-License-Identifier: BSD-3-Clause
/* test_nccl.c - the two steps inside a node: results, shares, streams */

#include "tests/gpu/test_nccl.h"

static void body_results(struct process *p)
{
	static const uint64_t counts[] = {0, 1, 5, 320, 321, 1000, COUNT_MAX};

	CHECK(open_node(p) == 0);
	for (unsigned i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		for (int op = REDUCE_SUM; op <= REDUCE_PROD; op++)
			for (unsigned c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
				struct run run = {
					.dtype = types[i].dtype,
					.op = (enum reduction)op,
					.count = counts[c],
					.block = c % 2 ? 64 : 7,
					.in_place = (i + c) % 2,
					.turn = c % NODE_TURNS,
				};

				if (op == REDUCE_AVG && !types[i].is_float)
					continue;
				run_begin(p, &run);
				run_steps(p, &run);
				run_end(p, &run);
			}
	close_node(p);
}

/* Many under way at the same time, in streams that stand still meanwhile. */
static void body_many(struct process *p)
{
	struct run runs[10];

	CHECK(open_node(p) == 0);
	for (uint32_t i = 0; i < 10; i++) {
		runs[i] = (struct run){.dtype = DTYPE_I64,
		                       .op = REDUCE_SUM,
		                       .count = 3000 + 100 * i,
		                       .block = 32,
		                       .in_place = i % 2,
		                       .turn = i % NODE_TURNS};
		run_begin(p, &runs[i]);
	}
	for (int i = 0; i < 10; i++)
		run_steps(p, &runs[i]);
	for (int i = 0; i < 10; i++)
		run_end(p, &runs[i]);
	CHECK(winnow_node_gpus.look(p->gpus, why) == 0);
	close_node(p);
}

static void test_results(void **state)
{
	(void)state;
	assert_int_equal(run_node(1, 1, body_results, -1), 0);
	assert_int_equal(run_node(4, 4, body_results, -1), 0);
	assert_int_equal(run_node(5, 5, body_results, -1), 0);
	assert_int_equal(run_node(3, 1, body_results, -1), 0);
}

static void test_many(void **state)
{
	(void)state;
	assert_int_equal(run_node(4, 4, body_many, -1), 0);
	assert_int_equal(run_node(4, 1, body_many, -1), 0);
}

static void body_capture(struct process *p)
{
	struct run run = {.dtype = DTYPE_F32, .op = REDUCE_SUM, .count = 1000, .block = 10};
	struct node_task task;
	cudaGraph_t graph;

	CHECK(open_node(p) == 0);
	run_begin(p, &run);
	task = task_of(p, &run);
	CHECK(cudaStreamBeginCapture(p->streams[1], cudaStreamCaptureModeGlobal) == cudaSuccess);
	CHECK(winnow_node_gpus.scatter(p->gpus, 0, &task, why) == -EINVAL);
	CHECK(says("captured", "CUDA graph"));
	CHECK(cudaStreamEndCapture(p->streams[1], &graph) == cudaSuccess);
	run_steps(p, &run);
	run_end(p, &run);
	close_node(p);
}

static void count_down(void *argument)
{
	__atomic_sub_fetch((int *)argument, 1, __ATOMIC_SEQ_CST);
}

/* The caller's streams go on, and gather() comes when the shares are there; the host hears of the end once a GPU. */
static void body_goes_on(struct process *p)
{
	struct run run = {.dtype = DTYPE_F32, .op = REDUCE_SUM, .count = 9000, .block = 100};
	struct node_task task;
	int left = (int)p->count;

	CHECK(open_node(p) == 0);
	run_begin(p, &run);
	task = task_of(p, &run);
	task.goes_on = true;
	task.done = count_down;
	task.context = &left;
	CHECK(winnow_node_gpus.scatter(p->gpus, 0, &task, why) == 0);
	if (p->rank == 0) {
		/* What comes before it is over; the others have not begun to gather. */
		CHECK(cudaStreamSynchronize(p->streams[0]) == cudaSuccess);
		CHECK(__atomic_load_n(&left, __ATOMIC_SEQ_CST) == (int)p->count);
	}
	for (uint32_t i = 0; i < p->count; i++)
		CHECK(cudaStreamSynchronize(winnow_node_gpus.stream(p->gpus, 0, i)) == cudaSuccess);
	task.send = NULL;
	task.streams = NULL;
	CHECK(winnow_node_gpus.gather(p->gpus, 0, &task, why) == 0);
	while (__atomic_load_n(&left, __ATOMIC_SEQ_CST) > 0)
		nap_ms(1);
	run_end(p, &run);
	close_node(p);
}

static void test_streams(void **state)
{
	(void)state;
	assert_int_equal(run_node(2, 2, body_capture, -1), 0);
	assert_int_equal(run_node(3, 3, body_goes_on, -1), 0);
	assert_int_equal(run_node(3, 1, body_goes_on, -1), 0);
}

/* Shares cover the tensor, in order, in whole blocks but for the last. */
static void test_shares(void **state)
{
	(void)state;
	for (uint64_t count = 0; count < 300; count++)
		for (uint32_t block = 1; block < 70; block += 7)
			for (uint32_t world = 1; world < 9; world++) {
				uint64_t at = 0;

				for (uint32_t rank = 0; rank < world; rank++) {
					struct node_share share =
						node_share(count, block, world, rank);

					assert_int_equal(share.first, at);
					assert_int_equal(share.first % block, 0);
					at += share.count;
				}
				assert_int_equal(at, count);
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shares),
		cmocka_unit_test(test_results),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_streams),
	};

	return find_library() != 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
