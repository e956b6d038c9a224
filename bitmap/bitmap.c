// SPDX-License-Identifier: BSD-3-Clause
/*
 * bitmap.c - lists the engines and chooses one that this CPU can run
 *
 * It is compiled for the baseline CPU, because a test for AVX-512 that is compiled with -mavx512f
 * could itself use the instructions that it tests for.
 */

#include "bitmap/bitmap.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "bitmap/bitmap_impl.h"

const struct bitmap_engine *const bitmap_engines[] = {
	&bitmap_scalar,
#ifdef __x86_64__
	&bitmap_avx2,
	&bitmap_avx512,
#elif defined __aarch64__
	&bitmap_neon,
#endif
	NULL,
};

const struct bitmap_engine *bitmap_best(void)
{
	const char *wanted = secure_getenv("WINNOW_ISA");
	const struct bitmap_engine *best = wanted != NULL ? bitmap_named(wanted) : NULL;

	if (best != NULL)
		return best;
	for (size_t i = 0; bitmap_engines[i] != NULL; i++)
		if (bitmap_engines[i]->usable())
			best = bitmap_engines[i];
	return best;
}

int bitmap_isa_check(struct why *why)
{
	const char *wanted = secure_getenv("WINNOW_ISA");
	char usable[64] = "";

	if (wanted == NULL || wanted[0] == '\0' || bitmap_named(wanted) != NULL)
		return 0;
	for (size_t i = 0; bitmap_engines[i] != NULL; i++)
		if (bitmap_engines[i]->usable())
			text_add(usable, sizeof(usable), " %s", bitmap_engines[i]->name);
	return why_set(why, -EINVAL, "WINNOW_ISA is '%.32s', but this CPU can run only:%s", wanted,
	               usable);
}

const struct bitmap_engine *bitmap_named(const char *name)
{
	for (size_t i = 0; bitmap_engines[i] != NULL; i++)
		if (strcmp(bitmap_engines[i]->name, name) == 0)
			return bitmap_engines[i]->usable() ? bitmap_engines[i] : NULL;
	return NULL;
}

bool bitmap_cpu_scalar(void)
{
	return true;
}

#ifdef __x86_64__

/*
 * clang 14 does not know F16C in __builtin_cpu_supports(). The answer is kept, because each CPUID
 * takes tens of microseconds in a virtual machine.
 */
static bool cpu_f16c(void)
{
	static atomic_int answer; /* 0 until the CPU has been asked, then 1 for yes or -1 for no */
	unsigned int eax, ebx, ecx, edx;
	int known = atomic_load_explicit(&answer, memory_order_relaxed);

	if (known == 0) {
		known = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0 ? 1
		                                                                             : -1;
		atomic_store_explicit(&answer, known, memory_order_relaxed);
	}
	return known > 0;
}

/* libgcc also reads XCR0, so the answer is false where the kernel does not save the registers. */
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

#elif defined __aarch64__

bool bitmap_cpu_neon(void)
{
	return true; /* NEON is part of the architecture */
}

#endif
