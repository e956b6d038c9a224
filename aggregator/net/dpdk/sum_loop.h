/* SPDX-License-Identifier: BSD-3-Clause */
/* sum_loop.h - the loop that every engine of sum.h compiles with its own flags; private to them */
#ifndef AGGREGATOR_NET_SUM_LOOP_H
#define AGGREGATOR_NET_SUM_LOOP_H

#include <string.h>

#include "aggregator/net/dpdk/sum.h"

extern const struct sum_engine sum_any, sum_avx2;

/* In sum.c, which is compiled for the baseline CPU. */
bool sum_cpu_any(void);
bool sum_cpu_avx2(void);

/* Halves of a 32-bit word fold to the same as two words of 16 bits; 2^32 words fit the sum. */
static inline uint64_t sum_loop(const void *data, size_t size)
{
	const uint8_t *at = data;
	size_t words = size / sizeof(uint32_t);
	uint64_t sum = 0;
	uint32_t word;

	for (size_t i = 0; i < words; i++) {
		memcpy(&word, at + i * sizeof(word), sizeof(word));
		sum += word;
	}
	word = 0;
	memcpy(&word, at + words * sizeof(word), size % sizeof(word));
	return sum + word;
}

#endif /* AGGREGATOR_NET_SUM_LOOP_H */
