// SPDX-License-Identifier: BSD-3-Clause
/* tune_params.c - which part of a tensor costs what */

#include <math.h>
#include <stdlib.h>

#include "bitmap/bitmap.h"
#include "client/cli/tune/tune.h"

/* ---- what they cost within the tensor ---- */

/*
 * Elements of the parameter that travel, for all workers and for their union: a block that crosses
 * its edges counts as far as it belongs to the parameter.
 */
static void span(uint64_t first, uint64_t elems, uint32_t block, uint32_t world,
                 uint64_t *const *blocks, double *own, double *united)
{
	uint64_t end = first + elems;

	for (uint64_t b = first / block; b * block < end; b++) {
		uint64_t from = b * block > first ? b * block : first;
		uint64_t to = (b + 1) * block < end ? (b + 1) * block : end;
		uint32_t owners = 0;

		for (uint32_t rank = 0; rank < world; rank++)
			owners += bit_test(blocks[rank], b);
		*own += owners * (double)(to - from);
		*united += owners > 0 ? (double)(to - from) : 0;
	}
}

/* One operation at the best block size; the blocks' bytes with their share of all the rest. */
static void inside_add(struct tune *tune, uint32_t op, uint64_t *const *bits)
{
	const struct tune_row *best = &tune->rows[tune->best];
	const struct source_op *o = &tune->source.ops[op];
	uint32_t world = tune->net.world, block = best->block;
	uint64_t **blocks = tune_bits_make(world, o->count / block + 1);
	struct predict_flow sent = predict_sent_mean(&best->predicted);
	double factor =
		sent.data_bytes > 0 ? (double)predict_bytes(&sent) / (double)sent.data_bytes : 0;

	for (uint32_t rank = 0; rank < world; rank++)
		predict_coarsen(bits[rank], source_bit_count(&tune->source, op),
		                block / tune->source.fine, blocks[rank]);
	for (uint32_t i = 0; i < tune->place_count; i++) {
		struct tune_param *p = &tune->params[tune->places[i].param];
		double own = 0, united = 0;

		if (tune->places[i].op != op)
			continue;
		span(tune->places[i].offset, p->elems, block, world, blocks, &own, &united);
		p->operations++;
		p->d += own / world / (double)p->elems;
		p->united += united / (double)p->elems;
		p->sent_bytes += own / world * dtype_bytes(o->dtype) * factor;
	}
	free((void *)blocks);
}

/* ---- what they would cost by themselves ---- */

/* What blocks of each size would cost, and then tiles one, four and sixteen columns wide. */
struct own_costs {
	struct predict all[TUNE_BLOCKS_MAX + 3];
	uint32_t tile_rows[TUNE_BLOCKS_MAX + 3]; /* 0: blocks */
	uint32_t count;
};

static int own_add(struct tune *tune, const struct tune_place *place, uint64_t *const *bits,
                   struct own_costs *costs)
{
	const struct tune_param *p = &tune->params[place->param];
	uint64_t first = place->offset / tune->source.fine;
	uint64_t count = (p->elems + tune->source.fine - 1) / tune->source.fine;
	uint64_t **own = tune_bits_make(tune->net.world, count);
	struct predict_op op = tune_op(&tune->source, place->op, own);
	bool good = true;

	op.count = p->elems;
	for (uint32_t rank = 0; rank < tune->net.world; rank++)
		for (uint64_t i = 0; i < count; i++)
			if (bit_test(bits[rank], first + i))
				bit_set(own[rank], i);
	for (uint32_t i = 0; i < costs->count && good; i++) {
		op.tile_rows = costs->tile_rows[i];
		op.columns = op.tile_rows > 0 ? p->row : 0;
		good = predict_add(&costs->all[i], &tune->net, &op);
	}
	free((void *)own);
	return good ? 0 : cli_error(1, "no job may have a tensor such as %s", p->name);
}

static double sent_mean(const struct predict *cost)
{
	struct predict_flow sent = predict_sent_mean(cost);

	return (double)predict_bytes(&sent) / (double)cost->operations;
}

/* The best of the looked-at sizes, a row, and the best tile. */
static void own_judge(struct tune_param *p, const struct own_costs *costs)
{
	double least = INFINITY, least_of_tiles = INFINITY;

	for (uint32_t i = 0; i < costs->count; i++)
		if (costs->tile_rows[i] == 0 && costs->all[i].time_s < least)
			least = costs->all[i].time_s;
	for (uint32_t i = 0; i < costs->count; i++) {
		const struct predict *cost = &costs->all[i];

		if (costs->tile_rows[i] > 0 && cost->time_s < least_of_tiles) {
			least_of_tiles = cost->time_s;
			p->tile_rows = costs->tile_rows[i];
			p->tile_columns = cost->block / p->tile_rows;
			p->tile_sent = sent_mean(cost);
		} else if (costs->tile_rows[i] == 0) {
			if (cost->time_s <= least * TUNE_NEAR && cost->block >= p->own_block) {
				p->own_block = cost->block;
				p->own_sent = sent_mean(cost);
			}
			if (cost->block == p->row)
				p->row_sent = sent_mean(cost);
		}
	}
}

static void own_open(struct own_costs *costs, uint32_t block, uint32_t tile_rows, uint32_t world)
{
	costs->tile_rows[costs->count] = tile_rows;
	predict_open(&costs->all[costs->count++], block, world);
}

/* So high that a tile has some hundred bytes; wider ones are for columns that are zero in groups. */
#define TILE_ELEMS 128

static void own_open_all(const struct tune *tune, const struct tune_param *p,
                         struct own_costs *costs)
{
	uint64_t rows = p->row > 0 ? p->elems / p->row : 0;

	for (uint32_t i = 0; i < tune->block_count; i++)
		if (i == 0 || tune->rows[i].block <= p->elems)
			own_open(costs, tune->rows[i].block, 0, tune->net.world);
	for (uint32_t wide = 1; wide <= 16; wide *= 4) {
		uint32_t high = rows < TILE_ELEMS / wide ? (uint32_t)rows : TILE_ELEMS / wide;

		if (rows > 1 && p->elems % p->row == 0 && wide < p->row &&
		    predict_tells(tune->source.fine, p->row, wide))
			own_open(costs, high * wide, high, tune->net.world);
	}
}

/*
 * Operations that hold the parameter at a whole bit, one after the other, as if it travelled alone.
 */
static int own_cost(struct tune *tune, uint32_t index, uint64_t ***bits)
{
	struct tune_param *p = &tune->params[index];
	struct own_costs costs = {.count = 0};
	uint32_t used = 0;
	int status = 0;

	own_open_all(tune, p, &costs);
	for (uint32_t i = 0; i < tune->place_count && status == 0; i++) {
		const struct tune_place *place = &tune->places[i];

		if (place->param != index || place->offset % tune->source.fine != 0)
			continue;
		status = own_add(tune, place, bits[place->op], &costs);
		used++;
	}
	if (status == 0 && used > 0)
		own_judge(p, &costs);
	for (uint32_t i = 0; i < costs.count; i++)
		predict_close(&costs.all[i]);
	return status;
}

int tune_params_cost(struct tune *tune)
{
	uint64_t ***bits = cli_memory(tune->source.op_count, sizeof(*bits), "operations");
	int status = 0;

	/* Those of operations that hold any. */
	for (uint32_t i = 0; i < tune->place_count && status == 0; i++) {
		uint32_t op = tune->places[i].op;

		if (bits[op] != NULL)
			continue;
		bits[op] = tune_bits(&tune->source, op);
		if (bits[op] == NULL)
			status = 1;
		else
			inside_add(tune, op, bits[op]);
	}
	for (uint32_t i = 0; i < tune->param_count && status == 0; i++) {
		struct tune_param *p = &tune->params[i];
		double n = p->operations > 0 ? (double)p->operations : 1;

		p->d /= n;
		p->united /= n;
		p->sent_bytes /= n;
		status = own_cost(tune, i, bits);
	}
	for (uint32_t op = 0; op < tune->source.op_count; op++)
		free((void *)bits[op]);
	free((void *)bits);
	return status;
}
