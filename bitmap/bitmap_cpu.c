// SPDX-License-Identifier: BSD-3-Clause
/*
 * bitmap_cpu.c - which engines this CPU can run
 *
 * Compiled for the baseline CPU: a test for AVX-512 compiled with -mavx512f could
 * itself use the instructions it tests for.
 */

#include <cpuid.h>
#include <stdatomic.h>

#include "bitmap/bitmap_impl.h"

bool bitmap_cpu_scalar(void)
{
	return true;
}

/*
 * clang 14 has no name for F16C in __builtin_cpu_supports(). The CPU is asked once: in a virtual
 * machine each question takes tens of microseconds.
 */
static bool cpu_f16c(void)
{
	static atomic_int answer; /* 0: not asked */
	unsigned int eax, ebx, ecx, edx;
	int known = atomic_load_explicit(&answer, memory_order_relaxed);

	if (known == 0) {
		known = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0 ? 1
		                                                                             : -1;
		atomic_store_explicit(&answer, known, memory_order_relaxed);
	}
	return known > 0;
}

/* libgcc also reads XCR0, so these are false where the kernel does not save the registers. */
bool bitmap_cpu_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
	       __builtin_cpu_supports("bmi2") && cpu_f16c();
}

bool bitmap_cpu_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
	       bitmap_cpu_avx2();
}
