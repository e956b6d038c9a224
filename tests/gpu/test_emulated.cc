/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_emulated.cc - the emulated CUDA shows what its header promises to show: other tests rely on it
 *
 * That it does what is right shows in those. Here something is wrong: a barrier or an event is
 * missing, lanes go different ways, somebody leaves an allocation, a call or a kernel fails.
 */
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

/* ---- what nothing orders. It is a race, so not for the sanitizer of these. ---- */

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

/* Turns the elements of each CTA round, by way of shared memory. */
static void reverse(unsigned *data, bool wait)
{
	__shared__ unsigned kept[256];

	kept[threadIdx.x] = data[blockIdx.x * blockDim.x + threadIdx.x];
	if (wait)
		__syncthreads();
	data[blockIdx.x * blockDim.x + threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
}

static void test_missing_barrier(void **)
{
#if defined(__SANITIZE_THREAD__)
	skip();
#endif
	for (bool wait : {false, true}) {
		std::vector<unsigned> data(256 * 7);
		unsigned *memory;
		bool right = true;

		for (unsigned i = 0; i < data.size(); i++)
			data[i] = i;
		ok(cudaMalloc(&memory, data.size() * 4));
		ok(cudaMemcpy(memory, data.data(), data.size() * 4, cudaMemcpyHostToDevice));
		ok(emulated_launch(nullptr, 7, 256, [=] { reverse(memory, wait); }));
		ok(cudaMemcpy(data.data(), memory, data.size() * 4, cudaMemcpyDeviceToHost));
		for (unsigned i = 0; i < data.size(); i++)
			right &= data[i] == i / 256 * 256 + 255 - i % 256;
		assert_int_equal(right, wait);
		ok(cudaFree(memory));
	}
}

/* ---- lanes that go different ways ---- */

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
	                            cudaErrorLaunchFailure, cudaSuccess, cudaErrorIllegalAddress};

	for (int how = 0; how < 6; how++) {
		emulated_cuda_fail(how == 5 ? "cudaEventQuery:1,kernel:2=700" : nullptr);
		ok(launch_diverging(4));
		ok(cudaDeviceSynchronize());
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

static void touch_from_host()
{
	char *memory;

	ok(cudaMalloc(&memory, 4096));
	*static_cast<volatile char *>(memory) = 1;
}

static void test_guards(void **)
{
	assert_int_equal(poke(4096, 4095, false), 0);
	assert_int_equal(poke(4096, 4096, false), SIGSEGV);
	assert_int_equal(poke(4096, -1, false), SIGSEGV);
	assert_int_equal(poke(4096, 0, true), SIGSEGV);
	assert_int_equal(poke(100, 100, false), SIGABRT); /* not so far that a page sees it */
	assert_int_equal(signal_of(touch_from_host), SIGSEGV);
	assert_int_equal(signal_of([] { emulated_cuda_fail("cudaNothing:1"); }), SIGABRT);
	assert_int_equal(signal_of([] { emulated_cuda_fail("cudaMalloc"); }), SIGABRT);
}

/* Handles that are not any more, or another device's; bytes beyond an allocation; a spoilt capture. */
static void test_wrong_use(void **)
{
	char host[200], *memory;
	cudaStream_t stream;
	cudaEvent_t event;
	cudaGraph_t graph;

	emulated_cuda_fail("cudaMalloc:1=2");
	assert_int_equal(cudaMalloc(&memory, 100), cudaErrorMemoryAllocation);
	ok(cudaMalloc(&memory, 100));
	assert_int_equal(cudaMemcpy(memory, host, 101, cudaMemcpyHostToDevice),
	                 cudaErrorInvalidValue);
	assert_int_equal(cudaFree(memory + 1), cudaErrorInvalidValue);
	ok(cudaFree(memory));
	assert_int_equal(cudaSetDevice(2), cudaErrorInvalidDevice);
	assert_int_equal(cudaGetLastError(), cudaErrorInvalidDevice);
	ok(cudaGetLastError());
	ok(cudaStreamCreateWithFlags(&stream, 0));
	ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	assert_int_equal(cudaStreamQuery(nullptr), cudaErrorStreamCaptureUnsupported);
	assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
	ok(cudaSetDevice(1));
	assert_int_equal(emulated_launch(stream, 1, 1, [] {}), cudaErrorInvalidResourceHandle);
	ok(cudaSetDevice(0));
	ok(cudaEventCreateWithFlags(&event, 0));
	ok(cudaEventDestroy(event));
	assert_int_equal(cudaEventQuery(event), cudaErrorInvalidResourceHandle);
	ok(cudaStreamDestroy(stream));
	assert_int_equal(cudaStreamQuery(stream), cudaErrorInvalidResourceHandle);
}

int main()
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_guards), /* first: forks before there are threads */
		cmocka_unit_test(test_missing_edge), cmocka_unit_test(test_missing_barrier),
		cmocka_unit_test(test_divergence),   cmocka_unit_test(test_wrong_use),
	};

	return cmocka_run_group_tests(tests, nullptr, nullptr);
}
