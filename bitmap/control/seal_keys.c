// SPDX-License-Identifier: BSD-3-Clause
/* seal_keys.c - see seal_keys.h */

#include "bitmap/control/seal_keys.h"

#include <string.h>

#include "bitmap/control/keyed_hash.h"

#define BLOCK_BYTES 64 /* of the stretch, made at a time */

void transcript_add(struct transcript *transcript, const char *line)
{
	const struct hash_part parts[] = {{transcript->hash, sizeof(transcript->hash)},
	                                  {line, strcspn(line, "\n")}};

	keyed_hash(NULL, parts, 2, transcript->hash, sizeof(transcript->hash));
}

/* Keyed BLAKE2b of a label and what follows it. */
static void key_derive(const uint8_t key[PROOF_BYTES], const char *label, const void *data,
                       size_t bytes, void *out, size_t out_bytes)
{
	const struct hash_part parts[] = {{label, strlen(label)}, {data, bytes}};

	keyed_hash(key, parts, 2, out, out_bytes);
}

void job_secret_make(const struct proof_key *key, const uint8_t salt[PROOF_BYTES], uint32_t epoch,
                     const char *job, uint32_t world, struct job_secret *out)
{
	uint8_t said[PROOF_BYTES + 8 + 256];
	size_t length = strnlen(job, 256);

	memcpy(said, salt, PROOF_BYTES);
	for (uint32_t i = 0; i < 4; i++) {
		said[PROOF_BYTES + i] = (uint8_t)(epoch >> 8 * i);
		said[PROOF_BYTES + 4 + i] = (uint8_t)(world >> 8 * i);
	}
	memcpy(said + PROOF_BYTES + 8, job, length);
	key_derive(key->bytes, "winnow job 2", said, PROOF_BYTES + 8 + length, out->bytes,
	           sizeof(out->bytes));
}

void seal_stretch_make(const struct job_secret *secret, struct seal_stretch *out)
{
	uint8_t block[BLOCK_BYTES], number = 0;

	for (size_t at = 0; at < sizeof(*out); at += BLOCK_BYTES, number++) {
		size_t left = sizeof(*out) - at;

		key_derive(secret->bytes, "winnow stretch 2", &number, 1, block, sizeof(block));
		memcpy((uint8_t *)out + at, block, left < BLOCK_BYTES ? left : BLOCK_BYTES);
	}
	explicit_bzero(block, sizeof(block));
}

void seal_group_key(const struct job_secret *secret, struct seal_key *out)
{
	key_derive(secret->bytes, "winnow group 2", NULL, 0, out, sizeof(*out));
}

void seal_worker_key(const struct job_secret *secret, const struct transcript *transcript,
                     struct seal_key *out)
{
	key_derive(secret->bytes, "winnow worker 2", transcript->hash, sizeof(transcript->hash),
	           out, sizeof(*out));
}

void line_key(const struct job_secret *secret, const struct transcript *transcript,
              const char *label, uint8_t out[PROOF_BYTES])
{
	key_derive(secret->bytes, label, transcript->hash, sizeof(transcript->hash), out,
	           PROOF_BYTES);
}
