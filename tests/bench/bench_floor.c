// SPDX-License-Identifier: BSD-3-Clause
/*
 * bench_floor.c - the least CPU time of an operation: its tensor is read once, and its result is cleared once
 *
 *   bench_floor BYTES
 *
 * Prints milliseconds of CPU time, of the median of eleven turns: to read, to clear past the caches, and both. So it
 * can be held against the CPU time of a sparse operation that is not in place.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TURNS 11

static double cpu_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* Eight words at a time, so that no operation waits for the one before. */
static uint64_t read_all(const uint64_t *words, size_t count)
{
	uint64_t seen[8] = {0}, all = 0;

	for (size_t i = 0; i + 8 <= count; i += 8)
		for (size_t k = 0; k < 8; k++)
			seen[k] |= words[i + k];
	for (size_t k = 0; k < 8; k++)
		all |= seen[k];
	return all;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double ms[TURNS])
{
	qsort(ms, TURNS, sizeof(*ms), ascending);
	return ms[TURNS / 2];
}

int main(int argc, char **argv)
{
	size_t bytes = argc == 2 ? strtoull(argv[1], NULL, 10) / 64 * 64 : 0;
	uint64_t *tensor = bytes > 0 ? aligned_alloc(64, bytes) : NULL;
	uint64_t *result = bytes > 0 ? aligned_alloc(64, bytes) : NULL;
	double reads[TURNS], clears[TURNS];
	uint64_t seen = 0;

	if (tensor == NULL || result == NULL) {
		fprintf(stderr, "bench_floor: want bytes that there is memory for\n");
		return 2;
	}
	memset(tensor, 0, bytes);
	memset(result, 1, bytes);
	for (int i = 0; i < TURNS; i++) {
		double start = cpu_ms();

		seen |= read_all(tensor, bytes / sizeof(*tensor));
		reads[i] = cpu_ms() - start;
		start = cpu_ms();
		memset(result, (int)seen, bytes);
		clears[i] = cpu_ms() - start;
	}
	printf("%.2f %.2f %.2f\n", median(reads), median(clears),
	       reads[TURNS / 2] + clears[TURNS / 2]);
	free(tensor);
	free(result);
	return seen == 0 ? 0 : 1;
}
