// SPDX-License-Identifier: BSD-3-Clause
/* staging.c - see staging.h: memory, the bits of a tensor, the end of an operation */

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/gpu/staging_impl.h"

#define WINDOWS_MAX 4       /* length of a ring */
#define BITS_MAX (1u << 30) /* of one operation that are known at a time */
#define BITS_SHARE 8        /* bits take 1/8 of the pinned memory */
#define PIECE_SEGMENTS 1024 /* whose magnitudes are known at a time */

/* ---- opening ---- */

/* Memory that is being laid out; `base` is NULL while lay_out() only counts. */
struct room {
	uint8_t *base;
	size_t bytes;
};

static void *room_place(struct room *room, size_t bytes)
{
	uint8_t *at = room->base != NULL ? room->base + room->bytes : NULL;

	room->bytes += (bytes + 255) / 256 * 256;
	return at;
}

/* Set all pointers into the memory; before the GPU is open, count how much is needed. */
static void lay_out(struct staging *s, struct gpu_memory *memory)
{
	const struct staging_config *c = &s->config;
	struct room pinned = {.base = memory->pinned}, device = {.base = memory->device};
	size_t scan_bytes = (s->bits / 32 + PIECE_SEGMENTS) * sizeof(uint32_t);
	size_t ring_bytes = (size_t)s->frame_count * s->frame_stride;

	s->out.word = room_place(&pinned, sizeof(uint32_t));
	s->in.word = room_place(&pinned, sizeof(uint32_t));
	s->out.runs = room_place(&pinned, GPU_RUNS_MAX * sizeof(struct gpu_run));
	s->in.runs = room_place(&pinned, GPU_RUNS_MAX * sizeof(struct gpu_run));
	s->plans = room_place(&pinned, sizeof(struct gpu_plan) * STAGING_AHEAD * c->shard_count *
	                                       c->op_slots);
	for (uint32_t i = 0; i < c->op_slots; i++) {
		struct staging_op *op = &s->ops[i];

		op->word = room_place(&pinned, sizeof(uint32_t));
		op->found = room_place(&pinned, scan_bytes);
		op->eager = room_place(&pinned, c->payload);
		op->scratch = room_place(&device, scan_bytes + sizeof(uint32_t)); /* and a ticket */
	}
	for (uint32_t i = 0; i < c->shard_count; i++) {
		s->channels[i].out = room_place(&pinned, ring_bytes);
		s->channels[i].in = room_place(&pinned, ring_bytes);
	}
	memory->pinned_bytes = pinned.bytes;
	memory->device_bytes = device.bytes;
}

/* The rings get most of the configured memory, within limits, because all else is small. */
static void choose_sizes(struct staging *s)
{
	const struct staging_config *c = &s->config;
	uint64_t bits = c->pinned_bytes * 8 / BITS_SHARE / c->op_slots;
	struct gpu_memory none = {0};

	s->bits = bits < BITS_MAX ? (uint32_t)bits / 64 * 64 : BITS_MAX;
	if (s->bits < c->shard_count * WIRE_SEGMENT_BLOCKS_MAX)
		s->bits = c->shard_count * WIRE_SEGMENT_BLOCKS_MAX;
	s->frame_stride = (c->payload + 15) / 16 * 16;
	s->frame_count = WINDOWS_MAX * c->window;
	for (lay_out(s, &none); s->frame_count > c->window && none.pinned_bytes > c->pinned_bytes;
	     lay_out(s, &none))
		s->frame_count /= 2;
}

static int open_all(struct staging *s, struct why *why)
{
	const struct staging_config *c = &s->config;
	size_t each = (size_t)STAGING_AHEAD * c->shard_count;
	int err;

	s->ops = calloc(c->op_slots, sizeof(*s->ops));
	s->parts = calloc(c->op_slots * each, sizeof(*s->parts));
	s->channels = calloc(c->shard_count + 1, sizeof(*s->channels));
	if (s->ops == NULL || s->parts == NULL || s->channels == NULL)
		return -ENOMEM;
	choose_sizes(s);
	for (uint32_t i = 0; i < c->shard_count; i++) {
		s->channels[i].cells = calloc(s->frame_count, sizeof(struct staging_cell));
		if (s->channels[i].cells == NULL)
			return -ENOMEM;
	}
	lay_out(s, &s->memory);
	err = c->calls->open(c->device, &s->memory, &s->gpu, why);
	if (err != 0)
		return err;
	lay_out(s, &s->memory);
	for (uint32_t i = 0; i < c->op_slots; i++) {
		struct staging_op *op = &s->ops[i];

		op->staging = s;
		op->parts = &s->parts[i * each];
		for (size_t p = 0; p < each; p++)
			op->parts[p] =
				(struct staging_part){.op = op, .gpu = &s->plans[i * each + p]};
		op->next = s->free_ops;
		s->free_ops = op;
	}
	return 0;
}

void staging_close(struct staging *staging)
{
	if (staging == NULL)
		return;
	if (staging->gpu != NULL)
		staging->config.calls->close(staging->gpu);
	for (uint32_t i = 0; staging->channels != NULL && i < staging->config.shard_count; i++)
		free(staging->channels[i].cells);
	for (uint32_t i = 0; staging->ops != NULL && i < staging->config.op_slots; i++)
		free(staging->ops[i].view);
	free(staging->channels);
	free(staging->parts);
	free(staging->ops);
	pthread_mutex_destroy(&staging->lock);
	free(staging);
}

int staging_open(const struct staging_config *config, struct staging **out, struct why *why)
{
	struct staging *s = calloc(1, sizeof(*s));
	int err = -ENOMEM;

	why_set(why, -ENOMEM, "out of memory");
	if (s == NULL)
		return err;
	s->config = *config;
	pthread_mutex_init(&s->lock, NULL);
	err = open_all(s, why);
	if (err != 0) {
		staging_close(s);
		return err;
	}
	*out = s;
	return 0;
}

uint64_t staging_pinned_bytes(const struct staging *staging)
{
	return staging->memory.pinned_bytes;
}

/* ---- callers ---- */

static struct staging_op *op_take(struct staging *s)
{
	struct staging_op *op;

	pthread_mutex_lock(&s->lock);
	op = s->free_ops;
	if (op != NULL)
		s->free_ops = op->next;
	pthread_mutex_unlock(&s->lock);
	return op;
}

static void op_return(struct staging_op *op)
{
	struct staging *s = op->staging;

	for (uint32_t i = 0; i < STAGING_AHEAD * s->config.shard_count; i++) {
		assert(!op->parts[i].queued_out && !op->parts[i].queued_in);
		op->parts[i].state = PART_FREE;
	}
	free(op->view);
	*op = (struct staging_op){.staging = s,
	                          .scratch = op->scratch,
	                          .found = op->found,
	                          .word = op->word,
	                          .scans = op->scans,
	                          .parts = op->parts,
	                          .eager = op->eager};
	pthread_mutex_lock(&s->lock);
	op->next = s->free_ops;
	s->free_ops = op;
	pthread_mutex_unlock(&s->lock);
}

/* Cut the tensor as the engine will: with form_auto an eager operation uses the native form. */
static bool cut_task(const struct staging *s, const struct allreduce *task, bool *fixed,
                     struct geometry *cut)
{
	struct geometry_input input = {
		.count = task->count,
		.block_elems = task->block_elems,
		.elem_bytes = dtype_bytes((enum dtype)task->dtype),
		.shard_count = s->config.shard_count,
		.payload = s->config.payload,
	};

	*fixed = task->form == WIRE_FIXED32;
	if (!geometry_compute(&input, cut))
		return false;
	if (*fixed && task->form_auto && cut->eager)
		*fixed = false;
	input.fixed32 = *fixed;
	return geometry_compute(&input, cut);
}

/* Choose the granularity of bits, and the number of segments in a piece, at least one. */
static void choose_grain(struct staging_op *op, uint32_t fine)
{
	const struct geometry *cut = &op->cut;
	uint64_t blocks = (uint64_t)cut->segment_blocks * cut->shard_count, all, most;

	op->fine = fine;
	op->grain = fine > 0 ? (uint32_t)geometry_gcd(cut->block_elems, fine) : cut->block_elems;
	op->ratio = cut->block_elems / op->grain;
	all = (cut->block_count + 63) / 64 * 64;
	blocks = blocks < all || all == 0 ? blocks : all;
	if (fine > 0 && op->ratio * blocks <= op->staging->bits)
		op->view = calloc(bitmap_word_count(bitmap_block_count(op->count, op->grain)),
		                  sizeof(uint64_t));
	if (op->view == NULL) {
		op->grain = cut->block_elems;
		op->ratio = 1;
	}
	most = op->staging->bits / (op->ratio * blocks);
	op->piece_segments = (uint32_t)(most < PIECE_SEGMENTS ? most : PIECE_SEGMENTS);
}

/* The blocks of `segments` segments, in all shards; fewer at the end of the tensor. */
static uint64_t segment_blocks(const struct staging_op *op, uint32_t segment, uint32_t segments,
                               uint64_t *first)
{
	uint64_t each = (uint64_t)op->cut.segment_blocks * op->cut.shard_count;
	uint64_t left;

	*first = segment * each;
	left = op->cut.block_count > *first ? op->cut.block_count - *first : 0;
	return left < segments * each ? left : segments * each;
}

/* The bits of a segment in all shards. */
static uint64_t range_blocks(const struct staging_op *op)
{
	return (uint64_t)op->cut.segment_blocks * op->cut.shard_count * op->ratio;
}

/* A scan of the piece that begins with segment op->piece. */
static struct gpu_scan scan_of(struct staging_op *op)
{
	uint64_t first, blocks = segment_blocks(op, op->piece, op->piece_segments, &first);
	uint64_t first_elem = first * op->cut.block_elems, elems = blocks * op->cut.block_elems;
	struct gpu_scan scan = {
		.tensor = {.data = op->send + first_elem * op->cut.elem_bytes,
	                   .count = elems < op->count - first_elem ? elems : op->count - first_elem,
	                   .block_elems = op->grain,
	                   .dtype = op->dtype},
		.scratch = op->scratch,
		.found = op->found,
		.done = {op->word, ++op->scans},
	};

	op->seen = false;
	op->piece_bits = bitmap_block_count(scan.tensor.count, op->grain);
	if (op->fixed)
		scan.range_blocks = range_blocks(op);
	return scan;
}

int staging_post(struct staging *staging, const struct staging_post *what, struct staging_op **out,
                 struct why *why)
{
	const struct allreduce *task = what->task;
	struct gpu_scan scan;
	struct geometry cut;
	struct staging_op *op;
	int err = 0;
	bool fixed;

	if (!cut_task(staging, task, &fixed, &cut))
		return why_set(why, -EINVAL, "the tensor has too many blocks");
	op = op_take(staging);
	if (op == NULL)
		return -EAGAIN;
	op->context = what->context;
	op->cut = cut;
	op->fixed = fixed;
	op->send = task->send;
	op->count = task->count;
	op->dtype = (enum dtype)task->dtype;
	choose_grain(op, task->count > 0 ? what->fine : 0);
	if (task->count > 0) {
		scan = scan_of(op);
		/* In place, blocks that no worker has are already zero. */
		scan.clear = task->recv != task->send ? task->recv : NULL;
		scan.clear_bytes = task->count * cut.elem_bytes;
		err = staging->config.calls->scan(staging->gpu, &scan, what->stream, why);
	}
	if (err != 0) {
		op->scans--;
		op_return(op);
		return err;
	}
	*out = op;
	return 0;
}

int staging_follow(struct staging *staging, void *stream, struct why *why)
{
	return staging->config.calls->follow(staging->gpu, stream, why);
}

bool staging_viewed(const struct staging_op *op, bool *lacks)
{
	*lacks = op->fine != 0 && op->view == NULL;
	return op->fine != 0 && op->view != NULL;
}

struct staging_bytes staging_bytes(const struct staging_op *op)
{
	return op->bytes;
}

/* ---- what the engine asks for ---- */

static void link_op(struct staging_op *op)
{
	struct staging *s = op->staging;

	if (op->linked)
		return;
	op->linked = true;
	op->next = s->under_way;
	s->under_way = op;
	/* Of these nothing is under way. */
	op->packing = staging_word(s->out.word);
	op->unpacking = staging_word(s->in.word);
}

static int staged_begin(struct allreduce *task)
{
	struct staging_op *op = task->access_state;

	assert(op->cut.block_count == task->cut.block_count && op->cut.eager == task->cut.eager);
	op->task = task;
	link_op(op);
	return 0;
}

/* Turn the bitmap from a bit per `grain` elements to a bit per `fine` elements, a multiple. */
static void make_view(struct staging_op *op)
{
	const uint64_t bits = bitmap_block_count(op->count, op->grain);
	const uint32_t ratio = op->fine / op->grain;

	for (uint64_t i = 0; ratio > 1 && i < bitmap_word_count(bits); i++) {
		uint64_t left = op->view[i];

		for (op->view[i] = 0; left != 0; left &= left - 1) {
			uint64_t bit = (i * 64 + (uint64_t)__builtin_ctzll(left)) / ratio;

			bit_set(op->view, bit);
		}
	}
}

/* A new piece has arrived: count its bytes and add it to the view. */
static void see_piece(struct staging_op *op)
{
	const struct staging_config *config = &op->staging->config;
	uint64_t first;

	op->seen = true;
	op->bytes.out += gpu_scan_room(op->piece_bits, op->fixed ? range_blocks(op) : 0) * 4;
	if (op->view == NULL)
		return;
	(void)segment_blocks(op, op->piece, 1, &first);
	memcpy(op->view + first * op->ratio / 64, op->found, bitmap_word_count(op->piece_bits) * 8);
	if (op->piece + op->piece_segments < op->cut.segment_count)
		return;
	make_view(op);
	config->viewed(op->context, op->fine, op->view);
	free(op->view);
	op->view = NULL;
}

/* Are the bits of this segment here? Starts the scan of the next piece when it is needed. */
static bool has_bits(struct staging_op *op, uint32_t number)
{
	struct staging *s = op->staging;
	struct why why;

	if (op->count == 0)
		return true;
	if (number == op->piece + op->piece_segments) {
		struct gpu_scan scan;

		op->piece = number;
		scan = scan_of(op);
		if (s->config.calls->scan_later(s->gpu, &scan, &why) != 0)
			staging_failed(s, why.text);
	}
	if (!staging_reached(op->word, op->scans))
		return false;
	if (!op->seen)
		see_piece(op);
	return true;
}

static bool staged_ready(struct allreduce *task, uint32_t number)
{
	struct staging_op *op = task->access_state;

	return op->staging->error.text[0] == '\0' && has_bits(op, number) &&
	       frames_ready(op, number);
}

/* Write the bits of `count` blocks of the piece, from block `first` on, a multiple of 64. */
static void coarsen(const struct staging_op *op, uint64_t first, uint64_t count, uint64_t *bits)
{
	const uint64_t *found = (const uint64_t *)(void *)op->found;
	uint64_t end = (first + count) * op->ratio;

	if (op->ratio == 1) {
		memcpy(bits, found + first / 64, bitmap_word_count(count) * sizeof(*bits));
		return;
	}
	end = end < op->piece_bits ? end : op->piece_bits;
	memset(bits, 0, bitmap_word_count(count) * sizeof(*bits));
	for (uint64_t i = first * op->ratio / 64; i < bitmap_word_count(end); i++)
		for (uint64_t left = found[i]; left != 0; left &= left - 1) {
			uint64_t bit = i * 64 + (uint64_t)__builtin_ctzll(left);
			uint64_t block = bit / op->ratio - first;

			bit_set(bits, block);
		}
}

static uint64_t staged_scan(struct allreduce *task, uint32_t number, const struct access_scan *scan)
{
	struct staging_op *op = task->access_state;
	const uint32_t *magnitudes = op->found + 2 * bitmap_word_count(op->piece_bits);
	uint64_t first, before, blocks = segment_blocks(op, number, 1, &first);

	(void)segment_blocks(op, op->piece, 1, &before);
	coarsen(op, first - before, blocks, scan->bits);
	if (op->fixed && blocks > 0)
		*scan->range = bitmap_range_of(magnitudes[number - op->piece], op->dtype);
	for (uint32_t shard = 0; shard < op->cut.shard_count && !op->cut.eager; shard++)
		staging_part_of(op, number, shard)->state = PART_ANNOUNCED;
	return bitmap_set_count(scan->bits, bitmap_word_count(blocks));
}

/* They have been carried out before they were announced. */
static void staged_eager(const struct allreduce *task, const uint64_t *own,
                         const struct bitmap_engine *engine, struct packet_out *out)
{
	const struct staging_op *op = task->access_state;

	(void)own, (void)engine;
	packet_point(out, op->eager, (uint32_t)task->blocks_nonzero * task->cut.block_bytes);
}

const struct access staging_access = {
	.begin = staged_begin,
	.ready = staged_ready,
	.scan = staged_scan,
	.eager = staged_eager,
	.plan = frames_plan,
	.pushable = frames_pushable,
	.push = frames_push,
	.store = frames_store,
	.received = frames_received,
};

/* ---- ending ---- */

void staging_finish(struct staging_op *op, bool failed)
{
	link_op(op);
	op->finishing = true;
	if (failed)
		frames_forget(op);
}

/* Has the GPU finished reading and writing for this operation? */
static bool is_over(const struct staging_op *op)
{
	const struct staging *s = op->staging;

	if (!op->finishing || s->error.text[0] != '\0')
		return op->finishing;
	return op->waiting == 0 && (op->count == 0 || staging_reached(op->word, op->scans)) &&
	       staging_reached(s->out.word, op->packing) &&
	       staging_reached(s->in.word, op->unpacking);
}

bool staging_turn(struct staging *staging)
{
	struct staging_op **at = &staging->under_way;
	bool any = false;

	if (staging->error.text[0] == '\0')
		any = frames_copy(staging);
	while (*at != NULL) {
		struct staging_op *op = *at;

		if (!is_over(op)) {
			at = &op->next;
			continue;
		}
		if (staging->error.text[0] != '\0')
			frames_forget(op);
		*at = op->next;
		any = true;
		staging->config.passed(op->context, staging->error.text[0] == '\0');
		op_return(op);
	}
	return any;
}

enum staging_work staging_work(const struct staging *staging)
{
	const struct staging *s = staging;

	if (s->error.text[0] != '\0')
		return STAGING_IDLE;
	if (!staging_reached(s->out.word, s->out.last) || !staging_reached(s->in.word, s->in.last))
		return STAGING_COPIES;
	for (const struct staging_op *op = s->under_way; op != NULL; op = op->next)
		if (!staging_reached(op->word, op->scans))
			return STAGING_SCANS;
	return STAGING_IDLE;
}

/* A window's worth of further sums may arrive while frames wait or are being copied. */
bool staging_full(const struct staging *staging)
{
	const struct staging *s = staging;
	uint32_t leaving = staging_reached(s->in.word, s->in.last) ? 0 : s->in.frames;

	return s->error.text[0] == '\0' && s->waiting + leaving > s->frame_count - s->config.window;
}

bool staging_check(struct staging *staging)
{
	struct why why;

	if (staging->error.text[0] == '\0' && staging->under_way != NULL &&
	    staging->config.calls->check(staging->gpu, &why) != 0)
		staging_failed(staging, why.text);
	return staging->error.text[0] == '\0';
}

const char *staging_error(const struct staging *staging)
{
	return staging->error.text;
}

bool staging_idle(const struct staging *staging)
{
	return staging->under_way == NULL;
}
