/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_tensor.h - what device_faults.c and device_manners.c share: a job of one worker, and a
 * tensor on an emulated GPU
 */
#ifndef TESTS_GPU_DEVICE_TENSOR_H
#define TESTS_GPU_DEVICE_TENSOR_H

#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/winnow.h"

#define COUNT 300000 /* three segments of blocks of 32 */
#define BLOCK 32

static const char *aggregator;
static uint32_t job_count;

static inline void expect(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "%s: %s (last error: %s)\n", program_invocation_short_name, what,
	        winnow_last_error());
	_exit(1);
}

static inline struct winnow_comm *join(void)
{
	struct winnow_config config;
	struct winnow_comm *comm;
	char job[64];

	snprintf(job, sizeof(job), "faults.%d.%u", (int)getpid(), job_count++);
	winnow_config_init(&config);
	config.aggregators = aggregator;
	config.job = job;
	config.rank = 0;
	config.world = 1;
	config.block = BLOCK;
	config.insecure_no_key = 1;
	expect(winnow_comm_create(&config, &comm) == WINNOW_OK, "cannot join");
	return comm;
}

static inline uint64_t clock_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ---- a tensor ---- */

struct tensor {
	float *send, *recv; /* on the GPU */
	float *host;        /* pinned */
	cudaStream_t stream;
};

static inline void tensor_open(struct tensor *t)
{
	expect(cudaMalloc((void **)&t->send, COUNT * 4) == cudaSuccess &&
	               cudaMalloc((void **)&t->recv, COUNT * 4) == cudaSuccess &&
	               cudaHostAlloc((void **)&t->host, COUNT * 4, cudaHostAllocDefault) ==
	                       cudaSuccess &&
	               cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking) == cudaSuccess,
	       "cannot make a tensor");
}

static inline void tensor_close(struct tensor *t)
{
	(void)cudaStreamDestroy(t->stream);
	(void)cudaFree(t->send);
	(void)cudaFree(t->recv);
	(void)cudaFreeHost(t->host);
}

/* Every `stride`-th block is full of i + 1, the others are zero. */
static inline float element(uint32_t i, uint32_t stride)
{
	return i / BLOCK % stride == 0 ? (float)(i % 1000 + 1) : 0;
}

static inline void fill(struct tensor *t, uint32_t stride)
{
	for (uint32_t i = 0; i < COUNT; i++)
		t->host[i] = element(i, stride);
	expect(cudaMemcpyAsync(t->send, t->host, COUNT * 4, cudaMemcpyHostToDevice, t->stream) ==
	               cudaSuccess,
	       "cannot fill a tensor");
}

static inline void fetch(struct tensor *t)
{
	expect(cudaMemcpyAsync(t->host, t->recv, COUNT * 4, cudaMemcpyDeviceToHost, t->stream) ==
	                       cudaSuccess &&
	               cudaStreamSynchronize(t->stream) == cudaSuccess,
	       "cannot fetch a tensor");
}

static inline void expect_sum(const struct tensor *t, uint32_t stride)
{
	for (uint32_t i = 0; i < COUNT; i++)
		expect(t->host[i] == element(i, stride), "a result is wrong");
}

/* A host function that holds its stream up for a while. */
static inline void CUDART_CB late(void *argument)
{
	(void)argument;
	usleep(300000);
}

static inline struct winnow_options on(cudaStream_t stream)
{
	return (struct winnow_options){.memory = WINNOW_MEMORY_CUDA, .stream = stream};
}

#endif
