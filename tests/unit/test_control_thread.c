// SPDX-License-Identifier: BSD-3-Clause
/* test_control_thread.c - the end, what data threads and the port report, HTTP's copies, and what may fail at the start */

#include "tests/unit/test_control_thread.h"

#include <fcntl.h>

/* ---- the end ---- */

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

/* ---- data threads ---- */

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

static void report_slow(uint16_t id)
{
	const struct report report = {
		.kind = REPORT_TROUBLE,
		.id = id,
		.trouble = {.kind = JOBS_SLOW, .count = 2000u + id},
	};

	reports_put(&reports, &report);
}

static void slow_and_end(void)
{
	if (notes.ticks == 2)
		report_slow(7);
	if (notes.ticks == 4) {
		assert_int_equal(notes.troubles, 1);
		notes.device_is_gone = true;
		report_slow(7);
		report_trouble(7);
	}
	if (notes.ticks == 6) {
		assert_int_equal(notes.troubles, 2);
		raise(SIGTERM);
	}
}

/* Without a device the kernel adds nothing, whatever the workers do. */
TEST_BETWEEN(device_gone, begin, end)
{
	open_control();
	run_control(slow_and_end);
	close_control();
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
