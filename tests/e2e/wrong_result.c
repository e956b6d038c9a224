// SPDX-License-Identifier: BSD-3-Clause
/*
 * wrong_result.c - preloaded into winnow bench: a library whose results are wrong in one byte
 *
 *     WRONG_BYTE=OFFSET:MASK     which byte of each result that has so many, and the bits to turn over in it
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/winnow.h"

static uint8_t *result;
static uint64_t bytes;

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
	if (text != NULL && sscanf(text, "%lu:%x", &at, &mask) == 2 && at < bytes)
		result[at] ^= (uint8_t)mask;
	return code;
}
