// SPDX-License-Identifier: BSD-3-Clause
/*
 * count_malloc.c - preloaded into winnowd or a worker: counts what threads allocate, by the calls that the project has
 *
 * Prints one line when the process ends: how often winnowd's data threads (winnow-data) asked for memory,
 * a communicator's thread (winnow), the main thread, and others. What libc asks for on behalf of
 * a call (strdup, fopen) comes here as well; what it maps for itself (stacks of threads, large
 * pieces of the heap) comes as the call that it is for.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* glibc's own, by the names that it has for replacements like these. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static atomic_ulong in_data_threads, in_communicators, in_main, in_others;

static void count(void)
{
	char name[16] = "";

	prctl(PR_GET_NAME, name);
	if (gettid() == getpid())
		atomic_fetch_add(&in_main, 1);
	else if (strncmp(name, "winnow-data", 11) == 0)
		atomic_fetch_add(&in_data_threads, 1);
	else if (strcmp(name, "winnow") == 0)
		atomic_fetch_add(&in_communicators, 1);
	else
		atomic_fetch_add(&in_others, 1);
}

void *malloc(size_t bytes)
{
	count();
	return __libc_malloc(bytes);
}

void *calloc(size_t number, size_t bytes)
{
	count();
	return __libc_calloc(number, bytes);
}

void *realloc(void *memory, size_t bytes)
{
	count();
	return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
	count();
	return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
	void *memory;

	count();
	if (alignment % sizeof(void *) != 0 || (alignment & (alignment - 1)) != 0)
		return EINVAL;
	memory = __libc_memalign(alignment, bytes);
	if (memory == NULL)
		return ENOMEM;
	*out = memory;
	return 0;
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	count();
	return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

__attribute__((destructor)) static void report(void)
{
	fprintf(stderr, "allocations: data threads %lu, communicators %lu, main %lu, others %lu\n",
	        in_data_threads, in_communicators, in_main, in_others);
}
