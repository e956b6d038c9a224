/* SPDX-License-Identifier: BSD-3-Clause */
/* bitmap_sparse.h - within(), neutral() and reduce_at() of an engine; private to bitmap/ */
#ifndef BITMAP_BITMAP_SPARSE_H
#define BITMAP_BITMAP_SPARSE_H

#include "bitmap/bitmap_fold.h"
#include "bitmap/bitmap_pack.h"

/* Packs the bits of `mine` that stand where `united` has a bit, as PEXT does. */
static inline uint64_t word_within(uint64_t mine, uint64_t united)
{
#if defined __BMI2__
	return _pext_u64(mine, united);
#else
	uint64_t found = 0;

	for (mine &= united; mine != 0; mine &= mine - 1) {
		const uint64_t below = (mine & -mine) - 1;

		found |= UINT64_C(1) << __builtin_popcountll(united & below);
	}
	return found;
#endif
}

static uint64_t within(const uint64_t mine[], const uint64_t united[], uint64_t first,
                       uint64_t block_count, uint64_t lanes[])
{
	uint64_t bits = UINT64_MAX << first % 64, lane = 0, own = 0, next = 0;

	for (uint64_t w = first / 64; lane < block_count; w++, bits = UINT64_MAX) {
		const uint64_t word = united[w] & bits;
		const uint64_t left = block_count - lane;
		uint64_t found = word_within(mine[w], word);
		uint64_t count = (uint64_t)__builtin_popcountll(word);

		if (count > left) {
			count = left;
			found &= (UINT64_C(1) << left) - 1;
		}
		own += (uint64_t)__builtin_popcountll(found);
		next |= found << lane % 64;
		if (lane % 64 + count >= 64) {
			lanes[lane / 64] = next;
			next = lane % 64 == 0 ? 0 : found >> (64 - lane % 64);
		}
		lane += count;
	}
	if (lane % 64 != 0)
		lanes[lane / 64] = next;
	return own;
}

/* Returns the bits of the number that leaves every other number of the type `wide` unchanged. */
static inline uint64_t neutral_of(enum dtype wide, enum reduction op)
{
	const bool is_float = dtype_is_float(wide);
	const unsigned int bits = dtype_bytes(wide) * 8;
	const uint64_t sign = UINT64_C(1) << (bits - 1);
	const uint64_t infinity = wide == DTYPE_F32 ? 0x7f800000 : UINT64_C(0x7ff) << 52;

	switch (op) {
	case REDUCE_SUM:
	case REDUCE_AVG:
		return 0;
	case REDUCE_MIN:
		return is_float ? infinity : sign - 1;
	case REDUCE_MAX:
		return is_float ? infinity | sign : sign;
	case REDUCE_PROD:
		break;
	}
	return !is_float ? 1 : wide == DTYPE_F32 ? 0x3f800000 : UINT64_C(0x3ff) << 52;
}

static void neutral(void *acc, uint64_t count, enum dtype dtype, enum reduction op)
{
	const uint64_t number = neutral_of(dtype_acc(dtype), op);
	u32_any *narrow = acc;
	u64_any *wide = acc;

	assert(in_range(dtype, op));
	if (dtype_acc_bytes(dtype) == 2)
		memset(acc, 0, 2 * count);
	else if (dtype_acc_bytes(dtype) == 4)
		for (uint64_t i = 0; i < count; i++)
			narrow[i] = (uint32_t)number;
	else
		for (uint64_t i = 0; i < count; i++)
			wide[i] = number;
}

/* Blocks of at most this size are gathered into one row, added there, and put back. */
#define SMALL_BLOCK_ELEMS_MAX 16
#define GATHER_BYTES (SMALL_BLOCK_ELEMS_MAX * 64 * DTYPE_BYTES_MAX)

static void reduce_small(unsigned char *acc, const struct bitmap_lanes *lanes,
                         const unsigned char *src, enum dtype dtype, enum reduction op)
{
	const uint64_t block_bytes = (uint64_t)lanes->block_elems * dtype_acc_bytes(dtype);
	const uint64_t most = GATHER_BYTES / 64 / block_bytes;
	_Alignas(64) unsigned char gathered[GATHER_BYTES];
	struct stretch stretch;

	FIRST_STRETCH(stretch);
	while (next_stretch(&stretch, lanes->bits, lanes->block_count, most)) {
		unsigned char *sums = acc + stretch.first * 64 * block_bytes;
		uint64_t elems = stretch_blocks(&stretch) * lanes->block_elems;

		if (stretch.all) {
			reduce(sums, src, elems, dtype, op);
		} else {
			move_stretch(gathered, sums, &stretch, block_bytes, true);
			reduce(gathered, src, elems, dtype, op);
			move_stretch(sums, gathered, &stretch, block_bytes, false);
		}
		src += elems * dtype_bytes(dtype);
	}
}

static void reduce_at(void *acc, const struct bitmap_lanes *lanes, const void *src,
                      enum dtype dtype, enum reduction op)
{
	const uint64_t elems = lanes->block_elems;
	const unsigned char *in = src;
	unsigned char *sums = acc;

	assert(in_range(dtype, op) && elems > 0);
	if (elems <= SMALL_BLOCK_ELEMS_MAX) {
		reduce_small(acc, lanes, src, dtype, op);
		return;
	}
	for (uint64_t at = 0; at < lanes->block_count; at += 64) {
		const uint64_t left = lanes->block_count - at;
		uint64_t word = lanes->bits[at / 64];

		word &= left < 64 ? (UINT64_C(1) << left) - 1 : UINT64_MAX;
		while (word != 0) {
			const uint64_t first = (uint64_t)__builtin_ctzll(word);
			const uint64_t rest = ~(word >> first);
			const uint64_t run = rest != 0 ? (uint64_t)__builtin_ctzll(rest) : 64;

			reduce(sums + (at + first) * elems * dtype_acc_bytes(dtype), in,
			       run * elems, dtype, op);
			in += run * elems * dtype_bytes(dtype);
			word = first + run == 64 ? 0 : word >> (first + run) << (first + run);
		}
	}
}

#endif /* BITMAP_BITMAP_SPARSE_H */
