// SPDX-License-Identifier: BSD-3-Clause
/*
 * wrong_result.c - preloaded into winnow bench: what goes wrong with it
 *
 *     WRONG_BYTE=OFFSET:MASK     which byte of each result that has so many, and the bits to turn over in it
 *     WRONG_FORK=N               the N-th fork() fails
 *     WRONG_MEMORY=yes           posix_memalign() fails
 *     WRONG_RANK=R               only in the process whose command line has --rank=R
 *     WRONG_END=NUMBER           a process that leaves its job ends by this signal
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/winnow.h"

static uint8_t *result;
static uint64_t bytes;

static int is_here(void)
{
	const char *rank = getenv("WRONG_RANK");
	char line[4096], option[32];
	FILE *file = rank != NULL ? fopen("/proc/self/cmdline", "re") : NULL;
	size_t length;

	if (file == NULL)
		return rank == NULL;
	length = fread(line, 1, sizeof(line), file);
	fclose(file);
	sprintf(option, "--rank=%.20s", rank);
	return memmem(line, length, option, strlen(option) + 1) != NULL;
}

int winnow_allreduce_async(const void *send, void *recv, uint64_t count, enum winnow_dtype dtype,
                           enum winnow_op op, const struct winnow_options *options,
                           struct winnow_comm *comm, struct winnow_request **request)
{
	int (*real)(const void *, void *, uint64_t, enum winnow_dtype, enum winnow_op,
	            const struct winnow_options *, struct winnow_comm *, struct winnow_request **);

	*(void **)&real = dlsym(RTLD_NEXT, "winnow_allreduce_async");
	result = recv;
	bytes = count * (dtype == WINNOW_F16 || dtype == WINNOW_BF16  ? 2
	                 : dtype == WINNOW_F64 || dtype == WINNOW_I64 ? 8
	                                                              : 4);
	return real(send, recv, count, dtype, op, options, comm, request);
}

int winnow_wait(struct winnow_request *request, int64_t timeout_ms, struct winnow_op_stats *stats)
{
	int (*real)(struct winnow_request *, int64_t, struct winnow_op_stats *);
	const char *text = getenv("WRONG_BYTE");
	unsigned long at;
	unsigned mask;
	int code;

	*(void **)&real = dlsym(RTLD_NEXT, "winnow_wait");
	code = real(request, timeout_ms, stats);
	if (text != NULL && is_here() && sscanf(text, "%lu:%x", &at, &mask) == 2 && at < bytes)
		result[at] ^= (uint8_t)mask;
	return code;
}

void winnow_comm_destroy(struct winnow_comm *comm)
{
	void (*real)(struct winnow_comm *);
	const char *number = getenv("WRONG_END");

	*(void **)&real = dlsym(RTLD_NEXT, "winnow_comm_destroy");
	real(comm);
	if (number != NULL && is_here())
		raise(atoi(number));
}

pid_t fork(void)
{
	static int count;
	pid_t (*real)(void);
	const char *number = getenv("WRONG_FORK");

	*(void **)&real = dlsym(RTLD_NEXT, "fork");
	if (number == NULL || ++count != atoi(number))
		return real();
	errno = EAGAIN;
	return -1;
}

int posix_memalign(void **out, size_t boundary, size_t size)
{
	int (*real)(void **, size_t, size_t);

	*(void **)&real = dlsym(RTLD_NEXT, "posix_memalign");
	return getenv("WRONG_MEMORY") != NULL && is_here() ? ENOMEM : real(out, boundary, size);
}
