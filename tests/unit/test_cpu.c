// SPDX-License-Identifier: BSD-3-Clause
/* test_cpu.c - the CPU is asked once what it can do: in a virtual machine each question is slow */

#ifdef __x86_64__

#include <cpuid.h>

static unsigned int questions;

static int counted_cpuid(unsigned int leaf, unsigned int *eax, unsigned int *ebx, unsigned int *ecx,
                         unsigned int *edx)
{
	questions++;
	return __get_cpuid(leaf, eax, ebx, ecx, edx);
}

#define __get_cpuid counted_cpuid
#include "bitmap/bitmap.c"
#include "tests/unit/unit.h"

TEST(asked_once)
{
	const struct bitmap_engine *best = bitmap_best();
	unsigned int asked = questions;

	assert_true(asked <= 1); /* none on a CPU without AVX2 */
	for (int i = 0; i < 10; i++)
		assert_ptr_equal(bitmap_best(), best);
	assert_int_equal(questions, asked);
}

#else

#include "bitmap/bitmap.h"
#include "tests/unit/unit.h"

TEST(engines)
{
	assert_string_equal(bitmap_best()->name, "neon");
	assert_ptr_equal(bitmap_named("avx2"), NULL);
}

#endif
