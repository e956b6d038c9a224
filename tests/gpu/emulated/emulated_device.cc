/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emulated_device.cc - what devices there are, and what they say of themselves
 */
#include <cstdio>
#include <cstring>

#include "tests/gpu/emulated/emulated_impl.h"

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

	if (emulated_in_host_function)
		return emulated_fail(cudaErrorNotPermitted);
	if (emulated().devices.empty())
		return emulated_fail(cudaErrorNoDevice);
	if (due != cudaSuccess || !is_device(device))
		return emulated_fail(due != cudaSuccess ? due : cudaErrorInvalidDevice);
	emulated_current = device;
	emulated().devices[static_cast<size_t>(device)].context = true;
	return emulated_fail(emulated().devices[static_cast<size_t>(device)].sticky);
}

cudaError_t cudaGetDevice(int *device)
{
	if (emulated().devices.empty())
		return emulated_fail(cudaErrorNoDevice);
	*device = emulated_current;
	return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
	EMULATED_ENTER("cudaGetDeviceProperties");
	if (!is_device(device))
		return emulated_fail(cudaErrorInvalidDevice);
	*properties = {};
	std::snprintf(properties->name, sizeof(properties->name), "Emulated GPU");
	properties->totalGlobalMem = static_cast<size_t>(8) << 30;
	properties->sharedMemPerBlock = 48 << 10;
	properties->warpSize = 32;
	properties->maxThreadsPerBlock = 1024;
	properties->major = 9;
	properties->multiProcessorCount = 4;
	properties->unifiedAddressing = 1;
	properties->canMapHostMemory = 1;
	properties->pciBusID = device + 1;
	properties->l2CacheSize = 1 << 20;
	return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
	static const struct {
		enum cudaDeviceAttr attribute;
		int value;
	} known[] = {
		{cudaDevAttrMaxThreadsPerBlock, 1024},
		{cudaDevAttrMaxSharedMemoryPerBlock, 48 << 10},
		{cudaDevAttrWarpSize, 32},
		{cudaDevAttrClockRate, 1000000},
		{cudaDevAttrCanMapHostMemory, 1},
		{cudaDevAttrMemoryClockRate, 1000000},
		{cudaDevAttrGlobalMemoryBusWidth, 64},
		{cudaDevAttrL2CacheSize, 1 << 20},
		{cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
		{cudaDevAttrAsyncEngineCount, 2},
		{cudaDevAttrUnifiedAddressing, 1},
		{cudaDevAttrComputeCapabilityMajor, 9},
		{cudaDevAttrComputeCapabilityMinor, 0},
		{cudaDevAttrStreamPrioritiesSupported, 1},
		{cudaDevAttrCanUseHostPointerForRegisteredMem, 1},
	};

	EMULATED_ENTER("cudaDeviceGetAttribute");
	if (!is_device(device))
		return emulated_fail(cudaErrorInvalidDevice);
	if (attribute == cudaDevAttrMultiProcessorCount) {
		*value = static_cast<int>(emulated().processors);
		return cudaSuccess;
	}
	for (const auto &each : known)
		if (each.attribute == attribute) {
			*value = each.value;
			return cudaSuccess;
		}
	return emulated_fail(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device)
{
	EMULATED_ENTER("cudaDeviceGetPCIBusId");
	if (!is_device(device))
		return emulated_fail(cudaErrorInvalidDevice);
	if (std::snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", device + 1) >=
	    length)
		return emulated_fail(cudaErrorInvalidValue);
	return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	EMULATED_ENTER("cudaDeviceGetStreamPriorityRange");
	*least = 0;
	*greatest = -5;
	return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
	EMULATED_ENTER("cudaDeviceCanAccessPeer");
	if (!is_device(device) || !is_device(peer))
		return emulated_fail(cudaErrorInvalidDevice);
	*can = 0;
	return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
	EMULATED_ENTER("cudaDeviceSynchronize");
	EMULATED_UNSAFE();
	std::unique_lock<std::mutex> held(emulated().lock);

	emulated_drain_device(held, emulated_current);
	return emulated_fail(emulated().devices[static_cast<size_t>(emulated_current)].sticky);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
	*version = CUDART_VERSION;
	return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
	*version = CUDA_VERSION;
	return cudaSuccess;
}
