// SPDX-License-Identifier: BSD-3-Clause
/*
 * device_order.c - one worker whose streams stand still while it does something else
 *
 *     device_order orders  two streams with two operations each, first one stream's and then
 *                                  the other's; on odd ranks the other way round: exit status 0
 *
 * The environment says where and who: WINNOW_AGGREGATORS, WINNOW_JOB,
 * RANK, WORLD_SIZE.
 */

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/winnow.h"

#define COUNT 100000
#define ROUNDS 20
#define JOB_ENDED 3

static struct winnow_comm *comm;
static uint32_t rank, world;

static void die(const char *what, const char *why)
{
	fprintf(stderr, "device_order %u: %s: %s\n", rank, what, why);
	exit(1);
}

#define CUDA(call)                                                                                 \
	do {                                                                                       \
		cudaError_t error_ = (call);                                                       \
		if (error_ != cudaSuccess)                                                         \
			die(#call, cudaGetErrorString(error_));                                    \
	} while (0)

static void ended(const char *what)
{
	fprintf(stderr, "device_order %u: %s: %s\n", rank, what, winnow_last_error());
	exit(JOB_ENDED);
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
		ended("winnow_allreduce_async");
}

/* The same operation again, on what its stream holds by then. */
static void submit_again(struct tensor *t, uint64_t tag)
{
	struct winnow_options options = {
		.tag = tag, .memory = WINNOW_MEMORY_CUDA, .stream = t->stream};

	if (winnow_allreduce_async(t->device, t->device, COUNT, WINNOW_F32, WINNOW_SUM, &options,
	                           comm, NULL) != WINNOW_OK)
		ended("winnow_allreduce_async");
}

/* `times`: each further one has added up what was the same everywhere. */
static void check(struct tensor *t, uint64_t tag, uint32_t times)
{
	CUDA(cudaMemcpyAsync(t->host, t->device, COUNT * sizeof(float), cudaMemcpyDeviceToHost,
	                     t->stream));
	CUDA(cudaStreamSynchronize(t->stream));
	if (winnow_comm_check(comm) != WINNOW_OK)
		ended("winnow_comm_check");
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

int main(int argc, char **argv)
{
	struct winnow_config config;

	if (argc != 2 || strcmp(argv[1], "orders") != 0) {
		fprintf(stderr, "device_order: see the head of tests/gpu/device_order.c\n");
		return 2;
	}
	winnow_config_init(&config);
	config.insecure_no_key = 1;
	rank = config.rank;
	world = config.world;
	if (winnow_comm_create(&config, &comm) != WINNOW_OK)
		ended("winnow_comm_create");
	orders();
	winnow_comm_destroy(comm);
	return 0;
}
