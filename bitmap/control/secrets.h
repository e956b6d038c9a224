/* SPDX-License-Identifier: BSD-3-Clause */
/* secrets.h - random bytes, and hashes of secrets that leave no trace of them in memory */
#ifndef BITMAP_CONTROL_SECRETS_H
#define BITMAP_CONTROL_SECRETS_H

#include <stddef.h>
#include <stdint.h>

#include "ebpf/seal_words.h"

#define SECRET_BYTES 32 /* length of a key or seed */

void random_bytes(void *out, size_t bytes);
void random_bytes_for(void *unused, void *out, size_t bytes); /* for struct jobs_ports */

/*
 * secrets_begin - must come before any call of OpenSSL. It keeps OpenSSL from reading configuration
 * files and from cleaning up at exit, when a thread may still be using it.
 */
void secrets_begin(void);

/* secret_expand - writes `bytes` bytes of a secret's SHAKE256. Returns 0, or -ENOMEM. */
int secret_expand(const uint8_t secret[SECRET_BYTES], void *out, size_t bytes);

/* secrets_clear - wipes what earlier calls may have left on the stack and in registers. */
void secrets_clear(void);

/*
 * 5.2: "group key, stretch = the first 16, and the next 4,112 bytes of SHAKE256(seed)". `token`,
 * which all workers of a membership share, never leaves the machine. Returns 0, or -ENOMEM.
 */
struct seed_keys {
	struct seal_key group;
	struct seal_stretch stretch;
	uint64_t token;
};
int seed_expand(const uint8_t seed[SECRET_BYTES], struct seed_keys *out);

#endif /* BITMAP_CONTROL_SECRETS_H */
