/* SPDX-License-Identifier: BSD-3-Clause */
/* test_http.h - HTTP on a real loop, and jobs and channels that are made up: the files beneath http*.c are left out */
#ifndef TESTS_UNIT_TEST_HTTP_H
#define TESTS_UNIT_TEST_HTTP_H

#include "tests/unit/test_loop.h"

#include "aggregator/http/http.h"

/* ---- jobs, data threads, the XDP program ---- */

const char *const jobs_refusals[JOBS_REFUSALS] = {"a", "b", "c", "d", "e", "f",
                                                  "g", "h", "i", "j", "k", "l"};

static struct jobs_totals totals;
static struct channel_stats channel_numbers[3];
static struct channel_view channel_views[3];
static struct channel_waits waits[3][2];
static struct control_seen seen[2], seen_before[2];
static uint64_t seen_over_us[2];
static bool detached[3];
static _Atomic uint64_t
	jobs_started;           /* in place of what `totals` says, which others read meanwhile */
static _Atomic uint32_t copies; /* that the control loop was asked for, */
static bool answers;            /* and whether it gives any */

static struct jobs_worker worker_of(uint32_t rank)
{
	struct jobs_worker worker = {.state = "ready",
	                             .address = "10.0.0.1:1",
	                             .seen = seen[rank],
	                             .seen_before = seen_before[rank],
	                             .seen_over_us = seen_over_us[rank],
	                             .silent_us = 500000};

	snprintf(worker.host, sizeof(worker.host), "host%u", rank);
	snprintf(worker.says, sizeof(worker.says), "%s", rank == 1 ? "2 rows" : "");
	return worker;
}

/* Memberships without channels, beside the job that is made up; totals.jobs counts them. */
static struct jobs_view others[4];
#define OTHERS_WORLD_MAX 6

static struct jobs_copy *copy_made(void *context)
{
	struct jobs_copy *copy;
	struct jobs_worker *workers;

	assert_ptr_equal(context, &totals);
	copies++;
	if (!answers)
		return NULL;
	copy = calloc(1, sizeof(*copy) + totals.jobs * sizeof(copy->jobs[0]) +
	                         OTHERS_WORLD_MAX * sizeof(*workers));
	workers = (struct jobs_worker *)(void *)&copy->jobs[totals.jobs];
	copy->totals = totals;
	copy->totals.jobs_started = jobs_started;
	copy->failed = true;
	copy->failure = (struct jobs_failure){
		.job = "gone", .code = "lost", .text = "rank 1 is lost", .age_us = 2000000};
	copy->job_count = totals.jobs;
	copy->jobs[0].view = (struct jobs_view){.name = "made-up",
	                                        .state = JOB_RUNNING,
	                                        .world = 2,
	                                        .joined = 2,
	                                        .channel_count = 3,
	                                        .channel_ids = {10, 11, 12},
	                                        .group_token = 4711};
	copy->jobs[0].workers = workers;
	workers[0] = worker_of(0);
	workers[1] = worker_of(1);
	for (uint32_t rank = 2; rank < OTHERS_WORLD_MAX; rank++)
		workers[rank].state = "missing";
	for (uint32_t i = 1; i < copy->job_count; i++) {
		copy->jobs[i].view = others[i - 1];
		copy->jobs[i].workers = workers; /* as if they were the same */
	}
	return copy;
}

const char *data_backend(const struct data *data)
{
	return "udp";
}

void data_look(struct data *data, struct data_look looks[], uint32_t count, struct data_stats *out)
{
	*out = (struct data_stats){.net = {.received = 1000}, .unsent = 3};
	out->drops[WIRE_DROP_MAGIC] = 5;
	out->drops[WIRE_DROP_DUPLICATE] = 7;
	assert_int_equal(count, 3);
	for (uint32_t i = 0; i < count; i++) {
		struct data_look *look = &looks[i];
		const uint32_t at = look->id - 10u;

		assert_true(look->group_token == 4711 && look->worker_count == 2);
		look->found = !detached[at];
		if (!look->found)
			continue;
		look->stats = channel_numbers[at];
		look->view = channel_views[at];
		for (uint32_t rank = 0; rank < 2; rank++)
			if (waits[at][rank].late_us >= look->waits[rank].late_us)
				look->waits[rank] = waits[at][rank];
	}
}

void offload_counters(const struct offload *offload, uint64_t out[FAST_COUNTER_COUNT])
{
	memset(out, 0, FAST_COUNTER_COUNT * sizeof(*out));
	out[WIRE_DROP_MAGIC] = 100;
	out[WIRE_DROP_DUPLICATE] = 200; /* counted by the channels already */
}

bool offload_works(const struct offload *offload)
{
	return offload != NULL;
}

const char *offload_describe(const struct offload *offload)
{
	return "no";
}

/* ---- */

static struct http *http;
static struct http_pulse pulse;
static struct http_sources sources;
static struct net_addr address;

static inline int begin(void **state)
{
	struct why why;
	totals = (struct jobs_totals){.jobs = 1, .bytes = 4096, .bytes_max = 1 << 20, .peers = 2};
	totals.refused[1] = 17;
	memset(channel_numbers, 0, sizeof(channel_numbers));
	memset(channel_views, 0, sizeof(channel_views));
	memset(detached, 0, sizeof(detached));
	memset(waits, 0, sizeof(waits));
	answers = true;
	copies = 0;
	jobs_started = 0;
	atomic_store(&pulse.turned_us, uv_hrtime() / 1000);
	atomic_store(&pulse.draining, false);
	sources = (struct http_sources){.copy = copy_made,
	                                .context = &totals,
	                                .pulse = &pulse,
	                                .threads = 3,
	                                .rcvbuf_bytes = 65536,
	                                .bytes_from = "option"};
	address = free_address();
	assert_int_equal(uv_loop_init(&loop), 0); /* for UNTIL(): there is nothing on it */
	if (http_open(&address, &sources, &http, &why) != 0)
		fail_msg("%s", why.text);
	return 0;
}

static inline int end(void **state)
{
	http_close(http);
	loop_end();
	return 0;
}

static char heard[1u << 20];

static inline void ask_only(int fd, const char *method, const char *path, const char *host)
{
	char request[512];

	snprintf(request, sizeof(request),
	         "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", method, path, host);
	say_text(fd, request);
}

static inline const char *answer_of(int fd)
{
	size_t used = 0;

	heard[0] = '\0';
	UNTIL(hear(fd, heard, sizeof(heard), &used) >= 0);
	close(fd);
	return heard;
}

/* The whole answer to a request. */
static inline const char *ask(int fd, const char *method, const char *path)
{
	ask_only(fd, method, path, "localhost:9555");
	return answer_of(fd);
}

/* A page is one that was made since. */
static inline const char *get(const char *path)
{
	const bool page = strcmp(path, "/metrics") == 0 || strcmp(path, "/status") == 0;
	const uint32_t before = copies;
	const char *answer;

	do
		answer = ask(dial(&address, 1), "GET", path);
	while (page && copies == before);
	return answer;
}

static inline void expect_answer(const char *answer, const char *status, const char *body)
{
	if (strncmp(answer, status, strlen(status)) != 0 || strstr(answer, body) == NULL)
		fail_msg("want %s and '%s': %s", status, body, answer);
}

#define OK "HTTP/1.1 200 "

#endif /* TESTS_UNIT_TEST_HTTP_H */
