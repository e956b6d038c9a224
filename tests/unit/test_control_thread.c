// SPDX-License-Identifier: BSD-3-Clause
/* test_control_thread.c - control.c on a real loop with real signals; all that it holds together only takes notes */

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "aggregator/connections.h"
#include "aggregator/control.h"
#include "aggregator/http/http.h"

#define TICKS_MAX 400 /* 20 s */

/* ---- notes ---- */

static struct {
	struct jobs_ports ports; /* what jobs.c was given */
	uint32_t ticks, connection_ticks, stalls, troubles, drains, keys_set, stops, looks;
	uint32_t ends, closes, http_closes;
	uint64_t last_tick_us;
	uint16_t stalled_id;
	char end_text[WHY_BYTES];
	struct proof_keys *keys;
	uint32_t shared, unshared, released, attached, detached, started;
	uint64_t moved;
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

/* ---- fakes ---- */

int jobs_open(const struct jobs_config *jobs, const struct jobs_ports *ports, struct jobs **out)
{
	(void)jobs;
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
	(void)jobs;
	assert_true(now_us >= notes.last_tick_us);
	notes.last_tick_us = now_us;
	if (++notes.ticks > TICKS_MAX)
		fail_msg("control_run() does not end");
	if (notes.on_tick != NULL)
		notes.on_tick();
}

void jobs_stalled(struct jobs *jobs, uint16_t channel_id, const struct channel_stall *stall)
{
	(void)jobs;
	notes.stalls++;
	notes.stalled_id = channel_id;
	assert_int_equal(stall->tag, 1000u + channel_id);
}

void jobs_trouble(struct jobs *jobs, uint16_t channel_id, const struct jobs_trouble *trouble)
{
	(void)jobs;
	notes.troubles++;
	assert_int_equal(trouble->count, 2000u + channel_id);
}

void jobs_drain(struct jobs *jobs)
{
	(void)jobs;
	notes.drains++;
}

void jobs_keys_set(struct jobs *jobs, struct proof_keys *keys, bool fresh)
{
	(void)jobs;
	assert_true(fresh);
	notes.keys_set++;
	notes.keys = keys;
}

void jobs_end(struct jobs *jobs, const char *text)
{
	(void)jobs;
	if (notes.ends++ == 0)
		snprintf(notes.end_text, sizeof(notes.end_text), "%s", text);
}

void jobs_totals(const struct jobs *jobs, struct jobs_totals *out)
{
	(void)jobs;
	*out = (struct jobs_totals){.jobs = notes.jobs};
}

int connections_open(struct connections *connections, uv_loop_t *loop, struct jobs *jobs, int fd,
                     const struct net_addr *listen, struct why *why)
{
	(void)connections;
	assert_int_equal(fd, config.listen_fd);
	(void)loop;
	(void)jobs;
	assert_int_equal(listen->port, 5555);
	return why_set(why, notes.listen_err, "taken");
}

void listener_stop(struct listener *listener)
{
	(void)listener;
	notes.stops++;
}

void connections_end(struct connections *connections)
{
	(void)connections;
}

bool connections_none(const struct connections *connections)
{
	(void)connections;
	return !notes.connected;
}

void connections_tick(struct connections *connections, uint64_t now_us)
{
	(void)connections;
	assert_true(now_us > 0);
	notes.connection_ticks++;
}

void connections_send(void *unused, struct jobs_peer *peer, const char *line)
{
	(void)unused;
	(void)peer;
	(void)line;
}

void connections_shut(void *unused, struct jobs_peer *peer)
{
	(void)unused;
	(void)peer;
}

int http_open(const struct net_addr *listen, uv_loop_t *loop, const struct http_sources *sources,
              struct http **out, struct why *why)
{
	(void)loop;
	assert_int_equal(listen->port, 9555);
	assert_ptr_equal(sources->jobs, &notes);
	if (notes.http_err != 0)
		return why_set(why, notes.http_err, "cannot serve HTTP");
	*out = (struct http *)&notes;
	return 0;
}

void http_close(struct http *http)
{
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

void data_move(void *data, uint16_t id, uint32_t rank, uint64_t number)
{
	assert_ptr_equal(data, &notes);
	assert_true(id == 4 && rank == 7);
	notes.moved = number;
}

void data_detach(void *data, uint16_t id)
{
	assert_ptr_equal(data, &notes);
	notes.detached++;
	notes.id = id;
}

void data_stats(struct data *data, struct data_stats *out)
{
	(void)data;
	*out = (struct data_stats){0};
	notes.looks++;
}

const char *offload_share(void *offload, const struct jobs_channel *channel,
                          struct channel_config *channel_config)
{
	(void)offload;
	(void)channel;
	(void)channel_config;
	notes.shared++;
	return "no";
}

bool offload_lost(struct offload *offload)
{
	(void)offload;
	return notes.device_is_gone && !notes.device_lost++;
}

bool offload_works(const struct offload *offload)
{
	(void)offload;
	return !notes.device_is_gone;
}

void offload_unshare(void *offload, uint16_t id)
{
	(void)offload;
	(void)id;
	notes.unshared++;
}

void offload_release(struct offload *offload, uint16_t id)
{
	(void)offload;
	(void)id;
	notes.released++;
}

/* ---- */

static bool reload(struct proof_keys **keys)
{
	*keys = (struct proof_keys *)&config;
	return true;
}

static int begin(void **state)
{
	(void)state;
	memset(&notes, 0, sizeof(notes));
	assert_int_equal(reports_open(&reports), 0);
	config = (struct control_config){
		.listen = {.port = 5555},
		.listen_fd = -1,
		.metrics = {.port = 9555},
		.drain_us = 60000000,
		.data = (struct data *)&notes,
		.reports = &reports,
		.reload = reload,
	};
	return 0;
}

static int end(void **state)
{
	(void)state;
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

static void test_drain(void **state)
{
	(void)state;
	open_control();
	notes.on_tick = terminate;
	assert_int_equal(control_run(control), 0);
	assert_int_equal(notes.drains, 1);
	assert_int_equal(notes.stops, 1);
	assert_string_equal(notes.end_text, "");
	assert_int_equal(notes.connection_ticks, notes.ticks);
	close_control();
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

static void test_drain_waits(void **state)
{
	(void)state;
	open_control();
	notes.jobs = 1;
	notes.connected = true;
	notes.on_tick = jobs_end_by_themselves;
	assert_int_equal(control_run(control), 0);
	assert_string_equal(notes.end_text, "");
	assert_in_range(notes.ticks, 12, 14);
	close_control();
}

static void test_drain_limit(void **state)
{
	uint64_t before_us;

	(void)state;
	config.drain_us = 300000;
	open_control();
	notes.jobs = 1;
	notes.on_tick = terminate;
	before_us = uv_hrtime() / 1000;
	assert_int_equal(control_run(control), 0);
	assert_string_equal(notes.end_text, "the aggregator is shutting down");
	assert_true(uv_hrtime() / 1000 - before_us >= config.drain_us - 50000); /* a tick */
	close_control();
}

static void terminate_twice(void)
{
	if (notes.ticks == 2)
		raise(SIGTERM);
	if (notes.ticks == 5)
		raise(SIGINT);
}

static void test_second_signal(void **state)
{
	(void)state;
	open_control();
	notes.jobs = 1;
	notes.on_tick = terminate_twice;
	assert_int_equal(control_run(control), 0);
	assert_string_equal(notes.end_text, "the aggregator is shutting down");
	assert_int_equal(notes.drains, 1);
	assert_in_range(notes.ticks, 5, 10);
	close_control();
}

static void hang_up(void)
{
	if (notes.ticks == 2)
		raise(SIGHUP);
	if (notes.keys_set == 1 && notes.drains == 0)
		raise(SIGTERM);
}

static void test_reload(void **state)
{
	(void)state;
	open_control();
	notes.on_tick = hang_up;
	assert_int_equal(control_run(control), 0);
	assert_int_equal(notes.keys_set, 1);
	assert_ptr_equal(notes.keys, &config);
	close_control();
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

static void test_stalls(void **state)
{
	(void)state;
	report_stall(6); /* before anybody listens */
	open_control();
	notes.on_tick = stall_and_end;
	assert_int_equal(control_run(control), 0);
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

static void test_port_lost(void **state)
{
	(void)state;
	open_control();
	notes.jobs = 1;
	notes.on_tick = lose_port;
	assert_int_equal(control_run(control), -ENODEV);
	assert_string_equal(notes.end_text, "the aggregator has lost its network port: unplugged");
	close_control();
}

/* What jobs.c asks of the data plane. */
static void test_ports(void **state)
{
	const struct jobs_channel channel = {.id = 3};
	const bool multicast[] = {true};
	struct channel_config wanted = {0};
	struct jobs_heard heard;

	(void)state;
	open_control();
	assert_string_equal(notes.ports.share(notes.ports.kernel, &channel, &wanted), "no");
	assert_int_equal(notes.ports.attach(notes.ports.context, &channel), 0);
	assert_true(notes.shared == 1 && notes.attached == 1 && notes.id == 3 &&
	            notes.released == 0);
	notes.ports.start(notes.ports.data, 4, (struct channel *)&started_channel, multicast);
	assert_true(notes.started == 1 && notes.id == 4);
	notes.ports.heard(notes.ports.data, 4, 7, &heard);
	assert_true(heard.any_us == 4 && heard.whole_us == 7);
	notes.ports.move(notes.ports.data, 4, 7, 99);
	assert_true(notes.moved == 99);
	notes.ports.unshare(notes.ports.kernel, 3);
	assert_int_equal(notes.unshared, 1);
	/* What has no thread is not the kernel's either. */
	notes.attach_err = -ENOMEM;
	assert_int_equal(notes.ports.attach(notes.ports.context, &channel), -ENOMEM);
	assert_int_equal(notes.released, 1);
	close_control();
}

/* ---- opening ---- */

static void test_failures(void **state)
{
	struct why why;

	(void)state;
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_drain, begin, end),
		cmocka_unit_test_setup_teardown(test_drain_waits, begin, end),
		cmocka_unit_test_setup_teardown(test_drain_limit, begin, end),
		cmocka_unit_test_setup_teardown(test_second_signal, begin, end),
		cmocka_unit_test_setup_teardown(test_reload, begin, end),
		cmocka_unit_test_setup_teardown(test_stalls, begin, end),
		cmocka_unit_test_setup_teardown(test_port_lost, begin, end),
		cmocka_unit_test_setup_teardown(test_ports, begin, end),
		cmocka_unit_test_setup_teardown(test_failures, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
