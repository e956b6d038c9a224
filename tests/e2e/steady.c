// SPDX-License-Identifier: BSD-3-Clause
/*
 * steady.c - a worker of a job that goes on until it is told to end, for tests of what happens beside it
 *
 *     steady RANK WORLD BYTES      WINNOW_AGGREGATORS, WINNOW_JOB and a key or none as for any job
 *
 * SIGTERM to rank 0 ends the job: it says so to the others in the tensor's first block. A tenth of
 * the blocks is non-zero, and every element of every sum is checked.
 */

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/winnow.h"

#define BLOCK 256

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

static int work(struct winnow_comm *comm, const struct winnow_config *config, uint64_t blocks)
{
	float *data = calloc(blocks, BLOCK * sizeof(*data));
	uint64_t turn = 0, bad = 0;
	int err = data == NULL ? WINNOW_ERR_MEMORY : WINNOW_OK;

	while (err == WINNOW_OK && bad == 0 && data[0] == 0) {
		fill(data, blocks, config->rank, ++turn);
		err = winnow_allreduce(data, data, blocks * BLOCK, WINNOW_F32, WINNOW_SUM, comm);
		if (err == WINNOW_OK)
			bad = wrong(data, blocks, config->world, turn);
	}
	free(data);
	if (err != WINNOW_OK)
		fprintf(stderr, "steady: rank %u: %s\n", config->rank, winnow_last_error());
	else if (bad > 0)
		fprintf(stderr, "steady: rank %u: %llu elements of sum %llu are wrong\n",
		        config->rank, (unsigned long long)bad, (unsigned long long)turn);
	else
		printf("%llu sums, all right\n", (unsigned long long)turn);
	return err != WINNOW_OK || bad > 0;
}

int main(int argc, char **argv)
{
	struct winnow_config config;
	struct winnow_comm *comm;
	int status;

	if (argc != 4) {
		fprintf(stderr, "usage: steady RANK WORLD BYTES\n");
		return 2;
	}
	signal(SIGTERM, tell);
	winnow_config_init(&config);
	config.rank = (uint32_t)strtoul(argv[1], NULL, 10);
	config.world = (uint32_t)strtoul(argv[2], NULL, 10);
	config.block = BLOCK;
	if (winnow_comm_create(&config, &comm) != WINNOW_OK) {
		fprintf(stderr, "steady: rank %u: %s\n", config.rank, winnow_last_error());
		return 1;
	}
	status = work(comm, &config, strtoull(argv[3], NULL, 10) / (BLOCK * sizeof(float)));
	winnow_comm_destroy(comm);
	return status;
}
