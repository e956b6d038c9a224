// SPDX-License-Identifier: BSD-3-Clause
/*
 * bitmap.c - the list of engines and the choice among them
 *
 * Compiled for the baseline CPU: a test for AVX-512 compiled with -mavx512f could
 * itself use the instructions it tests for.
 */

#include "bitmap/bitmap.h"

#include <cpuid.h>
#include <stdlib.h>
#include <string.h>

#include "bitmap/bitmap_impl.h"

const struct bitmap_engine *const bitmap_engines[] = {
	&bitmap_scalar,
	&bitmap_avx2,
	&bitmap_avx512,
	NULL,
};

bool bitmap_cpu_any(void)
{
	return true;
}

/* clang 14 has no name for F16C in __builtin_cpu_supports(). */
static bool cpu_f16c(void)
{
	unsigned int eax, ebx, ecx, edx;

	return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

/* libgcc also reads XCR0, so these are false where the kernel does not save the registers. */
bool bitmap_cpu_avx2(void)
{
	return __builtin_cpu_supports("avx2") && cpu_f16c();
}

bool bitmap_cpu_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
	       cpu_f16c();
}

const struct bitmap_engine *bitmap_best(void)
{
	const char *wanted = getenv("WINNOW_ISA");
	const struct bitmap_engine *best = wanted != NULL ? bitmap_named(wanted) : NULL;

	if (best != NULL)
		return best;
	for (size_t i = 0; bitmap_engines[i] != NULL; i++)
		if (bitmap_engines[i]->usable())
			best = bitmap_engines[i];
	return best;
}

const struct bitmap_engine *bitmap_named(const char *name)
{
	for (size_t i = 0; bitmap_engines[i] != NULL; i++)
		if (strcmp(bitmap_engines[i]->name, name) == 0)
			return bitmap_engines[i]->usable() ? bitmap_engines[i] : NULL;
	return NULL;
}

/* Position of the highest bit that is 1; value is not 0. */
static int32_t top_bit(uint64_t value)
{
	return 63 - __builtin_clzll(value);
}

struct bitmap_range bitmap_range_of(uint64_t magnitude, enum dtype dtype)
{
	/* How the mantissa's width and the exponent's bias differ is all that formats differ in. */
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
			.exponent = top_bit(magnitude) + 1 + 1 - bias - mantissa_bits,
		};
	return (struct bitmap_range){.exponent = biased - bias + 1};
}
