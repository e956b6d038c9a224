// SPDX-License-Identifier: BSD-3-Clause
/* proof.c - see proof.h */

#include "bitmap/control/proof.h"

#include <endian.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bitmap/control/key_text.h"
#include "bitmap/control/keyed_hash.h"
#include "bitmap/control/message.h"
#include "bitmap/control/options.h"
#include "bitmap/control/plain_file.h"

#define KEYS_MAX 4096
#define LINE_MAX_BYTES 1022

/* RFC 7914: 16 MiB, and some 50 ms. */
#define SCRYPT_N 16384
#define SCRYPT_R 8
#define SCRYPT_P 1

struct proof_named {
	char job[CONTROL_NAME_BYTES]; /* "*": all others */
	char *text;                   /* NULL once `key` is made of it */
	bool asked;                   /* somebody waits for it */
	struct proof_key key;
};

int proof_init(void)
{
	return sodium_init() < 0 ? -EIO : 0;
}

void proof_random(void *out, size_t bytes)
{
	randombytes_buf(out, bytes);
}

void proof_random_for(void *unused, void *out, size_t bytes)
{
	(void)unused;
	proof_random(out, bytes);
}

void proof_make(const struct proof_key *key, enum proof_side side,
                const struct proof_statement *statement, uint8_t out[PROOF_BYTES])
{
	static const char *const labels[] = {
		[PROOF_JOIN] = "winnow join 1",
		[PROOF_WELCOME] = "winnow welcome 1",
	};
	const uint32_t numbers[] = {htole32(statement->rank), htole32(statement->world)};
	const struct hash_part parts[] = {
		{labels[side], strlen(labels[side])},     {statement->server_nonce, PROOF_BYTES},
		{statement->client_nonce, PROOF_BYTES},   {numbers, sizeof(numbers)},
		{statement->job, strlen(statement->job)},
	};

	keyed_hash(key->bytes, parts, sizeof(parts) / sizeof(parts[0]), out, PROOF_BYTES);
}

uint64_t proof_key_owner(const struct proof_key *key)
{
	static const char label[] = "winnow owner";
	const struct hash_part part = {label, strlen(label)};
	uint64_t owner;

	keyed_hash(key->bytes, &part, 1, &owner, sizeof(owner));
	return owner;
}

bool proof_equal(const uint8_t a[PROOF_BYTES], const uint8_t b[PROOF_BYTES])
{
	return sodium_memcmp(a, b, PROOF_BYTES) == 0;
}

/* As `winnow key` makes them: as many random bits as the hash has. */
static bool text_generated(const char *text)
{
	return strlen(text) == 2 * PROOF_BYTES &&
	       strspn(text, "0123456789abcdef") == 2 * PROOF_BYTES;
}

int proof_key_from_text(const char *text, struct proof_key *out)
{
	static const char salt[] = "winnow key 2";
	const struct hash_part part = {text, strlen(text)};
	int err;

	if (part.bytes < PROOF_KEY_TEXT_MIN)
		return -EINVAL;
	if (text_generated(text)) {
		keyed_hash(NULL, &part, 1, out->bytes, PROOF_BYTES);
		return 0;
	}
	err = crypto_pwhash_scryptsalsa208sha256_ll(part.data, part.bytes, (const uint8_t *)salt,
	                                            strlen(salt), SCRYPT_N, SCRYPT_R, SCRYPT_P,
	                                            out->bytes, PROOF_BYTES);
	secrets_clear();
	return err == 0 ? 0 : -ENOMEM;
}

void proof_key_draw(char text[PROOF_KEY_TEXT_BYTES])
{
	uint8_t bytes[PROOF_BYTES];

	proof_random(bytes, sizeof(bytes));
	sodium_bin2hex(text, PROOF_KEY_TEXT_BYTES, bytes, sizeof(bytes));
	sodium_memzero(bytes, sizeof(bytes));
}

/* While all are texts yet. */
static bool text_known(const struct proof_keys *keys, const char *text)
{
	for (uint32_t i = 0; i < keys->count; i++)
		if (strcmp(keys->keys[i].text, text) == 0)
			return true;
	return false;
}

/* -EEXIST: the job has one. */
static int key_add(struct proof_keys *keys, const char *job, const char *text)
{
	struct proof_named *grown, *key;

	if (keys->count == KEYS_MAX)
		return -ENOSPC;
	if (strcmp(job, "*") != 0 && (!message_name_valid(job) || strchr(job, '/') != NULL))
		return -EINVAL;
	for (uint32_t i = 0; i < keys->count; i++)
		if (strcmp(keys->keys[i].job, job) == 0)
			return -EEXIST;
	grown = realloc(keys->keys, (keys->count + 1) * sizeof(*grown));
	if (grown == NULL)
		return -ENOMEM;
	keys->keys = grown;
	key = &grown[keys->count];
	if (strlen(job) >= sizeof(key->job) || strlen(text) < PROOF_KEY_TEXT_MIN)
		return -EINVAL;
	strcpy(key->job, job);
	key->asked = false;
	key->text = strdup(text);
	if (key->text == NULL)
		return -ENOMEM;
	keys->distinct += !text_known(keys, text);
	keys->count++;
	return 0;
}

/* "JOB KEY", "* KEY" or "KEY"; empty lines and comments are fine. */
static int line_add(struct proof_keys *keys, char *line)
{
	char *words[2];
	int count = key_text_words(line, words, 2);

	if (count <= 0)
		return count;
	return count == 1 ? key_add(keys, "*", words[0]) : key_add(keys, words[0], words[1]);
}

static void line_refuse(int err, const char *path, uint32_t number, struct why *why)
{
	const char *what = err == -EEXIST   ? "that job has a key above"
	                   : err == -E2BIG  ? "there is a third word: a line has a job and its "
	                                      "key, no more"
	                   : err == -ENOSPC ? "there are too many keys"
	                   : err == -ENOMEM ? "out of memory"
	                                    : NULL;

	if (what != NULL)
		why_set(why, err, "key file %s, line %u: %s", path, number, what);
	else
		why_set(why, err,
		        "key file %s, line %u: want \"JOB KEY\" or \"KEY\", the key at least %d "
		        "characters",
		        path, number, PROOF_KEY_TEXT_MIN);
}

static int file_read(struct proof_keys *keys, const char *path, struct why *why)
{
	struct plain_file file;
	uint32_t number = 0;
	char *line;
	int err = plain_file_read("key file ", path, &file, why);

	if (err != 0)
		return err;
	keys->exposed = file.exposed;
	while (err == 0 && (line = plain_file_line(&file)) != NULL) {
		number++;
		err = strlen(line) > LINE_MAX_BYTES ? -EINVAL : line_add(keys, line);
		if (err != 0)
			line_refuse(err, path, number, why);
	}
	if (err == 0 && keys->count == 0)
		err = why_set(why, -EINVAL, "key file %s holds no key", path);
	plain_file_free(&file);
	return err;
}

static int text_add_alone(struct proof_keys *keys, const char *text, struct why *why)
{
	static const char named[] = "--key or WINNOW_KEY";
	char *key;
	int err = key_text_one(named, text, &key, why);

	if (err != 0)
		return err;
	err = key_add(keys, "*", key);
	key_text_free(key);
	return err == 0 ? 0
	                : why_set(why, err, "%s: want at least %d characters", named,
	                          PROOF_KEY_TEXT_MIN);
}

int proof_keys_load(const char *path, const char *text, struct proof_keys **out, struct why *why)
{
	struct proof_keys *keys = calloc(1, sizeof(*keys));
	int err;

	if (keys == NULL)
		return why_set(why, -ENOMEM, "out of memory");
	err = path != NULL ? file_read(keys, path, why) : text_add_alone(keys, text, why);
	secrets_clear();
	if (err != 0) {
		proof_keys_free(keys);
		return err;
	}
	*out = keys;
	return 0;
}

static void text_free(struct proof_named *key)
{
	key_text_free(key->text);
	key->text = NULL;
}

void proof_keys_free(struct proof_keys *keys)
{
	if (keys == NULL)
		return;
	for (uint32_t i = 0; i < keys->count; i++)
		text_free(&keys->keys[i]);
	sodium_memzero(keys->keys, keys->count * sizeof(*keys->keys));
	free(keys->keys);
	free(keys);
}

/* Made when it is first needed: a file may have thousands, and each takes its time. */
static const struct proof_key *key_made(struct proof_named *key)
{
	if (key->text != NULL && proof_key_from_text(key->text, &key->key) != 0)
		return NULL;
	text_free(key);
	return &key->key;
}

/* NULL: there is none. */
static struct proof_named *key_named(const struct proof_keys *keys, const char *job)
{
	struct proof_named *found = NULL;
	size_t base = message_name_base(job);

	for (uint32_t i = 0; keys != NULL && i < keys->count; i++) {
		struct proof_named *key = &keys->keys[i];

		if (strlen(key->job) == base && memcmp(key->job, job, base) == 0)
			return key;
		if (strcmp(key->job, "*") == 0)
			found = key;
	}
	return found;
}

const struct proof_key *proof_keys_find(struct proof_keys *keys, const char *job)
{
	struct proof_named *key = key_named(keys, job);

	return key != NULL ? key_made(key) : NULL;
}

/* ---- keys that are made aside ---- */

static bool is_slow(const struct proof_named *key)
{
	return key->text != NULL && !text_generated(key->text);
}

bool proof_keys_ready(struct proof_keys *keys, const char *job)
{
	struct proof_named *key = key_named(keys, job);

	if (key == NULL || !keys->aside || !is_slow(key))
		return true;
	key->asked = true;
	return false;
}

bool proof_keys_next(const struct proof_keys *keys, uint32_t *index)
{
	bool any = false;

	for (uint32_t i = 0; i < keys->count; i++) {
		const struct proof_named *key = &keys->keys[i];

		if (!is_slow(key) || (any && !key->asked))
			continue;
		*index = i;
		any = true;
		if (key->asked)
			break;
	}
	return any;
}

int proof_keys_stretch(const struct proof_keys *keys, uint32_t index, struct proof_key *out)
{
	return proof_key_from_text(keys->keys[index].text, out);
}

void proof_keys_made(struct proof_keys *keys, uint32_t index, const struct proof_key *made)
{
	const char *text = keys->keys[index].text;

	for (uint32_t i = 0; i < keys->count; i++) {
		struct proof_named *key = &keys->keys[i];

		if (i == index || key->text == NULL || strcmp(key->text, text) != 0)
			continue;
		key->key = *made;
		text_free(key);
	}
	keys->keys[index].key = *made;
	text_free(&keys->keys[index]);
}
