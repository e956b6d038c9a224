// SPDX-License-Identifier: BSD-3-Clause
/*
 * comm_parts.c - an operation on a tensor of segments, as several operations
 *
 * A cut (geometry.c) has one size of block and begins at its tensor's start. So each run of
 * segments whose rows ask for the same block, and lie on its grid, is an operation of its
 * own. One more comes first, the guard: it has no data, and a hash of the runs for a count and
 * block. Workers that do not agree on the segments may not even have the same number of runs, but
 * all have a guard, and its mismatch ends the job before anybody waits for runs that never come.
 */

#include <stdio.h>
#include <stdlib.h>

#include "client/comm.h"

/* Blocks of fewer bytes make datagrams that are not full: 64 of them are the most in one. */
#define BLOCK_BYTES_MIN 64

struct part {
	uint64_t first, count; /* elements of the tensor */
	uint32_t block;        /* 0: the usual */
	struct winnow_request *request;
};

struct parts {
	uint32_t count, begun; /* begun: those before it are under way */
	struct part list[];
};

/* ---- cutting ---- */

/* A row, or rows, or the largest even share of a row that is not above the usual block. */
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

/* Put [first, first + count) at the end of the list, with the run before it if that may be. */
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
	if (parts->count == 0) /* all workers take part even in nothing */
		parts->list[parts->count++] = (struct part){0};
	return parts;
}

/* ---- submitting ---- */

/* Unlike the caller's own tags, and those by order; `tag` makes 2^62 different ones each. */
static uint64_t part_tag(uint64_t tag, uint32_t number)
{
	uint64_t half = COMM_TAG_BY_ORDER >> 1;
	uint64_t mixed =
		(tag + number * UINT64_C(0xd1342543de82ef95)) * UINT64_C(0x9e3779b97f4a7c15);

	return COMM_TAG_BY_ORDER | half | ((mixed ^ mixed >> 32) & (half - 1));
}

static uint32_t hash_u64(uint32_t hash, uint64_t value)
{
	for (uint32_t i = 0; i < 8; i++, value >>= 8)
		hash = (hash ^ (uint8_t)value) * 16777619;
	return hash;
}

static struct allreduce guard_of(const struct parts *parts)
{
	struct allreduce task = {.is_guard = true, .dtype = DTYPE_I32, .reduction = REDUCE_SUM};
	uint32_t hash = 2166136261;

	for (uint32_t i = 0; i < parts->count; i++) {
		hash = hash_u64(hash, parts->list[i].first);
		hash = hash_u64(hash, parts->list[i].count);
		hash = hash_u64(hash, parts->list[i].block);
	}
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
	task.block_elems = part->block;
	task.first = part->first;
	return task;
}

/* One operation of `whole` is under way. */
static int begin(struct winnow_request *whole, const struct allreduce *task,
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

static int begin_parts(struct winnow_request *whole, struct parts *parts,
                       const struct winnow_request *guard, const struct allreduce *tensor,
                       const struct winnow_options *options)
{
	uint64_t tag = options != NULL ? options->tag : 0;
	int result = WINNOW_OK;

	while (parts->begun < parts->count && result == WINNOW_OK) {
		struct part *part = &parts->list[parts->begun];
		struct allreduce task = part_of(tensor, part);

		task.whole = guard->task.tag;
		task.tag = tag != 0 ? part_tag(tag, parts->begun) : 0;
		result = begin(whole, &task, options, &part->request);
		parts->begun += result == WINNOW_OK;
	}
	return result;
}

/* Streams wait for the parts, when all are under way, and none for the guard: its mismatch lets them go on. */
static int wait_for_parts(const struct parts *parts, const struct winnow_options *options)
{
	int result = WINNOW_OK;

	for (uint32_t i = 0; i < parts->begun; i++) {
		int one = comm_gpu_wait(parts->list[i].request, options);

		result = result == WINNOW_OK ? one : result;
		comm_request_drop(parts->list[i].request);
	}
	return result;
}

/* What is under way is the caller's to wait for, whatever failed after it. */
static int submit(struct winnow_request *whole, struct parts *parts, const struct allreduce *tensor,
                  const struct winnow_options *options, struct winnow_request **out)
{
	struct allreduce task = guard_of(parts);
	struct winnow_request *guard;
	int result, waited;

	whole->detached = out == NULL;
	whole->parts_left = 1;
	result = begin(whole, &task, options, &guard);
	if (result != WINNOW_OK) {
		comm_request_drop(whole);
		comm_request_drop(whole);
		return result;
	}
	result = begin_parts(whole, parts, guard, tensor, options);
	comm_request_drop(guard);
	waited = wait_for_parts(parts, options);
	result = result == WINNOW_OK ? waited : result;
	if (result != WINNOW_OK && out == NULL)
		comm_end(whole->comm, (enum winnow_result)result, winnow_last_error());
	comm_parts_begun(whole, result, winnow_last_error());
	if (out != NULL) {
		*out = whole;
		return WINNOW_OK;
	}
	comm_request_drop(whole);
	return result;
}

int winnow_allreduce_segments_async(const void *send, void *recv, uint64_t count,
                                    enum winnow_dtype dtype, enum winnow_op op,
                                    const struct winnow_segment *segments, uint32_t segment_count,
                                    const struct winnow_options *options, struct winnow_comm *comm,
                                    struct winnow_request **out)
{
	struct allreduce tensor = {.send = send,
	                           .recv = recv,
	                           .count = count,
	                           .dtype = (uint8_t)dtype,
	                           .reduction = (uint8_t)op};
	const char *wrong = comm_wrong_argument(&tensor, options);
	struct winnow_request *whole;
	struct parts *parts;
	int result;

	if (out != NULL)
		*out = NULL;
	if (wrong == NULL)
		wrong = comm_wrong_request(options, out != NULL);
	if (wrong == NULL)
		wrong = comm_wrong_segments(segments, segment_count, count);
	if (wrong != NULL)
		return comm_fail(WINNOW_ERR_INVALID, wrong);
	result = comm_gpu_wanted(options) ? comm_gpu_admit(comm, &tensor, options) : WINNOW_OK;
	if (result != WINNOW_OK)
		return result;
	parts = cut(count, dtype_bytes((enum dtype)dtype),
	            options != NULL && options->block != 0 ? options->block : comm->config.block,
	            segments, segment_count);
	whole = parts != NULL ? comm_request_new(comm) : NULL;
	result = whole != NULL ? submit(whole, parts, &tensor, options, out)
	                       : comm_fail(WINNOW_ERR_MEMORY, "out of memory");
	free(parts);
	return result;
}
