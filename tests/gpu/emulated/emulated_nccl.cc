/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emulated_nccl.cc - NCCL for the emulated CUDA: real reductions, over shared memory
 *
 * It is as difficult as the real one. Calls return before anything has happened, and their work
 * gets into the streams only while the caller polls ncclCommGetAsyncError(). A missing rank is
 * waited for without end, until ncclCommAbort(). Outside a group, ncclCommAbort() itself waits for
 * the work of the process's other communicators. Two threads that use a communicator at once are
 * reported.
 *
 * EMULATED_CUDA_FAIL="ncclAllGather:2=1,async:3+=6": the second call of that name in this process
 * returns 1; from the third call on, ncclCommGetAsyncError() answers 6.
 */
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <fcntl.h>
#include <map>
#include <memory>
#include <mutex>
#include <nccl.h>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include "tests/gpu/emulated/emulated.h"

static const int ranks_most = 16;
static const size_t chunk_bytes = 64 << 10;

/* What the ranks of a communicator share; they may be processes. */
struct shared {
	std::atomic<uint32_t> joined;
	std::atomic<uint64_t> steps[ranks_most]; /* each rank's barriers so far */
	unsigned char data[ranks_most][chunk_bytes];
};

/* With each root in turn: all ranks' `send`, reduced, into its `recv`; or its into everybody's. */
struct operation {
	bool reduces;
	int root, root_end;
	const void *send;
	void *recv;
	size_t count;
	ncclDataType_t type;
	ncclRedOp_t op;
	cudaStream_t stream;
};

/* Its owner has it, and every operation that is not over. */
struct ncclComm {
	struct shared *shared;
	std::string name;
	int rank, world, device;
	uint64_t step = 0;
	std::atomic<bool> aborted{false}, joined{false};
	std::mutex calls;              /* held by the thread that makes one */
	std::atomic<int> under_way{0}; /* operations in streams */
	std::deque<operation> waiting; /* asked for, not in the streams yet */
	unsigned questions = 0;        /* since then */
	~ncclComm()
	{
		munmap(shared, sizeof(*shared));
	}
};
typedef std::shared_ptr<ncclComm> comm_t;

static std::mutex lock;
static std::map<ncclComm_t, comm_t> comms; /* of this process */
static thread_local int group_depth;

/* What is to happen in this call: a fault, or ncclSuccess. */
#define NCCL_ENTER(name)                                                                           \
	do {                                                                                       \
		const int due = emulated_fault_due(name);                                          \
		if (due)                                                                           \
			return static_cast<ncclResult_t>(due);                                     \
	} while (0)

static void nap()
{
	std::this_thread::sleep_for(std::chrono::microseconds(20));
}

/* It is aborted, or its GPU has failed. */
static bool given_up(const ncclComm &comm)
{
	return comm.aborted || emulated_failed(comm.device);
}

/* Not even NCCL allows two threads in calls of one communicator. */
static std::unique_lock<std::mutex> one_thread(ncclComm &comm)
{
	std::unique_lock<std::mutex> held(comm.calls, std::try_to_lock);

	if (!held) {
		std::fprintf(stderr, "emulated NCCL: two threads make calls at once\n");
		std::abort();
	}
	return held;
}

/* ---- arithmetic: what is narrower than f32 is added up in f32 ---- */

__extension__ typedef _Float16 half;
struct bf16 {
	uint16_t bits;
	operator float() const
	{
		return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
	}
	explicit bf16(float value) /* to nearest, ties to even; NaN stays one */
	{
		const uint32_t wide = __builtin_bit_cast(uint32_t, value);

		bits = static_cast<uint16_t>(value != value
		                                     ? wide >> 16 | 0x40
		                                     : (wide + 0x7fff + (wide >> 16 & 1)) >> 16);
	}
};

/* All ranks' elements [i], reduced; they are of type T in memory and W meanwhile. */
template <typename T, typename W>
static void reduce(const struct shared *from, int world, ncclRedOp_t op, size_t count, void *out)
{
	for (size_t i = 0; i < count; i++) {
		W all = static_cast<W>(reinterpret_cast<const T *>(from->data[0])[i]);

		for (int rank = 1; rank < world; rank++) {
			W x = static_cast<W>(reinterpret_cast<const T *>(from->data[rank])[i]);

			all = op == ncclProd  ? all * x
			      : op == ncclMax ? (all > x ? all : x)
			      : op == ncclMin ? (all < x ? all : x)
			                      : all + x;
		}
		static_cast<T *>(out)[i] =
			static_cast<T>(op == ncclAvg ? all / static_cast<W>(world) : all);
	}
}

struct type {
	size_t bytes;
	void (*reduce)(const struct shared *from, int world, ncclRedOp_t op, size_t count,
	               void *out);
};
/* Never destroyed: streams outlive main(). */
static const auto &types = *new std::map<ncclDataType_t, type>{
	{ncclInt32, {4, reduce<int32_t, int32_t>}}, {ncclInt64, {8, reduce<int64_t, int64_t>}},
	{ncclFloat16, {2, reduce<half, float>}},    {ncclFloat32, {4, reduce<float, float>}},
	{ncclFloat64, {8, reduce<double, double>}}, {ncclBfloat16, {2, reduce<bf16, float>}},
};

/* ---- operations, in step with the other ranks ---- */

/* Wait for all ranks to get here. False: nobody waits any more. */
static bool barrier(ncclComm &comm)
{
	const uint64_t here = ++comm.step;

	comm.shared->steps[comm.rank] = here;
	for (int rank = 0; rank < comm.world; rank++)
		for (; comm.shared->steps[rank] < here; nap())
			if (given_up(comm))
				return false;
	return true;
}

/* With one root, in parts that fit. */
static bool step(ncclComm &comm, const operation &op, const char *send, char *recv, int root)
{
	const size_t each = types.at(op.type).bytes, most = chunk_bytes / each;

	for (size_t at = 0; at < op.count; at += most) {
		const size_t part = std::min(op.count - at, most);

		if (op.reduces || comm.rank == root)
			std::memcpy(comm.shared->data[comm.rank], send + at * each, part * each);
		if (!barrier(comm))
			return false;
		if (op.reduces && comm.rank == root)
			types.at(op.type).reduce(comm.shared, comm.world, op.op, part,
			                         recv + at * each);
		else if (!op.reduces)
			std::memcpy(recv + at * each, comm.shared->data[root], part * each);
		if (!barrier(comm))
			return false;
	}
	return true;
}

static void perform(ncclComm &comm, const operation &op)
{
	const size_t bytes = op.count * types.at(op.type).bytes;
	const char *send = static_cast<const char *>(op.send);
	char *recv = static_cast<char *>(op.recv);

	for (int root = op.root; root < op.root_end && !given_up(comm); root++) {
		if (!step(comm, op, send, recv, root))
			return;
		send += op.reduces ? bytes : 0;
		recv += op.reduces ? 0 : bytes;
	}
}

static ncclResult_t put_off(ncclComm_t comm, const operation &op)
{
	const auto alone = one_thread(*comm);
	std::unique_lock<std::mutex> held(lock);

	if (!comm->joined)
		std::abort();
	comm->waiting.push_back(op);
	comm->questions = 0;
	return group_depth > 0 ? ncclSuccess : ncclInProgress;
}

/* Into the streams, what has been asked for. */
static ncclResult_t let_go(const comm_t &comm)
{
	for (; !comm->waiting.empty(); comm->waiting.pop_front()) {
		const operation what = comm->waiting.front();
		/* Goes with the work, whether that runs or not. */
		const std::shared_ptr<void> running(nullptr, [=](void *) { comm->under_way--; });
		auto run = [comm, what, running] { perform(*comm, what); };

		comm->under_way++;
		if (emulated_failed(comm->device) || emulated_aside(what.stream, run)) {
			comm->waiting.clear();
			return ncclUnhandledCudaError;
		}
	}
	return ncclSuccess;
}

/* ---- NCCL's calls ---- */

ncclResult_t ncclGetVersion(int *version)
{
	*version = NCCL_VERSION_CODE;
	return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	static std::atomic<unsigned> count;

	NCCL_ENTER("ncclGetUniqueId");
	*id = {};
	std::snprintf(id->internal, sizeof(id->internal), "/winnow-emulated-nccl-%d-%u-%lld",
	              getpid(), count++, static_cast<long long>(std::time(nullptr)));
	return ncclSuccess;
}

/* All come to the same name; the last one takes it away. */
ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int world, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
	NCCL_ENTER("ncclCommInitRankConfig");
	*out = nullptr;
	if (world < 1 || world > ranks_most || rank < 0 || rank >= world || id.internal[0] != '/' ||
	    config->magic != 0xcafebeef || config->blocking != 0)
		return ncclInvalidArgument;
	auto comm = std::make_shared<ncclComm>();
	const int fd = shm_open(id.internal, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *map =
		fd < 0 || ftruncate(fd, sizeof(shared)) != 0
			? MAP_FAILED
			: mmap(nullptr, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		std::abort();
	close(fd);
	comm->shared = static_cast<struct shared *>(map);
	comm->name = id.internal;
	comm->world = world;
	comm->rank = rank;
	if (cudaGetDevice(&comm->device) != cudaSuccess)
		return ncclUnhandledCudaError;
	if (++comm->shared->joined == static_cast<uint32_t>(world))
		shm_unlink(id.internal);
	std::unique_lock<std::mutex> held(lock);
	comms[comm.get()] = comm;
	*out = comm.get();
	return ncclInProgress;
}

/* Has any communicator that nobody has aborted something in a stream? */
static bool others_run()
{
	std::unique_lock<std::mutex> held(lock);

	for (const auto &each : comms)
		if (!given_up(*each.second) && each.second->under_way > 0)
			return true;
	return false;
}

/* What waits for a stream goes; what is in one ends when its turn comes. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	comm->aborted = true;
	shm_unlink(comm->name.c_str());
	std::unique_lock<std::mutex> held(lock);
	comms.erase(comm);
	held.unlock();
	while (group_depth == 0 && others_run())
		nap();
	return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
	switch (result) {
		EMULATED_RESULTS(EMULATED_TEXT)
	}
	return "unknown result code";
}

/* The first question after a call is too early. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
	*result = static_cast<ncclResult_t>(emulated_fault_due("async"));
	if (*result != ncclSuccess)
		return ncclSuccess;
	comm->joined = comm->shared->joined >= static_cast<uint32_t>(comm->world);
	const auto alone = one_thread(*comm);
	std::unique_lock<std::mutex> held(lock);
	*result = !comm->joined || comm->questions++ == 0 ? ncclInProgress : let_go(comms[comm]);
	return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
	NCCL_ENTER("ncclGroupStart");
	group_depth++;
	return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
	group_depth--;
	NCCL_ENTER("ncclGroupEnd");
	return ncclInProgress;
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
	NCCL_ENTER("ncclReduceScatter");
	return put_off(comm, {true, 0, comm->world, send, recv, count, type, op, stream});
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
	NCCL_ENTER("ncclReduce");
	return put_off(comm, {true, root, root + 1, send, recv, count, type, op, stream});
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
	NCCL_ENTER("ncclAllGather");
	return put_off(comm, {false, 0, comm->world, send, recv, count, type, ncclSum, stream});
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream)
{
	NCCL_ENTER("ncclBroadcast");
	return put_off(comm, {false, root, root + 1, send, recv, count, type, ncclSum, stream});
}
