// SPDX-License-Identifier: BSD-3-Clause
/*
 * mpi_compare.c - the same reductions by Open MPI and by Winnow, element by element
 *
 * Run by mpirun; WINNOW_AGGREGATORS names the aggregator. MPI is the reference: it shares
 * no code with us. Integers, minimum and maximum must be equal; floating sums may differ
 * by rounding, once per addition. Exit status 0: all agree.
 */

#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/winnow.h"

struct type {
	const char *name;
	enum winnow_dtype ours;
	MPI_Datatype theirs;
	size_t bytes;
	double unit; /* of rounding; 0: exact */
};

struct operation {
	const char *name;
	enum winnow_op ours;
	MPI_Op theirs;
};

static uint64_t state;

static uint64_t roll(void)
{
	uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* Runs of zeros and runs of values over the whole range that sums and products allow. */
static void fill(const struct type *type, const struct operation *op, void *data, size_t count)
{
	for (size_t i = 0; i < count;) {
		size_t run = 1 + roll() % 700;
		int zero = roll() % 3 != 0;

		for (; run > 0 && i < count; run--, i++) {
			double x = zero ? 0 : ldexp((double)(int64_t)roll(), -63);
			int64_t n = zero ? 0 : (int64_t)roll();

			if (op->ours == WINNOW_PROD)
				x = zero ? 0 : 0.5 + ldexp((double)(roll() >> 11), -53);
			if (type->ours == WINNOW_F32)
				((float *)data)[i] = (float)x;
			else if (type->ours == WINNOW_F64)
				((double *)data)[i] = x;
			else if (type->ours == WINNOW_I32)
				((int32_t *)data)[i] = (int32_t)(n % 1000000);
			else
				((int64_t *)data)[i] = n % 1000000;
		}
	}
}

static double value(const struct type *type, const void *data, size_t i)
{
	if (type->ours == WINNOW_F32)
		return (double)((const float *)data)[i];
	if (type->ours == WINNOW_F64)
		return ((const double *)data)[i];
	if (type->ours == WINNOW_I32)
		return ((const int32_t *)data)[i];
	return (double)((const int64_t *)data)[i];
}

static size_t differences(const struct type *type, const struct operation *op, const void *ours,
                          const void *theirs, size_t count, int world)
{
	int exact = type->unit == 0 || op->ours == WINNOW_MIN || op->ours == WINNOW_MAX;
	size_t wrong = 0;

	for (size_t i = 0; i < count; i++) {
		double a = value(type, ours, i), b = value(type, theirs, i);
		double bound = exact ? 0 : 2 * world * type->unit * (fabs(b) + world);

		wrong += !(fabs(a - b) <= bound);
	}
	return wrong;
}

static size_t compare(struct winnow_comm *comm, const struct type *type, const struct operation *op,
                      size_t count, int world)
{
	void *in = malloc(count * type->bytes + 8), *ours = malloc(count * type->bytes + 8);
	void *theirs = malloc(count * type->bytes + 8);
	size_t wrong;
	int err;

	fill(type, op, in, count);
	memset(ours, 0x77, count * type->bytes);
	MPI_Allreduce(in, theirs, (int)count, type->theirs, op->theirs, MPI_COMM_WORLD);
	err = winnow_allreduce(in, ours, count, type->ours, op->ours, comm);
	if (err != WINNOW_OK) {
		fprintf(stderr, "winnow: %s\n", winnow_last_error());
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	wrong = differences(type, op, ours, theirs, count, world);
	if (wrong > 0)
		fprintf(stderr, "%s %s of %zu: %zu elements differ\n", type->name, op->name, count,
		        wrong);
	free(in);
	free(ours);
	free(theirs);
	return wrong;
}

int main(int argc, char **argv)
{
	static const size_t counts[] = {0, 1, 255, 256, 257, 5000, 300001};
	int rank, world;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &world);
	{
		const struct type types[] = {
			{"f32", WINNOW_F32, MPI_FLOAT, 4, 0x1p-24},
			{"f64", WINNOW_F64, MPI_DOUBLE, 8, 0x1p-53},
			{"i32", WINNOW_I32, MPI_INT32_T, 4, 0},
			{"i64", WINNOW_I64, MPI_INT64_T, 8, 0},
		};
		const struct operation ops[] = {
			{"sum", WINNOW_SUM, MPI_SUM},
			{"min", WINNOW_MIN, MPI_MIN},
			{"max", WINNOW_MAX, MPI_MAX},
			{"prod", WINNOW_PROD, MPI_PROD},
		};
		struct winnow_config config;
		struct winnow_comm *comm;
		size_t wrong = 0, runs = 0;

		winnow_config_init(&config);
		config.job = "mpi";
		config.rank = (uint32_t)rank;
		config.world = (uint32_t)world;
		if (winnow_comm_create(&config, &comm) != WINNOW_OK) {
			fprintf(stderr, "winnow: %s\n", winnow_last_error());
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
		state = 1000 + (uint64_t)rank;
		for (size_t t = 0; t < 4; t++)
			for (size_t o = 0; o < 4; o++)
				for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]);
				     c++, runs++)
					wrong +=
						compare(comm, &types[t], &ops[o], counts[c], world);
		winnow_comm_destroy(comm);
		if (rank == 0)
			printf("%zu reductions compared on %d workers\n", runs, world);
		MPI_Finalize();
		return wrong > 0;
	}
}
