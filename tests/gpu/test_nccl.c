// SPDX-License-Identifier: BSD-3-Clause
/* test_nccl.c - what nccl.c says of several GPUs of one process: the state of all, not of some */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>

#include "kernels/node.h"
#include "tests/gpu/emulated/emulated.h"

#define GPUS 3

static atomic_bool gate;

static void wait_at_gate(void *ignored)
{
	(void)ignored;
	while (!atomic_load(&gate))
		usleep(100);
}

/* Whichever it is, one GPU that has work is enough, or one that has failed. */
static void test_one_of_them(struct node_gpus *gpus)
{
	struct why why;

	for (uint32_t i = 0; i < GPUS; i++) {
		atomic_store(&gate, false);
		assert_int_equal(cudaSetDevice((int)i), cudaSuccess);
		assert_int_equal(cudaLaunchHostFunc(nccl_node.stream(gpus, i), wait_at_gate, NULL),
		                 cudaSuccess);
		assert_int_equal(nccl_node.look(gpus, &why), NODE_WORKS);
		atomic_store(&gate, true);
		while (nccl_node.look(gpus, &why) != NODE_IDLE)
			usleep(100);
	}
	emulated_cuda_fail("cudaStreamQuery:2=700");
	assert_int_equal(nccl_node.look(gpus, &why), -EIO);
	assert_non_null(strstr(why.text, "on GPU 1: an illegal memory access"));
}

/* After a call NCCL settles on one GPU after the other. */
static void test_settles(struct node_gpus *gpus)
{
	struct node_task task = {
		.count = 3000, .dtype = DTYPE_F32, .reduction = REDUCE_SUM, .block_elems = 1};
	enum node_state seen = NODE_SETTLES, now;
	struct why why;

	for (int i = 0; i < GPUS; i++) {
		assert_int_equal(cudaSetDevice(i), cudaSuccess);
		assert_int_equal(cudaMalloc(&task.recv[i], 12000), cudaSuccess);
		task.send[i] = task.recv[i];
	}
	assert_int_equal(nccl_node.step(gpus, &task, (struct node_share){0, 3000}, false, &why), 0);
	assert_int_equal(nccl_node.look(gpus, &why), NODE_SETTLES);
	for (; seen != NODE_IDLE; seen = now) {
		now = (enum node_state)nccl_node.look(gpus, &why);
		assert_true((int)now >= 0 && now <= seen);
	}
}

static void test_node(void **state)
{
	struct node_setup setup = {.world = GPUS, .count = GPUS, .devices = {0, 1, 2}};
	struct node_gpus *gpus;
	struct why why;

	(void)state;
	assert_int_equal(nccl_node.id(setup.id, &why), 0);
	assert_int_equal(nccl_node.open(&setup, &gpus, &why), 0);
	while (nccl_node.look(gpus, &why) != NODE_IDLE)
		usleep(100);
	test_settles(gpus);
	test_one_of_them(gpus);
	nccl_node.close(gpus);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_node)};

	setenv("WINNOW_NCCL", "libemulated-cuda.so", 1); /* it is here already */
	setenv("EMULATED_CUDA_DEVICES", "3", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
