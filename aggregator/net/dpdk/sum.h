/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sum.h - the sum behind the Internet's checksum (RFC 1071), one function an instruction set
 *
 * A software port has it made over every byte that comes and goes, so it is the largest single part of what
 * a frame costs there. frame.h's frame_sum() is the one to call.
 */
#ifndef AGGREGATOR_NET_SUM_H
#define AGGREGATOR_NET_SUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of 16-bit words as they lie in memory, not folded; an odd last byte is padded with 0. */
typedef uint64_t sum_fn(const void *data, size_t size);

struct sum_engine {
	const char *name;
	bool (*usable)(void);
	sum_fn *sum;
};

/* Best last; NULL after it. The first is for any CPU. */
extern const struct sum_engine *const sum_engines[];

/* The best that this CPU can run. */
sum_fn *sum_best(void);

#endif /* AGGREGATOR_NET_SUM_H */
