// SPDX-License-Identifier: BSD-3-Clause
/*
 * count_malloc.c - preloaded into winnowd: counts what its data threads allocate
 *
 * Prints one line when the process ends. Data threads are those named winnow-data.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

static atomic_ulong in_data_threads, in_others;

static void count(void)
{
	char name[16] = "";

	prctl(PR_GET_NAME, name);
	if (strncmp(name, "winnow-data", 11) == 0)
		atomic_fetch_add(&in_data_threads, 1);
	else
		atomic_fetch_add(&in_others, 1);
}

void *malloc(size_t bytes)
{
	static void *(*real)(size_t);

	if (real == NULL)
		*(void **)&real = dlsym(RTLD_NEXT, "malloc");
	count();
	return real(bytes);
}

void *realloc(void *memory, size_t bytes)
{
	static void *(*real)(void *, size_t);

	if (real == NULL)
		*(void **)&real = dlsym(RTLD_NEXT, "realloc");
	count();
	return real(memory, bytes);
}

__attribute__((destructor)) static void report(void)
{
	fprintf(stderr, "allocations: data threads %lu, others %lu\n", in_data_threads, in_others);
}
