// SPDX-License-Identifier: BSD-3-Clause
/* proof.c - see proof.h */

#include "aggregator/control/proof.h"

#include <endian.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/control/key_text.h"
#include "aggregator/control/keyed_hash.h"
#include "aggregator/control/message.h"
#include "aggregator/control/options.h"
#include "aggregator/control/plain_file.h"

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
	struct proof_share share;
};

static const struct proof_share share_usual = {.weight = 1};

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
		[PROOF_ORDER] = "winnow order 1",
	};
	const uint32_t numbers[] = {htole32(statement->rank), htole32(statement->world)};
	const struct hash_part parts[] = {
		{labels[side], strlen(labels[side])},     {statement->server_nonce, PROOF_BYTES},
		{statement->client_nonce, PROOF_BYTES},   {numbers, sizeof(numbers)},
		{statement->job, strlen(statement->job)},
	};

	keyed_hash(key->bytes, parts, sizeof(parts) / sizeof(parts[0]), out, PROOF_BYTES);
}

/* In place of the job's name stand job, order and text. */
void proof_of_order(const struct proof_key *key, const uint8_t server_nonce[PROOF_BYTES],
                    const struct control_message *order, uint8_t out[PROOF_BYTES])
{
	char said[CONTROL_JOB_BYTES + CONTROL_NAME_BYTES + CONTROL_TEXT_BYTES];
	const struct proof_statement statement = {
		.server_nonce = server_nonce,
		.client_nonce = order->nonce,
		.job = said,
		.rank = order->rank,
	};

	snprintf(said, sizeof(said), "%s %s %s", order->job, order->order, order->text);
	proof_make(key, PROOF_ORDER, &statement, out);
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
static bool generated(const char *text)
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
	if (generated(text)) {
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
static int key_add(struct proof_keys *keys, const char *job, const char *text,
                   const struct proof_share *share)
{
	struct proof_named *grown, *key;

	if (keys->count == KEYS_MAX)
		return -E2BIG;
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
	key->share = *share;
	key->asked = false;
	key->text = strdup(text);
	if (key->text == NULL)
		return -ENOMEM;
	keys->distinct += !text_known(keys, text);
	keys->count++;
	return 0;
}

static bool digits_only(const char *text)
{
	return *text != '\0' && strlen(text) <= 2 && strspn(text, "0123456789") == strlen(text);
}

/* "weight=3" or "dscp=af21", each at most once. */
static int share_read(const char *word, struct proof_share *share)
{
	const char *value = strchr(word, '=');
	size_t name = value != NULL ? (size_t)(value++ - word) : 0;
	uint64_t number;

	if (name == 6 && strncmp(word, "weight", name) == 0 && share->weight == 0) {
		share->weight = digits_only(value) ? (uint32_t)strtoul(value, NULL, 10) : 0;
		return share->weight >= 1 && share->weight <= CONTROL_WEIGHT_MAX ? 0 : -EINVAL;
	}
	if (name != 4 || strncmp(word, "dscp", name) != 0 || share->dscp != 0 ||
	    option_dscp(value, &number) != 0 || number < 1 || number > CONTROL_DSCP_MAX)
		return -EINVAL;
	share->dscp = (uint32_t)number;
	return 0;
}

/* "JOB KEY", "* KEY" or "KEY", the first two perhaps with a share; empty lines and comments are fine. */
static int line_add(struct proof_keys *keys, char *line)
{
	char *words[4];
	struct proof_share share = {0};
	int count = key_text_words(line, words, 4);

	if (count <= 0)
		return count < 0 ? -EINVAL : 0;
	for (int i = 2; i < count; i++)
		if (share_read(words[i], &share) != 0)
			return -EINVAL;
	share.weight = share.weight != 0 ? share.weight : share_usual.weight;
	return count == 1 ? key_add(keys, "*", words[0], &share)
	                  : key_add(keys, words[0], words[1], &share);
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
		if (err == -EEXIST)
			why_set(why, err, "key file %s, line %u: that job has a key above", path,
			        number);
		else if (err != 0)
			why_set(why, err,
			        "key file %s, line %u: want \"JOB KEY\", \"JOB KEY weight=N "
			        "dscp=CLASS\", or \"KEY\": the key at least %d characters, N from "
			        "1 to %d, CLASS from 1 to %d or a name such as cs1 or af21",
			        path, number, PROOF_KEY_TEXT_MIN, CONTROL_WEIGHT_MAX,
			        CONTROL_DSCP_MAX);
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
	err = key_add(keys, "*", key, &share_usual);
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
	return key->text != NULL && !generated(key->text);
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

struct proof_share proof_keys_share(const struct proof_keys *keys, const char *job)
{
	const struct proof_named *key = key_named(keys, job);

	return key != NULL ? key->share : share_usual;
}
