/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emulated_memory.cc - memory of devices and of the host, and copies between them
 *
 * Every allocation lies between two pages that stay out of bounds, its end flush with the last
 * one as far as 256-byte alignment, CUDA's own, allows.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#include "tests/gpu/emulated/emulated_impl.h"

static const size_t page_bytes = 4096, align_bytes = 256;

emulated_memory *emulated_find(const void *at, size_t bytes)
{
	auto &memory = emulated().memory;
	uintptr_t address = reinterpret_cast<uintptr_t>(at);
	auto next = memory.upper_bound(address);

	if (next == memory.begin())
		return nullptr;
	--next;
	uintptr_t offset = address - next->first;
	/* One past the end belongs to nobody, unless nothing is asked for. */
	bool inside = offset < next->second.bytes && bytes <= next->second.bytes - offset;
	return inside || (!bytes && offset <= next->second.bytes) ? &next->second : nullptr;
}

void emulated_touch(int device, bool open)
{
	emulated_state &state = emulated();

	for (int each = 0; each < static_cast<int>(state.devices.size()); each++) {
		emulated_device &owner = state.devices[static_cast<size_t>(each)];

		if (device >= 0 && each != device)
			continue;
		if (open ? owner.touching++ : --owner.touching)
			continue;
		for (auto &entry : state.memory)
			if (entry.second.device == each)
				mprotect(entry.second.map, entry.second.mapped,
				         open ? PROT_READ | PROT_WRITE : PROT_NONE);
	}
}

static cudaError_t allocate(void **memory, size_t bytes, bool on_device)
{
	emulated_state &state = emulated();
	emulated_memory made = {};

	made.device = on_device ? emulated_current : -1;
	made.owner = emulated_current;
	made.bytes = bytes;
	made.mapped = (bytes + page_bytes - 1) / page_bytes * page_bytes;
	/* More than the device says it has, or nonsense. */
	if (bytes > static_cast<size_t>(8) << 30)
		return emulated_fail(cudaErrorMemoryAllocation);
	void *map = mmap(nullptr, made.mapped + 2 * page_bytes, PROT_NONE,
	                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		return emulated_fail(cudaErrorMemoryAllocation);
	made.map = static_cast<char *>(map) + page_bytes;
	mprotect(made.map, made.mapped, PROT_READ | PROT_WRITE);
	std::memset(made.map, 0xa5, made.mapped);

	size_t rounded = (bytes + align_bytes - 1) / align_bytes * align_bytes;
	char *given = made.map + made.mapped - rounded;
	std::unique_lock<std::mutex> held(state.lock);
	if (on_device && !state.devices[static_cast<size_t>(emulated_current)].touching)
		mprotect(made.map, made.mapped, PROT_NONE);
	state.memory[reinterpret_cast<uintptr_t>(given)] = made;
	state.stats.allocations++;
	*memory = given;
	return cudaSuccess;
}

/* Nobody wrote between the allocation and its guards. */
static void check_slack(uintptr_t given, const emulated_memory &memory)
{
	const char *data = reinterpret_cast<const char *>(given);

	mprotect(memory.map, memory.mapped, PROT_READ | PROT_WRITE);
	for (const char *at = memory.map; at < memory.map + memory.mapped; at++) {
		if (at == data)
			at += memory.bytes;
		if (at < memory.map + memory.mapped && *at != static_cast<char>(0xa5)) {
			std::fprintf(stderr,
			             "emulated CUDA: somebody wrote %td bytes from the start of an "
			             "allocation of %zu\n",
			             at - data, memory.bytes);
			std::abort();
		}
	}
}

/* As in CUDA it waits for the device. The pages stay out of bounds, so that nobody gets them. */
static cudaError_t release(void *memory, bool on_device)
{
	emulated_state &state = emulated();
	std::unique_lock<std::mutex> held(state.lock);
	auto found = state.memory.find(reinterpret_cast<uintptr_t>(memory));

	if (!memory)
		return cudaSuccess;
	if (found == state.memory.end() || !found->second.map ||
	    (found->second.device >= 0) != on_device)
		return emulated_fail(cudaErrorInvalidValue);
	emulated_alone alone(held, on_device ? found->second.device : -1);
	emulated_drain_device(held, on_device ? found->second.device : -1);
	found = state.memory.find(reinterpret_cast<uintptr_t>(memory));
	if (found == state.memory.end())
		return emulated_fail(cudaErrorInvalidValue);
	check_slack(found->first, found->second);
	mmap(found->second.map, found->second.mapped, PROT_NONE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	state.memory.erase(found);
	return cudaSuccess;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
	EMULATED_ENTER("cudaMalloc");
	EMULATED_UNSAFE();
	*memory = nullptr;
	return bytes ? allocate(memory, bytes, true) : cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
	EMULATED_ENTER("cudaFree");
	EMULATED_UNSAFE();
	return release(memory, true);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
	EMULATED_ENTER("cudaMemGetInfo");
	std::unique_lock<std::mutex> held(emulated().lock);
	size_t used = 0;

	for (const auto &entry : emulated().memory)
		used += entry.second.device == emulated_current ? entry.second.mapped : 0;
	*total = static_cast<size_t>(8) << 30;
	*free_bytes = used < *total ? *total - used : 0;
	return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
	(void)flags;
	EMULATED_ENTER("cudaHostAlloc");
	EMULATED_UNSAFE();
	*memory = nullptr;
	return bytes ? allocate(memory, bytes, false) : cudaSuccess;
}

cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
	return cudaHostAlloc(memory, bytes, 0);
}

cudaError_t cudaFreeHost(void *memory)
{
	EMULATED_ENTER("cudaFreeHost");
	EMULATED_UNSAFE();
	return release(memory, false);
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags)
{
	(void)flags;
	EMULATED_ENTER("cudaHostRegister");
	EMULATED_UNSAFE();
	std::unique_lock<std::mutex> held(emulated().lock);

	if (!memory || !bytes)
		return emulated_fail(cudaErrorInvalidValue);
	if (emulated_find(memory, 1))
		return emulated_fail(cudaErrorHostMemoryAlreadyRegistered);
	emulated_memory made = {};
	made.device = -1;
	made.owner = emulated_current;
	made.bytes = bytes;
	emulated().memory[reinterpret_cast<uintptr_t>(memory)] = made;
	return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory)
{
	EMULATED_ENTER("cudaHostUnregister");
	EMULATED_UNSAFE();
	std::unique_lock<std::mutex> held(emulated().lock);
	auto found = emulated().memory.find(reinterpret_cast<uintptr_t>(memory));

	if (found == emulated().memory.end() || found->second.map)
		return emulated_fail(cudaErrorHostMemoryNotRegistered);
	emulated_alone alone(held, -1);
	emulated_drain_device(held, -1);
	emulated().memory.erase(reinterpret_cast<uintptr_t>(memory));
	return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **device_memory, void *memory, unsigned flags)
{
	(void)flags;
	EMULATED_ENTER("cudaHostGetDevicePointer");
	std::unique_lock<std::mutex> held(emulated().lock);
	emulated_memory *found = emulated_find(memory, 1);

	if (!found || found->device >= 0)
		return emulated_fail(cudaErrorInvalidValue);
	*device_memory = memory;
	return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *memory)
{
	EMULATED_ENTER("cudaPointerGetAttributes");
	std::unique_lock<std::mutex> held(emulated().lock);
	emulated_memory *found = emulated_find(memory, 1);
	void *pointer = const_cast<void *>(memory);

	*attributes = {};
	attributes->device = -2;
	if (!found)
		return cudaSuccess;
	attributes->type = found->device >= 0 ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
	attributes->device = found->owner;
	attributes->devicePointer = pointer;
	attributes->hostPointer = found->device >= 0 ? nullptr : pointer;
	return cudaSuccess;
}

/* What a copy is by where its ends lie; the caller's word for it has to agree. Lock held. */
static cudaError_t direction(const void *dst, const void *src, size_t bytes,
                             enum cudaMemcpyKind *kind)
{
	emulated_memory *to = emulated_find(dst, bytes), *from = emulated_find(src, bytes);
	bool to_device = to && to->device >= 0, from_device = from && from->device >= 0;
	int found = (from_device ? 2 : 0) + (to_device ? 1 : 0);

	/* It begins in an allocation and does not end there. */
	if ((!to && emulated_find(dst, 1)) || (!from && emulated_find(src, 1)))
		return cudaErrorInvalidValue;
	if (*kind != cudaMemcpyDefault && *kind != static_cast<enum cudaMemcpyKind>(found))
		return cudaErrorInvalidValue;
	*kind = static_cast<enum cudaMemcpyKind>(found);
	return cudaSuccess;
}

static void count_copy(enum cudaMemcpyKind kind, size_t bytes)
{
	struct emulated_cuda_counts &stats = emulated().stats;

	stats.copies++;
	stats.to_device_bytes += kind == cudaMemcpyHostToDevice ? bytes : 0;
	stats.to_host_bytes += kind == cudaMemcpyDeviceToHost ? bytes : 0;
	stats.device_bytes += kind == cudaMemcpyDeviceToDevice ? bytes : 0;
}

static cudaError_t copy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                        cudaStream_t handle, bool wait)
{
	std::unique_lock<std::mutex> held(emulated().lock);
	CUstream_st *stream = emulated_stream(handle);
	cudaError_t err =
		stream ? direction(dst, src, bytes, &kind) : cudaErrorInvalidResourceHandle;

	if (err != cudaSuccess || !bytes)
		return emulated_fail(err);
	if (stream->capturing && wait)
		return emulated_fail(cudaErrorStreamCaptureUnsupported);
	/* As CUDA: what is not pinned is read at once, and written before the call returns. */
	std::shared_ptr<std::vector<char>> staged;
	if (kind == cudaMemcpyHostToDevice && !emulated_find(src, bytes)) {
		const char *from = static_cast<const char *>(src);
		staged = std::make_shared<std::vector<char>>(from, from + bytes);
	}
	bool pageable = kind == cudaMemcpyDeviceToHost && !emulated_find(dst, bytes);
	wait |= pageable || kind == cudaMemcpyHostToHost;

	emulated_op op;
	op.touches = EMULATED_TOUCH_ALL;
	op.run = [=] {
		std::memmove(dst, staged ? staged->data() : src, bytes);
		return cudaSuccess;
	};
	op.finish = [=] { count_copy(kind, bytes); };
	emulated_push(stream, op);
	if (wait && !stream->capturing && pageable) {
		emulated_alone alone(held, stream->device);
		emulated_drain(held, stream);
	} else if (wait && !stream->capturing) {
		emulated_drain(held, stream);
	}
	return emulated_fail(emulated().devices[static_cast<size_t>(stream->device)].sticky);
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
	EMULATED_ENTER("cudaMemcpy");
	EMULATED_UNSAFE();
	return copy(dst, src, bytes, kind, nullptr, true);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
	EMULATED_ENTER("cudaMemcpyAsync");
	return copy(dst, src, bytes, kind, stream, false);
}

cudaError_t cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device,
                                size_t bytes, cudaStream_t stream)
{
	EMULATED_ENTER("cudaMemcpyPeerAsync");
	{
		std::unique_lock<std::mutex> held(emulated().lock);
		emulated_memory *to = emulated_find(dst, bytes), *from = emulated_find(src, bytes);

		if (!to || !from || to->device != dst_device || from->device != src_device)
			return emulated_fail(cudaErrorInvalidValue);
	}
	return copy(dst, src, bytes, cudaMemcpyDefault, stream, false);
}

static cudaError_t set(void *memory, int value, size_t bytes, cudaStream_t handle, bool wait)
{
	std::unique_lock<std::mutex> held(emulated().lock);
	CUstream_st *stream = emulated_stream(handle);

	if (!stream)
		return emulated_fail(cudaErrorInvalidResourceHandle);
	if (!emulated_find(memory, bytes))
		return emulated_fail(cudaErrorInvalidValue);
	emulated_op op;
	op.touches = EMULATED_TOUCH_ALL;
	op.run = [=] {
		std::memset(memory, value, bytes);
		return cudaSuccess;
	};
	emulated_push(stream, op);
	if (wait)
		emulated_drain(held, stream);
	return cudaSuccess;
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
	EMULATED_ENTER("cudaMemset");
	EMULATED_UNSAFE();
	return set(memory, value, bytes, nullptr, true);
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
	EMULATED_ENTER("cudaMemsetAsync");
	return set(memory, value, bytes, stream, false);
}
