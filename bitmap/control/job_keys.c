// SPDX-License-Identifier: BSD-3-Clause
/* job_keys.c - see job_keys.h */

#include "bitmap/control/job_keys.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bitmap/control/message.h"
#include "bitmap/control/plain_file.h"

#define KEYS_MAX 4096
#define LINE_MAX_BYTES 1022
#define BLANKS " \t"
#define LINE_ENDS "\r\n"
#define MARK "\xef\xbb\xbf" /* UTF-8's byte order mark */

/* 5.2: "Of any other text scrypt (RFC 7914) makes them": 16 MiB, and some 50 ms. */
#define SCRYPT_N 16384
#define SCRYPT_R 8
#define SCRYPT_P 1
#define SCRYPT_BYTES_MAX (32 << 20)

struct job_key_named {
	char job[CONTROL_NAME_BYTES]; /* "*": all other jobs */
	char *text;                   /* NULL once `key` is made */
	_Atomic bool made;            /* `key` is complete and never changes again */
	struct job_key key;
};

uint64_t job_key_owner(const struct job_key *key)
{
	uint64_t owner = 0;

	(void)secret_expand(key->bytes, &owner, sizeof(owner));
	return owner;
}

int job_key_from_text(const char *text, struct job_key *out)
{
	static const unsigned char salt[] = "winnow key 2";
	int made;

	if (strlen(text) < JOB_KEY_TEXT_MIN)
		return -EINVAL;
	if (message_hex_read(text, out->bytes, SECRET_BYTES))
		return 0; /* 5.2: "64 lower-case hex digits are these bytes" */
	secrets_begin();
	made = EVP_PBE_scrypt(text, strlen(text), salt, sizeof(salt) - 1, SCRYPT_N, SCRYPT_R,
	                      SCRYPT_P, SCRYPT_BYTES_MAX, out->bytes, SECRET_BYTES);
	secrets_clear();
	return made == 1 ? 0 : -ENOMEM;
}

void job_key_draw(char text[JOB_KEY_TEXT_BYTES])
{
	uint8_t bytes[SECRET_BYTES];

	random_bytes(bytes, sizeof(bytes));
	message_hex_write(bytes, sizeof(bytes), text);
	explicit_bzero(bytes, sizeof(bytes));
}

static void text_free(struct job_key_named *key)
{
	if (key->text != NULL)
		explicit_bzero(key->text, strlen(key->text));
	free(key->text);
	key->text = NULL;
}

/* ---- texts ---- */

/* Only before any key is made, because `text` is then NULL. */
static bool text_known(const struct job_keys *keys, const char *text)
{
	for (uint32_t i = 0; i < keys->count; i++)
		if (strcmp(keys->keys[i].text, text) == 0)
			return true;
	return false;
}

/* Returns -EEXIST if the job already has a key. */
static int key_add(struct job_keys *keys, const char *job, const char *text)
{
	struct job_key_named *grown, *key;

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
	if (strlen(job) >= sizeof(key->job) || strlen(text) < JOB_KEY_TEXT_MIN)
		return -EINVAL;
	strcpy(key->job, job);
	key->made = false; /* realloc() would leave copies of the key behind */
	key->text = strdup(text);
	if (key->text == NULL)
		return -ENOMEM;
	keys->distinct += !text_known(keys, text);
	keys->count++;
	return 0;
}

static bool has_control(const char *text)
{
	for (; *text != '\0'; text++)
		if (((unsigned char)*text < ' ' && *text != '\t') || *text == 0x7f)
			return true;
	return false;
}

/* Cuts a line into at most `max` words, in place. Returns their number, -E2BIG or -EINVAL. */
static int line_cut(char *line, char *words[], int max)
{
	char *end = line + strlen(line), *comment = strchrnul(line, '#'), *save = NULL;
	int count = 0;

	while (end > line && strchr(BLANKS LINE_ENDS, end[-1]) != NULL)
		end--;
	*end = '\0';
	while (comment < end && comment > line && strchr(BLANKS, comment[-1]) == NULL)
		comment = strchrnul(comment + 1, '#');
	if (comment < end)
		*comment = '\0';
	if (has_control(line))
		return -EINVAL;
	for (char *word = strtok_r(line, BLANKS, &save); word != NULL;
	     word = strtok_r(NULL, BLANKS, &save)) {
		if (count == max)
			return -E2BIG;
		words[count++] = word;
	}
	return count;
}

/* Takes a line "JOB KEY", "* KEY" or "KEY". Empty lines and comments are fine. */
static int line_add(struct job_keys *keys, char *line)
{
	char *words[2];
	int count = line_cut(line, words, 2);

	if (count <= 0)
		return count;
	return count == 1 ? key_add(keys, "*", words[0]) : key_add(keys, words[0], words[1]);
}

static void line_refuse(int err, const char *path, uint32_t number, struct why *why)
{
	const char *what = err == -EEXIST   ? "a line above already gives this job a key"
	                   : err == -E2BIG  ? "there is a third word; a line has only a job "
	                                      "and its key"
	                   : err == -ENOSPC ? "the file has too many keys"
	                   : err == -ENOMEM ? "out of memory"
	                                    : NULL;

	if (what != NULL)
		why_set(why, err, "key file %s, line %u: %s", path, number, what);
	else
		why_set(why, err,
		        "key file %s, line %u: want \"JOB KEY\" or \"KEY\", the key at least %d "
		        "characters",
		        path, number, JOB_KEY_TEXT_MIN);
}

static int file_read(struct job_keys *keys, const char *path, struct why *why)
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

_Static_assert(JOB_KEY_TEXT_MIN == 8, "the text below says so");

/* A key that stands alone must be one word. */
static int text_add_alone(struct job_keys *keys, const char *text, struct why *why)
{
	char *copy, *key;
	size_t bytes;
	int count, err;

	text += strncmp(text, MARK, strlen(MARK)) == 0 ? strlen(MARK) : 0;
	text += strspn(text, BLANKS LINE_ENDS);
	bytes = strlen(text) + 1;
	copy = strdup(text);
	count = copy != NULL ? line_cut(copy, &key, 1) : -ENOMEM;
	err = count == 1 ? key_add(keys, "*", key) : count < 0 ? count : -ENOENT;
	if (copy != NULL)
		explicit_bzero(copy, bytes);
	free(copy);
	if (err == 0 || err == -ENOMEM)
		return err == 0 ? 0 : why_set(why, err, "out of memory");
	why_set(why, 0, "--key or WINNOW_KEY: %s",
	        err == -E2BIG  ? "there is a blank in the key; want the key alone, without a job's "
	                         "name"
	        : count < 0    ? "there is a line end, or another control character, in the key"
	        : count > 0    ? "want at least 8 characters"
	        : *text == '#' ? "there is no key; '#' begins a comment"
	                       : "there is no key");
	return -EINVAL;
}

int job_keys_load(const char *path, const char *text, struct job_keys **out, struct why *why)
{
	struct job_keys *keys = calloc(1, sizeof(*keys));
	int err;

	if (keys == NULL)
		return why_set(why, -ENOMEM, "out of memory");
	err = path != NULL ? file_read(keys, path, why) : text_add_alone(keys, text, why);
	secrets_clear();
	if (err != 0) {
		job_keys_free(keys);
		return err;
	}
	for (uint32_t i = 0; i < keys->count; i++) {
		struct job_key_named *key = &keys->keys[i];

		key->made = message_hex_read(key->text, key->key.bytes, SECRET_BYTES);
		if (key->made)
			text_free(key);
	}
	*out = keys;
	return 0;
}

void job_keys_free(struct job_keys *keys)
{
	if (keys == NULL)
		return;
	for (uint32_t i = 0; i < keys->count; i++)
		text_free(&keys->keys[i]);
	if (keys->keys != NULL)
		explicit_bzero(keys->keys, keys->count * sizeof(*keys->keys));
	free(keys->keys);
	free(keys);
}

/* Returns NULL if there is none. */
static struct job_key_named *key_named(const struct job_keys *keys, const char *job)
{
	struct job_key_named *found = NULL;
	size_t base = message_name_base(job);

	for (uint32_t i = 0; keys != NULL && i < keys->count; i++) {
		struct job_key_named *key = &keys->keys[i];

		if (strlen(key->job) == base && memcmp(key->job, job, base) == 0)
			return key;
		if (strcmp(key->job, "*") == 0)
			found = key;
	}
	return found;
}

int job_keys_find(const struct job_keys *keys, const char *job, struct job_key *out)
{
	const struct job_key_named *key = key_named(keys, job);

	if (key == NULL)
		return -ENOENT;
	if (!atomic_load(&key->made))
		return -EAGAIN;
	*out = key->key;
	return 0;
}

/* Drops the text of a key that has been made, and gives the key to all jobs with the same text. */
static void key_made(struct job_keys *keys, struct job_key_named *key)
{
	for (uint32_t i = 0; i < keys->count; i++) {
		struct job_key_named *other = &keys->keys[i];

		if (other == key || other->text == NULL || strcmp(other->text, key->text) != 0)
			continue;
		other->key = key->key;
		atomic_store(&other->made, true);
		text_free(other);
	}
	atomic_store(&key->made, true);
	text_free(key);
}

int job_keys_stretch(struct job_keys *keys, const char *job)
{
	int stretched = 0;

	for (uint32_t i = 0; i < keys->count && !atomic_load(&keys->stop); i++) {
		struct job_key_named *key = &keys->keys[i];

		if (atomic_load(&key->made) || (job != NULL && key != key_named(keys, job)))
			continue;
		if (job_key_from_text(key->text, &key->key) != 0)
			return -ENOMEM;
		key_made(keys, key);
		stretched++;
	}
	return stretched;
}
