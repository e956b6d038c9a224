/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topk.h - the largest elements of a gradient, and a memory of the others
 *
 * Top-k with error feedback, as in Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory" (2018):
 * what a step does not send is added to the next step's gradient. Selection is exact and needs no
 * sort: a histogram of magnitudes finds the k-th largest. Where several elements are as large as that
 * one, those with the lower numbers are taken, so every machine chooses alike.
 *
 * An element that is not finite is always taken with its block, beyond k, and never remembered: all workers see it,
 * as they would without this, and the next step is free of it. Pure; nothing is kept between calls.
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

#define TOPK_BLOCK_MAX 1024 /* elements that are chosen together */

struct topk {
	/* Elements among which is chosen, a multiple of `block`. The last chunk may be shorter, and has a
	 * share of k in proportion, rounded up. */
	uint64_t chunk;
	uint64_t k;     /* blocks of each chunk, 1 or more */
	uint32_t block; /* elements that are chosen together, by the largest magnitude among them */
	float decay;    /* 0 .. 1: what is left of the memory after a step */
};

/* NULL: it makes sense; or why not. */
static inline const char *topk_wrong(const struct topk *topk)
{
	if (topk->block < 1 || topk->block > TOPK_BLOCK_MAX || topk->chunk < topk->block ||
	    topk->chunk % topk->block != 0)
		return "block is not from 1 to 1024, or chunk no multiple of it";
	if (!(topk->decay >= 0 && topk->decay <= 1))
		return "decay is not from 0 to 1";
	if (topk->k < 1)
		return "k is 0: want 1 or more blocks of a chunk";
	return topk->k > topk->chunk / topk->block ? "k is more than a chunk's blocks" : NULL;
}

/* The types of gradients that it takes. */
static inline bool topk_knows(enum dtype dtype)
{
	return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

/*
 * topk_take - memory = decay * memory + gradient, in f32. The largest elements of that, rounded to
 * the gradient's type, replace the gradient, which is zero elsewhere; memory keeps the rest, and what
 * was rounded off. Returns how many were taken. The two do not overlap.
 */
uint64_t topk_take(void *gradient, float *memory, uint64_t count, enum dtype dtype,
                   const struct topk *topk);

#ifdef __cplusplus
}
#endif

#endif /* BITMAP_TOPK_H */
