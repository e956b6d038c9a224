// SPDX-License-Identifier: BSD-3-Clause
/* keyring.c - see keyring.h */

#include "aggregator/keyring.h"

#include <errno.h>
#include <string.h>

#include "aggregator/log.h"

static void work_next(struct keyring *keyring);

void keyring_warn(const struct keyring *keyring)
{
	if (keyring->keys == NULL)
		log_event("warn", "no_keys", NULL,
		          "anyone who reaches the port may join any job, and may forge sums if he "
		          "sees datagrams: give --key-file");
	else if (keyring->keys->exposed)
		log_event("warn", "keys_exposed", LOG_FIELDS(LOG_WORD("key_file", keyring->path)),
		          "every user of this machine may read it: chmod o-r %s", keyring->path);
}

static void keys_set(struct keyring *keyring, struct job_keys *keys)
{
	keyring->keys = keys;
	keyring->stretched = 0;
	keyring->since_us = uv_hrtime() / 1000;
	if (keys != NULL)
		keys->aside = true;
}

/* ---- on the pool's thread ---- */

static void key_stretch(uv_work_t *work)
{
	struct keyring *keyring = work->data;

	keyring->err = job_keys_stretch(keyring->keys, keyring->index, &keyring->key);
}

static void file_read_again(uv_work_t *work)
{
	struct keyring *keyring = work->data;

	keyring->err = job_keys_load(keyring->path, NULL, &keyring->fresh, &keyring->why);
}

/* ---- on the loop ---- */

static void key_stretched(uv_work_t *work, int status)
{
	struct keyring *keyring = work->data;

	(void)status;
	keyring->busy = false;
	if (keyring->err == 0) {
		job_keys_made(keyring->keys, keyring->index, &keyring->key);
		keyring->stretched++;
	} else {
		keyring->keys->aside = false; /* who needs one makes it, when there is memory */
	}
	explicit_bzero(&keyring->key, sizeof(keyring->key));
	if (keyring->closing)
		return;
	keyring->hooks.made(keyring->hooks.context);
	work_next(keyring);
}

/* A key file that cannot be read leaves the keys as they are. */
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
	keyring->hooks.read(keyring->hooks.context, fresh);
	if (fresh) {
		keyring_warn(keyring);
		job_keys_free(before);
	}
	work_next(keyring);
}

/* All are made. */
static void say_ready(struct keyring *keyring)
{
	if (keyring->stretched > 0)
		log_event("info", "keys_ready",
		          LOG_FIELDS(LOG_NUMBER("stretched", keyring->stretched),
		                     LOG_NUMBER("ms",
		                                (uv_hrtime() / 1000 - keyring->since_us) / 1000)),
		          NULL);
	keyring->stretched = 0;
}

static void work_next(struct keyring *keyring)
{
	if (keyring->busy || keyring->closing)
		return;
	keyring->busy = true;
	keyring->err = -ECANCELED; /* unless it is done */
	if (keyring->wanted) {
		keyring->wanted = false;
		uv_queue_work(keyring->loop, &keyring->work, file_read_again, file_has_been_read);
	} else if (keyring->keys != NULL && keyring->keys->aside &&
	           job_keys_next(keyring->keys, &keyring->index)) {
		uv_queue_work(keyring->loop, &keyring->work, key_stretch, key_stretched);
	} else {
		keyring->busy = false;
		say_ready(keyring);
	}
}

void keyring_open(struct keyring *keyring, uv_loop_t *loop, const char *path, struct job_keys *keys,
                  const struct keyring_hooks *hooks)
{
	*keyring = (struct keyring){.loop = loop, .hooks = *hooks, .path = path};
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
		keyring->hooks.read(keyring->hooks.context, true);
		return;
	}
	keyring->wanted = true;
	work_next(keyring);
}

void keyring_stop(struct keyring *keyring)
{
	keyring->closing = true;
	if (keyring->busy)
		uv_cancel((uv_req_t *)&keyring->work);
}

void keyring_close(struct keyring *keyring)
{
	job_keys_free(keyring->keys);
	keyring->keys = NULL;
}
