// SPDX-License-Identifier: BSD-3-Clause
/*
 * fail_malloc.c - preloaded into a program: FAIL_AT=N lets the N-th piece of memory that it asks for not be there,
 * FAIL_AT=N+ all from the N-th on, whoever asks: ours, jansson, libuv, OpenSSL, libc. FAIL_COUNT=FILE: how many it asked for.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* glibc's own, by the names that it has for replacements like these. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static atomic_ulong asked;
static unsigned long fail_at;
static bool all_later;

__attribute__((constructor)) static void begin(void)
{
	const char *at = getenv("FAIL_AT");

	atomic_store(&asked, 0); /* what was asked for before main() is the loader's */
	if (at != NULL) {
		all_later = strchr(at, '+') != NULL;
		fail_at = strtoul(at, NULL, 10);
	}
}

__attribute__((destructor)) static void end(void)
{
	const char *path = getenv("FAIL_COUNT");
	const int file = path != NULL ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;

	if (file >= 0)
		dprintf(file, "%lu\n", atomic_load(&asked));
}

static bool fails(void)
{
	const unsigned long number = atomic_fetch_add(&asked, 1) + 1;

	if (fail_at == 0 || !(number == fail_at || (all_later && number > fail_at)))
		return false;
	errno = ENOMEM;
	return true;
}

void *malloc(size_t bytes)
{
	return fails() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
	return fails() ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
	return fails() ? NULL : __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
	return fails() ? NULL : __libc_memalign(alignment, bytes);
}
