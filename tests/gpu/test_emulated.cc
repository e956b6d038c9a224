/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_emulated.cc - the emulated CUDA keeps the promises of its header; other tests rely on it
 */
#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

extern "C" {
#include <cmocka.h>
}

#include <cuda_runtime.h>

#include "tests/gpu/emulated/emulated.h"

#define ok(call) assert_int_equal(call, cudaSuccess)

static const unsigned all = 0xffffffffu;

/* ---- streams ---- */

static std::atomic<bool> gate;

static void wait_at_gate(void *)
{
	while (!gate)
		usleep(100);
}

/* A stream waits for an event, and for nothing else; what was not pinned is read at once. */
static void test_streams(void **)
{
	std::vector<char> host(5000, 1);
	char back[12], *memory;
	cudaStream_t late, other;
	cudaEvent_t event;

	gate = false;
	ok(cudaMalloc(&memory, host.size()));
	ok(cudaStreamCreateWithFlags(&late, cudaStreamNonBlocking));
	ok(cudaStreamCreate(&other));
	ok(cudaEventCreate(&event));
	ok(cudaEventQuery(event)); /* never recorded: as if over */
	ok(cudaLaunchHostFunc(late, wait_at_gate, nullptr));
	ok(cudaMemcpyAsync(memory, host.data(), host.size(), cudaMemcpyHostToDevice, late));
	host.assign(host.size(), 9);
	ok(cudaEventRecord(event, late));
	ok(cudaStreamSynchronize(other));
	ok(cudaStreamWaitEvent(other, event));
	ok(cudaMemsetAsync(memory + 1, 7, 10, other));
	usleep(3000);
	assert_int_equal(cudaStreamQuery(late), cudaErrorNotReady);
	assert_int_equal(cudaStreamQuery(other), cudaErrorNotReady);
	assert_int_equal(cudaEventQuery(event), cudaErrorNotReady);
	gate = true;
	ok(cudaEventSynchronize(event));
	ok(cudaMemcpyAsync(back, memory, sizeof(back), cudaMemcpyDefault, other));
	assert_memory_equal(back, "\1\7\7\7\7\7\7\7\7\7\7\1", sizeof(back));
	ok(cudaEventDestroy(event));
	assert_int_equal(cudaEventQuery(event), cudaErrorInvalidResourceHandle);
	ok(cudaStreamDestroy(late));
	ok(cudaStreamDestroy(other));
	assert_int_equal(cudaStreamQuery(other), cudaErrorInvalidResourceHandle);
	ok(cudaFree(memory));
}

/* What no event orders does not happen in one order. It is a race, so not for the sanitizer of these. */
static void test_missing_edge(void **)
{
#if defined(__SANITIZE_THREAD__)
	skip();
#endif
	cudaStream_t streams[2];
	int seen[3] = {};
	char *memory, value;

	ok(cudaMalloc(&memory, 1));
	for (cudaStream_t &stream : streams)
		ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	for (int i = 0; i < 3000 && (!seen[1] || !seen[2]); i++) {
		ok(cudaMemsetAsync(memory, 1, 1, streams[0]));
		ok(cudaMemsetAsync(memory, 2, 1, streams[1]));
		ok(cudaDeviceSynchronize());
		ok(cudaMemcpy(&value, memory, 1, cudaMemcpyDeviceToHost));
		seen[static_cast<int>(value)]++;
	}
	assert_true(seen[1] && seen[2]);
	for (cudaStream_t stream : streams)
		ok(cudaStreamDestroy(stream));
	ok(cudaFree(memory));
}

static void test_spoilt_capture(void **)
{
	enum cudaStreamCaptureStatus status;
	cudaStream_t stream;
	cudaGraph_t graph;

	ok(cudaStreamCreate(&stream));
	ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	ok(cudaStreamIsCapturing(stream, &status));
	assert_int_equal(status, cudaStreamCaptureStatusActive);
	assert_int_equal(cudaStreamQuery(nullptr), cudaErrorStreamCaptureUnsupported);
	assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
	ok(cudaStreamDestroy(stream));
	cudaGetLastError();
}

/* ---- kernels ---- */

/* Turns the elements of each CTA round, by way of shared memory. */
static __global__ void reverse(unsigned *data, bool wait)
{
	__shared__ unsigned kept[256];

	kept[threadIdx.x] = data[blockIdx.x * blockDim.x + threadIdx.x];
	if (wait)
		__syncthreads();
	data[blockIdx.x * blockDim.x + threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
}

static __global__ void collectives(unsigned *out)
{
	unsigned lane = threadIdx.x % 32, *mine = out + threadIdx.x * 5;

	mine[0] = __ballot_sync(all, lane % 3 == 0);
	mine[1] = __reduce_max_sync(all, lane * 7 % 32);
	mine[2] = __reduce_or_sync(all, 1u << lane);
	mine[3] = __shfl_sync(all, 100 + lane, 5);
	mine[4] = static_cast<unsigned>(__any_sync(all, lane == 9));
	__syncwarp();
}

/* Through a device, there and back. */
template <typename Body>
static void on_device(std::vector<unsigned> *data, unsigned ctas, unsigned threads, Body body)
{
	unsigned *memory;

	ok(cudaMalloc(&memory, data->size() * 4));
	ok(cudaMemcpy(memory, data->data(), data->size() * 4, cudaMemcpyHostToDevice));
	ok(emulated_launch(nullptr, ctas, threads, [=] { body(memory); }));
	ok(cudaMemcpy(data->data(), memory, data->size() * 4, cudaMemcpyDeviceToHost));
	ok(cudaFree(memory));
}

/* The thread sanitizer calls a missing barrier a race, as it should. */
#if defined(__SANITIZE_THREAD__)
static const int first_wait = 1;
#else
static const int first_wait = 0;
#endif

static void test_barrier(void **)
{
	for (int wait = first_wait; wait < 2; wait++) {
		std::vector<unsigned> data(256 * 7);
		bool right = true;

		for (unsigned i = 0; i < data.size(); i++)
			data[i] = i;
		on_device(&data, 7, 256, [=](unsigned *memory) { reverse(memory, wait != 0); });
		for (unsigned i = 0; i < data.size(); i++)
			right &= data[i] == i / 256 * 256 + 255 - i % 256;
		assert_int_equal(right, wait); /* a missing barrier shows */
	}
}

static void test_warps(void **)
{
	std::vector<unsigned> out(64 * 5, 0);
	const unsigned want[] = {0x49249249, 31, all, 105, 1};

	on_device(&out, 1, 64, collectives);
	for (unsigned i = 0; i < 64; i++)
		assert_memory_equal(&out[i * 5], want, sizeof(want));
}

static void diverge(int how)
{
	if (how == 0 && threadIdx.x == 3) {
		__syncthreads();
		return;
	}
	if (how == 1 && threadIdx.x < 32)
		__syncwarp();
	if (how == 2 && threadIdx.x != 40)
		__ballot_sync(all, 1);
	if (how == 3)
		__ballot_sync(0xf, 1);    /* a part of a warp */
	if (how == 4 && threadIdx.x == 5) /* has ended: as CUDA, nobody waits for it */
		return;
	__syncthreads();
}

static cudaError_t launch_diverging(int how)
{
	return emulated_launch(nullptr, 3, 64, [=] { diverge(how); });
}

static void test_divergence(void **)
{
	const cudaError_t want[] = {cudaErrorLaunchFailure, cudaSuccess, cudaErrorLaunchFailure,
	                            cudaErrorLaunchFailure, cudaSuccess};

	for (int how = 0; how < 5; how++) {
		ok(launch_diverging(how));
		assert_int_equal(cudaDeviceSynchronize(), want[how]);
		/* It sticks, to this device alone. */
		assert_int_equal(launch_diverging(4), want[how]);
		ok(cudaSetDevice(1));
		ok(cudaDeviceSynchronize());
		assert_int_equal(cudaSetDevice(0), want[how]);
		emulated_cuda_reset();
	}
}

/* ---- what is out of bounds, and what fails ---- */

/* What a process does ends with this signal. */
template <typename Body> static int signal_of(Body body)
{
	pid_t child = fork();
	int status = 0;

	if (!child) {
		signal(SIGSEGV, SIG_DFL);
		signal(SIGABRT, SIG_DFL);
		if (!freopen("/dev/null", "w", stderr))
			_exit(3);
		body();
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

/* A kernel writes one byte to an allocation of so many; then that is freed, before or after. */
static int poke(size_t bytes, int at, bool freed)
{
	return signal_of([=] {
		char *memory;

		ok(cudaMalloc(&memory, bytes));
		if (freed)
			ok(cudaFree(memory));
		ok(emulated_launch(nullptr, 1, 1, [=] { memory[at] = 1; }));
		ok(cudaDeviceSynchronize());
		ok(freed ? cudaSuccess : cudaFree(memory));
	});
}

static void test_guards(void **)
{
	assert_int_equal(poke(4096, 4095, false), 0);
	assert_int_equal(poke(4096, 4096, false), SIGSEGV);
	assert_int_equal(poke(4096, -1, false), SIGSEGV);
	assert_int_equal(poke(4096, 0, true), SIGSEGV);
	assert_int_equal(poke(100, 100, false), SIGABRT); /* not so far that a page sees it */
	assert_int_equal(signal_of([] {
				 char *memory;

				 ok(cudaMalloc(&memory, 4096));
				 *static_cast<volatile char *>(memory) = 1;
			 }),
	                 SIGSEGV);
	assert_int_equal(signal_of([] { emulated_cuda_fail("cudaNothing:1"); }), SIGABRT);
	assert_int_equal(signal_of([] { emulated_cuda_fail("cudaMalloc"); }), SIGABRT);
}

static void test_wrong_use(void **)
{
	struct cudaPointerAttributes attributes;
	char host[200], *memory;
	cudaStream_t stream;

	ok(cudaMalloc(&memory, 100));
	assert_int_equal(cudaMemcpy(memory, host, 101, cudaMemcpyHostToDevice),
	                 cudaErrorInvalidValue);
	assert_int_equal(cudaFree(memory + 1), cudaErrorInvalidValue);
	assert_int_equal(cudaSetDevice(2), cudaErrorInvalidDevice);
	assert_int_equal(cudaGetLastError(), cudaErrorInvalidDevice);
	ok(cudaGetLastError());
	ok(cudaPointerGetAttributes(&attributes, memory + 99));
	assert_int_equal(attributes.type, cudaMemoryTypeDevice);
	ok(cudaPointerGetAttributes(&attributes, memory + 100));
	assert_int_equal(attributes.type, cudaMemoryTypeUnregistered);
	ok(cudaSetDevice(1));
	ok(cudaStreamCreate(&stream));
	ok(cudaSetDevice(0));
	assert_int_equal(emulated_launch(stream, 1, 1, [] {}), cudaErrorInvalidResourceHandle);
	ok(cudaStreamDestroy(stream));
	ok(cudaFree(memory));
}

/* A stream whose device has failed waits for nobody any more. */
static void test_faults(void **)
{
	cudaStream_t stream;
	char *memory;

	emulated_cuda_fail("cudaMalloc:1=2,cudaStreamCreateWithPriority:2");
	assert_int_equal(cudaMalloc(&memory, 10), cudaErrorMemoryAllocation);
	ok(cudaMalloc(&memory, 10));
	ok(cudaStreamCreate(&stream));
	assert_int_equal(cudaStreamCreate(&stream), cudaErrorLaunchFailure);
	emulated_cuda_fail("kernel:2=700");
	ok(launch_diverging(4));
	ok(cudaDeviceSynchronize());
	ok(launch_diverging(4));
	assert_int_equal(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
	assert_int_equal(cudaFree(memory), cudaErrorIllegalAddress);
	emulated_cuda_reset();
	ok(cudaFree(memory));
	ok(cudaStreamDestroy(stream));
}

int main()
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_guards), /* first: forks before there are threads */
		cmocka_unit_test(test_streams),        cmocka_unit_test(test_missing_edge),
		cmocka_unit_test(test_spoilt_capture), cmocka_unit_test(test_barrier),
		cmocka_unit_test(test_warps),          cmocka_unit_test(test_divergence),
		cmocka_unit_test(test_wrong_use),      cmocka_unit_test(test_faults),
	};

	return cmocka_run_group_tests(tests, nullptr, nullptr);
}
