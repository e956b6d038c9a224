// SPDX-License-Identifier: BSD-3-Clause
/*
 * device_order.c - one worker whose streams stand still while it does something else
 *
 *     device_order orders          two streams with two operations each, first one stream's and then
 *                                  the other's; on odd ranks the other way round: exit status 0
 *     device_order ahead           more operations in one stream than the device's queue has room for,
 *                                  while another worker is late: exit status 0
 *     device_order meanwhile CALL  rank 0 makes a call of CUDA's while its stream waits for a worker
 *                                  that is late. Exit status 0, and how long it took; 3: the job has
 *                                  ended, and its line, which is better than to wait for ever
 *
 * CALLs: see the table below. The environment says where and who: WINNOW_AGGREGATORS, WINNOW_JOB,
 * RANK, WORLD_SIZE.
 */

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/winnow.h"
#define PROGRAM "device_order"
#include "tests/gpu/device_ends.h"

#define COUNT 100000
#define ROUNDS 20
#define LATE_US 700000
#define QUEUE 3000 /* a stream holds about a thousand */
#define AHEAD 200  /* operations, each of which is several things in a stream */

static struct winnow_comm *comm;

static uint64_t clock_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ---- a tensor, and the stream that it is used in ---- */

struct tensor {
	float *device, *host;
	cudaStream_t stream;
};

static void tensor_open(struct tensor *t)
{
	CUDA(cudaMalloc((void **)&t->device, COUNT * sizeof(float)));
	CUDA(cudaHostAlloc((void **)&t->host, COUNT * sizeof(float), cudaHostAllocDefault));
	CUDA(cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking));
}

static void tensor_close(struct tensor *t)
{
	CUDA(cudaStreamDestroy(t->stream));
	CUDA(cudaFree(t->device));
	CUDA(cudaFreeHost(t->host));
}

static float element(uint32_t whose, uint64_t tag, uint32_t i)
{
	return i / 500 % 3 == 0 ? (float)(whose + tag % 100 + i % 7) : 0;
}

/* Nobody waits. */
static void submit(struct tensor *t, uint64_t tag)
{
	struct winnow_options options = {
		.tag = tag, .memory = WINNOW_MEMORY_CUDA, .stream = t->stream};

	for (uint32_t i = 0; i < COUNT; i++)
		t->host[i] = element(rank, tag, i);
	CUDA(cudaMemcpyAsync(t->device, t->host, COUNT * sizeof(float), cudaMemcpyHostToDevice,
	                     t->stream));
	if (winnow_allreduce_async(t->device, t->device, COUNT, WINNOW_F32, WINNOW_SUM, &options,
	                           comm, NULL) != WINNOW_OK)
		job_ended("winnow_allreduce_async");
}

/* The same operation again, on what its stream holds by then. */
static void submit_again(struct tensor *t, uint64_t tag)
{
	struct winnow_options options = {
		.tag = tag, .memory = WINNOW_MEMORY_CUDA, .stream = t->stream};

	if (winnow_allreduce_async(t->device, t->device, COUNT, WINNOW_F32, WINNOW_SUM, &options,
	                           comm, NULL) != WINNOW_OK)
		job_ended("winnow_allreduce_async");
}

/* `times`: each further one has added up what was the same everywhere. */
static void check(struct tensor *t, uint64_t tag, uint32_t times)
{
	CUDA(cudaMemcpyAsync(t->host, t->device, COUNT * sizeof(float), cudaMemcpyDeviceToHost,
	                     t->stream));
	CUDA(cudaStreamSynchronize(t->stream));
	if (winnow_comm_check(comm) != WINNOW_OK)
		job_ended("winnow_comm_check");
	for (uint32_t i = 0; i < COUNT; i++) {
		float want = 0;

		for (uint32_t whose = 0; whose < world; whose++)
			want += element(whose, tag, i);
		for (uint32_t time = 1; time < times; time++)
			want *= (float)world;
		if (t->host[i] != want)
			die("a result", "is wrong");
	}
}

/* A first operation, then a second, for which rank 0's stream waits: the others are late. Since when? */
static uint64_t wait_for_the_late(struct tensor *t)
{
	uint64_t begin_ms;

	tensor_open(t);
	submit(t, 1);
	check(t, 1, 1);
	if (rank != 0)
		usleep(LATE_US);
	begin_ms = clock_ms();
	submit(t, 2);
	return begin_ms;
}

/* ---- orders ---- */

static void orders(void)
{
	struct tensor tensors[2];

	for (int i = 0; i < 2; i++)
		tensor_open(&tensors[i]);
	for (uint64_t round = 0; round < ROUNDS; round++) {
		for (uint32_t turn = 0; turn < 2; turn++) {
			uint32_t which = (turn + rank) % 2;

			submit(&tensors[which], round * 4 + which * 2 + 1);
			submit_again(&tensors[which], round * 4 + which * 2 + 2);
		}
		for (uint32_t which = 0; which < 2; which++)
			check(&tensors[which], round * 4 + which * 2 + 1, 2);
	}
	for (int i = 0; i < 2; i++)
		tensor_close(&tensors[i]);
	printf("%d rounds in two orders\n", ROUNDS);
}

/* ---- ahead ---- */

static void ahead(void)
{
	struct tensor t;
	uint64_t begin_ms = wait_for_the_late(&t);

	/* The maximum of what is equal everywhere changes nothing. */
	for (uint64_t i = 1; i < AHEAD; i++) {
		struct winnow_options options = {
			.tag = 2 + i, .memory = WINNOW_MEMORY_CUDA, .stream = t.stream};

		if (winnow_allreduce_async(t.device, t.device, 3, WINNOW_F32, WINNOW_MAX, &options,
		                           comm, NULL) != WINNOW_OK)
			job_ended("winnow_allreduce_async");
	}
	check(&t, 2, 1);
	tensor_close(&t);
	printf("%d operations ahead: the result came after %u ms\n", AHEAD,
	       (unsigned)(clock_ms() - begin_ms));
}

/* ---- meanwhile ---- */

/* What calls need, had before a stream waits. */
static struct {
	void *device, *pinned;
	struct tensor other;
} ready;

static void call_malloc(void)
{
	void *memory;

	CUDA(cudaMalloc(&memory, 1 << 20));
}

static void call_host_alloc(void)
{
	void *memory;

	CUDA(cudaHostAlloc(&memory, 1 << 20, cudaHostAllocDefault));
}

static void call_create(void)
{
	cudaStream_t stream;
	cudaEvent_t event;

	CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
}

static void call_free(void)
{
	CUDA(cudaFree(ready.device));
}

static void call_free_host(void)
{
	CUDA(cudaFreeHost(ready.pinned));
}

static void call_synchronize(void)
{
	CUDA(cudaDeviceSynchronize());
}

static void call_copy(void)
{
	CUDA(cudaMemcpy(ready.other.host, ready.other.device, COUNT * sizeof(float),
	                cudaMemcpyDeviceToHost));
}

static struct tensor *waiting;

/* To memory that is not pinned, from a stream that waits: what a program does that wants to see a result. */
static void call_copy_pageable(void)
{
	float *copy = malloc(COUNT * sizeof(float));

	if (copy == NULL)
		die("malloc", "out of memory");
	CUDA(cudaMemcpyAsync(copy, waiting->device, COUNT * sizeof(float), cudaMemcpyDeviceToHost,
	                     waiting->stream));
	free(copy);
}

/* More than the stream holds. */
static void call_queue(void)
{
	for (int i = 0; i < QUEUE; i++)
		CUDA(cudaMemsetAsync(ready.device, i, 1 << 10, waiting->stream));
}

static const struct {
	const char *name;
	void (*call)(void);
} calls[] = {
	{"allocate", call_malloc},
	{"allocate-pinned", call_host_alloc},
	{"create", call_create},
	{"copy", call_copy},
	{"synchronize", call_synchronize},
	{"free", call_free},
	{"free-pinned", call_free_host},
	{"queue", call_queue},
	{"copy-pageable", call_copy_pageable},
};

static void meanwhile(const char *name)
{
	struct tensor t;
	uint64_t begin_ms;
	size_t i = 0;

	while (i < sizeof(calls) / sizeof(calls[0]) && strcmp(calls[i].name, name) != 0)
		i++;
	if (i == sizeof(calls) / sizeof(calls[0]))
		die(name, "there is no such call");
	CUDA(cudaMalloc(&ready.device, 1 << 20));
	CUDA(cudaHostAlloc(&ready.pinned, 1 << 20, cudaHostAllocDefault));
	tensor_open(&ready.other);
	waiting = &t;
	begin_ms = wait_for_the_late(&t);
	if (rank == 0)
		calls[i].call();
	check(&t, 2, 1);
	printf("%s: the result came after %u ms\n", name, (unsigned)(clock_ms() - begin_ms));
}

int main(int argc, char **argv)
{
	if (!(argc == 2 && (strcmp(argv[1], "orders") == 0 || strcmp(argv[1], "ahead") == 0)) &&
	    !(argc == 3 && strcmp(argv[1], "meanwhile") == 0)) {
		fprintf(stderr, "device_order: see the head of tests/gpu/device_order.c\n");
		return 2;
	}
	comm = join_job();
	if (argc == 2 && strcmp(argv[1], "ahead") == 0)
		ahead();
	else if (argc == 2)
		orders();
	else
		meanwhile(argv[2]);
	winnow_comm_destroy(comm);
	return 0;
}
