/* SPDX-License-Identifier: BSD-3-Clause */
/* test_http.h - HTTP on a real loop, and jobs and channels that are made up: the files beneath http*.c are left out */
#ifndef TESTS_UNIT_TEST_HTTP_H
#define TESTS_UNIT_TEST_HTTP_H

#include "tests/unit/test_loop.h"

#include "aggregator/http/http.h"

/* ---- jobs, data threads, the XDP program ---- */

const char *const jobs_refusals[JOBS_REFUSALS] = {"a", "b", "c", "d", "e", "f",
                                                  "g", "h", "i", "j", "k", "l"};

static const uint16_t channel_ids[] = {10, 11, 12};
static struct jobs_totals totals;
static struct channel_stats channel_numbers[3];
static struct channel_view channel_views[3];
static struct channel_waits waits[3][2];
static struct control_seen seen[2], seen_before[2];
static uint64_t seen_over_us[2];
static bool detached[3];

void jobs_totals(const struct jobs *jobs, struct jobs_totals *out)
{
	(void)jobs;
	*out = totals;
}

/* Memberships without channels, beside the job that is made up; totals.jobs counts them. */
static struct jobs_view others[4];

bool jobs_view(const struct jobs *jobs, uint32_t index, struct jobs_view *out)
{
	(void)jobs;
	if (index > 5 && index < 6 + totals.jobs - 1) {
		*out = others[index - 6];
		return true;
	}
	*out = (struct jobs_view){.name = "made-up",
	                          .trouble = "",
	                          .state = "running",
	                          .world = 2,
	                          .joined = 2,
	                          .channel_count = 3,
	                          .channel_ids = channel_ids};
	return index == 5;
}

void jobs_worker(const struct jobs *jobs, uint32_t index, uint32_t rank, struct jobs_worker *out)
{
	(void)jobs;
	assert_true(index >= 5);
	*out = (struct jobs_worker){.state = "ready",
	                            .says = rank == 1 ? "2 rows" : "",
	                            .host = rank == 0 ? "host0" : "host1",
	                            .address = "10.0.0.1:1",
	                            .seen = seen[rank],
	                            .seen_before = seen_before[rank],
	                            .seen_over_us = seen_over_us[rank],
	                            .silent_us = 500000};
}

bool jobs_last_failure(const struct jobs *jobs, struct jobs_failure *out)
{
	(void)jobs;
	*out = (struct jobs_failure){
		.job = "gone", .code = "lost", .text = "rank 1 is lost", .age_us = 2000000};
	return true;
}

const char *data_backend(const struct data *data)
{
	(void)data;
	return "udp";
}

void data_stats(struct data *data, struct data_stats *out)
{
	(void)data;
	*out = (struct data_stats){.net = {.received = 1000}, .unsent = 3};
	out->drops[WIRE_DROP_MAGIC] = 5;
	out->drops[WIRE_DROP_DUPLICATE] = 7;
}

bool data_channel_look(struct data *data, uint16_t id, struct channel_stats *stats,
                       struct channel_view *view, struct channel_waits *out)
{
	uint32_t at = id - 10u;

	(void)data;
	if (detached[at])
		return false;
	*stats = channel_numbers[at];
	*view = channel_views[at];
	for (uint32_t rank = 0; rank < 2; rank++)
		if (waits[at][rank].late_us >= out[rank].late_us)
			out[rank] = waits[at][rank];
	return true;
}

void offload_counters(const struct offload *offload, uint64_t out[FAST_COUNTER_COUNT])
{
	(void)offload;
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
	(void)offload;
	return "no";
}

/* ---- */

static struct http *http;
static struct http_sources sources;
static struct net_addr address;

static inline int begin(void **state)
{
	struct why why;

	(void)state;
	totals = (struct jobs_totals){.jobs = 1, .bytes = 4096, .bytes_max = 1 << 20, .peers = 2};
	totals.refused[1] = 17;
	memset(channel_numbers, 0, sizeof(channel_numbers));
	memset(channel_views, 0, sizeof(channel_views));
	memset(detached, 0, sizeof(detached));
	memset(waits, 0, sizeof(waits));
	sources =
		(struct http_sources){.threads = 3, .rcvbuf_bytes = 65536, .bytes_from = "option"};
	address = free_address();
	assert_int_equal(uv_loop_init(&loop), 0);
	if (http_open(&address, &loop, &sources, &http, &why) != 0)
		fail_msg("%s", why.text);
	return 0;
}

static inline int end(void **state)
{
	(void)state;
	loop_end();
	http_close(http);
	return 0;
}

static char heard[1u << 20];

/* The whole answer to a request. */
static inline const char *ask(int fd, const char *method, const char *path)
{
	char request[256];
	size_t used = 0;

	snprintf(request, sizeof(request), "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
	         method, path);
	say_text(fd, request);
	heard[0] = '\0';
	UNTIL(hear(fd, heard, sizeof(heard), &used) >= 0);
	close(fd);
	return heard;
}

static inline const char *get(const char *path)
{
	return ask(dial(&address, 1), "GET", path);
}

static inline void expect_answer(const char *answer, const char *status, const char *body)
{
	if (strncmp(answer, status, strlen(status)) != 0 || strstr(answer, body) == NULL)
		fail_msg("want %s and '%s': %s", status, body, answer);
}

#define OK "HTTP/1.1 200 "

#endif /* TESTS_UNIT_TEST_HTTP_H */
