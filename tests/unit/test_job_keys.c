// SPDX-License-Identifier: BSD-3-Clause
/* test_job_keys.c - files of keys, and what is made of them */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bitmap/control/message.h"
#include "bitmap/control/job_keys.h"
#include "tests/unit/unit.h"

static char folder[64];

static char path[128]; /* of the last file */

static void file_write(const char *name, const char *contents)
{
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "we");
	assert_non_null(file);
	fputs(contents, file);
	fclose(file);
}

static struct job_keys *keys_of(const char *contents, int want, const char *reason)
{
	struct job_keys *keys = NULL;
	struct why why = {""};

	file_write("keys", contents);
	assert_int_equal(job_keys_load(path, NULL, &keys, &why), want);
	if (reason != NULL && strstr(why.text, reason) == NULL)
		fail_msg("'%s' does not say %s", why.text, reason);
	unlink(path);
	return keys;
}

static void assert_key(struct job_keys *keys, const char *job, const char *text)
{
	struct job_key found, want;

	assert_true(job_keys_stretch(keys, job) >= 0);
	assert_int_equal(job_keys_find(keys, job, &found), 0);
	assert_int_equal(job_key_from_text(text, &want), 0);
	assert_memory_equal(found.bytes, want.bytes, SECRET_BYTES);
}

TEST(key_file)
{
	struct job_keys *keys = keys_of("# comment\n\n \t\r\njob-a\tkey-of-a-\r\n"
	                                "  job-b   key-of-b-  # b\n* key-of-others",
	                                0, NULL);
	char many[8192] = "", line[64];

	assert_key(keys, "job-a", "key-of-a-");
	assert_key(keys, "job-b", "key-of-b-");
	assert_key(keys, "job-a/7", "key-of-a-"); /* of all its memberships */
	assert_key(keys, "job-c", "key-of-others");
	assert_key(keys, "job/7", "key-of-others");
	job_keys_free(keys);
	keys = keys_of("job-a key-of-a-\n", 0, NULL);
	assert_int_equal(job_keys_find(keys, "job-b", &(struct job_key){{0}}), -ENOENT);
	job_keys_free(keys);
	keys = keys_of("only-one-key\n", 0, NULL);
	assert_key(keys, "any", "only-one-key");
	job_keys_free(keys);
	for (int i = 0; i < 200; i++) {
		snprintf(line, sizeof(line), "job-%d key-number-%d\n", i, i);
		strcat(many, line);
	}
	keys = keys_of(many, 0, NULL);
	assert_key(keys, "job-0", "key-number-0");
	assert_key(keys, "job-199", "key-number-199");
	assert_int_equal(keys->distinct, 200);
	job_keys_free(keys);
	keys = keys_of("a key-of-a-\nb key-of-b-\nc key-of-a-\n* key-of-b-\n", 0, NULL);
	assert_key(keys, "c", "key-of-a-");
	assert_int_equal(keys->count, 4);
	assert_int_equal(keys->distinct, 2);
	job_keys_free(keys);
}

/* What people and their programs write around a key, in a file and alone: the same rule for both. */
TEST(key_surroundings)
{
	static const struct {
		const char *written, *key; /* NULL: refused, because: */
		const char *why;
	} cases[] = {
		{"Sunshine-and-rain", "Sunshine-and-rain", NULL},
		{"Sunshine-and-rain\n", "Sunshine-and-rain",
	         NULL}, /* echo, and Secrets made of it */
		{"Sunshine-and-rain\r\n", "Sunshine-and-rain", NULL},
		{"Sunshine-and-rain\n\n", "Sunshine-and-rain", NULL},
		{" \tSunshine-and-rain \t ", "Sunshine-and-rain", NULL},
		{"\xef\xbb\xbfSunshine-and-rain\r\n", "Sunshine-and-rain", NULL}, /* Notepad */
		{"Sunshine#x7Qp-vR2m-kk93", "Sunshine#x7Qp-vR2m-kk93", NULL},
		{"Sunshine-#", "Sunshine-#", NULL},
		{"Sunshine-and-rain # mine\n", "Sunshine-and-rain", NULL},
		{"Sunshine-and-rain\t#mine", "Sunshine-and-rain", NULL},
		{"Sch\xc3\xb6nwetter", "Sch\xc3\xb6nwetter", NULL},
		{"#Sunshine-and-rain", NULL, "'#' begins a comment"},
		{"", NULL, "there is no key"},
		{" \r\n", NULL, "there is no key"},
		{"team Sunshine-and-rain", NULL, "there is a blank in the key"},
		{"Sunshine-and-rain\nand-more", NULL, "there is a line end"},
		{"Sunshine\x7f-and-rain", NULL, "or another control character"},
		{"Sunshine\x1b[2J", NULL, "or another control character"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct job_keys *keys = NULL;
		struct why why = {""};
		int err = job_keys_load(NULL, cases[i].written, &keys, &why);

		if (cases[i].key == NULL) {
			assert_int_equal(err, -EINVAL);
			if (strstr(why.text, cases[i].why) == NULL)
				fail_msg("'%s' does not say %s", why.text, cases[i].why);
			continue;
		}
		assert_int_equal(err, 0);
		assert_key(keys, "job", cases[i].key);
		job_keys_free(keys);
		keys = keys_of(cases[i].written, 0, NULL);
		assert_key(keys, "job", cases[i].key);
		job_keys_free(keys);
	}
}

/* One of `winnow key` is its bytes; a number stands for each, and for no other. */
TEST(key_drawn)
{
	char text[JOB_KEY_TEXT_BYTES];
	struct job_key one, other;
	uint8_t bytes[SECRET_BYTES];

	job_key_draw(text);
	assert_int_equal(job_key_from_text(text, &one), 0);
	assert_true(message_hex_read(text, bytes, sizeof(bytes)));
	assert_memory_equal(one.bytes, bytes, sizeof(bytes));
	job_key_draw(text);
	assert_int_equal(job_key_from_text(text, &other), 0);
	assert_memory_not_equal(&one, &other, sizeof(one));
	assert_true(job_key_owner(&one) == job_key_owner(&one));
	assert_true(job_key_owner(&one) != job_key_owner(&other));
}

/* Texts of people are keys once they are stretched, and those of `winnow key` at once. */
TEST(keys_stretched)
{
	struct job_keys *keys =
		keys_of("a key-of-a-\nb key-of-b-\n"
	                "c 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n"
	                "d key-of-b-\n* key-of-others\n",
	                0, NULL);
	struct job_key key;

	assert_int_equal(job_keys_find(keys, "c/next.1", &key), 0);
	assert_int_equal(job_keys_find(keys, "b", &key), -EAGAIN);
	assert_int_equal(job_keys_find(keys, "e/7", &key), -EAGAIN);
	keys->stop = true;
	assert_int_equal(job_keys_stretch(keys, NULL), 0);
	keys->stop = false;
	assert_int_equal(job_keys_stretch(keys, "d/7"), 1);
	assert_int_equal(job_keys_find(keys, "a", &key), -EAGAIN);
	assert_int_equal(job_keys_find(keys, "d", &key), 0);
	assert_int_equal(job_keys_find(keys, "b", &key), 0); /* which has the same */
	assert_int_equal(job_keys_stretch(keys, NULL), 2);
	assert_key(keys, "a", "key-of-a-");
	assert_key(keys, "e/7", "key-of-others");
	assert_int_equal(job_keys_stretch(keys, NULL), 0);
	job_keys_free(keys);
}

/* Who may read a key file may join. */
TEST(key_file_exposed)
{
	static const struct {
		mode_t mode;
		bool exposed;
	} cases[] = {{0600, false}, {0640, false}, {0660, false}, {0604, true}, {0644, true}};
	struct job_keys *keys = NULL;
	struct why why;

	file_write("keys", "* key-of-all\n");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(chmod(path, cases[i].mode), 0);
		assert_int_equal(job_keys_load(path, NULL, &keys, &why), 0);
		assert_int_equal(keys->exposed, cases[i].exposed);
		job_keys_free(keys);
	}
	unlink(path);
	assert_int_equal(job_keys_load(NULL, "key-of-all", &keys, &why), 0);
	assert_false(keys->exposed);
	job_keys_free(keys);
}

TEST(key_file_refused)
{
	struct job_keys *keys = NULL;
	char line[1100];
	struct why why;

	keys_of("a goodkey8\njob short77\n", -EINVAL, "line 2");
	keys_of("a key-of-a-\njob key-of-job third\n", -E2BIG, "line 2: there is a third word");
	keys_of("* key-of-all third fourth\n", -E2BIG, "line 1: there is a third word");
	keys_of("bad/name key-of-job\n", -EINVAL, "line 1");
	keys_of("job key\x01of-job\n", -EINVAL, "line 1");
	keys_of("a key-of-a-\rb key-of-b-\r", -EINVAL, "line 1"); /* of an old Macintosh */
	keys_of("job key-of-job# third\n", -E2BIG, "line 1");     /* no comment begins there */
	keys_of("\xff\xfej\n", -EINVAL, "it is in UTF-16, save it as UTF-8");
	keys_of("job key-of-job\n* others-key\njob another-key\n", -EEXIST,
	        "line 3: a line above already gives");
	keys_of("* key-of-all\nonly-one-key\n", -EEXIST, "line 2");
	keys_of("", -EINVAL, "no key");
	keys_of("# nothing\n", -EINVAL, "no key");
	memset(line, 'j', 65);
	strcpy(line + 65, " key-of-job\n");
	keys_of(line, -EINVAL, "line 1");
	memset(line, 'k', sizeof(line) - 1);
	line[sizeof(line) - 1] = '\0';
	keys_of(line, -EINVAL, "line 1");
	assert_int_equal(job_keys_load("/nowhere/keys", NULL, &keys, &why), -ENOENT);
	assert_non_null(strstr(why.text, "/nowhere/keys"));
	assert_int_equal(job_keys_load(folder, NULL, &keys, &why), -EINVAL);
	assert_non_null(strstr(why.text, "it is a directory"));
	assert_int_equal(job_keys_load("/dev/zero", NULL, &keys, &why), -EINVAL);
	assert_non_null(strstr(why.text, "it is a device")); /* without an end */
	snprintf(path, sizeof(path), "%s/pipe", folder);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(job_keys_load(path, NULL, &keys, &why), -EINVAL);
	assert_non_null(strstr(why.text, "it is a pipe")); /* without a writer */
	unlink(path);
	assert_int_equal(job_keys_load(NULL, "1234567", &keys, &why), -EINVAL);
	assert_non_null(strstr(why.text, "at least 8"));
	assert_null(keys);
	if (geteuid() == 0)
		return; /* root reads everything */
	file_write("secret", "");
	chmod(path, 0);
	assert_int_equal(job_keys_load(path, NULL, &keys, &why), -EACCES);
	unlink(path);
}

static int folder_make(void **state)
{
	snprintf(folder, sizeof(folder), "/tmp/winnow-test-XXXXXX");
	return mkdtemp(folder) == NULL;
}

static int folder_remove(void **state)
{
	return rmdir(folder);
}

int main(void)
{
	return unit_run(folder_make, folder_remove);
}
