/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emulated_rules.cc - calls that wait for others, and calls that captures forbid
 */
#include <cstring>

#include "tests/gpu/emulated/emulated_impl.h"

thread_local enum cudaStreamCaptureMode emulated_mode = cudaStreamCaptureModeGlobal;

/* ---- the lock of a context ---- */

void emulated_pass(std::unique_lock<std::mutex> &held, int device)
{
	emulated_device &each = emulated().devices[static_cast<size_t>(device)];

	while (each.alone != std::thread::id() && each.alone != std::this_thread::get_id())
		emulated().changed.wait(held);
}

emulated_alone::emulated_alone(std::unique_lock<std::mutex> &held, int which)
    : mine(false), device(which)
{
	const std::thread::id self = std::this_thread::get_id();
	auto &devices = emulated().devices;

	for (size_t i = 0; i < devices.size(); i++) {
		if (device >= 0 && static_cast<size_t>(device) != i)
			continue;
		emulated_pass(held, static_cast<int>(i));
		if (devices[i].alone == self)
			continue; /* whoever has taken it gives it back */
		devices[i].alone = self;
		mine = true;
	}
}

emulated_alone::~emulated_alone()
{
	auto &devices = emulated().devices;

	if (!mine)
		return;
	for (size_t i = 0; i < devices.size(); i++)
		if (device < 0 || static_cast<size_t>(device) == i)
			devices[i].alone = std::thread::id();
	emulated().changed.notify_all();
}

/* ---- kernels that have not been used yet ---- */

void emulated_load(std::unique_lock<std::mutex> &held, const void *kernel)
{
	int device = emulated_current;
	auto &loaded = emulated().devices[static_cast<size_t>(device)].loaded;

	if (loaded.count(kernel))
		return;
	emulated_alone alone(held, device);
	emulated_drain_device(held, device);
	loaded.insert(kernel);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel)
{
	EMULATED_ENTER("cudaFuncGetAttributes");
	std::unique_lock<std::mutex> held(emulated().lock);

	if (!kernel)
		return emulated_fail(cudaErrorInvalidValue);
	emulated_load(held, kernel);
	*attributes = {};
	return cudaSuccess;
}

/* ---- captures ---- */

cudaError_t emulated_unsafe()
{
	const std::thread::id self = std::this_thread::get_id();
	bool forbidden = false;

	if (emulated_mode == cudaStreamCaptureModeRelaxed)
		return cudaSuccess;
	for (CUstream_st *stream : emulated().streams) {
		if (!stream->capturing || stream->mode == cudaStreamCaptureModeRelaxed)
			continue;
		if (stream->capturer != self && (stream->mode != cudaStreamCaptureModeGlobal ||
		                                 emulated_mode != cudaStreamCaptureModeGlobal))
			continue;
		stream->spoilt = forbidden = true;
	}
	return forbidden ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
	EMULATED_ENTER("cudaThreadExchangeStreamCaptureMode");
	std::swap(emulated_mode, *mode);
	return cudaSuccess;
}

int emulated_cuda_has_context(int device)
{
	std::unique_lock<std::mutex> held(emulated().lock);

	return emulated().devices[static_cast<size_t>(device)].context;
}
