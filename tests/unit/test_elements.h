/* SPDX-License-Identifier: BSD-3-Clause */
/* test_elements.h - random elements of tensors, of all types; C and C++ */
#ifndef TESTS_UNIT_TEST_ELEMENTS_H
#define TESTS_UNIT_TEST_ELEMENTS_H

#include <stdint.h>
#include <string.h>

#include "bitmap/dtype.h"
#include "tests/unit/test_random.h"

/* Bits of the format: 1 sign, then exponent, then mantissa. */
static inline unsigned mantissa_bits(enum dtype dtype)
{
	return dtype == DTYPE_F64 ? 52 : dtype == DTYPE_F32 ? 23 : dtype == DTYPE_F16 ? 10 : 7;
}

/* An element that is not zero: rarely ordinary, mostly at some edge of the type. */
static inline uint64_t random_element(enum dtype dtype)
{
	const unsigned bits = dtype_bytes(dtype) * 8;
	const uint64_t top = UINT64_C(1) << (bits - 1);
	const uint64_t infinity =
		dtype_is_float(dtype) ? (top - 1) >> mantissa_bits(dtype) << mantissa_bits(dtype)
				      : top - 1;
	const uint64_t sign = random_below(2) ? top : 0;
	const uint64_t edges[] = {
		1,                                         /* smallest subnormal */
		(UINT64_C(1) << mantissa_bits(dtype)) - 1, /* largest subnormal */
		UINT64_C(1) << mantissa_bits(dtype),       /* smallest normal */
		infinity - 1,                              /* largest */
		infinity,
		infinity + 1, /* signalling NaN; INT_MIN */
		top - 1,      /* NaN with all bits; INT_MAX */
		UINT64_C(1) << random_below(bits - 1),
	};
	uint64_t element = random_bits() & (top - 1);

	if (random_below(4) != 0)
		element = edges[random_below(sizeof(edges) / sizeof(edges[0]))];
	return element == 0 ? 1 : (element | sign) & (top | (top - 1));
}

/* Either zero, in a float. */
static inline uint64_t random_zero(enum dtype dtype)
{
	if (!dtype_is_float(dtype) || random_below(2) == 0)
		return 0;
	return UINT64_C(1) << (dtype_bytes(dtype) * 8 - 1);
}

static inline void store_element(void *at, enum dtype dtype, uint64_t element)
{
	memcpy(at, &element, dtype_bytes(dtype)); /* little-endian */
}

#endif /* TESTS_UNIT_TEST_ELEMENTS_H */
