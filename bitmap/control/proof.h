/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * proof.h - job keys, and showing that one knows the key without sending it
 *
 * Both sides hash the other's nonce and what is being agreed with the key (keyed BLAKE2b,
 * libsodium): PROTOCOL.md section 5.2. Keys come from a file or the environment; they are
 * texts of any length, made into 32 bytes. Nothing here is secret from someone who reads
 * packets on the path: it keeps strangers and strays out, it does not encrypt.
 */
#ifndef BITMAP_CONTROL_PROOF_H
#define BITMAP_CONTROL_PROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bitmap/why.h"

struct control_message;

#define PROOF_BYTES 32
#define PROOF_KEY_TEXT_MIN 8 /* characters; shorter keys are refused */

struct proof_key {
	uint8_t bytes[PROOF_BYTES];
};

/* What both sides put under the key. */
struct proof_statement {
	const uint8_t *server_nonce; /* [PROOF_BYTES] */
	const uint8_t *client_nonce; /* [PROOF_BYTES] */
	const char *job;
	uint32_t rank, world;
};

enum proof_side { PROOF_JOIN, PROOF_WELCOME };

int proof_init(void); /* once, before all others; -EIO when libsodium cannot start */

void proof_random(void *out, size_t bytes);
void proof_random_for(void *unused, void *out, size_t bytes); /* for struct jobs_ports */

void proof_make(const struct proof_key *key, enum proof_side side,
                const struct proof_statement *statement, uint8_t out[PROOF_BYTES]);

/* A number that stands for a key, of which it tells nothing. */
uint64_t proof_key_owner(const struct proof_key *key);

/* In constant time. */
bool proof_equal(const uint8_t a[PROOF_BYTES], const uint8_t b[PROOF_BYTES]);

/*
 * proof_key_from_text - slowly (scrypt, 50 ms and 16 MiB), so that guessing takes long, unless the
 * text is one that `winnow key` may have made. -EINVAL when it is shorter than PROOF_KEY_TEXT_MIN,
 * -ENOMEM.
 */
int proof_key_from_text(const char *text, struct proof_key *out);

/* proof_key_draw - a new key as a text, 32 random bytes in hex, as `winnow key` prints it. */
#define PROOF_KEY_TEXT_BYTES (2 * PROOF_BYTES + 1)
void proof_key_draw(char text[PROOF_KEY_TEXT_BYTES]);

/*
 * A set of keys by job name. Lines of a key file are "JOB KEY"; "* KEY", or a line with
 * only a key, is for all jobs not named. How they are written: key_text.h.
 */
struct proof_keys {
	uint32_t count;
	uint32_t distinct;        /* several jobs may have the same */
	bool exposed;             /* by the file's mode every user of the machine may read it */
	bool aside;               /* what has to be stretched is so by proof_keys_next() alone */
	struct proof_named *keys; /* [count], proof.c's own */
};

/*
 * proof_keys_load - from `path`, or when that is NULL one key for all jobs from `text`. Returns 0
 * and *out (the caller frees it), or -errno with one line in `why`: what plain_file_read() and
 * key_text_one() say, -EINVAL for a bad line, -ENOMEM.
 */
int proof_keys_load(const char *path, const char *text, struct proof_keys **out, struct why *why);
void proof_keys_free(struct proof_keys *keys);

/*
 * The key for a job, whichever its membership, made now if this is its first use. NULL when there is
 * none, or no memory to make it.
 */
const struct proof_key *proof_keys_find(struct proof_keys *keys, const char *job);

/*
 * Who must not wait sets keys->aside, and has another thread stretch what has to be. From then on
 *
 * proof_keys_ready - false: the key for this job is not made yet. It is then among the next. NULL: ready.
 * proof_keys_next - which key to make, those first that were asked for; false: all are made.
 * proof_keys_stretch - makes it. In any thread, of `keys` that nobody frees meanwhile; -ENOMEM.
 * proof_keys_made - it is that one, and the key of all other jobs with the same text.
 */
bool proof_keys_ready(struct proof_keys *keys, const char *job);
bool proof_keys_next(const struct proof_keys *keys, uint32_t *index);
int proof_keys_stretch(const struct proof_keys *keys, uint32_t index, struct proof_key *out);
void proof_keys_made(struct proof_keys *keys, uint32_t index, const struct proof_key *made);

#endif /* BITMAP_CONTROL_PROOF_H */
