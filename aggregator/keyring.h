/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * keyring.h - the jobs' keys while winnowd runs: the key file is read again, and texts are stretched, on a
 * thread of the loop's pool, one thing at a time; so nobody waits for it but who needs a key that is not made
 *
 * On the control thread's loop.
 */
#ifndef AGGREGATOR_KEYRING_H
#define AGGREGATOR_KEYRING_H

#include <uv.h>

#include "bitmap/control/job_keys.h"

/* The key file has been read again: keyring->keys are others, or, not fresh, those of before. */
typedef void keyring_read_fn(void *context, bool fresh);

/* Part of its owner. */
struct keyring {
	uv_loop_t *loop;
	keyring_read_fn *read;
	void *context;
	struct job_keys *keys; /* NULL: anyone may join */
	uv_work_t work;
	bool busy, closing;
	bool wanted; /* The file is to be read. */
	bool made;   /* All keys are. */

	/* The work's orders and its results. */
	const char *path; /* NULL: there is no key file */
	struct job_keys *fresh;
	int err;
	struct why why;

	uint32_t stretched; /* Keys of `keys` that have been stretched. */
	uint64_t since_us;  /* When the work on the present keys began. */
};

/* keyring_open - takes `keys`, which keyring_close() frees, or the next ones do. */
void keyring_open(struct keyring *keyring, uv_loop_t *loop, const char *path, struct job_keys *keys,
                  keyring_read_fn *read, void *context);

/* keyring_start - begin to make them. Its thread has the rights that the caller has now. */
void keyring_start(struct keyring *keyring);

/* keyring_read - read the key file again; read() is called when that is done. */
void keyring_read(struct keyring *keyring);

/* keyring_stop - no more work begins. The loop ends what is being done. */
void keyring_stop(struct keyring *keyring);
void keyring_close(struct keyring *keyring); /* when the loop is done */

/* keyring_warn - in the log, if everybody may read the file, or there are no keys. */
void keyring_warn(const struct keyring *keyring);

#endif /* AGGREGATOR_KEYRING_H */
