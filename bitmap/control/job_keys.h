/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job_keys.h - the keys of jobs: texts from a file or the environment, made into 32 bytes each
 *
 * TLS proves that the other side has the same key (tls.h).
 *
 * Keys are words between blanks (spaces, tabs), in the lines of a file or alone. A byte order mark
 * at the beginning, line ends around a key and comments belong to no word. A comment begins with a
 * '#' at the beginning or after a blank; any other '#' belongs to its word. Control characters are
 * refused.
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

/* job_key_owner - returns a number that stands for a key and reveals nothing of it. */
uint64_t job_key_owner(const struct job_key *key);

/*
 * job_key_from_text - makes the key of a text. 64 hex digits, as `winnow key` prints them, are the
 * key's bytes. Any other text takes scrypt, with 50 ms and 16 MiB, so that guessing is slow.
 * Returns 0, -EINVAL when the text is shorter than JOB_KEY_TEXT_MIN, or -ENOMEM.
 */
int job_key_from_text(const char *text, struct job_key *out);

/* job_key_draw - writes a new key as a text, 32 random bytes in hex, as `winnow key` prints it. */
#define JOB_KEY_TEXT_BYTES (2 * SECRET_BYTES + 1)
void job_key_draw(char text[JOB_KEY_TEXT_BYTES]);

/*
 * A set of keys by job name. Lines of a key file are "JOB KEY"; "* KEY", or a line with only a key,
 * is for all jobs that have no line.
 */
struct job_keys {
	uint32_t count;
	uint32_t distinct;          /* different keys among them; several jobs may share one */
	bool exposed;               /* the file's mode lets every user of the machine read it */
	_Atomic bool stop;          /* tells job_keys_stretch() to return soon */
	struct job_key_named *keys; /* [count], defined in job_keys.c */
};

/*
 * job_keys_load - reads the keys in the file `path` or, if that is NULL, one key for all jobs from
 * `text`. Returns 0 and *out, which the caller frees, or -errno with one line in `why`: -EINVAL for
 * a bad line or text, -ENOMEM, or plain_file_read()'s. Only job_keys_stretch() makes keys of texts
 * that are not from `winnow key`.
 */
int job_keys_load(const char *path, const char *text, struct job_keys **out, struct why *why);
void job_keys_free(struct job_keys *keys);

/*
 * job_keys_stretch - makes keys of the texts, for `job` or for all (NULL). Each takes 50 ms.
 * Returns the number of keys made, or -ENOMEM. Any thread, while others look for keys.
 */
int job_keys_stretch(struct job_keys *keys, const char *job);

/*
 * job_keys_find - finds the key of a job, whatever its membership. Returns 0, -ENOENT when there is
 * none, or -EAGAIN while it is not made yet.
 */
int job_keys_find(const struct job_keys *keys, const char *job, struct job_key *out);

#endif /* BITMAP_CONTROL_JOB_KEYS_H */
