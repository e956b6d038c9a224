/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * keyring.h - the jobs' keys while winnowd runs
 *
 * A thread of the loop's pool reads the key file again and stretches texts, one at a time, so that
 * only connections wait whose key is not made yet. All functions run on the control thread's loop.
 */
#ifndef AGGREGATOR_KEYRING_H
#define AGGREGATOR_KEYRING_H

#include <uv.h>

#include "bitmap/control/job_keys.h"

/* The key file has been read again: keyring->keys are new or, if not `fresh`, the old ones. */
typedef void keyring_read_fn(void *context, bool fresh);

/* Part of its owner. */
struct keyring {
	uv_loop_t *loop;
	keyring_read_fn *read;
	void *context;
	struct job_keys *keys; /* NULL if anyone may join */
	uv_work_t work;
	bool busy, closing;
	bool wanted; /* The file has to be read. */
	bool made;   /* All keys are made. */

	/* The work's orders and its results. */
	const char *path; /* NULL if there is no key file */
	struct job_keys *fresh;
	int err;
	struct why why;

	uint32_t stretched; /* Keys in `keys` that have been stretched. */
	uint64_t since_us;  /* When work on the present keys began. */
};

/* keyring_open - takes `keys`, which are freed when new ones replace them or by keyring_close(). */
void keyring_open(struct keyring *keyring, uv_loop_t *loop, const char *path, struct job_keys *keys,
                  keyring_read_fn *read, void *context);

/* keyring_start - begins to make keys. Its thread has the rights that the caller has now. */
void keyring_start(struct keyring *keyring);

/* keyring_read - reads the key file again, and then calls read(). */
void keyring_read(struct keyring *keyring);

/* keyring_stop - begins no more work. The loop finishes the present work. */
void keyring_stop(struct keyring *keyring);
void keyring_close(struct keyring *keyring); /* when the loop has ended */

/* keyring_warn - logs if every user may read the key file, or if there are no keys. */
void keyring_warn(const struct keyring *keyring);

#endif /* AGGREGATOR_KEYRING_H */
