// SPDX-License-Identifier: BSD-3-Clause
/* tune_used.c - the blocks that a traced job had, and what they cost: is there anything to do? */

#include <stdlib.h>

#include "client/cli/tune/tune.h"

static void share_add(struct tune_used *used, const struct source_op *op)
{
	uint32_t i = 0;

	while (i < used->share_count &&
	       (used->shares[i].block != op->block || used->shares[i].tile_rows != op->tile_rows))
		i++;
	if (i == TUNE_BLOCKS_MAX) {
		used->unknown = true;
		return;
	}
	if (i == used->share_count)
		used->shares[used->share_count++] =
			(struct tune_share){.block = op->block, .tile_rows = op->tile_rows};
	used->shares[i].operations++;
	used->shares[i].bytes += op->count * dtype_bytes(op->dtype);
}

/* Can the trace tell what the job's blocks cost? */
static bool is_told(const struct source_op *op, uint32_t fine)
{
	if (op->block == 0 || op->tile_rows == 0)
		return op->block != 0 && op->block % fine == 0;
	return predict_tells(fine, op->columns, op->block / op->tile_rows);
}

bool tune_used_add(struct tune *tune, uint32_t number, const struct predict_op *input)
{
	struct predict_op as_it_was = *input;
	const struct source_op *op = &tune->source.ops[number];
	struct tune_used *used = &tune->used;

	if (op->block != 0)
		share_add(used, op);
	used->parts = used->parts || op->parts > 0;
	if (!is_told(op, input->fine)) {
		used->unknown = true;
		return true;
	}
	if (used->predicted.sent == NULL)
		predict_open(&used->predicted, input->fine, tune->net.world);
	used->predicted.block = op->block;
	as_it_was.columns = op->columns;
	as_it_was.tile_rows = op->tile_rows;
	return predict_add(&used->predicted, &tune->net, &as_it_was);
}

static int by_bytes(const void *a, const void *b)
{
	const struct tune_share *x = a, *y = b;

	return x->bytes > y->bytes ? -1 : x->bytes < y->bytes;
}

void tune_used_sort(struct tune *tune)
{
	qsort(tune->used.shares, tune->used.share_count, sizeof(tune->used.shares[0]), by_bytes);
}

double tune_used_s(const struct tune *tune)
{
	const struct predict *p = &tune->used.predicted;

	return tune->used.unknown || p->operations == 0 ? 0 : p->time_s / (double)p->operations;
}

bool tune_used_enough(const struct tune *tune)
{
	double used_s = tune_used_s(tune);

	return used_s > 0 && used_s <= tune->rows[tune->best].time_s * TUNE_NEAR;
}
