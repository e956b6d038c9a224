// SPDX-License-Identifier: BSD-3-Clause
/* secrets.c - see secrets.h */

#include "bitmap/control/secrets.h"

#include <assert.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/random.h>

#define STACK_BYTES 16384 /* more than OpenSSL's and the dynamic linker's functions use */

/* getrandom() blocks only while the machine starts. */
void random_bytes(void *out, size_t bytes)
{
	for (size_t at = 0; at < bytes;) {
		ssize_t count = getrandom((uint8_t *)out + at, bytes - at, 0);

		assert(count > 0 || errno == EINTR);
		at += count > 0 ? (size_t)count : 0;
	}
}

void random_bytes_for(void *unused, void *out, size_t bytes)
{
	(void)unused;
	random_bytes(out, bytes);
}

/* String functions leave secrets in vector registers, and the dynamic linker saves those. */
static void registers_clear(void)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx"))
		__asm__ volatile("vzeroall" ::
		                         : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",
		                           "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
		                           "xmm13", "xmm14", "xmm15");
		/* The code of this file uses none of the other registers. */
#define CLEAR(n) "vpxord %%zmm" #n ", %%zmm" #n ", %%zmm" #n "\n"
	if (__builtin_cpu_supports("avx512f"))
		__asm__ volatile(CLEAR(16) CLEAR(17) CLEAR(18) CLEAR(19) CLEAR(20) CLEAR(21)
		                         CLEAR(22) CLEAR(23) CLEAR(24) CLEAR(25) CLEAR(26) CLEAR(27)
		                                 CLEAR(28) CLEAR(29) CLEAR(30) CLEAR(31)::);
#elif defined __aarch64__
#define CLEAR(n) "movi v" #n ".2d, #0\n"
	__asm__ volatile(CLEAR(0) CLEAR(1) CLEAR(2) CLEAR(3) CLEAR(4) CLEAR(5) CLEAR(6) CLEAR(7)
	                         CLEAR(16) CLEAR(17) CLEAR(18) CLEAR(19) CLEAR(20) CLEAR(21)
	                                 CLEAR(22) CLEAR(23) CLEAR(24) CLEAR(25) CLEAR(26) CLEAR(27)
	                                         CLEAR(28) CLEAR(29) CLEAR(30) CLEAR(31)
	                 :
	                 :
	                 : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18",
	                   "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28",
	                   "v29", "v30", "v31");
#endif
}

static __attribute__((noinline)) void stack_clear(void)
{
	uint8_t bytes[STACK_BYTES];

	explicit_bzero(bytes, sizeof(bytes));
}

void secrets_clear(void)
{
	registers_clear();
	stack_clear();
}

void secrets_begin(void)
{
	OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, NULL);
}

int secret_expand(const uint8_t secret[SECRET_BYTES], void *out, size_t bytes)
{
	EVP_MD_CTX *hash;
	bool made;

	secrets_begin();
	hash = EVP_MD_CTX_new();
	made = hash != NULL && EVP_DigestInit_ex(hash, EVP_shake256(), NULL) == 1 &&
	       EVP_DigestUpdate(hash, secret, SECRET_BYTES) == 1 &&
	       EVP_DigestFinalXOF(hash, out, bytes) == 1;

	EVP_MD_CTX_free(hash);
	secrets_clear();
	return made ? 0 : -ENOMEM;
}

_Static_assert(sizeof(struct seed_keys) == 16 + SEAL_STRETCH_BYTES + 8, "it is a string of bytes");

int seed_expand(const uint8_t seed[SECRET_BYTES], struct seed_keys *out)
{
	return secret_expand(seed, out, sizeof(*out));
}
