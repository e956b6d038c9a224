// SPDX-License-Identifier: BSD-3-Clause
/* dtype.c - the names of element types and reductions */

#include "bitmap/dtype.h"

#include <stddef.h>

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
