/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pattern.h - which parts of made-up gradients are non-zero: the same for winnow bench and winnow
 * tune
 *
 * A tensor is cut into units, of which each worker has a share non-zero: any units, each set
 * equally likely; the same units on all workers; or neighbouring units, different ones on each
 * worker.
 */
#ifndef CLIENT_CLI_PATTERN_H
#define CLIENT_CLI_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/dtype.h"

enum pattern_overlap { PATTERN_RANDOM, PATTERN_ALL, PATTERN_NONE, PATTERN_FILE /* bench's own */ };

struct pattern {
	uint64_t units, seed;
	double density;
	enum pattern_overlap overlap;
	uint32_t world;
};

/* "random", "all" or "none". False: it is none of these. */
bool pattern_overlap_read(const char *text, enum pattern_overlap *out);

/* Sets `each` bits for every unit that is non-zero on `rank`, in bits[0 .. total). */
void pattern_bits(const struct pattern *pattern, uint32_t rank, uint64_t each, uint64_t total,
                  uint64_t *bits);

/* tensor[index] = value, which every type holds: up to 256 either way. */
void pattern_put(void *tensor, uint64_t index, enum dtype dtype, int value);

/* A hash of two numbers, which decides everything random here. */
uint64_t pattern_hash(uint64_t a, uint64_t b);

#endif /* CLIENT_CLI_PATTERN_H */
