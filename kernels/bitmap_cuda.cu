// SPDX-License-Identifier: BSD-3-Clause
/* bitmap_cuda.cu - the table; the functions are in cuda_scan.cu, cuda_rank.cu and cuda_copy.cu */

#include "kernels/bitmap_cuda.h"
#include "kernels/cuda_impl.h"

static int cuda_load()
{
	cudaError_t error = cuda_scan_load();

	if (error == cudaSuccess)
		error = cuda_rank_load();
	return error != cudaSuccess ? error : cuda_copy_load();
}

extern "C" const struct bitmap_cuda bitmap_cuda_kernels = {cuda_load, cuda_scan, cuda_rank,
                                                           cuda_pack, cuda_unpack};
