// SPDX-License-Identifier: BSD-3-Clause
/*
 * fake_nccl.c - a libnccl.so.2 for the emulated CUDA: real reductions, over shared memory
 *
 * As unhelpful as the real one: calls return before anything has happened, and what they
 * ask for gets into the streams only while somebody asks ncclCommGetAsyncError(); operations of a
 * communicator run strictly in the order of their calls, whatever their streams; a rank that does
 * not come is waited for without end, until ncclCommAbort(), which alone waits for what the
 * process's other communicators have under way, and in a group does not.
 *
 * FAKE_NCCL_FAIL="ncclAllGather:2=1,async:3=6": the second call of that name in this process
 * returns 1; from the third question on, the answer of ncclCommGetAsyncError() is 6. What no call
 * is named ends the program with one line: a fault that nobody meets would test nothing.
 * FAKE_NCCL_ABORT_MS=500: ncclCommAbort() takes so long to begin, and what can go on does.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/gpu/emulated/emulated.h"
#include "tests/gpu/fake_nccl.h"

#define EXPORT __attribute__((visibility("default")))

#define COMMS_MAX 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, comms_lock = PTHREAD_MUTEX_INITIALIZER;
static struct operation *waiting_first, *waiting_last; /* asked for, not in the streams yet */
static _Thread_local int group_depth;

/* ---- faults ---- */

#define FAULT(name)                                                                                \
	do {                                                                                       \
		CAN_FAIL(name);                                                                    \
		ncclResult_t due = fake_fault(can_fail);                                           \
		if (due != ncclSuccess)                                                            \
			return due;                                                                \
	} while (0)

/* ---- communicators ---- */

static ncclComm_t comms[COMMS_MAX]; /* of this process */

/* Has any communicator that nobody has aborted something in a stream? */
static bool others_run(void)
{
	bool any = false;

	pthread_mutex_lock(&comms_lock);
	for (int i = 0; i < COMMS_MAX; i++)
		any = any || (comms[i] != NULL && !fake_given_up(comms[i]) &&
		              atomic_load(&comms[i]->under_way) > 0);
	pthread_mutex_unlock(&comms_lock);
	return any;
}

/* In the place of `from`, the first that is. */
static void list(ncclComm_t from, ncclComm_t to)
{
	int i = 0;

	pthread_mutex_lock(&comms_lock);
	while (i < COMMS_MAX && comms[i] != from)
		i++;
	if (i < COMMS_MAX)
		comms[i] = to;
	pthread_mutex_unlock(&comms_lock);
}

static void unuse(ncclComm_t comm)
{
	if (atomic_fetch_sub(&comm->users, 1) > 1)
		return;
	list(comm, NULL);
	munmap(comm->shared, sizeof(*comm->shared));
	free(comm);
}

/* All come to the same name; who is last takes it away. */
static ncclResult_t join(ncclComm_t *out, const char *name, int world, int rank)
{
	ncclComm_t comm = calloc(1, sizeof(*comm));
	int fd = shm_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	*out = NULL;
	if (comm == NULL || fd < 0 || ftruncate(fd, sizeof(struct shared)) != 0) {
		free(comm);
		if (fd >= 0)
			close(fd);
		return ncclSystemError;
	}
	comm->shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (comm->shared == MAP_FAILED) {
		free(comm);
		return ncclSystemError;
	}
	snprintf(comm->name, sizeof(comm->name), "%s", name);
	comm->world = world;
	comm->rank = rank;
	atomic_store(&comm->users, 1);
	(void)cudaGetDevice(&comm->device);
	if (atomic_fetch_add(&comm->shared->joined, 1) + 1 == (uint32_t)world)
		shm_unlink(name);
	list(NULL, comm);
	*out = comm;
	return ncclSuccess;
}

EXPORT ncclResult_t ncclGetVersion(int *version)
{
	*version = NCCL_VERSION_CODE;
	return ncclSuccess;
}

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	static _Atomic unsigned count;
	struct timespec now;

	FAULT("ncclGetUniqueId");
	clock_gettime(CLOCK_MONOTONIC, &now);
	memset(id, 0, sizeof(*id));
	snprintf(id->internal, sizeof(id->internal), "/winnow-fake-nccl-%d-%u-%ld", (int)getpid(),
	         atomic_fetch_add(&count, 1), now.tv_nsec);
	return ncclSuccess;
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int world, ncclUniqueId id, int rank,
                                           ncclConfig_t *config)
{
	FAULT("ncclCommInitRankConfig");
	if (world < 1 || world > RANKS_MAX || rank < 0 || rank >= world || id.internal[0] != '/' ||
	    config->magic != 0xcafebeef || config->blocking != 0)
		return ncclInvalidArgument;
	return join(comm, id.internal, world, rank) == ncclSuccess ? ncclInProgress
	                                                           : ncclSystemError;
}

/*
 * All ranks stay together: nobody here asks for more. As of NCCL 2.18 to 2.28: the new communicator is
 * told to nobody before the old one is done with it.
 */
EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out,
                                  ncclConfig_t *config)
{
	char name[128];

	FAULT("ncclCommSplit");
	if (color != 0 || key != comm->rank || (config != NULL && config->magic != 0xcafebeef) ||
	    !atomic_load(&comm->joined) || comm->child_to != NULL)
		return ncclInvalidUsage;
	*out = NULL;
	snprintf(name, sizeof(name), "%s-%u", comm->name, ++comm->splits);
	if (join(&comm->child, name, comm->world, comm->rank) != ncclSuccess)
		return ncclSystemError;
	comm->child->device = comm->device;
	comm->child_to = out;
	return ncclInProgress;
}

EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
	FAULT("ncclCommFinalize");
	return comm != NULL ? ncclInProgress : ncclInvalidArgument;
}

EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
	FAULT("ncclCommDestroy");
	unuse(comm);
	return ncclSuccess;
}

/* What waits for a stream ends when its turn comes. */
EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	struct operation **at = &waiting_first, *next;
	const char *ms = getenv("FAKE_NCCL_ABORT_MS");

	for (long i = ms != NULL ? strtol(ms, NULL, 10) : 0; i > 0; i--)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	atomic_store(&comm->aborted, true);
	pthread_mutex_lock(&lock);
	waiting_last = NULL;
	while (*at != NULL) {
		if ((*at)->comm == comm) {
			next = (*at)->next;
			free(*at);
			unuse(comm);
			*at = next;
		} else {
			waiting_last = *at;
			at = &(*at)->next;
		}
	}
	pthread_mutex_unlock(&lock);
	shm_unlink(comm->name);
	if (comm->child_to != NULL) {
		shm_unlink(comm->child->name);
		unuse(comm->child);
		comm->child_to = NULL;
	}
	unuse(comm);
	while (group_depth == 0 && others_run())
		fake_nap();
	return ncclSuccess;
}

EXPORT const char *ncclGetErrorString(ncclResult_t result)
{
	static const char *const texts[] = {
		"no error",
		"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
		"unhandled system error (run with NCCL_DEBUG=INFO for details)",
		"internal error - please report this issue to the NCCL developers",
		"invalid argument (run with NCCL_DEBUG=WARN for details)",
		"invalid usage (run with NCCL_DEBUG=WARN for details)",
		"remote process exited or there was a network error",
		"NCCL operation in progress",
	};

	return (size_t)result < sizeof(texts) / sizeof(texts[0]) ? texts[result]
	                                                         : "unknown result code";
}

EXPORT const char *ncclGetLastError(ncclComm_t comm)
{
	(void)comm;
	return "";
}

static cudaError_t run(void *argument)
{
	struct operation *op = argument;
	ncclComm_t comm = op->comm;

	while (atomic_load(&comm->turn) < op->turn && !fake_given_up(comm))
		fake_nap();
	if (!fake_given_up(comm))
		(void)fake_perform(op);
	atomic_fetch_add(&comm->turn, 1);
	atomic_fetch_sub(&comm->under_way, 1);
	free(op);
	unuse(comm);
	return cudaSuccess;
}

/* ---- calls to streams ---- */

static size_t elem_bytes(ncclDataType_t type)
{
	switch (type) {
	case ncclFloat16:
	case ncclBfloat16:
		return 2;
	case ncclInt32:
	case ncclFloat32:
		return 4;
	default:
		return 8;
	}
}

static ncclResult_t put_off(struct operation what)
{
	struct operation *op = malloc(sizeof(*op));

	if (op == NULL || what.comm == NULL || !atomic_load(&what.comm->joined)) {
		free(op);
		return ncclInvalidArgument;
	}
	*op = what;
	op->elem_bytes = elem_bytes(what.type);
	atomic_fetch_add(&op->comm->users, 1);
	pthread_mutex_lock(&lock);
	op->turn = op->comm->turns++;
	op->comm->questions = 0;
	if (waiting_first == NULL)
		waiting_first = op;
	else
		waiting_last->next = op;
	waiting_last = op;
	pthread_mutex_unlock(&lock);
	return group_depth > 0 ? ncclSuccess : ncclInProgress;
}

/* Into the streams, what has been asked for. */
static ncclResult_t let_go(ncclComm_t comm)
{
	struct operation **at = &waiting_first, *op;
	cudaError_t err = cudaSuccess;
	int before = 0;

	(void)cudaGetDevice(&before);
	(void)cudaSetDevice(comm->device);

	waiting_last = NULL;
	while (*at != NULL) {
		op = *at;
		if (op->comm != comm) {
			waiting_last = op;
			at = &op->next;
			continue;
		}
		*at = op->next;
		atomic_fetch_add(&comm->under_way, 1);
		if (err == cudaSuccess)
			err = emulated_cuda_queue(op->stream, run, op);
		if (err != cudaSuccess) {
			atomic_fetch_sub(&comm->under_way, 1);
			free(op);
			unuse(comm);
		}
	}
	(void)cudaSetDevice(before);
	return err == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

/* Has the split come to an end? Then the owner gets what came of it. */
static bool split_is_over(ncclComm_t comm)
{
	if (atomic_load(&comm->child->shared->joined) < (uint32_t)comm->world)
		return false;
	atomic_store(&comm->child->joined, true);
	*comm->child_to = comm->child;
	comm->child_to = NULL;
	return true;
}

/* The first question after a call is too early. */
EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
	CAN_FAIL("async");
	ncclResult_t due = fake_fault(can_fail);

	if (comm == NULL)
		return ncclInvalidArgument;
	*result = due;
	if (due != ncclSuccess)
		return ncclSuccess;
	if (comm->child_to != NULL && !split_is_over(comm)) {
		*result = ncclInProgress;
		return ncclSuccess;
	}
	if (!atomic_load(&comm->joined) &&
	    atomic_load(&comm->shared->joined) < (uint32_t)comm->world) {
		*result = ncclInProgress;
		return ncclSuccess;
	}
	atomic_store(&comm->joined, true);
	pthread_mutex_lock(&lock);
	*result = comm->questions++ == 0 ? ncclInProgress : let_go(comm);
	pthread_mutex_unlock(&lock);
	return ncclSuccess;
}

EXPORT ncclResult_t ncclGroupStart(void)
{
	FAULT("ncclGroupStart");
	group_depth++;
	return ncclSuccess;
}

EXPORT ncclResult_t ncclGroupEnd(void)
{
	group_depth--;
	FAULT("ncclGroupEnd");
	return ncclInProgress;
}

EXPORT ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count,
                                      ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                      cudaStream_t stream)
{
	FAULT("ncclReduceScatter");
	return put_off((struct operation){.kind = REDUCE_SCATTER,
	                                  .send = send,
	                                  .recv = recv,
	                                  .count = count,
	                                  .type = type,
	                                  .reduction = op,
	                                  .comm = comm,
	                                  .stream = stream});
}

EXPORT ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
	FAULT("ncclReduce");
	return put_off((struct operation){.kind = REDUCE,
	                                  .send = send,
	                                  .recv = recv,
	                                  .count = count,
	                                  .type = type,
	                                  .reduction = op,
	                                  .root = root,
	                                  .comm = comm,
	                                  .stream = stream});
}

EXPORT ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                                  ncclComm_t comm, cudaStream_t stream)
{
	FAULT("ncclAllGather");
	return put_off((struct operation){.kind = ALL_GATHER,
	                                  .send = send,
	                                  .recv = recv,
	                                  .count = count,
	                                  .type = type,
	                                  .comm = comm,
	                                  .stream = stream});
}

EXPORT ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                                  int root, ncclComm_t comm, cudaStream_t stream)
{
	FAULT("ncclBroadcast");
	return put_off((struct operation){.kind = BROADCAST,
	                                  .send = send,
	                                  .recv = recv,
	                                  .count = count,
	                                  .type = type,
	                                  .root = root,
	                                  .comm = comm,
	                                  .stream = stream});
}
