/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_jobs.h - the control plane with workers and a data plane that only take notes
 *
 * Every line that jobs.c sends must parse; every port call must make sense: a peer is closed once,
 * a channel attached once and detached if attached.
 */
#ifndef TESTS_UNIT_TEST_JOBS_H
#define TESTS_UNIT_TEST_JOBS_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/jobs/jobs.h"
#include "tests/check/check.h"
#include "tests/unit/test_random.h"
#include "tests/unit/unit.h"

#define WORKERS 8
#define INBOX_MAX 16
#define CHANNELS_MAX 2048
#define PAYLOAD 1472

struct worker {
	struct jobs_peer *peer;
	bool closed;
	bool many; /* stands for many peers: what they are told is not kept */
	struct control_message inbox[INBOX_MAX];
	uint32_t read, written;
};

struct bench {
	struct jobs *jobs;
	struct jobs_config config;
	uint64_t now_us;
	struct worker workers[WORKERS];
	uint32_t logged;        /* lines */
	uint32_t address_count; /* of ours: worker i uses i modulo this; 0: each its own */
	uint32_t six_from;      /* and from this one on an IPv6 one; 0: none does */
	uint32_t attach_left;   /* calls that succeed */
	uint32_t attached_count;
	struct jobs_channel attached[CHANNELS_MAX];
	uint32_t started;
	uint32_t start_window;
	bool start_multicast[4];
	struct fast_channel fast; /* lent to one channel, */
	struct fast_slot *slots;  /* if not NULL */
	int lent;                 /* its number; -1: to none */
	struct jobs_heard heard;  /* of any worker's KNOCKs */
	uint32_t upward_count;    /* a site's links to its parent */
	int up_err;               /* of port_up_join() */
};

/* ---- ports ---- */

static inline void port_send(void *context, struct jobs_peer *peer, const char *line)
{
	struct worker *w = jobs_peer_handle(peer);
	char text[8192];
	struct why why;
	if (w->many)
		return;
	assert_false(w->closed);
	assert_true(w->written - w->read < INBOX_MAX);
	assert_true(strlen(line) < sizeof(text) && line[strlen(line) - 1] == '\n');
	snprintf(text, sizeof(text), "%.*s", (int)strlen(line) - 1, line);
	assert_int_equal(message_parse(text, &w->inbox[w->written++ % INBOX_MAX], &why), 0);
}

static inline void port_close(void *context, struct jobs_peer *peer)
{
	struct worker *w = jobs_peer_handle(peer);
	assert_true(w->many || !w->closed);
	w->closed = true;
}

static inline int port_attach(void *context, const struct jobs_channel *channel)
{
	struct bench *b = context;

	if (b->attach_left == 0)
		return -ENOMEM;
	b->attach_left--;
	assert_true(b->attached_count < CHANNELS_MAX);
	for (uint32_t i = 0; i < b->attached_count; i++)
		assert_int_not_equal(b->attached[i].id, channel->id);
	b->attached[b->attached_count++] = *channel;
	return 0;
}

static inline const char *port_share(void *context, const struct jobs_channel *channel,
                                     struct channel_config *config)
{
	struct bench *b = context;

	if (b->slots == NULL || b->lent >= 0)
		return "no slots";
	b->lent = channel->id;
	config->fast = &b->fast;
	config->fast_slots = b->slots;
	return NULL;
}

static inline void port_unshare(void *context, uint16_t id)
{
	struct bench *b = context;

	assert_int_equal(b->lent, id);
	b->lent = -1;
}

static inline void port_start(void *context, uint16_t id, struct channel *channel,
                              const bool multicast[])
{
	struct bench *b = context;
	struct channel_view view;

	for (uint32_t i = 0; i < b->attached_count; i++)
		b->started += b->attached[i].id == id;
	channel_look(channel, b->now_us, &view);
	b->start_window = view.slots;
	memcpy(b->start_multicast, multicast,
	       b->attached[0].worker_count * sizeof(b->start_multicast[0]));
}

static inline void port_heard(void *context, uint16_t id, uint32_t rank, struct jobs_heard *out)
{
	struct bench *b = context;

	assert_true(id == b->attached[1].id && rank == 1);
	*out = b->heard;
}

static inline void port_detach(void *context, uint16_t id)
{
	struct bench *b = context;
	uint32_t at = 0;

	while (at < b->attached_count && b->attached[at].id != id)
		at++;
	assert_true(at < b->attached_count);
	b->attached[at] = b->attached[--b->attached_count];
	if (b->lent == id)
		b->lent = -1;
}

static inline int port_seal_key(struct jobs_peer *peer, const char *membership,
                                struct seal_key *out)
{
	*out = (struct seal_key){{(uintptr_t)jobs_peer_handle(peer), strlen(membership)}};
	return 0;
}

static inline void port_random(void *context, void *out, size_t bytes)
{
	uint8_t *to = out;
	for (size_t i = 0; i < bytes; i++)
		to[i] = (uint8_t)random_bits();
}

static inline void port_log(void *context, const char *level, const char *event,
                            const struct log_field fields[], const char *text)
{
	((struct bench *)context)->logged++;
	assert_true(strcmp(level, "info") == 0 || strcmp(level, "warn") == 0);
	assert_true(event[0] != '\0' && (fields != NULL || text != NULL));
}

static inline int port_up_join(void *up, struct jobs_peer *peer, const struct control_message *join)
{
	assert_true(((struct worker *)jobs_peer_handle(peer))->peer == peer && join->world > 0);
	if (((struct bench *)up)->up_err != 0)
		return ((struct bench *)up)->up_err;
	((struct bench *)up)->upward_count++;
	return 0;
}

static inline void port_up_late(void *up, const struct jobs_peer *peer,
                                char text[CONTROL_TEXT_BYTES])
{
	text[0] = '\0';
}

static inline void port_up_end(void *up, const struct jobs_peer *peer, enum jobs_up_end how,
                               const char *code, const char *text)
{
	assert_true(peer != NULL && (how != JOBS_UP_ABORT || (*code != '\0' && *text != '\0')));
	((struct bench *)up)->upward_count--;
}

/* ---- opening ---- */

static inline struct jobs_config config_usual(void)
{
	return (struct jobs_config){
		.software = "test",
		.threads = 2,
		.peers_max = 6,
		.jobs_max = 3,
		.workers_max = 4,
		.job_bytes_max = 64 << 20,
		.bytes_max = 128 << 20,
		.payload_max = PAYLOAD,
		.window_bytes = 32 * PAYLOAD,
		.rcvbuf_bytes = 1 << 20,
		.op_slots = 2,
		.segments_ahead = 2,
		.join_us = 10000000,
		.hello_us = 2000000,
		.engine = bitmap_best(),
	};
}

static inline struct bench *bench_open(const struct jobs_config *config)
{
	struct bench *b = calloc(1, sizeof(*b));
	struct jobs_ports ports = {
		.context = b,
		.kernel = b,
		.data = b,
		.send = port_send,
		.close = port_close,
		.attach = port_attach,
		.share = port_share,
		.unshare = port_unshare,
		.start = port_start,
		.heard = port_heard,
		.detach = port_detach,
		.seal_key = port_seal_key,
		.random = port_random,
		.log = port_log,
		.up = b,
		.up_join = port_up_join,
		.up_late = port_up_late,
		.up_end = port_up_end,
	};

	assert_non_null(b);
	b->config = *config;
	b->now_us = 1000000;
	b->attach_left = UINT32_MAX;
	b->lent = -1;
	assert_int_equal(jobs_open(config, &ports, &b->jobs), 0);
	jobs_tick(b->jobs, b->now_us);
	return b;
}

/* Of 6 connections and 3 jobs. */
static inline struct bench *usual_open(void)
{
	struct jobs_config config = config_usual();

	return bench_open(&config);
}

/* Whatever a test left behind, nothing of it stays. */
static inline void bench_close(struct bench *b)
{
	struct jobs_totals totals;

	jobs_end(b->jobs, "the test is over");
	jobs_totals(b->jobs, &totals);
	assert_int_equal(totals.bytes, 0);
	assert_int_equal(totals.jobs, 0);
	assert_int_equal(totals.peers, 0);
	assert_int_equal(b->attached_count, 0);
	assert_int_equal(b->lent, -1);
	assert_int_equal(b->upward_count, 0);
	jobs_close(b->jobs);
	free(b->slots);
	free(b);
}

#define BENCH_TEST(name) TEST_ON(name, struct bench *, b, usual_open(), bench_close(b))

static inline struct jobs_totals totals_of(const struct bench *b)
{
	struct jobs_totals totals;

	jobs_check(b->jobs);
	jobs_totals(b->jobs, &totals);
	return totals;
}

/* ---- talking ---- */

static inline void tick(struct bench *b, uint64_t us)
{
	b->now_us += us;
	jobs_tick(b->jobs, b->now_us);
	jobs_check(b->jobs);
}

/* The next line to worker `i` is of this kind. */
static inline const struct control_message *expect_line(struct bench *b, uint32_t i,
                                                        enum control_kind kind)
{
	struct worker *w = &b->workers[i];

	assert_true(w->read != w->written);
	assert_int_equal(w->inbox[w->read % INBOX_MAX].kind, kind);
	return &w->inbox[w->read++ % INBOX_MAX];
}

static inline void expect_silence(const struct bench *b, uint32_t i)
{
	jobs_check(b->jobs);
	assert_int_equal(b->workers[i].read, b->workers[i].written);
}

static inline void read_pings(struct bench *b, uint32_t i)
{
	struct worker *w = &b->workers[i];

	while (w->read != w->written && w->inbox[w->read % INBOX_MAX].kind == CONTROL_PING)
		w->read++;
}

/* The last word: why, about whom, and the connection is closed; by a worker that does not continue where it could. */
static inline const struct control_message *expect_end(struct bench *b, uint32_t i,
                                                       const char *code, uint32_t rank)
{
	const struct control_message *m = expect_line(b, i, CONTROL_FAILED);

	assert_string_equal(m->code, code);
	assert_int_equal(m->rank, rank);
	assert_true(strlen(m->text) > 10);
	if (!b->workers[i].closed)
		read_pings(b, i);
	expect_silence(b, i);
	if (message_code_continues(code) && !b->workers[i].closed)
		jobs_gone(b->jobs, b->workers[i].peer, "closed");
	assert_true(b->workers[i].closed);
	return m;
}

static inline void say(struct bench *b, uint32_t i, const struct control_message *message)
{
	char *line = message_format(message);

	assert_non_null(line);
	line[strlen(line) - 1] = 0;
	jobs_line(b->jobs, b->workers[i].peer, line, b->now_us);
	jobs_check(b->jobs);
	free(line);
}

static inline void say_kind(struct bench *b, uint32_t i, enum control_kind kind)
{
	struct control_message message = {.kind = kind, .payload = PAYLOAD};

	say(b, i, &message);
}

/* For so many seconds; these are alive, as bits. */
static inline void wait(struct bench *b, uint32_t seconds, uint32_t alive)
{
	for (; seconds > 0; seconds--) {
		tick(b, 1000000);
		for (uint32_t i = 0; alive >> i != 0; i++) {
			read_pings(b, i);
			if (alive >> i & 1 && !b->workers[i].closed)
				say_kind(b, i, CONTROL_PING);
		}
	}
}

/* From this address. False: there was no room. */
static inline bool connect_from(struct bench *b, uint32_t i, uint32_t ip)
{
	const struct net_addr from = {.ip = net_ipv4(ip), .port = (uint16_t)(1000 + i)};
	struct net_ip local =
		net_ipv4(0x7f000001 + (b->address_count > 0 ? i % b->address_count : i));
	struct worker *w = &b->workers[i];

	if (b->six_from > 0 && i >= b->six_from)
		local = (struct net_ip){.bytes = {0xfd, [15] = 1}};
	*w = (struct worker){0};
	w->peer = jobs_connected(b->jobs, &from, &local, w, b->now_us);
	jobs_check(b->jobs);
	return w->peer != NULL;
}

static inline void connect_worker(struct bench *b, uint32_t i)
{
	assert_true(connect_from(b, i, 0x0a000001 + i));
	expect_line(b, i, CONTROL_HELLO);
}

/* It shows that it knows the key of this name, for which a number stands. */
static inline void connect_secured(struct bench *b, uint32_t i, const char *name, uint64_t owner)
{
	assert_true(connect_from(b, i, 0x0a000001 + i));
	expect_silence(b, i);
	jobs_secured(b->jobs, b->workers[i].peer, name, owner);
	jobs_check(b->jobs);
	expect_line(b, i, CONTROL_HELLO);
}

static inline struct control_message join_of(const char *job, uint32_t rank, uint32_t world)
{
	struct control_message join = {
		.kind = CONTROL_JOIN,
		.version = WIRE_VERSION,
		.software = "test",
		.rank = rank,
		.world = world,
		.payload = PAYLOAD,
		.rcvbuf = 1 << 20,
		.silence_ms = 4000,
		.stall_ms = 60000,
	};

	snprintf(join.job, sizeof(join.job), "%s", job);
	snprintf(join.host, sizeof(join.host), "host%u", rank);
	return join;
}

/* Worker `i` connects, and says this first. */
static inline void join_by(struct bench *b, uint32_t i, const struct control_message *message)
{
	connect_worker(b, i);
	say(b, i, message);
}

static inline void join(struct bench *b, uint32_t i, const char *job, uint32_t rank, uint32_t world)
{
	const struct control_message message = join_of(job, rank, world);

	join_by(b, i, &message);
}

/* Workers [first, first + world) have joined: all have their WELCOME, and are ready. */
static inline void expect_running(struct bench *b, uint32_t first, uint32_t world)
{
	for (uint32_t i = first; i < first + world; i++)
		expect_line(b, i, CONTROL_WELCOME);
	for (uint32_t i = first; i < first + world; i++)
		say_kind(b, i, CONTROL_READY);
	for (uint32_t i = first; i < first + world; i++)
		expect_line(b, i, CONTROL_START);
}

/* Workers [first, first + world) form a job; all have their WELCOME. */
static inline void job_probing(struct bench *b, uint32_t first, const char *job, uint32_t world)
{
	for (uint32_t rank = 0; rank < world; rank++)
		join(b, first + rank, job, rank, world);
	for (uint32_t rank = 0; rank < world; rank++)
		expect_line(b, first + rank, CONTROL_WELCOME);
}

static inline void job_running(struct bench *b, uint32_t first, const char *job, uint32_t world)
{
	for (uint32_t rank = 0; rank < world; rank++)
		join(b, first + rank, job, rank, world);
	expect_running(b, first, world);
}

/* The job of three is over: the others are told of rank 1, nothing is left. */
static inline void expect_lost(struct bench *b, const char *code, const char *word)
{
	for (uint32_t i = 0; i < 3; i += 2) {
		const struct control_message *m = expect_end(b, i, code, 1);

		assert_non_null(strstr(m->text, "rank 1"));
		assert_non_null(strstr(m->text, "host1"));
		assert_non_null(strstr(m->text, word));
	}
	assert_true(b->workers[1].closed);
	assert_int_equal(b->attached_count, 0);
	assert_int_equal(totals_of(b).jobs, 0);
	assert_int_equal(totals_of(b).peers, 0);
	assert_int_equal(totals_of(b).bytes, 0);
	assert_int_equal(totals_of(b).jobs_failed, 1);
	bench_close(b);
}

#endif /* TESTS_UNIT_TEST_JOBS_H */
