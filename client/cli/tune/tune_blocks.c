// SPDX-License-Identifier: BSD-3-Clause
/* tune_blocks.c - chooses block sizes, predicts their costs, finds the best one */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/cli/tune/tune.h"
#include "ebpf/geometry.h"
#include "ebpf/wire.h"

static int block_compare(const void *a, const void *b)
{
	const struct tune_row *x = a, *y = b;

	return x->block < y->block ? -1 : x->block > y->block;
}

static uint64_t tensor_largest(const struct source *source)
{
	uint64_t most = 1;

	for (uint32_t op = 0; op < source->op_count; op++)
		if (source->ops[op].count > most)
			most = source->ops[op].count;
	return most;
}

/* Adds a size once. Returns false if no tensor is as large, or a trace's bits are too coarse for it. */
static bool block_add(struct tune *tune, uint64_t block)
{
	const struct source *source = &tune->source;

	if (block == 0 || block > WIRE_BLOCK_ELEMS_MAX || block > tensor_largest(source) ||
	    tune->block_count == TUNE_BLOCKS_MAX)
		return false;
	if (source->traces != NULL && block % source->fine != 0)
		return false;
	for (uint32_t i = 0; i < tune->block_count; i++)
		if (tune->rows[i].block == block)
			return true;
	tune->rows[tune->block_count++].block = (uint32_t)block;
	return true;
}

/* Adds powers of two, the job's own block sizes, and rows with their half and double. */
static void blocks_preset(struct tune *tune)
{
	const struct source *source = &tune->source;

	for (uint32_t block = 8; block <= 8192; block *= 2)
		block_add(tune, block);
	for (uint32_t op = 0; op < source->op_count && op < 64; op++) {
		const struct source_op *o = &source->ops[op];

		block_add(tune, o->block);
		block_add(tune, o->row);
		block_add(tune, o->row * 2);
		if (o->row % 2 == 0)
			block_add(tune, o->row / 2);
	}
	if (tune->block_count == 0)
		block_add(tune, source->traces != NULL ? source->fine : tensor_largest(source));
}

static int blocks_read(struct tune *tune, const char *text)
{
	const char *at = text;
	char *end;

	for (;; at = end + 1) {
		unsigned long long block = strtoull(at, &end, 10);

		if (end == at || at[0] == '-' || (*end != ',' && *end != '\0') || block == 0 ||
		    block > WIRE_BLOCK_ELEMS_MAX)
			return cli_error(2,
			                 "--blocks is '%s': want sizes in elements, 1 to %d, such "
			                 "as 32,64,128",
			                 text, WIRE_BLOCK_ELEMS_MAX);
		if (tune->block_count == TUNE_BLOCKS_MAX)
			return cli_error(2, "--blocks has more than %d sizes", TUNE_BLOCKS_MAX);
		if (!block_add(tune, block))
			snprintf(tune->note, sizeof(tune->note),
			         "block %llu is left out: no tensor has so many elements, or the "
			         "trace is too coarse (WINNOW_TRACE_BLOCK)",
			         block);
		if (*end == '\0')
			break;
	}
	return tune->block_count > 0
	               ? 0
	               : cli_error(2, "none of --blocks %s can be predicted: %s", text, tune->note);
}

int tune_blocks_choose(struct tune *tune, const char *blocks)
{
	struct source *source = &tune->source;
	uint64_t fine =
		source->traces == NULL && source->ops[0].paths == NULL ? source->ops[0].row : 0;
	int status = 0;

	if (blocks != NULL)
		status = blocks_read(tune, blocks);
	else
		blocks_preset(tune);
	if (status != 0)
		return status;
	if (tune->block_count == 0)
		return cli_error(1,
		                 "the trace has one bit for %u elements, but its tensors are "
		                 "smaller: set WINNOW_TRACE_BLOCK lower",
		                 source->fine);
	qsort(tune->rows, tune->block_count, sizeof(tune->rows[0]), block_compare);
	if (source->traces != NULL)
		return 0;
	/* A bit stands for the greatest common divisor of all block sizes. */
	for (uint32_t i = 0; i < tune->block_count; i++)
		fine = geometry_gcd(fine, tune->rows[i].block);
	source->fine = (uint32_t)fine;
	return 0;
}

/* ---- their costs ---- */

/* Makes the bitmaps of all workers in an operation, in one piece of memory. Returns NULL after printing an error. */
static uint64_t **bits_make(const struct source *source, uint32_t op)
{
	size_t words = source_bit_count(source, op) / 64 + 1;
	uint64_t **rows = cli_memory(source->world, sizeof(*rows) + words * 8,
	                             "bitmaps of all workers; give larger --blocks");
	struct why why;

	for (uint32_t rank = 0; rank < source->world; rank++) {
		rows[rank] = (uint64_t *)(rows + source->world) + rank * words;
		if (source_bits(source, op, rank, rows[rank], &why) == 0)
			continue;
		cli_error(1, "%s", why.text);
		free((void *)rows);
		return NULL;
	}
	return rows;
}

static int op_predict(struct tune *tune, uint32_t op)
{
	const struct source_op *o = &tune->source.ops[op];
	uint64_t **bits = bits_make(&tune->source, op);
	const struct predict_op input = {.count = o->count,
	                                 .tag = o->tag,
	                                 .dtype = o->dtype,
	                                 .form = o->form,
	                                 .fine = tune->source.fine,
	                                 .bits = (const uint64_t *const *)bits};
	bool good = bits != NULL;

	for (uint32_t i = 0; i < tune->block_count && good; i++)
		good = predict_add(&tune->rows[i].predicted, &tune->net, &input);
	if (bits != NULL && !good)
		cli_error(1, "a tensor is too large for an operation");
	free((void *)bits);
	return good ? 0 : 1;
}

/* Turns sums over operations, some of them over workers too, into means. */
static void row_fill(struct tune_row *row, const struct tune *tune)
{
	double ops = tune->source.op_count, blocks = (double)row->predicted.blocks;

	row->sent = predict_mean(&row->predicted.sent, ops * tune->net.world);
	row->received = predict_mean(&row->predicted.received, ops);
	row->time_s = row->predicted.time_s / ops;
	row->d = (double)row->predicted.own / blocks / tune->net.world;
	row->united = (double)row->predicted.united / blocks;
}

/* Chooses the largest block size that is nearly as fast as the fastest. */
static void blocks_judge(struct tune *tune)
{
	double least_s = tune->rows[0].time_s;

	for (uint32_t i = 1; i < tune->block_count; i++)
		least_s = fmin(least_s, tune->rows[i].time_s);
	for (uint32_t i = 0; i < tune->block_count; i++)
		if (tune->rows[i].time_s <= least_s * TUNE_NEAR)
			tune->best = i;
}

int tune_predict(struct tune *tune)
{
	const struct source *source = &tune->source;
	uint64_t bytes = 0;
	int status = 0;

	for (uint32_t i = 0; i < tune->block_count; i++)
		tune->rows[i].predicted.block = tune->rows[i].block;
	for (uint32_t op = 0; op < source->op_count && status == 0; op++) {
		bytes += source->ops[op].count * dtype_bytes(source->ops[op].dtype);
		status = op_predict(tune, op);
	}
	if (status != 0)
		return status;
	for (uint32_t i = 0; i < tune->block_count; i++)
		row_fill(&tune->rows[i], tune);
	tune->op_bytes = bytes / source->op_count;
	tune->ring_s = 2 * (1 - 1.0 / source->world) * (double)tune->op_bytes / tune->net.rate;
	blocks_judge(tune);
	return 0;
}
