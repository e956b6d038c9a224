// SPDX-License-Identifier: BSD-3-Clause
/*
 * device_manners.c - what an operation on an emulated GPU must not do to the rest of the program
 *
 *   device_manners AGGREGATOR
 */

#include <pthread.h>

#include "tests/gpu/device_tensor.h"
#include "tests/gpu/emulated/emulated.h"

#define AHEAD 200 /* operations */
#define PARTS 100

/* Of a thread that another one's capture must not concern, nor the other way round. */
static void *operate_meanwhile(void *argument)
{
	struct winnow_comm *comm = argument;
	struct tensor t;
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;

	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	tensor_open(&t);
	fill(&t, 6);
	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	/* The first operation: it reserves memory, and the library's thread looks at the GPU. */
	expect(winnow_allreduce_cuda(t.send, t.recv, COUNT, WINNOW_F32, WINNOW_SUM, comm,
	                             t.stream) == WINNOW_OK,
	       "an operation fails while another thread captures");
	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	expect(mode == cudaStreamCaptureModeGlobal, "the thread's mode has changed");
	fetch(&t);
	expect_sum(&t, 6);
	tensor_close(&t);
	return NULL;
}

static void test_capture_elsewhere(void)
{
	struct winnow_comm *comm = join();
	cudaStream_t stream;
	cudaGraph_t graph;
	pthread_t thread;

	expect(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
	               cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess,
	       "cannot capture");
	expect(pthread_create(&thread, NULL, operate_meanwhile, comm) == 0 &&
	               pthread_join(thread, NULL) == 0,
	       "no thread");
	expect(cudaStreamEndCapture(stream, &graph) == cudaSuccess, "the capture is spoilt");
	(void)cudaStreamDestroy(stream);
	winnow_comm_destroy(comm);
}

/* Whoever works on the second GPU has no context on the first, where all threads begin. */
static void test_second_gpu(void)
{
	struct winnow_comm *comm = join();
	struct tensor t;

	expect(cudaSetDevice(1) == cudaSuccess, "there is no second GPU");
	tensor_open(&t);
	fill(&t, 3);
	expect(winnow_allreduce_cuda(t.send, t.recv, COUNT, WINNOW_F32, WINNOW_SUM, comm,
	                             t.stream) == WINNOW_OK,
	       "an operation fails");
	fetch(&t);
	expect_sum(&t, 3);
	winnow_comm_destroy(comm);
	tensor_close(&t);
	expect(emulated_cuda_has_context(1) && !emulated_cuda_has_context(0),
	       "there is a context on a GPU that nobody uses");
	(void)cudaSetDevice(0);
}

/*
 * More operations in a stream that is late than the device's queue has entries for: whoever filled
 * that would keep the library from calling CUDA, and so from ever bringing a result.
 */
static void test_many_ahead(void)
{
	struct winnow_comm *comm = join();
	struct tensor t;

	tensor_open(&t);
	fill(&t, 3);
	expect(cudaLaunchHostFunc(t.stream, late, NULL) == cudaSuccess, "cannot be late");
	for (uint32_t i = 0; i < AHEAD; i++)
		expect(winnow_allreduce_cuda(t.send, t.recv, i + 1 < AHEAD ? 1000 : COUNT,
		                             WINNOW_F32, WINNOW_SUM, comm, t.stream) == WINNOW_OK,
		       "an operation far ahead fails");
	fetch(&t);
	expect_sum(&t, 3);
	winnow_comm_destroy(comm);
	tensor_close(&t);
}

/* One call that is more operations than a caller gets ahead: runs of rows of two lengths by turns. */
static void test_many_parts(void)
{
	struct winnow_comm *comm = join();
	struct winnow_segment segments[PARTS];
	struct winnow_options options;
	struct tensor t;

	for (uint32_t i = 0; i < PARTS; i++)
		segments[i] = (struct winnow_segment){
			.offset = i * 3000, .count = 3000, .row = i % 2 ? 50 : 30};
	tensor_open(&t);
	fill(&t, 3);
	options = on(t.stream);
	expect(cudaLaunchHostFunc(t.stream, late, NULL) == cudaSuccess, "cannot be late");
	expect(winnow_allreduce_segments_async(t.send, t.recv, COUNT, WINNOW_F32, WINNOW_SUM,
	                                       segments, PARTS, &options, comm, NULL) == WINNOW_OK,
	       "an operation of many parts fails");
	fetch(&t);
	expect_sum(&t, 3);
	winnow_comm_destroy(comm);
	tensor_close(&t);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: device_manners AGGREGATOR\n");
		return 2;
	}
	aggregator = argv[1];
	test_second_gpu();
	test_many_ahead();
	test_many_parts();
	test_capture_elsewhere();
	printf("contexts and captures of others are left alone, and queues not filled\n");
	return 0;
}
