/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emulated_impl.h - the state of the emulated CUDA, known to its own files only
 *
 * One lock for everything: what runs on streams runs without it.
 */
#ifndef WINNOW_EMULATED_IMPL_H
#define WINNOW_EMULATED_IMPL_H

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

#include <cuda.h>
#include <cuda_runtime.h>

#include "tests/gpu/emulated/emulated.h"

/* One cudaEventRecord(): events and waits share it. */
struct emulated_record {
	bool done = false;
	uint64_t time_ns = 0;
};

struct CUevent_st {
	int device;
	unsigned flags;
	std::shared_ptr<emulated_record> last; /* none: never recorded */
};

enum { EMULATED_TOUCH_NONE = -2, EMULATED_TOUCH_ALL = -1 }; /* or a device */

struct emulated_op {
	std::function<cudaError_t()> run;  /* may be empty */
	std::function<void()> finish;      /* with the lock held, whether it ran or not */
	std::function<bool()> ready;       /* with the lock held; empty: at once */
	int touches = EMULATED_TOUCH_NONE; /* whose memory run() needs */
	bool polled = false;               /* ready() turns true without a word to `changed` */
	uint64_t order = 0;                /* among all of the device */
	unsigned entries = 1;              /* of its queue of the device that it takes */
};

struct CUstream_st {
	int device;
	unsigned flags;
	int priority;
	unsigned connection;
	uint64_t id;
	bool capturing = false, closing = false;
	bool spoilt = false; /* the capture: somebody did what one forbids */
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
	std::thread::id capturer;
	std::deque<emulated_op> queue; /* the first is under way if `busy` */
	bool busy = false;
	size_t entries = 0; /* of all in the queue */
	uint64_t submitted = 0, finished = 0;
	uint64_t random;
};

struct emulated_device {
	cudaError_t sticky = cudaSuccess;
	CUstream_st *default_stream = nullptr;
	uint64_t order = 0;
	std::map<int, unsigned> streams; /* made so far, by priority */
	unsigned touching = 0;           /* operations that may touch its memory */
	bool context = false;            /* somebody has used it */
	std::thread::id alone;           /* the thread that has its lock; none: nobody */
	std::set<const void *> loaded;   /* kernels */
};

/* Device memory, or the host's where device < 0. */
struct emulated_memory {
	int device;
	size_t bytes, mapped; /* asked for; rounded to pages, without guards */
	char *map;            /* the first page, behind the guard; NULL: registered, not ours */
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
	struct emulated_cuda_counts stats = {};
	uint64_t seed, kernels = 0, stream_ids = 0;
	unsigned pause_us, host_us, connections; /* 0: no stream shares one */
	unsigned processors;
};

/* The state, made on first use and never destroyed: streams outlive main(). */
emulated_state &emulated();

extern thread_local int emulated_current; /* the thread's device */
extern thread_local bool emulated_in_host_function;

uint64_t emulated_number(const char *name, uint64_t otherwise);
uint64_t emulated_random(uint64_t *state);
uint64_t emulated_now_ns();

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

/* What every call begins with: counts, faults, sticky errors. Takes the lock. */
cudaError_t emulated_enter(const char *name);

/*
 * emulated_rules.cc: what CUDA lets nobody do meanwhile. All with the lock held.
 *
 * As the lock of a real context: whoever waits for all that a device does keeps it, and every
 * other thread's calls wait for that thread, those that would let the device go on, too.
 */
void emulated_pass(std::unique_lock<std::mutex> &held, int device);
struct emulated_alone {
	emulated_alone(std::unique_lock<std::mutex> &held, int device); /* -1: all */
	~emulated_alone();
	bool mine;
	int device;
};

/* A call that no capture allows: by other threads when it is a global one, unless they are relaxed. */
cudaError_t emulated_unsafe();

extern thread_local enum cudaStreamCaptureMode emulated_mode;

/* The first use of a kernel waits for all that the device does. */
void emulated_load(std::unique_lock<std::mutex> &held, const void *kernel);

#define EMULATED_UNSAFE()                                                                          \
	do {                                                                                       \
		std::unique_lock<std::mutex> unsafe(emulated().lock);                              \
		cudaError_t forbidden = emulated_unsafe();                                         \
		if (forbidden != cudaSuccess)                                                      \
			return emulated_fail(forbidden);                                           \
	} while (0)

#define EMULATED_ENTER(name)                                                                       \
	do {                                                                                       \
		EMULATED_CAN_FAIL(name);                                                           \
		cudaError_t entered = emulated_enter(name);                                        \
		if (entered != cudaSuccess)                                                        \
			return emulated_fail(entered);                                             \
	} while (0)

/* The stream behind a handle, or null. Lock held. */
CUstream_st *emulated_stream(cudaStream_t handle);

/* Append to a stream. Lock held. While a capture is on, nothing happens. */
void emulated_push(CUstream_st *stream, emulated_op op);

/* Wait until all that is in the stream now is over. */
void emulated_drain(std::unique_lock<std::mutex> &held, CUstream_st *stream);

/* Wait for all streams of a device (-1: of all). */
void emulated_drain_device(std::unique_lock<std::mutex> &held, int device);

/* The allocation that holds [at, at + bytes), or null. Lock held. */
emulated_memory *emulated_find(const void *at, size_t bytes);

/* Open, and close again, a device's memory (-1: of all) to this process. Lock held. */
void emulated_touch(int device, bool open);

#endif
