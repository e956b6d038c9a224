// SPDX-License-Identifier: BSD-3-Clause
/*
 * staging_frames.c - see staging.h: copies frames of planned segments out of tensors and into them
 *
 * Frame f of a channel has place f % frame_count in each of two rings. A frame is copied out when
 * it has a plan and the previous frame in its place is over. Its sums, which arrive later, wait in
 * the other ring until a copy takes them. One copy in each direction runs at a time, and takes all
 * frames that have become ready meanwhile.
 */

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "client/gpu/staging_impl.h"

#define EAGER_FRAME_BLOCKS WIRE_FRAME_BLOCKS_MAX /* as struct access_frame has it */

static struct staging_cell *cell_of(const struct staging *s, uint32_t channel, uint32_t frame)
{
	return &s->channels[channel].cells[frame & (s->frame_count - 1)];
}

static size_t place_of(const struct staging *s, uint32_t frame)
{
	return (size_t)(frame & (s->frame_count - 1)) * s->frame_stride;
}

/* The operations will fail. */
void staging_failed(struct staging *s, const char *why)
{
	if (s->error.text[0] == '\0')
		why_set(&s->error, 0, "%s", why);
}

/* ---- what is planned ---- */

/* Insert by frame number, because plans may arrive out of order. */
static void queue_out(struct staging_channel *channel, struct staging_part *part)
{
	struct staging_part **at = &channel->first;

	while (*at != NULL && (int32_t)((*at)->first - part->first) < 0)
		at = &(*at)->next_out;
	part->next_out = *at;
	part->queued_out = true;
	*at = part;
}

static void unqueue_out(struct staging_part *part)
{
	struct staging_part **at = &part->op->staging->channels[part->channel].first;

	if (!part->queued_out)
		return;
	while (*at != part)
		at = &(*at)->next_out;
	*at = part->next_out;
	part->queued_out = false;
}

/* What the kernels have to know of a part, but for its bits. Frames of one without any follow each other. */
static void part_fill(struct staging_part *part, uint32_t segment, uint32_t shard)
{
	const struct staging_op *op = part->op;
	const struct staging *s = op->staging;
	const struct geometry *cut = &op->task->cut;
	const struct staging_channel *channel;

	part->channel = cut->eager ? s->config.shard_count : shard;
	channel = &s->channels[part->channel];
	*part->gpu = (struct gpu_plan){
		.send = op->task->send,
		.recv = op->task->recv,
		.tensor_bytes = op->task->count * cut->elem_bytes,
		.first_index = (uint64_t)segment * cut->segment_blocks,
		.out = cut->eager ? op->eager : channel->out,
		.in = cut->eager ? op->eager : channel->in,
		.shard = shard,
		.shard_count = cut->shard_count,
		.block_bytes = cut->block_bytes,
		.frame_blocks = cut->eager ? EAGER_FRAME_BLOCKS : cut->frame_blocks,
		.block_parts = cut->eager ? 1 : cut->block_parts,
		.part_bytes = cut->eager ? cut->block_bytes : cut->part_bytes,
		.frame_first = part->first,
		.frame_mask = cut->eager ? UINT32_MAX : s->frame_count - 1,
		.frame_stride =
			cut->eager ? EAGER_FRAME_BLOCKS * cut->block_bytes : s->frame_stride,
	};
}

static uint32_t frames_for(const struct geometry *cut, uint32_t blocks)
{
	if (cut->eager)
		return (blocks + EAGER_FRAME_BLOCKS - 1) / EAGER_FRAME_BLOCKS;
	return blocks > 0 ? geometry_frame_count(cut, blocks) : 0;
}

static uint32_t bits_copy(uint64_t *to, const uint64_t *from, uint32_t blocks)
{
	uint32_t count = 0;

	memcpy(to, from, bitmap_word_count(blocks) * sizeof(*to));
	for (uint32_t i = 0; i < bitmap_word_count(blocks); i++)
		count += (uint32_t)__builtin_popcountll(to[i]);
	return count;
}

/* Queue a part that has `own` blocks of ours to copy out. Kernels read both bitmaps. */
static void carry_out(struct staging_part *part, uint32_t blocks, uint32_t own)
{
	struct staging_op *op = part->op;

	assert(!part->queued_out);
	part->packed = part->pushable = part->first;
	if (own == 0)
		return;
	op->staged->in_bytes += 2 * 8 * bitmap_word_count(blocks);
	op->staged->out_bytes += (uint64_t)own * op->task->cut.block_bytes;
	queue_out(&op->staging->channels[part->channel], part);
}

/* An eager operation announces its own blocks. Copy them out; true when they are here. */
static bool eager_ready(struct staging_op *op)
{
	struct staging_part *part = staging_part_of(op, 0, 0);
	uint32_t blocks = (uint32_t)op->task->cut.block_count, own;

	if (op->task->count == 0)
		return true;
	if (part->state == PART_FREE) {
		part->state = PART_ANNOUNCED;
		part->first = 0;
		part_fill(part, 0, 0);
		own = bits_copy(part->gpu->own, (const uint64_t *)(void *)op->found, blocks);
		memcpy(part->gpu->united, part->gpu->own, sizeof(part->gpu->own));
		part->end = frames_for(&op->task->cut, own);
		carry_out(part, blocks, own);
	}
	return part->pushable == part->end;
}

/* A segment reuses the parts of an earlier one, when the GPU has finished that on all shards. */
bool frames_ready(struct staging_op *op, uint32_t segment)
{
	if (op->task->cut.eager)
		return eager_ready(op);
	for (uint32_t shard = 0; shard < op->task->cut.shard_count; shard++) {
		const struct staging_part *part = staging_part_of(op, segment, shard);

		if (part->state != PART_FREE && (part->state != PART_RECEIVED ||
		                                 part->unpacked != part->end || part->copies > 0))
			return false;
	}
	return true;
}

int frames_plan(struct allreduce *task, const struct access_plan *plan)
{
	struct staging_op *op = staging_op_of(task);
	struct staging *s = op->staging;
	struct staging_part *part = staging_part_of(op, plan->segment, plan->shard);
	uint32_t own;

	part->state = PART_PLANNED;
	part->first = op->task->cut.eager ? 0 : plan->first;
	part->end = part->first + frames_for(&op->task->cut, plan->union_count);
	part->stored = part->unpacked = part->first;
	part_fill(part, plan->segment, plan->shard);
	own = bits_copy(part->gpu->own, plan->own, plan->block_count);
	(void)bits_copy(part->gpu->united, plan->united, plan->block_count);
	if (plan->fixed)
		gpu_plan_fixed(part->gpu, plan->shift,
		               task->reduction == REDUCE_AVG ? s->config.world : 1);
	if (part->end != part->first)
		op->staged->in_bytes += 8 * bitmap_word_count(plan->block_count) +
		                        (uint64_t)plan->union_count * op->task->cut.block_bytes;
	if (op->task->cut.eager)
		return 0;
	s->channels[part->channel].edge = plan->edge;
	carry_out(part, plan->block_count, own);
	return 0;
}

/* ---- sending and receiving ---- */

bool frames_pushable(const struct allreduce *task, const struct access_frame *frame)
{
	const struct staging_op *op = staging_op_of(task);

	op->staging->channels[frame->shard].edge = frame->edge;
	return (int32_t)(frame->number -
	                 staging_part_of(op, frame->segment, frame->shard)->pushable) < 0;
}

void frames_push(const struct allreduce *task, const struct access_frame *frame, uint64_t mask,
                 struct packet_out *out)
{
	const struct staging_op *op = staging_op_of(task);
	const struct staging *s = op->staging;

	packet_point(out, s->channels[frame->shard].out + place_of(s, frame->number),
	             (uint32_t)__builtin_popcountll(mask) * frame->unit_bytes);
}

/* The next `frames` consecutive frames have been stored: queue them to be copied in. */
static void count_in(struct staging_part *part, uint32_t frames)
{
	struct staging *s = part->op->staging;

	if (frames == 0)
		return;
	part->stored += frames;
	part->op->waiting += frames;
	s->waiting += frames;
	if (part->queued_in)
		return;
	part->queued_in = true;
	part->next_in = s->to_unpack;
	s->to_unpack = part;
}

bool frames_store(struct allreduce *task, const struct access_frame *frame, const uint8_t *data)
{
	struct staging_op *op = staging_op_of(task);
	struct staging *s = op->staging;
	struct staging_part *part = staging_part_of(op, frame->segment, frame->shard);
	struct staging_channel *channel = &s->channels[frame->shard];
	uint32_t bytes = frame->count * frame->unit_bytes, more = 0;
	struct staging_cell *cell;

	if (op->task->cut.eager) {
		memcpy(op->eager + (size_t)frame->number * EAGER_FRAME_BLOCKS * frame->unit_bytes,
		       data, bytes);
		count_in(part, 1);
		return true;
	}
	channel->edge = frame->edge;
	cell = cell_of(s, frame->shard, frame->number);
	if (cell->taken)
		return false;
	memcpy(channel->in + place_of(s, frame->number), data, bytes);
	*cell = (struct staging_cell){.taken = true, .frame = frame->number};
	while (part->stored + more != part->end) {
		cell = cell_of(s, frame->shard, part->stored + more);
		if (!cell->taken || cell->frame != part->stored + more)
			break;
		more++;
	}
	count_in(part, more);
	return true;
}

/* Sums of all frames have arrived, so frames not copied out yet have no blocks of ours. */
void frames_received(struct allreduce *task, uint32_t shard, uint32_t segment)
{
	struct staging_part *part = staging_part_of(staging_op_of(task), segment, shard);

	unqueue_out(part);
	part->state = PART_RECEIVED;
}

/* ---- copies ---- */

static void add_run(struct staging_lane *lane, struct staging_part *part, uint32_t frame,
                    uint32_t count)
{
	lane->parts[lane->run_count] = part;
	lane->runs[lane->run_count++] = (struct gpu_run){
		.plan = part->gpu, .frame = frame, .count = count, .before = lane->frames};
	lane->frames += count;
	part->copies++;
	part->op->copies++;
}

/* How many frames of the channel's first part have room, since the frames before them are over. */
static uint32_t room_for(const struct staging *s, const struct staging_channel *channel)
{
	const struct staging_part *part = channel->first;
	int32_t room = (int32_t)(channel->edge + s->frame_count - part->packed);
	uint32_t left = part->end - part->packed;

	if (channel->cells == NULL)
		return left;
	return room <= 0 ? 0 : (uint32_t)room < left ? (uint32_t)room : left;
}

static void gather_out(struct staging *s)
{
	for (uint32_t i = 0; i <= s->config.shard_count; i++) {
		struct staging_channel *channel = &s->channels[i];
		struct staging_part *part;

		while ((part = channel->first) != NULL && s->out.run_count < GPU_RUNS_MAX) {
			uint32_t count = room_for(s, channel);

			if (count == 0)
				break;
			add_run(&s->out, part, part->packed, count);
			part->packed += count;
			if (part->packed != part->end)
				break;
			unqueue_out(part);
		}
	}
}

static void gather_in(struct staging *s)
{
	while (s->to_unpack != NULL && s->in.run_count < GPU_RUNS_MAX) {
		struct staging_part *part = s->to_unpack;
		uint32_t count = part->stored - part->unpacked;

		s->to_unpack = part->next_in;
		part->queued_in = false;
		part->op->waiting -= count;
		s->waiting -= count;
		add_run(&s->in, part, part->unpacked, count);
		part->unpacked = part->stored;
	}
}

/* What a run has carried out may be pushed; what it has carried in leaves its places. */
static void run_done(struct staging *s, const struct gpu_run *run, struct staging_part *part,
                     bool out)
{
	part->copies--;
	part->op->copies--;
	if (out)
		part->pushable = run->frame + run->count;
	for (uint32_t i = 0; !out && s->channels[part->channel].cells != NULL && i < run->count;
	     i++)
		cell_of(s, part->channel, run->frame + i)->taken = false;
}

/* False: nothing has changed. */
static bool copy_next(struct staging *s, struct staging_lane *lane, bool out)
{
	struct gpu_copy copy = {.out = out, .runs = lane->runs};
	bool was_busy = lane->run_count > 0;
	struct why why;

	if (was_busy && !staging_reached(lane->word, lane->last))
		return false;
	for (uint32_t i = 0; i < lane->run_count; i++)
		run_done(s, &lane->runs[i], lane->parts[i], out);
	lane->run_count = lane->frames = 0;
	(out ? gather_out : gather_in)(s);
	if (lane->run_count == 0)
		return was_busy;
	copy.run_count = lane->run_count;
	copy.frame_count = lane->frames;
	copy.done = (struct gpu_word){lane->word, ++lane->last};
	if (s->config.calls->copy(s->gpu, &copy, &why) != 0)
		staging_failed(s, why.text);
	return true;
}

bool frames_copy(struct staging *s)
{
	bool out = copy_next(s, &s->out, true);

	return copy_next(s, &s->in, false) || out;
}

/* ---- ending ---- */

static void part_forget(struct staging_part *part)
{
	struct staging *s = part->op->staging;
	struct staging_part **at = &s->to_unpack;

	unqueue_out(part);
	while (*at != NULL && *at != part)
		at = &(*at)->next_in;
	if (*at != NULL)
		*at = part->next_in;
	part->queued_in = false;
}

/* It fails before it has plans, or with its whole session, so its places need not be freed. */
void frames_forget(struct staging_op *op)
{
	for (uint32_t i = 0; i < STAGING_AHEAD * op->staging->config.shard_count; i++)
		if (op->parts[i].state > PART_ANNOUNCED ||
		    (op->parts[i].state == PART_ANNOUNCED && op->task->cut.eager))
			part_forget(&op->parts[i]);
	op->staging->waiting -= op->waiting;
	op->waiting = 0;
}
