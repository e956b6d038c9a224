/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emulated_impl.h - the state of the emulated CUDA, known to its own files only
 *
 * One lock protects everything; work on streams runs without it.
 */
#ifndef WINNOW_EMULATED_IMPL_H
#define WINNOW_EMULATED_IMPL_H

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

#include "tests/gpu/emulated/emulated.h"

struct CUevent_st {
	int device;
	/* Is the stream past the last cudaEventRecord()? Waits share it; none: never recorded. */
	std::shared_ptr<bool> over;
};

enum { EMULATED_TOUCH_NONE = -2, EMULATED_TOUCH_ALL = -1 }; /* or a device */

struct emulated_op {
	int touches;                      /* whose memory run() needs */
	std::function<cudaError_t()> run; /* may be empty */
	std::function<void()> finish{};   /* with the lock held, whether it ran or not */
	std::function<bool()> ready{};    /* with the lock held; empty: at once */
};

struct CUstream_st {
	int device;
	unsigned flags;
	bool capturing = false, closing = false;
	bool spoilt = false; /* the capture: somebody did what one forbids */
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
	std::thread::id capturer;
	std::deque<emulated_op> queue; /* the first may be under way */
	uint64_t submitted = 0, finished = 0;
	uint64_t random;
};

struct emulated_device {
	cudaError_t sticky = cudaSuccess;
	CUstream_st *default_stream = nullptr;
	unsigned touching = 0; /* operations that may touch its memory */
	bool context = false;  /* somebody has used it */
};

/* Device memory, or the host's where device < 0. */
struct emulated_memory {
	int device;
	size_t bytes, mapped; /* asked for; rounded to pages, without guards */
	char *map;            /* the first page, behind the guard */
	int owner;            /* of host memory: the device that was current */
};

struct emulated_fault {
	std::string name;
	uint64_t call; /* fails when it gets to 0 */
	bool on;       /* and ever after */
	cudaError_t error;
};

struct emulated_state {
	std::mutex lock;
	std::condition_variable changed;
	std::vector<emulated_device> devices;
	std::map<uintptr_t, emulated_memory> memory; /* by first byte given out */
	std::set<CUstream_st *> streams;
	std::set<CUevent_st *> events;
	std::vector<emulated_fault> faults;
	std::atomic<unsigned> allocations{0}, faults_met{0};
	uint64_t seed, kernels = 0, stream_ids = 0;
	unsigned pause_us;
};

/* The state, made on first use and never destroyed: streams outlive main(). */
emulated_state &emulated();

static inline emulated_device &emulated_device_of(int device)
{
	return emulated().devices[static_cast<size_t>(device)];
}

/* Of EMULATED_ERRORS() and EMULATED_RESULTS(). */
#define EMULATED_TEXT(name, number, text)                                                          \
	case name:                                                                                 \
		return text;

extern thread_local int emulated_current; /* the thread's device */

uint64_t emulated_random(uint64_t *state);

/*
 * Faults are for names that are written here and nowhere else: each leaves its text in a section of
 * its own, one after the other, which emulated_state.cc looks through.
 */
#define EMULATED_CAN_FAIL(name)                                                                    \
	static const char can_fail[]                                                               \
		__attribute__((section("emulated_names"), aligned(1), used)) = name

/* The fault that is due for `name`, or cudaSuccess. Lock held. */
cudaError_t emulated_fault_due(const char *name);

/* Remember it for cudaGetLastError(). */
cudaError_t emulated_fail(cudaError_t error);

/* What sticks to a device, likewise. Lock held. */
cudaError_t emulated_sticky(int device);

/* What every call begins with: counts, faults, sticky errors. Takes the lock. */
cudaError_t emulated_enter(const char *name);

#define EMULATED_ENTER(name)                                                                       \
	do {                                                                                       \
		EMULATED_CAN_FAIL(name);                                                           \
		cudaError_t entered = emulated_enter(name);                                        \
		if (entered != cudaSuccess)                                                        \
			return emulated_fail(entered);                                             \
	} while (0)

/* The same, and with the lock from here on. */
#define EMULATED_LOCKED(name)                                                                      \
	EMULATED_ENTER(name);                                                                      \
	std::unique_lock<std::mutex> held(emulated().lock)

/* And the stream behind a handle, or return with an error. */
#define EMULATED_STREAM(name, handle, stream)                                                      \
	EMULATED_LOCKED(name);                                                                     \
	CUstream_st *stream = emulated_stream(handle);                                             \
	if (!stream)                                                                               \
	return emulated_fail(cudaErrorInvalidResourceHandle)

/* A call that is invalid during a capture: this stream's; another thread's if that is global, unless relaxed. */
#define EMULATED_UNSAFE(...)                                                                       \
	do {                                                                                       \
		if (emulated_unsafe(__VA_ARGS__))                                                  \
			return emulated_fail(cudaErrorStreamCaptureUnsupported);                   \
	} while (0)
bool emulated_unsafe(const CUstream_st *asked = nullptr); /* Lock held. */

/* The stream behind a handle, or null. Lock held. */
CUstream_st *emulated_stream(cudaStream_t handle);

/* Append to a stream. Lock held. While a capture is on, nothing happens. */
cudaError_t emulated_push(CUstream_st *stream, emulated_op op);

/* Wait until all that is in the stream now is over; in all streams of a device, or of all (-1). */
void emulated_drain(std::unique_lock<std::mutex> &held, CUstream_st *stream);
void emulated_drain_device(std::unique_lock<std::mutex> &held, int device);

/* Open, and close again, a device's memory, all's or nobody's, to this process. Lock held. */
void emulated_touch(int device, bool open);

#endif
