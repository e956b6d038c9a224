/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_ends.h - how workers that try out a GPU join, and end when something is wrong
 *
 * Lines on stderr begin with PROGRAM and the worker's rank.
 */
#ifndef TESTS_GPU_DEVICE_ENDS_H
#define TESTS_GPU_DEVICE_ENDS_H

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/winnow.h"

#define JOB_ENDED 3 /* exit status: an operation has failed, as it should where somebody dies */

static uint32_t rank, world;

static _Noreturn void die(const char *what, const char *why)
{
	fprintf(stderr, PROGRAM " %u: %s: %s\n", rank, what, why);
	exit(1);
}

static _Noreturn void job_ended(const char *what)
{
	fprintf(stderr, PROGRAM " %u: %s: %s\n", rank, what, winnow_last_error());
	exit(JOB_ENDED);
}

#define CUDA(call)                                                                                 \
	do {                                                                                       \
		cudaError_t error_ = (call);                                                       \
		if (error_ != cudaSuccess)                                                         \
			die(#call, cudaGetErrorString(error_));                                    \
	} while (0)

/* The job of the environment, which says rank and world, too. */
static struct winnow_comm *join_job(void)
{
	struct winnow_config config;
	struct winnow_comm *joined;

	winnow_config_init(&config);
	config.insecure_no_key = 1;
	rank = config.rank;
	world = config.world;
	if (winnow_comm_create(&config, &joined) != WINNOW_OK)
		job_ended("winnow_comm_create");
	return joined;
}

#endif /* TESTS_GPU_DEVICE_ENDS_H */
