// SPDX-License-Identifier: BSD-3-Clause
/*
 * sweep.c - a worker of a job of two: joins, reduces, continues in another membership, reduces, leaves
 *
 *     sweep moves      WINNOW_AGGREGATORS, WINNOW_JOB, RANK, and a key
 *     sweep dies       rank 1 dies after the first operation, and rank 0 continues alone, at the second try if need be
 *
 * Exit status 0: all went well; 1: a call has failed, with one line that says why; 2: a result was wrong.
 */

#include <stdbool.h>
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

static int sum(struct winnow_comm *comm)
{
	return winnow_allreduce(data, sums, COUNT, WINNOW_F32, WINNOW_SUM, comm);
}

static void reduce(struct winnow_comm *comm)
{
	const uint32_t rank = winnow_comm_rank(comm), world = winnow_comm_world(comm);

	for (uint32_t i = 0; i < COUNT; i++)
		data[i] = i / 500 % 3 == rank ? (float)(i % 1000) : 0;
	want(sum(comm), "allreduce");
	for (uint32_t i = 0; i < COUNT; i++)
		if (sums[i] != (i / 500 % 3 < world ? (float)(i % 1000) : 0)) {
			fprintf(stderr, "element %u is %g\n", i, (double)sums[i]);
			exit(2);
		}
}

/* The other worker is dead. An operation that ends with MEMORY may not have begun, and then has not noticed it. */
static void fails(struct winnow_comm *comm)
{
	int result = sum(comm);

	if (result == WINNOW_ERR_MEMORY)
		result = sum(comm);
	if (result != WINNOW_OK)
		return;
	fprintf(stderr, "an operation without the other worker ends well\n");
	exit(2);
}

int main(int argc, char **argv)
{
	const bool dies = argc > 1 && strcmp(argv[1], "dies") == 0;
	struct winnow_membership second = {.id = dies ? NULL : "2"};
	struct winnow_config config;
	struct winnow_comm *comm;

	winnow_config_init(&config);
	want(winnow_comm_create(&config, &comm), "create");
	reduce(comm);
	if (dies && config.rank == 1)
		_exit(0);
	if (dies)
		fails(comm);
	second.rank = config.rank;
	second.world = dies ? 1 : config.world;
	if (!dies || winnow_comm_reconfigure(comm, &second) != WINNOW_OK)
		want(winnow_comm_reconfigure(comm, &second), "reconfigure");
	reduce(comm);
	winnow_comm_destroy(comm);
	return 0;
}
