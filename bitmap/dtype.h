/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dtype.h - the element types and reductions that the whole project knows
 *
 * The numbers are those of the wire (PROTOCOL.md, section 3) and of the public interface.
 * wire.h and winnow.h repeat them and assert that they agree.
 */
#ifndef BITMAP_DTYPE_H
#define BITMAP_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum dtype {
	DTYPE_F32 = 1,
	DTYPE_F16 = 2,  /* IEEE 754 binary16 */
	DTYPE_BF16 = 3, /* the upper half of a binary32 */
	DTYPE_F64 = 4,
	DTYPE_I32 = 5,
	DTYPE_I64 = 6,
	/* For frames and REDUCE_SUM only: fixed16 and fixed8 turn f32 into these. */
	DTYPE_I16 = 7,
	DTYPE_I8 = 8,
};

#define DTYPE_COUNT 6      /* tensors have the types 1 .. DTYPE_COUNT */
#define DTYPE_WIRE_COUNT 8 /* frames have the types 1 .. DTYPE_WIRE_COUNT */

enum reduction {
	REDUCE_SUM = 1,
	REDUCE_AVG = 2, /* the sum, divided by the number of workers */
	REDUCE_MIN = 3,
	REDUCE_MAX = 4,
	REDUCE_PROD = 5,
};

#define REDUCE_COUNT 5 /* valid values are 1 .. REDUCE_COUNT */

#define DTYPE_BYTES_MAX 8

/* Bytes of one element in memory and on the wire. */
static inline uint32_t dtype_bytes(enum dtype dtype)
{
	switch (dtype) {
	case DTYPE_I8:
		return 1;
	case DTYPE_F16:
	case DTYPE_BF16:
	case DTYPE_I16:
		return 2;
	case DTYPE_F32:
	case DTYPE_I32:
		return 4;
	case DTYPE_F64:
	case DTYPE_I64:
		return 8;
	}
	return 0;
}

/* The type in which elements travel. `form` is the number of a type, or 0 for their own. */
static inline enum dtype dtype_in_form(uint32_t form, enum dtype dtype)
{
	return form != 0 ? (enum dtype)form : dtype;
}

/* The type in which elements are summed: twice as wide, for floats and fixed numbers below 4 bytes. */
static inline enum dtype dtype_acc(enum dtype dtype)
{
	switch (dtype) {
	case DTYPE_F16:
	case DTYPE_BF16:
		return DTYPE_F32;
	case DTYPE_I16:
		return DTYPE_I32;
	case DTYPE_I8:
		return DTYPE_I16;
	default:
		return dtype;
	}
}

static inline uint32_t dtype_acc_bytes(enum dtype dtype)
{
	return dtype_bytes(dtype_acc(dtype));
}

/* 9.2: "With N workers and h = ceil(log2 N)": how many more bits a sum of N elements has. */
static inline int dtype_headroom(uint32_t count)
{
	int bits = 0;

	while (bits < 31 && 1u << bits < count)
		bits++;
	return bits;
}

static inline bool dtype_is_float(enum dtype dtype)
{
	return dtype >= DTYPE_F32 && dtype <= DTYPE_F64;
}

/* "f32", "f16", "bf16", "f64", "i32", "i64"; "?" for any other value. */
const char *dtype_name(enum dtype dtype);

/* "sum", "avg", "min", "max", "prod"; "?" for any other value. */
const char *reduction_name(enum reduction reduction);

#ifdef __cplusplus
}
#endif

#endif /* BITMAP_DTYPE_H */
