/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rows.h - the tensor of an operation, given as a list of its non-zero blocks
 *
 * A worker sends a list of block numbers and their values. It receives a whole tensor, or another
 * such list, which grows as plans define the union. On the wire this is the same as an operation on
 * the whole tensor. Pure; one thread at a time.
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
	_Atomic uint32_t holders; /* The number of holders. The last one to close it frees it. */

	/* The list to send. */
	uint64_t *blocks;      /* [count] block numbers, ascending. */
	const uint8_t *values; /* [count] blocks in that order. */
	void *sorted;          /* `values` if they are our own sorted copy; otherwise NULL. */
	uint64_t count;
	uint64_t cursor; /* Blocks before this one have been announced. */

	/* The received list, if `gather`. */
	bool gather;
	uint64_t found; /* The number of blocks in all chunks. */
	uint32_t block_bytes;
	uint32_t shard_count;
	uint32_t chunk_count;
	struct rows_chunk **chunks; /* [segment_count * shard_count] */
};

/*
 * `block_count` blocks of block_elems elements. Block i begins at element index[i]. `values` must stay
 * until the operation is done.
 */
struct rows_input {
	const void *values;
	const int64_t *index;
	uint64_t block_count;
	uint32_t block_elems;
	uint32_t elem_bytes;
	uint64_t elems; /* Elements of the whole tensor. */
	bool gather;
};
/*
 * Fails with -EINVAL and a reason in *why if an index is negative, beyond `elems`, not a multiple of block_elems, or
 * repeated; or with -ENOMEM.
 */
int rows_open(const struct rows_input *input, struct winnow_rows **out, const char **why);

/* rows_open() makes one holder. The last holder to close the rows frees them. rows_close() accepts NULL. */
void rows_hold(struct winnow_rows *rows);
void rows_close(struct winnow_rows *rows);

/* Writes the received blocks in ascending order: [found] numbers and [found] blocks. */
void rows_read(const struct winnow_rows *rows, int64_t *index, void *values);

/* Returns the access for an operation with `rows` as access_state; array_access if it is NULL. */
const struct access *rows_access(const struct winnow_rows *rows);

#endif /* CLIENT_ROWS_H */
