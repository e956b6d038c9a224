// SPDX-License-Identifier: BSD-3-Clause
/* tune_blocks.c - which block sizes, what each would cost, which is best */

#include <stdio.h>
#include <stdlib.h>

#include "client/cli/tune/tune.h"
#include "ebpf/geometry.h"
#include "ebpf/wire.h"

static int ascending(const void *a, const void *b)
{
	const struct tune_row *x = a, *y = b;

	return x->block < y->block ? -1 : x->block > y->block;
}

static uint64_t largest(const struct source *source)
{
	uint64_t most = 1;

	for (uint32_t op = 0; op < source->op_count; op++)
		if (source->ops[op].count > most)
			most = source->ops[op].count;
	return most;
}

/* Adds a size once; not beyond the tensors; from a trace only what its bits can tell. */
static bool block_add(struct tune *tune, uint64_t block)
{
	const struct source *source = &tune->source;

	if (block == 0 || block > WIRE_BLOCK_ELEMS_MAX || block > largest(source) ||
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

static void rows_add(struct tune *tune, uint64_t row)
{
	block_add(tune, row);
	block_add(tune, row * 2);
	if (row % 2 == 0)
		block_add(tune, row / 2);
}

/* Powers of two, what the job used, and rows with their half and double. */
static void blocks_preset(struct tune *tune)
{
	const struct source *source = &tune->source;

	for (uint32_t block = 8; block <= 8192; block *= 2)
		block_add(tune, block);
	for (uint32_t op = 0; op < source->op_count && op < 64; op++) {
		if (source->ops[op].tile_rows == 0)
			block_add(tune, source->ops[op].block);
		rows_add(tune, source->ops[op].row);
	}
	for (uint32_t i = 0; i < tune->param_count; i++) {
		uint64_t common = geometry_gcd(tune->params[i].row, tune->params[i].offset);

		rows_add(tune, tune->params[i].row);
		if (common >= 8) /* then no block crosses a row's edge */
			block_add(tune, common);
	}
	if (tune->block_count == 0)
		block_add(tune, source->traces != NULL ? source->fine : largest(source));
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
			snprintf(tune->note, sizeof(tune->note), "block %llu is left out: %s",
			         block,
			         block > largest(&tune->source)
			                 ? "no tensor has so many elements"
			                 : "the trace has a bit for more elements, or for others; "
			                   "see WINNOW_TRACE_BLOCK");
		if (*end == '\0')
			break;
	}
	return tune->block_count > 0
	               ? 0
	               : cli_error(2, "none of --blocks %s can be looked at: %s", text, tune->note);
}

int tune_blocks_choose(struct tune *tune)
{
	struct source *source = &tune->source;
	uint64_t fine = source->traces != NULL         ? source->fine
	                : source->ops[0].paths != NULL ? 0
	                                               : source->ops[0].row;
	int status = 0;

	if (tune->settings->blocks_text != NULL)
		status = blocks_read(tune, tune->settings->blocks_text);
	else
		blocks_preset(tune);
	if (status != 0)
		return status;
	if (tune->block_count == 0)
		return cli_error(1, "the trace has a bit for %u elements: more than any tensor has",
		                 source->fine);
	qsort(tune->rows, tune->block_count, sizeof(tune->rows[0]), ascending);
	if (source->traces != NULL)
		return 0;
	/* All of these are whole numbers of bits; so are tiles one element wide, of parameters. */
	for (uint32_t i = 0; i < tune->block_count; i++)
		fine = geometry_gcd(fine, tune->rows[i].block);
	source->fine = tune->param_count > 0 ? 1 : (uint32_t)fine;
	return 0;
}

/* ---- what each costs ---- */

uint64_t **tune_bits_make(uint32_t world, uint64_t bits)
{
	size_t words = bits / 64 + 1;
	uint64_t **rows = cli_memory(world, sizeof(*rows) + words * 8,
	                             "bitmaps of all workers: give a coarser --blocks");

	for (uint32_t rank = 0; rank < world; rank++)
		rows[rank] = (uint64_t *)(rows + world) + rank * words;
	return rows;
}

uint64_t **tune_bits(const struct source *source, uint32_t op)
{
	uint64_t **bits = tune_bits_make(source->world, source_bit_count(source, op));
	struct why why;

	for (uint32_t rank = 0; rank < source->world; rank++) {
		if (source_bits(source, op, rank, bits[rank], &why) == 0)
			continue;
		cli_error(1, "%s", why.text);
		free((void *)bits);
		return NULL;
	}
	return bits;
}

struct predict_op tune_op(const struct source *source, uint32_t op, uint64_t *const *bits)
{
	const struct source_op *o = &source->ops[op];

	return (struct predict_op){.count = o->count,
	                           .tag = o->tag,
	                           .dtype = o->dtype,
	                           .form = o->form,
	                           .fine = source->fine,
	                           .bits = (const uint64_t *const *)bits};
}

static int op_predict(struct tune *tune, uint32_t op)
{
	const struct source_op *o = &tune->source.ops[op];
	uint64_t **bits = tune_bits(&tune->source, op);
	struct predict_op input = tune_op(&tune->source, op, bits);
	double world = tune->net.world;
	bool good = bits != NULL;

	for (uint32_t i = 0; i < tune->block_count && good; i++)
		good = predict_add(&tune->rows[i].predicted, &tune->net, &input);
	if (tune->source.traces != NULL && good)
		good = tune_used_add(tune, op, &input);
	if (bits != NULL && !good)
		cli_error(1, "no job may have such a tensor");
	free((void *)bits);
	tune->ring_s += 2 * (world - 1) / world * (double)(o->count * dtype_bytes(o->dtype)) /
	                tune->net.rate / tune->source.op_count;
	return good ? 0 : 1;
}

static void row_fill(struct tune_row *row, const struct tune *tune)
{
	struct predict_flow sent = predict_sent_mean(&row->predicted);
	double ops = (double)row->predicted.operations, blocks = (double)row->predicted.blocks;

	row->time_s = row->predicted.time_s / ops;
	row->sent_bytes = (double)predict_bytes(&sent) / ops;
	row->own_sent_bytes = (double)predict_bytes(&row->predicted.sent[0]) / ops;
	row->received_bytes = (double)predict_bytes(&row->predicted.received) / ops;
	if (blocks > 0) {
		row->d = (double)row->predicted.own / blocks / tune->net.world;
		row->united = (double)row->predicted.united / blocks;
	}
}

int tune_predict(struct tune *tune)
{
	int status = 0;

	for (uint32_t i = 0; i < tune->block_count; i++)
		predict_open(&tune->rows[i].predicted, tune->rows[i].block, tune->net.world);
	for (uint32_t op = 0; op < tune->source.op_count && status == 0; op++)
		status = op_predict(tune, op);
	for (uint32_t i = 0; i < tune->block_count && status == 0; i++)
		row_fill(&tune->rows[i], tune);
	tune_used_sort(tune);
	return status;
}

/*
 * The time that decides: on the job's own network the measured one; loopback says nothing about a
 * link.
 */
static double time_of(const struct tune *tune, const struct tune_row *row)
{
	return tune->settings->comm.aggregators != NULL && tune->settings->local == 0
	               ? row->measured_s
	               : row->time_s;
}

void tune_judge(struct tune *tune)
{
	double least = time_of(tune, &tune->rows[0]);

	for (uint32_t i = 1; i < tune->block_count; i++)
		if (time_of(tune, &tune->rows[i]) < least)
			least = time_of(tune, &tune->rows[i]);
	for (uint32_t i = 0; i < tune->block_count; i++) {
		if (time_of(tune, &tune->rows[i]) <= least * TUNE_NEAR)
			tune->best = i;
		if (tune->rows[i].measured_s < tune->rows[tune->measured_best].measured_s)
			tune->measured_best = i;
		if (tune->rows[i].time_s < tune->rows[tune->predicted_best].time_s)
			tune->predicted_best = i;
	}
}
