/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emulated_memory.cc - memory of devices and of the host, and copies between them
 *
 * Every allocation lies between two inaccessible guard pages. Its end touches the second one as
 * closely as CUDA's alignment of 256 bytes allows.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#include "tests/gpu/emulated/emulated_impl.h"

static const size_t page_bytes = 4096, align_bytes = 256,
		    device_bytes = static_cast<size_t>(8) << 30;

/* The allocation that holds [at, at + bytes), or null. Lock held. */
static emulated_memory *find(const void *at, size_t bytes)
{
	auto &memory = emulated().memory;
	uintptr_t address = reinterpret_cast<uintptr_t>(at);
	auto next = memory.upper_bound(address);

	if (next == memory.begin())
		return nullptr;
	--next;
	uintptr_t offset = address - next->first;
	bool inside = offset < next->second.bytes && bytes <= next->second.bytes - offset;
	return inside ? &next->second : nullptr;
}

void emulated_touch(int device, bool open)
{
	emulated_state &state = emulated();

	for (int each = 0; each < static_cast<int>(state.devices.size()); each++) {
		emulated_device &owner = emulated_device_of(each);

		if (device != EMULATED_TOUCH_ALL && each != device)
			continue;
		if (open ? owner.touching++ : --owner.touching)
			continue;
		for (auto &entry : state.memory)
			if (entry.second.device == each)
				mprotect(entry.second.map, entry.second.mapped,
				         open ? PROT_READ | PROT_WRITE : PROT_NONE);
	}
}

/* Lock held. */
static cudaError_t allocate(void **memory, size_t bytes, bool on_device)
{
	const size_t mapped = (bytes + page_bytes - 1) / page_bytes * page_bytes;
	const size_t rounded = (bytes + align_bytes - 1) / align_bytes * align_bytes;

	EMULATED_UNSAFE();
	*memory = nullptr;
	if (!bytes)
		return cudaSuccess;
	/* More than the device says it has, or nonsense. */
	if (bytes > device_bytes)
		return emulated_fail(cudaErrorMemoryAllocation);
	void *guarded = mmap(nullptr, mapped + 2 * page_bytes, PROT_NONE,
	                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (guarded == MAP_FAILED)
		return emulated_fail(cudaErrorMemoryAllocation);
	char *map = static_cast<char *>(guarded) + page_bytes, *given = map + mapped - rounded;
	mprotect(map, mapped, PROT_READ | PROT_WRITE);
	std::memset(map, 0xa5, mapped);
	if (on_device && !emulated_device_of(emulated_current).touching)
		mprotect(map, mapped, PROT_NONE);
	emulated().memory[reinterpret_cast<uintptr_t>(given)] = {
		on_device ? emulated_current : -1, bytes, mapped, map, emulated_current};
	emulated().allocations++;
	*memory = given;
	return cudaSuccess;
}

/* Nobody wrote between the allocation and its guards. */
static void check_slack(uintptr_t given, const emulated_memory &memory)
{
	const char *data = reinterpret_cast<const char *>(given);

	mprotect(memory.map, memory.mapped, PROT_READ | PROT_WRITE);
	for (const char *at = memory.map; at < memory.map + memory.mapped; at++)
		if ((at < data || at >= data + memory.bytes) && *at != static_cast<char>(0xa5)) {
			std::fprintf(stderr,
			             "emulated CUDA: somebody wrote %td bytes from the start of an "
			             "allocation of %zu\n",
			             at - data, memory.bytes);
			std::abort();
		}
}

/* As in CUDA it waits for the device. The pages stay out of bounds, so that nobody gets them. */
static cudaError_t release(std::unique_lock<std::mutex> &held, void *memory, bool on_device)
{
	auto &all = emulated().memory;
	auto found = all.find(reinterpret_cast<uintptr_t>(memory));

	EMULATED_UNSAFE();
	if (!memory)
		return cudaSuccess;
	if (found == all.end() || (found->second.device >= 0) != on_device)
		return emulated_fail(cudaErrorInvalidValue);
	emulated_drain_device(held, found->second.device);
	found = all.find(reinterpret_cast<uintptr_t>(memory));
	if (found == all.end())
		return emulated_fail(cudaErrorInvalidValue);
	check_slack(found->first, found->second);
	mmap(found->second.map, found->second.mapped, PROT_NONE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	all.erase(found);
	return cudaSuccess;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
	EMULATED_LOCKED("cudaMalloc");
	return allocate(memory, bytes, true);
}

cudaError_t cudaFree(void *memory)
{
	EMULATED_LOCKED("cudaFree");
	return release(held, memory, true);
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned)
{
	EMULATED_LOCKED("cudaHostAlloc");
	return allocate(memory, bytes, false);
}

cudaError_t cudaFreeHost(void *memory)
{
	EMULATED_LOCKED("cudaFreeHost");
	return release(held, memory, false);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
	EMULATED_LOCKED("cudaMemGetInfo");
	size_t used = 0;

	for (const auto &entry : emulated().memory)
		used += entry.second.device == emulated_current ? entry.second.mapped : 0;
	*total = device_bytes;
	*free_bytes = used < *total ? *total - used : 0;
	return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *memory)
{
	EMULATED_LOCKED("cudaPointerGetAttributes");
	emulated_memory *found = find(memory, 1);

	*attributes = {};
	attributes->device = found ? found->owner : -2;
	if (found)
		attributes->type = found->device >= 0 ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
	return cudaSuccess;
}

static cudaError_t copy(void *dst, const void *src, size_t bytes, cudaStream_t handle, bool wait)
{
	std::unique_lock<std::mutex> held(emulated().lock);
	CUstream_st *stream = emulated_stream(handle);

	if (!stream)
		return emulated_fail(cudaErrorInvalidResourceHandle);
	if (!bytes)
		return cudaSuccess;
	const emulated_memory *to = find(dst, 1), *from = find(src, 1);
	/* It begins in an allocation and does not end there. */
	if ((to && !find(dst, bytes)) || (from && !find(src, bytes)))
		return emulated_fail(cudaErrorInvalidValue);
	/* As CUDA: what is not pinned is read at once, and written before the call returns. */
	std::shared_ptr<std::vector<char>> staged;
	if (!from) {
		const char *data = static_cast<const char *>(src);
		staged = std::make_shared<std::vector<char>>(data, data + bytes);
	}
	wait |= !to || (to->device < 0 && (!from || from->device < 0));
	int device = stream->device;
	emulated_push(stream, {EMULATED_TOUCH_ALL, [=] {
				       std::memmove(dst, staged ? staged->data() : src, bytes);
				       return cudaSuccess;
			       }});
	if (wait && !stream->capturing)
		emulated_drain(held, stream);
	return emulated_sticky(device);
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind)
{
	EMULATED_ENTER("cudaMemcpy");
	return copy(dst, src, bytes, nullptr, true);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind,
                            cudaStream_t stream)
{
	EMULATED_ENTER("cudaMemcpyAsync");
	return copy(dst, src, bytes, stream, false);
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t handle)
{
	EMULATED_STREAM("cudaMemsetAsync", handle, stream);
	if (bytes && !find(memory, bytes))
		return emulated_fail(cudaErrorInvalidValue);
	return emulated_push(stream, {EMULATED_TOUCH_ALL, [=] {
					      std::memset(memory, value, bytes);
					      return cudaSuccess;
				      }});
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
	cudaError_t err = cudaMemsetAsync(memory, value, bytes, nullptr);

	return err != cudaSuccess ? err : cudaStreamSynchronize(nullptr);
}
