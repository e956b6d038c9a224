// SPDX-License-Identifier: BSD-3-Clause
/*
 * sweep.c - a worker of a job of two: joins, reduces, continues in another membership, reduces, leaves
 *
 *     sweep            WINNOW_AGGREGATORS, WINNOW_JOB, RANK, and a key
 *
 * Exit status 0: all went well; 1: a call has failed, with one line that says why; 2: a result was wrong.
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/winnow.h"

#define COUNT 50000

static float data[COUNT], sums[COUNT];

static void want(int err, const char *what)
{
	if (err == WINNOW_OK)
		return;
	fprintf(stderr, "%s: %s\n", what, winnow_last_error());
	exit(1);
}

static void reduce(struct winnow_comm *comm, uint32_t rank)
{
	for (uint32_t i = 0; i < COUNT; i++)
		data[i] = i / 500 % 3 == rank ? (float)(i % 1000) : 0;
	want(winnow_allreduce(data, sums, COUNT, WINNOW_F32, WINNOW_SUM, comm), "allreduce");
	for (uint32_t i = 0; i < COUNT; i++)
		if (sums[i] != (i / 500 % 3 < 2 ? (float)(i % 1000) : 0)) {
			fprintf(stderr, "element %u is %g\n", i, (double)sums[i]);
			exit(2);
		}
}

int main(void)
{
	struct winnow_membership second = {.id = "2"};
	struct winnow_config config;
	struct winnow_comm *comm;

	winnow_config_init(&config);
	want(winnow_comm_create(&config, &comm), "create");
	reduce(comm, config.rank);
	second.rank = config.rank;
	second.world = config.world;
	want(winnow_comm_reconfigure(comm, &second), "reconfigure");
	reduce(comm, config.rank);
	winnow_comm_destroy(comm);
	return 0;
}
