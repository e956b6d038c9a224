/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job_keys.h - the keys of jobs: texts of a file or the environment, made into 32 bytes each
 *
 * TLS proves that the other side has the same key (tls.h). How keys are written: key_text.h.
 */
#ifndef BITMAP_CONTROL_JOB_KEYS_H
#define BITMAP_CONTROL_JOB_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bitmap/control/secrets.h"
#include "bitmap/why.h"

#define JOB_KEY_TEXT_MIN 8 /* characters; shorter keys are refused */

struct job_key {
	uint8_t bytes[SECRET_BYTES];
};

/* A number that stands for a key, of which it tells nothing. */
uint64_t job_key_owner(const struct job_key *key);

/*
 * job_key_from_text - of a text as `winnow key` makes them, 64 hex digits, its bytes. Of any other one slowly
 * (scrypt, 50 ms and 16 MiB), so that guessing takes long. -EINVAL when it is shorter than
 * JOB_KEY_TEXT_MIN, -ENOMEM.
 */
int job_key_from_text(const char *text, struct job_key *out);

/* job_key_draw - a new key as a text, 32 random bytes in hex, as `winnow key` prints it. */
#define JOB_KEY_TEXT_BYTES (2 * SECRET_BYTES + 1)
void job_key_draw(char text[JOB_KEY_TEXT_BYTES]);

/*
 * A set of keys by job name. Lines of a key file are "JOB KEY"; "* KEY", or a line with
 * only a key, is for all jobs not named.
 */
struct job_keys {
	uint32_t count;
	uint32_t distinct;          /* several jobs may have the same */
	bool exposed;               /* by the file's mode every user of the machine may read it */
	bool aside;                 /* what has to be stretched is so by job_keys_next() alone */
	struct job_key_named *keys; /* [count], job_keys.c's own */
};

/*
 * job_keys_load - from `path`, or when that is NULL one key for all jobs from `text`. Returns 0
 * and *out (the caller frees it), or -errno with one line in `why`: what plain_file_read() and
 * key_text_one() say, -EINVAL for a bad line, -ENOMEM.
 */
int job_keys_load(const char *path, const char *text, struct job_keys **out, struct why *why);
void job_keys_free(struct job_keys *keys);

/*
 * The key for a job, whichever its membership, made now if this is its first use. NULL when there is
 * none, or no memory to make it.
 */
const struct job_key *job_keys_find(struct job_keys *keys, const char *job);

/*
 * Who must not wait sets keys->aside, and has another thread stretch what has to be. From then on
 *
 * job_keys_ready - false: the key for this job is not made yet. It is then among the next. NULL: ready.
 * job_keys_next - which key to make, those first that were asked for; false: all are made.
 * job_keys_stretch - makes it. In any thread, of `keys` that nobody frees meanwhile; -ENOMEM.
 * job_keys_made - it is that one, and the key of all other jobs with the same text.
 */
bool job_keys_ready(struct job_keys *keys, const char *job);
bool job_keys_next(const struct job_keys *keys, uint32_t *index);
int job_keys_stretch(const struct job_keys *keys, uint32_t index, struct job_key *out);
void job_keys_made(struct job_keys *keys, uint32_t index, const struct job_key *made);

#endif /* BITMAP_CONTROL_JOB_KEYS_H */
