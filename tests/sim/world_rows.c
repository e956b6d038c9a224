// SPDX-License-Identifier: BSD-3-Clause
/* world_rows.c - tensors of several parts, the same on all workers; and given as a list of blocks, and got back as one */

#include <stdlib.h>
#include <string.h>

#include "tests/sim/dice.h"
#include "tests/sim/world_impl.h"

static bool is_zero(const uint8_t *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (bytes[i] != 0)
			return false;
	return true;
}

/* The blocks of op->send that are not zero, from the last to the first or the other way. */
static uint64_t list_blocks(const struct sim_op *op, const struct op_spec *spec, bool backwards,
                            int64_t *index, uint8_t *values)
{
	size_t block_bytes = (size_t)spec->block * data_elem_bytes(spec->dtype);
	uint64_t blocks = spec->count / spec->block, found = 0;

	for (uint64_t i = 0; i < blocks; i++) {
		uint64_t block = backwards ? blocks - 1 - i : i;
		const uint8_t *from = op->send + block * block_bytes;

		if (is_zero(from, block_bytes))
			continue;
		index[found] = (int64_t)(block * spec->block);
		memcpy(values + found * block_bytes, from, block_bytes);
		found++;
	}
	return found;
}

void rows_make(struct sim_worker *w, struct sim_op *op, const struct op_spec *spec)
{
	size_t elem_bytes = data_elem_bytes(spec->dtype);
	uint64_t tail = spec->count % spec->block;
	struct rows_input input = {
		.block_elems = spec->block,
		.elem_bytes = (uint32_t)elem_bytes,
		.elems = spec->count,
	};
	const char *why = NULL;
	int64_t *index;

	if (spec->count < spec->block || op->recv == op->send ||
	    !simnet_chance(w->world->net, w->world->jobs[w->job].spec->list_ppm) ||
	    !is_zero(op->send + (spec->count - tail) * elem_bytes, tail * elem_bytes))
		return;
	index = malloc(spec->count / spec->block * sizeof(*index));
	op->list = malloc(spec->count * elem_bytes);
	input.block_count =
		list_blocks(op, spec, simnet_chance(w->world->net, 300000), index, op->list);
	input.index = index;
	input.values = op->list;
	input.gather = tail == 0 && simnet_chance(w->world->net, 500000);
	if (rows_open(&input, &op->rows, &why) != 0)
		abort();
	free(index);
}

void rows_scatter(struct sim_op *op, const struct op_spec *spec)
{
	size_t block_bytes = (size_t)spec->block * data_elem_bytes(spec->dtype);
	uint64_t count = op->rows->found;
	int64_t *index = malloc((count + 1) * sizeof(*index));
	uint8_t *values = malloc((count + 1) * block_bytes);

	rows_read(op->rows, index, values);
	memset(op->recv, 0, spec->count * data_elem_bytes(spec->dtype));
	for (uint64_t i = 0; i < count; i++)
		memcpy(op->recv + (size_t)index[i] * block_bytes, values + i * block_bytes,
		       block_bytes);
	free(index);
	free(values);
}

static struct geometry_part part_of(struct dice *dice, uint64_t count, bool tiles)
{
	struct geometry_part part = {.count = count, .tile_rows = 1, .copies = 1};
	uint64_t columns = between(dice, 1, 300);

	part.tile_columns = PICK(dice, 1, 7, 64, 100, 256, 3000);
	if (!tiles || columns > count || one_in(dice, 2))
		return part;
	part.columns = columns;
	part.count -= count % columns;
	part.tile_rows = PICK(dice, 1, 2, 5, 32, 200);
	part.tile_columns = PICK(dice, 1, 2, 3, 8, 100);
	return part;
}

void layout_make(struct sim_op *op, const struct op_spec *spec)
{
	struct dice dice = {.state = spec->layout / 2};
	uint64_t left = spec->count;
	struct geometry_part *part;

	if (spec->layout == 0)
		return;
	op->task.parts = op->parts;
	while (left > 0) {
		bool last = op->task.part_count == SIM_PARTS_MAX - 1;
		uint64_t most = left < UINT32_MAX ? left : UINT32_MAX;
		uint64_t count = last ? left : between(&dice, 1, (uint32_t)most);

		part = &op->parts[op->task.part_count++];
		*part = part_of(&dice, count, spec->layout % 2 == 1 && !last);
		left -= part->count;
	}
	/* Different layouts differ in their first block, which is small enough for any part. */
	if (spec->count > 0)
		op->parts[0].tile_columns = 1 + (uint32_t)(spec->layout / 2 % 97);
}
