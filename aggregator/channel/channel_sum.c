// SPDX-License-Identifier: BSD-3-Clause
/* channel_sum.c - adds up the blocks of a frame, or of an eager operation */

#include "aggregator/channel/channel_state.h"

struct sum sum_of(const struct channel *channel, const struct segment *segment, uint32_t unit_bytes,
                  uint32_t block_count, uint8_t *sums)
{
	const struct operation *op = &channel->ops[segment->op];
	uint8_t form = op->asked.form, reduction = op->asked.reduction;
	enum dtype dtype;

	if (channel->config.sited && reduction == REDUCE_AVG)
		reduction = REDUCE_SUM; /* the parent divides, once */

	/* 9.1: "Where the plan is nonfinite, the segment is sent as f32 in form fixed32" */
	if (form == WIRE_FIXED32 && segment->nonfinite)
		form = WIRE_NATIVE;
	dtype = dtype_in_form(form, op->asked.dtype);
	return (struct sum){
		.engine = channel->config.engine,
		.dtype = dtype,
		.reduction = form >= WIRE_FIXED32 ? REDUCE_SUM : reduction,
		.unit_elems = unit_bytes / dtype_bytes(dtype),
		.block_count = block_count,
		.sums = sums,
	};
}

void sum_add(const struct sum *sum, const uint64_t *lanes, uint32_t own, const uint8_t *data,
             bool first)
{
	const struct bitmap_lanes which = {
		.bits = lanes, .block_count = sum->block_count, .block_elems = sum->unit_elems};
	const uint64_t elems = (uint64_t)sum->block_count * sum->unit_elems;

	if (own == sum->block_count && first) {
		sum->engine->load(sum->sums, data, elems, sum->dtype);
		return;
	}
	if (first)
		sum->engine->neutral(sum->sums, elems, sum->dtype, sum->reduction);
	if (own == sum->block_count)
		sum->engine->reduce(sum->sums, data, elems, sum->dtype, sum->reduction);
	else
		sum->engine->reduce_at(sum->sums, &which, data, sum->dtype, sum->reduction);
}

void sum_add_zeros(const struct sum *sum, const uint64_t *all_have)
{
	static const uint8_t zeros[WIRE_PAYLOAD_MAX];
	size_t sum_bytes = (size_t)sum->unit_elems * dtype_acc_bytes(sum->dtype);

	for (uint32_t i = 0; i < sum->block_count; i++)
		if (!bit_test(all_have, i))
			sum->engine->reduce(sum->sums + i * sum_bytes, zeros, sum->unit_elems,
			                    sum->dtype, sum->reduction);
}

/* Returns how many blocks from `first` on are in `lanes`, without a gap. */
static uint32_t run_from(uint32_t first, uint32_t end, const uint64_t *lanes)
{
	uint32_t run = 0;

	while (first + run < end && (lanes == NULL || bit_test(lanes, first + run)))
		run += lanes == NULL ? end - first : 1;
	return run;
}

uint32_t sum_finish(const struct sum *sum, const uint64_t *lanes, uint32_t worker_count)
{
	size_t sum_bytes = (size_t)sum->unit_elems * dtype_acc_bytes(sum->dtype);
	size_t data_bytes = (size_t)sum->unit_elems * dtype_bytes(sum->dtype);
	uint8_t *to = sum->sums;
	uint32_t run;

	for (uint32_t i = 0; i < sum->block_count; i += run + 1) {
		uint8_t *from = sum->sums + i * sum_bytes;

		run = run_from(i, sum->block_count, lanes);
		if (run == 0)
			continue;
		sum->engine->finish(from, from, (uint64_t)run * sum->unit_elems, sum->dtype,
		                    sum->reduction, worker_count);
		if (to != from)
			memmove(to, from, run * data_bytes);
		to += run * data_bytes;
	}
	return (uint32_t)(to - sum->sums);
}
