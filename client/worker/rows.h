/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rows.h - the tensor of one operation, given as a list of its non-zero blocks
 *
 * A worker sends a list of block numbers and their values. It receives a whole tensor, or another
 * such list, which grows as plans tell what the union holds. On the wire nothing differs from an
 * operation on the whole tensor. Pure; one thread at a time.
 */
#ifndef CLIENT_ROWS_H
#define CLIENT_ROWS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/worker/allreduce.h"
#include "ebpf/geometry.h"

struct rows_chunk;

struct winnow_rows {
	_Atomic uint32_t holders; /* the last holder calls rows_close() */

	/* What is sent. */
	uint64_t *blocks;      /* [count] ascending */
	const uint8_t *values; /* [count] blocks, in that order */
	void *sorted;          /* `values`, when they are a copy of our own */
	uint64_t count;
	uint64_t cursor; /* blocks before it have been announced */

	/* What is received, if as a list. */
	bool gather;
	uint64_t found; /* blocks of all chunks */
	uint32_t block_bytes;
	uint32_t shard_count;
	uint32_t chunk_count;
	struct rows_chunk **chunks; /* [segment_count * shard_count] */
};

/*
 * rows_open - `block_count` blocks of block_elems elements; block i begins at element index[i].
 * `values` is used until the operation is done. -EINVAL: an index is negative, beyond `elems`,
 * no multiple of block_elems, or there twice; *why says which of these. -ENOMEM.
 */
struct rows_input {
	const void *values;
	const int64_t *index;
	uint64_t block_count;
	uint32_t block_elems;
	uint32_t elem_bytes;
	uint64_t elems; /* of the whole tensor */
	bool gather;
};
int rows_open(const struct rows_input *input, struct winnow_rows **out, const char **why);

/* rows_open() has one holder; the last of them to close it frees it. NULL is fine for rows_close(). */
void rows_hold(struct winnow_rows *rows);
void rows_close(struct winnow_rows *rows);

/* rows_read - all that was received, by ascending block: [found] numbers, [found] blocks. */
void rows_read(const struct winnow_rows *rows, int64_t *index, void *values);

/* rows_access - how the machines reach `rows`, the access_state of an operation; NULL: its arrays. */
const struct access *rows_access(const struct winnow_rows *rows);

#endif /* CLIENT_ROWS_H */
