// SPDX-License-Identifier: BSD-3-Clause
/* test_control_thread.c - control.c on a real loop with real signals; all that it holds together only takes notes */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/connections.h"
#include "aggregator/control.h"
#include "aggregator/http/http.h"
#include "aggregator/keyring.h"
#include "tests/unit/unit.h"

#define TICKS_MAX 400 /* 20 s */

/* ---- notes ---- */

static struct {
	struct jobs_ports ports; /* what jobs.c was given */
	uint32_t ticks, connection_ticks, stalls, troubles, drains, keys_set, stops, looks;
	bool fresh;
	uint32_t copies;
	pthread_t http_thread; /* that http_close() waits for, */
	bool http_waits;       /* if this is so */
	uint32_t ends, closes, http_closes;
	uint64_t last_tick_us;
	uint16_t stalled_id;
	char end_text[WHY_BYTES];
	const struct job_keys *keys;
	uint32_t distinct;
	uint32_t shared, unshared, released, attached, detached, started;
	uint16_t id; /* of the last of those */

	/* What the fakes answer. */
	uint32_t jobs;
	bool connected;
	int jobs_err, listen_err, http_err, attach_err;
	bool device_is_gone;
	uint32_t device_lost; /* times that it was asked for since */
	void (*on_tick)(void);
} notes;

static struct control_config config;
static struct reports reports;
static struct control *control;
static struct http_sources sources; /* what HTTP was given */

/* ---- fakes ---- */

int jobs_open(const struct jobs_config *jobs, const struct jobs_ports *ports, struct jobs **out)
{
	notes.ports = *ports;
	*out = notes.jobs_err == 0 ? (struct jobs *)&notes : NULL;
	return notes.jobs_err;
}

void jobs_close(struct jobs *jobs)
{
	assert_true(jobs == NULL || jobs == (struct jobs *)&notes);
	notes.closes++;
}

void jobs_tick(struct jobs *jobs, uint64_t now_us)
{
	assert_true(now_us >= notes.last_tick_us);
	notes.last_tick_us = now_us;
	if (++notes.ticks > TICKS_MAX)
		fail_msg("control_run() does not end");
	if (notes.on_tick != NULL)
		notes.on_tick();
}

void jobs_stalled(struct jobs *jobs, uint16_t channel_id, const struct channel_stall *stall)
{
	notes.stalls++;
	notes.stalled_id = channel_id;
	assert_int_equal(stall->tag, 1000u + channel_id);
}

void jobs_trouble(struct jobs *jobs, uint16_t channel_id, const struct jobs_trouble *trouble)
{
	notes.troubles++;
	assert_int_equal(trouble->count, 2000u + channel_id);
}

void jobs_drain(struct jobs *jobs)
{
	notes.drains++;
}

void jobs_keys_set(struct jobs *jobs, uint32_t keys, bool fresh)
{
	notes.keys_set++;
	notes.distinct = keys;
	notes.fresh = fresh;
}

struct jobs_copy *jobs_copy(const struct jobs *jobs)
{
	struct jobs_copy *copy = calloc(1, sizeof(*copy));

	assert_ptr_equal(jobs, &notes);
	copy->totals.jobs_started = ++notes.copies;
	return copy;
}

void jobs_end(struct jobs *jobs, const char *text)
{
	if (notes.ends++ == 0)
		snprintf(notes.end_text, sizeof(notes.end_text), "%s", text);
}

void jobs_totals(const struct jobs *jobs, struct jobs_totals *out)
{
	*out = (struct jobs_totals){.jobs = notes.jobs};
}

int connections_open(struct connections *connections, uv_loop_t *loop, struct jobs *jobs, int fd,
                     const struct net_addr *listen, struct why *why)
{
	assert_int_equal(fd, config.listen_fd);
	assert_int_equal(listen->port, 5555);
	return why_set(why, notes.listen_err, "taken");
}

void listener_stop(struct listener *listener)
{
	notes.stops++;
}

void connections_end(struct connections *connections)
{
}

bool connections_none(const struct connections *connections)
{
	return !notes.connected;
}

void connections_tick(struct connections *connections, uint64_t now_us)
{
	assert_true(now_us > 0);
	notes.connection_ticks++;
}

int connections_seal_key(struct jobs_peer *peer, const char *membership, struct seal_key *out)
{
	return -EPROTO;
}

void connections_keys_made(struct connections *connections, const struct job_keys *keys)
{
	notes.keys = keys;
}

void connections_send(void *unused, struct jobs_peer *peer, const char *line)
{
}

void connections_shut(void *unused, struct jobs_peer *peer)
{
}

int http_open(const struct net_addr *listen, const struct http_sources *given, struct http **out,
              struct why *why)
{
	assert_int_equal(listen->port, 9555);
	sources = *given;
	if (notes.http_err != 0)
		return why_set(why, notes.http_err, "cannot serve HTTP");
	*out = (struct http *)&notes;
	return 0;
}

void http_close(struct http *http)
{
	if (notes.http_waits)
		pthread_join(notes.http_thread, NULL);
	notes.http_closes += http != NULL;
}

static uint64_t started_channel; /* stands for one */

int data_attach(void *data, const struct jobs_channel *channel)
{
	assert_ptr_equal(data, &notes);
	notes.attached++;
	notes.id = channel->id;
	return notes.attach_err;
}

void data_start(void *data, uint16_t id, struct channel *channel, const bool multicast[])
{
	assert_ptr_equal(data, &notes);
	assert_true(channel == (struct channel *)&started_channel && multicast[0]);
	notes.started++;
	notes.id = id;
}

void data_heard(void *data, uint16_t id, uint32_t rank, struct jobs_heard *out)
{
	assert_ptr_equal(data, &notes);
	*out = (struct jobs_heard){.any_us = id, .whole_us = rank};
}

void data_detach(void *data, uint16_t id)
{
	assert_ptr_equal(data, &notes);
	notes.detached++;
	notes.id = id;
}

void data_await(struct data *data)
{
	notes.looks++;
}

const char *offload_share(void *offload, const struct jobs_channel *channel,
                          struct channel_config *channel_config)
{
	notes.shared++;
	return "no";
}

bool offload_lost(struct offload *offload)
{
	return notes.device_is_gone && !notes.device_lost++;
}

bool offload_works(const struct offload *offload)
{
	return !notes.device_is_gone;
}

void offload_unshare(void *offload, uint16_t id)
{
	notes.unshared++;
}

void offload_release(struct offload *offload, uint16_t id)
{
	notes.released++;
}

/* ---- */

static int begin(void **state)
{
	memset(&notes, 0, sizeof(notes));
	setenv("UV_THREADPOOL_SIZE", "1", 1); /* as winnowd.c has it */
	assert_int_equal(reports_open(&reports), 0);
	config = (struct control_config){
		.listen = {.port = 5555},
		.listen_fd = -1,
		.metrics = {.port = 9555},
		.drain_us = 60000000,
		.data = (struct data *)&notes,
		.reports = &reports,
	};
	return 0;
}

static int end(void **state)
{
	reports_close(&reports);
	return 0;
}

static void open_control(void)
{
	struct why why;

	if (control_open(&config, &control, &why) != 0)
		fail_msg("%s", why.text);
}

static void close_control(void)
{
	control_close(control);
	assert_int_equal(notes.closes, 1);
	assert_int_equal(notes.http_closes, 1);
}

/* Until it ends; what happens at a tick ends it. */
static void run_control(void (*on_tick)(void))
{
	notes.on_tick = on_tick;
	assert_int_equal(control_run(control), 0);
}

static void report_stall(uint16_t id)
{
	const struct report report = {.kind = REPORT_STALL, .id = id, .stall.tag = 1000u + id};

	reports_put(&reports, &report);
}

static void report_trouble(uint16_t id)
{
	const struct report report = {
		.kind = REPORT_TROUBLE, .id = id, .trouble.count = 2000u + id};

	reports_put(&reports, &report);
}

/* SIGTERM with nothing to wait for. */
static void terminate(void)
{
	if (notes.ticks == 2)
		raise(SIGTERM);
}

/* Jobs may end by themselves; and nothing ends before the last connection has. */
static void jobs_end_by_themselves(void)
{
	if (notes.ticks == 2)
		raise(SIGTERM);
	if (notes.ticks == 8)
		notes.jobs = 0;
	if (notes.ticks == 12)
		notes.connected = false;
	assert_true(notes.ticks >= 8 || notes.ends == 0);
}

TEST_BETWEEN(drain_waits, begin, end)
{
	open_control();
	notes.jobs = 1;
	notes.connected = true;
	run_control(jobs_end_by_themselves);
	assert_string_equal(notes.end_text, "");
	assert_in_range(notes.ticks, 12, 14);
	close_control();
}

TEST_BETWEEN(drain_limit, begin, end)
{
	uint64_t before_us;

	config.drain_us = 300000;
	open_control();
	notes.jobs = 1;
	notes.on_tick = terminate;
	before_us = uv_hrtime() / 1000;
	assert_int_equal(control_run(control), 0);
	assert_string_equal(notes.end_text, "the aggregator is shutting down");
	assert_true(notes.drains == 1 && notes.stops == 1 && notes.connection_ticks == notes.ticks);
	assert_true(uv_hrtime() / 1000 - before_us >= config.drain_us - 50000); /* a tick */
	close_control();
}

/* ---- keys ---- */

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

/* ---- data threads ---- */

static void stall_and_end(void)
{
	if (notes.ticks == 2) {
		report_stall(7);
		report_trouble(7);
	}
	if (notes.ticks == 4) {
		assert_int_equal(notes.stalls, 2);
		assert_int_equal(notes.troubles, 1);
		assert_int_equal(notes.stalled_id, 7);
		/* Its job ends, and the next one may get the number. */
		report_stall(8);
		notes.ports.detach(notes.ports.context, 8);
	}
	if (notes.ticks == 6) {
		assert_int_equal(notes.stalls, 2);
		raise(SIGTERM);
	}
}

TEST_BETWEEN(stalls, begin, end)
{
	report_stall(6); /* before anybody listens */
	open_control();
	run_control(stall_and_end);
	assert_int_equal(notes.stalls, 2);
	assert_true(notes.detached == 1 && notes.released == 1 && notes.id == 8);
	close_control();
	report_stall(9); /* after */
}

static void lose_port(void)
{
	struct report report = {.kind = REPORT_LOST};

	why_set(&report.lost, 0, "unplugged");
	if (notes.ticks == 2)
		reports_put(&reports, &report);
}

TEST_BETWEEN(port_lost, begin, end)
{
	open_control();
	notes.jobs = 1;
	notes.on_tick = lose_port;
	assert_int_equal(control_run(control), -ENODEV);
	assert_string_equal(notes.end_text, "the aggregator has lost its network port: unplugged");
	close_control();
}

/* What jobs.c asks of the data plane. */
TEST_BETWEEN(ports, begin, end)
{
	const struct jobs_channel channel = {.id = 3};
	const bool multicast[] = {true};
	struct channel_config wanted = {0};
	struct jobs_heard heard;

	open_control();
	assert_string_equal(notes.ports.share(notes.ports.kernel, &channel, &wanted), "no");
	assert_int_equal(notes.ports.attach(notes.ports.context, &channel), 0);
	assert_true(notes.shared == 1 && notes.attached == 1 && notes.id == 3 &&
	            notes.released == 0);
	notes.ports.start(notes.ports.data, 4, (struct channel *)&started_channel, multicast);
	assert_true(notes.started == 1 && notes.id == 4);
	notes.ports.heard(notes.ports.data, 4, 7, &heard);
	assert_true(heard.any_us == 4 && heard.whole_us == 7);
	notes.ports.unshare(notes.ports.kernel, 3);
	assert_int_equal(notes.unshared, 1);
	/* What has no thread is not the kernel's either. */
	notes.attach_err = -ENOMEM;
	assert_int_equal(notes.ports.attach(notes.ports.context, &channel), -ENOMEM);
	assert_int_equal(notes.released, 1);
	close_control();
}

/* ---- HTTP ---- */

static uint32_t copied, refused; /* what HTTP's thread has got */

static void *copy_three(void *unused)
{
	for (uint32_t i = 1; i <= 3; i++) {
		struct jobs_copy *copy = sources.copy(sources.context);

		if (copy != NULL && copy->totals.jobs_started == i)
			copied++;
		free(copy);
	}
	raise(SIGTERM);
	return NULL;
}

/* The loop makes copies between its turns; its pulse goes on. */
TEST_BETWEEN(copies, begin, end)
{
	uint64_t before_us = uv_hrtime() / 1000;
	pthread_t thread;

	copied = 0;
	open_control();
	assert_true(atomic_load(&sources.pulse->turned_us) >= before_us);
	assert_false(atomic_load(&sources.pulse->draining));
	assert_int_equal(pthread_create(&thread, NULL, copy_three, NULL), 0);
	assert_int_equal(control_run(control), 0);
	pthread_join(thread, NULL);
	assert_int_equal(copied, 3);
	assert_true(atomic_load(&sources.pulse->draining));
	assert_true(atomic_load(&sources.pulse->turned_us) >= notes.last_tick_us);
	close_control();
}

static void *copy_in_vain(void *unused)
{
	struct jobs_copy *copy = sources.copy(sources.context);
	refused += copy == NULL;
	free(copy);
	return NULL;
}

/* The loop does not turn: HTTP waits, but not for ever, and not at all once winnowd ends. */
TEST_BETWEEN(copies_in_vain, begin, end)
{
	pthread_t thread;
	uint64_t before_us = uv_hrtime() / 1000;

	refused = 0;
	open_control();
	copy_in_vain(NULL);
	assert_true(refused == 1 && uv_hrtime() / 1000 - before_us >= 1000000);
	assert_int_equal(pthread_create(&thread, NULL, copy_in_vain, NULL), 0);
	usleep(1000); /* it waits already, or does not */
	notes.http_thread = thread;
	notes.http_waits = true;
	close_control();
	assert_int_equal(refused, 2);
}

/* ---- opening ---- */

TEST_BETWEEN(failures, begin, end)
{
	struct reports unwatched = {.read_fd = open("/dev/null", O_RDONLY)};
	struct why why;

	config.reports = &unwatched; /* epoll takes no such file */
	assert_int_equal(control_open(&config, &control, &why), -EPERM);
	assert_string_equal(why.text, "cannot set up jobs: Operation not permitted");
	close(unwatched.read_fd);
	config.reports = &reports;
	notes.jobs_err = -ENOMEM;
	assert_int_equal(control_open(&config, &control, &why), -ENOMEM);
	assert_string_equal(why.text, "cannot set up jobs: Cannot allocate memory");
	notes.jobs_err = 0;
	notes.listen_err = -EADDRINUSE;
	assert_int_equal(control_open(&config, &control, &why), -EADDRINUSE);
	assert_string_equal(why.text, "taken");
	notes.listen_err = 0;
	notes.http_err = -EADDRINUSE;
	assert_int_equal(control_open(&config, &control, &why), -EADDRINUSE);
	assert_string_equal(why.text, "cannot serve HTTP");
	assert_int_equal(notes.http_closes, 0);
	/* One that nobody has asked for need not be. */
	config.metrics_auto = true;
	open_control();
	control_close(control);
	assert_int_equal(notes.http_closes, 0);
	/* None at all. */
	config.metrics.port = 0;
	notes.http_err = 0;
	open_control();
	control_close(control);
	assert_int_equal(notes.http_closes, 0);
}
