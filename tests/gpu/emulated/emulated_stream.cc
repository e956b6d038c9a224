/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emulated_stream.cc - streams: threads that work off queues, and what is put there
 */
#include <chrono>
#include <cstring>
#include <thread>

#include "tests/gpu/emulated/emulated_fiber.h"
#include "tests/gpu/emulated/emulated_impl.h"

/* A queue of the device holds so many entries, and a host function takes so many of them. */
static const size_t queue_most = 1024;
static const unsigned host_function_entries = 16;

static void pause(CUstream_st *stream)
{
	uint64_t random = emulated_random(&stream->random);

	if (emulated().pause_us && random % 4 == 0)
		std::this_thread::sleep_for(
			std::chrono::microseconds(random / 4 % (emulated().pause_us + 1)));
}

static bool share_queue(const CUstream_st *one, const CUstream_st *other)
{
	return one == other ||
	       (emulated().connections && one->device == other->device &&
	        one->priority == other->priority && one->connection == other->connection);
}

/* Streams that share a queue of the device wait for what came before theirs to begin. */
static bool blocked(const CUstream_st *stream, const emulated_op &op)
{
	for (const CUstream_st *other : emulated().streams) {
		if (other == stream || !share_queue(stream, other))
			continue;
		size_t begun = other->busy ? 1 : 0;
		if (other->queue.size() > begun && other->queue[begun].order < op.order)
			return true;
	}
	return false;
}

/* Wait until the first operation may begin, or the device has failed. */
static void wait_turn(std::unique_lock<std::mutex> &held, CUstream_st *stream)
{
	emulated_device &device = emulated().devices[static_cast<size_t>(stream->device)];
	const emulated_op &op = stream->queue.front();

	while (device.sticky == cudaSuccess && (blocked(stream, op) || (op.ready && !op.ready()))) {
		if (!op.polled) {
			emulated().changed.wait(held);
			continue;
		}
		held.unlock();
		std::this_thread::sleep_for(std::chrono::microseconds(20));
		held.lock();
	}
}

static void work(CUstream_st *stream)
{
	emulated_state &state = emulated();
	emulated_device &device = state.devices[static_cast<size_t>(stream->device)];
	std::unique_lock<std::mutex> held(state.lock);

	emulated_current = stream->device;
	while (!stream->queue.empty() || !stream->closing) {
		if (stream->queue.empty()) {
			state.changed.wait(held);
			continue;
		}
		wait_turn(held, stream);
		emulated_op &op = stream->queue.front();
		stream->busy = true;
		state.changed.notify_all();
		if (device.sticky == cudaSuccess && op.run) {
			if (op.touches != EMULATED_TOUCH_NONE)
				emulated_touch(op.touches, true);
			held.unlock();
			pause(stream);
			cudaError_t err = op.run();
			held.lock();
			if (op.touches != EMULATED_TOUCH_NONE)
				emulated_touch(op.touches, false);
			if (err != cudaSuccess && device.sticky == cudaSuccess)
				device.sticky = err;
		}
		if (op.finish)
			op.finish();
		stream->entries -= op.entries;
		stream->queue.pop_front();
		stream->busy = false;
		stream->finished++;
		state.changed.notify_all();
	}
	state.streams.erase(stream);
	delete stream;
	state.changed.notify_all();
	held.unlock();
	emulated_thread_end();
}

static CUstream_st *create(int device, unsigned flags, int priority)
{
	emulated_state &state = emulated();
	CUstream_st *stream = new CUstream_st;
	emulated_device &owner = state.devices[static_cast<size_t>(device)];

	stream->device = device;
	stream->flags = flags;
	stream->priority = priority;
	stream->connection = state.connections ? owner.streams[priority]++ % state.connections : 0;
	stream->id = ++state.stream_ids;
	stream->random = state.seed * 977 + stream->id;
	state.streams.insert(stream);
	std::thread(work, stream).detach();
	return stream;
}

CUstream_st *emulated_stream(cudaStream_t handle)
{
	emulated_device &current = emulated().devices[static_cast<size_t>(emulated_current)];

	if (!handle || handle == cudaStreamLegacy || handle == cudaStreamPerThread) {
		if (!current.default_stream)
			current.default_stream = create(emulated_current, 0, 0);
		return current.default_stream;
	}
	bool known = emulated().streams.count(handle) && !handle->closing;
	return known ? handle : nullptr;
}

static bool has_room(const CUstream_st *stream, const emulated_op &op)
{
	size_t entries = op.entries;

	for (const CUstream_st *other : emulated().streams)
		if (share_queue(stream, other))
			entries += other->entries;
	return entries <= queue_most;
}

void emulated_push(CUstream_st *stream, emulated_op op)
{
	if (stream->capturing)
		return;
	if (!has_room(stream, op)) {
		/* As CUDA: who waits for room has all others wait, too. */
		std::unique_lock<std::mutex> held(emulated().lock, std::adopt_lock);
		emulated_alone alone(held, stream->device);
		while (!has_room(stream, op))
			emulated().changed.wait(held);
		held.release();
	}
	op.order = emulated().devices[static_cast<size_t>(stream->device)].order++;
	stream->entries += op.entries;
	stream->queue.push_back(std::move(op));
	stream->submitted++;
	emulated().changed.notify_all();
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

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
	return cudaStreamCreateWithPriority(stream, 0, 0);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
	return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
	EMULATED_ENTER("cudaStreamCreateWithPriority");
	std::unique_lock<std::mutex> held(emulated().lock);

	if (flags & ~1u)
		return emulated_fail(cudaErrorInvalidValue);
	*stream = create(emulated_current, flags, priority);
	return cudaSuccess;
}

/* The stream, or return with an error: the beginning of most calls. */
#define EMULATED_STREAM(name, handle, stream)                                                      \
	EMULATED_ENTER(name);                                                                      \
	std::unique_lock<std::mutex> held(emulated().lock);                                        \
	CUstream_st *stream = emulated_stream(handle);                                             \
	if (!stream)                                                                               \
	return emulated_fail(cudaErrorInvalidResourceHandle)

static cudaError_t sticky(const CUstream_st *stream)
{
	return emulated_fail(emulated().devices[static_cast<size_t>(stream->device)].sticky);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
	EMULATED_STREAM("cudaStreamDestroy", handle, stream);
	if (stream->capturing || !handle || handle == cudaStreamLegacy)
		return emulated_fail(cudaErrorInvalidResourceHandle);
	stream->closing = true;
	emulated().changed.notify_all();
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
	EMULATED_STREAM("cudaStreamSynchronize", handle, stream);
	int device = stream->device;

	if (stream->capturing || emulated_unsafe() != cudaSuccess)
		return emulated_fail(cudaErrorStreamCaptureUnsupported);
	emulated_drain(held, stream);
	return emulated_fail(emulated().devices[static_cast<size_t>(device)].sticky);
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
	EMULATED_STREAM("cudaStreamQuery", handle, stream);
	if (stream->capturing || emulated_unsafe() != cudaSuccess)
		return emulated_fail(cudaErrorStreamCaptureUnsupported);
	if (stream->queue.empty())
		return sticky(stream);
	return cudaErrorNotReady;
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int *device)
{
	EMULATED_STREAM("cudaStreamGetDevice", handle, stream);
	*device = stream->device;
	return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority)
{
	EMULATED_STREAM("cudaStreamGetPriority", handle, stream);
	*priority = stream->priority;
	return cudaSuccess;
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned *flags)
{
	EMULATED_STREAM("cudaStreamGetFlags", handle, stream);
	*flags = stream->flags;
	return cudaSuccess;
}

cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long *id)
{
	EMULATED_STREAM("cudaStreamGetId", handle, stream);
	*id = stream->id;
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
		return emulated_fail(cudaErrorIllegalState);
	stream->capturing = false;
	*graph = nullptr;
	return stream->spoilt ? emulated_fail(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
	(void)graph;
	return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void *argument)
{
	EMULATED_STREAM("cudaLaunchHostFunc", handle, stream);
	emulated_op op;

	if (!function)
		return emulated_fail(cudaErrorInvalidValue);
	op.run = [=] {
		if (emulated().host_us)
			std::this_thread::sleep_for(std::chrono::microseconds(emulated().host_us));
		emulated_in_host_function = true;
		function(argument);
		emulated_in_host_function = false;
		return cudaSuccess;
	};
	op.entries = host_function_entries;
	emulated_push(stream, op);
	emulated().stats.host_functions++;
	return cudaSuccess;
}

cudaError_t emulated_cuda_queue(cudaStream_t handle, cudaError_t (*function)(void *argument),
                                void *argument)
{
	EMULATED_STREAM("emulated_cuda_queue", handle, stream);
	emulated_op op;

	op.touches = EMULATED_TOUCH_ALL;
	op.run = [=] { return function(argument); };
	emulated_push(stream, op);
	return cudaSuccess;
}

/* The address holds what the flags ask for. Pinned memory may be written by anybody. */
static bool satisfied(const uint32_t *at, uint32_t value, unsigned flags)
{
	uint32_t now = __atomic_load_n(at, __ATOMIC_ACQUIRE);

	switch (flags & 3) {
	case CU_STREAM_WAIT_VALUE_GEQ:
		return static_cast<int32_t>(now - value) >= 0;
	case CU_STREAM_WAIT_VALUE_EQ:
		return now == value;
	case CU_STREAM_WAIT_VALUE_AND:
		return (now & value) != 0;
	default:
		return ~(now | value) != 0;
	}
}

static CUresult value_op(const char *name, CUstream handle, CUdeviceptr address,
                         const std::function<emulated_op(uint32_t *)> &make)
{
	cudaError_t err = emulated_enter(name);
	std::unique_lock<std::mutex> held(emulated().lock);
	CUstream_st *stream = err == cudaSuccess ? emulated_stream(handle) : nullptr;
	emulated_memory *memory =
		emulated_find(reinterpret_cast<const void *>(address), sizeof(uint32_t));

	if (err != cudaSuccess)
		return static_cast<CUresult>(err);
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	/* Ours lie in host memory: the emulation knows no others. */
	if (!memory || memory->device >= 0 || address % sizeof(uint32_t))
		return CUDA_ERROR_INVALID_VALUE;
	if (stream->capturing)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	emulated_push(stream, make(reinterpret_cast<uint32_t *>(address)));
	return CUDA_SUCCESS;
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
	EMULATED_CAN_FAIL("cuStreamWaitValue32");
	return value_op(can_fail, stream, address, [=](uint32_t *at) {
		emulated_op op;

		op.ready = [=] { return satisfied(at, value, flags); };
		op.polled = true;
		return op;
	});
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                              unsigned flags)
{
	EMULATED_CAN_FAIL("cuStreamWriteValue32");
	(void)flags;
	return value_op(can_fail, stream, address, [=](uint32_t *at) {
		emulated_op op;

		op.run = [=] {
			__atomic_store_n(at, value, __ATOMIC_RELEASE);
			return cudaSuccess;
		};
		return op;
	});
}
