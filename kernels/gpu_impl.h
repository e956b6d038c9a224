/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu_impl.h - what gpu*.c share; private to them
 */
#ifndef KERNELS_GPU_IMPL_H
#define KERNELS_GPU_IMPL_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <errno.h>
#include <pthread.h>

#include "kernels/gpu.h"

/*
 * CTAs of a kernel that copies across the bus: 16 KB each have under way, several times what a bus
 * of 60 GB/s has within 2 us. More would be no faster, and keep the GPU from others meanwhile.
 */
#define GPU_BUS_CTAS 32

typedef CUresult (*value_call)(CUstream stream, CUdeviceptr address, cuuint32_t value,
                               unsigned flags);

struct word_page;

struct gpu {
	int device;
	struct gpu_hooks hooks;
	cudaStream_t gate, out, in, tell;
	void *scratch;                      /* on the device */
	value_call wait_value, write_value; /* NULL: streams cannot wait */
	pthread_mutex_t lock;
	struct word_page *pages; /* under the lock */

	/* gpu_watch.c; nobody calls CUDA with its lock. */
	_Atomic uint64_t inside_since_us; /* the communicator's thread is in CUDA; 0: it is not */
	atomic_bool stuck;
	pthread_mutex_t watch_lock;
	pthread_cond_t watch_changed;
	pthread_t watcher;
	bool watched, watch_ends;
	struct gpu_gate *gates;
};

/* -EIO, and the line that says which call went wrong, and of which GPU if that is known (>= 0). */
int gpu_failed(char *why, const char *call, int device, cudaError_t err);

/* A chain of calls: the first that fails is the one that is explained. */
#define TRY(gpu, err, name, call)                                                                  \
	do {                                                                                       \
		cudaError_t tried_ = (err) == 0 ? (cudaError_t)(call) : cudaSuccess;               \
		if (tried_ != cudaSuccess)                                                         \
			(err) = gpu_failed(why, name, (gpu)->device, tried_);                      \
	} while (0)

/* What a caller's thread gets back. */
struct gpu_visit {
	int device;
	enum cudaStreamCaptureMode mode;
};

/*
 * The thread's device becomes ours, and what another thread captures into a graph does not
 * concern it: else a call as harmless as cudaStreamQuery() fails, and spoils the capture.
 */
int gpu_enter(const struct gpu *gpu, struct gpu_visit *before, char *why);
void gpu_leave(const struct gpu *gpu, const struct gpu_visit *before);

/*
 * The communicator's thread keeps whichever it used last. What begins with gpu_use(), which fails
 * once the GPU has been stuck, ends with gpu_done(), which returns err.
 */
int gpu_use(struct gpu *gpu, char *why);
int gpu_done(struct gpu *gpu, int err);

/* gpu_watch.c */
void gpu_watch_init(struct gpu *gpu);
int gpu_watch(struct gpu *gpu, char *why);
void gpu_unwatch(struct gpu *gpu);
void gpu_watch_gate(struct gpu_gate *gate, bool comes);
int gpu_gate_waits(struct gpu_gate *gate, char *why); /* -EIO: too late */
int gpu_stuck(const struct gpu *gpu, char *why);      /* -EIO, and why; 0 */
uint64_t gpu_now_us(void);

/* A word that streams can wait for; there is no way back. */
int gpu_word(struct gpu *gpu, uint32_t **out, char *why);

/* -EIO, of a call of the driver's. */
int gpu_value_failed(const struct gpu *gpu, const char *call, CUresult result, char *why);

/* gpu_start.c: makes the queues, and uses once whatever is used later. Waits. */
int gpu_start(struct gpu *gpu, char *why);

int gpu_event(const struct gpu *gpu, void **out, char *why);

/* Set the signal after what is now in `queue`. */
int gpu_tell(struct gpu *gpu, cudaStream_t queue, void *mark, struct gpu_signal *signal, char *why);

/*
 * gpu_signal.c: after() sets the signal when what is now in the stream is done. close() is for any
 * time, also of one that was never opened.
 */
int gpu_signal_open(struct gpu *gpu, struct gpu_signal *signal, char *why);
void gpu_signal_close(struct gpu_signal *signal);
int gpu_signal_after(struct gpu_signal *signal, cudaStream_t stream, char *why);

/* gpu_slot.c */
int gpu_slot_open(struct gpu *gpu, const struct gpu_slot_size *size, struct gpu_slot *slot,
                  char *why);
void gpu_slot_close(struct gpu_slot *slot);
int gpu_scan(struct gpu_slot *slot, const struct bitmap_tensor *tensor, bool magnitude, char *why);
int gpu_unpack(struct gpu_slot *slot, const struct gpu_unpack *what, char *why);
int gpu_empty(struct gpu_slot *slot, char *why);

/* gpu_view.c */
int gpu_view_open(struct gpu *gpu, uint64_t words, struct gpu_view *view, char *why);
void gpu_view_close(struct gpu_view *view);
int gpu_view(struct gpu_view *view, const struct bitmap_tensor *tensor, char *why);

#endif /* KERNELS_GPU_IMPL_H */
