// SPDX-License-Identifier: BSD-3-Clause
/* fake_reduce.c - see fake_reduce.h */

#include "tests/gpu/fake_reduce.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static double from_bf16(uint16_t bits)
{
	uint32_t wide = (uint32_t)bits << 16;
	float value;

	memcpy(&value, &wide, sizeof(value));
	return (double)value;
}

static double from_f16(uint16_t bits)
{
	int exponent = bits >> 10 & 31;
	double fraction = bits & 1023;
	double value = exponent == 0    ? ldexp(fraction, -24)
	               : exponent == 31 ? (fraction > 0 ? (double)NAN : (double)INFINITY)
	                                : ldexp(1024 + fraction, exponent - 25);

	return bits >> 15 ? -value : value;
}

/* To nearest, ties to even. */
static uint16_t to_f16(float value)
{
	uint16_t sign = signbit(value) ? 0x8000 : 0;
	double size = fabs((double)value), step;
	int exponent;

	if (value != value)
		return 0x7e00;
	if (size >= 65520)
		return (uint16_t)(sign | 0x7c00);
	frexp(size, &exponent);
	step = ldexp(1, exponent < -13 ? -24 : exponent - 11);
	size = nearbyint(size / step) * step;
	if (size < ldexp(1, -14))
		return (uint16_t)(sign | (int)ldexp(size, 24));
	frexp(size, &exponent);
	return (uint16_t)(sign | ((exponent + 14) << 10) |
	                  ((int)ldexp(size, 11 - exponent) - 1024));
}

/* To nearest, ties to even; NaN stays one. */
static uint16_t to_bf16(float value)
{
	uint32_t wide;

	memcpy(&wide, &value, sizeof(wide));
	if (value != value)
		return (uint16_t)(wide >> 16 | 0x40);
	return (uint16_t)((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
}

#define FOLD(name, type)                                                                           \
	static type name(ncclRedOp_t op, type a, type b)                                           \
	{                                                                                          \
		switch (op) {                                                                      \
		case ncclProd:                                                                     \
			return a * b;                                                              \
		case ncclMax:                                                                      \
			return a > b ? a : b;                                                      \
		case ncclMin:                                                                      \
			return a < b ? a : b;                                                      \
		default:                                                                           \
			return a + b;                                                              \
		}                                                                                  \
	}
FOLD(fold_double, double)
FOLD(fold_float, float)

/* Wraps, as unsigned numbers do. */
static uint64_t fold_integer(ncclRedOp_t op, uint64_t a, uint64_t b)
{
	int64_t x = (int64_t)a, y = (int64_t)b;

	switch (op) {
	case ncclProd:
		return a * b;
	case ncclMax:
		return x > y ? a : b;
	case ncclMin:
		return x < y ? a : b;
	default:
		return a + b;
	}
}

static double load(ncclDataType_t type, const void *part, size_t i)
{
	switch (type) {
	case ncclFloat16:
		return from_f16(((const uint16_t *)part)[i]);
	case ncclBfloat16:
		return from_bf16(((const uint16_t *)part)[i]);
	case ncclFloat32:
		return (double)((const float *)part)[i];
	default:
		return ((const double *)part)[i];
	}
}

static void store(ncclDataType_t type, void *out, size_t i, double value)
{
	switch (type) {
	case ncclFloat16:
		((uint16_t *)out)[i] = to_f16((float)value);
		break;
	case ncclBfloat16:
		((uint16_t *)out)[i] = to_bf16((float)value);
		break;
	case ncclFloat32:
		((float *)out)[i] = (float)value;
		break;
	default:
		((double *)out)[i] = value;
	}
}

static uint64_t integer(ncclDataType_t type, const void *part, size_t i)
{
	return type == ncclInt32 ? (uint64_t)((const int32_t *)part)[i]
	                         : (uint64_t)((const int64_t *)part)[i];
}

void fake_reduce(ncclDataType_t type, ncclRedOp_t op, const void *const parts[], unsigned count,
                 size_t elems, void *out)
{
	for (size_t i = 0; i < elems; i++) {
		if (type == ncclInt32 || type == ncclInt64) {
			uint64_t sum = integer(type, parts[0], i);

			for (unsigned part = 1; part < count; part++)
				sum = fold_integer(op, sum, integer(type, parts[part], i));
			if (type == ncclInt32)
				((int32_t *)out)[i] = (int32_t)(uint32_t)sum;
			else
				((int64_t *)out)[i] = (int64_t)sum;
			continue;
		}
		double sum = load(type, parts[0], i);
		for (unsigned part = 1; part < count; part++) {
			double next = load(type, parts[part], i);

			sum = type == ncclFloat64 ? fold_double(op, sum, next)
			                          : (double)fold_float(op, (float)sum, (float)next);
		}
		store(type, out, i, op == ncclAvg ? sum / count : sum);
	}
}
