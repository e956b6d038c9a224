/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_emulated.cc - the emulated CUDA does what its header promises: other tests lean on it
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

#include <cuda.h>

#include "kernels/launch.h"
#include "tests/gpu/emulated/emulated.h"

#define ok(call) assert_int_equal(call, cudaSuccess)

static void nap(unsigned us)
{
	usleep(us);
}

/* A stream that stands still until its gate opens. */
struct gate {
	uint32_t *flag;
	cudaStream_t stream;
};

static struct gate gate_make()
{
	struct gate gate = {};
	void *function = nullptr;

	ok(cudaHostAlloc(&gate.flag, sizeof(*gate.flag), cudaHostAllocMapped));
	*gate.flag = 0;
	ok(cudaStreamCreateWithFlags(&gate.stream, cudaStreamNonBlocking));
	ok(cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &function, CUDA_VERSION,
	                                    cudaEnableDefault, nullptr));
	auto wait = reinterpret_cast<decltype(&cuStreamWaitValue32)>(function);
	ok(wait(gate.stream, reinterpret_cast<CUdeviceptr>(gate.flag), 1,
	        CU_STREAM_WAIT_VALUE_GEQ));
	return gate;
}

static void gate_open(const struct gate *gate)
{
	__atomic_store_n(gate->flag, 1, __ATOMIC_RELEASE);
}

static void gate_close(const struct gate *gate)
{
	ok(cudaStreamSynchronize(gate->stream));
	ok(cudaStreamDestroy(gate->stream));
	ok(cudaFreeHost(gate->flag));
}

static void test_stream_waits(void **)
{
	struct gate gate = gate_make();
	std::vector<char> host(5000, 1), back(5000, 0);
	char *memory;

	ok(cudaMalloc(&memory, host.size()));
	ok(cudaMemcpyAsync(memory, host.data(), host.size(), cudaMemcpyHostToDevice, gate.stream));
	ok(cudaMemsetAsync(memory + 1, 7, 10, gate.stream));
	/* What was not pinned has been read. */
	host.assign(host.size(), 9);
	nap(3000);
	assert_int_equal(cudaStreamQuery(gate.stream), cudaErrorNotReady);
	gate_open(&gate);
	ok(cudaMemcpyAsync(back.data(), memory, back.size(), cudaMemcpyDefault, gate.stream));
	assert_int_equal(back[0], 1);
	assert_int_equal(back[10], 7);
	assert_int_equal(back[11], 1);
	ok(cudaStreamQuery(gate.stream));
	gate_close(&gate);
	ok(cudaFree(memory));
}

static void test_other_streams_go_on(void **)
{
	struct gate gate = gate_make();
	cudaStream_t other;
	char *memory;

	ok(cudaMalloc(&memory, 100));
	ok(cudaMemsetAsync(memory, 1, 100, gate.stream));
	ok(cudaStreamCreate(&other));
	ok(cudaMemsetAsync(memory, 2, 100, other));
	ok(cudaStreamSynchronize(other));
	assert_int_equal(cudaStreamQuery(gate.stream), cudaErrorNotReady);
	gate_open(&gate);
	gate_close(&gate);
	ok(cudaStreamDestroy(other));
	ok(cudaFree(memory));
}

static void test_events(void **)
{
	struct gate gate = gate_make();
	cudaStream_t other;
	cudaEvent_t before, event;
	float ms = -1;

	ok(cudaStreamCreate(&other));
	ok(cudaEventCreate(&before));
	ok(cudaEventCreate(&event));
	ok(cudaEventQuery(event)); /* never recorded: as if over */
	ok(cudaEventRecord(before, other));
	ok(cudaEventRecord(event, gate.stream));
	ok(cudaStreamWaitEvent(other, event, 0));
	ok(cudaEventSynchronize(before));
	nap(3000);
	assert_int_equal(cudaEventQuery(event), cudaErrorNotReady);
	assert_int_equal(cudaStreamQuery(other), cudaErrorNotReady);
	gate_open(&gate);
	ok(cudaEventSynchronize(event));
	ok(cudaStreamSynchronize(other));
	ok(cudaEventElapsedTime(&ms, before, event));
	assert_true(ms >= 2 && ms < 60000);
	ok(cudaEventDestroy(before));
	ok(cudaEventDestroy(event));
	assert_int_equal(cudaEventQuery(event), cudaErrorInvalidResourceHandle);
	ok(cudaStreamDestroy(other));
	assert_int_equal(cudaStreamQuery(other), cudaErrorInvalidResourceHandle);
	gate_close(&gate);
	ok(cudaStreamQuery(nullptr));
	cudaGetLastError();
}

struct called {
	std::atomic<int> count;
	cudaError_t inside;
};

static void host_function(void *argument)
{
	struct called *called = static_cast<struct called *>(argument);

	called->inside = cudaStreamQuery(nullptr);
	called->count++;
}

static void test_host_functions(void **)
{
	struct gate gate = gate_make();
	struct called called = {};

	ok(cudaLaunchHostFunc(gate.stream, host_function, &called));
	nap(3000);
	assert_int_equal(called.count, 0);
	gate_open(&gate);
	gate_close(&gate);
	assert_int_equal(called.count, 1);
	assert_int_equal(called.inside, cudaErrorNotPermitted);
}

/* Turns the elements of each CTA round, by way of shared memory. */
static __global__ void reverse(unsigned *data, bool wait)
{
	__shared__ unsigned kept[256];

	kept[threadIdx.x] = data[blockIdx.x * blockDim.x + threadIdx.x];
	if (wait)
		__syncthreads();
	data[blockIdx.x * blockDim.x + threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
}

/* Each element is the sum of those before it in its warp, and itself. */
static __global__ void scan(unsigned *data)
{
	unsigned lane = threadIdx.x % 32, value = data[threadIdx.x];

	for (unsigned step = 1; step < 32; step *= 2) {
		unsigned before = __shfl_up_sync(0xffffffffu, value, step);

		if (lane >= step)
			value += before;
	}
	data[threadIdx.x] = value;
}

static __global__ void collectives(unsigned long long *out)
{
	const unsigned all = 0xffffffffu;
	unsigned lane = threadIdx.x % 32;
	unsigned long long *mine = out + threadIdx.x * 10;

	mine[0] = __ballot_sync(all, lane % 3 == 0);
	mine[1] = __reduce_max_sync(all, lane * 7 % 32);
	mine[2] = __reduce_add_sync(all, lane);
	mine[3] = __shfl_sync(all, 100ull + lane, 5);
	mine[4] = __shfl_xor_sync(all, lane, 3);
	mine[5] = __shfl_down_sync(all, lane, 30);
	mine[6] = __any_sync(all, lane == 9) * 2 + __all_sync(all, lane == 9);
	mine[7] = __shfl_sync(all, lane, 1, 8);
	if (lane < 4)
		mine[8] = __ballot_sync(0xf, lane & 1);
	__syncwarp();
	atomicMax(out + 9, threadIdx.x * 1ull);
}

/* Through a device, there and back. */
template <typename T, typename Launch> static void with_device(std::vector<T> *data, Launch go)
{
	T *memory;

	ok(cudaMalloc(&memory, data->size() * sizeof(T)));
	ok(cudaMemcpy(memory, data->data(), data->size() * sizeof(T), cudaMemcpyHostToDevice));
	ok(go(memory));
	ok(cudaMemcpy(data->data(), memory, data->size() * sizeof(T), cudaMemcpyDeviceToHost));
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
		with_device(&data, [&](unsigned *memory) {
			return launch(reverse, 7, 256, nullptr, memory, wait != 0);
		});
		for (unsigned i = 0; i < data.size(); i++)
			right &= data[i] == i / 256 * 256 + 255 - i % 256;
		/* A missing barrier shows. */
		assert_int_equal(right, wait);
	}
}

static void test_warps(void **)
{
	std::vector<unsigned> data(96, 1);
	std::vector<unsigned long long> out(640, 0);

	with_device(&data, [](unsigned *memory) { return launch(scan, 1, 96, nullptr, memory); });
	for (unsigned i = 0; i < data.size(); i++)
		assert_int_equal(data[i], i % 32 + 1);
	with_device(&out, [](unsigned long long *memory) {
		return launch(collectives, 1, 64, nullptr, memory);
	});
	for (unsigned i = 0; i < 64; i++) {
		const unsigned long long *mine = &out[i * 10];
		unsigned lane = i % 32;

		assert_int_equal(mine[0], 0x49249249u);
		assert_int_equal(mine[1], 31);
		assert_int_equal(mine[2], 31 * 32 / 2);
		assert_int_equal(mine[3], 105);
		assert_int_equal(mine[4], lane ^ 3);
		assert_int_equal(mine[5], lane < 2 ? lane + 30 : lane);
		assert_int_equal(mine[6], 2);
		assert_int_equal(mine[7], lane / 8 * 8 + 1);
		assert_int_equal(mine[8], lane < 4 ? 0xa : 0);
	}
	assert_int_equal(out[9], 63);
}

static __global__ void diverge_barrier(int how)
{
	if (how == 0 && threadIdx.x == 3) {
		__syncthreads();
		return;
	}
	if (how == 1 && threadIdx.x < 32)
		__syncwarp();
	if (how == 2 && threadIdx.x != 40)
		__ballot_sync(0xffffffffu, 1);
	if (how == 3)
		__ballot_sync(1u << (threadIdx.x % 32 + 1) % 32, 1);
	if (how == 4 && threadIdx.x == 5) /* has ended: as CUDA, nobody waits for it */
		return;
	__syncthreads();
}

static void test_divergence(void **)
{
	const cudaError_t want[] = {cudaErrorLaunchFailure, cudaSuccess, cudaErrorLaunchFailure,
	                            cudaErrorLaunchFailure, cudaSuccess};

	for (int how = 0; how < 5; how++) {
		ok(launch(diverge_barrier, 3, 64, nullptr, how));
		assert_int_equal(cudaDeviceSynchronize(), want[how]);
		/* It sticks, to this device alone. */
		assert_int_equal(launch(diverge_barrier, 3, 64, nullptr, 4), want[how]);
		if (want[how] != cudaSuccess) {
			ok(cudaSetDevice(1));
			ok(cudaDeviceSynchronize());
			assert_int_equal(cudaSetDevice(0), cudaErrorLaunchFailure);
		}
		emulated_cuda_reset();
	}
}

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

static __global__ void poke(char *at)
{
	*at = 1;
}

static void test_guards(void **)
{
	assert_int_equal(signal_of([] {
				 char *memory;

				 ok(cudaMalloc(&memory, 4096));
				 *static_cast<volatile char *>(memory) = 1;
			 }),
	                 SIGSEGV);
	for (int where = 0; where < 3; where++) {
		int end = signal_of([where] {
			const int at[] = {4095, 4096, -1};
			char *memory;

			ok(cudaMalloc(&memory, 4096));
			ok(launch(poke, 1, 1, nullptr, memory + at[where]));
			ok(cudaDeviceSynchronize());
		});
		assert_int_equal(end, where ? SIGSEGV : 0);
	}
	assert_int_equal(signal_of([] {
				 char *memory;

				 ok(cudaMalloc(&memory, 4096));
				 ok(cudaFree(memory));
				 ok(launch(poke, 1, 1, nullptr, memory));
				 ok(cudaDeviceSynchronize());
			 }),
	                 SIGSEGV);
	/* Not so far behind the end that a page sees it. */
	assert_int_equal(signal_of([] {
				 char *memory;

				 ok(cudaMalloc(&memory, 100));
				 ok(launch(poke, 1, 1, nullptr, memory + 100));
				 ok(cudaFree(memory));
			 }),
	                 SIGABRT);
}

static void test_wrong_use(void **)
{
	struct cudaPointerAttributes attributes;
	char host[10], *memory, *pinned;
	cudaStream_t stream;

	ok(cudaMalloc(&memory, 100));
	ok(cudaHostAlloc(&pinned, 100, 0));
	assert_int_equal(cudaMemcpy(memory, host, 101, cudaMemcpyHostToDevice),
	                 cudaErrorInvalidValue);
	assert_int_equal(cudaMemcpy(memory, host, 10, cudaMemcpyDeviceToHost),
	                 cudaErrorInvalidValue);
	assert_int_equal(cudaFree(memory + 1), cudaErrorInvalidValue);
	assert_int_equal(cudaFree(pinned), cudaErrorInvalidValue);
	assert_int_equal(cudaSetDevice(2), cudaErrorInvalidDevice);
	assert_int_equal(cudaGetLastError(), cudaErrorInvalidDevice);
	ok(cudaGetLastError());
	ok(cudaPointerGetAttributes(&attributes, memory + 99));
	assert_int_equal(attributes.type, cudaMemoryTypeDevice);
	ok(cudaPointerGetAttributes(&attributes, memory + 100));
	assert_int_equal(attributes.type, cudaMemoryTypeUnregistered);
	ok(cudaPointerGetAttributes(&attributes, pinned));
	assert_int_equal(attributes.type, cudaMemoryTypeHost);
	assert_ptr_equal(attributes.devicePointer, pinned);
	ok(cudaSetDevice(1));
	ok(cudaStreamCreate(&stream));
	ok(cudaSetDevice(0));
	assert_int_equal(launch(poke, 1, 1, stream, memory), cudaErrorInvalidResourceHandle);
	assert_int_equal(launch(poke, 1, 1025, nullptr, memory), cudaErrorInvalidConfiguration);
	ok(cudaStreamDestroy(stream));
	ok(cudaFree(memory));
	ok(cudaFreeHost(pinned));
}

static void test_faults(void **)
{
	struct called called = {};
	char *memory;

	emulated_cuda_fail("cudaLaunchHostFunc:2,cudaMalloc:1=2");
	assert_int_equal(cudaMalloc(&memory, 10), cudaErrorMemoryAllocation);
	ok(cudaMalloc(&memory, 10));
	ok(cudaLaunchHostFunc(nullptr, host_function, &called));
	assert_int_equal(cudaLaunchHostFunc(nullptr, host_function, &called),
	                 cudaErrorLaunchFailure);
	ok(cudaLaunchHostFunc(nullptr, host_function, &called));
	ok(cudaDeviceSynchronize());
	emulated_cuda_fail("kernel:2=700");
	ok(launch(poke, 1, 1, nullptr, memory));
	ok(cudaDeviceSynchronize());
	ok(launch(poke, 1, 1, nullptr, memory));
	assert_int_equal(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
	assert_int_equal(cudaFree(memory), cudaErrorIllegalAddress);
	emulated_cuda_reset();
	ok(cudaFree(memory));
}

/* A stream whose device has failed waits for nobody any more. */
static void test_failure_releases(void **)
{
	struct gate gate = gate_make();

	emulated_cuda_fail("kernel:1");
	ok(launch(diverge_barrier, 1, 1, nullptr, 4));
	assert_int_equal(cudaStreamSynchronize(nullptr), cudaErrorLaunchFailure);
	emulated_cuda_reset();
	ok(cudaStreamQuery(gate.stream));
	gate_close(&gate);
}

static void test_capture(void **)
{
	enum cudaStreamCaptureStatus status;
	cudaStream_t stream;
	cudaGraph_t graph;

	ok(cudaStreamCreate(&stream));
	ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	ok(cudaStreamIsCapturing(stream, &status));
	assert_int_equal(status, cudaStreamCaptureStatusActive);
	assert_int_equal(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
	ok(cudaStreamEndCapture(stream, &graph));
	ok(cudaStreamIsCapturing(stream, &status));
	assert_int_equal(status, cudaStreamCaptureStatusNone);
	ok(cudaStreamDestroy(stream));
}

static void test_counts(void **)
{
	struct emulated_cuda_counts before = emulated_cuda_stats(), after;
	std::vector<char> data(1000);
	char *memory;

	with_device(&data, [&](char *at) {
		ok(cudaMalloc(&memory, 300));
		return cudaMemcpyAsync(memory, at, 300, cudaMemcpyDeviceToDevice, nullptr);
	});
	ok(cudaFree(memory));
	after = emulated_cuda_stats();
	assert_int_equal(after.to_device_bytes - before.to_device_bytes, 1000);
	assert_int_equal(after.to_host_bytes - before.to_host_bytes, 1000);
	assert_int_equal(after.device_bytes - before.device_bytes, 300);
	assert_int_equal(after.copies - before.copies, 3);
}

int main()
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_guards), /* first: forks before there are threads */
		cmocka_unit_test(test_stream_waits), cmocka_unit_test(test_other_streams_go_on),
		cmocka_unit_test(test_events),       cmocka_unit_test(test_host_functions),
		cmocka_unit_test(test_barrier),      cmocka_unit_test(test_warps),
		cmocka_unit_test(test_divergence),   cmocka_unit_test(test_wrong_use),
		cmocka_unit_test(test_faults),       cmocka_unit_test(test_failure_releases),
		cmocka_unit_test(test_capture),      cmocka_unit_test(test_counts),
	};

	return cmocka_run_group_tests(tests, nullptr, nullptr);
}
