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

struct comm_parts {
	uint32_t count, left; /* left: not collected yet */
	int result;           /* the first failure that was seen */
	char why[COMM_ERROR_BYTES];
	struct winnow_op_stats stats;
	struct winnow_request *guard;
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
static void append(struct comm_parts *parts, uint64_t first, uint64_t count, uint32_t block)
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

static void cut(struct comm_parts *parts, uint64_t count, uint32_t elem_bytes, uint32_t usual,
                const struct winnow_segment *segments, uint32_t segment_count)
{
	uint64_t end = 0;

	for (uint32_t i = 0; i < segment_count; i++) {
		const struct winnow_segment *s = &segments[i];

		append(parts, end, s->offset - end, 0);
		append(parts, s->offset, s->count, block_for(s->row, elem_bytes, usual));
		end = s->offset + s->count;
	}
	append(parts, end, count - end, 0);
	if (parts->count == 0) /* all workers take part even in nothing */
		parts->list[parts->count++] = (struct part){0};
}

static void failed(struct comm_parts *parts, int result)
{
	if (parts->result != WINNOW_OK || result == WINNOW_OK)
		return;
	parts->result = result;
	snprintf(parts->why, sizeof(parts->why), "%s", winnow_last_error());
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

static int submit_guard(struct winnow_comm *comm, struct comm_parts *parts,
                        const struct winnow_options *options)
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
	return comm_submit(comm, &task, options, &parts->guard);
}

static int submit(struct winnow_comm *comm, struct comm_parts *parts, const struct allreduce *whole,
                  const struct winnow_options *options)
{
	uint32_t elem_bytes = dtype_bytes((enum dtype)whole->dtype);
	uint64_t tag = options != NULL ? options->tag : 0;
	int err = submit_guard(comm, parts, options);

	if (err != WINNOW_OK)
		return err;
	for (uint32_t i = 0; i < parts->count; i++) {
		struct part *part = &parts->list[i];
		struct allreduce task = *whole;
		int result;

		task.send = (const uint8_t *)whole->send + part->first * elem_bytes;
		task.recv = (uint8_t *)whole->recv + part->first * elem_bytes;
		task.count = part->count;
		task.block_elems = part->block;
		task.whole = parts->guard->task.tag;
		task.first = part->first;
		task.tag = tag != 0 ? part_tag(tag, i) : 0;
		result = comm_submit(comm, &task, options, &part->request);
		if (result != WINNOW_OK)
			return result;
		parts->left++;
	}
	return WINNOW_OK;
}

/*
 * On a GPU: streams wait for the parts, and nobody for the guard: workers that do not agree end
 * the communicator at once, which lets streams go on.
 */
static void parts_on_gpu(struct comm_parts *parts, const struct winnow_options *options)
{
	comm_detach(parts->guard);
	parts->guard = NULL;
	for (uint32_t i = 0; i < parts->count; i++)
		failed(parts, comm_gpu_wait(&parts->list[i].request, 1, options));
}

/* Nobody waits for them. */
static int parts_detach(struct winnow_comm *comm, struct comm_parts *parts)
{
	int result = parts->result;

	if (result != WINNOW_OK)
		comm_end(comm, (enum winnow_result)result, parts->why);
	for (uint32_t i = 0; i < parts->count; i++)
		comm_detach(parts->list[i].request);
	free(parts);
	return result;
}

static struct comm_parts *parts_new(uint32_t segment_count)
{
	size_t most = 2 * (size_t)segment_count + 1;

	return calloc(1, sizeof(struct comm_parts) + most * sizeof(struct part));
}

int winnow_allreduce_segments_async(const void *send, void *recv, uint64_t count,
                                    enum winnow_dtype dtype, enum winnow_op op,
                                    const struct winnow_segment *segments, uint32_t segment_count,
                                    const struct winnow_options *options, struct winnow_comm *comm,
                                    struct winnow_request **out)
{
	struct allreduce whole = {.send = send,
	                          .recv = recv,
	                          .count = count,
	                          .dtype = (uint8_t)dtype,
	                          .reduction = (uint8_t)op};
	const char *wrong = comm_wrong_argument(&whole, options);
	bool on_gpu = comm_gpu_wanted(options);
	struct winnow_request *request;
	struct comm_parts *parts;
	int result;

	if (out != NULL)
		*out = NULL;
	if (wrong == NULL)
		wrong = comm_wrong_request(options, out != NULL);
	if (wrong == NULL)
		wrong = comm_wrong_segments(segments, segment_count, count);
	if (wrong != NULL)
		return comm_fail(WINNOW_ERR_INVALID, wrong);
	result = on_gpu ? comm_gpu_admit(comm, &whole, options) : WINNOW_OK;
	if (result != WINNOW_OK)
		return result;
	parts = parts_new(segment_count);
	request = comm_request_new(comm);
	if (parts == NULL || request == NULL) {
		free(parts);
		return comm_fail(WINNOW_ERR_MEMORY, "out of memory");
	}
	cut(parts, count, dtype_bytes((enum dtype)dtype),
	    options != NULL && options->block != 0 ? options->block : comm->config.block, segments,
	    segment_count);
	result = submit(comm, parts, &whole, options);
	if (result == WINNOW_OK || parts->guard != NULL) {
		/* What is under way is the caller's to wait for, whatever failed after it. */
		parts->count = parts->left;
		failed(parts, result);
		if (on_gpu)
			parts_on_gpu(parts, options);
		if (out == NULL) {
			comm_request_free(request);
			return parts_detach(comm, parts);
		}
		request->submitted_us = comm_clock_us();
		request->parts = parts;
		*out = request;
		return WINNOW_OK;
	}
	free(parts);
	comm_request_free(request);
	return result;
}

/* ---- waiting ---- */

static void note(struct comm_parts *parts, struct part *part, int result,
                 const struct winnow_op_stats *stats)
{
	part->request = NULL;
	parts->left--;
	failed(parts, result);
	parts->stats.blocks += stats->blocks;
	parts->stats.blocks_nonzero += stats->blocks_nonzero;
	parts->stats.blocks_union += stats->blocks_union;
	parts->stats.staged_out_bytes += stats->staged_out_bytes;
	parts->stats.staged_in_bytes += stats->staged_in_bytes;
	if (stats->time_us > parts->stats.time_us)
		parts->stats.time_us = stats->time_us;
}

/* All parts are collected. */
static int finish(struct winnow_request *request, struct winnow_op_stats *stats)
{
	struct comm_parts *parts = request->parts;
	int result = parts->result;

	if (stats != NULL)
		*stats = parts->stats;
	if (result != WINNOW_OK)
		comm_fail(result, parts->why);
	free(parts);
	request->parts = NULL;
	comm_request_free(request);
	return result;
}

/* winnow_wait() of one part; false: it is not done. TIMEOUT can be the operation's own end, too. */
static bool part_wait(struct part *part, int64_t timeout_ms, int *result,
                      struct winnow_op_stats *stats)
{
	stats->time_us = UINT64_MAX;
	*result = winnow_wait(part->request, timeout_ms, stats);
	return *result != WINNOW_ERR_TIMEOUT || stats->time_us != UINT64_MAX;
}

/* Called with the guard's result: without agreement, nothing that is under way has an end. */
static void guard_done(struct winnow_request *request, int result)
{
	request->parts->guard = NULL;
	failed(request->parts, result);
	if (result == WINNOW_ERR_MISMATCH)
		winnow_comm_abort(request->comm, request->parts->why);
}

int comm_parts_wait(struct winnow_request *request, int64_t timeout_ms,
                    struct winnow_op_stats *stats)
{
	struct comm_parts *parts = request->parts;
	uint64_t until_us = comm_clock_us() + (uint64_t)timeout_ms * 1000;

	if (parts->guard != NULL) {
		struct part guard = {.request = parts->guard};
		struct winnow_op_stats stats_of_guard;
		int result;

		if (!part_wait(&guard, timeout_ms, &result, &stats_of_guard))
			return WINNOW_ERR_TIMEOUT;
		guard_done(request, result);
	}
	for (uint32_t i = 0; i < parts->count; i++) {
		struct winnow_op_stats one = {0};
		int64_t left_ms = timeout_ms;
		uint64_t now_us = comm_clock_us();
		int result;

		if (parts->list[i].request == NULL)
			continue;
		if (timeout_ms >= 0)
			left_ms = now_us < until_us ? (int64_t)((until_us - now_us) / 1000) : 0;
		if (!part_wait(&parts->list[i], left_ms, &result, &one))
			return WINNOW_ERR_TIMEOUT;
		note(parts, &parts->list[i], result, &one);
	}
	return finish(request, stats);
}

int comm_parts_test(struct winnow_request *request, int *done, struct winnow_op_stats *stats)
{
	struct comm_parts *parts = request->parts;

	*done = 0;
	if (parts->guard != NULL) {
		int guard_is_done = 0, result = winnow_test(parts->guard, &guard_is_done, NULL);

		if (!guard_is_done)
			return WINNOW_OK;
		guard_done(request, result);
	}
	for (uint32_t i = 0; i < parts->count; i++) {
		struct winnow_op_stats one = {0};
		int part_done = 0, result;

		if (parts->list[i].request == NULL)
			continue;
		result = winnow_test(parts->list[i].request, &part_done, &one);
		if (!part_done)
			return WINNOW_OK;
		note(parts, &parts->list[i], result, &one);
	}
	*done = 1;
	return finish(request, stats);
}
