/* SPDX-License-Identifier: BSD-3-Clause */
/* cuda_call.h - chains of CUDA's calls: the first that fails is the one that is explained */
#ifndef KERNELS_CUDA_CALL_H
#define KERNELS_CUDA_CALL_H

#include <cuda_runtime_api.h>
#include <errno.h>

#include "bitmap/why.h"

/* -EIO. `device` below 0: of none. */
static inline int cuda_failed(struct why *why, const char *call, int device, cudaError_t err)
{
	(void)cudaGetLastError(); /* it is ours: the caller's next check must not find it */
	if (device < 0)
		return why_set(why, -EIO, "%s: %s", call, cudaGetErrorString(err));
	return why_set(why, -EIO, "%s on GPU %d: %s", call, device, cudaGetErrorString(err));
}

/* Where `err` is 0: `value` into it, as -EIO, and `why`, under this name. */
#define TRY_CUDA_AS(err, device, name, value)                                                      \
	do {                                                                                       \
		cudaError_t tried_ = (err) == 0 ? (cudaError_t)(value) : cudaSuccess;              \
		if (tried_ != cudaSuccess)                                                         \
			(err) = cuda_failed(why, name, device, tried_);                            \
	} while (0)

#define TRY_CUDA(err, device, call, arguments) TRY_CUDA_AS(err, device, #call, call arguments)

#endif /* KERNELS_CUDA_CALL_H */
