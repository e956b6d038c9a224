/* SPDX-License-Identifier: BSD-3-Clause */
/* test_control_thread.h - control.c on a real loop with real signals; all that it holds together only takes notes */
#ifndef TESTS_UNIT_TEST_CONTROL_THREAD_H
#define TESTS_UNIT_TEST_CONTROL_THREAD_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/connections.h"
#include "aggregator/control.h"
#include "aggregator/http/http.h"
#include "aggregator/parent.h"
#include "tests/unit/unit.h"

#define TICKS_MAX 400 /* 20 s */

/* ---- notes ---- */

static struct {
	struct jobs_ports ports; /* what jobs.c was given */
	uint32_t ticks, connection_ticks, stalls, troubles, drains, keys_set, stops;
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

/* This is no site. */
int parent_open(const struct parent_config *parent, uv_loop_t *loop, struct parent **out,
                struct why *why)
{
	abort();
}

struct upwards *parent_links(const struct parent *parent)
{
	abort();
}

void parent_keys_set(struct parent *parent, const struct job_keys *keys)
{
	abort();
}

void parent_end(struct parent *parent)
{
	abort();
}

void parent_close(struct parent *parent)
{
	abort();
}

void upwards_serve(struct upwards *all, struct jobs_ports *ports)
{
	abort();
}

void upwards_told(struct upwards *all, struct jobs *jobs)
{
	abort();
}

bool upwards_none(const struct upwards *all)
{
	abort();
}

void upwards_answer(struct upwards *all, const uint8_t *data, uint32_t bytes)
{
	abort();
}

void jobs_refused(struct jobs *jobs, uint16_t channel_id, const char *text)
{
	abort();
}

void data_await(struct data *data)
{
}

const char *offload_share(void *offload, const struct jobs_channel *channel,
                          struct channel_config *channel_config)
{
	notes.shared++;
	return "no";
}

bool offload_lost(struct offload *offload)
{
	return notes.device_is_gone;
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

/* ---- one test ---- */

static inline int begin(void **state)
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

static inline int end(void **state)
{
	reports_close(&reports);
	return 0;
}

static inline void open_control(void)
{
	struct why why;

	if (control_open(&config, &control, &why) != 0)
		fail_msg("%s", why.text);
}

static inline void close_control(void)
{
	control_close(control);
	assert_int_equal(notes.closes, 1);
	assert_int_equal(notes.http_closes, 1);
}

/* Until it ends; what happens at a tick ends it. */
static inline void run_control(void (*on_tick)(void))
{
	notes.on_tick = on_tick;
	assert_int_equal(control_run(control), 0);
}

/* SIGTERM with nothing to wait for. */
static inline void terminate(void)
{
	if (notes.ticks == 2)
		raise(SIGTERM);
}

#endif /* TESTS_UNIT_TEST_CONTROL_THREAD_H */
