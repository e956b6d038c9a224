/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_nccl.h - what the tests of nccl*.c share: nodes of processes with emulated GPUs, and tensors
 *
 * With nothing between the steps a node's allreduce is the reduction over its own GPUs. Every case
 * runs in processes of its own: one with all GPUs, or one a GPU.
 */
#ifndef TESTS_GPU_TEST_NCCL_H
#define TESTS_GPU_TEST_NCCL_H

#include <errno.h>
#include <libgen.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernels/node.h"
#include "tests/gpu/emulated/emulated.h"

extern const struct node_calls winnow_node_gpus;

#define WORLD_MAX 5
#define COUNT_MAX 20000

/* In a child assertions are exit statuses: cmocka's state is the parent's. */
#define CHECK(what)                                                                                \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #what,     \
			        why);                                                              \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static char why[NODE_WHY_BYTES];
static char library[4200];

/* What the processes of a case know of each other. */
struct meeting {
	char id[NODE_ID_BYTES];
	volatile int id_made, at[8];
};

struct process {
	struct meeting *meeting;
	uint32_t world, count, rank;
	struct node_gpus *gpus;
	cudaStream_t streams[WORLD_MAX];
	uint64_t give_up_ms; /* 0: never */
};

static inline uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static inline void nap_ms(long ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* Wait for all processes to get to point `at`. */
static inline void meet(struct process *p, int at)
{
	__atomic_add_fetch(&p->meeting->at[at], 1, __ATOMIC_SEQ_CST);
	while (p->meeting->at[at] < (int)(p->world / p->count))
		nap_ms(1);
}

static inline bool given_up(void *context)
{
	const struct process *p = context;

	return p->give_up_ms != 0 && now_ms() > p->give_up_ms;
}

static inline int open_node(struct process *p)
{
	struct node_setup setup = {
		.world = p->world,
		.rank = p->rank,
		.count = p->count,
		.given_up = given_up,
		.context = p,
	};
	int devices[WORLD_MAX], err = 0;

	if (p->rank == 0) {
		err = winnow_node_gpus.id(p->meeting->id, why);
		p->meeting->id_made = 1;
	}
	while (!p->meeting->id_made)
		nap_ms(1);
	memcpy(setup.id, p->meeting->id, NODE_ID_BYTES);
	for (uint32_t i = 0; i < p->count; i++) {
		devices[i] = (int)(p->rank + i);
		(void)cudaSetDevice(devices[i]);
		CHECK(cudaStreamCreate(&p->streams[i]) == cudaSuccess);
	}
	(void)cudaSetDevice(0);
	setup.devices = devices;
	return err != 0 ? err : winnow_node_gpus.open(&setup, &p->gpus, why);
}

static inline void close_node(struct process *p)
{
	while (!winnow_node_gpus.idle(p->gpus))
		nap_ms(1);
	winnow_node_gpus.close(p->gpus);
}

/* Run body in world / count processes; 0 if all were satisfied. `killed`: this one may die. */
static inline int run_node(uint32_t world, uint32_t count, void (*body)(struct process *p),
                           int killed)
{
	struct meeting *meeting = mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE,
	                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t children[WORLD_MAX];
	int bad = 0, status;

	memset(meeting, 0, sizeof(*meeting));
	fflush(stdout);
	for (uint32_t i = 0; i < world / count; i++) {
		children[i] = fork();
		if (children[i] == 0) {
			struct process p = {.meeting = meeting,
			                    .world = world,
			                    .count = count,
			                    .rank = i * count};

			alarm(60);
			body(&p);
			_exit(0);
		}
	}
	for (uint32_t i = 0; i < world / count; i++) {
		waitpid(children[i], &status, 0);
		bad += (int)i != killed && status != 0;
	}
	munmap(meeting, sizeof(*meeting));
	return bad;
}

/* ---- results ---- */

static const struct {
	enum dtype dtype;
	bool is_float;
} types[] = {
	{DTYPE_F32, true}, {DTYPE_F16, true},  {DTYPE_BF16, true},
	{DTYPE_F64, true}, {DTYPE_I32, false}, {DTYPE_I64, false},
};

/* Small whole numbers, which all types hold, sums and products of five of them, too. */
static inline int element(uint32_t rank, uint64_t i)
{
	return (int)((i * 7 + rank * 3 + i / 11) % 5) - 2;
}

static inline double expected(enum reduction op, uint32_t world, uint64_t i)
{
	double result = element(0, i);

	for (uint32_t rank = 1; rank < world; rank++) {
		double next = element(rank, i);

		if (op == REDUCE_PROD)
			result *= next;
		else if (op == REDUCE_MIN)
			result = next < result ? next : result;
		else if (op == REDUCE_MAX)
			result = next > result ? next : result;
		else
			result += next;
	}
	return op == REDUCE_AVG ? result / world : result;
}

static inline void put(enum dtype dtype, void *data, uint64_t i, int value)
{
	/* -4 .. 32 in 16 bits: only -2 .. 2 are put. */
	static const uint16_t f16[] = {0xc000, 0xbc00, 0, 0x3c00, 0x4000};
	float single = (float)value;
	uint32_t bits;

	memcpy(&bits, &single, sizeof(bits));
	switch (dtype) {
	case DTYPE_F32:
		((float *)data)[i] = single;
		break;
	case DTYPE_F16:
		((uint16_t *)data)[i] = f16[value + 2];
		break;
	case DTYPE_BF16:
		((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
		break;
	case DTYPE_F64:
		((double *)data)[i] = value;
		break;
	case DTYPE_I32:
		((int32_t *)data)[i] = value;
		break;
	case DTYPE_I64:
		((int64_t *)data)[i] = value;
		break;
	}
}

static inline double get(enum dtype dtype, const void *data, uint64_t i)
{
	uint16_t half = ((const uint16_t *)data)[i];
	uint32_t wide = (uint32_t)half << 16;
	float single;

	switch (dtype) {
	case DTYPE_F32:
		return (double)((const float *)data)[i];
	case DTYPE_F16: /* normal ones */
		wide = (uint32_t)(half & 0x8000) << 16 | ((uint32_t)(half & 0x7fff) << 13);
		if ((half & 0x7fff) != 0)
			wide += 112u << 23;
		break;
	case DTYPE_BF16:
		break;
	case DTYPE_F64:
		return ((const double *)data)[i];
	case DTYPE_I32:
		return (double)((const int32_t *)data)[i];
	case DTYPE_I64:
		return (double)((const int64_t *)data)[i];
	}
	memcpy(&single, &wide, sizeof(single));
	return (double)single;
}

struct run {
	enum dtype dtype;
	enum reduction op;
	uint64_t count;
	uint32_t block;
	bool in_place;
	uint32_t turn;
	/* [count of the process] */
	void *send[WORLD_MAX], *recv[WORLD_MAX];
};

static inline size_t run_bytes(const struct run *run)
{
	return (size_t)run->count * dtype_bytes(run->dtype);
}

static inline void run_begin(const struct process *p, struct run *run)
{
	size_t bytes = run_bytes(run);
	void *data = calloc(1, bytes + 8);

	for (uint32_t i = 0; i < p->count; i++) {
		for (uint64_t e = 0; e < run->count; e++)
			put(run->dtype, data, e, element(p->rank + i, e));
		(void)cudaSetDevice((int)(p->rank + i));
		CHECK(cudaMalloc(&run->send[i], bytes + 1) == cudaSuccess);
		CHECK(cudaMalloc(&run->recv[i], bytes + 1) == cudaSuccess);
		CHECK(cudaMemcpyAsync(run->send[i], data, bytes, cudaMemcpyHostToDevice,
		                      p->streams[i]) == cudaSuccess);
		if (run->in_place) {
			(void)cudaFree(run->recv[i]);
			run->recv[i] = run->send[i];
		}
	}
	(void)cudaSetDevice(0);
	free(data);
}

static inline struct node_task task_of(const struct process *p, const struct run *run)
{
	return (struct node_task){
		.send = (const void *const *)run->send,
		.recv = run->recv,
		.streams = (void *const *)p->streams,
		.count = run->count,
		.dtype = run->dtype,
		.reduction = run->op,
		.block_elems = run->block,
	};
}

static inline void run_steps(struct process *p, const struct run *run)
{
	struct node_task task = task_of(p, run);

	CHECK(winnow_node_gpus.scatter(p->gpus, run->turn, &task, why) == 0);
	CHECK(winnow_node_gpus.gather(p->gpus, run->turn, &task, why) == 0);
}

/* The caller's stream waits for the result: nothing else is waited for here. */
static inline void run_end(const struct process *p, struct run *run)
{
	size_t bytes = run_bytes(run);
	void *data = malloc(bytes + 8);

	for (uint32_t i = 0; i < p->count; i++) {
		CHECK(cudaMemcpyAsync(data, run->recv[i], bytes, cudaMemcpyDeviceToHost,
		                      p->streams[i]) == cudaSuccess);
		for (uint64_t e = 0; e < run->count; e++) {
			double want = expected(run->op, p->world, e);
			double found = get(run->dtype, data, e);
			/* Averages of five are not whole: half a unit of eleven, or eight, bits. */
			double slack = run->op == REDUCE_AVG && run->dtype != DTYPE_F64 ? 0.005 : 0;

			CHECK(found >= want - slack && found <= want + slack);
		}
		if (!run->in_place) {
			CHECK(cudaMemcpy(data, run->send[i], bytes, cudaMemcpyDefault) ==
			      cudaSuccess);
			for (uint64_t e = 0; e < run->count; e++)
				CHECK(get(run->dtype, data, e) == element(p->rank + i, e));
			CHECK(cudaFree(run->send[i]) == cudaSuccess);
		}
		CHECK(cudaFree(run->recv[i]) == cudaSuccess);
	}
	free(data);
}

static inline bool says(const char *a, const char *b)
{
	return strstr(why, a) != NULL && strstr(why, b) != NULL;
}

/* Before any case: where NCCL is, or what pretends to be it. */
static inline int find_library(void)
{
	char folder[4096] = "";

	if (readlink("/proc/self/exe", folder, sizeof(folder) - 1) < 0)
		return 1;
	snprintf(library, sizeof(library), "%s/libnccl-fake.so", dirname(folder));
	setenv("WINNOW_NCCL", library, 1);
	setenv("EMULATED_CUDA_DEVICES", "5", 1);
	return 0;
}

#endif
