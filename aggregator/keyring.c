// SPDX-License-Identifier: BSD-3-Clause
/* keyring.c - see keyring.h */

#include "aggregator/keyring.h"

#include <errno.h>
#include <string.h>

#include "aggregator/log.h"

#define MEMORY_MS 100 /* after which there may be memory again */

static void work_next(struct keyring *keyring);

void keyring_warn(const struct keyring *keyring)
{
	if (keyring->keys == NULL)
		log_event("warn", "no_keys", NULL,
		          "anyone who reaches the port may join any job, and anyone who sees "
		          "datagrams may forge sums: give --key-file");
	else if (keyring->keys->exposed)
		log_event("warn", "keys_exposed", LOG_FIELDS(LOG_WORD("key_file", keyring->path)),
		          "every user of this machine may read the key file: chmod o-r %s",
		          keyring->path);
}

static void keys_set(struct keyring *keyring, struct job_keys *keys)
{
	keyring->keys = keys;
	keyring->made = keys == NULL;
	keyring->stretched = 0;
	keyring->since_us = uv_hrtime() / 1000;
}

/* ---- on the pool's thread ---- */

static void keys_stretch(uv_work_t *work)
{
	struct keyring *keyring = work->data;

	int count = job_keys_stretch(keyring->keys, NULL);

	keyring->err = count < 0 ? count : 0;
	keyring->stretched += count > 0 ? (uint32_t)count : 0;
	if (count < 0)
		uv_sleep(MEMORY_MS);
}

static void file_read_again(uv_work_t *work)
{
	struct keyring *keyring = work->data;

	keyring->err = job_keys_load(keyring->path, NULL, &keyring->fresh, &keyring->why);
}

/* ---- on the loop ---- */

/* Called when all are made, or the file has to be read first, or memory is short now. */
static void keys_stretched(uv_work_t *work, int status)
{
	struct keyring *keyring = work->data;

	(void)status;
	keyring->busy = false;
	keyring->made = keyring->err == 0 && !atomic_load(&keyring->keys->stop);
	if (keyring->made && keyring->stretched > 0)
		log_event("info", "keys_ready",
		          LOG_FIELDS(LOG_NUMBER("stretched", keyring->stretched),
		                     LOG_NUMBER("ms",
		                                (uv_hrtime() / 1000 - keyring->since_us) / 1000)),
		          NULL);
	work_next(keyring);
}

/* If the key file could not be read, the old keys stay. */
static void file_has_been_read(uv_work_t *work, int status)
{
	struct keyring *keyring = work->data;
	struct job_keys *before = keyring->keys;
	const bool fresh = keyring->err == 0;

	(void)status;
	keyring->busy = false;
	if (keyring->closing) {
		if (fresh)
			job_keys_free(keyring->fresh);
		return;
	}
	if (fresh) {
		keys_set(keyring, keyring->fresh);
		log_event("info", "reloaded",
		          LOG_FIELDS(LOG_WORD("key_file", keyring->path),
		                     LOG_NUMBER("keys", keyring->keys->count)),
		          NULL);
	} else {
		log_event("warn", "reload_failed", NULL, "%s; the old keys stay",
		          keyring->why.text);
	}
	keyring->read(keyring->context, fresh);
	if (fresh) {
		keyring_warn(keyring);
		job_keys_free(before);
	}
	work_next(keyring);
}

static void work_next(struct keyring *keyring)
{
	if (keyring->busy || keyring->closing)
		return;
	keyring->busy = keyring->wanted || !keyring->made;
	keyring->err = -ECANCELED; /* until the work has been done */
	if (keyring->wanted) {
		keyring->wanted = false;
		uv_queue_work(keyring->loop, &keyring->work, file_read_again, file_has_been_read);
	} else if (!keyring->made) {
		atomic_store(&keyring->keys->stop, false);
		uv_queue_work(keyring->loop, &keyring->work, keys_stretch, keys_stretched);
	}
}

void keyring_open(struct keyring *keyring, uv_loop_t *loop, const char *path, struct job_keys *keys,
                  keyring_read_fn *read, void *context)
{
	*keyring = (struct keyring){.loop = loop, .read = read, .context = context, .path = path};
	keyring->work.data = keyring;
	keys_set(keyring, keys);
}

void keyring_start(struct keyring *keyring)
{
	work_next(keyring);
}

void keyring_read(struct keyring *keyring)
{
	if (keyring->path == NULL) {
		log_event("info", "reloaded", NULL, "there is no key file: nothing to read");
		keyring->read(keyring->context, true);
		return;
	}
	keyring->wanted = true;
	atomic_store(&keyring->keys->stop, true);
	work_next(keyring);
}

void keyring_stop(struct keyring *keyring)
{
	keyring->closing = true;
	if (keyring->keys != NULL)
		atomic_store(&keyring->keys->stop, true);
	if (keyring->busy)
		uv_cancel((uv_req_t *)&keyring->work);
}

void keyring_close(struct keyring *keyring)
{
	job_keys_free(keyring->keys);
	keyring->keys = NULL;
}
