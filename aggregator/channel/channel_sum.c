// SPDX-License-Identifier: BSD-3-Clause
/* channel_sum.c - adding blocks up: of a frame, or of an operation that travels in its announcements */

#include "aggregator/channel/channel_impl.h"

struct sum sum_of(const struct channel *channel, const struct segment *segment)
{
	const struct operation *op = &channel->ops[segment->op];
	bool fixed = op->asked.form == WIRE_FIXED32 && !segment->nonfinite;

	return (struct sum){
		.engine = channel->config.engine,
		.dtype = fixed ? DTYPE_I32 : op->asked.dtype,
		.reduction = fixed ? REDUCE_SUM : op->asked.reduction,
	};
}

/* How many blocks from `first` on are alike, in `a` or not and in `b` or not: within a word, before `end`. */
static uint32_t run_from(uint32_t first, uint32_t end, const uint64_t *a, const uint64_t *b)
{
	uint64_t in_a = a[first / 64] >> (first % 64), in_b = b[first / 64] >> (first % 64);
	uint64_t others = (in_a ^ -(in_a & 1)) | (in_b ^ -(in_b & 1));
	uint32_t run = others != 0 ? (uint32_t)__builtin_ctzll(others) : 64;

	run = run < 64 - first % 64 ? run : 64 - first % 64;
	return run < end - first ? run : end - first;
}

void sum_add(const struct sum *sum, const uint64_t *mask, const uint8_t *data)
{
	size_t sum_bytes = (size_t)sum->unit_elems * dtype_acc_bytes(sum->dtype);
	size_t data_bytes = (size_t)sum->unit_elems * dtype_bytes(sum->dtype);
	uint32_t run;

	for (uint32_t i = 0; i < sum->block_count; i += run) {
		uint8_t *to = sum->sums + i * sum_bytes;

		run = run_from(i, sum->block_count, mask, sum->touched);
		if (!bit_test(mask, i))
			continue;
		if (bit_test(sum->touched, i))
			sum->engine->reduce(to, data, (uint64_t)run * sum->unit_elems, sum->dtype,
			                    sum->reduction);
		else
			sum->engine->load(to, data, (uint64_t)run * sum->unit_elems, sum->dtype);
		data += run * data_bytes;
	}
	for (uint32_t word = 0; word < (sum->block_count + 63) / 64; word++)
		sum->touched[word] |= mask[word];
}

uint32_t sum_finish(const struct sum *sum, const uint64_t *owned, uint32_t worker_count)
{
	size_t sum_bytes = (size_t)sum->unit_elems * dtype_acc_bytes(sum->dtype);
	size_t data_bytes = (size_t)sum->unit_elems * dtype_bytes(sum->dtype);
	uint8_t *to = sum->sums;
	uint32_t run;

	for (uint32_t i = 0; i < sum->block_count; i++)
		if (bit_test(sum->touched, i) && !bit_test(owned, i))
			sum->engine->zero_fold(sum->sums + i * sum_bytes, sum->unit_elems,
			                       sum->dtype, sum->reduction);
	for (uint32_t i = 0; i < sum->block_count; i += run) {
		uint8_t *from = sum->sums + i * sum_bytes;

		run = run_from(i, sum->block_count, sum->touched, sum->touched);
		if (!bit_test(sum->touched, i))
			continue;
		sum->engine->finish(from, from, (uint64_t)run * sum->unit_elems, sum->dtype,
		                    sum->reduction, worker_count);
		if (to != from)
			memmove(to, from, run * data_bytes);
		to += run * data_bytes;
	}
	return (uint32_t)(to - sum->sums);
}
