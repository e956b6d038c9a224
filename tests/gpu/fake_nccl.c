// SPDX-License-Identifier: BSD-3-Clause
/*
 * fake_nccl.c - a libnccl.so.2 for the emulated CUDA: real reductions, over shared memory
 *
 * It is as difficult as the real one. Calls return before anything has happened, and their work
 * gets into the streams only while the caller polls ncclCommGetAsyncError(). A missing rank is
 * waited for without end, until ncclCommAbort(). Outside a group, ncclCommAbort() itself waits for
 * the work of the process's other communicators. Two threads that use a communicator at once are
 * reported.
 *
 * FAKE_NCCL_FAIL="ncclAllGather:2=1,async:3=6": the second call of that name in this process
 * returns 1; from the third call on, ncclCommGetAsyncError() answers 6. A name that matches no call
 * ends the program with one line, because a fault that is never reached tests nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/gpu/emulated/emulated.h"
#include "tests/gpu/fake_nccl.h"

#define EXPORT __attribute__((visibility("default")))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct operation *waiting, **waiting_end = &waiting; /* asked for, not in the streams yet */
static ncclComm_t comms;                                    /* of this process */
static _Thread_local int group_depth;

/* ---- faults ---- */

/* Names that can fail, one after the other in a section of their own, with their calls so far. */
struct fault_name {
	const char *name;
	unsigned long calls;
};
extern struct fault_name __start_fake_names[], __stop_fake_names[];

#define FAULT(name, due)                                                                           \
	static struct fault_name here __attribute__((section("fake_names"), used)) = {name, 0};    \
	ncclResult_t due = fault(&here)
#define FAIL(name)                                                                                 \
	do {                                                                                       \
		FAULT(name, due);                                                                  \
		if (due != ncclSuccess)                                                            \
			return due;                                                                \
	} while (0)

static bool is_known(const char *name, size_t length)
{
	/* cppcheck-suppress comparePointers ; the linker's two ends of one section */
	for (struct fault_name *at = __start_fake_names; at < __stop_fake_names; at++)
		if (strlen(at->name) == length && strncmp(at->name, name, length) == 0)
			return true;
	return false;
}

/* What the environment says of this call. */
static ncclResult_t fault(struct fault_name *here)
{
	const char *at = getenv("FAKE_NCCL_FAIL");
	ncclResult_t result = ncclSuccess;

	here->calls++;
	while (at != NULL && *at != '\0') {
		size_t length = strcspn(at, ":");
		unsigned long call, value;
		int used = 0;

		if (sscanf(at + length, ":%lu=%lu%n", &call, &value, &used) != 2 || call == 0 ||
		    !is_known(at, length)) {
			fprintf(stderr, "fake NCCL: no fault, want CALL:NUMBER=RESULT: %s\n", at);
			abort();
		}
		if (strlen(here->name) == length && strncmp(here->name, at, length) == 0 &&
		    (strcmp(here->name, "async") == 0 ? here->calls >= call : here->calls == call))
			result = (ncclResult_t)value;
		at += length + (size_t)used;
		at += *at == ',';
	}
	return result;
}

/* ---- communicators ---- */

/* Has any communicator that nobody has aborted something in a stream? */
static bool others_run(void)
{
	bool any = false;

	pthread_mutex_lock(&lock);
	for (ncclComm_t comm = comms; comm != NULL; comm = comm->next)
		any = any || (!fake_given_up(comm) && atomic_load(&comm->under_way) > 0);
	pthread_mutex_unlock(&lock);
	return any;
}

/* Under the lock. */
static void unuse(ncclComm_t comm)
{
	ncclComm_t *at = &comms;

	if (--comm->users > 0)
		return;
	while (*at != comm)
		at = &(*at)->next;
	*at = comm->next;
	munmap(comm->shared, sizeof(*comm->shared));
	free(comm);
}

/* Under the lock: what has been put off for a communicator, one by one. */
static struct operation *take(ncclComm_t comm)
{
	struct operation **at = &waiting, *op;

	while (*at != NULL && (*at)->comm != comm)
		at = &(*at)->next;
	op = *at;
	if (op == NULL)
		return NULL;
	*at = op->next;
	if (op->next == NULL)
		waiting_end = at;
	return op;
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

	FAIL("ncclGetUniqueId");
	clock_gettime(CLOCK_MONOTONIC, &now);
	memset(id, 0, sizeof(*id));
	snprintf(id->internal, sizeof(id->internal), "/winnow-fake-nccl-%d-%u-%ld", (int)getpid(),
	         atomic_fetch_add(&count, 1), now.tv_nsec);
	return ncclSuccess;
}

/* All come to the same name; who is last takes it away. */
EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int world, ncclUniqueId id, int rank,
                                           ncclConfig_t *config)
{
	ncclComm_t comm;
	int fd;

	FAIL("ncclCommInitRankConfig");
	*out = NULL;
	if (world < 1 || world > RANKS_MAX || rank < 0 || rank >= world || id.internal[0] != '/' ||
	    config->magic != 0xcafebeef || config->blocking != 0)
		return ncclInvalidArgument;
	comm = calloc(1, sizeof(*comm));
	fd = shm_open(id.internal, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (comm == NULL || fd < 0 || ftruncate(fd, sizeof(struct shared)) != 0)
		abort();
	comm->shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (comm->shared == MAP_FAILED)
		abort();
	snprintf(comm->name, sizeof(comm->name), "%s", id.internal);
	comm->world = world;
	comm->rank = rank;
	comm->users = 1;
	(void)cudaGetDevice(&comm->device);
	if (atomic_fetch_add(&comm->shared->joined, 1) + 1 == (uint32_t)world)
		shm_unlink(comm->name);
	pthread_mutex_lock(&lock);
	comm->next = comms;
	comms = comm;
	pthread_mutex_unlock(&lock);
	*out = comm;
	return ncclInProgress;
}

/* What waits for a stream goes; what is in one ends when its turn comes. */
EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	struct operation *op;

	atomic_store(&comm->aborted, true);
	shm_unlink(comm->name);
	pthread_mutex_lock(&lock);
	while ((op = take(comm)) != NULL) {
		free(op);
		unuse(comm);
	}
	unuse(comm);
	pthread_mutex_unlock(&lock);
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

/* ---- calls to streams ---- */

static cudaError_t run(void *argument)
{
	struct operation *op = argument;

	fake_perform(op);
	atomic_fetch_sub(&op->comm->under_way, 1);
	pthread_mutex_lock(&lock);
	unuse(op->comm);
	pthread_mutex_unlock(&lock);
	free(op);
	return cudaSuccess;
}

/* Two threads here at once: not even NCCL allows that of one communicator. */
static void one_thread(ncclComm_t comm, bool enters)
{
	if (atomic_fetch_add(&comm->inside, enters ? 1 : -1) != (enters ? 0 : 1)) {
		fprintf(stderr, "fake NCCL: two threads make calls at once\n");
		abort();
	}
}

static ncclResult_t put_off(struct operation what)
{
	struct operation *op = malloc(sizeof(*op));

	if (op == NULL || what.comm == NULL || !atomic_load(&what.comm->joined))
		abort();
	one_thread(what.comm, true);
	*op = what;
	pthread_mutex_lock(&lock);
	op->comm->users++;
	op->comm->questions = 0;
	*waiting_end = op;
	waiting_end = &op->next;
	pthread_mutex_unlock(&lock);
	one_thread(what.comm, false);
	return group_depth > 0 ? ncclSuccess : ncclInProgress;
}

/* Into the streams, what has been asked for. Under the lock. */
static ncclResult_t let_go(ncclComm_t comm)
{
	cudaError_t err = cudaSuccess;
	struct operation *op;
	int before = 0;

	(void)cudaGetDevice(&before);
	(void)cudaSetDevice(comm->device);
	while ((op = take(comm)) != NULL) {
		if (err == cudaSuccess)
			err = emulated_cuda_queue(op->stream, run, op);
		if (err == cudaSuccess) {
			atomic_fetch_add(&comm->under_way, 1);
		} else {
			free(op);
			unuse(comm);
		}
	}
	(void)cudaSetDevice(before);
	return err == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

/* The first question after a call is too early. */
EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
	FAULT("async", due);

	*result = due;
	if (due != ncclSuccess)
		return ncclSuccess;
	if (atomic_load(&comm->shared->joined) < (uint32_t)comm->world) {
		*result = ncclInProgress;
		return ncclSuccess;
	}
	atomic_store(&comm->joined, true);
	one_thread(comm, true);
	pthread_mutex_lock(&lock);
	*result = comm->questions++ == 0 ? ncclInProgress : let_go(comm);
	pthread_mutex_unlock(&lock);
	one_thread(comm, false);
	return ncclSuccess;
}

EXPORT ncclResult_t ncclGroupStart(void)
{
	FAIL("ncclGroupStart");
	group_depth++;
	return ncclSuccess;
}

EXPORT ncclResult_t ncclGroupEnd(void)
{
	group_depth--;
	FAIL("ncclGroupEnd");
	return ncclInProgress;
}

EXPORT ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count,
                                      ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                      cudaStream_t stream)
{
	FAIL("ncclReduceScatter");
	return put_off((struct operation){REDUCE_SCATTER, send, recv, count, type, op, 0, comm,
	                                  stream, NULL});
}

EXPORT ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
	FAIL("ncclReduce");
	return put_off(
		(struct operation){REDUCE, send, recv, count, type, op, root, comm, stream, NULL});
}

EXPORT ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                                  ncclComm_t comm, cudaStream_t stream)
{
	FAIL("ncclAllGather");
	return put_off((struct operation){ALL_GATHER, send, recv, count, type, ncclSum, 0, comm,
	                                  stream, NULL});
}

EXPORT ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                                  int root, ncclComm_t comm, cudaStream_t stream)
{
	FAIL("ncclBroadcast");
	return put_off((struct operation){BROADCAST, send, recv, count, type, ncclSum, root, comm,
	                                  stream, NULL});
}
