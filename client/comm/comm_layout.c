// SPDX-License-Identifier: BSD-3-Clause
/*
 * comm_layout.c - operations, and the layouts of their tensors
 *
 * Segments become parts of the tensor (geometry.h), each with its own block: a row, several small rows, an equal share of
 * a row, or a tile. Neighbours that have the same block and grid are one part.
 */

#include <stdlib.h>

#include "client/comm/comm_state.h"

#define BLOCK_BYTES_MIN 64 /* smaller rows share a block */
#define BLOCKS_MAX                                                                                 \
	(UINT64_C(1) << 38) /* of a tensor; geometry.h allows more, which channels share */

/* ---- one operation ---- */

static uint8_t form_for(const struct winnow_comm *comm, const struct allreduce *task, bool fast,
                        const struct winnow_options *options, bool *is_auto)
{
	static const uint8_t forms[] = {
		[WINNOW_WIRE_FIXED32] = WIRE_FIXED32,
		[WINNOW_WIRE_FIXED16] = WIRE_FIXED16,
		[WINNOW_WIRE_FIXED8] = WIRE_FIXED8,
		[WINNOW_WIRE_BF16] = WIRE_BF16,
	};
	enum winnow_wire wire = options != NULL ? options->wire : WINNOW_WIRE_AUTO;

	if (wire == WINNOW_WIRE_AUTO)
		wire = comm->fixed.config.wire;
	*is_auto = wire != WINNOW_WIRE_FIXED32;
	if (wire == WINNOW_WIRE_AUTO && fast)
		wire = WINNOW_WIRE_FIXED32;
	if (task->dtype == DTYPE_F32 &&
	    (task->reduction == REDUCE_SUM || task->reduction == REDUCE_AVG))
		return forms[wire];
	return WIRE_NATIVE;
}

const char *comm_wrong_on_gpu(const struct winnow_comm *comm, const struct allreduce *task,
                              const struct winnow_options *options)
{
	bool is_auto;
	uint8_t form = form_for(comm, task, false, options, &is_auto);

	if (form == WIRE_NATIVE || form == WIRE_FIXED32)
		return NULL;
	return "wire fixed16, fixed8 and bf16 are for tensors in main memory";
}

/* What is wrong with a request that comm_wrong_argument() cannot see: this job, the blocks, the wire. NULL: nothing. */
static const char *wrong_request(const struct comm_call *call, const struct allreduce *task)
{
	const bool on_gpu = comm_gpu_wanted(call->options);

	if (task->count / (task->part_count > 0 ? 1 : task->block_elems) + 1 >= BLOCKS_MAX)
		return "the tensor has 2^38 blocks or more";
	if (task->form == WIRE_FIXED8 && call->view.world > WIRE_FIXED8_WORKERS_MAX)
		return "wire fixed8 is for at most 256 workers";
	if (task->lost != NULL &&
	    (task->access != &array_access || task->dtype != DTYPE_F32 || on_gpu))
		return "lost is of tensors of f32 in main memory";
	return on_gpu ? comm_wrong_on_gpu(call->comm, task, call->options) : NULL;
}

/* ---- layouts ---- */

struct layout {
	uint32_t usual; /* The block of elements that are in no row. */
	uint32_t elem_bytes;
	uint32_t count;
	struct geometry_part *parts;
};

/* The block for rows of this length: a row, several small rows, or the largest divisor of a row up to the usual block. */
static uint32_t block_for(const struct layout *layout, uint64_t row)
{
	uint32_t least = BLOCK_BYTES_MIN / layout->elem_bytes;

	if (row <= 1)
		return layout->usual;
	if (row < least)
		return (uint32_t)(row * ((least + row - 1) / row));
	for (uint64_t share = row < layout->usual ? row : layout->usual; share >= least; share--)
		if (row % share == 0)
			return (uint32_t)share;
	return row <= WIRE_BLOCK_ELEMS_MAX ? (uint32_t)row : layout->usual;
}

/* Adds the next `count` elements. Flat ones, which have no columns, join the last part if they can. */
static void part_append(struct layout *layout, uint64_t count, uint64_t columns, uint32_t tile_rows,
                        uint32_t tile_columns)
{
	struct geometry_part *last = layout->count > 0 ? &layout->parts[layout->count - 1] : NULL;

	if (count == 0)
		return;
	if (last != NULL && columns == 0 && last->columns == 0 &&
	    last->tile_columns == tile_columns && last->count % tile_columns == 0) {
		last->count += count;
		return;
	}
	layout->parts[layout->count++] = (struct geometry_part){.count = count,
	                                                        .columns = columns,
	                                                        .tile_rows = tile_rows,
	                                                        .tile_columns = tile_columns,
	                                                        .copies = 1};
}

static const char *wrong_tiles(const struct winnow_segment *s, bool on_gpu)
{
	uint64_t rows, high, wide;

	if (s->tile_rows == 0 && s->tile_columns == 0)
		return NULL;
	if (s->tile_rows == 0 || s->tile_columns == 0)
		return "a tile has rows and columns: one of the two is 0";
	if (s->row == 0 || s->count % s->row != 0)
		return "a segment in tiles is no matrix: count is no multiple of row";
	rows = s->count / s->row;
	high = s->tile_rows < rows ? s->tile_rows : rows;
	wide = s->tile_columns < s->row ? s->tile_columns : s->row;
	if (high * wide > WIRE_BLOCK_ELEMS_MAX)
		return "a tile has more than 65536 elements";
	return on_gpu ? "a GPU's tensor has no tiles: leave them out, or copy it to the host's "
	                "memory"
	              : NULL;
}

const char *comm_wrong_segments(const struct winnow_segment *segments, uint32_t segment_count,
                                uint64_t count, bool on_gpu)
{
	uint64_t end = 0;

	if (segments == NULL && segment_count > 0)
		return "segments is NULL";
	for (uint32_t i = 0; i < segment_count; i++) {
		const struct winnow_segment *s = &segments[i];

		if (s->offset < end)
			return "segments overlap or are not in ascending order";
		if (s->offset > count || s->count > count - s->offset)
			return "a segment is outside of the tensor";
		if (wrong_tiles(s, on_gpu) != NULL)
			return wrong_tiles(s, on_gpu);
		end = s->offset + s->count;
	}
	return NULL;
}

/* False: out of memory. */
static bool lay_out(struct layout *layout, uint64_t count, const struct winnow_segment *segments,
                    uint32_t segment_count)
{
	uint64_t end = 0;

	layout->parts = calloc(2 * (size_t)segment_count + 1, sizeof(*layout->parts));
	if (layout->parts == NULL)
		return false;
	for (uint32_t i = 0; i < segment_count; i++) {
		const struct winnow_segment *s = &segments[i];

		part_append(layout, s->offset - end, 0, 1, layout->usual);
		if (s->tile_rows > 0)
			part_append(layout, s->count, s->row, s->tile_rows, s->tile_columns);
		else
			part_append(layout, s->count, 0, 1, block_for(layout, s->row));
		end = s->offset + s->count;
	}
	part_append(layout, count - end, 0, 1, layout->usual);
	return true;
}

/* ---- beginning ---- */

/* The request's task is the call's, with what its options and the communicator say. */
static int request_fill(struct winnow_request *request, const struct comm_call *call)
{
	static const struct winnow_options none;
	const struct winnow_options *options = call->options != NULL ? call->options : &none;
	struct layout layout = {.usual = options->block != 0 ? options->block
	                                                     : call->comm->fixed.config.block,
	                        .elem_bytes = dtype_bytes((enum dtype)call->task.dtype)};
	struct allreduce *task = &request->task;
	const char *wrong;

	*task = call->task;
	request->rows = call->rows;
	request->membership = call->view.number;
	if (call->segment_count > 0 &&
	    !lay_out(&layout, task->count, call->segments, call->segment_count))
		return comm_fail(WINNOW_ERR_MEMORY, "out of memory");
	task->parts = request->parts = layout.parts;
	task->part_count = layout.count;
	if (task->tag == 0)
		task->tag = options->tag;
	if (task->block_elems == 0)
		task->block_elems = layout.usual;
	task->form = form_for(call->comm, task, call->view.fast, options, &task->form_auto);
	task->priority = options->priority;
	task->lost = options->lost;
	wrong = wrong_request(call, task);
	if (wrong != NULL)
		return comm_fail(WINNOW_ERR_INVALID, wrong);
	if (comm_gpu_wanted(options) && task->count > 0) /* An empty tensor is on no GPU. */
		return comm_gpu_post(request, options);
	return WINNOW_OK;
}

int comm_begin(const struct comm_call *call, struct winnow_request **out)
{
	struct winnow_request *request;
	struct why why;
	int result;

	if (out == NULL)
		return comm_fail(WINNOW_ERR_INVALID, COMM_WANTS_REQUEST);
	*out = NULL;
	if (call->wrong != NULL)
		return comm_fail(WINNOW_ERR_INVALID, call->wrong);
	request = call->comm->inherited ? NULL : comm_request_new(call->comm);
	if (request == NULL) {
		rows_close(call->rows);
		return call->comm->inherited ? comm_fail(WINNOW_ERR_INVALID, comm_after_fork)
		                             : comm_fail(WINNOW_ERR_MEMORY, "out of memory");
	}
	result = request_fill(request, call);
	if (result != WINNOW_OK) {
		request->holders = 1; /* The library does not have it yet. */
		comm_request_drop(request);
		return result;
	}
	*out = request;
	result = comm_request_queue(request, &why);
	if (result != WINNOW_OK) {
		comm_gpu_forget(request);
		comm_request_end(request, result, why.text);
	}
	return WINNOW_OK;
}
