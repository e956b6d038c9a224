/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nccl_library.h - NCCL's functions, loaded at run time, and error texts for their failures
 */
#ifndef KERNELS_NCCL_LIBRARY_H
#define KERNELS_NCCL_LIBRARY_H

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "kernels/cuda_call.h"
#include "kernels/node.h"

#define NCCL_CALLS(x)                                                                              \
	x(GetVersion) x(GetUniqueId) x(GetErrorString) x(CommInitRankConfig) x(CommFinalize)       \
		x(CommDestroy) x(CommAbort) x(CommGetAsyncError) x(ReduceScatter) x(Reduce)        \
			x(AllGather) x(Broadcast) x(GroupStart) x(GroupEnd)

struct nccl_functions {
#define NCCL_POINTER(name) __typeof__(&nccl##name) name;
	NCCL_CALLS(NCCL_POINTER)
};

extern struct nccl_functions nccl; /* after nccl_open() */

/* Open the library, once; 0, or -ENOENT and one line in `why`. */
int nccl_open(struct why *why);

/* -EIO. */
int nccl_failed(struct why *why, const char *call, int device, ncclResult_t result);

/* As TRY_CUDA(). */
#define TRY_NCCL(err, device, call, arguments)                                                     \
	do {                                                                                       \
		ncclResult_t tried_ = (err) == 0 ? nccl.call arguments : ncclSuccess;              \
		if (tried_ != ncclSuccess && tried_ != ncclInProgress)                             \
			(err) = nccl_failed(why, "nccl" #call, device, tried_);                    \
	} while (0)

#endif /* KERNELS_NCCL_LIBRARY_H */
