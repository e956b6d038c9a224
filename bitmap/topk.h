/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topk.h - the largest elements of a gradient, and a memory of the others
 *
 * Top-k with error feedback, as in Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory"
 * (2018): elements that a step does not send are added to the next step's gradient. Selection is
 * exact and needs no sort, because a histogram of magnitudes finds the k-th largest. Of several
 * elements that are as large, those with lower numbers are taken, so every machine chooses alike.
 *
 * An element that is not finite is always sent with its block, beyond k, and never remembered:
 * all workers see it, as they would without top-k, and the next step is free of it.
 */
#ifndef BITMAP_TOPK_H
#define BITMAP_TOPK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bitmap/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TOPK_BLOCK_MAX 1024 /* elements in a block */

struct topk {
	uint64_t chunk; /* Elements that share a choice of k blocks: a multiple of `block`. */
	uint64_t k;     /* Blocks of each chunk; a shorter last chunk sends as large a share. */
	uint32_t block; /* Elements that are chosen together, by their largest magnitude. */
	float decay;    /* The part of the memory that a step leaves, from 0 to 1. */
};

/* topk_wrong - returns what is wrong with the settings, or NULL. */
static inline const char *topk_wrong(const struct topk *topk)
{
	if (topk->block < 1 || topk->block > TOPK_BLOCK_MAX || topk->chunk < topk->block ||
	    topk->chunk % topk->block != 0)
		return "block must be from 1 to 1024, and chunk a multiple of it";
	if (!(topk->decay >= 0 && topk->decay <= 1))
		return "decay must be from 0 to 1";
	if (topk->k < 1)
		return "k must be at least 1, the number of blocks of each chunk";
	return topk->k > topk->chunk / topk->block ? "k must be at most a chunk's blocks" : NULL;
}

/* topk_knows - tells whether gradients of this type can be reduced to their largest elements. */
static inline bool topk_knows(enum dtype dtype)
{
	return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

/*
 * topk_take - memory = decay * memory + gradient, in f32. The largest elements of that, rounded to
 * the gradient's type, replace the gradient, whose other elements become zero. `memory` keeps the
 * rest, including what rounding cut off. Returns the number of elements taken. The two do not
 * overlap.
 */
uint64_t topk_take(void *gradient, float *memory, uint64_t count, enum dtype dtype,
                   const struct topk *topk);

#ifdef __cplusplus
}
#endif

#endif /* BITMAP_TOPK_H */
