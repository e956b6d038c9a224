// SPDX-License-Identifier: BSD-3-Clause
/* dtype.c - names of element types and reductions, and what the bits of a magnitude say */

#include "bitmap/dtype.h"

#include <stddef.h>

#include "bitmap/bitmap.h"

const char *dtype_name(enum dtype dtype)
{
	static const char *const names[] = {NULL, "f32", "f16", "bf16", "f64", "i32", "i64"};

	return dtype >= DTYPE_F32 && dtype <= DTYPE_COUNT ? names[dtype] : "?";
}

const char *reduction_name(enum reduction reduction)
{
	static const char *const names[] = {NULL, "sum", "avg", "min", "max", "prod"};

	return reduction >= REDUCE_SUM && reduction <= REDUCE_COUNT ? names[reduction] : "?";
}

struct bitmap_range bitmap_range_of(uint64_t magnitude, enum dtype dtype)
{
	/* Formats differ only in the width of the mantissa and the bias of the exponent. */
	const int32_t mantissa_bits = dtype == DTYPE_F64   ? 52
	                              : dtype == DTYPE_F32 ? 23
	                              : dtype == DTYPE_F16 ? 10
	                                                   : 7;
	const int32_t bias = dtype == DTYPE_F64 ? 1023 : dtype == DTYPE_F16 ? 15 : 127;
	const int32_t biased = (int32_t)(magnitude >> mantissa_bits);

	if (magnitude == 0)
		return (struct bitmap_range){.exponent = BITMAP_EXPONENT_NONE};
	if (biased > 2 * bias)
		return (struct bitmap_range){.exponent = BITMAP_EXPONENT_NONE, .nonfinite = true};
	if (biased == 0) /* subnormal: magnitude times 2^(1 - bias - mantissa_bits) */
		return (struct bitmap_range){
			.exponent = 64 - __builtin_clzll(magnitude) + 1 - bias - mantissa_bits,
		};
	return (struct bitmap_range){.exponent = biased - bias + 1};
}

struct bitmap_range bitmap_range_both(struct bitmap_range a, struct bitmap_range b)
{
	if (a.nonfinite || b.nonfinite)
		return (struct bitmap_range){.exponent = BITMAP_EXPONENT_NONE, .nonfinite = true};
	return a.exponent > b.exponent ? a : b;
}
