/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_staging_op.h - an operation for tests of staging*.c: a tensor, its sums, what has to come out
 */
#ifndef TESTS_UNIT_TEST_STAGING_OP_H
#define TESTS_UNIT_TEST_STAGING_OP_H

#include "tests/unit/test_staging_runs.h"

#define WORLD 3
#define POISON 0x5a

struct spec {
	uint64_t count;
	uint32_t block_elems;
	enum dtype dtype;
	enum reduction reduction;
	bool fixed, in_place;
	uint32_t density; /* of 100 blocks, this worker has */
	uint32_t others;  /* and others have */
	uint32_t fine;    /* its bitmap is wanted */
	bool refused;     /* by the engine: it never begins */
};

enum part { UNKNOWN, ANNOUNCED, PLANNED, RECEIVED }; /* of a segment of a shard */

struct op {
	struct allreduce task;
	struct staging_op *staged;
	uint8_t *send, *recv, *want;
	uint8_t *given;     /* what was in `send` */
	bool *own, *united; /* [block_count] */
	uint8_t *sums;      /* [block_count] spaces of a block: what the aggregators will say */
	int *shifts;        /* [segment_count * shard_count], with the next */
	uint8_t *parts;
	uint32_t scanned, left;
	uint32_t fine, views; /* its bitmap will come; has come so often */
	bool active, hold, done, failed, passed;
};

static inline size_t block_bytes_of(const struct op *op, uint64_t block)
{
	const struct geometry *cut = &op->task.cut;
	size_t left = (op->task.count - block * cut->block_elems) * cut->elem_bytes;

	return left < cut->block_bytes ? left : cut->block_bytes;
}

/* Not zero, and finite where it is a float of 32 bits. */
static inline void fill_block(struct op *op, uint64_t block)
{
	size_t bytes = block_bytes_of(op, block);
	uint8_t *to = op->send + block * op->task.cut.block_bytes;

	for (size_t i = 0; i < bytes; i++)
		to[i] = (uint8_t)random_bits();
	to[0] |= 1;
	for (size_t i = 0; i + 4 <= bytes && op->task.dtype == DTYPE_F32; i += 4) {
		float value = ldexpf((float)random_below(1000) + 1, (int)random_below(20) - 10);

		value = random_below(2) ? value : -value;
		memcpy(to + i, &value, sizeof(value));
	}
}

/* What the GPU has to make of a block's sums. */
static inline void want_block(struct op *op, uint64_t block, int shift)
{
	const struct geometry *cut = &op->task.cut;
	uint32_t divisor = op->task.reduction == REDUCE_AVG ? WORLD : 1;
	const uint8_t *from = op->sums + block * cut->block_bytes;
	uint8_t *to = op->want + block * cut->block_bytes;
	size_t bytes = block_bytes_of(op, block);

	if (op->task.form != WIRE_FIXED32) {
		memcpy(to, from, bytes);
		return;
	}
	for (size_t i = 0; i < bytes; i += 4) {
		float value = decoded(from + i, shift, divisor);

		memcpy(to + i, &value, sizeof(value));
	}
}

static inline size_t part_of(const struct geometry *cut, uint32_t segment, uint32_t shard)
{
	return (size_t)segment * cut->shard_count + shard;
}

static inline void fill_op(struct op *op, const struct spec *spec)
{
	const struct geometry *cut = &op->task.cut;
	uint64_t blocks = cut->block_count, in_segment;
	size_t parts = (size_t)cut->segment_count * cut->shard_count;

	op->send = calloc(blocks + 1, cut->block_bytes);
	op->recv = spec->in_place ? op->send : malloc((blocks + 1) * cut->block_bytes);
	op->want = calloc(blocks + 1, cut->block_bytes);
	op->given = calloc(blocks + 1, cut->block_bytes);
	op->own = calloc(blocks + 1, sizeof(*op->own));
	op->united = calloc(blocks + 1, sizeof(*op->united));
	op->sums = calloc(blocks + 1, cut->block_bytes);
	op->shifts = calloc(parts, sizeof(*op->shifts));
	op->parts = calloc(parts, sizeof(*op->parts));
	op->left = (uint32_t)parts;
	if (!spec->in_place)
		memset(op->recv, POISON, (blocks + 1) * cut->block_bytes);
	for (size_t i = 0; i < parts; i++)
		op->shifts[i] = (int)random_below(50) - 25;
	in_segment = (uint64_t)cut->segment_blocks * cut->shard_count;
	for (uint64_t block = 0; block < blocks; block++) {
		uint8_t *sum = op->sums + block * cut->block_bytes;
		size_t part =
			part_of(cut, (uint32_t)(block / in_segment), geometry_shard(cut, block));

		op->own[block] = random_below(100) < spec->density;
		op->united[block] = op->own[block] || random_below(100) < spec->others;
		if (op->own[block])
			fill_block(op, block);
		for (size_t i = 0; i < cut->block_bytes && op->united[block]; i++)
			sum[i] = (uint8_t)random_bits();
		if (op->united[block])
			want_block(op, block, op->shifts[part]);
	}
	memcpy(op->given, op->send, blocks * cut->block_bytes);
}

static inline void op_free(struct op *op)
{
	if (op->recv != op->send)
		free(op->recv);
	free(op->send);
	free(op->want);
	free(op->given);
	free(op->own);
	free(op->united);
	free(op->sums);
	free(op->shifts);
	free(op->parts);
	*op = (struct op){0};
}

#endif /* TESTS_UNIT_TEST_STAGING_OP_H */
