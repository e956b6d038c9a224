// SPDX-License-Identifier: BSD-3-Clause
/*
 * staging_frames.c - see staging.h: copies frames of planned segments out of tensors and into them
 *
 * A frame is copied out when it has a plan and the previous frame in its place is over. Its sums,
 * which arrive later, wait in the other ring until a copy takes them. One copy in each direction
 * runs at a time, and takes all frames that have become ready meanwhile.
 */

#include <string.h>

#include "client/gpu/staging_impl.h"

static struct staging_cell *cell_of(const struct staging_ring *ring, uint32_t frame)
{
	return &ring->cells[frame & (ring->frame_count - 1)];
}

static size_t place_of(const struct staging *s, const struct staging_ring *ring, uint32_t frame)
{
	return (size_t)(frame & (ring->frame_count - 1)) * s->frame_stride;
}

/* ---- what is planned ---- */

/* The part begins, with frames of the blocks in plan->united. What is eager has one, with the segment's number. */
static struct staging_part *part_begin(struct staging_op *op, const struct access_plan *plan)
{
	const struct staging *s = op->staged->staging;
	const struct allreduce *task = op->task;
	const struct geometry *tensor = &task->cut;
	const struct geometry_frames *cut = &plan->cut->frames;
	const uint64_t before = plan->cut->first * tensor->elem_bytes;
	const uint32_t words = (uint32_t)bitmap_word_count(plan->cut->block_count);
	const uint32_t blocks = plan->union_count, first = plan->first;
	const uint32_t frame_blocks = tensor->eager && blocks > 0 ? blocks : cut->frame_blocks;
	struct staging_part *part = staging_part_of(op, plan->segment, plan->shard);
	struct staging_ring *ring = tensor->eager ? op->eager : &s->rings[plan->shard];
	struct gpu_plan *gpu = &s->plans[part - s->parts];

	part->ring = ring;
	part->announced = false;
	part->words = words;
	part->end = first + (blocks + frame_blocks - 1) / frame_blocks * cut->block_parts;
	part->packed = part->stored = part->unpacked = first;
	*gpu = (struct gpu_plan){
		.send = (const uint8_t *)task->send + before,
		.recv = (uint8_t *)task->recv + before,
		.tensor_bytes = plan->cut->part->count * tensor->elem_bytes,
		.first_index = plan->cut->index,
		.out = ring->out,
		.in = ring->in,
		.shard = plan->shard,
		.shard_count = tensor->shard_count,
		.block_bytes = cut->block_bytes,
		.frame_blocks = frame_blocks,
		.block_parts = cut->block_parts,
		.part_bytes = cut->part_bytes,
		.frame_first = first,
		.frame_mask = ring->frame_count - 1,
		.frame_stride = s->frame_stride,
		.fixed = plan->wire != (enum dtype)task->dtype,
		.shift = plan->shift,
		.divisor = task->reduction == REDUCE_AVG ? (float)s->config.world : 1,
	};
	memcpy(gpu->own, plan->own, words * sizeof(*gpu->own));
	memcpy(gpu->united, plan->united, words * sizeof(*gpu->united));
	return part;
}

/* An eager operation announces its own blocks. Copy them out; true when they are here. */
static bool eager_ready(struct staging_op *op, uint32_t number)
{
	const struct geometry_segment segment = geometry_segment(&op->task->cut, number);
	uint64_t found[GPU_PLAN_WORDS] = {0};
	struct access_plan own = {.segment = number,
	                          .first = number,
	                          .cut = &segment,
	                          .own = found,
	                          .united = found,
	                          .wire = (enum dtype)op->task->dtype};
	const struct staging_part *part = staging_part_of(op, number, 0);

	if (part->ring == NULL) {
		staging_bits(op, number, op->ratio, found, 0);
		own.union_count = (uint32_t)bitmap_set_count(found, GPU_PLAN_WORDS);
		(void)part_begin(op, &own);
	}
	return part->packed == part->end;
}

/* A segment reuses the parts of an earlier one, when the GPU has finished that on all shards. */
bool frames_ready(struct staging_op *op, uint32_t segment)
{
	if (op->task->cut.eager)
		return eager_ready(op, segment);
	for (uint32_t shard = 0; shard < op->task->cut.shard_count; shard++) {
		const struct staging_part *part = staging_part_of(op, segment, shard);

		if (part->announced || part->unpacked != part->end || part->copies > 0)
			return false;
	}
	return true;
}

/* Counts what crosses the bus: kernels read both bitmaps to carry out blocks, and one to carry them in. */
int frames_plan(struct allreduce *task, const struct access_plan *plan)
{
	struct staging_op *op = staging_op_of(task);
	struct staging_part *part = part_begin(op, plan);
	const uint64_t words = bitmap_word_count(plan->cut->block_count);
	const uint64_t own = bitmap_set_count(plan->own, words);

	part->ring->edge = plan->edge;
	if (task->cut.eager || own == 0)
		part->packed = part->end;
	op->staged->out_bytes += own * plan->cut->frames.block_bytes;
	if (own > 0)
		op->staged->in_bytes += 2 * 8 * words;
	if (plan->union_count > 0)
		op->staged->in_bytes +=
			8 * words + (uint64_t)plan->union_count * plan->cut->frames.block_bytes;
	return 0;
}

/* ---- sending and receiving ---- */

bool frames_pushable(const struct allreduce *task, const struct access_frame *frame)
{
	const struct staging_part *part =
		staging_part_of(staging_op_of(task), frame->segment, frame->shard);

	part->ring->edge = frame->edge;
	return (int32_t)(frame->number - part->packed) < 0;
}

void frames_push(const struct allreduce *task, const struct access_frame *frame,
                 struct packet_out *out)
{
	const struct staging_op *op = staging_op_of(task);
	const struct staging_ring *ring = staging_part_of(op, frame->segment, frame->shard)->ring;
	const struct staging *s = op->staged->staging;

	packet_point(out, ring->out + place_of(s, ring, frame->number),
	             frame->own_count * frame->unit_bytes);
}

/* Sums wait in their places until those of all earlier frames have also arrived. */
bool frames_store(struct allreduce *task, const struct access_frame *frame, const uint8_t *data)
{
	struct staging_op *op = staging_op_of(task);
	struct staging *s = op->staged->staging;
	struct staging_part *part = staging_part_of(op, frame->segment, frame->shard);
	struct staging_ring *ring = part->ring;
	struct staging_cell *cell = cell_of(ring, frame->number);

	ring->edge = frame->edge;
	if (cell->taken)
		return false;
	memcpy(ring->in + place_of(s, ring, frame->number), data, frame->count * frame->unit_bytes);
	*cell = (struct staging_cell){.taken = true, .frame = frame->number};
	for (; part->stored != part->end; part->stored++, s->waiting++) {
		cell = cell_of(ring, part->stored);
		if (!cell->taken || cell->frame != part->stored)
			break;
	}
	return true;
}

/* ---- copies ---- */

/*
 * How many of a part's frames may be copied out: those whose places' last frames are over. If the sums
 * of all frames have arrived, those that are left have no blocks of ours.
 */
static uint32_t frames_out(const struct staging_part *part)
{
	uint32_t left = part->end - part->packed;
	int32_t room;

	if (left == 0 || part->stored == part->end)
		return 0;
	room = (int32_t)(part->ring->edge + part->ring->frame_count - part->packed);
	return room <= 0 ? 0 : (uint32_t)room < left ? (uint32_t)room : left;
}

/* Add to the next copy what the operation has for it. */
static void add_runs(const struct staging *s, struct staging_lane *lane,
                     const struct staging_op *op)
{
	struct gpu_copy *copy = &lane->copy;

	for (uint32_t i = 0; i < s->part_count && copy->run_count < GPU_RUNS_MAX; i++) {
		struct staging_part *part = &op->parts[i];
		uint32_t count = copy->out ? frames_out(part) : part->stored - part->unpacked;

		if (count == 0)
			continue;
		lane->runs[copy->run_count++] =
			(struct gpu_run){.plan = &s->plans[part - s->parts],
		                         .words = part->words,
		                         .frame = copy->out ? part->packed : part->unpacked,
		                         .count = count,
		                         .before = copy->frame_count};
		copy->frame_count += count;
		part->copies++;
	}
}

/* What a run has carried out may be pushed; what it has carried in leaves its places. */
static void run_done(struct staging *s, const struct gpu_run *run, bool out)
{
	struct staging_part *part = &s->parts[run->plan - s->plans];

	part->copies--;
	if (out)
		part->packed += run->count;
	for (uint32_t i = 0; !out && i < run->count; i++, part->unpacked++, s->waiting--)
		cell_of(part->ring, part->unpacked)->taken = false;
}

/* If the lane's last copy is done, start the next. False: nothing has changed. */
static bool copy_next(struct staging *s, struct staging_lane *lane)
{
	struct gpu_copy *copy = &lane->copy;
	bool was_busy = copy->run_count > 0;

	if (was_busy && !staging_reached(&copy->done))
		return false;
	for (uint32_t i = 0; i < copy->run_count; i++)
		run_done(s, &lane->runs[i], copy->out);
	copy->run_count = copy->frame_count = 0;
	for (uint32_t i = 0; i < s->config.op_slots; i++)
		if (s->ops[i].staged != NULL && !s->ops[i].failed)
			add_runs(s, lane, &s->ops[i]);
	if (copy->run_count == 0)
		return was_busy;
	copy->done.value++;
	(void)s->config.calls->copy(s->gpu, copy, &s->error);
	return true;
}

bool frames_copy(struct staging *s)
{
	bool out = copy_next(s, &s->lanes[true]);

	return copy_next(s, &s->lanes[false]) || out;
}
