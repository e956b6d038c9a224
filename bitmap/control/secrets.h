/* SPDX-License-Identifier: BSD-3-Clause */
/* secrets.h - randomness, and hashes of secrets, which leave nothing of them behind in memory */
#ifndef BITMAP_CONTROL_SECRETS_H
#define BITMAP_CONTROL_SECRETS_H

#include <stddef.h>
#include <stdint.h>

#include "ebpf/seal_words.h"

#define SECRET_BYTES 32 /* of a key or a seed */

void random_bytes(void *out, size_t bytes);
void random_bytes_for(void *unused, void *out, size_t bytes); /* for struct jobs_ports */

/*
 * secrets_begin - before any call of OpenSSL: no file or environment says what it does, and the end of a program
 * does not take it away from a thread that is in it.
 */
void secrets_begin(void);

/* secret_expand - SHAKE256 of a secret, as many bytes as wanted. Returns 0, or -ENOMEM. */
int secret_expand(const uint8_t secret[SECRET_BYTES], void *out, size_t bytes);

/* secrets_clear - wipes what functions that have returned may have left on the stack and in registers. */
void secrets_clear(void);

/*
 * 5.2: "group key, stretch = the first 16, and the next 4,112 bytes of SHAKE256(seed)". `token` never leaves the machine:
 * all workers of the membership have the same one. Returns 0, or -ENOMEM.
 */
struct seed_keys {
	struct seal_key group;
	struct seal_stretch stretch;
	uint64_t token;
};
int seed_expand(const uint8_t seed[SECRET_BYTES], struct seed_keys *out);

#endif /* BITMAP_CONTROL_SECRETS_H */
