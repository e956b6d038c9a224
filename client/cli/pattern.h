/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pattern.h - chooses which parts of made-up gradients are non-zero, for winnow bench and winnow tune
 *
 * A tensor is cut into units, and a share of each worker's units is non-zero. They are drawn at
 * random for each worker, or are the same on all workers, or are neighbouring units that differ
 * between workers.
 */
#ifndef CLIENT_CLI_PATTERN_H
#define CLIENT_CLI_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/dtype.h"

enum pattern_overlap {
	PATTERN_RANDOM,
	PATTERN_ALL,
	PATTERN_NONE,
	PATTERN_FILE /* only winnow bench */
};

struct pattern {
	uint64_t units, seed;
	double density;
	enum pattern_overlap overlap;
	uint32_t world;
};

/* Reads "random", "all" or "none"; returns false for anything else. */
bool pattern_overlap_read(const char *text, enum pattern_overlap *out);

/* Sets `each` bits in bits[0 .. total) for each unit that is non-zero on `rank`. */
void pattern_bits(const struct pattern *pattern, uint32_t rank, uint64_t each, uint64_t total,
                  uint64_t *bits);

/* Stores tensor[index] = value. The value is from -256 to 256, which every type can hold. */
void pattern_put(void *tensor, uint64_t index, enum dtype dtype, int value);

/* A hash of two numbers, the source of all randomness here. */
uint64_t pattern_hash(uint64_t a, uint64_t b);

#endif /* CLIENT_CLI_PATTERN_H */
