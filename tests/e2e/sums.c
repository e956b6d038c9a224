// SPDX-License-Identifier: BSD-3-Clause
/*
 * sums.c - a worker that exchanges largest sums as docs/COMPRESSION.md shows it, for test_sums.sh
 *
 *     sums RANK WORLD      WINNOW_AGGREGATORS and the rest as for any job
 *
 * Gradients are whole numbers, so that in the end what was given must be what has arrived and what all workers
 * remember, to the bit. One line says how many of STEPS * COUNT results are not zero, and how many elements are wrong.
 */

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/winnow.h"

#define PART 5000
#define WORLD_MAX 8
#define STEPS 6

static uint64_t count;
static float gradient[WORLD_MAX * PART], memory[WORLD_MAX * PART], sent[WORLD_MAX * PART];
static float given[WORLD_MAX * PART], arrived[WORLD_MAX * PART], share[PART], scratch[PART];

static float value(uint64_t i, uint32_t rank, uint32_t step)
{
	const uint64_t x = (i * 7919 + rank * 104729 + step * 1299709) * 0x9e3779b97f4a7c15u >> 40;

	return (float)((int64_t)(x % 201) - 100);
}

static int wait_for(int err, struct winnow_request **request)
{
	if (err == WINNOW_OK)
		err = winnow_wait(*request, -1, NULL);
	winnow_request_free(request);
	return err;
}

/* As in docs/COMPRESSION.md; the sum instead of the average, which would not be whole numbers. */
static int exchange(struct winnow_comm *comm)
{
	const struct winnow_choice own = {.chunk = 4096, .k = 41, .decay = 1};
	const struct winnow_options elements = {.block = 1};
	struct winnow_request *request = NULL;
	uint64_t part = count / winnow_comm_world(comm);
	int err = winnow_topk(gradient, memory, count, WINNOW_F32, &own, NULL);

	memcpy(sent, gradient, count * sizeof(float));
	if (err == WINNOW_OK)
		err = wait_for(winnow_reduce_scatter_async(sent, share, part, WINNOW_F32,
		                                           WINNOW_SUM, &elements, comm, &request),
		               &request);
	memset(scratch, 0, part * sizeof(float));
	if (err == WINNOW_OK)
		err = winnow_topk(share, scratch, part, WINNOW_F32, &own, NULL);
	memset(gradient, 0, count * sizeof(float));
	memcpy(gradient + winnow_comm_rank(comm) * part, share, part * sizeof(float));
	if (err == WINNOW_OK)
		err = wait_for(winnow_allreduce_async(gradient, gradient, count, WINNOW_F32,
		                                      WINNOW_SUM, &elements, comm, &request),
		               &request);
	for (uint64_t i = 0; i < count; i++)
		memory[i] += gradient[i] == 0 && isfinite(sent[i]) ? sent[i] : 0;
	return err;
}

int main(int argc, char **argv)
{
	struct winnow_config config;
	struct winnow_comm *comm;
	unsigned long chosen = 0, wrong = 0;
	int err = WINNOW_OK;

	if (argc != 3)
		return 2;
	winnow_config_init(&config);
	config.rank = (uint32_t)strtoul(argv[1], NULL, 10);
	config.world = (uint32_t)strtoul(argv[2], NULL, 10);
	if (config.world > WORLD_MAX)
		return 2;
	count = (uint64_t)config.world * PART;
	if (winnow_comm_create(&config, &comm) != WINNOW_OK) {
		fprintf(stderr, "%s\n", winnow_last_error());
		return 1;
	}
	for (uint32_t step = 0; step < STEPS && err == WINNOW_OK; step++) {
		for (uint64_t i = 0; i < count; i++)
			gradient[i] = value(i, config.rank, step);
		for (uint64_t i = 0; i < count; i++)
			for (uint32_t rank = 0; rank < config.world; rank++)
				given[i] += value(i, rank, step);
		err = exchange(comm);
		for (uint64_t i = 0; i < count; i++) {
			arrived[i] += gradient[i];
			chosen += gradient[i] != 0;
		}
	}
	if (err == WINNOW_OK)
		err = winnow_allreduce(memory, memory, count, WINNOW_F32, WINNOW_SUM, comm);
	if (err != WINNOW_OK)
		fprintf(stderr, "%s: %s\n", winnow_strerror(err), winnow_last_error());
	for (uint64_t i = 0; i < count; i++)
		wrong += given[i] != arrived[i] + memory[i];
	printf("%lu chosen, %lu wrong\n", chosen, wrong);
	winnow_comm_destroy(comm);
	return err != WINNOW_OK || wrong > 0;
}
