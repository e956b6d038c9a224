// SPDX-License-Identifier: BSD-3-Clause
/* nccl_comms.c - NCCL's communicators of a node: made, waited for, ended */

#if __has_include(<nccl.h>)

#include "kernels/nccl_node.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SETTLE_SPINS 2000
#define FINALIZE_MS 2000

int nccl_make_id(char *id, char *why)
{
	ncclUniqueId made;
	int err = nccl_open(why);

	TRY_NCCL(err, 0, GetUniqueId, (&made));
	if (err == 0)
		memcpy(id, &made, NODE_ID_BYTES);
	return err;
}

/* ---- waiting ---- */

ncclComm_t which_scatter(const struct node_gpu *gpu)
{
	return gpu->scatter;
}

ncclComm_t which_gather(const struct node_gpu *gpu)
{
	return gpu->gather;
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Only when all communicators have done what was asked of them is it in the streams. */
int settle(struct node_gpus *gpus, which_comm which, const char *call, char *why)
{
	for (uint32_t i = 0; i < gpus->count; i++) {
		const struct node_gpu *gpu = &gpus->gpu[i];
		ncclResult_t result = ncclInProgress;
		int err = 0;

		for (unsigned spins = 0; result == ncclInProgress; spins++) {
			TRY_NCCL(err, gpu->device, CommGetAsyncError, (which(gpu), &result));
			if (err != 0)
				return err;
			if (result != ncclInProgress)
				break;
			if (spins < SETTLE_SPINS) {
				sched_yield();
				continue;
			}
			if (gpus->given_up(gpus->context)) {
				snprintf(why, NODE_WHY_BYTES,
				         "%s on GPU %d: the node's other GPUs did not come", call,
				         gpu->device);
				return -ECANCELED;
			}
			nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
		}
		if (result != ncclSuccess)
			return nccl_failed(why, call, gpu->device, result);
	}
	return 0;
}

/* ---- opening and closing ---- */

/*
 * Streams of one priority share the device's queues: see gpu_start.c. Those of the turns have the lowest,
 * where it is no harm to stand still. What is asked for in `last` comes later than other processes
 * may have what follows in a turn: in a queue with that, each would wait for the other. With the
 * highest it would stand in the way of the library's own streams; so it has one in between.
 */
static int open_gpu(struct node_gpu *gpu, char *why)
{
	int least = 0, greatest = 0, err = 0;

	TRY_CUDA(err, gpu->device, cudaSetDevice, (gpu->device));
	TRY_CUDA(err, gpu->device, cudaDeviceGetStreamPriorityRange, (&least, &greatest));
	TRY_CUDA(err, gpu->device, cudaStreamCreateWithPriority,
	         (&gpu->last, cudaStreamNonBlocking, (least + greatest) / 2));
	for (uint32_t turn = 0; turn < NODE_TURNS; turn++) {
		TRY_CUDA(err, gpu->device, cudaStreamCreateWithPriority,
		         (&gpu->streams[turn], cudaStreamNonBlocking, least));
		TRY_CUDA(err, gpu->device, cudaEventCreateWithFlags,
		         (&gpu->ready[turn], cudaEventDisableTiming));
		TRY_CUDA(err, gpu->device, cudaEventCreateWithFlags,
		         (&gpu->over[turn], cudaEventDisableTiming));
	}
	return err;
}

/* Both communicators of all GPUs. */
static int open_comms(struct node_gpus *gpus, const char *id, char *why)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclUniqueId unique;
	int err = 0;

	config.blocking = 0;
	memcpy(&unique, id, NODE_ID_BYTES);
	TRY_NCCL(err, gpus->gpu[0].device, GroupStart, ());
	for (uint32_t i = 0; i < gpus->count; i++) {
		struct node_gpu *gpu = &gpus->gpu[i];

		TRY_CUDA(err, gpu->device, cudaSetDevice, (gpu->device));
		TRY_NCCL(err, gpu->device, CommInitRankConfig,
		         (&gpu->scatter, (int)gpus->world, unique, (int)(gpus->rank + i), &config));
	}
	TRY_NCCL(err, gpus->gpu[0].device, GroupEnd, ());
	if (err == 0)
		err = settle(gpus, which_scatter, "ncclCommInitRankConfig", why);
	TRY_NCCL(err, gpus->gpu[0].device, GroupStart, ());
	for (uint32_t i = 0; i < gpus->count; i++) {
		struct node_gpu *gpu = &gpus->gpu[i];

		TRY_NCCL(err, gpu->device, CommSplit,
		         (gpu->scatter, 0, (int)(gpus->rank + i), &gpu->gather, &config));
	}
	TRY_NCCL(err, gpus->gpu[0].device, GroupEnd, ());
	/* What is split off is there, and can be asked, when what it comes from is done with it. */
	if (err == 0)
		err = settle(gpus, which_scatter, "ncclCommSplit", why);
	return err != 0 ? err : settle(gpus, which_gather, "ncclCommSplit", why);
}

/*
 * All as one, which NCCL 2.22 and newer can: to abort one alone may wait for all that its GPU does, and so
 * without end for what another one has under way.
 */
void nccl_abort(struct node_gpus *gpus)
{
	(void)nccl.GroupStart();
	for (uint32_t i = 0; i < gpus->count; i++) {
		struct node_gpu *gpu = &gpus->gpu[i];

		if (gpu->scatter != NULL)
			(void)nccl.CommAbort(gpu->scatter);
		if (gpu->gather != NULL)
			(void)nccl.CommAbort(gpu->gather);
		gpu->gather = gpu->scatter = NULL;
	}
	(void)nccl.GroupEnd();
	(void)cudaGetLastError();
}

/* A rank that has gone without a word is not waited for long. */
static bool finalized(ncclComm_t comm, uint64_t until_ms)
{
	ncclResult_t result = nccl.CommFinalize(comm);

	while (result == ncclInProgress && now_ms() < until_ms) {
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
		if (nccl.CommGetAsyncError(comm, &result) != ncclSuccess)
			return false;
	}
	return result == ncclSuccess;
}

static void close_comm(ncclComm_t comm, uint64_t until_ms)
{
	if (comm == NULL)
		return;
	if (finalized(comm, until_ms))
		(void)nccl.CommDestroy(comm);
	else
		(void)nccl.CommAbort(comm);
}

void nccl_close_gpus(struct node_gpus *gpus)
{
	uint64_t until_ms = now_ms() + FINALIZE_MS;
	int before = 0;

	(void)cudaGetDevice(&before);
	for (uint32_t i = 0; i < gpus->count; i++) {
		struct node_gpu *gpu = &gpus->gpu[i];

		(void)cudaSetDevice(gpu->device);
		close_comm(gpu->gather, until_ms);
		close_comm(gpu->scatter, until_ms);
		if (gpu->last != NULL)
			(void)cudaStreamDestroy(gpu->last);
		for (uint32_t turn = 0; turn < NODE_TURNS; turn++) {
			if (gpu->streams[turn] != NULL)
				(void)cudaStreamDestroy(gpu->streams[turn]);
			if (gpu->ready[turn] != NULL)
				(void)cudaEventDestroy(gpu->ready[turn]);
			if (gpu->over[turn] != NULL)
				(void)cudaEventDestroy(gpu->over[turn]);
		}
	}
	(void)cudaSetDevice(before);
	(void)cudaGetLastError();
	free(gpus);
}

int nccl_open_gpus(const struct node_setup *setup, struct node_gpus **out, char *why)
{
	struct node_gpus *gpus;
	int before = 0, err = nccl_open(why);

	if (err != 0)
		return err;
	gpus = calloc(1, sizeof(*gpus));
	if (gpus == NULL) {
		snprintf(why, NODE_WHY_BYTES, "out of memory");
		return -ENOMEM;
	}
	gpus->world = setup->world;
	gpus->rank = setup->rank;
	gpus->count = setup->count;
	gpus->given_up = setup->given_up;
	gpus->context = setup->context;
	TRY_CUDA(err, setup->devices[0], cudaGetDevice, (&before));
	for (uint32_t i = 0; i < gpus->count && err == 0; i++) {
		gpus->gpu[i].device = setup->devices[i];
		err = open_gpu(&gpus->gpu[i], why);
	}
	if (err == 0)
		err = open_comms(gpus, setup->id, why);
	(void)cudaSetDevice(before);
	if (err != 0) {
		nccl_abort(gpus);
		nccl_close_gpus(gpus);
		return err;
	}
	*out = gpus;
	return 0;
}

#else
typedef int nccl_comms_is_empty;
#endif
