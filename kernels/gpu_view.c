// SPDX-License-Identifier: BSD-3-Clause
/* gpu_view.c - see gpu.h: the bitmap of a whole tensor, for somebody who wants to look at it */

#include <stdio.h>

#include "kernels/gpu_impl.h"

void gpu_view_close(struct gpu_view *view)
{
	struct gpu *gpu = view->gpu;
	char why[GPU_WHY_BYTES];
	struct gpu_visit before;

	gpu_signal_close(&view->done);
	if (gpu == NULL || gpu_enter(gpu, &before, why) != 0)
		return;
	if (view->mark != NULL)
		(void)cudaEventDestroy(view->mark);
	(void)cudaFreeHost(view->bits);
	(void)cudaFree(view->device);
	(void)cudaGetLastError();
	gpu_leave(gpu, &before);
	*view = (struct gpu_view){0};
}

int gpu_view_open(struct gpu *gpu, uint64_t words, struct gpu_view *view, char *why)
{
	size_t bytes = (size_t)words * sizeof(*view->bits);
	struct gpu_visit before;
	int err = gpu_enter(gpu, &before, why);

	if (err != 0)
		return err;
	view->gpu = gpu;
	TRY(gpu, err, "cudaHostAlloc",
	    cudaHostAlloc((void **)&view->bits, bytes, cudaHostAllocPortable));
	TRY(gpu, err, "cudaMalloc", cudaMalloc(&view->device, bytes));
	if (err == 0)
		err = gpu_event(gpu, &view->mark, why);
	if (err == 0)
		err = gpu_signal_open(gpu, &view->done, why);
	gpu_leave(gpu, &before);
	if (err != 0)
		gpu_view_close(view);
	return err;
}

int gpu_view(struct gpu_view *view, const struct bitmap_tensor *tensor, char *why)
{
	struct gpu *gpu = view->gpu;
	uint64_t words = bitmap_word_count(bitmap_block_count(tensor->count, tensor->block_elems));
	int err = gpu_use(gpu, why);

	TRY(gpu, err, "cudaLaunchKernel",
	    bitmap_cuda_kernels.scan(tensor, view->device, NULL, gpu->out));
	TRY(gpu, err, "cudaMemcpyAsync",
	    cudaMemcpyAsync(view->bits, view->device, words * sizeof(*view->bits),
	                    cudaMemcpyDeviceToHost, gpu->out));
	if (err == 0)
		err = gpu_tell(gpu, gpu->out, view->mark, &view->done, why);
	return gpu_done(gpu, err);
}
