// SPDX-License-Identifier: BSD-3-Clause
/* topk.c - see topk.h */

#include "bitmap/topk.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "bitmap/bitmap.h"

#define PIECE 1024 /* elements that are converted at a time */
#define INFINITE 0x7f800000u
#define F16_MAX 65504.0f
#define BF16_MAX 0x1.fep127f
_Static_assert(TOPK_BLOCK_MAX <= PIECE, "a piece holds a block");
#define LEVELS 3
#define BINS 2048

/* The 31 bits of a magnitude are examined from the top down, in groups of 11, 10 and 10. */
static const uint32_t level_shift[LEVELS] = {20, 10, 0};
static const uint32_t level_bins[LEVELS] = {2048, 1024, 1024};

/* All blocks above `least` are taken, and `ties` (or all) of the blocks equal to it. */
struct limit {
	uint32_t least;
	uint64_t ties;
	bool all_ties;
};

/* The bits of |x|, which sort like the magnitude itself. */
static uint32_t magnitude(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits & 0x7fffffff;
}

/* The largest magnitude in a block of at most `block` elements. */
static inline uint32_t block_magnitude(const float *values, uint64_t count, uint32_t block)
{
	const uint64_t n = count < block ? count : block;
	uint32_t most = 0;

	for (uint64_t i = 0; i < n; i++) {
		const uint32_t bits = magnitude(values[i]);

		most = bits > most ? bits : most;
	}
	return most;
}

/* Counts the values of the next bits after the known ones, in two tables that take turns. */
static inline __attribute__((always_inline)) void blocks_count(const float *values, uint64_t count,
                                                               uint32_t block, uint32_t level,
                                                               uint32_t known,
                                                               uint32_t bins[2][BINS])
{
	const uint32_t shift = level_shift[level], mask = level_bins[level] - 1;
	const uint32_t above = level > 0 ? level_shift[level - 1] : 31;
	uint32_t turn = 0;

	memset(bins, 0, 2 * sizeof(bins[0]));
	for (uint64_t at = 0; at < count; at += block) {
		const uint32_t bits = block_magnitude(values + at, count - at, block);

		if (bits >> above == known && bits < INFINITE)
			bins[turn ^= 1][bits >> shift & mask]++;
	}
}

static void level_count(const float *values, uint64_t count, uint32_t block, uint32_t level,
                        uint32_t known, uint32_t bins[2][BINS])
{
	if (block == 1) /* a constant block size leaves no inner loop */
		blocks_count(values, count, 1, level, known, bins);
	else
		blocks_count(values, count, block, level, known, bins);
}

/* Finds the limit that the k largest blocks reach. */
static struct limit limit_of(const float *values, uint64_t count, uint32_t block, uint64_t k)
{
	uint32_t bins[2][BINS];
	struct limit limit = {.ties = k};

	for (uint32_t level = 0; level < LEVELS; level++) {
		uint32_t bin = level_bins[level] - 1;
		uint64_t here;

		level_count(values, count, block, level, limit.least, bins);
		while ((here = (uint64_t)bins[0][bin] + bins[1][bin]) < limit.ties && bin > 0) {
			limit.ties -= here;
			bin--;
		}
		limit.least = limit.least << (level > 0 ? 10 : 11) | bin;
		limit.all_ties = here <= limit.ties;
	}
	if (limit.least == 0) /* fewer than k blocks are not zero */
		limit = (struct limit){.least = 1, .all_ties = true};
	return limit;
}

static void memory_add(const struct bitmap_engine *engine, float *memory, const uint8_t *gradient,
                       uint64_t count, enum dtype dtype, float decay)
{
	float piece[PIECE];

	for (uint64_t at = 0, n; at < count; at += n) {
		n = count - at < PIECE ? count - at : PIECE;
		engine->load(piece, gradient + at * dtype_bytes(dtype), n, dtype);
		for (uint64_t i = 0; i < n; i++)
			memory[at + i] = decay * memory[at + i] + piece[i];
	}
}

static inline __attribute__((always_inline)) uint64_t
blocks_choose(float *chosen, const float *values, uint64_t count, uint32_t block, bool all_ties,
              struct limit *limit)
{
	uint64_t taken = 0;

	for (uint64_t at = 0; at < count; at += block) {
		const uint64_t n = count - at < block ? count - at : block;
		const uint32_t bits = block_magnitude(values + at, n, block);
		const bool tie = bits == limit->least && (all_ties || limit->ties > 0);
		const bool take = bits > limit->least || tie;

		limit->ties -= tie && !all_ties;
		for (uint64_t i = 0; i < n; i++)
			chosen[at + i] = take ? values[at + i] : 0;
		taken += take ? n : 0;
	}
	return taken;
}

/* Copies the values to be sent and writes zeros elsewhere. Returns the number of values copied. */
static uint64_t values_choose(float *chosen, const float *values, uint64_t count, uint32_t block,
                              struct limit *limit)
{
	if (block == 1 && limit->all_ties) /* constants leave no inner loop, and no order */
		return blocks_choose(chosen, values, count, 1, true, limit);
	if (block == 1)
		return blocks_choose(chosen, values, count, 1, false, limit);
	return blocks_choose(chosen, values, count, block, limit->all_ties, limit);
}

static uint64_t blocks_send(const struct bitmap_engine *engine, uint8_t *gradient, float *memory,
                            uint64_t count, enum dtype dtype, uint32_t block, struct limit limit)
{
	const float most = dtype == DTYPE_F16 ? F16_MAX : BF16_MAX;
	const uint64_t whole = PIECE / block * block;
	float piece[PIECE];
	uint64_t taken = 0;

	for (uint64_t at = 0, n; at < count; at += n) {
		uint8_t *out = gradient + at * dtype_bytes(dtype);

		n = count - at < whole ? count - at : whole;
		taken += values_choose(piece, memory + at, n, block, &limit);
		for (uint64_t i = 0; i < n && dtype != DTYPE_F32; i++)
			if (magnitude(piece[i]) < INFINITE) /* stays finite */
				piece[i] = fmaxf(-most, fminf(most, piece[i]));
		engine->finish(out, piece, n, dtype, REDUCE_SUM, 1);
		engine->load(piece, out, n, dtype);
		for (uint64_t i = 0; i < n; i++)
			memory[at + i] =
				magnitude(piece[i]) < INFINITE ? memory[at + i] - piece[i] : 0;
	}
	return taken;
}

/* The number of blocks that a chunk of n elements sends. */
static uint64_t share_of(const struct topk *topk, uint64_t n)
{
	const uint64_t blocks = (n + topk->block - 1) / topk->block;

	if (n == topk->chunk)
		return topk->k;
	return (uint64_t)ceil((double)topk->k * (double)blocks /
	                      (double)(topk->chunk / topk->block));
}

uint64_t topk_take(void *gradient, float *memory, uint64_t count, enum dtype dtype,
                   const struct topk *topk)
{
	const struct bitmap_engine *engine = bitmap_best();
	uint64_t taken = 0;

	assert(topk_knows(dtype) && topk_wrong(topk) == NULL);
	for (uint64_t at = 0, n; at < count; at += n) {
		uint8_t *part = (uint8_t *)gradient + at * dtype_bytes(dtype);
		struct limit limit;

		n = count - at < topk->chunk ? count - at : topk->chunk;
		memory_add(engine, memory + at, part, n, dtype, topk->decay);
		limit = limit_of(memory + at, n, topk->block, share_of(topk, n));
		taken += blocks_send(engine, part, memory + at, n, dtype, topk->block, limit);
	}
	return taken;
}
