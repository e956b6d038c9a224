// SPDX-License-Identifier: BSD-3-Clause
/*
 * device_faults.c - what goes wrong with tensors on an emulated GPU, and what does not wait
 *
 *   device_faults AGGREGATOR [CALL..]
 *
 * One worker is a job of its own here. Without CALLs: refusals, what crosses the bus, streams that
 * run late, leaving with work under way, a fork. With CALLs: each of these calls of CUDA fails once,
 * the first one of the library's, then the second, until the job gets by without; every failure ends
 * the job with a line that names call and GPU, and no stream waits for ever.
 */

#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/winnow.h"
#include "tests/gpu/device_tensor.h"
#include "tests/gpu/emulated/emulated.h"

#define ITERATIONS_MAX 200
#define MET 10

/* ---- what is refused ---- */

static void expect_refusal(int result, const char *words)
{
	expect(result == WINNOW_ERR_INVALID, "not refused");
	expect(strstr(winnow_last_error(), words) != NULL, words);
}

static void test_refusals(void)
{
	struct winnow_comm *comm = join();
	struct winnow_request *request;
	struct tensor here, there;
	struct winnow_options options, plain = {0};
	cudaStream_t blocking;
	cudaGraph_t graph;

	tensor_open(&here);
	(void)cudaSetDevice(1);
	tensor_open(&there);
	(void)cudaSetDevice(0);
	options = on(here.stream);
	expect_refusal(winnow_allreduce_cuda(here.host, here.recv, COUNT, WINNOW_F32, WINNOW_SUM,
	                                     comm, here.stream),
	               "not in the memory of a GPU");
	expect_refusal(winnow_allreduce_cuda(here.send, there.recv, COUNT, WINNOW_F32, WINNOW_SUM,
	                                     comm, here.stream),
	               "two GPUs, 0 and 1");
	expect_refusal(winnow_allreduce_cuda((char *)here.send + 2, here.recv, 5, WINNOW_F32,
	                                     WINNOW_SUM, comm, here.stream),
	               "not aligned");
	expect_refusal(winnow_allreduce_async(here.host, here.host, 5, WINNOW_F32, WINNOW_SUM,
	                                      &plain, comm, NULL),
	               "request is NULL");
	options.stream_goes_on = 1;
	expect_refusal(winnow_allreduce_async(here.send, here.recv, 5, WINNOW_F32, WINNOW_SUM,
	                                      &options, comm, NULL),
	               "the stream goes on");
	expect(cudaStreamBeginCapture(here.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess,
	       "cannot capture");
	options.stream_goes_on = 0;
	expect_refusal(winnow_allreduce_async(here.send, here.recv, 5, WINNOW_F32, WINNOW_SUM,
	                                      &options, comm, &request),
	               "being captured");
	expect_refusal(winnow_allreduce_segments_async(here.send, here.recv, 5, WINNOW_F32,
	                                               WINNOW_SUM, NULL, 0, &options, comm,
	                                               &request),
	               "being captured");
	expect(cudaStreamEndCapture(here.stream, &graph) == cudaSuccess, "cannot end a capture");
	(void)cudaGraphDestroy(graph);
	expect_refusal(winnow_allreduce_cuda(here.send, here.recv, 5, WINNOW_F32, WINNOW_SUM, comm,
	                                     there.stream),
	               "on GPU 0, and the stream is on GPU 1");
	/* The legacy stream waits for all streams of this kind, so it cannot be asked, either. */
	expect(cudaStreamCreate(&blocking) == cudaSuccess &&
	               cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed) ==
	                       cudaSuccess,
	       "cannot capture");
	expect_refusal(
		winnow_allreduce_cuda(here.send, here.recv, 5, WINNOW_F32, WINNOW_SUM, comm, NULL),
		"being captured");
	expect(cudaStreamEndCapture(blocking, &graph) == cudaSuccess, "cannot end a capture");
	(void)cudaStreamDestroy(blocking);

	/* None of that did any harm. */
	fill(&here, 2);
	expect(winnow_allreduce_cuda(here.send, here.recv, COUNT, WINNOW_F32, WINNOW_SUM, comm,
	                             here.stream) == WINNOW_OK,
	       "refusals have ended the communicator");
	fetch(&here);
	expect_sum(&here, 2);
	winnow_comm_destroy(comm);
	tensor_close(&here);
	tensor_close(&there);
}

/* ---- what crosses the bus ---- */

/* The emulation counts copies; kernels' reads and writes of pinned memory are the packed blocks. */
static void test_bytes(void)
{
	struct winnow_comm *comm = join();
	struct winnow_request *request;
	struct winnow_op_stats stats;
	struct tensor t;

	tensor_open(&t);
	/* The first one reserves memory, and tries everything. */
	expect(winnow_allreduce_cuda(t.send, t.recv, COUNT, WINNOW_F32, WINNOW_SUM, comm,
	                             t.stream) == WINNOW_OK &&
	               cudaStreamSynchronize(t.stream) == cudaSuccess,
	       "an operation fails");
	for (uint32_t stride = 1; stride <= 1000; stride *= 10) {
		struct winnow_options options = on(t.stream);
		struct emulated_cuda_counts before, after;
		uint64_t blocks = COUNT / BLOCK, own = (blocks + stride - 1) / stride;
		uint64_t words = 64 + 64 + 19; /* of segments of 4096, 4096 and 1183 blocks */
		uint64_t allocations;

		fill(&t, stride);
		expect(cudaStreamSynchronize(t.stream) == cudaSuccess, "cannot synchronize");
		before = emulated_cuda_stats();
		expect(winnow_allreduce_async(t.send, t.recv, COUNT, WINNOW_F32, WINNOW_SUM,
		                              &options, comm, &request) == WINNOW_OK &&
		               winnow_wait(request, -1, &stats) == WINNOW_OK,
		       "an operation fails");
		winnow_request_free(&request);
		after = emulated_cuda_stats();
		allocations = after.allocations - before.allocations;
		expect(stats.blocks_nonzero == own, "not the blocks that are there");
		expect(stats.staged_out_bytes == own * BLOCK * 4 + words * 8 + 3 * 8,
		       "more goes out than bitmaps and packed blocks");
		expect(stats.staged_in_bytes == own * BLOCK * 4 + words * 12 + 3 * 4,
		       "more comes in than plans and sums");
		expect(after.to_host_bytes - before.to_host_bytes ==
		               stats.staged_out_bytes - own * BLOCK * 4,
		       "more is copied to the host than bitmaps");
		expect(after.to_device_bytes - before.to_device_bytes ==
		               stats.staged_in_bytes - own * BLOCK * 4,
		       "more is copied to the GPU than plans");
		expect(after.device_bytes == before.device_bytes, "the tensor is copied");
		/* Scan has 8 KB a warp, rank one CTA; what crosses the bus has 32 at most. */
		expect(after.ctas - before.ctas <= words + 3 * (1 + 32 + 32),
		       "copies across the bus fill the GPU");
		expect(allocations == 0, "a later operation allocates");
		fetch(&t);
		expect_sum(&t, stride);
	}
	winnow_comm_destroy(comm);
	tensor_close(&t);
}

/* ---- what does not wait ---- */

static void test_late_stream(void)
{
	struct winnow_comm *comm = join();
	struct tensor t;
	uint64_t before_ms;

	tensor_open(&t);
	fill(&t, 3);
	expect(winnow_allreduce_cuda(t.send, t.recv, COUNT, WINNOW_F32, WINNOW_SUM, comm,
	                             t.stream) == WINNOW_OK,
	       "the first operation fails");
	fetch(&t);
	expect(cudaMemsetAsync(t.send, 0, COUNT * 4, t.stream) == cudaSuccess &&
	               cudaMemsetAsync(t.recv, 0xa5, COUNT * 4, t.stream) == cudaSuccess &&
	               cudaLaunchHostFunc(t.stream, late, NULL) == cudaSuccess,
	       "cannot make the stream late");
	fill(&t, 5);
	before_ms = clock_ms();
	expect(winnow_allreduce_cuda(t.send, t.recv, COUNT, WINNOW_F32, WINNOW_SUM, comm,
	                             t.stream) == WINNOW_OK,
	       "the late operation fails");
	expect(clock_ms() - before_ms < 150, "the call waits for the stream");
	fetch(&t); /* queued at once: the stream waits */
	expect(clock_ms() - before_ms >= 200, "the stream was not late");
	expect_sum(&t, 5);
	winnow_comm_destroy(comm);
	tensor_close(&t);
}

/* Nobody comes for the second worker's part: the operations can only be given up. */
static void test_leaving(void)
{
	struct winnow_comm *comm = join();
	struct tensor t;
	uint64_t begin_ms = clock_ms();

	tensor_open(&t);
	expect(cudaLaunchHostFunc(t.stream, late, NULL) == cudaSuccess, "cannot be late");
	for (uint32_t i = 0; i < 5; i++)
		expect(winnow_allreduce_cuda(t.send, t.recv, COUNT, WINNOW_F32, WINNOW_SUM, comm,
		                             t.stream) == WINNOW_OK,
		       "an operation fails");
	winnow_comm_destroy(comm);
	expect(cudaStreamSynchronize(t.stream) == cudaSuccess, "the stream has failed");
	expect(clock_ms() - begin_ms < 5000, "leaving takes long");
	tensor_close(&t);
}

static void test_fork(void)
{
	struct winnow_comm *comm = join();
	struct tensor t;
	int status = -1;
	pid_t child;

	tensor_open(&t);
	fill(&t, 4);
	expect(winnow_allreduce_cuda(t.send, t.recv, COUNT, WINNOW_F32, WINNOW_SUM, comm,
	                             t.stream) == WINNOW_OK,
	       "an operation fails");
	child = fork();
	if (child == 0) {
		winnow_comm_destroy(comm); /* the parent's: left alone */
		_exit(0);
	}
	expect(waitpid(child, &status, 0) == child && status == 0,
	       "a fork's child has ended badly");
	fetch(&t);
	expect_sum(&t, 4);
	expect(winnow_comm_check(comm) == WINNOW_OK, "the child has ended the job");
	winnow_comm_destroy(comm);
	tensor_close(&t);
}

/* ---- faults ---- */

/* Three operations, with a request, detached, and without the stream; the first failure. */
static int operate(struct winnow_comm *comm, struct tensor *t)
{
	struct winnow_options options = on(t->stream);
	struct winnow_request *request;
	int result;

	result = winnow_allreduce_async(t->send, t->recv, COUNT, WINNOW_F32, WINNOW_SUM, &options,
	                                comm, &request);
	if (result == WINNOW_OK)
		result = winnow_wait(request, 20000, NULL);
	winnow_request_free(&request);
	if (result == WINNOW_OK)
		result = winnow_allreduce_cuda(t->send, t->recv, COUNT, WINNOW_F32, WINNOW_SUM,
		                               comm, t->stream);
	options.stream_goes_on = 1;
	options.wire = WINNOW_WIRE_FIXED32;
	if (result == WINNOW_OK)
		result = winnow_allreduce_async(t->send, t->recv, COUNT, WINNOW_F32, WINNOW_SUM,
		                                &options, comm, &request);
	if (result == WINNOW_OK)
		result = winnow_wait(request, 20000, NULL);
	winnow_request_free(&request);
	return result;
}

/* The stream must come to its end, whatever that is: a GPU that failed says so. */
static void expect_released(const struct tensor *t)
{
	uint64_t begin_ms = clock_ms();

	while (cudaStreamQuery(t->stream) == cudaErrorNotReady) {
		expect(clock_ms() - begin_ms < 10000, "a stream waits for ever");
		usleep(1000);
	}
}

/* A kernel's error sticks to the GPU, and is nobody's argument. */
static void expect_broken(struct tensor *t)
{
	struct winnow_comm *comm = join();

	expect(winnow_allreduce_cuda(t->send, t->recv, COUNT, WINNOW_F32, WINNOW_SUM, comm,
	                             t->stream) == WINNOW_ERR_GPU,
	       "a GPU that has failed passes for something else");
	winnow_comm_destroy(comm);
}

/* In a process of its own, since errors stick. Its exit status: did it meet the fault? */
static int meet(const char *call, uint32_t number)
{
	struct winnow_comm *comm = join();
	struct tensor t;
	char text[100];
	uint64_t faults;
	int result;

	tensor_open(&t);
	snprintf(text, sizeof(text), "%s:%u", call, number);
	emulated_cuda_fail(text);
	faults = emulated_cuda_stats().faults;
	result = operate(comm, &t);
	emulated_cuda_fail(NULL);
	expect(result != WINNOW_OK || emulated_cuda_stats().faults == faults,
	       "a failure passes for a result");
	if (result != WINNOW_OK) {
		expect(result == WINNOW_ERR_GPU, "not the GPU's error");
		expect(strstr(winnow_last_error(), " on GPU 0: ") != NULL, "the GPU is not named");
		/* A kernel's error sticks, so another call of another thread may have it first. */
		expect(strcmp(call, "kernel") == 0 || strcmp(call, "cudaLaunchKernel") == 0 ||
		               strstr(winnow_last_error(), call) != NULL,
		       call);
		expect(winnow_comm_check(comm) == WINNOW_ERR_GPU, "the job goes on");
	}
	expect_released(&t);
	winnow_comm_destroy(comm);
	if (result != WINNOW_OK && strcmp(call, "kernel") == 0)
		expect_broken(&t);
	return result != WINNOW_OK ? MET : 0;
}

/* False: so many calls are not made. */
static bool fault(const char *call, uint32_t number)
{
	pid_t child = fork();
	int status = -1;

	if (child == 0)
		_exit(meet(call, number));
	expect(waitpid(child, &status, 0) == child && WIFEXITED(status) &&
	               (WEXITSTATUS(status) == MET || WEXITSTATUS(status) == 0),
	       call);
	return WEXITSTATUS(status) == MET;
}

static void test_faults(const char *call)
{
	uint32_t number = 1;

	while (fault(call, number)) {
		number++;
		expect(number < ITERATIONS_MAX, "the job never gets by without");
	}
	expect(number > 1, "the library does not make this call");
	printf("%s: %u failures\n", call, number - 1);
}

static void test_no_gpu(const char *why)
{
	struct winnow_comm *comm = join();
	float x[4] = {0};

	expect_refusal(winnow_allreduce_cuda(x, x, 4, WINNOW_F32, WINNOW_SUM, comm, NULL), why);
	expect(winnow_allreduce(x, x, 4, WINNOW_F32, WINNOW_SUM, comm) == WINNOW_OK,
	       "the communicator has ended");
	winnow_comm_destroy(comm);
}

int main(int argc, char **argv)
{
	cudaError_t err;
	int devices = 0;

	if (argc < 2) {
		fprintf(stderr, "usage: device_faults AGGREGATOR [CALL..]\n");
		return 2;
	}
	aggregator = argv[1];
	for (int i = 2; i < argc; i++)
		test_faults(argv[i]);
	if (argc > 2)
		return 0;
	err = cudaGetDeviceCount(&devices);
	if (err != cudaSuccess || devices == 0) {
		test_no_gpu(
			err == cudaErrorInsufficientDriver
				? "the driver is for CUDA 13.0, winnow-cuda.so was built with 13.0"
				: "there is no GPU here");
		return 0;
	}
	test_refusals();
	test_bytes();
	test_late_stream();
	test_leaving();
	test_fork();
	printf("refusals, bytes, late streams, leaving and forking are right\n");
	return 0;
}
