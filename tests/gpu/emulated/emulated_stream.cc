/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emulated_stream.cc - streams as threads with queues; events, captures, and the work in them
 */
#include <chrono>

#include "tests/gpu/emulated/emulated_impl.h"

thread_local enum cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;

/* ---- streams ---- */

static void pause(CUstream_st *stream)
{
	uint64_t random = emulated_random(&stream->random);

	if (emulated().pause_us && random % 4 == 0)
		std::this_thread::sleep_for(
			std::chrono::microseconds(random / 4 % (emulated().pause_us + 1)));
}

static void perform(std::unique_lock<std::mutex> &held, CUstream_st *stream)
{
	emulated_state &state = emulated();
	emulated_device &device = emulated_device_of(stream->device);
	emulated_op &op = stream->queue.front();

	while (device.sticky == cudaSuccess && op.ready && !op.ready())
		state.changed.wait(held);
	if (device.sticky == cudaSuccess && op.run) {
		emulated_touch(op.touches, true);
		held.unlock();
		pause(stream);
		cudaError_t err = op.run();
		held.lock();
		emulated_touch(op.touches, false);
		if (device.sticky == cudaSuccess)
			device.sticky = err;
	}
	if (op.finish)
		op.finish();
	stream->queue.pop_front();
	stream->finished++;
	state.changed.notify_all();
}

static void work(CUstream_st *stream)
{
	emulated_state &state = emulated();
	std::unique_lock<std::mutex> held(state.lock);

	emulated_current = stream->device;
	while (!stream->queue.empty() || !stream->closing) {
		if (stream->queue.empty())
			state.changed.wait(held);
		else
			perform(held, stream);
	}
	state.streams.erase(stream);
	delete stream;
	state.changed.notify_all();
}

static CUstream_st *create(int device, unsigned flags)
{
	emulated_state &state = emulated();
	CUstream_st *stream = new CUstream_st;

	stream->device = device;
	stream->flags = flags;
	stream->random = state.seed * 977 + ++state.stream_ids;
	state.streams.insert(stream);
	std::thread(work, stream).detach();
	return stream;
}

CUstream_st *emulated_stream(cudaStream_t handle)
{
	emulated_device &current = emulated_device_of(emulated_current);

	if (!handle) {
		if (!current.default_stream)
			current.default_stream = create(emulated_current, 0);
		return current.default_stream;
	}
	bool known = emulated().streams.count(handle) && !handle->closing;
	return known ? handle : nullptr;
}

cudaError_t emulated_push(CUstream_st *stream, emulated_op op)
{
	if (stream->capturing)
		return cudaSuccess;
	stream->queue.push_back(std::move(op));
	stream->submitted++;
	emulated().changed.notify_all();
	return cudaSuccess;
}

void emulated_drain(std::unique_lock<std::mutex> &held, CUstream_st *stream)
{
	uint64_t until = stream->submitted;

	/* The stream may be gone when all of it is done: then its handle is, too. */
	while (emulated().streams.count(stream) && stream->finished < until)
		emulated().changed.wait(held);
}

void emulated_drain_device(std::unique_lock<std::mutex> &held, int device)
{
	std::vector<CUstream_st *> streams(emulated().streams.begin(), emulated().streams.end());

	for (CUstream_st *stream : streams)
		if (emulated().streams.count(stream) && (device < 0 || stream->device == device))
			emulated_drain(held, stream);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
	return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
	EMULATED_LOCKED("cudaStreamCreateWithPriority");
	if ((flags & ~1u) || priority > 0 || priority < -5)
		return emulated_fail(cudaErrorInvalidValue);
	*stream = create(emulated_current, flags);
	return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
	EMULATED_STREAM("cudaStreamDestroy", handle, stream);
	if (stream->capturing || !handle)
		return emulated_fail(cudaErrorInvalidResourceHandle);
	stream->closing = true;
	emulated().changed.notify_all();
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
	EMULATED_STREAM("cudaStreamSynchronize", handle, stream);
	int device = stream->device;

	EMULATED_UNSAFE(stream);
	emulated_drain(held, stream);
	return emulated_sticky(device);
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
	EMULATED_STREAM("cudaStreamQuery", handle, stream);
	EMULATED_UNSAFE(stream);
	return stream->queue.empty() ? emulated_sticky(stream->device) : cudaErrorNotReady;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void *argument)
{
	EMULATED_STREAM("cudaLaunchHostFunc", handle, stream);
	return emulated_push(stream, {EMULATED_TOUCH_NONE, [=] {
					      function(argument);
					      return cudaSuccess;
				      }});
}

/* ---- captures ---- */

bool emulated_unsafe(const CUstream_st *asked)
{
	const std::thread::id self = std::this_thread::get_id();
	bool forbidden = false;

	if ((asked && asked->capturing) || mode_of_thread == cudaStreamCaptureModeRelaxed)
		return asked && asked->capturing;
	for (CUstream_st *stream : emulated().streams) {
		if (!stream->capturing || stream->mode == cudaStreamCaptureModeRelaxed)
			continue;
		if (stream->capturer != self && (stream->mode != cudaStreamCaptureModeGlobal ||
		                                 mode_of_thread != cudaStreamCaptureModeGlobal))
			continue;
		stream->spoilt = forbidden = true;
	}
	return forbidden;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
	EMULATED_ENTER("cudaThreadExchangeStreamCaptureMode");
	std::swap(mode_of_thread, *mode);
	return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status)
{
	EMULATED_STREAM("cudaStreamIsCapturing", handle, stream);
	for (const CUstream_st *other : emulated().streams)
		if (!handle && other->capturing && !(other->flags & cudaStreamNonBlocking))
			return emulated_fail(cudaErrorStreamCaptureImplicit);
	*status = stream->capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
	return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
	EMULATED_STREAM("cudaStreamBeginCapture", handle, stream);
	if (stream->capturing || !handle)
		return emulated_fail(cudaErrorStreamCaptureUnsupported);
	stream->capturing = true;
	stream->spoilt = false;
	stream->mode = mode;
	stream->capturer = std::this_thread::get_id();
	return cudaSuccess;
}

/* There are no graphs: what was captured is gone. */
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph)
{
	EMULATED_STREAM("cudaStreamEndCapture", handle, stream);
	if (!stream->capturing)
		return emulated_fail(cudaErrorInvalidResourceHandle);
	stream->capturing = false;
	*graph = nullptr;
	return stream->spoilt ? emulated_fail(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
}

/* ---- events: points in streams that others wait for ---- */

/* The event is one of ours, or return with an error. */
#define EMULATED_EVENT(name, event)                                                                \
	EMULATED_LOCKED(name);                                                                     \
	if (!emulated().events.count(event))                                                       \
	return emulated_fail(cudaErrorInvalidResourceHandle)

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
	EMULATED_LOCKED("cudaEventCreateWithFlags");
	*event = new CUevent_st{emulated_current, nullptr};
	emulated().events.insert(*event);
	return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	EMULATED_EVENT("cudaEventDestroy", event);
	emulated().events.erase(event);
	delete event;
	return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle)
{
	EMULATED_EVENT("cudaEventRecord", event);
	CUstream_st *stream = emulated_stream(handle);
	auto over = std::make_shared<bool>(false);

	if (!stream || stream->device != event->device)
		return emulated_fail(cudaErrorInvalidResourceHandle);
	if (stream->capturing)
		return cudaSuccess;
	event->over = over;
	return emulated_push(stream, {EMULATED_TOUCH_NONE, {}, [=] { *over = true; }});
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
	EMULATED_EVENT("cudaEventQuery", event);
	EMULATED_UNSAFE();
	return event->over && !*event->over ? cudaErrorNotReady : emulated_sticky(event->device);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	EMULATED_EVENT("cudaEventSynchronize", event);
	EMULATED_UNSAFE();
	std::shared_ptr<bool> over = event->over;
	int device = event->device;

	while (over && !*over)
		emulated().changed.wait(held);
	return emulated_sticky(device);
}

/* Benches run, and measure nothing. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t)
{
	EMULATED_EVENT("cudaEventElapsedTime", start);
	*ms = 1;
	return emulated_sticky(start->device);
}

/* Waits for what the event stands for now, not for what is recorded later. */
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned)
{
	EMULATED_EVENT("cudaStreamWaitEvent", event);
	CUstream_st *stream = emulated_stream(handle);
	std::shared_ptr<bool> over = event->over;

	if (!stream)
		return emulated_fail(cudaErrorInvalidResourceHandle);
	if (stream->capturing && over) {
		stream->spoilt = true;
		return emulated_fail(cudaErrorStreamCaptureIsolation);
	}
	return emulated_push(stream, {EMULATED_TOUCH_NONE, {}, {}, [=] { return !over || *over; }});
}
