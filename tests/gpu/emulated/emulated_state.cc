/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emulated_state.cc - devices, errors, faults and numbers of the emulated CUDA
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <unistd.h>

#include "tests/gpu/emulated/emulated_impl.h"

thread_local int emulated_current;
thread_local bool emulated_in_host_function;
static thread_local cudaError_t last_error;

uint64_t emulated_number(const char *name, uint64_t otherwise)
{
	const char *text = std::getenv(name);

	return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}

/* xorshift64*: the state is never 0. */
uint64_t emulated_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 2685821657736338717u;
}

uint64_t emulated_now_ns()
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

/* The linker's, around what EMULATED_CAN_FAIL() has left there. */
extern "C" const char __start_emulated_names[], __stop_emulated_names[];

static bool can_fail(const std::string &name)
{
	for (const char *at = __start_emulated_names; at < __stop_emulated_names;
	     at += std::strlen(at) + 1)
		if (name == at)
			return true;
	return false;
}

[[noreturn]] static void no_fault(const char *text, const char *why)
{
	std::fprintf(stderr, "emulated CUDA: no fault, %s: %s\n", why, text);
	std::abort();
}

/* "name:3", "name:3+", "name:3=700", with commas between. */
static std::vector<emulated_fault> faults_of(const char *text)
{
	std::vector<emulated_fault> faults;
	char *end;

	while (text && *text) {
		const char *colon = std::strchr(text, ':');
		emulated_fault fault = {};

		if (!colon)
			no_fault(text, "without the number of a call");
		fault.name.assign(text, colon);
		if (!can_fail(fault.name))
			no_fault(text, "there is no such call");
		fault.call = std::strtoull(colon + 1, &end, 10);
		fault.on = *end == '+';
		end += fault.on;
		fault.error = *end == '=' ? static_cast<cudaError_t>(std::strtol(end + 1, &end, 10))
		                          : cudaErrorLaunchFailure;
		if (!fault.call || fault.error == cudaSuccess || (*end && *end != ','))
			no_fault(text, "want NAME:NUMBER, NUMBER+ or NUMBER=ERROR");
		faults.push_back(fault);
		text = *end == ',' ? end + 1 : end;
	}
	return faults;
}

emulated_state &emulated()
{
	static emulated_state *state = [] {
		auto *made = new emulated_state;

		made->devices.resize(emulated_number("EMULATED_CUDA_DEVICES", 2));
		made->seed = emulated_number("EMULATED_CUDA_SEED", 1) * 2 + 1;
		made->pause_us =
			static_cast<unsigned>(emulated_number("EMULATED_CUDA_PAUSE_US", 50));
		made->host_us = static_cast<unsigned>(emulated_number("EMULATED_CUDA_HOST_US", 0));
		made->processors =
			static_cast<unsigned>(emulated_number("EMULATED_CUDA_PROCESSORS", 4));
		made->connections =
			static_cast<unsigned>(emulated_number("CUDA_DEVICE_MAX_CONNECTIONS", 8));
		made->faults = faults_of(std::getenv("EMULATED_CUDA_FAIL"));
		return made;
	}();

	return *state;
}

cudaError_t emulated_fault_due(const char *name)
{
	for (emulated_fault &fault : emulated().faults) {
		if (fault.name != name || (!fault.call && !fault.on))
			continue;
		if (fault.call)
			fault.call--;
		if (fault.call)
			continue;
		emulated().stats.faults++;
		return fault.error;
	}
	return cudaSuccess;
}

cudaError_t emulated_fail(cudaError_t error)
{
	if (error != cudaSuccess && error != cudaErrorNotReady)
		last_error = error;
	return error;
}

/* For tests that want something else to have happened, or to stand still, before a call fails. */
static void hold()
{
	const char *file = std::getenv("EMULATED_CUDA_HOLD");

	if (!file || !*file)
		return;
	std::FILE *met = std::fopen((std::string(file) + ".met").c_str(), "w");
	if (met)
		std::fclose(met);
	while (access(file, F_OK) != 0)
		usleep(1000);
}

/* All others need one, also those that one would not think of. */
static bool makes_context(const char *name)
{
	static const char *const without[] = {
		"cudaGetDeviceCount",      "cudaGetDeviceProperties",
		"cudaDeviceGetAttribute",  "cudaDeviceGetPCIBusId",
		"cudaDeviceCanAccessPeer", "cudaGetDriverEntryPointByVersion"};

	for (const char *each : without)
		if (!std::strcmp(each, name))
			return false;
	return true;
}

cudaError_t emulated_enter(const char *name)
{
	emulated_state &state = emulated();
	std::unique_lock<std::mutex> held(state.lock);

	state.stats.calls++;
	if (emulated_in_host_function)
		return cudaErrorNotPermitted;
	if (state.devices.empty())
		return cudaErrorNoDevice;
	emulated_pass(held, emulated_current);
	if (makes_context(name))
		state.devices[static_cast<size_t>(emulated_current)].context = true;
	cudaError_t due = emulated_fault_due(name);
	if (due != cudaSuccess) {
		held.unlock();
		hold();
		held.lock();
	}
	emulated_device &device = state.devices[static_cast<size_t>(emulated_current)];
	if (due != cudaSuccess && !std::strcmp(name, "cudaLaunchKernel"))
		device.sticky = due;
	if (due == cudaSuccess)
		due = device.sticky;
	if (due != cudaSuccess)
		state.changed.notify_all();
	return due;
}

struct emulated_cuda_counts emulated_cuda_stats(void)
{
	std::unique_lock<std::mutex> held(emulated().lock);

	return emulated().stats;
}

void emulated_cuda_fail(const char *faults)
{
	std::unique_lock<std::mutex> held(emulated().lock);

	emulated().faults = faults_of(faults);
}

void emulated_cuda_reset(void)
{
	std::unique_lock<std::mutex> held(emulated().lock);

	emulated_drain_device(held, -1);
	emulated().faults.clear();
	for (emulated_device &device : emulated().devices)
		device.sticky = cudaSuccess;
	last_error = cudaSuccess;
}

cudaError_t emulated_cuda_sticky(int device)
{
	std::unique_lock<std::mutex> held(emulated().lock);

	return emulated().devices[static_cast<size_t>(device)].sticky;
}

static const struct {
	cudaError_t error;
	const char *name, *text;
} errors[] = {
	{cudaSuccess, "cudaSuccess", "no error"},
	{cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
	{cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
	{cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
	{cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
         "invalid configuration argument"},
	{cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
         "invalid copy direction for memcpy"},
	{cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
         "CUDA driver version is insufficient for CUDA runtime version"},
	{cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
	{cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
	{cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle",
         "invalid resource handle"},
	{cudaErrorIllegalState, "cudaErrorIllegalState",
         "the operation cannot be performed in the present state"},
	{cudaErrorSymbolNotFound, "cudaErrorSymbolNotFound", "named symbol not found"},
	{cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
	{cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
         "an illegal memory access was encountered"},
	{cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout",
         "the launch timed out and was terminated"},
	{cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
         "part or all of the requested memory range is already mapped"},
	{cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
         "pointer does not correspond to a registered memory region"},
	{cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
	{cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
	{cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
	{cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
         "operation not permitted when stream is capturing"},
	{cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
         "operation failed due to a previous error during capture"},
	{cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
         "operation would make the legacy stream depend on a capturing blocking stream"},
	{cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const char *cudaGetErrorName(cudaError_t error)
{
	for (const auto &each : errors)
		if (each.error == error)
			return each.name;
	return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
	for (const auto &each : errors)
		if (each.error == error)
			return each.text;
	return "unrecognized error code";
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
	*name = cudaGetErrorName(static_cast<cudaError_t>(error));
	return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
	*text = cudaGetErrorString(static_cast<cudaError_t>(error));
	return CUDA_SUCCESS;
}

cudaError_t cudaGetLastError(void)
{
	cudaError_t error = last_error;

	last_error = cudaSuccess;
	return error;
}

cudaError_t cudaPeekAtLastError(void)
{
	return last_error;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status)
{
	static const struct {
		const char *name;
		void *function;
	} known[] = {
		{"cuStreamWaitValue32", reinterpret_cast<void *>(cuStreamWaitValue32)},
		{"cuStreamWriteValue32", reinterpret_cast<void *>(cuStreamWriteValue32)},
		{"cuGetErrorName", reinterpret_cast<void *>(cuGetErrorName)},
		{"cuGetErrorString", reinterpret_cast<void *>(cuGetErrorString)},
	};

	(void)version, (void)flags;
	EMULATED_ENTER("cudaGetDriverEntryPointByVersion");
	*function = nullptr;
	if (status)
		*status = cudaDriverEntryPointSymbolNotFound;
	for (const auto &each : known)
		if (!std::strcmp(each.name, symbol)) {
			*function = each.function;
			if (status)
				*status = cudaDriverEntryPointSuccess;
		}
	/* As CUDA: a name that is not there is told by status alone. */
	return cudaSuccess;
}
