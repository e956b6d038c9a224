// SPDX-License-Identifier: BSD-3-Clause
/*
 * device_faults.c - tensors on an emulated GPU: refusals, failures, calls that must not wait
 *
 *   device_faults AGGREGATOR [CALL..]
 *
 * Each job has one worker. Without CALLs: refusals, bytes over the bus, late streams, captures and
 * contexts of other threads, leaving with work under way, a fork. With CALLs: in the first job the
 * library's first call of this CUDA function fails, in the next job its second, and so on, until a
 * job no longer reaches the fault. Every failure must end the job with a line that names call and
 * GPU, and every request must end.
 */

#include <cuda_runtime_api.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/winnow.h"
#include "tests/gpu/emulated/emulated.h"

#define COUNT 300000 /* three segments of blocks of 32 */
#define BLOCK 32
#define AHEAD 100 /* operations, and parts of one: more than a job may have under way */
#define SMALL 1000
#define FAULTS_MAX 200
#define MET 10

static const char *aggregator;
static uint32_t job_count;

static void expect(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "device_faults: %s (last error: %s)\n", what, winnow_last_error());
	_exit(1);
}

static struct winnow_comm *join(uint32_t staging_mb)
{
	struct winnow_config config;
	struct winnow_comm *comm;
	char job[64];

	snprintf(job, sizeof(job), "faults.%d.%u", (int)getpid(), job_count++);
	winnow_config_init(&config);
	config.aggregators = aggregator;
	config.job = job;
	config.rank = 0;
	config.world = 1;
	config.block = BLOCK;
	config.insecure_no_key = 1;
	config.staging_mb = staging_mb;
	expect(winnow_comm_create(&config, &comm) == WINNOW_OK, "cannot join");
	return comm;
}

static uint64_t clock_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ---- a tensor ---- */

struct tensor {
	float *send, *recv; /* on the GPU */
	float *host;        /* pinned */
	cudaStream_t stream;
	struct winnow_options options;
};

static void tensor_open(struct tensor *t)
{
	expect(cudaMalloc((void **)&t->send, COUNT * 4) == cudaSuccess &&
	               cudaMalloc((void **)&t->recv, COUNT * 4) == cudaSuccess &&
	               cudaHostAlloc((void **)&t->host, COUNT * 4, 0) == cudaSuccess &&
	               cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking) == cudaSuccess,
	       "cannot make a tensor");
	t->options = (struct winnow_options){.memory = WINNOW_MEMORY_CUDA, .stream = t->stream};
}

static void tensor_close(struct tensor *t)
{
	(void)cudaStreamDestroy(t->stream);
	(void)cudaFree(t->send);
	(void)cudaFree(t->recv);
	(void)cudaFreeHost(t->host);
}

/* Every `stride`-th block is full of i + 1, the others are zero. */
static float element(uint32_t i, uint32_t stride)
{
	return i / BLOCK % stride == 0 ? (float)(i % 1000 + 1) : 0;
}

static void fill(struct tensor *t, uint32_t stride)
{
	for (uint32_t i = 0; i < COUNT; i++)
		t->host[i] = element(i, stride);
	expect(cudaMemcpyAsync(t->send, t->host, COUNT * 4, cudaMemcpyHostToDevice, t->stream) ==
	               cudaSuccess,
	       "cannot fill a tensor");
}

/* By the default stream, which knows nothing of the operation's. */
static void expect_sum(struct tensor *t, uint32_t stride)
{
	expect(cudaMemcpy(t->host, t->recv, COUNT * 4, cudaMemcpyDeviceToHost) == cudaSuccess,
	       "cannot fetch a tensor");
	for (uint32_t i = 0; i < COUNT; i++)
		expect(t->host[i] == element(i, stride), "a result is wrong");
}

static void CUDART_CB late(void *argument)
{
	(void)argument;
	usleep(300000);
}

static void make_late(struct tensor *t)
{
	expect(cudaLaunchHostFunc(t->stream, late, NULL) == cudaSuccess, "cannot be late");
}

static int begin(struct tensor *t, struct winnow_comm *comm, struct winnow_request **request)
{
	return winnow_allreduce_async(t->send, t->recv, COUNT, WINNOW_F32, WINNOW_SUM, &t->options,
	                              comm, request);
}

static int operate_and_wait(struct tensor *t, struct winnow_comm *comm,
                            struct winnow_op_stats *stats, bool stream_waits)
{
	struct winnow_request *request;
	int result = begin(t, comm, &request);

	if (result == WINNOW_OK)
		result = winnow_wait(request, 20000, stats);
	if (result == WINNOW_OK && stream_waits)
		result = winnow_stream_wait(request, t->stream);
	winnow_request_free(&request);
	return result;
}

static int operate(struct tensor *t, struct winnow_comm *comm, struct winnow_op_stats *stats)
{
	return operate_and_wait(t, comm, stats, true);
}

/* ---- what is refused ---- */

static void expect_refusal(int result, const char *words)
{
	expect(result == WINNOW_ERR_INVALID, "not refused");
	expect(strstr(winnow_last_error(), words) != NULL, words);
}

static int reduce(const void *send, void *recv, struct winnow_comm *comm, cudaStream_t stream)
{
	return winnow_allreduce_cuda(send, recv, 5, WINNOW_F32, WINNOW_SUM, comm, stream, NULL);
}

static void test_refusals(void)
{
	struct winnow_comm *comm = join(0);
	struct winnow_request *request;
	struct tensor here, there;
	cudaStream_t blocking;
	cudaGraph_t graph;
	float x[5] = {0};

	tensor_open(&here);
	(void)cudaSetDevice(1);
	tensor_open(&there);
	(void)cudaSetDevice(0);
	expect_refusal(reduce(here.host, here.recv, comm, NULL), "not in the memory of a GPU");
	expect_refusal(reduce(here.send, there.recv, comm, NULL), "two GPUs, 0 and 1");
	expect_refusal(reduce((char *)here.send + 2, here.recv, comm, NULL), "not aligned");
	expect_refusal(begin(&here, comm, NULL), "request is NULL");
	expect_refusal(reduce(here.send, here.recv, comm, there.stream),
	               "on GPU 0, and the stream is on ");
	expect(cudaStreamBeginCapture(here.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess,
	       "cannot capture");
	expect_refusal(begin(&here, comm, &request), "being captured");
	expect_refusal(winnow_allreduce_segments_async(here.send, here.recv, 5, WINNOW_F32,
	                                               WINNOW_SUM, NULL, 0, &here.options, comm,
	                                               &request),
	               "being captured");
	expect(cudaStreamEndCapture(here.stream, &graph) == cudaSuccess, "cannot end a capture");
	/* The legacy stream waits for all streams of this kind, so it cannot be asked, either. */
	expect(cudaStreamCreate(&blocking) == cudaSuccess &&
	               cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed) ==
	                       cudaSuccess,
	       "cannot capture");
	expect_refusal(reduce(here.send, here.recv, comm, NULL), "being captured");
	expect(cudaStreamEndCapture(blocking, &graph) == cudaSuccess, "cannot end a capture");
	(void)cudaStreamDestroy(blocking);

	make_late(&here);
	fill(&here, 2);
	expect(begin(&here, comm, &request) == WINNOW_OK, "refusals have ended the communicator");
	expect_refusal(winnow_stream_wait(request, here.stream), "not done");
	expect_refusal(winnow_stream_wait(NULL, here.stream), "request is NULL");
	expect(winnow_wait(request, -1, NULL) == WINNOW_OK, "an operation fails");
	expect(winnow_stream_wait(request, here.stream) == WINNOW_OK, "a stream cannot wait");
	expect_sum(&here, 2);
	winnow_request_free(&request);
	expect(winnow_allreduce_async(x, x, 5, WINNOW_F32, WINNOW_SUM, NULL, comm, &request) ==
	               WINNOW_OK,
	       "host memory is refused");
	expect_refusal(winnow_stream_wait(request, here.stream), "no GPU");
	winnow_comm_destroy(comm);
	tensor_close(&here);
	tensor_close(&there);
}

static void test_no_gpu(const char *why)
{
	struct winnow_comm *comm = join(0);
	float x[5] = {0};

	expect_refusal(reduce(x, x, comm, NULL), why);
	expect(winnow_allreduce(x, x, 5, WINNOW_F32, WINNOW_SUM, comm) == WINNOW_OK,
	       "the communicator has ended");
	winnow_comm_destroy(comm);
}

/* ---- what is reserved, and what crosses the bus ---- */

static uint64_t pinned(struct winnow_comm *comm)
{
	struct winnow_stats stats;

	winnow_comm_stats(comm, &stats);
	return stats.pinned_bytes;
}

static void test_bytes(void)
{
	struct winnow_comm *comm = join(64), *small = join(1);
	struct winnow_op_stats stats;
	uint64_t reserved;
	struct tensor t;

	tensor_open(&t);
	expect(pinned(comm) == 0, "memory is reserved before there is a tensor");
	fill(&t, 1);
	expect(operate(&t, comm, NULL) == WINNOW_OK && operate(&t, small, NULL) == WINNOW_OK,
	       "an operation fails");
	reserved = pinned(comm);
	expect(reserved > pinned(small) && reserved <= UINT64_C(64) << 20,
	       "staging_mb does not say how much is reserved");
	for (uint32_t stride = 1; stride <= 1000; stride *= 10) {
		uint64_t own = (COUNT / BLOCK + stride - 1) / stride * BLOCK * 4;
		uint64_t words = 64 + 64 + 19; /* of segments of 4096, 4096 and 1183 blocks */
		struct emulated_cuda_counts before, after;

		fill(&t, stride);
		expect(cudaStreamSynchronize(t.stream) == cudaSuccess, "cannot synchronize");
		before = emulated_cuda_stats();
		expect(operate(&t, comm, &stats) == WINNOW_OK, "an operation fails");
		after = emulated_cuda_stats();
		expect(stats.blocks_nonzero * BLOCK * 4 == own, "not the blocks that are there");
		expect(stats.staged_out_bytes == own + words * 8,
		       "more goes out than bitmaps and blocks");
		expect(stats.staged_in_bytes == own + words * 24,
		       "more comes in than plans and sums");
		expect(after.allocations == before.allocations, "a later operation allocates");
		expect_sum(&t, stride);
	}
	expect(pinned(comm) == reserved, "more is reserved than at first");
	winnow_comm_destroy(comm);
	winnow_comm_destroy(small);
	tensor_close(&t);
}

/* ---- what does not wait ---- */

static atomic_bool let_go;

static void CUDART_CB until_let_go(void *argument)
{
	(void)argument;
	while (!atomic_load(&let_go))
		usleep(1000);
}

/* Neither the call nor another operation waits for a tensor that is written late. */
static void test_late_stream(void)
{
	struct winnow_comm *comm = join(0);
	struct winnow_request *request;
	struct tensor slow, quick;
	int done;

	tensor_open(&slow);
	tensor_open(&quick);
	fill(&quick, 3);
	expect(operate(&quick, comm, NULL) == WINNOW_OK, "the first operation fails");
	expect(cudaLaunchHostFunc(slow.stream, until_let_go, NULL) == cudaSuccess,
	       "cannot be late");
	fill(&slow, 5);
	expect(begin(&slow, comm, &request) == WINNOW_OK, "the late operation fails");
	expect(operate(&quick, comm, NULL) == WINNOW_OK, "the quick operation fails");
	expect(winnow_test(request, &done, NULL) == WINNOW_OK && !done, "it is done too early");
	atomic_store(&let_go, true);
	expect(winnow_wait(request, -1, NULL) == WINNOW_OK, "the late operation fails");
	expect_sum(&slow, 5);
	winnow_comm_destroy(comm);
	tensor_close(&slow);
	tensor_close(&quick);
}

/* Calls do not wait where more operations are begun than a job may have under way; nor parts of one. */
static void test_many_ahead(void)
{
	struct winnow_comm *comm = join(0);
	struct winnow_request *requests[AHEAD];
	struct winnow_segment segments[AHEAD];
	struct tensor t, small;

	tensor_open(&t);
	tensor_open(&small);
	atomic_store(&let_go, false);
	expect(cudaLaunchHostFunc(t.stream, until_let_go, NULL) == cudaSuccess, "cannot be late");
	fill(&t, 3);
	for (uint32_t i = 0; i < AHEAD; i++) {
		struct tensor *to = i + 1 < AHEAD ? &small : &t;

		expect(winnow_allreduce_async(t.send, to->recv + (to == &small ? i * SMALL : 0),
		                              to == &small ? SMALL : COUNT, WINNOW_F32, WINNOW_SUM,
		                              &t.options, comm, &requests[i]) == WINNOW_OK,
		       "an operation far ahead fails");
		segments[i] = (struct winnow_segment){
			.offset = i * 3000, .count = 3000, .row = i % 2 ? 50 : 30};
	}
	atomic_store(&let_go, true);
	for (uint32_t i = 0; i < AHEAD; i++)
		expect(winnow_wait(requests[i], -1, NULL) == WINNOW_OK, "one far ahead fails");
	expect_sum(&t, 3);
	fill(&t, 2);
	make_late(&t);
	expect(winnow_allreduce_segments_async(t.send, t.recv, COUNT, WINNOW_F32, WINNOW_SUM,
	                                       segments, AHEAD, &t.options, comm,
	                                       &requests[0]) == WINNOW_OK &&
	               winnow_wait(requests[0], -1, NULL) == WINNOW_OK,
	       "an operation of many parts fails");
	expect_sum(&t, 2);
	winnow_comm_destroy(comm);
	tensor_close(&t);
	tensor_close(&small);
}

/* Of a thread that another one's capture must not concern, nor the other way round. */
static void *operate_meanwhile(void *argument)
{
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
	struct tensor t;

	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	tensor_open(&t);
	fill(&t, 6);
	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	/* The first operation: it reserves memory, and the library's thread looks at the GPU. */
	expect(operate(&t, argument, NULL) == WINNOW_OK, "one fails while another thread captures");
	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	expect(mode == cudaStreamCaptureModeGlobal, "the thread's mode has changed");
	expect_sum(&t, 6);
	tensor_close(&t);
	return NULL;
}

static void test_capture_elsewhere(void)
{
	struct winnow_comm *comm = join(0);
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
	struct winnow_comm *comm = join(0);
	struct tensor t;

	expect(cudaSetDevice(1) == cudaSuccess, "there is no second GPU");
	tensor_open(&t);
	fill(&t, 3);
	expect(operate(&t, comm, NULL) == WINNOW_OK, "an operation fails");
	expect_sum(&t, 3);
	winnow_comm_destroy(comm);
	tensor_close(&t);
	expect(emulated_cuda_has_context(1) && !emulated_cuda_has_context(0),
	       "there is a context on a GPU that nobody uses");
	(void)cudaSetDevice(0);
}

/* ---- ends ---- */

static void test_leaving(void)
{
	struct winnow_comm *comm = join(0);
	struct winnow_request *requests[5];
	struct tensor t;
	uint64_t begin_ms = clock_ms();

	tensor_open(&t);
	make_late(&t);
	for (uint32_t i = 0; i < 5; i++)
		expect(begin(&t, comm, &requests[i]) == WINNOW_OK, "an operation fails");
	winnow_comm_destroy(comm);
	expect(cudaStreamSynchronize(t.stream) == cudaSuccess, "the stream has failed");
	expect(clock_ms() - begin_ms < 5000, "leaving takes long");
	tensor_close(&t);
}

static void test_fork(void)
{
	struct winnow_comm *comm = join(0);
	struct tensor t;
	int status = -1;
	pid_t child;

	tensor_open(&t);
	fill(&t, 4);
	expect(operate(&t, comm, NULL) == WINNOW_OK, "an operation fails");
	child = fork();
	if (child == 0) {
		winnow_comm_destroy(comm); /* the parent's: left alone */
		_exit(0);
	}
	expect(waitpid(child, &status, 0) == child && status == 0,
	       "a fork's child has ended badly");
	expect(operate(&t, comm, NULL) == WINNOW_OK, "the child has ended the job");
	expect_sum(&t, 4);
	winnow_comm_destroy(comm);
	tensor_close(&t);
}

/* ---- faults ---- */

/* In a process of its own, since errors stick. Its exit status: did it meet the fault? */
static int meet(const char *call, uint32_t number)
{
	struct winnow_comm *comm = join(0);
	int result = WINNOW_OK;
	struct tensor t;
	char text[100];
	uint64_t faults;

	tensor_open(&t);
	snprintf(text, sizeof(text), "%s:%u", call, number);
	emulated_cuda_fail(text);
	faults = emulated_cuda_stats().faults;
	for (uint32_t i = 0; i < 2 && result == WINNOW_OK; i++) {
		t.options.wire = i == 0 ? WINNOW_WIRE_NATIVE : WINNOW_WIRE_FIXED32;
		result = operate_and_wait(&t, comm, NULL, i == 1);
	}
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
	winnow_comm_destroy(comm);
	/* It is nobody's argument in the next job, either. */
	if (result != WINNOW_OK && strcmp(call, "kernel") == 0)
		expect(reduce(t.send, t.recv, join(0), t.stream) == WINNOW_ERR_GPU,
		       "a GPU that has failed passes for something else");
	return result != WINNOW_OK ? MET : 0;
}

static void test_faults(const char *call)
{
	int status = MET << 8, number = 0;

	while (WEXITSTATUS(status) == MET) {
		pid_t child = fork();

		if (child == 0)
			_exit(meet(call, (uint32_t)number + 1));
		expect(waitpid(child, &status, 0) == child && WIFEXITED(status) &&
		               (WEXITSTATUS(status) == MET || WEXITSTATUS(status) == 0),
		       call);
		number++;
		expect(number < FAULTS_MAX, "the job never gets by without");
	}
	expect(number > 1, "the library does not make this call");
	printf("%s: %d failures\n", call, number - 1);
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
	test_second_gpu();
	test_refusals();
	test_bytes();
	test_late_stream();
	test_many_ahead();
	test_capture_elsewhere();
	test_leaving();
	test_fork();
	printf("refusals, bytes, late streams, captures, contexts, leaving and forking are "
	       "right\n");
	return 0;
}
