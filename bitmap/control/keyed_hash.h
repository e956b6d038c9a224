/* SPDX-License-Identifier: BSD-3-Clause */
/* keyed_hash.h - BLAKE2b of secrets, which leaves nothing of them behind in memory */
#ifndef BITMAP_CONTROL_KEYED_HASH_H
#define BITMAP_CONTROL_KEYED_HASH_H

#include <stddef.h>
#include <stdint.h>

#define KEYED_HASH_KEY_BYTES 32

struct hash_part {
	const void *data;
	size_t bytes;
};

/* keyed_hash - of all parts, one behind the other. `key` [KEYED_HASH_KEY_BYTES]; NULL: there is none. */
void keyed_hash(const uint8_t *key, const struct hash_part parts[], size_t count, void *out,
                size_t out_bytes);

/* secrets_clear - wipes what functions that have returned may have left on the stack and in registers. */
void secrets_clear(void);

#endif /* BITMAP_CONTROL_KEYED_HASH_H */
