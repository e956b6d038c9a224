/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emulated_event.cc - events: points in streams that others wait for
 */
#include "tests/gpu/emulated/emulated_impl.h"

/* The event is one of ours, or return with an error. */
#define EMULATED_EVENT(name, event)                                                                \
	EMULATED_ENTER(name);                                                                      \
	std::unique_lock<std::mutex> held(emulated().lock);                                        \
	if (!emulated().events.count(event))                                                       \
	return emulated_fail(cudaErrorInvalidResourceHandle)

static cudaError_t sticky(const CUevent_st *event)
{
	return emulated_fail(emulated().devices[static_cast<size_t>(event->device)].sticky);
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
	return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
	EMULATED_ENTER("cudaEventCreateWithFlags");
	std::unique_lock<std::mutex> held(emulated().lock);

	*event = new CUevent_st{emulated_current, flags, nullptr};
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
	auto record = std::make_shared<emulated_record>();
	emulated_op op;

	if (!stream || stream->device != event->device)
		return emulated_fail(cudaErrorInvalidResourceHandle);
	op.finish = [=] {
		record->done = true;
		record->time_ns = emulated_now_ns();
	};
	if (stream->capturing)
		return cudaSuccess;
	event->last = record;
	emulated_push(stream, op);
	return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
	EMULATED_EVENT("cudaEventQuery", event);
	if (emulated_unsafe() != cudaSuccess)
		return emulated_fail(cudaErrorStreamCaptureUnsupported);
	if (event->last && !event->last->done)
		return cudaErrorNotReady;
	return sticky(event);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	EMULATED_EVENT("cudaEventSynchronize", event);
	if (emulated_unsafe() != cudaSuccess)
		return emulated_fail(cudaErrorStreamCaptureUnsupported);
	std::shared_ptr<emulated_record> record = event->last;
	int device = event->device;

	while (record && !record->done)
		emulated().changed.wait(held);
	return emulated_fail(emulated().devices[static_cast<size_t>(device)].sticky);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
	EMULATED_EVENT("cudaEventElapsedTime", start);
	if (!emulated().events.count(end) ||
	    ((start->flags | end->flags) & cudaEventDisableTiming) || !start->last || !end->last)
		return emulated_fail(cudaErrorInvalidResourceHandle);
	if (!start->last->done || !end->last->done)
		return cudaErrorNotReady;
	*ms = static_cast<float>(static_cast<double>(end->last->time_ns - start->last->time_ns) /
	                         1e6);
	return sticky(start);
}

/* Waits for what the event stands for now, not for what is recorded later. */
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags)
{
	(void)flags;
	EMULATED_EVENT("cudaStreamWaitEvent", event);
	CUstream_st *stream = emulated_stream(handle);
	std::shared_ptr<emulated_record> record = event->last;
	emulated_op op;

	if (!stream)
		return emulated_fail(cudaErrorInvalidResourceHandle);
	op.ready = [=] { return !record || record->done; };
	emulated_push(stream, op);
	return cudaSuccess;
}
