/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nccl.h - the part of NCCL's interface that Winnow uses, for builds on the emulated CUDA
 *
 * Names and numbers are NCCL's. emulated_nccl.cc is behind it.
 */
#ifndef WINNOW_EMULATED_NCCL_H
#define WINNOW_EMULATED_NCCL_H

#include <limits.h>

#include <cuda_runtime_api.h>

#define NCCL_VERSION_CODE 22200
#define NCCL_UNIQUE_ID_BYTES 128
#define NCCL_CONFIG_UNDEF_INT INT_MIN

typedef struct ncclComm *ncclComm_t;
typedef struct {
	char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

/* clang-format off */
#define EMULATED_RESULTS(x) \
	x(ncclSuccess, 0, "no error") \
	x(ncclUnhandledCudaError, 1, "unhandled cuda error (run with NCCL_DEBUG=INFO for details)") \
	x(ncclSystemError, 2, "unhandled system error (run with NCCL_DEBUG=INFO for details)") \
	x(ncclInternalError, 3, "internal error - please report this issue to the NCCL developers") \
	x(ncclInvalidArgument, 4, "invalid argument (run with NCCL_DEBUG=WARN for details)") \
	x(ncclInvalidUsage, 5, "invalid usage (run with NCCL_DEBUG=WARN for details)") \
	x(ncclRemoteError, 6, "remote process exited or there was a network error") \
	x(ncclInProgress, 7, "NCCL operation in progress")
/* clang-format on */
typedef enum { EMULATED_RESULTS(EMULATED_ERROR) } ncclResult_t;

/* The real one is longer; its size is its first field, so that libraries read no more. */
typedef struct {
	size_t size;
	unsigned magic, version;
	int blocking;
} ncclConfig_t;

#define NCCL_CONFIG_INITIALIZER                                                                    \
	{                                                                                          \
		sizeof(ncclConfig_t), 0xcafebeef, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_INT         \
	}

typedef enum { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 } ncclRedOp_t;

typedef enum {
	ncclInt32 = 2,
	ncclInt64 = 4,
	ncclFloat16 = 6,
	ncclFloat32 = 7,
	ncclFloat64 = 8,
	ncclBfloat16 = 9,
} ncclDataType_t;

#ifdef __cplusplus
extern "C" {
#endif

ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
const char *ncclGetErrorString(ncclResult_t result);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int world, ncclUniqueId id, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result);
ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

#ifdef __cplusplus
}
#endif

#endif
