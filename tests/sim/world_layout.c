// SPDX-License-Identifier: BSD-3-Clause
/* world_layout.c - tensors of several parts, which may be matrices in tiles; the same on all workers */

#include "tests/sim/dice.h"
#include "tests/sim/world_impl.h"

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
