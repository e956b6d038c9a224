// SPDX-License-Identifier: BSD-3-Clause
/*
 * staging.c - see staging.h: the bits of a tensor, and the frames of planned segments
 *
 * A frame is copied out when it has a plan and the previous frame in its place is over. Its sums
 * arrive later and wait in the other ring until a copy takes them. One copy runs in each direction
 * at a time. Each takes all frames that became ready during the one before.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/gpu/staging.h"

#define WINDOWS_MAX 4       /* The longest ring, in windows. */
#define BITS_MAX (1u << 30) /* The most bits of one operation that are known at a time. */
#define BITS_SHARE 8        /* Bits take 1/8 of the pinned memory. */
#define PLANS_SHARE 8       /* Plans take 1/8 too, unless AHEAD_LEAST segments need more. */
#define AHEAD_LEAST 8       /* winnowd's default. */
#define PIECE_SEGMENTS 1024 /* The most segments whose magnitudes are known at a time. */
#define ASKED_MAX 4         /* Marks that a turn checks, because each takes a call of CUDA. */

/* A place in a channel's ring of sums. */
struct staging_cell {
	bool taken;     /* The sums of a frame have arrived and are not unpacked. */
	uint32_t frame; /* The frame's number. */
};

/* A ring for each shard, and a small one for each operation, for blocks that travel with announcements. */
struct staging_ring {
	struct staging_cell *cells; /* [frame_count] */
	uint8_t *out, *in;          /* [frame_count] frames of pinned memory. */
	uint32_t frame_count;       /* A power of two. */
	uint32_t edge;              /* Frames before this one are over. */
};

/* A segment of a shard. Its frames are those before `end`. It is unused if all is zero. */
struct staging_part {
	struct staging_ring *ring;
	bool announced; /* It is announced and not planned. */
	uint32_t words; /* The words of its bitmaps. */
	uint32_t end;
	uint32_t packed;   /* Frames before it are copied out and may be pushed. */
	uint32_t stored;   /* Results have arrived for frames before it. */
	uint32_t unpacked; /* Frames before it are copied in. */
	uint32_t copies;   /* Copies under way, of both directions. */
};

/* A slot for an operation. It is free if `staged` is NULL. */
struct staging_op {
	struct staged *staged;
	struct allreduce *task;
	/* Bits are known for one piece of the tensor at a time, a number of segments of one part. */
	const struct geometry_part *part;
	struct gpu_scan scan;           /* The last scan. */
	bool scanning;                  /* The scan is not known to be done. */
	uint32_t grain, ratio;          /* Elements per bit, and bits per block. */
	uint64_t segment_bits;          /* Bits of a whole segment in all shards. */
	uint32_t piece, piece_segments; /* The piece's first segment and their number. */
	uint64_t piece_bits;            /* Bits of the piece. */
	uint64_t *view;             /* The bitmap for viewed(); NULL if not wanted or no memory. */
	struct staging_part *parts; /* [part_count] */
	struct staging_ring *eager;
	bool finishing; /* staging_finish() was called. */
	bool failed;    /* It ends without a result, so no more copies are started. */
};

struct staging {
	struct staging_config config;
	struct gpu *gpu;
	struct gpu_memory memory;
	uint32_t bits;                      /* The most bits of an operation. */
	uint32_t frame_count, frame_stride; /* Frames of a shard's ring, and the bytes of one. */
	uint32_t ahead;         /* Segments of an operation that may be announced, not unpacked. */
	uint32_t part_count;    /* Parts of an operation: ahead * shard_count. */
	struct staging_op *ops; /* [op_slots] */
	struct staging_ring *rings; /* [shard_count + op_slots] */
	struct staging_cell *cells; /* The cells of all rings. */
	struct staging_part *parts; /* The parts of all operations. */
	struct gpu_plan *plans;     /* A plan for each part, in pinned memory. */
	struct gpu_copy copies[2];  /* The last copies in and out. A copy without runs is done. */
	uint32_t waiting;           /* Frames stored and not unpacked. */
	uint32_t asked;             /* Marks that have been checked since the last turn. */
	bool moved;       /* An operation was submitted or has begun since the last turn. */
	struct why error; /* Why the GPU has failed; operations will fail too. */
};

/* Tells whether the GPU has reached this value. Values wrap at 2^32. */
static bool word_reached(const struct gpu_word *word)
{
	return (int32_t)(__atomic_load_n(word->at, __ATOMIC_ACQUIRE) - word->value) >= 0;
}

/* The slot of an operation that has begun. */
static struct staging_op *op_of(const struct allreduce *task)
{
	return ((const struct staged *)task->access_state)->op;
}

static struct staging_part *part_of(const struct staging_op *op, uint32_t segment, uint32_t shard)
{
	const struct staging *s = op->staged->staging;

	return &op->parts[segment % s->ahead * s->config.shape.channels + shard];
}

static struct staging_cell *cell_of(const struct staging_ring *ring, uint32_t frame)
{
	return &ring->cells[frame & (ring->frame_count - 1)];
}

static size_t place_of(const struct staging *s, const struct staging_ring *ring, uint32_t frame)
{
	return (size_t)(frame & (ring->frame_count - 1)) * s->frame_stride;
}

/* ---- opening ---- */

/* Takes the area's next bytes. Returns NULL while lay_out() only counts. */
static void *area_place(struct gpu_area *area, size_t bytes)
{
	uint8_t *at = area->at != NULL ? area->at + area->bytes : NULL;

	area->bytes += (bytes + 255) / 256 * 256;
	return at;
}

/* Sets all pointers into the memory. Before the GPU is open, it only counts the bytes. */
static void lay_out(struct staging *s)
{
	const struct session_shape *job = &s->config.shape;
	struct gpu_area *pinned = &s->memory.pinned, *device = &s->memory.device;
	struct staging_cell *cells = s->cells;
	size_t scan_bytes = (s->bits / 32 + PIECE_SEGMENTS) * sizeof(uint32_t);

	pinned->bytes = device->bytes = 0;
	for (uint32_t out = 0; out < 2; out++)
		s->copies[out] = (struct gpu_copy){.out = out,
		                                   .ticket = area_place(device, sizeof(uint32_t)),
		                                   .done.at = area_place(pinned, sizeof(uint32_t))};
	s->plans = area_place(pinned, sizeof(struct gpu_plan) * s->part_count * job->op_slots);
	for (uint32_t i = 0; i < job->op_slots; i++) {
		struct staging_op *op = &s->ops[i];

		op->parts = &s->parts[(size_t)i * s->part_count];
		op->eager = &s->rings[job->channels + i];
		op->scan.done.at = area_place(pinned, sizeof(uint32_t));
		op->scan.found = area_place(pinned, scan_bytes);
		op->scan.scratch =
			area_place(device, scan_bytes + sizeof(uint32_t)); /* With a ticket. */
	}
	for (uint32_t i = 0; i < job->channels + job->op_slots; i++) {
		struct staging_ring *ring = &s->rings[i];

		ring->cells = cells;
		ring->frame_count = i < job->channels ? s->frame_count : WIRE_EAGER_SEGMENTS;
		cells += ring->frame_count;
		ring->out = area_place(pinned, (size_t)ring->frame_count * s->frame_stride);
		ring->in = area_place(pinned, (size_t)ring->frame_count * s->frame_stride);
	}
}

/*
 * The job's segments_ahead, unless their plans take too much memory. Each segment of an eager operation needs a part.
 */
static uint32_t choose_ahead(const struct staging_config *c)
{
	const uint64_t each = sizeof(struct gpu_plan) * c->shape.channels * c->shape.op_slots;
	const uint64_t room = c->pinned_bytes / PLANS_SHARE / each;
	const uint64_t most = room > AHEAD_LEAST ? room : AHEAD_LEAST;
	const uint32_t ahead =
		most < c->shape.segments_ahead ? (uint32_t)most : c->shape.segments_ahead;

	return ahead > WIRE_EAGER_SEGMENTS ? ahead : WIRE_EAGER_SEGMENTS;
}

/* The rings get most of the configured memory, within limits, because everything else is small. */
static void choose_sizes(struct staging *s)
{
	const struct staging_config *c = &s->config;
	uint64_t bits = c->pinned_bytes * 8 / BITS_SHARE / c->shape.op_slots;

	s->bits = bits < BITS_MAX ? (uint32_t)bits / 64 * 64 : BITS_MAX;
	if (s->bits < c->shape.channels * WIRE_SEGMENT_BLOCKS_MAX)
		s->bits = c->shape.channels * WIRE_SEGMENT_BLOCKS_MAX;
	s->frame_stride = (c->shape.payload + 15) / 16 * 16;
	s->frame_count = 2 * WINDOWS_MAX * c->shape.window;
	do {
		s->frame_count /= 2;
		lay_out(s);
	} while (s->frame_count > c->shape.window && s->memory.pinned.bytes > c->pinned_bytes);
}

void staging_close(struct staging *staging)
{
	if (staging == NULL)
		return;
	if (staging->gpu != NULL)
		staging->config.calls->close(staging->gpu);
	free(staging->cells);
	free(staging->rings);
	free(staging->parts);
	free(staging->ops);
	free(staging);
}

/* The aggregators choose the windows, so the memory for them is checked against the user's limit. */
static int pinned_check(const struct staging *s, struct why *why)
{
	uint64_t wanted = s->memory.pinned.bytes, limit = s->config.pinned_max;

	if (limit == 0 || wanted <= limit)
		return 0;
	return why_set(why, -ENOMEM,
	               "the aggregators' windows need %" PRIu64
	               " MB of pinned memory on this worker, but only %" PRIu64
	               " are allowed (memory_mb, WINNOW_MEMORY_MB)",
	               (wanted + (1 << 20) - 1) >> 20, limit >> 20);
}

int staging_open(const struct staging_config *config, struct staging **out, struct why *why)
{
	const struct session_shape *job = &config->shape;
	struct staging *s = calloc(1, sizeof(*s));
	int err;

	if (s == NULL)
		return why_set(why, -ENOMEM, "out of memory");
	s->config = *config;
	s->ahead = choose_ahead(config);
	s->part_count = s->ahead * job->channels;
	s->ops = calloc(job->op_slots, sizeof(*s->ops));
	s->parts = calloc((size_t)job->op_slots * s->part_count, sizeof(*s->parts));
	s->rings = calloc(job->channels + job->op_slots, sizeof(*s->rings));
	s->cells = calloc(WINDOWS_MAX * job->window * job->channels +
	                          WIRE_EAGER_SEGMENTS * job->op_slots,
	                  sizeof(*s->cells));
	if (s->ops == NULL || s->parts == NULL || s->rings == NULL || s->cells == NULL) {
		err = why_set(why, -ENOMEM, "out of memory");
	} else {
		choose_sizes(s);
		err = pinned_check(s, why);
	}
	if (err == 0) {
		err = config->calls->open(config->device, &s->memory, &s->gpu, why);
	}
	if (err != 0) {
		staging_close(s);
		return err;
	}
	lay_out(s);
	*out = s;
	return 0;
}

uint64_t staging_pinned_bytes(const struct staging *staging)
{
	return staging->memory.pinned.bytes;
}

int staging_follow(struct staging *staging, void *stream, struct why *why)
{
	return staging->config.calls->follow(staging->gpu, stream, why);
}

/* ---- bits ---- */

/* Chooses the granularity of a part's bits. Returns the number of segments in a piece, at least one. */
static uint32_t choose_grain(struct staging_op *op)
{
	const struct geometry_part *part = op->part;
	const uint32_t room = op->staged->staging->bits, fine = op->staged->fine;
	const uint32_t block = part->tile_columns;
	const uint64_t blocks = (uint64_t)part->segment_blocks * op->task->cut.shard_count;
	const uint64_t all = (part->block_count + 63) / 64 * 64;
	const uint64_t most = blocks < all || all == 0 ? blocks : all;
	const uint32_t grain = fine > 0 ? (uint32_t)geometry_gcd(block, fine) : block;
	uint64_t pieces;

	if (fine > 0 && op->piece == part->first_segment && block / grain * most <= room)
		op->view = calloc(bitmap_word_count(bitmap_block_count(part->count, fine)),
		                  sizeof(*op->view));
	op->grain = op->view != NULL ? grain : block;
	op->ratio = block / op->grain;
	op->segment_bits = blocks * op->ratio;
	pieces = room / (op->ratio * most);
	return (uint32_t)(pieces < PIECE_SEGMENTS ? pieces : PIECE_SEGMENTS);
}

/* Scans the piece that begins with segment `number`: as much of its part as there is room for. */
static void scan_piece(struct staging_op *op, uint32_t number)
{
	struct staging *s = op->staged->staging;
	const struct allreduce *task = op->task;
	const struct geometry_part *part = geometry_segment(&task->cut, number).part;
	const uint32_t before = number - part->first_segment, left = part->segment_count - before;
	struct gpu_scan *scan = &op->scan;
	uint64_t first, most;

	op->part = part;
	op->piece = number;
	op->piece_segments = choose_grain(op);
	if (op->piece_segments > left)
		op->piece_segments = left;
	first = before * op->segment_bits * op->grain;
	most = op->piece_segments * op->segment_bits * op->grain;
	scan->tensor = (struct bitmap_tensor){
		.data = (const uint8_t *)task->send + (part->first + first) * task->cut.elem_bytes,
		.count = most < part->count - first ? most : part->count - first,
		.block_elems = op->grain,
		.dtype = (enum dtype)task->dtype};
	scan->range_blocks = task->form == WIRE_FIXED32 ? op->segment_bits : 0;
	scan->done.value++;
	op->scanning = true;
	/* In place, blocks that no worker has are already zero. */
	scan->clear = number == 0 && task->recv != task->send ? task->recv : NULL;
	scan->clear_bytes = task->count * task->cut.elem_bytes;
	op->piece_bits = bitmap_block_count(scan->tensor.count, op->grain);
	op->staged->out_bytes += gpu_scan_room(op->piece_bits, scan->range_blocks) * 4;
	(void)s->config.calls->scan(s->gpu, scan, &s->error);
}

/* Adds a segment's bits to `out`, from bit `at` on. A bit there stands for `ratio` of them. */
static void add_bits(const struct staging_op *op, uint32_t number, uint32_t ratio, uint64_t *out,
                     uint64_t at)
{
	const uint64_t *found = (const uint64_t *)(void *)op->scan.found;
	const bool whole = ratio == 1 && op->segment_bits % 64 == 0;
	uint64_t first = (number - op->piece) * op->segment_bits, end = first + op->segment_bits;

	end = end < op->piece_bits ? end : op->piece_bits;
	if (whole && first < end)
		memcpy(out + at / 64, found + first / 64, bitmap_word_count(end - first) * 8);
	for (uint64_t i = first / 64; !whole && i < bitmap_word_count(end); i++)
		for (uint64_t left = bitmap_word_between(found, i, first, end); left != 0;
		     left &= left - 1) {
			uint64_t bit = i * 64 + (uint64_t)__builtin_ctzll(left);

			bit_set(out, (at + bit - first) / ratio);
		}
}

/* Adds the segment to its part's bitmap for viewed(), and calls that after the last segment. */
static void view_segment(struct staging_op *op, uint32_t number)
{
	const struct geometry_part *part = op->part;
	struct staged *staged = op->staged;

	if (op->view != NULL)
		add_bits(op, number, staged->fine / op->grain, op->view,
		         (number - part->first_segment) * op->segment_bits);
	if (number + 1 < part->first_segment + part->segment_count)
		return;
	staged->staging->config.viewed(staged->context, part, op->view);
	free(op->view);
	op->view = NULL;
}

/* ---- plans ---- */

/* Begins a part, with frames of the blocks in plan->united. A segment of an eager operation is one frame. */
static struct staging_part *part_begin(struct staging_op *op, const struct access_frame *plan)
{
	const struct staging *s = op->staged->staging;
	const struct allreduce *task = op->task;
	const struct geometry *tensor = &task->cut;
	const struct geometry_frames *cut = &plan->cut->frames;
	const uint64_t before = plan->cut->first * tensor->elem_bytes;
	const uint32_t words = (uint32_t)bitmap_word_count(plan->cut->block_count);
	const uint32_t blocks = plan->count, first = plan->number;
	const uint32_t frame_blocks = tensor->eager && blocks > 0 ? blocks : cut->frame_blocks;
	struct staging_part *part = part_of(op, plan->segment, plan->shard);
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

/* An eager operation announces its own blocks, so these must be copied out first. Returns true when they are here. */
static bool eager_ready(struct staging_op *op, uint32_t number)
{
	const struct geometry_segment segment = geometry_segment(&op->task->cut, number);
	uint64_t found[GPU_PLAN_WORDS] = {0};
	struct access_frame own = {.segment = number,
	                           .number = number,
	                           .cut = &segment,
	                           .own = found,
	                           .united = found,
	                           .wire = (enum dtype)op->task->dtype};
	const struct staging_part *part = part_of(op, number, 0);

	if (part->ring == NULL) {
		add_bits(op, number, op->ratio, found, 0);
		own.count = (uint32_t)bitmap_set_count(found, GPU_PLAN_WORDS);
		(void)part_begin(op, &own);
	}
	return part->packed == part->end;
}

/* A segment may be announced when the GPU has finished the earlier segment whose parts it reuses. */
static bool parts_ready(struct staging_op *op, uint32_t segment)
{
	if (op->task->cut.eager)
		return eager_ready(op, segment);
	for (uint32_t shard = 0; shard < op->task->cut.shard_count; shard++) {
		const struct staging_part *part = part_of(op, segment, shard);

		if (part->announced || part->unpacked != part->end || part->copies > 0)
			return false;
	}
	return true;
}

/* Also counts bytes on the bus: kernels read two bitmaps to copy blocks out, and one to copy them in. */
static int staged_plan(struct allreduce *task, const struct access_frame *plan)
{
	struct staging_op *op = op_of(task);
	struct staging_part *part = part_begin(op, plan);
	const uint64_t words = bitmap_word_count(plan->cut->block_count);
	const uint64_t own = bitmap_set_count(plan->own, words);

	part->ring->edge = plan->edge;
	if (task->cut.eager || own == 0)
		part->packed = part->end;
	op->staged->out_bytes += own * plan->cut->frames.block_bytes;
	if (own > 0)
		op->staged->in_bytes += 2 * 8 * words;
	if (plan->count > 0)
		op->staged->in_bytes +=
			8 * words + (uint64_t)plan->count * plan->cut->frames.block_bytes;
	return 0;
}

/* ---- sending and receiving ---- */

static bool staged_pushable(const struct allreduce *task, const struct access_frame *frame)
{
	const struct staging_part *part = part_of(op_of(task), frame->segment, frame->shard);

	part->ring->edge = frame->edge;
	return (int32_t)(frame->number - part->packed) < 0;
}

static void staged_push(const struct allreduce *task, const struct access_frame *frame,
                        struct packet_out *out)
{
	const struct staging_op *op = op_of(task);
	const struct staging_ring *ring = part_of(op, frame->segment, frame->shard)->ring;
	const struct staging *s = op->staged->staging;

	packet_point(out, ring->out + place_of(s, ring, frame->number),
	             frame->own_count * frame->unit_bytes);
}

/* Sums wait in their places until those of all earlier frames have also arrived. */
static bool staged_store(struct allreduce *task, const struct access_frame *frame,
                         const uint8_t *data)
{
	struct staging_op *op = op_of(task);
	struct staging *s = op->staged->staging;
	struct staging_part *part = part_of(op, frame->segment, frame->shard);
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
 * Counts the part's frames that may be copied out, because the last frames in their places are over. If the sums of all
 * frames have arrived, the remaining ones have no blocks of ours.
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

/* Adds the operation's frames that are ready to the next copy. */
static void add_runs(const struct staging *s, struct gpu_copy *copy, const struct staging_op *op)
{
	for (uint32_t i = 0; i < s->part_count && copy->run_count < GPU_RUNS_MAX; i++) {
		struct staging_part *part = &op->parts[i];
		uint32_t count = copy->out ? frames_out(part) : part->stored - part->unpacked;

		if (count == 0)
			continue;
		copy->runs[copy->run_count++] =
			(struct gpu_run){.plan = &s->plans[part - s->parts],
		                         .words = part->words,
		                         .frame = copy->out ? part->packed : part->unpacked,
		                         .count = count,
		                         .before = copy->frame_count};
		copy->frame_count += count;
		part->copies++;
	}
}

/* Frames copied out may be pushed. Frames copied in free their places. */
static void run_done(struct staging *s, const struct gpu_run *run, bool out)
{
	struct staging_part *part = &s->parts[run->plan - s->plans];

	part->copies--;
	if (out)
		part->packed += run->count;
	for (uint32_t i = 0; !out && i < run->count; i++, part->unpacked++, s->waiting--)
		cell_of(part->ring, part->unpacked)->taken = false;
}

/* Starts the next copy in this direction if the last one is done. Returns false if nothing has changed. */
static bool copy_next(struct staging *s, struct gpu_copy *copy)
{
	bool was_busy = copy->run_count > 0;

	if (was_busy && !word_reached(&copy->done))
		return false;
	for (uint32_t i = 0; i < copy->run_count; i++)
		run_done(s, &copy->runs[i], copy->out);
	copy->run_count = copy->frame_count = 0;
	for (uint32_t i = 0; i < s->config.shape.op_slots; i++)
		if (s->ops[i].staged != NULL && !s->ops[i].failed)
			add_runs(s, copy, &s->ops[i]);
	if (copy->run_count == 0)
		return was_busy;
	copy->done.value++;
	(void)s->config.calls->copy(s->gpu, copy, &s->error);
	return true;
}

/* ---- the engine's calls ---- */

static int staged_begin(struct allreduce *task)
{
	const struct staged *staged = task->access_state;

	staged->staging->moved = true;
	return 0;
}

/* Takes a slot for an operation when the GPU has reached its mark. Returns false before that. */
static bool op_begin(struct allreduce *task)
{
	struct staged *staged = task->access_state;
	struct staging *s = staged->staging;
	struct staging_op *op = s->ops, *end = op + s->config.shape.op_slots;

	while (op < end && op->staged != NULL)
		op++;
	if (op == end || s->asked == ASKED_MAX)
		return false;
	s->asked++;
	if (s->config.calls->is_past(s->gpu, staged->mark, &s->error) != 0)
		return false;
	s->moved = true;
	memset(op->parts, 0, s->part_count * sizeof(*op->parts));
	op->eager->edge = 0;
	op->piece = op->piece_segments = 0;
	op->finishing = op->failed = false;
	op->task = task;
	op->staged = staged;
	staged->op = op;
	return true;
}

/* Returns whether the segment's bits are here, and starts the scan that brings them. */
static bool staged_ready(struct allreduce *task, uint32_t number)
{
	const struct staged *staged = task->access_state;
	struct staging_op *op;

	if (staged->staging->error.text[0] != '\0' || (staged->op == NULL && !op_begin(task)))
		return false;
	op = staged->op;
	if (number == op->piece + op->piece_segments)
		scan_piece(op, number);
	return !op->scanning && parts_ready(op, number);
}

static uint64_t staged_scan(struct allreduce *task, uint32_t number, const struct access_scan *scan)
{
	struct staging_op *op = op_of(task);
	const struct geometry_segment segment = geometry_segment(&task->cut, number);
	const uint64_t range = 2 * bitmap_word_count(op->piece_bits) + number - op->piece;
	uint64_t first, words = bitmap_word_count(geometry_span(&task->cut, &segment, &first));

	memset(scan->bits, 0, words * sizeof(*scan->bits));
	add_bits(op, number, op->ratio, scan->bits, 0);
	if (op->staged->fine > 0)
		view_segment(op, number);
	if (task->form == WIRE_FIXED32 && words > 0)
		*scan->range = bitmap_range_of(op->scan.found[range], (enum dtype)task->dtype);
	for (uint32_t shard = 0; shard < task->cut.shard_count && !task->cut.eager; shard++)
		part_of(op, number, shard)->announced = true;
	return bitmap_set_count(scan->bits, words);
}

const struct access staging_access = {
	.begin = staged_begin,
	.ready = staged_ready,
	.scan = staged_scan,
	.plan = staged_plan,
	.pushable = staged_pushable,
	.push = staged_push,
	.store = staged_store,
};

/* ---- ending ---- */

bool staging_finish(struct staged *staged, bool failed)
{
	struct staging_op *op = staged->op;

	if (staged->mark != NULL)
		staged->staging->config.calls->unmark(staged->mark);
	staged->mark = NULL;
	if (op == NULL)
		return false;
	op->finishing = true;
	op->failed = failed;
	return true;
}

/* Tells whether the GPU has failed, or finished reading and writing for this operation. */
static bool is_over(const struct staging_op *op)
{
	const struct staging *s = op->staged->staging;

	if (!op->finishing || s->error.text[0] != '\0')
		return op->finishing;
	for (uint32_t i = 0; i < s->part_count; i++)
		if (op->parts[i].copies > 0 ||
		    (!op->failed && op->parts[i].unpacked != op->parts[i].stored))
			return false;
	return !op->scanning;
}

/* A whole window of further sums may arrive while frames wait for a copy or are in one. */
unsigned staging_state(const struct staging *staging)
{
	const struct staging *s = staging;
	const bool failed = s->error.text[0] != '\0';
	const bool copies = s->copies[false].run_count > 0 || s->copies[true].run_count > 0;
	unsigned state = failed || copies || s->asked > 0 ? STAGING_WAITS : 0;

	for (uint32_t i = 0; i < s->config.shape.op_slots; i++)
		if (s->ops[i].staged != NULL)
			state |= STAGING_BUSY | (s->ops[i].scanning ? STAGING_WAITS : 0);
	if (!failed && s->waiting > s->frame_count - s->config.shape.window)
		state |= STAGING_FULL;
	return state;
}

/* Operations pass before the calls that may fail: the owner sees a failure before one passes without its result. */
bool staging_turn(struct staging *staging, bool check)
{
	const struct staging_config *config = &staging->config;
	bool well = staging->error.text[0] == '\0', any = staging->moved;

	staging->moved = false;
	staging->asked = 0;
	for (uint32_t i = 0; i < config->shape.op_slots; i++) {
		struct staging_op *op = &staging->ops[i];
		struct staged *staged = op->staged;

		op->scanning = op->scanning && !word_reached(&op->scan.done);
		if (staged == NULL || !is_over(op))
			continue;
		any = true;
		for (uint32_t part = 0; part < staging->part_count; part++)
			staging->waiting -= op->parts[part].stored - op->parts[part].unpacked;
		free(op->view);
		op->view = NULL;
		op->staged = NULL;
		staged->op = NULL;
		config->passed(staged->context, well);
	}
	if (well && check && (staging_state(staging) & STAGING_BUSY) != 0)
		well = config->calls->check(staging->gpu, &staging->error) == 0;
	if (!well)
		return any;
	any = copy_next(staging, &staging->copies[true]) || any;
	return copy_next(staging, &staging->copies[false]) || any;
}

const char *staging_error(const struct staging *staging)
{
	return staging->error.text;
}
