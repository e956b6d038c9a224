// SPDX-License-Identifier: BSD-3-Clause
/* rows.c - see rows.h */

#include "client/worker/rows.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/worker/array.h"

/* The blocks of the union in a segment of one shard, in ascending order. */
struct rows_chunk {
	uint8_t *values;
	uint32_t count;
	uint64_t blocks[];
};

/* Sorts blocks that the caller gives in any order. */
struct rows_place {
	uint64_t block;
	uint64_t place;
};

/* Compares block numbers, or places, because these begin with a block number. */
static int block_compare(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* ---- the list to send ---- */

static const char *wrong_index(const struct rows_input *input, int64_t index)
{
	if (index < 0 || (uint64_t)index >= input->elems ||
	    input->elems - (uint64_t)index < input->block_elems)
		return "an index is outside the tensor";
	if ((uint64_t)index % input->block_elems != 0)
		return "an index is not a multiple of block_length";
	return NULL;
}

static bool is_ascending(const struct winnow_rows *rows)
{
	for (uint64_t i = 1; i < rows->count; i++)
		if (rows->blocks[i] <= rows->blocks[i - 1])
			return false;
	return true;
}

/* Copies the values in ascending order of blocks. */
static int sort_blocks(struct winnow_rows *rows, const struct rows_input *input, const char **why)
{
	struct rows_place *places = malloc(rows->count * sizeof(*places));
	size_t bytes = rows->block_bytes;
	int err = 0;

	rows->sorted = malloc(rows->count * bytes);
	if (places == NULL || rows->sorted == NULL) {
		free(places);
		return -ENOMEM;
	}
	for (uint64_t i = 0; i < rows->count; i++)
		places[i] = (struct rows_place){rows->blocks[i], i};
	qsort(places, rows->count, sizeof(*places), block_compare);
	for (uint64_t i = 0; i < rows->count; i++) {
		if (i > 0 && places[i].block == places[i - 1].block) {
			*why = "an index is given twice";
			err = -EINVAL;
		}
		rows->blocks[i] = places[i].block;
		memcpy((uint8_t *)rows->sorted + i * bytes,
		       (const uint8_t *)input->values + places[i].place * bytes, bytes);
	}
	rows->values = rows->sorted;
	free(places);
	return err;
}

int rows_open(const struct rows_input *input, struct winnow_rows **out, const char **why)
{
	struct winnow_rows *rows = calloc(1, sizeof(*rows));
	int err = -ENOMEM;

	if (rows == NULL)
		return -ENOMEM;
	rows->holders = 1;
	rows->blocks = malloc((input->block_count + 1) * sizeof(*rows->blocks));
	if (rows->blocks == NULL)
		goto fail;
	rows->count = input->block_count;
	rows->values = input->values;
	rows->block_bytes = input->block_elems * input->elem_bytes;
	rows->gather = input->gather;
	err = -EINVAL;
	for (uint64_t i = 0; i < rows->count; i++) {
		*why = wrong_index(input, input->index[i]);
		if (*why != NULL)
			goto fail;
		rows->blocks[i] = (uint64_t)input->index[i] / input->block_elems;
	}
	err = is_ascending(rows) ? 0 : sort_blocks(rows, input, why);
	if (err == 0) {
		*out = rows;
		return 0;
	}
fail:
	rows_close(rows);
	return err;
}

void rows_hold(struct winnow_rows *rows)
{
	atomic_fetch_add(&rows->holders, 1);
}

void rows_close(struct winnow_rows *rows)
{
	if (rows == NULL || atomic_fetch_sub(&rows->holders, 1) > 1)
		return;
	for (uint32_t i = 0; i < rows->chunk_count; i++)
		free(rows->chunks[i]);
	free(rows->chunks);
	free(rows->blocks);
	free(rows->sorted);
	free(rows);
}

/* The place of `block` in an ascending list that holds it. */
static uint64_t place_of(const uint64_t *blocks, uint64_t count, uint64_t block)
{
	const uint64_t *at = bsearch(&block, blocks, count, sizeof(block), block_compare);

	assert(at != NULL);
	return (uint64_t)(at - blocks);
}

/* ---- the received list ---- */

/* The shard whose next block is the smallest, or shard_count if none is left. */
static uint32_t next_shard(const struct winnow_rows *rows, struct rows_chunk *const *chunks,
                           const uint32_t *taken)
{
	uint32_t best = rows->shard_count;

	for (uint32_t i = 0; i < rows->shard_count; i++) {
		if (chunks[i] == NULL || taken[i] == chunks[i]->count)
			continue;
		if (best == rows->shard_count ||
		    chunks[i]->blocks[taken[i]] < chunks[best]->blocks[taken[best]])
			best = i;
	}
	return best;
}

void rows_read(const struct winnow_rows *rows, int64_t *index, void *values)
{
	uint8_t *to = values;

	for (uint32_t first = 0; first < rows->chunk_count; first += rows->shard_count) {
		struct rows_chunk *const *chunks = rows->chunks + first;
		uint32_t taken[WIRE_SHARDS_MAX] = {0};
		uint32_t shard;

		while ((shard = next_shard(rows, chunks, taken)) < rows->shard_count) {
			uint32_t at = taken[shard]++;

			*index++ = (int64_t)chunks[shard]->blocks[at];
			memcpy(to, chunks[shard]->values + (size_t)at * rows->block_bytes,
			       rows->block_bytes);
			to += rows->block_bytes;
		}
	}
}

/* ---- the calls of the machines ---- */

/* Allocates the chunks if the result is a list. */
static int list_begin(struct allreduce *task)
{
	struct winnow_rows *rows = task->access_state;
	uint64_t chunks = (uint64_t)task->cut.segment_count * task->cut.shard_count;

	rows->cursor = 0;
	rows->shard_count = task->cut.shard_count;
	if (!rows->gather)
		return 0;
	if (chunks > UINT32_MAX)
		return -ENOMEM;
	rows->chunks = calloc(chunks, sizeof(struct rows_chunk *));
	if (rows->chunks == NULL)
		return -ENOMEM;
	rows->chunk_count = (uint32_t)chunks;
	return 0;
}

static uint64_t list_scan(struct allreduce *task, uint32_t number, const struct access_scan *scan)
{
	const struct geometry *cut = &task->cut;
	struct winnow_rows *rows = task->access_state;
	struct geometry_segment segment = geometry_segment(cut, number);
	uint64_t first, blocks = geometry_span(cut, &segment, &first);
	uint64_t begin = rows->cursor, count;
	struct bitmap_tensor found = {.data = rows->values + begin * rows->block_bytes,
	                              .block_elems = cut->one.tile_columns,
	                              .dtype = task->dtype};

	memset(scan->bits, 0, (blocks + 63) / 64 * 8);
	while (rows->cursor < rows->count && rows->blocks[rows->cursor] - first < blocks)
		bit_set(scan->bits, rows->blocks[rows->cursor++] - first);
	count = rows->cursor - begin;
	found.count = count * found.block_elems;
	if (scan->range != NULL && count > 0)
		bitmap_pool_scan(scan->pool, &found, scan->spare, scan->range);
	return count;
}

static const uint8_t *list_from(const struct allreduce *task, const struct access_frame *frame,
                                uint64_t block, uint32_t *bytes)
{
	const struct winnow_rows *rows = task->access_state;

	(void)frame;
	*bytes = rows->block_bytes;
	return rows->values + place_of(rows->blocks, rows->count, block) * rows->block_bytes;
}

static void list_push(const struct allreduce *task, const struct access_frame *frame,
                      struct packet_out *out)
{
	blocks_push(task, frame, out, list_from);
}

/* Allocates the result of a segment of one shard. */
static int gather_plan(struct allreduce *task, const struct access_frame *plan)
{
	struct winnow_rows *rows = task->access_state;
	size_t list_bytes = plan->count * sizeof(uint64_t);
	struct rows_chunk *chunk;
	uint32_t count = 0;

	if (plan->count == 0)
		return 0;
	chunk = malloc(sizeof(*chunk) + list_bytes + (size_t)plan->count * rows->block_bytes);
	if (chunk == NULL)
		return -ENOMEM;
	for (uint32_t b = 0; b < plan->cut->block_count; b++) {
		uint64_t block = geometry_block(&task->cut, plan->cut, plan->shard, b);

		if (bit_test(plan->united, b) && block < task->cut.block_count)
			chunk->blocks[count++] = block;
	}
	if (count != plan->count) {
		free(chunk);
		return -EINVAL;
	}
	chunk->count = count;
	chunk->values = (uint8_t *)chunk->blocks + list_bytes;
	rows->chunks[(size_t)plan->segment * rows->shard_count + plan->shard] = chunk;
	rows->found += count;
	return 0;
}

static uint8_t *gather_to(const struct allreduce *task, const struct access_frame *frame,
                          uint64_t block)
{
	const struct winnow_rows *rows = task->access_state;
	size_t at = (size_t)frame->segment * rows->shard_count + frame->shard;
	const struct rows_chunk *chunk = rows->chunks[at];

	return chunk->values + place_of(chunk->blocks, chunk->count, block) * rows->block_bytes;
}

static bool gather_store(struct allreduce *task, const struct access_frame *frame,
                         const uint8_t *data)
{
	blocks_store(task, frame, data, gather_to);
	return true;
}

const struct access *rows_access(const struct winnow_rows *rows)
{
	static const struct access scatter = {
		.begin = list_begin,
		.scan = list_scan,
		.plan = array_plan,
		.push = list_push,
		.store = array_store,
	};
	static const struct access gather = {
		.begin = list_begin,
		.scan = list_scan,
		.plan = gather_plan,
		.push = list_push,
		.store = gather_store,
	};

	if (rows == NULL)
		return &array_access;
	return rows->gather ? &gather : &scatter;
}
