/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emulated_cuda.cc - devices, memory, streams, events and faults of the emulated CUDA
 *
 * One lock protects everything; an operation runs without it.
 */
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <vector>

#include "tests/gpu/emulated/emulated.h"

struct CUevent_st {
	int device;
	std::shared_ptr<bool> over; /* none: never recorded */
};

struct op {
	std::function<cudaError_t()> run; /* may be empty */
	std::shared_ptr<bool> over{};     /* is set when it is done, whether it ran or not */
	std::shared_ptr<bool> waits{};    /* for this one */
};

struct CUstream_st {
	int device;
	unsigned flags;
	bool capturing = false, spoilt = false;
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
	std::thread::id capturer{};
	std::deque<op> queue{}; /* the first may be under way */
};

struct memory {
	int device; /* the device that was current */
	bool pinned;
	size_t bytes, mapped;
	char *map;
};

struct fault {
	std::string name;
	uint64_t call; /* fails when it gets to 0 */
	bool on;       /* and ever after */
	int error;
};

struct device {
	cudaError_t sticky = cudaSuccess;
	cudaStream_t default_stream = nullptr;
	bool context = false;
};

struct state {
	std::mutex lock;
	std::condition_variable changed;
	std::vector<device> devices;
	std::map<uintptr_t, memory> memories; /* by first byte given out */
	std::set<cudaStream_t> streams, closing;
	std::set<cudaEvent_t> events;
	std::vector<fault> faults;
	unsigned allocations = 0, faults_met = 0;
	uint64_t random;
};

static thread_local int current;
static thread_local cudaError_t last_error;
static thread_local enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
static const size_t page = 4096, device_bytes = static_cast<size_t>(8) << 30;

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *text = std::getenv(name);

	return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}

/* "name:3", "name:3+", "name:3=700", with commas between. */
static std::vector<fault> faults_of(const char *text)
{
	std::vector<fault> faults;
	char name[64];
	unsigned long call;
	int used;

	while (text && *text) {
		if (std::sscanf(text, "%63[^:]:%lu%n", name, &call, &used) != 2) {
			std::fprintf(stderr, "emulated CUDA: want CALL:NUMBER: %s\n", text);
			std::abort();
		}
		text += used;
		faults.push_back({name, call, *text == '+', cudaErrorLaunchFailure});
		text += *text == '+';
		if (*text == '=')
			faults.back().error = static_cast<int>(
				std::strtol(text + 1, const_cast<char **>(&text), 10));
		text += *text == ',';
	}
	return faults;
}

static void work();

/* Never destroyed: its thread outlives main(). */
static state &all()
{
	static state *made = [] {
		auto *fresh = new state;

		fresh->devices.resize(number("EMULATED_CUDA_DEVICES", 2));
		fresh->random = number("EMULATED_CUDA_SEED", 1) * 2 + 1;
		fresh->faults = faults_of(std::getenv("EMULATED_CUDA_FAIL"));
		return fresh;
	}();
	return *made;
}

static device &of(int index)
{
	return all().devices[static_cast<size_t>(index)];
}

/* xorshift64*: the state is never 0. */
uint64_t emulated_random(uint64_t *random)
{
	*random ^= *random >> 12;
	*random ^= *random << 25;
	*random ^= *random >> 27;
	return *random * 2685821657736338717u;
}

/* ---- errors ---- */

static int due(const char *name)
{
	for (fault &fault : all().faults) {
		if (fault.name != name || (!fault.call && !fault.on))
			continue;
		if (fault.call > 0 && --fault.call > 0)
			continue;
		all().faults_met++;
		return fault.error;
	}
	return 0;
}

static cudaError_t fail(cudaError_t error)
{
	if (error != cudaSuccess && error != cudaErrorNotReady)
		last_error = error;
	return error;
}

static cudaError_t sticky(int device)
{
	return fail(of(device).sticky);
}

/* What every call begins with. All but two need a context. */
static cudaError_t enter(const std::string &name)
{
	if (all().devices.empty())
		return cudaErrorNoDevice;
	of(current).context |= name != "cudaGetDeviceCount" && name != "cudaDeviceGetAttribute";
	cudaError_t error = static_cast<cudaError_t>(due(name.c_str()));
	if (error != cudaSuccess && name == "cudaLaunchKernel") {
		of(current).sticky = error;
		all().changed.notify_all();
	}
	return error != cudaSuccess ? error : of(current).sticky;
}

/* A call, from here on with the lock; TRY: or it returns with this error. */
#define TRY(error)                                                                                 \
	do {                                                                                       \
		const cudaError_t tried = error;                                                   \
		if (tried != cudaSuccess)                                                          \
			return fail(tried);                                                        \
	} while (0)
#define ENTER(name)                                                                                \
	std::unique_lock<std::mutex> held(all().lock);                                             \
	TRY(enter(name))
#define NEED(condition, error) TRY((condition) ? cudaSuccess : (error))

int emulated_fault_due(const char *name)
{
	std::unique_lock<std::mutex> held(all().lock);

	return due(name);
}

bool emulated_failed(int device)
{
	std::unique_lock<std::mutex> held(all().lock);

	return of(device).sticky != cudaSuccess;
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

/* ---- streams: one thread does the work of all ---- */

static void perform(std::unique_lock<std::mutex> &held, cudaStream_t stream)
{
	op &first = stream->queue.front();

	if (of(stream->device).sticky == cudaSuccess && first.run) {
		const uint64_t pause = emulated_random(&all().random);

		held.unlock();
		if (pause % 4 == 0)
			std::this_thread::sleep_for(std::chrono::microseconds(pause / 4 % 50));
		cudaError_t error = first.run();
		held.lock();
		if (of(stream->device).sticky == cudaSuccess)
			of(stream->device).sticky = error;
	}
	if (first.over)
		*first.over = true;
	stream->queue.pop_front();
	if (stream->queue.empty() && all().closing.erase(stream))
		delete stream;
	all().changed.notify_all();
}

static void find_able(const std::set<cudaStream_t> &from, std::vector<cudaStream_t> &able)
{
	for (cudaStream_t stream : from)
		if (!stream->queue.empty() &&
		    (of(stream->device).sticky != cudaSuccess || !stream->queue.front().waits ||
		     *stream->queue.front().waits))
			able.push_back(stream);
}

static void work()
{
	std::unique_lock<std::mutex> held(all().lock);

	for (;;) {
		std::vector<cudaStream_t> able;

		find_able(all().streams, able);
		find_able(all().closing, able);
		if (able.empty())
			all().changed.wait(held);
		else
			perform(held, able[emulated_random(&all().random) % able.size()]);
	}
}

static cudaStream_t create(unsigned flags)
{
	static bool works;
	cudaStream_t stream = new CUstream_st{current, flags};

	if (!works)
		std::thread(work).detach();
	works = true;
	all().streams.insert(stream);
	return stream;
}

/* Null: there is no such stream. */
static cudaStream_t known(cudaStream_t handle)
{
	if (handle)
		return all().streams.count(handle) ? handle : nullptr;
	if (!of(current).default_stream)
		of(current).default_stream = create(0);
	return of(current).default_stream;
}

#define STREAM(name, handle)                                                                       \
	ENTER(name);                                                                               \
	cudaStream_t stream = known(handle);                                                       \
	NEED(stream, cudaErrorInvalidResourceHandle)

/* While a capture is on, nothing happens. */
static cudaError_t push(cudaStream_t stream, const op &op)
{
	if (!stream->capturing)
		stream->queue.push_back(op);
	all().changed.notify_all();
	return cudaSuccess;
}

static void drain(std::unique_lock<std::mutex> &held, cudaStream_t stream)
{
	auto over = std::make_shared<bool>(stream->capturing || stream->queue.empty());

	if (!*over)
		push(stream, {{}, over});
	while (!*over)
		all().changed.wait(held);
}

static void drain_device(std::unique_lock<std::mutex> &held, int device)
{
	const std::set<cudaStream_t> streams = all().streams;

	for (cudaStream_t stream : streams)
		if (all().streams.count(stream) && (device < 0 || stream->device == device))
			drain(held, stream);
}

/* A call that is invalid during a capture: this stream's; another thread's if that is global, unless relaxed. */
static bool forbidden(cudaStream_t asked = nullptr)
{
	bool spoils = asked && asked->capturing;

	for (cudaStream_t stream : all().streams) {
		const bool own = stream->capturer == std::this_thread::get_id();

		if (!stream->capturing || stream->mode == cudaStreamCaptureModeRelaxed ||
		    thread_mode == cudaStreamCaptureModeRelaxed)
			continue;
		if (own || (stream->mode == cudaStreamCaptureModeGlobal &&
		            thread_mode == cudaStreamCaptureModeGlobal))
			stream->spoilt = spoils = true;
	}
	return spoils;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
	return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int)
{
	ENTER("cudaStreamCreateWithPriority");
	*stream = create(flags);
	return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
	STREAM("cudaStreamDestroy", handle);
	NEED(!stream->capturing && handle, cudaErrorInvalidResourceHandle);
	all().streams.erase(stream);
	all().closing.insert(stream);
	return push(stream, {});
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
	STREAM("cudaStreamSynchronize", handle);
	const int device = stream->device;

	NEED(!forbidden(stream), cudaErrorStreamCaptureUnsupported);
	drain(held, stream);
	return sticky(device);
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
	STREAM("cudaStreamQuery", handle);
	NEED(!forbidden(stream), cudaErrorStreamCaptureUnsupported);
	return stream->queue.empty() ? sticky(stream->device) : cudaErrorNotReady;
}

static cudaError_t push_aside(cudaStream_t stream, const std::function<void()> &function)
{
	auto over = std::make_shared<bool>(false);
	auto run = [=] {
		std::thread([=] {
			function();
			std::unique_lock<std::mutex> held(all().lock);
			*over = true;
			all().changed.notify_all();
		}).detach();
		return cudaSuccess;
	};

	push(stream, {run});
	return push(stream, {{}, {}, over});
}

cudaError_t emulated_aside(cudaStream_t handle, std::function<void()> function)
{
	std::unique_lock<std::mutex> held(all().lock);
	cudaStream_t stream = known(handle);

	NEED(stream, cudaErrorInvalidResourceHandle);
	return push_aside(stream, function);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void *argument)
{
	STREAM("cudaLaunchHostFunc", handle);
	return push_aside(stream, [=] { function(argument); });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
	ENTER("cudaThreadExchangeStreamCaptureMode");
	std::swap(thread_mode, *mode);
	return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status)
{
	STREAM("cudaStreamIsCapturing", handle);
	for (cudaStream_t other : all().streams)
		NEED(handle || !other->capturing || other->flags & cudaStreamNonBlocking,
		     cudaErrorStreamCaptureImplicit);
	*status = stream->capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
	return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
	STREAM("cudaStreamBeginCapture", handle);
	stream->capturing = true;
	stream->spoilt = false;
	stream->mode = mode;
	stream->capturer = std::this_thread::get_id();
	return cudaSuccess;
}

/* There are no graphs: what was captured is gone. */
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph)
{
	STREAM("cudaStreamEndCapture", handle);
	stream->capturing = false;
	*graph = nullptr;
	return stream->spoilt ? fail(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
}

cudaError_t emulated_launch(cudaStream_t handle, dim3 grid, unsigned threads,
                            std::function<void()> body)
{
	STREAM("cudaLaunchKernel", handle);
	/* As CUDA: a stream takes kernels while its device is current. */
	NEED(stream->device == current, cudaErrorInvalidResourceHandle);
	const auto error = static_cast<cudaError_t>(due("kernel"));
	const uint64_t random = emulated_random(&all().random) | 1;
	auto run = [=] {
		return error != cudaSuccess ? error
		                            : emulated_run_kernel(grid, threads, body, random);
	};
	return push(stream, {run});
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *)
{
	ENTER("cudaFuncGetAttributes");
	*attributes = {};
	return cudaSuccess;
}

/* ---- events: points in streams that others wait for ---- */

#define EVENT(name, event)                                                                         \
	ENTER(name);                                                                               \
	NEED(all().events.count(event), cudaErrorInvalidResourceHandle)

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
	ENTER("cudaEventCreateWithFlags");
	*event = new CUevent_st{current, nullptr};
	all().events.insert(*event);
	return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	EVENT("cudaEventDestroy", event);
	all().events.erase(event);
	delete event;
	return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle)
{
	EVENT("cudaEventRecord", event);
	cudaStream_t stream = known(handle);

	NEED(stream && stream->device == event->device, cudaErrorInvalidResourceHandle);
	if (!stream->capturing)
		event->over = std::make_shared<bool>(false);
	return push(stream, {{}, event->over});
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
	EVENT("cudaEventQuery", event);
	NEED(!forbidden(), cudaErrorStreamCaptureUnsupported);
	return event->over && !*event->over ? cudaErrorNotReady : sticky(event->device);
}

/* Waits for what the event stands for now, not for what is recorded later. */
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned)
{
	EVENT("cudaStreamWaitEvent", event);
	cudaStream_t stream = known(handle);

	NEED(stream, cudaErrorInvalidResourceHandle);
	NEED(!stream->capturing || !event->over, cudaErrorStreamCaptureIsolation);
	return push(stream, {{}, {}, event->over});
}

/* ---- memory ---- */

/* The allocation that holds [at, at + bytes), or null. */
static const memory *find(const void *at, size_t bytes)
{
	const uintptr_t address = reinterpret_cast<uintptr_t>(at);
	auto next = all().memories.upper_bound(address);

	if (next == all().memories.begin())
		return nullptr;
	--next;
	const uintptr_t offset = address - next->first;
	bool inside = offset < next->second.bytes && bytes <= next->second.bytes - offset;
	return inside ? &next->second : nullptr;
}

/* Its end touches a page out of bounds as closely as CUDA's alignment of 256 bytes allows. */
static cudaError_t allocate(void **given, size_t bytes, bool pinned)
{
	const size_t rounded = (bytes + 255) / 256 * 256, mapped = (bytes + page - 1) / page * page;

	*given = nullptr;
	NEED(!forbidden(), cudaErrorStreamCaptureUnsupported);
	if (!bytes)
		return cudaSuccess;
	NEED(bytes <= device_bytes, cudaErrorMemoryAllocation);
	void *guarded = mmap(nullptr, mapped + page, PROT_NONE,
	                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	NEED(guarded != MAP_FAILED, cudaErrorMemoryAllocation);
	char *map = static_cast<char *>(guarded);
	mprotect(map, mapped, PROT_READ | PROT_WRITE);
	std::memset(map, 0xa5, mapped);
	*given = map + mapped - rounded;
	all().memories[reinterpret_cast<uintptr_t>(*given)] = {current, pinned, bytes, mapped, map};
	all().allocations++;
	return cudaSuccess;
}

/* As in CUDA it waits for the device. The pages stay out of bounds, so that nobody gets them. */
static cudaError_t release(std::unique_lock<std::mutex> &held, void *given, bool pinned)
{
	NEED(!forbidden(), cudaErrorStreamCaptureUnsupported);
	if (!given)
		return cudaSuccess;
	drain_device(held, pinned ? -1 : current);
	auto found = all().memories.find(reinterpret_cast<uintptr_t>(given));
	NEED(found != all().memories.end() && found->second.pinned == pinned,
	     cudaErrorInvalidValue);
	mmap(found->second.map, found->second.mapped, PROT_NONE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	all().memories.erase(found);
	return cudaSuccess;
}

cudaError_t cudaMalloc(void **given, size_t bytes)
{
	ENTER("cudaMalloc");
	return allocate(given, bytes, false);
}

cudaError_t cudaFree(void *given)
{
	ENTER("cudaFree");
	return release(held, given, false);
}

cudaError_t cudaHostAlloc(void **given, size_t bytes, unsigned)
{
	ENTER("cudaHostAlloc");
	return allocate(given, bytes, true);
}

cudaError_t cudaFreeHost(void *given)
{
	ENTER("cudaFreeHost");
	return release(held, given, true);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
	ENTER("cudaMemGetInfo");
	*free_bytes = *total = device_bytes;
	return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *at)
{
	ENTER("cudaPointerGetAttributes");
	const memory *found = find(at, 1);

	*attributes = {};
	attributes->device = found ? found->device : -2;
	if (found)
		attributes->type = found->pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
	return cudaSuccess;
}

static cudaError_t copy(std::unique_lock<std::mutex> &held, void *dst, const void *src,
                        size_t bytes, cudaStream_t stream, bool wait)
{
	const int device = stream->device;
	const memory *to = find(dst, 1), *from = find(src, 1);

	if (!bytes)
		return cudaSuccess;
	/* It begins in an allocation and does not end there. */
	NEED((!to || find(dst, bytes)) && (!from || find(src, bytes)), cudaErrorInvalidValue);
	/* As CUDA: what is not pinned is read at once, and written before the call returns. */
	std::shared_ptr<std::vector<char>> staged;
	if (!from) {
		const char *data = static_cast<const char *>(src);
		staged = std::make_shared<std::vector<char>>(data, data + bytes);
	}
	auto run = [=] {
		std::memmove(dst, staged ? staged->data() : src, bytes);
		return cudaSuccess;
	};
	push(stream, {run});
	if (wait || !to)
		drain(held, stream);
	return sticky(device);
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind)
{
	STREAM("cudaMemcpy", nullptr);
	return copy(held, dst, src, bytes, stream, true);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind,
                            cudaStream_t handle)
{
	STREAM("cudaMemcpyAsync", handle);
	return copy(held, dst, src, bytes, stream, false);
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t handle)
{
	STREAM("cudaMemsetAsync", handle);
	NEED(!bytes || find(at, bytes), cudaErrorInvalidValue);
	auto run = [=] {
		std::memset(at, value, bytes);
		return cudaSuccess;
	};
	return push(stream, {run});
}

cudaError_t cudaMemset(void *at, int value, size_t bytes)
{
	TRY(cudaMemsetAsync(at, value, bytes, nullptr));
	return cudaStreamSynchronize(nullptr);
}

/* ---- devices ---- */

static bool is_device(int device)
{
	return device >= 0 && static_cast<size_t>(device) < all().devices.size();
}

cudaError_t cudaGetDeviceCount(int *count)
{
	*count = 0;
	ENTER("cudaGetDeviceCount");
	*count = static_cast<int>(all().devices.size());
	return cudaSuccess;
}

/* Not by ENTER: a thread may leave a device that has failed. */
cudaError_t cudaSetDevice(int device)
{
	std::unique_lock<std::mutex> held(all().lock);

	NEED(!all().devices.empty(), cudaErrorNoDevice);
	TRY(static_cast<cudaError_t>(due("cudaSetDevice")));
	NEED(is_device(device), cudaErrorInvalidDevice);
	current = device;
	of(device).context = true;
	return sticky(device);
}

cudaError_t cudaGetDevice(int *device)
{
	NEED(!all().devices.empty(), cudaErrorNoDevice);
	*device = current;
	return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr, int device)
{
	ENTER("cudaDeviceGetAttribute");
	NEED(is_device(device), cudaErrorInvalidDevice);
	*value = 4; /* multiprocessors */
	return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	ENTER("cudaDeviceGetStreamPriorityRange");
	*least = 0;
	*greatest = -5;
	return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
	ENTER("cudaDeviceSynchronize");
	NEED(!forbidden(), cudaErrorStreamCaptureUnsupported);
	drain_device(held, current);
	return sticky(current);
}

cudaError_t cudaDriverGetVersion(int *version)
{
	*version = CUDART_VERSION;
	return cudaSuccess;
}

/* ---- for tests ---- */

void emulated_cuda_fail(const char *faults)
{
	std::unique_lock<std::mutex> held(all().lock);

	all().faults = faults_of(faults);
}

void emulated_cuda_reset(void)
{
	std::unique_lock<std::mutex> held(all().lock);

	drain_device(held, -1);
	all().faults.clear();
	for (device &device : all().devices)
		device.sticky = cudaSuccess;
	last_error = cudaSuccess;
}

unsigned emulated_cuda_allocations(void)
{
	return all().allocations;
}

unsigned emulated_cuda_faults(void)
{
	return all().faults_met;
}

int emulated_cuda_has_context(int device)
{
	return of(device).context;
}
