// SPDX-License-Identifier: BSD-3-Clause
/*
 * comm_parts.c - an operation on a tensor of segments, as several operations
 *
 * A cut (geometry.c) has one block size and begins at its tensor's start. So consecutive segments
 * form one operation, a run, if their rows need the same block and lie on its grid. An operation
 * without data precedes the runs: the guard, whose count and block are a hash of the runs. Workers
 * that disagree on the segments may have different numbers of runs, but all have a guard. Its
 * mismatch ends the job before any worker waits for runs that never come.
 */

#include <stdio.h>
#include <stdlib.h>

#include "client/comm/comm.h"

/* A datagram has at most 64 blocks, so smaller blocks would not fill it. */
#define BLOCK_BYTES_MIN 64

struct part {
	uint64_t first, count; /* elements of the tensor */
	uint64_t block;        /* 0: the default */
};

struct parts {
	uint32_t count;
	struct part list[];
};

/* ---- one operation ---- */

static uint8_t form_for(const struct winnow_comm *comm, uint8_t dtype, uint8_t op,
                        const struct winnow_options *options, bool *is_auto)
{
	enum winnow_wire wire = options != NULL ? options->wire : WINNOW_WIRE_AUTO;

	if (wire == WINNOW_WIRE_AUTO)
		wire = comm->config.wire;
	*is_auto = wire == WINNOW_WIRE_AUTO;
	if (wire == WINNOW_WIRE_AUTO && comm->fast)
		wire = WINNOW_WIRE_FIXED32;
	if (wire == WINNOW_WIRE_FIXED32 && dtype == WINNOW_F32 &&
	    (op == WINNOW_SUM || op == WINNOW_AVG))
		return WIRE_FIXED32;
	return WIRE_NATIVE;
}

int comm_request_make(struct winnow_comm *comm, const struct allreduce *what,
                      const struct winnow_options *options, struct winnow_request **out)
{
	struct winnow_request *request = comm_request_new(comm);
	int result = WINNOW_OK;

	if (request == NULL)
		return comm_fail(WINNOW_ERR_MEMORY, "out of memory");
	request->task = *what;
	if (what->is_guard)
		request->task.send = request->task.recv =
			memset(request->nothing, 0, sizeof(request->nothing));
	if (what->tag == 0 && options != NULL)
		request->task.tag = options->tag;
	if (what->block_elems == 0)
		request->task.block_elems = options != NULL && options->block != 0
		                                    ? options->block
		                                    : comm->config.block;
	request->task.form =
		form_for(comm, what->dtype, what->reduction, options, &request->task.form_auto);
	request->task.priority = options != NULL ? options->priority : 0;
	if (comm_gpu_wanted(options) && !what->is_guard)
		result = comm_gpu_post(request, options);
	if (result == WINNOW_OK)
		*out = request;
	if (result != WINNOW_OK) {
		request->holders = 1; /* nobody else has it */
		comm_request_drop(request);
	}
	return result;
}

/* ---- cutting ---- */

/* A row, several small rows, or the largest divisor of a row up to the default block. */
static uint32_t block_for(uint64_t row, uint32_t elem_bytes, uint32_t usual)
{
	uint32_t least = BLOCK_BYTES_MIN / elem_bytes;

	if (row <= 1)
		return 0;
	if (row < least)
		return (uint32_t)(row * ((least + row - 1) / row));
	for (uint64_t share = row < usual ? row : usual; share >= least; share--)
		if (row % share == 0)
			return (uint32_t)share;
	return row <= WIRE_BLOCK_ELEMS_MAX ? (uint32_t)row : 0;
}

/* Append [first, first + count) to the list, merged with the last run if possible. */
static void append(struct parts *parts, uint64_t first, uint64_t count, uint32_t block)
{
	struct part *last = parts->count > 0 ? &parts->list[parts->count - 1] : NULL;

	if (count == 0)
		return;
	if (last != NULL && last->block == block &&
	    (block == 0 || (first - last->first) % block == 0)) {
		last->count += count;
		return;
	}
	parts->list[parts->count++] = (struct part){.first = first, .count = count, .block = block};
}

const char *comm_wrong_segments(const struct winnow_segment *segments, uint32_t segment_count,
                                uint64_t count)
{
	uint64_t end = 0;

	for (uint32_t i = 0; i < segment_count; i++) {
		const struct winnow_segment *s = &segments[i];

		if (s->offset < end)
			return "segments overlap or are not in ascending order";
		if (s->offset > count || s->count > count - s->offset)
			return "a segment is outside of the tensor";
		end = s->offset + s->count;
	}
	return NULL;
}

/* NULL: out of memory. */
static struct parts *cut(uint64_t count, uint32_t elem_bytes, uint32_t usual,
                         const struct winnow_segment *segments, uint32_t segment_count)
{
	size_t most = 2 * (size_t)segment_count + 1;
	struct parts *parts = calloc(1, sizeof(*parts) + most * sizeof(parts->list[0]));
	uint64_t end = 0;

	if (parts == NULL)
		return NULL;
	for (uint32_t i = 0; i < segment_count; i++) {
		const struct winnow_segment *s = &segments[i];

		append(parts, end, s->offset - end, 0);
		append(parts, s->offset, s->count, block_for(s->row, elem_bytes, usual));
		end = s->offset + s->count;
	}
	append(parts, end, count - end, 0);
	if (parts->count == 0) /* all workers take part even in an empty operation */
		parts->list[parts->count++] = (struct part){0};
	return parts;
}

/* ---- submitting ---- */

uint64_t comm_part_tag(uint64_t tag, uint32_t number)
{
	uint64_t half = COMM_TAG_BY_ORDER >> 1;
	uint64_t mixed =
		(tag + number * UINT64_C(0xd1342543de82ef95)) * UINT64_C(0x9e3779b97f4a7c15);

	if (tag == 0)
		return 0;
	return COMM_TAG_BY_ORDER | half | ((mixed ^ mixed >> 32) & (half - 1));
}

static uint32_t hash_u64(uint32_t hash, uint64_t value)
{
	for (uint32_t i = 0; i < 8; i++, value >>= 8)
		hash = (hash ^ (uint8_t)value) * 16777619;
	return hash;
}

/* An operation on zeros, whose count and block are a hash of what workers must agree on. */
static struct allreduce guard_of(const uint64_t *what, size_t count, uint64_t tag)
{
	struct allreduce task = {.is_guard = true,
	                         .tag = tag,
	                         .dtype = DTYPE_I32,
	                         .reduction = REDUCE_SUM,
	                         .access = &array_access};
	uint32_t hash = 2166136261;

	for (size_t i = 0; i < count; i++)
		hash = hash_u64(hash, what[i]);
	task.count = 1 + hash % COMM_GUARD_COUNT_MAX;
	task.block_elems = 1 + hash / COMM_GUARD_COUNT_MAX % WIRE_BLOCK_ELEMS_MAX;
	return task;
}

static struct allreduce part_of(const struct allreduce *tensor, const struct part *part)
{
	uint32_t elem_bytes = dtype_bytes((enum dtype)tensor->dtype);
	struct allreduce task = *tensor;

	task.send = (const uint8_t *)tensor->send + part->first * elem_bytes;
	task.recv = (uint8_t *)tensor->recv + part->first * elem_bytes;
	task.count = part->count;
	task.block_elems = (uint32_t)part->block;
	task.first = part->first;
	return task;
}

/* One operation of `whole` is under way. */
static int part_begin(struct winnow_request *whole, const struct allreduce *task,
                      const struct winnow_options *options, struct winnow_request **out)
{
	struct winnow_comm *comm = whole->comm;
	int result = comm_request_make(comm, task, options, out);

	if (result != WINNOW_OK)
		return result;
	(*out)->whole = whole;
	pthread_mutex_lock(&comm->lock);
	whole->parts_left++;
	pthread_mutex_unlock(&comm->lock);
	comm_request_queue(*out);
	return WINNOW_OK;
}

static int begin_parts(struct winnow_request *whole, const struct parts *parts,
                       const struct winnow_request *guard, const struct allreduce *tensor,
                       const struct winnow_options *options)
{
	int result = WINNOW_OK;

	for (uint32_t i = 0; i < parts->count && result == WINNOW_OK; i++) {
		struct allreduce task = part_of(tensor, &parts->list[i]);
		struct winnow_request *part;

		task.whole = guard->task.tag;
		task.tag = comm_part_tag(tensor->tag, i);
		result = part_begin(whole, &task, options, &part);
		if (result == WINNOW_OK)
			comm_request_drop(part);
	}
	return result;
}

/* Once the guard is under way the caller gets a request to wait for, even if a later part fails. */
static int submit(struct winnow_request *whole, const struct parts *parts,
                  const struct allreduce *tensor, const struct winnow_options *options)
{
	struct allreduce task =
		guard_of(&parts->list[0].first, 3 * (size_t)parts->count, tensor->tag);
	struct winnow_request *guard;
	int result;

	whole->parts_left = 1;
	result = part_begin(whole, &task, options, &guard);
	if (result != WINNOW_OK)
		return result;
	result = begin_parts(whole, parts, guard, tensor, options);
	comm_request_drop(guard);
	comm_parts_begun(whole, result, winnow_last_error());
	return WINNOW_OK;
}

static int begin_segments(struct winnow_comm *comm, const struct allreduce *tensor,
                          const struct winnow_segment *segments, uint32_t segment_count,
                          const struct winnow_options *options, struct winnow_request **out)
{
	struct winnow_request *whole = comm_request_new(comm);
	struct parts *parts =
		cut(tensor->count, dtype_bytes((enum dtype)tensor->dtype),
	            options != NULL && options->block != 0 ? options->block : comm->config.block,
	            segments, segment_count);
	int result = whole != NULL && parts != NULL ? WINNOW_OK
	                                            : comm_fail(WINNOW_ERR_MEMORY, "out of memory");

	/* Parts can begin on a GPU if the whole could. */
	if (result == WINNOW_OK && comm_gpu_wanted(options)) {
		whole->task = *tensor;
		result = comm_gpu_post(whole, options);
		(void)staging_finish(&whole->staged, true);
	}
	if (result == WINNOW_OK)
		result = submit(whole, parts, tensor, options);
	if (result == WINNOW_OK)
		*out = whole;
	if (result != WINNOW_OK && whole != NULL) {
		whole->holders = 1; /* nobody else has it */
		comm_request_drop(whole);
	}
	free(parts);
	return result;
}

int comm_allreduce(struct winnow_comm *comm, const struct allreduce *what,
                   const struct winnow_segment *segments, uint32_t segment_count,
                   const struct winnow_options *options, struct winnow_request **out)
{
	struct allreduce tensor = *what;
	int result;

	if (tensor.tag == 0 && options != NULL)
		tensor.tag = options->tag;
	if (segments != NULL)
		return begin_segments(comm, &tensor, segments, segment_count, options, out);
	result = comm_request_make(comm, &tensor, options, out);
	if (result == WINNOW_OK)
		comm_request_queue(*out);
	return result;
}

int comm_agree(struct winnow_comm *comm, const uint64_t *what, size_t count, uint64_t tag)
{
	struct allreduce task = guard_of(what, count, tag);
	struct winnow_request *guard;
	int result = comm_allreduce(comm, &task, NULL, 0, NULL, &guard);

	if (result == WINNOW_OK)
		comm_request_drop(guard);
	return result;
}

int winnow_allreduce_segments_async(const void *send, void *recv, uint64_t count,
                                    enum winnow_dtype dtype, enum winnow_op op,
                                    const struct winnow_segment *segments, uint32_t segment_count,
                                    const struct winnow_options *options, struct winnow_comm *comm,
                                    struct winnow_request **out)
{
	static const struct winnow_segment none;
	struct allreduce tensor = {.send = send,
	                           .recv = recv,
	                           .count = count,
	                           .dtype = (uint8_t)dtype,
	                           .reduction = (uint8_t)op,
	                           .access = &array_access};
	const char *wrong = comm_wrong_argument(&tensor, options);

	if (out == NULL)
		return comm_fail(WINNOW_ERR_INVALID, COMM_WANTS_REQUEST);
	*out = NULL;
	if (wrong == NULL)
		wrong = comm_wrong_segments(segments, segment_count, count);
	if (wrong != NULL)
		return comm_fail(WINNOW_ERR_INVALID, wrong);
	return comm_allreduce(comm, &tensor, segment_count > 0 ? segments : &none, segment_count,
	                      options, out);
}
