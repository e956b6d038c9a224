/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * plain_gpu.h - what a GPU does, in plain loops over the host's memory
 *
 * The reference of the kernels (test_kernels.cc), and the simulation's GPU. It shares no code with
 * the kernels; C and C++.
 */
#ifndef TESTS_GPU_PLAIN_GPU_H
#define TESTS_GPU_PLAIN_GPU_H

#include <string.h>

#include "kernels/gpu.h"

/* Into scan->found, the words of the bitmap, then magnitudes. */
static inline void plain_scan(const struct gpu_scan *scan)
{
	const struct bitmap_tensor *tensor = &scan->tensor;
	const uint32_t bytes = dtype_bytes(tensor->dtype);
	const uint64_t blocks = bitmap_block_count(tensor->count, tensor->block_elems);
	const uint64_t care =
		dtype_is_float(tensor->dtype) ? (UINT64_C(1) << (8 * bytes - 1)) - 1 : UINT64_MAX;
	uint32_t *top = scan->found + 2 * bitmap_word_count(blocks);

	memset(scan->found, 0, gpu_scan_room(blocks, scan->range_blocks) * sizeof(uint32_t));
	for (uint64_t i = 0; i < tensor->count; i++) {
		uint64_t value = 0, block;

		memcpy(&value, (const uint8_t *)tensor->data + i * bytes, bytes);
		value &= care;
		if (value == 0)
			continue;
		block = i / tensor->block_elems;
		scan->found[block / 32] |= 1u << block % 32;
		if (scan->range_blocks > 0 && value > top[block / scan->range_blocks])
			top[block / scan->range_blocks] = (uint32_t)value;
	}
}

/* The block of the tensor that a shard's bit stands for: PROTOCOL.md section 4.2. */
static inline uint64_t plain_block(const struct gpu_plan *plan, uint64_t index)
{
	const uint32_t count = plan->shard_count;
	const uint32_t turn = (uint32_t)((index * UINT64_C(0x9e3779b97f4a7c15)) >> 33) % count;

	return index * count + (plan->shard + count - turn) % count;
}

static inline uint8_t *plain_place(const struct gpu_plan *plan, bool out, uint32_t frame)
{
	return (out ? plan->out : plan->in) +
	       (size_t)(frame & plan->frame_mask) * plan->frame_stride;
}

/* One block's bytes [offset, offset + bytes) between tensor and frame: section 9. */
static inline void plain_part(const struct gpu_plan *plan, bool out, uint64_t block,
                              uint32_t offset, uint32_t bytes, uint8_t *frame)
{
	const struct bitmap_engine *engine = bitmap_named("scalar");
	const uint64_t at = block * plan->block_bytes + offset;
	const uint64_t left = plan->tensor_bytes > at ? plan->tensor_bytes - at : 0;
	const uint32_t have = left < bytes ? (uint32_t)left : bytes;

	if (out) {
		memset(frame, 0, bytes);
		memcpy(frame, plan->send + at, have);
		if (plan->fixed)
			engine->fixed_encode(frame, frame, bytes / 4, DTYPE_I32, plan->shift);
	} else if (plan->fixed) {
		engine->fixed_decode(plan->recv + at, frame, have / 4, DTYPE_I32, plan->shift,
		                     (uint32_t)plan->divisor);
	} else {
		memcpy(plan->recv + at, frame, have);
	}
}

/* Out: our own blocks side by side. In: all of the union. */
static inline void plain_frame(const struct gpu_run *run, bool out, uint32_t frame)
{
	const struct gpu_plan *plan = run->plan;
	const uint32_t number = frame - plan->frame_first, part = number % plan->block_parts;
	const uint32_t first = number / plan->block_parts * plan->frame_blocks;
	const uint32_t offset = part * plan->part_bytes;
	const uint32_t bytes =
		part + 1 < plan->block_parts ? plan->part_bytes : plan->block_bytes - offset;
	uint8_t *at = plain_place(plan, out, frame);
	uint32_t rank = 0; /* in the union */

	for (uint32_t i = 0; i < run->words * 64 && rank < first + plan->frame_blocks; i++) {
		const uint64_t bit = UINT64_C(1) << i % 64;

		if ((plan->united[i / 64] & bit) == 0)
			continue;
		if (rank >= first && (!out || (plan->own[i / 64] & bit) != 0)) {
			plain_part(plan, out, plain_block(plan, plan->first_index + i), offset,
			           bytes, at);
			at += bytes;
		}
		rank++;
	}
}

#endif
