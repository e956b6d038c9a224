/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job_keys.h - the keys of jobs: texts of a file or the environment, made into 32 bytes each
 *
 * TLS proves that the other side has the same key (tls.h).
 *
 * How keys are written, in lines of files and alone: blanks (spaces and tabs) part words. Not part of any are a byte
 * order mark before all, blanks and line ends around, and a comment: a '#' at the beginning or behind a blank, and all
 * that follows. Any other '#' belongs to its word. Control characters belong to none.
 */
#ifndef BITMAP_CONTROL_JOB_KEYS_H
#define BITMAP_CONTROL_JOB_KEYS_H

#include <stdatomic.h>
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
	_Atomic bool stop;          /* job_keys_stretch() is to return soon */
	struct job_key_named *keys; /* [count], job_keys.c's own */
};

/*
 * job_keys_load - from `path`, or when that is NULL one key for all jobs from `text`. Returns 0
 * and *out (the caller frees it), or -errno with one line in `why`: what plain_file_read() says, -EINVAL for a bad line
 * or text, -ENOMEM. Texts that are not of `winnow key` are no keys yet.
 */
int job_keys_load(const char *path, const char *text, struct job_keys **out, struct why *why);
void job_keys_free(struct job_keys *keys);

/*
 * job_keys_stretch - makes keys of texts: of that for this job, or of all (NULL). Returns how many, or -ENOMEM;
 * takes 50 ms for each. In any thread; others may look for keys meanwhile.
 */
int job_keys_stretch(struct job_keys *keys, const char *job);

/*
 * job_keys_find - the key for a job, whichever its membership. Returns 0, -ENOENT when there is none, or
 * -EAGAIN when it is not made yet.
 */
int job_keys_find(const struct job_keys *keys, const char *job, struct job_key *out);

#endif /* BITMAP_CONTROL_JOB_KEYS_H */
