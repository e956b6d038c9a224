// SPDX-License-Identifier: BSD-3-Clause
/* test_nccl_fails.c - NCCL that is missing, fails, or waits for somebody who does not come */

#include "tests/gpu/test_nccl.h"

static void body_missing(struct process *p)
{
	setenv("WINNOW_NCCL", "/nowhere/libnccl.so.2", 1);
	CHECK(open_node(p) == -ENOENT);
	CHECK(says("cannot open NCCL", "/nowhere/libnccl.so.2"));
	CHECK(winnow_node_gpus.open(&(struct node_setup){.count = 1}, &p->gpus, why) == -ENOENT);
}

/* A library of that name which is something else. */
static void body_foreign(struct process *p)
{
	setenv("WINNOW_NCCL", "libm.so.6", 1);
	CHECK(open_node(p) == -ENOENT);
	CHECK(says("NCCL lacks", "nccl"));
}

/* A node of `ranks` processes in whose body a call fails: by VARIABLE=FAULT, and the error names `call`. */
static void node_fails(const char *variable, const char *fault, const char *call, uint32_t ranks,
                       void (*body)(struct process *))
{
	setenv(variable, fault, 1);
	setenv("TEST_CALL", call, 1);
	assert_int_equal(run_node(ranks, ranks, body, -1), 0);
	unsetenv(variable);
}

static void body_open_fails(struct process *p)
{
	CHECK(open_node(p) == -EIO);
	CHECK(says(getenv("TEST_CALL"), "on GPU"));
}

static const char *const open_calls[] = {"ncclGetUniqueId", "ncclCommInitRankConfig",
                                         "ncclCommSplit", "ncclGroupStart"};

static void test_opening_fails(void **state)
{
	char text[100];

	(void)state;
	assert_int_equal(run_node(2, 2, body_missing, -1), 0);
	assert_int_equal(run_node(2, 2, body_foreign, -1), 0);
	for (unsigned i = 0; i < sizeof(open_calls) / sizeof(open_calls[0]); i++) {
		snprintf(text, sizeof(text), "%s:1=2", open_calls[i]);
		node_fails("FAKE_NCCL_FAIL", text, open_calls[i], 2, body_open_fails);
	}
	node_fails("EMULATED_CUDA_FAIL", "cudaStreamCreateWithPriority:4",
	           "cudaStreamCreateWithPriority", 2, body_open_fails);
}

/* Steps fail with the name of the call; abort and close end everything. */
static void body_step_fails(struct process *p)
{
	struct run run = {.dtype = DTYPE_F32, .op = REDUCE_SUM, .count = 1001, .block = 10};
	struct node_task task;
	int err;

	CHECK(open_node(p) == 0);
	run_begin(p, &run);
	task = task_of(p, &run);
	err = winnow_node_gpus.scatter(p->gpus, 0, &task, why);
	if (err == 0)
		err = winnow_node_gpus.gather(p->gpus, 0, &task, why);
	CHECK(err == -EIO);
	CHECK(says(getenv("TEST_CALL"), "on GPU"));
	winnow_node_gpus.abort(p->gpus);
	CHECK(cudaDeviceSynchronize() == cudaSuccess);
	winnow_node_gpus.close(p->gpus);
}

static void test_steps_fail(void **state)
{
	static const char *const calls[] = {"ncclReduceScatter", "ncclReduce", "ncclAllGather",
	                                    "ncclBroadcast"};
	char text[100];

	(void)state;
	for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		snprintf(text, sizeof(text), "%s:2=1", calls[i]);
		node_fails("FAKE_NCCL_FAIL", text, calls[i], 3, body_step_fails);
	}
	node_fails("EMULATED_CUDA_FAIL", "cudaEventRecord:2",
	           "cudaEventRecord on GPU 1: unspecified launch failure", 3, body_step_fails);
}

static void body_async_error(struct process *p)
{
	CHECK(open_node(p) == 0);
	setenv("FAKE_NCCL_FAIL", "async:1=6", 1);
	CHECK(winnow_node_gpus.look(p->gpus, why) == -EIO);
	CHECK(says("remote process exited", "on GPU 0"));
	winnow_node_gpus.abort(p->gpus);
	winnow_node_gpus.close(p->gpus);
}

static void body_nobody_comes(struct process *p)
{
	if (p->rank == 0) {
		p->give_up_ms = now_ms() + 300;
		CHECK(open_node(p) == -ECANCELED);
		CHECK(says("ncclCommInitRankConfig", "did not come"));
	}
}

/* A rank is killed between two operations: the other's stream stands still until abort(). */
static void body_killed(struct process *p)
{
	struct run run = {.dtype = DTYPE_F32, .op = REDUCE_SUM, .count = 1000, .block = 10};

	CHECK(open_node(p) == 0);
	run_begin(p, &run);
	meet(p, 0);
	if (p->rank == 1)
		raise(SIGKILL);
	run_steps(p, &run);
	nap_ms(100);
	CHECK(!winnow_node_gpus.idle(p->gpus));
	CHECK(cudaStreamQuery(p->streams[0]) == cudaErrorNotReady);
	winnow_node_gpus.abort(p->gpus);
	CHECK(cudaStreamSynchronize(p->streams[0]) == cudaSuccess);
	winnow_node_gpus.close(p->gpus);
}

static void test_others_fail(void **state)
{
	(void)state;
	assert_int_equal(run_node(2, 2, body_async_error, -1), 0);
	assert_int_equal(run_node(2, 1, body_nobody_comes, -1), 0);
	assert_int_equal(run_node(2, 1, body_killed, 1), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_opening_fails),
		cmocka_unit_test(test_steps_fail),
		cmocka_unit_test(test_others_fail),
	};

	return find_library() != 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
