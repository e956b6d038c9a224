// SPDX-License-Identifier: BSD-3-Clause
/* array.c - see array.h */

#include "client/worker/array.h"

#include <math.h>
#include <string.h>

static const uint8_t zeros[WIRE_PAYLOAD_MAX];

/* ---- block by block ---- */

/* Frames of more blocks than this are gathered in the packet's scratch memory. */
#define POINTS_MAX (PACKET_POINTS_MAX - 2)

/* The number in the tensor of block `index` of the segment. */
static uint64_t block_of(const struct allreduce *task, const struct access_frame *frame,
                         uint32_t index)
{
	return geometry_block(&task->cut, frame->cut, frame->shard, index);
}

/* The frame's next block in `bits`, one of its bitmaps, from `index` on; frame->end if there is none. */
static uint32_t next_block(const struct access_frame *frame, const uint64_t *bits, uint32_t index)
{
	uint32_t word = index / 64;
	uint64_t left;

	if (index >= frame->end)
		return frame->end;
	left = bits[word] & UINT64_MAX << (index % 64);
	while (left == 0 && (word + 1) * 64 < frame->end)
		left = bits[++word];
	index = word * 64 + (left != 0 ? (uint32_t)__builtin_ctzll(left) : 64);
	return index < frame->end ? index : frame->end;
}

/* How many of a block's `bytes` belong to the frame, whose part begins at `offset`. */
static uint32_t part_bytes(const struct access_frame *frame, uint32_t offset, uint32_t bytes)
{
	if (bytes <= offset)
		return 0;
	return bytes - offset < frame->unit_bytes ? bytes - offset : frame->unit_bytes;
}

static uint32_t elem_bytes(const struct allreduce *task)
{
	return dtype_bytes((enum dtype)task->dtype);
}

/* Convert a number of bytes in the tensor to bytes on the wire, and back. */
static uint32_t wire_bytes(const struct allreduce *task, const struct access_frame *frame,
                           uint32_t bytes)
{
	return bytes / elem_bytes(task) * dtype_bytes(frame->wire);
}

static uint32_t own_bytes(const struct allreduce *task, const struct access_frame *frame,
                          uint32_t bytes)
{
	return bytes / dtype_bytes(frame->wire) * elem_bytes(task);
}

/* Converts elements to `bytes` of the wire (PROTOCOL.md section 9). */
static void blocks_encode(const struct allreduce *task, const struct access_frame *frame,
                          uint8_t *to, const uint8_t *from, uint32_t bytes)
{
	const uint32_t count = bytes / dtype_bytes(frame->wire);

	if (frame->wire == task->dtype)
		memcpy(to, from, bytes);
	else if (frame->wire == DTYPE_BF16)
		frame->engine->finish(to, from, count, DTYPE_BF16, REDUCE_SUM, 1);
	else if (frame->nonfinite)
		memset(to, 0, bytes);
	else
		frame->engine->fixed_encode(to, from, count, frame->wire, frame->shift);
}

static void blocks_decode(const struct allreduce *task, const struct access_frame *frame,
                          uint8_t *to, const uint8_t *from, uint32_t bytes)
{
	const uint32_t count = bytes / dtype_bytes(frame->wire);
	const uint32_t divisor = task->reduction == REDUCE_AVG ? frame->world : 1;
	const int lost = frame->wire == DTYPE_I32 ? 0 : dtype_headroom(frame->world);

	if (frame->wire == task->dtype)
		memcpy(to, from, bytes);
	else if (frame->wire == DTYPE_BF16)
		frame->engine->load(to, from, count, DTYPE_BF16);
	else if (frame->nonfinite)
		memset(to, 0xff, own_bytes(task, frame, bytes)); /* NaN */
	else
		frame->engine->fixed_decode(to, from, count, frame->wire, frame->shift - lost,
		                            divisor);
}

/* Appends a block in the packet's scratch memory. */
static void put_block(const struct allreduce *task, const struct access_frame *frame,
                      const uint8_t *from, uint32_t bytes, struct packet_out *out)
{
	uint8_t *to = (uint8_t *)out->scratch + packet_body_bytes(out);

	if (bytes > 0)
		blocks_encode(task, frame, to, from, bytes);
	memset(to + bytes, 0, frame->unit_bytes - bytes);
	packet_point(out, to, frame->unit_bytes);
}

void blocks_push(const struct allreduce *task, const struct access_frame *frame,
                 struct packet_out *out,
                 const uint8_t *(*place)(const struct allreduce *task,
                                         const struct access_frame *frame, uint64_t block,
                                         uint32_t *bytes))
{
	uint32_t offset = frame->part * frame->cut->frames.part_bytes;
	bool put = frame->wire != task->dtype || frame->own_count > POINTS_MAX;

	for (uint32_t i = frame->first; (i = next_block(frame, frame->own, i)) < frame->end; i++) {
		uint32_t bytes;
		const uint8_t *from = place(task, frame, block_of(task, frame, i), &bytes);

		bytes = part_bytes(frame, offset, wire_bytes(task, frame, bytes));
		from = bytes > 0 ? from + own_bytes(task, frame, offset) : NULL;
		if (put) {
			put_block(task, frame, from, bytes, out);
			continue;
		}
		if (bytes > 0)
			packet_point(out, from, bytes);
		packet_point(out, zeros, frame->unit_bytes - bytes);
	}
}

void blocks_store(const struct allreduce *task, const struct access_frame *frame,
                  const uint8_t *data,
                  uint8_t *(*place)(const struct allreduce *task, const struct access_frame *frame,
                                    uint64_t block))
{
	uint32_t offset = frame->part * frame->cut->frames.part_bytes;

	for (uint32_t i = frame->first; (i = next_block(frame, frame->united, i)) < frame->end;
	     i++, data += frame->unit_bytes)
		blocks_decode(task, frame,
		              place(task, frame, block_of(task, frame, i)) +
		                      own_bytes(task, frame, offset),
		              data, frame->unit_bytes);
}

/* ---- the arrays ---- */

static const uint8_t *send_at(const struct allreduce *task, uint64_t element)
{
	return (const uint8_t *)task->send + element * elem_bytes(task);
}

/* In a reduce-scatter `element` must lie in this worker's share. */
static uint8_t *recv_at(const struct allreduce *task, uint64_t element)
{
	return (uint8_t *)task->recv +
	       (element - (task->scatter ? task->share_first : 0)) * elem_bytes(task);
}

/* Returns the address of a block of a flat part, which is contiguous. */
static const uint8_t *array_from(const struct allreduce *task, const struct access_frame *frame,
                                 uint64_t block, uint32_t *bytes)
{
	struct geometry_tile tile = geometry_tile(frame->cut, block);

	*bytes = tile.columns * elem_bytes(task);
	return *bytes > 0 ? send_at(task, tile.first) : NULL;
}

/* ---- one shard of a flat part: the frame is one stretch of the tensor ---- */

/* A frame's elements as f32 are at most four times as long as on the wire. */
#define WIDE_BYTES_MAX (4 * WIRE_PAYLOAD_MAX)

static bool is_stretch(const struct allreduce *task, const struct access_frame *frame)
{
	return task->cut.shard_count == 1 && frame->cut->part->rows <= 1 &&
	       frame->cut->frames.block_parts == 1;
}

/*
 * Makes a tensor of the frame's blocks and those between them, which begins at a block whose bit is the first of a
 * word. bits[] gets the frame's bits of `own`. Returns the first element.
 */
static uint64_t stretch_of(const struct allreduce *task, const struct access_frame *frame,
                           const uint64_t *own, struct bitmap_tensor *stretch, uint64_t bits[])
{
	const uint32_t first_word = frame->first / 64;
	const struct geometry_part *part = frame->cut->part;
	const uint64_t block = block_of(task, frame, first_word * 64);
	const uint64_t at = block * part->tile_columns, left = part->count - at;

	for (uint32_t i = first_word; i * 64 < frame->end; i++)
		bits[i - first_word] = bitmap_word_between(own, i, frame->first, frame->end);
	*stretch = (struct bitmap_tensor){
		.count = (uint64_t)(frame->end - first_word * 64) * part->tile_columns,
		.block_elems = part->tile_columns,
		.dtype = task->dtype,
	};
	stretch->count = stretch->count < left ? stretch->count : left;
	return frame->cut->first + at;
}

static void stretch_push(const struct allreduce *task, const struct access_frame *frame,
                         struct packet_out *out)
{
	uint32_t whole = frame->own_count * frame->unit_bytes, bytes;
	uint8_t *to = (uint8_t *)out->scratch + packet_body_bytes(out);
	uint8_t wide[WIDE_BYTES_MAX], *packed = frame->wire == task->dtype ? to : wide;
	uint64_t bits[SEGMENT_WORDS];
	struct bitmap_tensor stretch;

	stretch.data = send_at(task, stretch_of(task, frame, frame->own, &stretch, bits));
	bytes = (uint32_t)frame->engine->pack(&stretch, bits, packed) * dtype_bytes(frame->wire);
	if (packed == wide)
		blocks_encode(task, frame, to, wide, bytes);
	memset(to + bytes, 0, whole - bytes);
	packet_point(out, to, whole);
}

static void stretch_store(const struct allreduce *task, const struct access_frame *frame,
                          const uint8_t *data)
{
	uint8_t wide[WIDE_BYTES_MAX];
	uint64_t bits[SEGMENT_WORDS];
	struct bitmap_tensor stretch;
	uint64_t first = stretch_of(task, frame, frame->united, &stretch, bits);

	if (frame->wire != task->dtype) {
		blocks_decode(task, frame, wide, data, frame->count * frame->unit_bytes);
		data = wide;
	}
	frame->engine->unpack(&stretch, bits, data, recv_at(task, first));
}

/* ---- tiles: blocks in pieces, a row of a matrix each; a flat part has one row ---- */

/* Returns the first of the tile's rows that the frame has a piece of, and sets *end after the last. */
static uint32_t frame_rows(const struct access_frame *frame, const struct geometry_tile *tile,
                           uint32_t *end)
{
	uint32_t row_bytes = tile->width * dtype_bytes(frame->wire);
	uint32_t from = frame->part * frame->cut->frames.part_bytes;
	uint32_t last = (from + frame->unit_bytes + row_bytes - 1) / row_bytes;

	*end = last < tile->rows ? last : tile->rows;
	return from / row_bytes;
}

/* The piece of a tile's row that is in a frame. */
struct piece {
	uint64_t element; /* The piece's first element in the tensor. */
	uint32_t at;      /* Its offset in bytes in the frame's part of the block. */
	uint32_t bytes;
};

/* Returns false if the frame has nothing of the row. */
static bool piece_of(const struct access_frame *frame, const struct geometry_tile *tile,
                     uint32_t row, struct piece *out)
{
	uint32_t from = frame->part * frame->cut->frames.part_bytes, end = from + frame->unit_bytes;
	uint32_t bytes = dtype_bytes(frame->wire);
	uint32_t begin = row * tile->width * bytes, first = begin;
	uint32_t last = begin + tile->columns * bytes;

	first = first > from ? first : from;
	last = last < end ? last : end;
	if (first >= last)
		return false;
	out->element = tile->first + row * tile->stride + (first - begin) / bytes;
	out->at = first - from;
	out->bytes = last - first;
	return true;
}

static void tiles_push(const struct allreduce *task, const struct access_frame *frame,
                       struct packet_out *out)
{
	for (uint32_t i = frame->first; (i = next_block(frame, frame->own, i)) < frame->end; i++) {
		struct geometry_tile tile = geometry_tile(frame->cut, block_of(task, frame, i));
		uint8_t *to = (uint8_t *)out->scratch + packet_body_bytes(out);
		struct piece piece;
		uint32_t end, row = frame_rows(frame, &tile, &end);

		memset(to, 0, frame->unit_bytes);
		for (; row < end; row++) {
			if (piece_of(frame, &tile, row, &piece))
				blocks_encode(task, frame, to + piece.at,
				              send_at(task, piece.element), piece.bytes);
		}
		packet_point(out, to, frame->unit_bytes);
	}
}

static void tiles_store(const struct allreduce *task, const struct access_frame *frame,
                        const uint8_t *data)
{
	for (uint32_t i = frame->first; (i = next_block(frame, frame->united, i)) < frame->end;
	     i++, data += frame->unit_bytes) {
		struct geometry_tile tile = geometry_tile(frame->cut, block_of(task, frame, i));
		struct piece piece;
		uint32_t end, row = frame_rows(frame, &tile, &end);

		for (; row < end; row++) {
			if (piece_of(frame, &tile, row, &piece))
				blocks_decode(task, frame, recv_at(task, piece.element),
				              data + piece.at, piece.bytes);
		}
	}
}

static bool in_place(const struct allreduce *task)
{
	const uint8_t *own = task->send;

	if (task->scatter && own != NULL)
		own += task->share_first * elem_bytes(task);
	return own == task->recv;
}

/* Adds bits [0, count) of `from` to those of `to` from `at` on. */
static void bits_add(uint64_t *to, uint64_t at, const uint64_t *from, uint64_t count)
{
	for (uint64_t i = 0; i < bitmap_word_count(count); i++) {
		to[at / 64 + i] |= from[i] << at % 64;
		if (at % 64 != 0 && from[i] >> (64 - at % 64) != 0)
			to[at / 64 + i + 1] |= from[i] >> (64 - at % 64);
	}
}

/*
 * Scans blocks from `first` on. Neighbours are scanned together, row by row. The result is cleared in the same way,
 * because clearing single tiles would jump from row to row.
 */
static void tiles_scan(struct allreduce *task, const struct geometry_segment *segment,
                       uint64_t first, uint64_t blocks, const struct access_scan *scan)
{
	const bool apart = !in_place(task);
	const struct geometry_part *part = segment->part;
	struct bitmap_tensor tensor = {.block_elems = part->tile_columns, .dtype = task->dtype};
	struct bitmap_range range = {0}, *wanted = scan->range != NULL ? &range : NULL;
	uint64_t end = first + blocks, beside;

	memset(scan->bits, 0, bitmap_word_count(blocks) * sizeof(*scan->bits));
	for (uint64_t block = first; block < end; block += beside) {
		struct geometry_tile tile = geometry_tile(segment, block);
		uint64_t column = block % part->across;

		beside = part->across - column < end - block ? part->across - column : end - block;
		tensor.count = (column + beside == part->across ? part->columns
		                                                : (column + beside) * tile.width) -
		               column * tile.width;
		for (uint32_t row = 0; row < tile.rows; row++) {
			tensor.data = send_at(task, tile.first + row * tile.stride);
			bitmap_pool_scan(scan->pool, &tensor, scan->spare, wanted);
			if (wanted != NULL)
				*scan->range = bitmap_range_both(*scan->range, range);
			bits_add(scan->bits, block - first, scan->spare, beside);
			if (apart)
				memset(recv_at(task, tile.first + row * tile.stride), 0,
				       tensor.count * elem_bytes(task));
		}
	}
}

/* ---- zeros ---- */

static bool is_receiver(const struct allreduce *task, uint32_t receiver)
{
	return receiver == WIRE_EVERYONE || receiver == task->share_first / task->share_count;
}

/* Blocks of up to this many bytes, and tiles, are too small to clear one by one when the union is known. */
#define FINE_BYTES_MAX 64

static bool is_fine(const struct allreduce *task, const struct geometry_part *part)
{
	return task->access == &array_access && !task->cut.eager &&
	       (part->rows > 1 || part->frames.block_bytes <= FINE_BYTES_MAX);
}

/*
 * Clears all blocks of a segment in all shards when it is scanned. Nothing has been stored at that time, and the
 * segment mostly stays in a cache until then.
 */
static void clear_fine(const struct allreduce *task, const struct geometry_segment *segment,
                       uint64_t first, uint64_t elements)
{
	if (elements > 0 && is_fine(task, segment->part) && !in_place(task) &&
	    is_receiver(task, segment->receiver))
		memset(recv_at(task, first), 0, elements * elem_bytes(task));
}

/* ---- the calls of the machines ---- */

/* Blocks of an eager reduce-scatter may cross the share's borders, so everything is cleared at once. */
static int array_begin(struct allreduce *task)
{
	if (task->scatter && task->cut.eager && !in_place(task))
		memset(task->recv, 0, task->share_count * elem_bytes(task));
	return 0;
}

static uint64_t array_scan(struct allreduce *task, uint32_t number, const struct access_scan *scan)
{
	struct geometry_segment segment = geometry_segment(&task->cut, number);
	uint64_t first, blocks = geometry_span(&task->cut, &segment, &first), start = 0;
	struct bitmap_tensor tensor = {.block_elems = segment.part->tile_columns,
	                               .dtype = task->dtype};

	if (segment.part->rows > 1) {
		tiles_scan(task, &segment, first, blocks, scan);
		return bitmap_set_count(scan->bits, bitmap_word_count(blocks));
	}
	if (blocks > 0) {
		start = geometry_tile(&segment, first).first;
		tensor.data = send_at(task, start);
		tensor.count = (blocks - 1) * tensor.block_elems +
		               geometry_tile(&segment, first + blocks - 1).columns;
	}
	if (task->send == NULL)
		memset(scan->bits, 0, bitmap_word_count(blocks) * sizeof(*scan->bits));
	else
		bitmap_pool_scan(scan->pool, &tensor, scan->bits, scan->range);
	clear_fine(task, &segment, start, tensor.count);
	return bitmap_set_count(scan->bits, bitmap_word_count(blocks));
}

/* A result of at least this many bytes does not stay in a cache until it is read. */
#define STREAM_BYTES_MIN (8u << 20)

/* Counts neighbouring blocks without data. Only in a single shard are they neighbours in the tensor. */
static uint32_t absent_run(const struct allreduce *task, const struct access_frame *plan,
                           uint32_t first)
{
	uint32_t end = first + 1;

	while (task->cut.shard_count == 1 && end < plan->cut->block_count &&
	       !bit_test(plan->united, end))
		end++;
	return end - first;
}

/* Clears the blocks of a flat part that no worker has. */
static void clear_absent(struct allreduce *task, const struct access_frame *plan)
{
	const bool large = task->count * elem_bytes(task) >= STREAM_BYTES_MIN;
	uint32_t run;

	for (uint32_t b = 0; b < plan->cut->block_count; b += run) {
		struct geometry_tile tile, last;
		uint64_t block, bytes;

		run = 1;
		if (bit_test(plan->united, b))
			continue;
		run = absent_run(task, plan, b);
		block = block_of(task, plan, b);
		tile = geometry_tile(plan->cut, block);
		last = geometry_tile(plan->cut, block + run - 1);
		bytes = ((uint64_t)(run - 1) * tile.width + last.columns) * elem_bytes(task);
		if (tile.columns == 0)
			continue;
		if (large)
			plan->engine->clear(recv_at(task, tile.first), bytes);
		else
			memset(recv_at(task, tile.first), 0, bytes);
	}
}

/* ---- rounding errors ---- */

#define LOST_ELEMS 256 /* Elements that are processed together. */

/* Adds the differences between elements and their values on the wire to task->lost. */
static void lost_add(const struct allreduce *task, const struct access_frame *alone, uint64_t first,
                     uint64_t count)
{
	float own[LOST_ELEMS], sent[LOST_ELEMS];
	uint8_t wire[LOST_ELEMS * sizeof(float)];

	for (uint64_t end = first + count, n; first < end; first += n) {
		n = end - first < LOST_ELEMS ? end - first : LOST_ELEMS;
		memcpy(own, send_at(task, first), n * sizeof(float));
		blocks_encode(task, alone, wire, (uint8_t *)own,
		              (uint32_t)n * dtype_bytes(alone->wire));
		blocks_decode(task, alone, (uint8_t *)sent, wire,
		              (uint32_t)n * dtype_bytes(alone->wire));
		for (uint64_t i = 0; i < n; i++) {
			const float lost = own[i] - sent[i];

			task->lost[first + i] += isfinite(lost) ? lost : 0;
		}
	}
}

/* Adds the rounding errors of our blocks of a segment, as if this worker were the only one. */
static void lost_note(const struct allreduce *task, const struct access_frame *plan)
{
	struct access_frame alone = *plan;

	alone.world = 1;
	if (task->lost == NULL || plan->wire == task->dtype || plan->nonfinite)
		return;
	for (uint32_t b = 0; b < plan->cut->block_count; b++) {
		struct geometry_tile tile;

		if (!bit_test(plan->own, b))
			continue;
		tile = geometry_tile(plan->cut, block_of(task, plan, b));
		for (uint32_t row = 0; row < tile.rows; row++)
			lost_add(task, &alone, tile.first + row * tile.stride, tile.columns);
	}
}

/* In place, blocks that no worker has are already zero. Fine blocks were cleared when they were scanned. */
int array_plan(struct allreduce *task, const struct access_frame *plan)
{
	lost_note(task, plan);
	if (in_place(task) || task->count == 0 || is_fine(task, plan->cut->part))
		return 0;
	if (!(task->scatter && task->cut.eager) && is_receiver(task, plan->cut->receiver))
		clear_absent(task, plan);
	return 0;
}

static void array_push(const struct allreduce *task, const struct access_frame *frame,
                       struct packet_out *out)
{
	if (frame->cut->part->rows > 1)
		tiles_push(task, frame, out);
	else if (is_stretch(task, frame) &&
	         (frame->wire != task->dtype || frame->own_count > POINTS_MAX))
		stretch_push(task, frame, out);
	else
		blocks_push(task, frame, out, array_from);
}

/* An eager reduce-scatter delivers all blocks, which may cross the share's borders: section 4.5. */
static void store_own(struct allreduce *task, const struct access_frame *frame, const uint8_t *data)
{
	uint64_t own = task->share_first, own_end = own + task->share_count;

	for (uint32_t i = frame->first; (i = next_block(frame, frame->united, i)) < frame->end;
	     i++, data += frame->unit_bytes) {
		struct geometry_tile tile = geometry_tile(frame->cut, block_of(task, frame, i));
		uint64_t first = tile.first, end = first + tile.columns, from;

		from = first > own ? first : own;
		end = end < own_end ? end : own_end;
		if (from < end)
			memcpy((uint8_t *)task->recv + (from - own) * elem_bytes(task),
			       data + (from - first) * elem_bytes(task),
			       (end - from) * elem_bytes(task));
	}
}

bool array_store(struct allreduce *task, const struct access_frame *frame, const uint8_t *data)
{
	if (task->scatter && task->cut.eager)
		store_own(task, frame, data);
	else if (is_stretch(task, frame))
		stretch_store(task, frame, data);
	else
		tiles_store(task, frame, data);
	return true;
}

const struct access array_access = {
	.begin = array_begin,
	.scan = array_scan,
	.plan = array_plan,
	.push = array_push,
	.store = array_store,
};
