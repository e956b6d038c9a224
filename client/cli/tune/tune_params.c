// SPDX-License-Identifier: BSD-3-Clause
/* tune_params.c - which part of a tensor costs what */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/tune/tune.h"

/* ---- what they cost within the tensor ---- */

static bool test(const uint64_t *bits, uint64_t bit)
{
	return bits[bit / 64] >> (bit % 64) & 1;
}

/*
 * Elements of the parameter that travel, for all workers and for their union: a block that crosses
 * its edges counts as far as it belongs to the parameter.
 */
static void span(uint64_t first, uint64_t elems, uint32_t block, uint32_t world,
                 const uint64_t *const *blocks, double *own, double *united)
{
	uint64_t end = first + elems;

	for (uint64_t b = first / block; b * block < end; b++) {
		uint64_t from = b * block > first ? b * block : first;
		uint64_t to = (b + 1) * block < end ? (b + 1) * block : end;
		uint32_t owners = 0;

		for (uint32_t rank = 0; rank < world; rank++)
			owners += test(blocks[rank], b);
		*own += owners * (double)(to - from);
		*united += owners > 0 ? (double)(to - from) : 0;
	}
}

/* One operation at the best block size; the blocks' bytes with their share of all the rest. */
static int inside_add(struct tune *tune, uint32_t op, uint64_t *const *bits)
{
	const struct tune_row *best = &tune->rows[tune->best];
	const struct source_op *o = &tune->source.ops[op];
	uint32_t world = tune->net.world, block = best->block;
	uint64_t words = (o->count / block + 64) / 64 + 1;
	const uint64_t **blocks = calloc(world, sizeof(*blocks));
	uint64_t *memory = calloc((size_t)world * words, sizeof(*memory));
	struct predict_flow sent = predict_sent_mean(&best->predicted);
	double factor =
		sent.data_bytes > 0 ? (double)predict_bytes(&sent) / (double)sent.data_bytes : 0;

	if (blocks == NULL || memory == NULL) {
		free((void *)blocks);
		free(memory);
		return cli_error(1, "out of memory");
	}
	for (uint32_t rank = 0; rank < world; rank++) {
		blocks[rank] = memory + rank * words;
		predict_coarsen(bits[rank], source_bit_count(&tune->source, op),
		                block / tune->source.fine, memory + rank * words);
	}
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
	free(memory);
	return 0;
}

/* ---- what they would cost by themselves ---- */

/* Bits from `first` on, moved to the beginning. */
static void bits_move(const uint64_t *from, uint64_t first, uint64_t count, uint64_t *to)
{
	for (uint64_t i = 0; i < count; i++)
		if (test(from, first + i))
			to[i / 64] |= UINT64_C(1) << (i % 64);
}

static int own_add(struct tune *tune, const struct tune_place *place, uint64_t *const *bits,
                   struct predict *costs, uint32_t cost_count)
{
	const struct tune_param *p = &tune->params[place->param];
	const struct source_op *o = &tune->source.ops[place->op];
	uint32_t world = tune->net.world, fine = tune->source.fine;
	uint64_t count = (p->elems + fine - 1) / fine, words = count / 64 + 1;
	uint64_t *memory = calloc((size_t)world * words, sizeof(*memory));
	const uint64_t **own = calloc(world, sizeof(*own));
	struct predict_op op = {.count = p->elems,
	                        .tag = o->tag,
	                        .dtype = o->dtype,
	                        .fixed32 = o->fixed32,
	                        .fine = fine,
	                        .bits = own};
	bool good = memory != NULL && own != NULL;

	for (uint32_t rank = 0; rank < world && good; rank++) {
		own[rank] = memory + rank * words;
		bits_move(bits[rank], place->offset / fine, count, memory + rank * words);
	}
	for (uint32_t i = 0; i < cost_count && good; i++)
		good = predict_add(&costs[i], &tune->net, &op);
	free(memory);
	free((void *)own);
	return good ? 0 : cli_error(1, "out of memory");
}

static double sent_mean(const struct predict *cost)
{
	struct predict_flow sent = predict_sent_mean(cost);

	return (double)predict_bytes(&sent) / (double)cost->operations;
}

/* The best of the looked-at sizes, and a row. */
static void own_judge(struct tune_param *p, const struct predict *costs, uint32_t count)
{
	double least = INFINITY;

	for (uint32_t i = 0; i < count; i++)
		least = costs[i].time_s < least ? costs[i].time_s : least;
	for (uint32_t i = 0; i < count; i++) {
		if (costs[i].time_s <= least * TUNE_NEAR && costs[i].block >= p->own_block) {
			p->own_block = costs[i].block;
			p->own_sent = sent_mean(&costs[i]);
		}
		if (costs[i].block == p->row) {
			p->row_sent = sent_mean(&costs[i]);
		}
	}
}

/*
 * Operations that hold the parameter at a whole bit, one after the other, as if it travelled alone.
 */
static int own_cost(struct tune *tune, uint32_t index, uint64_t ***bits)
{
	struct tune_param *p = &tune->params[index];
	struct predict costs[TUNE_BLOCKS_MAX];
	uint32_t count = 0, used = 0;
	int status = 0;

	for (uint32_t i = 0; i < tune->block_count && status == 0; i++) {
		if (i > 0 && tune->rows[i].block > p->elems)
			continue;
		if (!predict_open(&costs[count++], tune->rows[i].block, tune->net.world))
			status = cli_error(1, "out of memory");
	}
	for (uint32_t i = 0; i < tune->place_count && status == 0; i++) {
		const struct tune_place *place = &tune->places[i];

		if (place->param != index || place->offset % tune->source.fine != 0)
			continue;
		status = own_add(tune, place, bits[place->op], costs, count);
		used++;
	}
	if (status == 0 && used > 0)
		own_judge(p, costs, count);
	for (uint32_t i = 0; i < count; i++)
		predict_close(&costs[i]);
	return status;
}

static bool concerned(const struct tune *tune, uint32_t op)
{
	for (uint32_t i = 0; i < tune->place_count; i++)
		if (tune->places[i].op == op)
			return true;
	return false;
}

int tune_params_cost(struct tune *tune)
{
	uint32_t ops = tune->source.op_count;
	uint64_t ***bits;
	int status = 0;

	if (tune->param_count == 0)
		return 0;
	bits = calloc(ops, sizeof(*bits));
	if (bits == NULL)
		return cli_error(1, "out of memory");
	for (uint32_t op = 0; op < ops && status == 0; op++) {
		if (!concerned(tune, op))
			continue;
		bits[op] = tune_bits(&tune->source, op);
		status = bits[op] != NULL ? inside_add(tune, op, bits[op]) : 1;
	}
	for (uint32_t i = 0; i < tune->param_count && status == 0; i++) {
		struct tune_param *p = &tune->params[i];
		double n = p->operations > 0 ? (double)p->operations : 1;

		p->d /= n;
		p->united /= n;
		p->sent_bytes /= n;
		status = own_cost(tune, i, bits);
	}
	for (uint32_t op = 0; op < ops; op++) {
		if (bits[op] == NULL)
			continue;
		free(bits[op][0]);
		free((void *)bits[op]);
	}
	free((void *)bits);
	return status;
}
