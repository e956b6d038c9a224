// SPDX-License-Identifier: BSD-3-Clause
/*
 * mpi_bench.c - what Open MPI makes of the tensors that winnow bench reduces
 *
 *   mpi_bench ring|blocks SIZE DENSITY OVERLAP ITERS
 *
 * ring: MPI_Allreduce of the whole tensor; the caller picks the ring with --mca. blocks: the
 * honest sparse baseline: each worker finds and packs its non-zero blocks, an allgather tells
 * everybody's number of them, an allgatherv brings everybody's bitmaps and blocks to all, and
 * everybody adds them up. Rank 0 prints one JSON object: the median, over iterations, of the
 * slowest worker's time, which starts at a barrier.
 */

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "bitmap/control/options.h"
#include "bitmap/bitmap.h"
#include "client/cli/bench/bench_state.h"

struct blocks_bench {
	const struct bitmap_engine *engine;
	struct bitmap_tensor tensor;
	uint64_t block_count, words;
	uint64_t *bits;     /* [words] ours */
	float *packed;      /* ours */
	uint64_t *all_bits; /* [world][words] */
	float *all_packed;
	int *counts, *offsets; /* [world] elements */
	float *result;
	int world;
};

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void *must(void *memory)
{
	if (memory == NULL)
		MPI_Abort(MPI_COMM_WORLD, 1);
	return memory;
}

static void blocks_open(struct blocks_bench *b, const float *tensor, uint64_t count, float *result)
{
	MPI_Comm_size(MPI_COMM_WORLD, &b->world);
	b->engine = bitmap_best();
	b->tensor = (struct bitmap_tensor){
		.data = tensor, .count = count, .block_elems = 256, .dtype = DTYPE_F32};
	b->block_count = bitmap_block_count(count, 256);
	b->words = bitmap_word_count(b->block_count);
	b->bits = must(calloc(b->words, 8));
	b->all_bits = must(calloc(b->words * (size_t)b->world, 8));
	b->packed = must(malloc(count * 4));
	b->counts = must(calloc((size_t)b->world, sizeof(int)));
	b->offsets = must(calloc((size_t)b->world, sizeof(int)));
	b->result = result;
}

static void blocks_add(struct blocks_bench *b)
{
	memset(b->result, 0, b->tensor.count * 4);
	for (int rank = 0; rank < b->world; rank++) {
		const float *from = b->all_packed + b->offsets[rank];
		const uint64_t *bits = b->all_bits + (size_t)rank * b->words;

		for (uint64_t block = 0; block < b->block_count; block++) {
			uint64_t first = block * 256, n = b->tensor.count - first;

			if (!(bits[block / 64] >> (block % 64) & 1))
				continue;
			n = n < 256 ? n : 256;
			b->engine->reduce(b->result + first, from, n, DTYPE_F32, REDUCE_SUM);
			from += n;
		}
	}
}

static void blocks_run(struct blocks_bench *b)
{
	int mine, total = 0;

	b->engine->scan(&b->tensor, b->bits);
	mine = (int)b->engine->pack(&b->tensor, b->bits, b->packed);
	MPI_Allgather(&mine, 1, MPI_INT, b->counts, 1, MPI_INT, MPI_COMM_WORLD);
	for (int rank = 0; rank < b->world; rank++) {
		b->offsets[rank] = total;
		total += b->counts[rank];
	}
	if (b->all_packed == NULL) /* the same every time */
		b->all_packed = must(malloc((size_t)total * 4 + 4));
	MPI_Allgather(b->bits, (int)b->words, MPI_UINT64_T, b->all_bits, (int)b->words,
	              MPI_UINT64_T, MPI_COMM_WORLD);
	MPI_Allgatherv(b->packed, mine, MPI_FLOAT, b->all_packed, b->counts, b->offsets, MPI_FLOAT,
	               MPI_COMM_WORLD);
	blocks_add(b);
}

static void settings_fill(struct bench_settings *settings, char **argv)
{
	int rank, world;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &world);
	*settings = (struct bench_settings){
		.comm = {.rank = (uint32_t)rank, .world = (uint32_t)world, .block = 256},
		.seed = 1,
		.dtype = WINNOW_F32,
		.op = WINNOW_SUM,
		.text.overlap = argv[4],
		.overlap = strcmp(argv[4], "random") == 0 ? PATTERN_RANDOM
	                   : strcmp(argv[4], "all") == 0  ? PATTERN_ALL
	                   : strcmp(argv[4], "none") == 0 ? PATTERN_NONE
	                                                  : PATTERN_FILE,
	};
}

int main(int argc, char **argv)
{
	struct bench_settings settings;
	struct blocks_bench blocks = {0};
	struct bench_data *data;
	uint64_t bytes, count, wrong;
	double times[1000];
	float *result;
	int iters, sparse;

	MPI_Init(&argc, &argv);
	if (argc != 6 || option_size(argv[2], &bytes) != 0) {
		fprintf(stderr, "usage: mpi_bench ring|blocks SIZE DENSITY OVERLAP ITERS\n");
		return 2;
	}
	settings_fill(&settings, argv);
	sparse = strcmp(argv[1], "blocks") == 0;
	iters = atoi(argv[5]) < 1000 ? atoi(argv[5]) : 1000;
	count = bytes / 4;
	data = must(bench_data_make(&settings, count, atof(argv[3])));
	result = must(malloc(count * 4));
	memset(result, 1, count * 4);
	blocks_open(&blocks, data->tensor, count, result);
	for (int i = -1; i < iters; i++) {
		double start, own, slowest;

		MPI_Barrier(MPI_COMM_WORLD);
		start = MPI_Wtime();
		if (sparse)
			blocks_run(&blocks);
		else
			MPI_Allreduce(data->tensor, result, (int)count, MPI_FLOAT, MPI_SUM,
			              MPI_COMM_WORLD);
		own = MPI_Wtime() - start;
		MPI_Reduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
		if (i >= 0)
			times[i] = slowest;
	}
	wrong = bench_data_check(data, result);
	qsort(times, (size_t)iters, sizeof(times[0]), ascending);
	if (settings.comm.rank == 0)
		printf("{\"system\": \"mpi-%s\", \"time_us\": %.1f, \"errors\": %llu}\n", argv[1],
		       times[iters / 2] * 1e6, (unsigned long long)wrong);
	MPI_Finalize();
	return wrong > 0;
}
