/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emulated_state.cc - devices, errors, faults and numbers of the emulated CUDA
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <regex>

#include "tests/gpu/emulated/emulated_impl.h"

thread_local int emulated_current;
static thread_local cudaError_t last_error;

/* ---- numbers ---- */

static uint64_t number(const char *name, uint64_t otherwise)
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

/* ---- faults ---- */

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

/* "name:3", "name:3+", "name:3=700", with commas between. */
static std::vector<emulated_fault> faults_of(const char *text)
{
	static const std::regex form("(\\w+):([1-9]\\d*)([+]?)(?:=([1-9]\\d*))?(?:,|$)");
	std::vector<emulated_fault> faults;
	std::cmatch found;

	for (; text && *text; text = found[0].second) {
		if (!std::regex_search(text, found, form, std::regex_constants::match_continuous) ||
		    !can_fail(found[1])) {
			std::fprintf(stderr,
			             "emulated CUDA: want CALL:NUMBER, NUMBER+ or NUMBER=ERROR, of "
			             "a call that can fail: %s\n",
			             text);
			std::abort();
		}
		faults.push_back({found[1], std::stoul(found[2]), found[3].length() > 0,
		                  found[4].matched ? static_cast<cudaError_t>(std::stoi(found[4]))
		                                   : cudaErrorLaunchFailure});
	}
	return faults;
}

emulated_state &emulated()
{
	static emulated_state *state = [] {
		auto *made = new emulated_state;

		made->devices.resize(number("EMULATED_CUDA_DEVICES", 2));
		made->seed = number("EMULATED_CUDA_SEED", 1) * 2 + 1;
		made->pause_us = static_cast<unsigned>(number("EMULATED_CUDA_PAUSE_US", 50));
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
		if (fault.call > 0 && --fault.call > 0)
			continue;
		emulated().faults_met++;
		return fault.error;
	}
	return cudaSuccess;
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

unsigned emulated_cuda_allocations(void)
{
	return emulated().allocations;
}

unsigned emulated_cuda_faults(void)
{
	return emulated().faults_met;
}

/* ---- errors ---- */

cudaError_t emulated_fail(cudaError_t error)
{
	if (error != cudaSuccess && error != cudaErrorNotReady)
		last_error = error;
	return error;
}

cudaError_t emulated_sticky(int device)
{
	return emulated_fail(emulated_device_of(device).sticky);
}

cudaError_t emulated_enter(const char *name)
{
	emulated_state &state = emulated();
	std::unique_lock<std::mutex> held(state.lock);

	if (state.devices.empty())
		return cudaErrorNoDevice;
	emulated_device &device = emulated_device_of(emulated_current);
	/* All others need a context, also those that one would not think of. */
	device.context |= std::strcmp(name, "cudaGetDeviceCount") != 0 &&
	                  std::strcmp(name, "cudaDeviceGetAttribute") != 0;
	cudaError_t due = emulated_fault_due(name);
	if (due != cudaSuccess && !std::strcmp(name, "cudaLaunchKernel")) {
		device.sticky = due;
		state.changed.notify_all();
	}
	return due != cudaSuccess ? due : device.sticky;
}

const char *cudaGetErrorString(cudaError_t error)
{
	switch (error) {
		EMULATED_ERRORS(EMULATED_TEXT)
	}
	return "unrecognized error code";
}

cudaError_t cudaGetLastError(void)
{
	cudaError_t error = last_error;

	last_error = cudaSuccess;
	return error;
}

/* ---- devices ---- */

static bool is_device(int device)
{
	return device >= 0 && static_cast<size_t>(device) < emulated().devices.size();
}

cudaError_t cudaGetDeviceCount(int *count)
{
	*count = 0;
	EMULATED_ENTER("cudaGetDeviceCount");
	*count = static_cast<int>(emulated().devices.size());
	return cudaSuccess;
}

/* Not by EMULATED_ENTER: a thread may leave a device that has failed. */
cudaError_t cudaSetDevice(int device)
{
	EMULATED_CAN_FAIL("cudaSetDevice");
	std::unique_lock<std::mutex> held(emulated().lock);
	cudaError_t due = emulated_fault_due(can_fail);

	if (due == cudaSuccess && !is_device(device))
		due = emulated().devices.empty() ? cudaErrorNoDevice : cudaErrorInvalidDevice;
	if (due != cudaSuccess)
		return emulated_fail(due);
	emulated_current = device;
	emulated_device_of(device).context = true;
	return emulated_sticky(device);
}

cudaError_t cudaGetDevice(int *device)
{
	if (emulated().devices.empty())
		return emulated_fail(cudaErrorNoDevice);
	*device = emulated_current;
	return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
	EMULATED_ENTER("cudaDeviceGetAttribute");
	if (!is_device(device) ||
	    (attribute != cudaDevAttrMultiProcessorCount && attribute != cudaDevAttrL2CacheSize))
		return emulated_fail(cudaErrorInvalidDevice);
	*value = attribute == cudaDevAttrL2CacheSize ? 65536 : 4;
	return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	EMULATED_ENTER("cudaDeviceGetStreamPriorityRange");
	*least = 0;
	*greatest = -5;
	return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
	EMULATED_LOCKED("cudaDeviceSynchronize");
	EMULATED_UNSAFE();
	emulated_drain_device(held, emulated_current);
	return emulated_sticky(emulated_current);
}

int emulated_cuda_has_context(int device)
{
	std::unique_lock<std::mutex> held(emulated().lock);

	return emulated_device_of(device).context;
}

cudaError_t cudaDriverGetVersion(int *version)
{
	*version = CUDART_VERSION;
	return cudaSuccess;
}
