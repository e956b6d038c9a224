// SPDX-License-Identifier: BSD-3-Clause
/* topk.c - see topk.h */

#include "bitmap/topk.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "bitmap/bitmap.h"

#define PIECE 1024 /* elements that are converted at a time */
#define INFINITE 0x7f800000u
#define LEVELS 3
#define BINS 2048

/* A magnitude's 31 bits are looked at from the top down: 11, 10 and 10 of them. */
static const uint32_t level_shift[LEVELS] = {20, 10, 0};
static const uint32_t level_bins[LEVELS] = {2048, 1024, 1024};

/* What is taken: all above `least`, and so many of those that are as large. */
struct limit {
	uint32_t least;
	uint64_t ties;
	bool all_ties;
};

/* As an integer it is as large as its distance from 0. */
static uint32_t magnitude(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits & 0x7fffffff;
}

/* How often the next bits occur after the bits that are known, in two tables that take turns. */
static void level_count(const float *values, uint64_t count, uint32_t level, uint32_t known,
                        uint32_t bins[2][BINS])
{
	const uint32_t shift = level_shift[level], mask = level_bins[level] - 1;
	const uint32_t above = level > 0 ? level_shift[level - 1] : 31;

	memset(bins, 0, 2 * sizeof(bins[0]));
	for (uint64_t i = 0; i < count; i++) {
		const uint32_t bits = magnitude(values[i]);

		if (bits >> above == known && bits < INFINITE)
			bins[i & 1][bits >> shift & mask]++;
	}
}

static struct limit limit_of(const float *values, uint64_t count, uint64_t k)
{
	uint32_t bins[2][BINS];
	struct limit limit = {.ties = k};

	for (uint32_t level = 0; level < LEVELS; level++) {
		uint32_t bin = level_bins[level] - 1;
		uint64_t here;

		level_count(values, count, level, limit.least, bins);
		while ((here = (uint64_t)bins[0][bin] + bins[1][bin]) < limit.ties && bin > 0) {
			limit.ties -= here;
			bin--;
		}
		limit.least = limit.least << (level > 0 ? 10 : 11) | bin;
		limit.all_ties = here <= limit.ties;
	}
	if (limit.least == 0) /* fewer than k are not zero */
		limit = (struct limit){.least = 1, .all_ties = true};
	return limit;
}

/* memory = decay * memory + gradient. */
static void remember(const struct bitmap_engine *engine, float *memory, const uint8_t *gradient,
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

/* The values to be sent, and zeros; how many. */
static uint64_t choose(float *chosen, const float *values, uint64_t count, struct limit *limit)
{
	uint64_t taken = 0;

	if (limit->all_ties) {
		for (uint64_t i = 0; i < count; i++) {
			const bool take = magnitude(values[i]) >= limit->least;

			chosen[i] = take ? values[i] : 0;
			taken += take;
		}
		return taken;
	}
	for (uint64_t i = 0; i < count; i++) {
		const uint32_t bits = magnitude(values[i]);
		const bool tie = bits == limit->least && limit->ties > 0;

		limit->ties -= tie;
		chosen[i] = bits > limit->least || tie ? values[i] : 0;
		taken += bits > limit->least || tie;
	}
	return taken;
}

static uint64_t send(const struct bitmap_engine *engine, uint8_t *gradient, float *memory,
                     uint64_t count, enum dtype dtype, struct limit limit)
{
	float piece[PIECE];
	uint64_t taken = 0;

	for (uint64_t at = 0, n; at < count; at += n) {
		uint8_t *out = gradient + at * dtype_bytes(dtype);

		n = count - at < PIECE ? count - at : PIECE;
		taken += choose(piece, memory + at, n, &limit);
		engine->finish(out, piece, n, dtype, REDUCE_SUM, 1);
		engine->load(piece, out, n, dtype);
		for (uint64_t i = 0; i < n; i++)
			memory[at + i] =
				magnitude(piece[i]) < INFINITE ? memory[at + i] - piece[i] : 0;
	}
	return taken;
}

uint64_t topk_take(void *gradient, float *memory, uint64_t count, enum dtype dtype,
                   const struct topk *topk)
{
	const struct bitmap_engine *engine = bitmap_best();
	uint64_t taken = 0;

	assert(topk_knows(dtype) && topk->k >= 1 && topk->k <= topk->chunk);
	for (uint64_t at = 0, n; at < count; at += n) {
		uint8_t *part = (uint8_t *)gradient + at * dtype_bytes(dtype);
		uint64_t k = topk->k;

		n = topk->chunk;
		if (count - at < n) {
			n = count - at;
			k = (uint64_t)ceil((double)topk->k * (double)n / (double)topk->chunk);
		}
		remember(engine, memory + at, part, n, dtype, topk->decay);
		taken += send(engine, part, memory + at, n, dtype, limit_of(memory + at, n, k));
	}
	return taken;
}
