// SPDX-License-Identifier: BSD-3-Clause
/* test_nccl.c - what nccl.c says of several GPUs of one process: the state of all, not of some */

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernels/node.h"
#include "tests/gpu/emulated/emulated.h"

#define GPUS 3

static atomic_bool gate;

static cudaError_t wait_at_gate(void *ignored)
{
	(void)ignored;
	while (!atomic_load(&gate))
		usleep(100);
	return cudaSuccess;
}

static cudaError_t break_down(void *ignored)
{
	(void)ignored;
	return cudaErrorIllegalAddress;
}

static int open_node(void **state)
{
	struct node_setup setup = {.world = GPUS, .count = GPUS, .devices = {0, 1, 2}};
	struct node_gpus *gpus;
	struct why why;

	assert_int_equal(nccl_node.id(setup.id, &why), 0);
	assert_int_equal(nccl_node.open(&setup, &gpus, &why), 0);
	while (nccl_node.look(gpus, &why) != NODE_IDLE)
		usleep(100);
	*state = gpus;
	return 0;
}

static int close_node(void **state)
{
	atomic_store(&gate, true);
	nccl_node.close(*state);
	emulated_cuda_reset();
	return 0;
}

/* Whichever it is, one GPU that has work is enough. */
static void test_one_works(void **state)
{
	struct node_gpus *gpus = *state;
	struct why why;

	for (uint32_t i = 0; i < GPUS; i++) {
		atomic_store(&gate, false);
		assert_int_equal(cudaSetDevice((int)i), cudaSuccess);
		assert_int_equal(emulated_cuda_queue(nccl_node.stream(gpus, i), wait_at_gate, NULL),
		                 0);
		assert_int_equal(nccl_node.look(gpus, &why), NODE_WORKS);
		atomic_store(&gate, true);
		while (nccl_node.look(gpus, &why) != NODE_IDLE)
			usleep(100);
	}
}

/* After a call NCCL settles on one GPU after the other. */
static void test_settles(void **state)
{
	struct node_gpus *gpus = *state;
	struct node_task task = {.count = 3000, .dtype = DTYPE_F32, .reduction = REDUCE_SUM};
	enum node_state seen = NODE_SETTLES, now;
	struct why why;

	task.block_elems = 1;
	for (int i = 0; i < GPUS; i++) {
		void *memory;

		assert_int_equal(cudaSetDevice(i), cudaSuccess);
		assert_int_equal(cudaMalloc(&memory, 12000), cudaSuccess);
		task.send[i] = task.recv[i] = memory;
	}
	assert_int_equal(nccl_node.step(gpus, &task, false, &why), 0);
	assert_int_equal(nccl_node.look(gpus, &why), NODE_SETTLES);
	for (; seen != NODE_IDLE; seen = now) {
		now = (enum node_state)nccl_node.look(gpus, &why);
		assert_true((int)now >= 0 && now <= seen);
	}
	for (int i = 0; i < GPUS; i++)
		assert_int_equal(cudaFree(task.recv[i]), cudaSuccess);
}

static void test_one_fails(void **state)
{
	struct node_gpus *gpus = *state;
	struct why why;
	int found;

	assert_int_equal(cudaSetDevice(1), cudaSuccess);
	assert_int_equal(emulated_cuda_queue(nccl_node.stream(gpus, 1), break_down, NULL), 0);
	while ((found = nccl_node.look(gpus, &why)) >= 0)
		usleep(100);
	assert_int_equal(found, -EIO);
	assert_non_null(strstr(why.text, "on GPU 1: an illegal memory access"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_one_works, open_node, close_node),
		cmocka_unit_test_setup_teardown(test_settles, open_node, close_node),
		cmocka_unit_test_setup_teardown(test_one_fails, open_node, close_node),
	};
	char self[PATH_MAX], fake[2 * PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (length < 0)
		return 1;
	self[length] = '\0';
	snprintf(fake, sizeof(fake), "%s/libnccl-fake.so", dirname(self));
	setenv("WINNOW_NCCL", fake, 1);
	setenv("EMULATED_CUDA_DEVICES", "3", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
