// SPDX-License-Identifier: BSD-3-Clause
/*
 * tiles.c - a worker whose matrix has columns of zeros, for test_tiles.sh
 *
 *     tiles RANK WORLD ROWS COLUMNS TILE_ROWS TILE_COLUMNS      WINNOW_AGGREGATORS and the rest as for any job
 *
 * One column in 20 is not zero on rank 0, and on each other rank one in 100 of the others. The matrix is
 * summed, in tiles unless TILE_ROWS is 0. One line says how many bytes this worker has sent and how many
 * elements are wrong. A call that fails: its result and line on stderr, and then, if the job goes on, the
 * matrix is summed once more, without tiles. Exit status 0: all is right; 1: a call failed.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/winnow.h"

static uint64_t rows, columns;

static bool is_set(uint64_t column, uint32_t rank)
{
	return rank == 0 ? column % 20 == 7 : column % 100 == 10 + rank;
}

/* Of all workers, if `world` is not 0. */
static float value(uint64_t row, uint64_t column, uint32_t rank, uint32_t world)
{
	float sum = 0;

	for (uint32_t r = world > 0 ? 0 : rank; r < (world > 0 ? world : rank + 1); r++)
		sum += is_set(column, r) ? (float)(1 + r + row % 1000) : 0;
	return sum;
}

static int reduce(struct winnow_comm *comm, float *data, uint32_t tile_rows, uint32_t tile_columns)
{
	const struct winnow_segment segment = {.count = rows * columns,
	                                       .row = columns,
	                                       .tile_rows = tile_rows,
	                                       .tile_columns = tile_columns};
	struct winnow_request *request;
	uint32_t rank = winnow_comm_rank(comm), world = winnow_comm_world(comm);
	struct winnow_stats before, after;
	uint64_t wrong = 0;
	int err;

	for (uint64_t i = 0; i < rows * columns; i++)
		data[i] = value(i / columns, i % columns, rank, 0);
	winnow_comm_stats(comm, &before);
	err = winnow_allreduce_segments_async(data, data, rows * columns, WINNOW_F32, WINNOW_SUM,
	                                      &segment, tile_rows > 0, NULL, comm, &request);
	if (err == WINNOW_OK)
		err = winnow_wait(request, -1, NULL);
	winnow_request_free(&request);
	if (err != WINNOW_OK) {
		fprintf(stderr, "%s: %s\n", winnow_strerror(err), winnow_last_error());
		return err;
	}
	winnow_comm_stats(comm, &after);
	for (uint64_t i = 0; i < rows * columns; i++)
		wrong += data[i] != value(i / columns, i % columns, 0, world);
	printf("%llu bytes sent, %llu wrong\n",
	       (unsigned long long)(after.sent_bytes - before.sent_bytes),
	       (unsigned long long)wrong);
	return wrong > 0 ? -1 : WINNOW_OK;
}

int main(int argc, char **argv)
{
	struct winnow_config config;
	struct winnow_comm *comm;
	uint32_t numbers[6];
	float *data;
	int err;

	if (argc != 7) {
		fprintf(stderr, "usage: tiles RANK WORLD ROWS COLUMNS TILE_ROWS TILE_COLUMNS\n");
		return 2;
	}
	for (int i = 0; i < 6; i++)
		numbers[i] = (uint32_t)strtoul(argv[i + 1], NULL, 10);
	winnow_config_init(&config);
	config.rank = numbers[0];
	config.world = numbers[1];
	rows = numbers[2];
	columns = numbers[3];
	data = malloc(rows * columns * sizeof(*data));
	if (data == NULL || winnow_comm_create(&config, &comm) != WINNOW_OK) {
		fprintf(stderr, "%s\n", winnow_last_error());
		return 1;
	}
	err = reduce(comm, data, numbers[4], numbers[5]);
	if (err == WINNOW_ERR_INVALID)
		(void)reduce(comm, data, 0, 0);
	winnow_comm_destroy(comm);
	free(data);
	return err != WINNOW_OK;
}
