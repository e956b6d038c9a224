// SPDX-License-Identifier: BSD-3-Clause
/* keyed_hash.c - see keyed_hash.h */

#include "bitmap/control/keyed_hash.h"

#include <sodium.h>

#define STACK_BYTES 16384 /* more than functions of libsodium and of the dynamic linker take */

/* Functions for texts and memory leave what they have read in vector registers, and the linker saves those on the stack. */
static void registers_clear(void)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx"))
		__asm__ volatile("vzeroall" ::
		                         : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",
		                           "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
		                           "xmm13", "xmm14", "xmm15");
		/* This file's own code has none of the others. */
#define CLEAR(n) "vpxord %%zmm" #n ", %%zmm" #n ", %%zmm" #n "\n"
	if (__builtin_cpu_supports("avx512f"))
		__asm__ volatile(CLEAR(16) CLEAR(17) CLEAR(18) CLEAR(19) CLEAR(20) CLEAR(21)
		                         CLEAR(22) CLEAR(23) CLEAR(24) CLEAR(25) CLEAR(26) CLEAR(27)
		                                 CLEAR(28) CLEAR(29) CLEAR(30) CLEAR(31)::);
#endif
}

void secrets_clear(void)
{
	registers_clear();
	sodium_stackzero(STACK_BYTES);
}

void keyed_hash(const uint8_t *key, const struct hash_part parts[], size_t count, void *out,
                size_t out_bytes)
{
	crypto_generichash_state state;

	crypto_generichash_init(&state, key, key != NULL ? KEYED_HASH_KEY_BYTES : 0, out_bytes);
	for (size_t i = 0; i < count; i++)
		crypto_generichash_update(&state, parts[i].data, parts[i].bytes);
	crypto_generichash_final(&state, out, out_bytes);
	sodium_memzero(&state, sizeof(state));
	secrets_clear();
}
