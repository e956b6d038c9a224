// SPDX-License-Identifier: BSD-3-Clause
/* test_keyring.c - the control thread reads the key file again on SIGHUP, and keys are made beside its loop */

#include "tests/unit/test_control_thread.h"

#include "aggregator/keyring.h"

static char key_path[] = "/tmp/winnow-keys-XXXXXX";

static void keys_write(const char *text)
{
	FILE *file = fopen(key_path, "we");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static void open_with_keys(const char *text)
{
	int fd = mkstemp(strcpy(key_path, "/tmp/winnow-keys-XXXXXX"));
	struct why why;

	assert_true(fd >= 0);
	close(fd);
	keys_write(text);
	assert_int_equal(job_keys_load(key_path, NULL, &config.keys, &why), 0);
	config.key_file = key_path;
	open_control();
}

static void close_with_keys(void)
{
	close_control();
	unlink(key_path);
}

static void hang_up(void)
{
	if (notes.ticks == 2)
		raise(SIGHUP);
	if (notes.keys_set == 1 && notes.drains == 0)
		raise(SIGTERM);
}

TEST_BETWEEN(reload, begin, end)
{
	open_with_keys("a key-of-tenant-a\n");
	keys_write("b key-of-tenant-b\nc key-of-tenant-c\n");
	run_control(hang_up);
	assert_int_equal(notes.keys_set, 1);
	assert_true(notes.fresh);
	assert_int_equal(notes.keys->count, 2);
	assert_int_equal(notes.distinct, 2);
	close_with_keys();
}

/* One that cannot be read leaves the keys as they are; without one there is nothing to read. */
TEST_BETWEEN(reload_fails, begin, end)
{
	open_with_keys("a key-of-tenant-a\nb key-of-tenant-b\nc key-of-tenant-c\n");
	keys_write("short\n");
	run_control(hang_up);
	assert_true(notes.keys_set == 1 && !notes.fresh);
	assert_int_equal(notes.keys->count, 3);
	close_with_keys();
	begin(NULL);
	open_control();
	run_control(hang_up);
	assert_true(notes.keys_set == 1 && notes.fresh && notes.keys == NULL);
	close_control();
}

static uint64_t last_us, longest_us; /* the last turn, and the longest time between two */

/* Until the last of twenty keys is made. */
static void watch_keys(void)
{
	uint64_t now_us = uv_hrtime() / 1000;
	struct job_key key;

	if (notes.ticks > 1 && now_us - last_us > longest_us)
		longest_us = now_us - last_us;
	last_us = now_us;
	if (job_keys_find(config.keys, "same", &key) == 0 &&
	    job_keys_find(config.keys, "job19", &key) == 0 && notes.drains == 0)
		raise(SIGTERM);
}

/* Texts take their time, but not the loop's; others' keys are there at once. */
TEST_BETWEEN(keys_aside, begin, end)
{
	char text[2048] =
		"quick 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n";
	size_t used = strlen(text);
	const uint64_t begun_us = uv_hrtime() / 1000;
	struct job_key want, got;

	last_us = longest_us = 0;
	for (uint32_t i = 0; i < 20; i++)
		used += (size_t)sprintf(text + used, "job%u passphrase-number-%u\n", i, i);
	sprintf(text + used, "same passphrase-number-7\n"); /* is made with job7's */
	open_with_keys(text);
	assert_int_equal(job_keys_find(config.keys, "quick", &got), 0);
	assert_int_equal(job_keys_find(config.keys, "nobody", &got), -ENOENT);
	assert_int_equal(job_keys_find(config.keys, "job0", &got), -EAGAIN);
	run_control(watch_keys);
	assert_true(longest_us < (last_us - begun_us) / 2);
	assert_int_equal(job_keys_find(config.keys, "same", &got), 0);
	assert_int_equal(job_key_from_text("passphrase-number-7", &want), 0);
	assert_memory_equal(&got, &want, sizeof(want));
	close_with_keys();
}

/* winnowd ends while most keys are not made. */
TEST_BETWEEN(keys_end, begin, end)
{
	char text[8192] = "";
	uint64_t before_us = uv_hrtime() / 1000;

	for (uint32_t i = 0, used = 0; i < 200; i++)
		used += (uint32_t)sprintf(text + used, "job%u passphrase-number-%u\n", i, i);
	open_with_keys(text);
	run_control(terminate);
	close_with_keys();
	assert_true(uv_hrtime() / 1000 - before_us < 4000000); /* all take 8 s and more */
}

static void pool_is_here(uv_work_t *work)
{
	uv_sem_post(work->data);
}

/* What a file says that is read while winnowd ends is forgotten, and the keys of before are freed with the rest. */
TEST_BETWEEN(reading_ends, begin, end)
{
	struct job_keys *before;
	struct keyring keyring;
	uv_work_t next;
	uv_loop_t loop;
	uv_sem_t read;

	open_with_keys("a key-of-tenant-a\n");
	before = config.keys;
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(uv_sem_init(&read, 0), 0);
	keyring_open(&keyring, &loop, key_path, before, NULL, NULL);
	keyring_read(&keyring);
	next.data = &read;
	assert_int_equal(uv_queue_work(&loop, &next, pool_is_here, NULL), 0);
	uv_sem_wait(&read); /* the pool's only thread is done with the file */
	keyring_stop(&keyring);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_ptr_equal(keyring.keys, before);
	assert_int_equal(uv_loop_close(&loop), 0);
	uv_sem_destroy(&read);
	close_with_keys(); /* `control` has the same keys, and frees them */
}
