// SPDX-License-Identifier: BSD-3-Clause
/* allocate.c - allocates once by each call that count_malloc.c counts, in a thread called as the argument says */

#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const char *name;
static void *volatile kept; /* or the compiler knows better than to call */

static void *allocate(void *unused)
{
	void *aligned = NULL;

	pthread_setname_np(pthread_self(), name);
	kept = malloc(10);
	kept = calloc(10, 10);
	kept = realloc(NULL, 10);
	kept = reallocarray(NULL, 10, 10);
	kept = memalign(64, 64);
	kept = aligned_alloc(64, 64);
	kept = posix_memalign(&aligned, 64, 64) == 0 ? aligned : NULL;
	kept = valloc(10);
	kept = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	kept = strdup("text");
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	name = argc > 1 ? argv[1] : "thread";
	return pthread_create(&thread, NULL, allocate, NULL) != 0 ||
	       pthread_join(thread, NULL) != 0;
}
