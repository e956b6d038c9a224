// SPDX-License-Identifier: BSD-3-Clause
/* test_http.c - what HTTP says of jobs and channels made up here, and whom it answers when strangers hold all they can */

#include "tests/unit/test_loop.h"

#include <jansson.h>

#include "aggregator/http.h"
#include "aggregator/log.h"

#define STRANGERS 1000

/* ---- jobs, data threads, the XDP program ---- */

const char *const jobs_refusals[JOBS_REFUSALS] = {"a", "b", "c", "d", "e", "f",
                                                  "g", "h", "i", "j", "k", "l"};

static const uint16_t channel_ids[] = {10, 11, 12};
static struct jobs_totals totals;
static struct channel_stats channel_numbers[3];
static struct channel_view channel_views[3];
static uint64_t late_us[3][2];
static bool detached[3];

void jobs_totals(const struct jobs *jobs, struct jobs_totals *out)
{
	(void)jobs;
	*out = totals;
}

bool jobs_view(const struct jobs *jobs, uint32_t index, struct jobs_view *out)
{
	(void)jobs;
	*out = (struct jobs_view){.name = "made-up",
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
	assert_int_equal(index, 5);
	*out = (struct jobs_worker){.state = "ready",
	                            .host = rank == 0 ? "host0" : "host1",
	                            .address = "10.0.0.1:1",
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
                       struct channel_view *view, uint64_t *late)
{
	uint32_t at = id - 10u;

	(void)data;
	if (detached[at])
		return false;
	*stats = channel_numbers[at];
	*view = channel_views[at];
	for (uint32_t rank = 0; rank < 2; rank++)
		late[rank] = late_us[at][rank] > late[rank] ? late_us[at][rank] : late[rank];
	return true;
}

void offload_counters(const struct offload *offload, uint64_t out[FAST_COUNTER_COUNT])
{
	(void)offload;
	memset(out, 0, FAST_COUNTER_COUNT * sizeof(*out));
	out[WIRE_DROP_MAGIC] = 100;
	out[WIRE_DROP_DUPLICATE] = 200; /* counted by the channels already */
}

const char *offload_describe(const struct offload *offload, char text[XDP_WHY_BYTES])
{
	(void)offload;
	(void)text;
	return "no";
}

/* ---- */

static struct http *http;
static struct http_sources sources;
static struct net_addr address;

static int begin(void **state)
{
	char why[NET_WHY_BYTES];

	(void)state;
	totals = (struct jobs_totals){.jobs = 1, .bytes = 4096, .bytes_max = 1 << 20, .peers = 2};
	totals.refused[1] = 17;
	memset(channel_numbers, 0, sizeof(channel_numbers));
	memset(channel_views, 0, sizeof(channel_views));
	memset(detached, 0, sizeof(detached));
	sources =
		(struct http_sources){.threads = 3, .rcvbuf_bytes = 65536, .bytes_from = "option"};
	address = free_address();
	assert_int_equal(uv_loop_init(&loop), 0);
	if (http_open(&address, &loop, &sources, &http, why) != 0)
		fail_msg("%s", why);
	return 0;
}

static int end(void **state)
{
	(void)state;
	loop_end();
	http_close(http);
	return 0;
}

static char heard[1u << 20];

/* The whole answer to a request. */
static const char *ask(int fd, const char *method, const char *path)
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

static const char *get(const char *path)
{
	return ask(dial(&address, 1), "GET", path);
}

static void expect_answer(const char *answer, const char *status, const char *body)
{
	if (strncmp(answer, status, strlen(status)) != 0 || strstr(answer, body) == NULL)
		fail_msg("want %s and '%s': %s", status, body, answer);
}

#define OK "HTTP/1.1 200 "

static void test_paths(void **state)
{
	(void)state;
	expect_answer(get("/healthz"), OK, "\r\n\r\nok\n");
	expect_answer(get("/readyz"), OK, "ready\n");
	expect_answer(get("/metrics"), OK, "winnow_jobs 1\n");
	expect_answer(get("/metrics"), OK, "Content-Type: text/plain; version=0.0.4\r\n");
	expect_answer(get("/status"), OK, "Content-Type: application/json\r\n");
	expect_answer(get("/"), "HTTP/1.1 404 ", "try /metrics");
	expect_answer(get("/../../etc/passwd"), "HTTP/1.1 404 ", "try /metrics");
	expect_answer(ask(dial(&address, 1), "POST", "/status"), "HTTP/1.1 405 ", "only GET");
	expect_answer(ask(dial(&address, 1), "HEAD", "/healthz"), OK, "Content-Length: 3\r\n");
	totals.draining = true;
	expect_answer(get("/readyz"), "HTTP/1.1 503 ", "draining\n");
	expect_answer(get("/healthz"), OK, "ok\n");
}

/* ---- numbers ---- */

static json_t *status_job(void)
{
	json_t *root = json_loads(strstr(get("/status"), "\r\n\r\n"), 0, NULL), *job;

	assert_non_null(root);
	job = json_incref(json_array_get(json_object_get(root, "jobs"), 0));
	assert_int_equal(json_array_size(json_object_get(root, "jobs")), 1);
	json_decref(root);
	return job;
}

static double number(const json_t *object, const char *name)
{
	const json_t *value = json_object_get(object, name);

	if (!json_is_number(value))
		fail_msg("no number '%s'", name);
	return json_number_value(value);
}

/* Whole operations are on all channels, an eager one on one of them. */
static void test_operations(void **state)
{
	json_t *job;

	(void)state;
	channel_numbers[0] = (struct channel_stats){.operations = 12,
	                                            .eager = 4,
	                                            .blocks = 100,
	                                            .blocks_nonzero = 10,
	                                            .blocks_owned = 12};
	channel_numbers[1] = (struct channel_stats){.operations = 10,
	                                            .eager = 1,
	                                            .blocks = 100,
	                                            .blocks_nonzero = 30,
	                                            .blocks_owned = 40};
	channel_numbers[2] = (struct channel_stats){.operations = 8, .eager = 0};
	job = status_job();
	assert_true(number(job, "operations") == 9 + 5);
	assert_true(number(job, "blocks") == 200 && number(job, "blocks_nonzero") == 40);
	assert_true(number(job, "union") == 0.2 && number(job, "density") == 0.13);
	json_decref(job);
	expect_answer(get("/metrics"), OK, "winnow_allreduce_total{job=\"made-up\"} 14\n");
	/* One that is on its way out is left out. */
	detached[1] = true;
	job = status_job();
	assert_true(number(job, "operations") == 8 + 4);
	json_decref(job);
}

/* The oldest operation is on one channel, most are on another, the longest wait on a third. */
static void test_views(void **state)
{
	const json_t *operation, *waiting;
	json_t *job;

	(void)state;
	channel_views[0] = (struct channel_view){.operations = 2,
	                                         .age_us = 100,
	                                         .tag = 1,
	                                         .slots = 64,
	                                         .slots_used = 4,
	                                         .dtype = DTYPE_F32,
	                                         .reduction = REDUCE_SUM,
	                                         .count = 1};
	channel_views[1] = (struct channel_view){.operations = 1,
	                                         .age_us = 900000,
	                                         .tag = 0x77,
	                                         .slots = 64,
	                                         .slots_used = 9,
	                                         .dtype = DTYPE_F32,
	                                         .reduction = REDUCE_SUM,
	                                         .count = 2};
	channel_views[1].wait.stall = (struct channel_stall){.missing = 1, .waited_us = 1000};
	channel_views[2] = (struct channel_view){.operations = 5,
	                                         .age_us = 300,
	                                         .tag = 2,
	                                         .slots = 64,
	                                         .dtype = DTYPE_F32,
	                                         .reduction = REDUCE_SUM,
	                                         .count = 3};
	channel_views[2].wait = (struct channel_wait){
		.stall = {.missing = 2, .waited_us = 2500000}, .rank_count = 1, .ranks = {1}};
	job = status_job();
	operation = json_object_get(job, "operation");
	waiting = json_object_get(job, "waiting");
	assert_string_equal(json_string_value(json_object_get(operation, "tag")), "0x77");
	assert_true(number(operation, "age_s") == 0.9 && number(operation, "count") == 2);
	assert_true(number(job, "under_way") == 5);
	assert_true(number(waiting, "waited_s") == 2.5 && number(waiting, "missing") == 2);
	assert_true(number(json_object_get(job, "slots"), "total") == 192);
	assert_true(number(json_object_get(job, "slots"), "used") == 13);
	json_decref(job);
	expect_answer(get("/metrics"), OK, "winnow_job_wait_seconds{job=\"made-up\"} 2.5\n");
	/* The other way round. */
	channel_views[0].operations = 9;
	channel_views[0].age_us = 1000000;
	channel_views[2].wait.stall.missing = 0;
	job = status_job();
	assert_true(number(job, "under_way") == 9);
	assert_string_equal(
		json_string_value(json_object_get(json_object_get(job, "operation"), "tag")),
		"0x1");
	assert_true(number(json_object_get(job, "waiting"), "waited_s") == 0.001);
	json_decref(job);
}

/* Of whole operations the first channel's times, of eager ones all channels'. */
static void test_times(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 3; i++) {
		channel_numbers[i].times[0] = 3 + i;
		channel_numbers[i].times_us = 100;
		channel_numbers[i].eager_times[CHANNEL_TIMES] = 2;
		channel_numbers[i].eager_times_us = 1000000;
		late_us[i][1] = i * 500000;
	}
	expect_answer(get("/metrics"), OK,
	              "winnow_allreduce_duration_seconds_count{job=\"made-up\"} 9\n");
	expect_answer(get("/metrics"), OK,
	              "winnow_allreduce_duration_seconds_sum{job=\"made-up\"} 3.000100\n");
	expect_answer(get("/metrics"), OK,
	              "winnow_straggler_seconds_total{job=\"made-up\",rank=\"1\"} 1.000000\n");
}

/* Each drop is counted once. */
static void test_drops(void **state)
{
	json_t *root, *drops;

	(void)state;
	channel_numbers[0].drops[WIRE_DROP_MAGIC] = 1000;
	channel_numbers[2].drops[WIRE_DROP_DUPLICATE] = 4000;
	root = json_loads(strstr(get("/status"), "\r\n\r\n"), 0, NULL);
	drops = json_object_get(root, "drops");
	assert_true(number(drops, drop_name(WIRE_DROP_MAGIC)) == 1105);
	assert_true(number(drops, drop_name(WIRE_DROP_DUPLICATE)) == 4007);
	assert_true(number(root, "memory_limit_bytes") == 1 << 20 &&
	            number(root, "rcvbuf_bytes") == 65536);
	assert_string_equal(json_string_value(json_object_get(root, "memory_limit_from")),
	                    "option");
	assert_true(number(json_object_get(root, "last_failure"), "age_s") == 2);
	json_decref(root);
	expect_answer(get("/metrics"), OK, "winnow_joins_refused_total{reason=\"b\"} 17\n");
}

/* Nothing writes the log here: the queue is full some time, and the rest is lost. */
static void test_lines_lost(void **state)
{
	char line[64];

	(void)state;
	for (uint32_t i = 0; log_lines_lost() < 10; i++)
		log_event("error", "event=nobody number=%u", i);
	snprintf(line, sizeof(line), "winnow_log_lines_lost_total 10\n");
	expect_answer(get("/metrics"), OK, line);
	expect_answer(get("/status"), OK, "\"log_lines_lost\": 10");
}

/* ---- strangers ---- */

static uint32_t descriptors(void)
{
	uint32_t count = 0;

	for (int fd = 0; fd < 4096; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/*
 * A thousand connections that ask nothing, or that begin and do not end: who asks is answered, from
 * another address and from the same; and no more are held than there may be.
 */
static void test_idle(void **state)
{
	static int strangers[STRANGERS];
	uint32_t before = descriptors();

	(void)state;
	for (uint32_t i = 0; i < STRANGERS; i++) {
		strangers[i] = dial(&address, 1);
		if (i % 2 == 0)
			say_text(strangers[i], "GET /healthz HTTP/1.1\r\nX-More: ");
		turn();
		if (i % 100 == 99)
			expect_answer(get("/healthz"), OK, "ok\n");
	}
	turns(20);
	assert_in_range(descriptors() - before - STRANGERS, 0, HTTP_CONNECTIONS_MAX);
	for (uint32_t i = 0; i < 20; i++)
		expect_answer(ask(dial(&address, i % 2 == 0 ? 1 : 2), "GET", "/healthz"), OK,
		              "ok\n");
	expect_answer(get("/status"), OK, "made-up");
	for (uint32_t i = 0; i < STRANGERS; i++)
		close(strangers[i]);
	turns(50);
	assert_in_range(descriptors(), before, before + 2);
}

/* Whoever is slow to ask is not pushed out by an address that has more. */
static void test_share(void **state)
{
	static int strangers[STRANGERS];
	int slow = dial(&address, 3);

	(void)state;
	for (uint32_t i = 0; i < STRANGERS; i++) {
		strangers[i] = dial(&address, 2);
		turn();
	}
	expect_answer(ask(slow, "GET", "/readyz"), OK, "ready\n");
	for (uint32_t i = 0; i < STRANGERS; i++)
		close(strangers[i]);
}

/* Of one address the oldest goes first: whoever has just come has the time to ask. */
static void test_oldest(void **state)
{
	static int strangers[2 * HTTP_CONNECTIONS_MAX];
	int asks = -1;

	(void)state;
	for (uint32_t i = 0; i < 2 * HTTP_CONNECTIONS_MAX; i++) {
		strangers[i] = dial(&address, 1);
		turn();
		if (i == HTTP_CONNECTIONS_MAX + HTTP_CONNECTIONS_MAX / 4)
			asks = dial(&address, 1);
	}
	expect_answer(ask(asks, "GET", "/healthz"), OK, "ok\n");
	for (uint32_t i = 0; i < 2 * HTTP_CONNECTIONS_MAX; i++)
		close(strangers[i]);
}

/* Those that have ended are forgotten: another may have the same number now. */
static void test_forgotten(void **state)
{
	static int strangers[STRANGERS];
	int slow;

	(void)state;
	for (uint32_t round = 0; round < 2; round++) {
		slow = round == 0 ? -1 : dial(&address, 3);
		turns(5); /* it gets the number that the first stranger had */
		for (uint32_t i = 0; i < HTTP_CONNECTIONS_MAX - 8; i++) {
			strangers[i] = dial(&address, 1);
			turn();
		}
		if (round == 1)
			expect_answer(ask(slow, "GET", "/healthz"), OK, "ok\n");
		for (uint32_t i = 0; i < HTTP_CONNECTIONS_MAX - 8; i++)
			close(strangers[i]);
		turns(20);
	}
}

/* Connections that ask and do not read. */
static void test_slow_readers(void **state)
{
	int deaf[8];

	(void)state;
	for (uint32_t i = 0; i < 8; i++) {
		deaf[i] = dial(&address, 1);
		for (uint32_t k = 0; k < 400; k++) {
			static const char request[] = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

			if (send(deaf[i], request, sizeof(request) - 1, MSG_NOSIGNAL) < 0)
				break;
			turn();
		}
		expect_answer(get("/healthz"), OK, "ok\n");
	}
	for (uint32_t i = 0; i < 8; i++)
		close(deaf[i]);
}

/* No descriptor is left but those of connections that are held: one of them gives its up. */
static void test_no_descriptors(void **state)
{
	int held[4], last;
	struct rlimit before;

	(void)state;
	for (uint32_t i = 0; i < 4; i++)
		held[i] = dial(&address, 1);
	turns(20);
	before = allow_descriptors(1);
	last = dial(&address, 1);
	expect_answer(ask(last, "GET", "/healthz"), OK, "ok\n");
	setrlimit(RLIMIT_NOFILE, &before);
	for (uint32_t i = 0; i < 4; i++)
		close(held[i]);
	/* With none at all, it says so. */
	turns(50);
	before = allow_descriptors(1);
	last = dial(&address, 1);
	expect_answer(ask(last, "GET", "/healthz"), "HTTP/1.1 503 ", "Connection: close\r\n");
	setrlimit(RLIMIT_NOFILE, &before);
}

static void test_taken(void **state)
{
	struct http *second = NULL;
	char why[NET_WHY_BYTES];

	(void)state;
	assert_int_equal(http_open(&address, &loop, &sources, &second, why), -EADDRINUSE);
	assert_non_null(strstr(why, "cannot serve HTTP on 127.0.0.1:"));
	assert_non_null(strstr(why, ": Address already in use"));
	assert_null(second);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_paths, begin, end),
		cmocka_unit_test_setup_teardown(test_operations, begin, end),
		cmocka_unit_test_setup_teardown(test_views, begin, end),
		cmocka_unit_test_setup_teardown(test_times, begin, end),
		cmocka_unit_test_setup_teardown(test_drops, begin, end),
		cmocka_unit_test_setup_teardown(test_lines_lost, begin, end),
		cmocka_unit_test_setup_teardown(test_idle, begin, end),
		cmocka_unit_test_setup_teardown(test_share, begin, end),
		cmocka_unit_test_setup_teardown(test_oldest, begin, end),
		cmocka_unit_test_setup_teardown(test_forgotten, begin, end),
		cmocka_unit_test_setup_teardown(test_slow_readers, begin, end),
		cmocka_unit_test_setup_teardown(test_no_descriptors, begin, end),
		cmocka_unit_test_setup_teardown(test_taken, begin, end),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
