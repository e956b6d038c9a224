// SPDX-License-Identifier: BSD-3-Clause
/*
 * caller.c - a worker of a job that calls when it is told to, or all the time, for tests of what happens beside it
 *
 *     caller RANK WORLD [BYTES]     WINNOW_AGGREGATORS, WINNOW_JOB and the rest as for any job
 *
 * Each line of stdin is a number of elements: that many ones are summed, and "ok" is said on stdout.
 * Between two lines the worker is alive and does not call. It leaves at "leave". With BYTES it sums a tensor of so
 * many again and again, until SIGTERM to rank 0 ends the job, which says so to the others in the tensor's first
 * block; a tenth of the blocks is non-zero. Every element of every sum is checked. Exit status 1 with one line on
 * stderr when a call fails.
 */

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/winnow.h"

#define BLOCK 256
#define PAUSE_US 5000 /* after each sum: what runs beside it has most of the CPUs */

static volatile sig_atomic_t told;

static void tell(int number)
{
	(void)number;
	told = 1;
}

/* What a worker gives of a block in a turn: one number, so that a sum takes no time to foresee. */
static float given(uint64_t block, uint32_t rank, uint64_t turn)
{
	uint64_t mixed = (block * 31 + rank * 7 + turn) * UINT64_C(0x9e3779b97f4a7c15) >> 40;

	return mixed % 10 == 0 ? (float)(mixed % 64) : 0;
}

/* The first block: 1 in its first element when rank 0 has been told, but not before it has done a little. */
static void fill(float *data, uint64_t blocks, uint32_t rank, uint64_t turn)
{
	for (uint64_t block = 1; block < blocks; block++) {
		float value = given(block, rank, turn);

		for (uint64_t i = 0; i < BLOCK; i++)
			data[block * BLOCK + i] = value;
	}
	data[0] = rank == 0 && told && turn > 10 ? 1 : 0;
}

static uint64_t wrong(const float *data, uint64_t blocks, uint32_t world, uint64_t turn)
{
	uint64_t count = 0;

	for (uint64_t block = 1; block < blocks; block++) {
		float sum = 0;

		for (uint32_t rank = 0; rank < world; rank++)
			sum += given(block, rank, turn);
		for (uint64_t i = 0; i < BLOCK; i++)
			count += data[block * BLOCK + i] != sum;
	}
	return count;
}

static int sum_on(struct winnow_comm *comm, const struct winnow_config *config, uint64_t blocks)
{
	float *data = calloc(blocks, BLOCK * sizeof(*data));
	uint64_t turn = 0, bad = 0;
	int err = data == NULL ? WINNOW_ERR_MEMORY : WINNOW_OK;

	while (err == WINNOW_OK && bad == 0 && data[0] == 0) {
		fill(data, blocks, config->rank, ++turn);
		err = winnow_allreduce(data, data, blocks * BLOCK, WINNOW_F32, WINNOW_SUM, comm);
		if (err == WINNOW_OK)
			bad = wrong(data, blocks, config->world, turn);
		usleep(PAUSE_US);
	}
	free(data);
	if (err != WINNOW_OK)
		fprintf(stderr, "%s\n", winnow_last_error());
	else if (bad > 0)
		fprintf(stderr, "%llu elements of sum %llu are wrong\n", (unsigned long long)bad,
		        (unsigned long long)turn);
	else
		printf("%llu sums, all right\n", (unsigned long long)turn);
	return err != WINNOW_OK || bad > 0;
}

static int sum_ones(struct winnow_comm *comm, uint64_t count, uint32_t world)
{
	float *data = malloc((count + 1) * sizeof(*data));
	int err = data == NULL ? WINNOW_ERR_MEMORY : WINNOW_OK;
	uint64_t wrong = 0;

	for (uint64_t i = 0; i < count && err == WINNOW_OK; i++)
		data[i] = 1;
	if (err == WINNOW_OK)
		err = winnow_allreduce(data, data, count, WINNOW_F32, WINNOW_SUM, comm);
	for (uint64_t i = 0; i < count && err == WINNOW_OK; i++)
		wrong += data[i] != (float)world;
	free(data);
	if (err != WINNOW_OK)
		fprintf(stderr, "%s\n", winnow_last_error());
	else if (wrong > 0)
		fprintf(stderr, "%llu elements are wrong\n", (unsigned long long)wrong);
	else
		puts("ok");
	return err != WINNOW_OK || wrong > 0;
}

int main(int argc, char **argv)
{
	struct winnow_config config;
	struct winnow_comm *comm;
	int status = 0;
	char line[64];

	if (argc < 3) {
		fprintf(stderr, "usage: caller RANK WORLD [BYTES]\n");
		return 2;
	}
	if (argc > 3)
		signal(SIGTERM, tell);
	setvbuf(stdout, NULL, _IOLBF, 0);
	winnow_config_init(&config);
	config.rank = (uint32_t)strtoul(argv[1], NULL, 10);
	config.world = (uint32_t)strtoul(argv[2], NULL, 10);
	config.block = argc > 3 ? BLOCK : config.block;
	if (winnow_comm_create(&config, &comm) != WINNOW_OK) {
		fprintf(stderr, "%s\n", winnow_last_error());
		return 1;
	}
	if (argc > 3)
		status = sum_on(comm, &config,
		                strtoull(argv[3], NULL, 10) / (BLOCK * sizeof(float)));
	while (argc == 3 && status == 0 && fgets(line, sizeof(line), stdin) != NULL &&
	       strcmp(line, "leave\n") != 0)
		status = sum_ones(comm, strtoull(line, NULL, 10), config.world);
	winnow_comm_destroy(comm);
	return status;
}
