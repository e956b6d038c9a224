// SPDX-License-Identifier: BSD-3-Clause
/* bitmap_cuda.cu - the table; the functions are in cuda_scan.cu, cuda_rank.cu and cuda_copy.cu */

#include "kernels/bitmap_cuda.h"
#include "kernels/cuda_impl.h"

extern "C" const struct bitmap_cuda bitmap_cuda_kernels = {cuda_scan, cuda_rank, cuda_pack,
                                                           cuda_unpack};
