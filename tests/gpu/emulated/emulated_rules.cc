/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emulated_rules.cc - calls that captures forbid, and contexts
 */
#include <cstring>

#include "tests/gpu/emulated/emulated_impl.h"

thread_local enum cudaStreamCaptureMode emulated_mode = cudaStreamCaptureModeGlobal;

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
