// SPDX-License-Identifier: BSD-3-Clause
/* gpu_slot.c - see gpu.h: staging memory, and what the GPU does between it and a tensor */

#include <stdio.h>
#include <string.h>

#include "kernels/gpu_impl.h"

#define ALIGN_BYTES 256

void gpu_slot_close(struct gpu_slot *slot)
{
	struct gpu *gpu = slot->gpu;
	char why[GPU_WHY_BYTES];
	struct gpu_visit before;

	gpu_signal_close(&slot->scanned);
	gpu_signal_close(&slot->emptied);
	if (gpu == NULL || gpu_enter(gpu, &before, why) != 0)
		return;
	if (slot->mark != NULL)
		(void)cudaEventDestroy(slot->mark);
	(void)cudaFreeHost(slot->pinned);
	(void)cudaFree(slot->device);
	(void)cudaGetLastError();
	gpu_leave(gpu, &before);
	*slot = (struct gpu_slot){0};
}

/* Room for so many bytes at the end of what has been counted so far. */
static size_t place(size_t *total, size_t bytes)
{
	size_t at = *total;

	*total = at + (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
	return at;
}

int gpu_slot_open(struct gpu *gpu, const struct gpu_slot_size *size, struct gpu_slot *slot,
                  char *why)
{
	size_t words = (size_t)(size->blocks / 64 + 1), pinned_bytes = 0, device_bytes = 0;
	size_t plans_bytes = (size_t)size->plan_count * GPU_PLAN_BYTES, sums_at, packed_at;
	size_t plans_at, ranks_at, scratch_at;
	struct gpu_visit before;
	int err = gpu_enter(gpu, &before, why);

	if (err != 0)
		return err;
	slot->gpu = gpu;
	(void)place(&pinned_bytes, (1 + words) * sizeof(uint64_t));
	plans_at = place(&pinned_bytes, plans_bytes);
	sums_at = place(&pinned_bytes, size->bytes);
	packed_at = place(&pinned_bytes, size->bytes);
	(void)place(&device_bytes, (1 + words) * sizeof(uint64_t));
	slot->plans_at = place(&device_bytes, plans_bytes);
	ranks_at = place(&device_bytes, (words + 1) * sizeof(uint32_t));
	scratch_at = place(&device_bytes, bitmap_cuda_rank_scratch(words));

	TRY(gpu, err, "cudaHostAlloc",
	    cudaHostAlloc(&slot->pinned, pinned_bytes,
	                  cudaHostAllocPortable | cudaHostAllocMapped));
	TRY(gpu, err, "cudaMalloc", cudaMalloc(&slot->device, device_bytes));
	if (err == 0)
		err = gpu_event(gpu, &slot->mark, why);
	if (err == 0)
		err = gpu_signal_open(gpu, &slot->scanned, why);
	if (err == 0)
		err = gpu_signal_open(gpu, &slot->emptied, why);
	gpu_leave(gpu, &before);
	if (err != 0) {
		gpu_slot_close(slot);
		return err;
	}
	slot->magnitude = slot->pinned;
	slot->bits = slot->magnitude + 1;
	slot->plans = (uint8_t *)slot->pinned + plans_at;
	slot->sums = (uint8_t *)slot->pinned + sums_at;
	slot->packed = (uint8_t *)slot->pinned + packed_at;
	slot->ranks = (void *)((uint8_t *)slot->device + ranks_at);
	slot->scratch = (uint8_t *)slot->device + scratch_at;
	return 0;
}

int gpu_scan(struct gpu_slot *slot, const struct bitmap_tensor *tensor, bool magnitude, char *why)
{
	static const struct bitmap_cuda_form as_it_is = {.divisor = 1, .ctas_max = GPU_BUS_CTAS};
	const struct bitmap_cuda *kernels = &bitmap_cuda_kernels;
	struct gpu *gpu = slot->gpu;
	uint64_t blocks = bitmap_block_count(tensor->count, tensor->block_elems);
	uint64_t *found = slot->device; /* as in pinned memory: the magnitude, then the bits */
	int err = gpu_use(gpu, why);

	if (blocks > 0) {
		TRY(gpu, err, "cudaLaunchKernel",
		    kernels->scan(tensor, found + 1, magnitude ? found : NULL, gpu->out));
		TRY(gpu, err, "cudaLaunchKernel",
		    kernels->rank(found + 1, blocks, slot->ranks, slot->scratch, gpu->out));
		TRY(gpu, err, "cudaLaunchKernel",
		    kernels->pack(tensor, found + 1, slot->ranks, &as_it_is, slot->packed,
		                  gpu->out));
		TRY(gpu, err, "cudaMemcpyAsync",
		    cudaMemcpyAsync(slot->magnitude, found,
		                    (1 + bitmap_word_count(blocks)) * sizeof(*found),
		                    cudaMemcpyDeviceToHost, gpu->out));
	}
	if (err == 0)
		err = gpu_tell(gpu, gpu->out, slot->mark, &slot->scanned, why);
	return gpu_done(gpu, err);
}

int gpu_unpack(struct gpu_slot *slot, const struct gpu_unpack *what, char *why)
{
	struct gpu *gpu = slot->gpu;
	uint64_t words = bitmap_word_count(what->deal.index_count);
	size_t at = (size_t)what->plan * GPU_PLAN_BYTES;
	uint8_t *plan = (uint8_t *)slot->device + slot->plans_at + at;
	struct bitmap_cuda_form form = what->form;
	int err = gpu_use(gpu, why);

	form.ctas_max = GPU_BUS_CTAS;

	TRY(gpu, err, "cudaMemcpyAsync",
	    cudaMemcpyAsync(plan, slot->plans + at, words * 8 + (words + 1) * 4,
	                    cudaMemcpyHostToDevice, gpu->in));
	TRY(gpu, err, "cudaLaunchKernel",
	    bitmap_cuda_kernels.unpack(&what->shape, &what->deal, (const uint64_t *)(void *)plan,
	                               (const uint32_t *)(void *)(plan + words * 8), what->sums,
	                               &form, what->clear_others, what->recv, gpu->in));
	return gpu_done(gpu, err);
}

int gpu_empty(struct gpu_slot *slot, char *why)
{
	struct gpu *gpu = slot->gpu;
	int err = gpu_use(gpu, why);

	if (err == 0)
		err = gpu_tell(gpu, gpu->in, slot->mark, &slot->emptied, why);
	return gpu_done(gpu, err);
}
