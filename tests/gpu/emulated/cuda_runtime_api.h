/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cuda_runtime_api.h - the part of CUDA's C interface that Winnow uses, implemented on the CPU
 *
 * Builds for the emulation find it instead of NVIDIA's header. Names and numbers are CUDA's.
 * emulated.h says what the emulation promises.
 */
#ifndef WINNOW_EMULATED_RUNTIME_API_H
#define WINNOW_EMULATED_RUNTIME_API_H

#include <stddef.h>

#define CUDART_VERSION 13000
#define CUDART_CB

/* Names, numbers, and what cudaGetErrorString() says. */
/* clang-format off */
#define EMULATED_ERRORS(x) \
	x(cudaSuccess, 0, "no error") \
	x(cudaErrorInvalidValue, 1, "invalid argument") \
	x(cudaErrorMemoryAllocation, 2, "out of memory") \
	x(cudaErrorInvalidConfiguration, 9, "invalid configuration argument") \
	x(cudaErrorInsufficientDriver, 35, "CUDA driver version is insufficient") \
	x(cudaErrorNoDevice, 100, "no CUDA-capable device is detected") \
	x(cudaErrorInvalidDevice, 101, "invalid device ordinal") \
	x(cudaErrorInvalidResourceHandle, 400, "invalid resource handle") \
	x(cudaErrorNotReady, 600, "device not ready") \
	x(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered") \
	x(cudaErrorLaunchFailure, 719, "unspecified launch failure") \
	x(cudaErrorStreamCaptureUnsupported, 900, "not permitted when a stream is capturing") \
	x(cudaErrorStreamCaptureInvalidated, 901, "failed due to an error during capture") \
	x(cudaErrorStreamCaptureIsolation, 905, "dependency on uncaptured work in another stream") \
	x(cudaErrorStreamCaptureImplicit, 906, "the legacy stream would depend on a capturing one")
/* clang-format on */

#define EMULATED_ERROR(name, number, text) name = number,
typedef enum cudaError { EMULATED_ERRORS(EMULATED_ERROR) } cudaError_t;

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef void (*cudaHostFn_t)(void *argument);

enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2 };
enum { cudaHostAllocPortable = 1, cudaHostAllocMapped = 2 };
enum cudaMemcpyKind {
	cudaMemcpyHostToDevice = 1,
	cudaMemcpyDeviceToHost = 2,
	cudaMemcpyDeviceToDevice = 3,
	cudaMemcpyDefault = 4,
};
enum cudaMemoryType { cudaMemoryTypeHost = 1, cudaMemoryTypeDevice = 2, cudaMemoryTypeManaged = 3 };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
enum cudaStreamCaptureMode {
	cudaStreamCaptureModeGlobal,
	cudaStreamCaptureModeThreadLocal,
	cudaStreamCaptureModeRelaxed,
};
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16, cudaDevAttrL2CacheSize = 38 };

struct cudaPointerAttributes {
	enum cudaMemoryType type;
	int device;
};
struct cudaFuncAttributes {
	size_t sharedSizeBytes;
};

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDriverGetVersion(int *version);

cudaError_t cudaGetLastError(void);
const char *cudaGetErrorString(cudaError_t error);

cudaError_t cudaMalloc(void **memory, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total);
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *memory);

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemset(void *memory, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status);
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument);

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);

#ifdef __cplusplus
}
#endif

#endif
