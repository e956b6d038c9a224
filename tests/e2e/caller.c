// SPDX-License-Identifier: BSD-3-Clause
/*
 * caller.c - a worker of a job that calls when it is told to, for tests of who waits for whom
 *
 *     caller RANK WORLD      WINNOW_AGGREGATORS, WINNOW_JOB and the rest as for any job
 *
 * Each line of stdin is a number of elements: that many ones are summed, and "ok" is said on stdout.
 * Between two lines the worker is alive and does not call. It leaves at "leave". Exit status 1 with one
 * line on stderr when a call fails.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/winnow.h"

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

	if (argc != 3) {
		fprintf(stderr, "usage: caller RANK WORLD\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	winnow_config_init(&config);
	config.rank = (uint32_t)strtoul(argv[1], NULL, 10);
	config.world = (uint32_t)strtoul(argv[2], NULL, 10);
	if (winnow_comm_create(&config, &comm) != WINNOW_OK) {
		fprintf(stderr, "%s\n", winnow_last_error());
		return 1;
	}
	while (status == 0 && fgets(line, sizeof(line), stdin) != NULL &&
	       strcmp(line, "leave\n") != 0)
		status = sum_ones(comm, strtoull(line, NULL, 10), config.world);
	winnow_comm_destroy(comm);
	return status;
}
