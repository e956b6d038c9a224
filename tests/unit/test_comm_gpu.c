// SPDX-License-Identifier: BSD-3-Clause
/* test_comm_gpu.c - an operation on a GPU's memory that does not begin gives back what it has posted */

#include <errno.h>

#include "tests/unit/test_comm.h"

/* ---- a GPU that the test plays ---- */

static struct winnow_comm *moved; /* goes on to another membership as soon as a mark is made */
static int marks;                 /* that nobody has given back */

static int gpu_locate(const void *memory, int *device, struct why *why)
{
	*device = 0;
	return 0;
}

static int gpu_mark(int device, void *stream, struct gpu_mark **out, struct why *why)
{
	*out = (struct gpu_mark *)&marks;
	marks++;
	pthread_mutex_lock(&moved->shared.lock);
	comm_phase_set(moved, COMM_STOPPING);
	pthread_mutex_unlock(&moved->shared.lock);
	return 0;
}

static void gpu_unmark(struct gpu_mark *mark)
{
	assert_ptr_equal(mark, &marks);
	marks--;
}

int net_plugin_open(const char *name, const char *path, const char *symbol, const void **out,
                    struct why *why)
{
	static const struct gpu_calls calls = {
		.locate = gpu_locate, .mark = gpu_mark, .unmark = gpu_unmark};

	assert_string_equal(name, "cuda");
	*out = &calls;
	return 0;
}

int net_backend_named(const char *name, const struct net_backend **out, struct why *why)
{
	return -EINVAL;
}

/* ---- */

COMM_TEST(does_not_begin, comm_made(1))
{
	const struct winnow_options options = {.memory = WINNOW_MEMORY_CUDA};
	struct winnow_request *request;

	moved = comm;
	comm->any.gpus[0] = (struct staging *)&marks; /* it has been opened before */
	assert_int_equal(winnow_allreduce_async(given, received, COUNT, WINNOW_I32, WINNOW_SUM,
	                                        &options, comm, &request),
	                 WINNOW_OK);
	assert_int_equal(winnow_wait(request, -1, NULL), WINNOW_ERR_MEMBERS);
	assert_string_equal(winnow_last_error(), comm_moves);
	assert_int_equal(marks, 0);
	winnow_request_free(&request);
	assert_int_equal(unused(comm), 1);
}
