// SPDX-License-Identifier: BSD-3-Clause
/*
 * dpdk_bytes.c - cycles a byte of what the dpdk data path does to a frame's data: copy, checksum, addition
 *
 * Cycles are the time-stamp counter's. A turn treats 64 frames of 1 KiB, each in 2 KB of its own, so they come from
 * the second-level cache as frames that a port has just written do; "L1" is one frame 64 times. The fastest of
 * many turns. DPDK's own checksum is there for comparison.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_ip.h>

#include "aggregator/dpdk/frame.h"
#include "bitmap/bitmap.h"

#define FRAMES 64
#define ROOM 2048
#define BYTES 1024
#define TURNS 2000

struct work {
	const struct bitmap_engine *engine;
	enum dtype dtype;
	uint8_t *slots, *frames; /* [FRAMES * ROOM] */
};

typedef void step_fn(const struct work *work, size_t at);

static volatile uint64_t sink;

static void step_copy(const struct work *work, size_t at)
{
	memcpy(work->slots + at, work->frames + at, BYTES);
}

static void step_sum(const struct work *work, size_t at)
{
	sink = frame_sum(work->frames + at, BYTES);
}

static void step_sum_any(const struct work *work, size_t at)
{
	sink = frame_sum_any(work->frames + at, BYTES);
}

static void step_rte_sum(const struct work *work, size_t at)
{
	sink = rte_raw_cksum(work->frames + at, BYTES);
}

static void step_add(const struct work *work, size_t at)
{
	work->engine->reduce(work->slots + at, work->frames + at, BYTES / 4, work->dtype,
	                     REDUCE_SUM);
}

static double cycles_a_byte(step_fn *step, const struct work *work, size_t stride)
{
	uint64_t best = UINT64_MAX;

	for (uint32_t turn = 0; turn < TURNS; turn++) {
		uint64_t begin = rte_rdtsc_precise(), took;

		for (size_t i = 0; i < FRAMES; i++)
			step(work, i * stride);
		took = rte_rdtsc_precise() - begin;
		best = took < best ? took : best;
	}
	return (double)best / (FRAMES * BYTES);
}

static void row(const char *name, const char *engine, step_fn *step, const struct work *work)
{
	printf("%-14s %-8s %8.3f %8.3f\n", name, engine, cycles_a_byte(step, work, ROOM),
	       cycles_a_byte(step, work, 0));
}

int main(void)
{
	struct work work = {.slots = aligned_alloc(4096, FRAMES * ROOM),
	                    .frames = aligned_alloc(4096, FRAMES * ROOM)};

	if (work.slots == NULL || work.frames == NULL)
		return 1;
	memset(work.slots, 0, FRAMES * ROOM);
	memset(work.frames, 0, FRAMES * ROOM);
	printf("%-14s %-8s %8s %8s   cycles a byte\n", "step", "engine", "L2", "L1");
	row("copy", "libc", step_copy, &work);
	row("checksum", "any", step_sum_any, &work);
	row("checksum", "best", step_sum, &work);
	row("rte_raw_cksum", "DPDK", step_rte_sum, &work);
	for (size_t i = 0; bitmap_engines[i] != NULL; i++) {
		work.engine = bitmap_engines[i];
		if (!work.engine->usable())
			continue;
		work.dtype = DTYPE_F32;
		row("add f32", work.engine->name, step_add, &work);
		work.dtype = DTYPE_I32;
		row("add i32", work.engine->name, step_add, &work);
	}
	free(work.slots);
	free(work.frames);
	return 0;
}
