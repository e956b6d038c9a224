// SPDX-License-Identifier: BSD-3-Clause
/* test_http_numbers.c - the numbers of several channels as /metrics and /status show them */

#include "tests/unit/test_http.h"

#include <jansson.h>

#include "aggregator/log.h"
#include "tests/unit/unit.h"

static json_t *root; /* the last /status */

static const json_t *status_job(void)
{
	json_decref(root);
	root = json_loads(strstr(get("/status"), "\r\n\r\n"), 0, NULL);
	assert_non_null(root);
	assert_int_equal(json_array_size(json_object_get(root, "jobs")), 1);
	return json_array_get(json_object_get(root, "jobs"), 0);
}

static const json_t *worker_in(const json_t *job, size_t rank)
{
	return json_array_get(json_object_get(job, "workers"), rank);
}

static const char *word(const json_t *object, const char *name)
{
	return json_string_value(json_object_get(object, name));
}

static double number(const json_t *object, const char *name)
{
	const json_t *value = json_object_get(object, name);

	if (!json_is_number(value))
		fail_msg("no number '%s'", name);
	return json_number_value(value);
}

/* Whole operations are on all channels, an eager one on one of them. */
TEST_BETWEEN(operations, begin, end)
{
	const json_t *job;

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
	expect_answer(get("/metrics"), OK, "winnow_allreduce_total{job=\"made-up\"} 14\n");
	expect_answer(get("/metrics"), OK,
	              "winnow_blocks_total{job=\"made-up\",kind=\"nonzero\"} 40\n"
	              "winnow_blocks_total{job=\"made-up\",kind=\"zero\"} 160\n");
	/* One that is on its way out is left out. */
	detached[1] = true;
	job = status_job();
	assert_true(number(job, "operations") == 8 + 4);
}

/* Each counter has a number of its own, and comes under its own name. */
TEST_BETWEEN(counters, begin, end)
{
	static const struct {
		size_t at;
		const char *name, *metric;
	} counters[] = {
#define COUNTER(field, name, metric) {offsetof(struct channel_stats, field), name, metric}
		COUNTER(mismatches, "mismatches", "mismatches_total{job=\"made-up\"}"),
		COUNTER(tensor_bytes, "tensor_bytes", "tensor_bytes_total{job=\"made-up\"}"),
		COUNTER(blocks_owned, "blocks_owned", "blocks_owned_total{job=\"made-up\"}"),
		COUNTER(pushes, "pushes", "pushes_total{job=\"made-up\"}"),
		COUNTER(results, "results", "results_total{job=\"made-up\"}"),
		COUNTER(passed_through, "passed_through", "passed_through_total{job=\"made-up\"}"),
		COUNTER(result_resends, "result_resends",
	                "retransmits_total{job=\"made-up\",reason=\"result\"}"),
		COUNTER(plan_resends, "plan_resends",
	                "retransmits_total{job=\"made-up\",reason=\"plan\"}"),
		COUNTER(wants, "wants", "retransmits_total{job=\"made-up\",reason=\"want\"}"),
		COUNTER(fast_added, "fast_added",
	                "fast_pushes_total{job=\"made-up\",by=\"kernel\"}"),
		COUNTER(fast_missed, "fast_missed",
	                "fast_pushes_total{job=\"made-up\",by=\"user\"}"),
		COUNTER(received_bytes, "received_bytes",
	                "wire_bytes_total{job=\"made-up\",direction=\"received\"}"),
		COUNTER(sent_bytes, "sent_bytes",
	                "wire_bytes_total{job=\"made-up\",direction=\"sent\"}"),
		COUNTER(received, "received_packets", NULL),
		COUNTER(sent, "sent_packets", NULL),
#undef COUNTER
	};
	const size_t count = sizeof(counters) / sizeof(counters[0]);
	const json_t *job;

	for (uint64_t i = 0; i < count; i++)
		memcpy((uint8_t *)&channel_numbers[0] + counters[i].at, &(uint64_t){1000 + i},
		       sizeof(uint64_t));
	job = status_job();
	for (size_t i = 0; i < count; i++) {
		char line[128];

		if (number(job, counters[i].name) != (double)(1000 + i))
			fail_msg("%s is %.0f", counters[i].name, number(job, counters[i].name));
		snprintf(line, sizeof(line), "winnow_%s %zu\n", counters[i].metric, 1000 + i);
		if (counters[i].metric != NULL)
			expect_answer(get("/metrics"), OK, line);
	}
}

static struct channel_view view_of(uint32_t operations, uint64_t age_us, uint64_t tag,
                                   uint64_t count)
{
	return (struct channel_view){.operations = operations,
	                             .age_us = age_us,
	                             .tag = tag,
	                             .slots = 64,
	                             .dtype = DTYPE_F32,
	                             .reduction = REDUCE_SUM,
	                             .count = count};
}

/* The oldest operation is on one channel, most are on another, the longest wait on a third. */
TEST_BETWEEN(views, begin, end)
{
	const json_t *operation, *waiting;
	const json_t *job;

	channel_views[0] = view_of(2, 100, 1, 1);
	channel_views[1] = view_of(1, 900000, 0x77, 2);
	channel_views[2] = view_of(5, 300, 2, 3);
	channel_views[0].slots_used = 4;
	channel_views[1].slots_used = 9;
	channel_views[1].wait.stall = (struct channel_stall){.missing = 1, .waited_us = 1000};
	channel_views[2].wait = (struct channel_wait){
		.stall = {.missing = 2, .waited_us = 2500000}, .rank_count = 1, .ranks = {1}};
	job = status_job();
	operation = json_object_get(job, "operation");
	waiting = json_object_get(job, "waiting");
	assert_string_equal(word(operation, "tag"), "0x77");
	assert_true(number(operation, "age_s") == 0.9 && number(operation, "count") == 2);
	assert_true(number(job, "under_way") == 5);
	assert_true(number(waiting, "waited_s") == 2.5 && number(waiting, "missing") == 2);
	assert_true(number(json_object_get(job, "slots"), "total") == 192);
	assert_true(number(json_object_get(job, "slots"), "used") == 13);
	expect_answer(get("/metrics"), OK, "winnow_job_wait_seconds{job=\"made-up\"} 2.5\n");
	/* The other way round. */
	channel_views[0].operations = 9;
	channel_views[0].age_us = 1000000;
	channel_views[2].wait.stall.missing = 0;
	job = status_job();
	assert_true(number(job, "under_way") == 9);
	assert_string_equal(word(json_object_get(job, "operation"), "tag"), "0x1");
	assert_true(number(json_object_get(job, "waiting"), "waited_s") == 0.001);
}

/* Of whole operations the first channel's times, of eager ones all channels'. */
TEST_BETWEEN(times, begin, end)
{
	for (uint32_t i = 0; i < 3; i++) {
		channel_numbers[i].times[0] = 3 + i;
		channel_numbers[i].times_us = 100;
		channel_numbers[i].eager_times[CHANNEL_TIMES] = 2;
		channel_numbers[i].eager_times_us = 1000000;
		waits[i][1].late_us = i * 500000;
	}
	expect_answer(get("/metrics"), OK,
	              "winnow_allreduce_duration_seconds_count{job=\"made-up\"} 9\n");
	expect_answer(get("/metrics"), OK,
	              "winnow_allreduce_duration_seconds_sum{job=\"made-up\"} 3.000100\n");
	expect_answer(get("/metrics"), OK,
	              "winnow_straggler_seconds_total{job=\"made-up\",rank=\"1\"} 1\n");
}

/* What workers see of their paths: as they say it, and what that was lately. */
TEST_BETWEEN(seen, begin, end)
{
	static const char *const lines[] = {
		"worker_last_seconds_total{job=\"made-up\",rank=\"1\"} 0.75\n",
		"worker_last_seconds_total{job=\"made-up\",rank=\"0\"} 0\n",
		"worker_rtt_seconds{job=\"made-up\",rank=\"1\"} 0.00024\n",
		"worker_rtt_least_seconds{job=\"made-up\",rank=\"1\"} 5e-05\n",
		"worker_window_frames{job=\"made-up\",rank=\"1\"} 17\n",
		"worker_held_seconds_total{job=\"made-up\",rank=\"1\",by=\"window\"} 3\n",
		"worker_held_seconds_total{job=\"made-up\",rank=\"1\",by=\"credit\"} 4\n",
		"worker_packets_total{job=\"made-up\",rank=\"1\",direction=\"out\"} 300\n",
		"worker_packets_total{job=\"made-up\",rank=\"1\",direction=\"in\"} 400\n",
		"worker_marked_total{job=\"made-up\",rank=\"1\",direction=\"out\"} 21\n",
		"worker_marked_total{job=\"made-up\",rank=\"1\",direction=\"in\"} 22\n",
		"worker_pushes_total{job=\"made-up\",rank=\"1\"} 250\n",
		"worker_lost_total{job=\"made-up\",rank=\"1\",direction=\"out\"} 23\n",
		"worker_lost_total{job=\"made-up\",rank=\"1\",direction=\"in\"} 24\n",
	};
	const json_t *worker, *lately;
	const json_t *job;

	waits[2][1] = (struct channel_waits){.late_us = 1, .last_us = 750000};
	seen[1] = (struct control_seen){.rtt_us = 240,
	                                .rtt_least_us = 50,
	                                .frames = 17,
	                                .held_window_us = 3000000,
	                                .held_credit_us = 4000000,
	                                .out = 300,
	                                .out_marked = 21,
	                                .pushes = 250,
	                                .out_lost = 23,
	                                .in = 400,
	                                .in_marked = 22,
	                                .in_lost = 24};
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		expect_answer(get("/metrics"), OK, lines[i]);
	assert_null(
		strstr(get("/metrics"), "winnow_worker_rtt_seconds{job=\"made-up\",rank=\"0\""));
	job = status_job();
	worker = worker_in(job, 1);
	assert_true(json_is_null(json_object_get(worker, "lately")));
	assert_true(number(worker, "rtt_s") == 0.00024 && number(worker, "in_lost") == 24 &&
	            number(worker, "pushes") == 250);
	assert_string_equal(word(worker, "says"), "2 rows");
	seen_before[1] = (struct control_seen){.held_window_us = 2500000,
	                                       .held_credit_us = 4000001,
	                                       .out = 200,
	                                       .pushes = 150,
	                                       .out_lost = 13,
	                                       .in = 320,
	                                       .in_lost = 4};
	seen_over_us[1] = 2000000;
	job = status_job();
	worker = worker_in(job, 1);
	lately = json_object_get(worker, "lately");
	assert_true(number(lately, "held_window") == 0.25 && number(lately, "held_credit") == 0);
	assert_true(number(lately, "out_lost") == 0.1 && number(lately, "over_s") == 2);
	assert_true(number(lately, "in_lost") == 0.2); /* 20 besides the 80 that came */
	assert_true(json_is_null(json_object_get(worker_in(job, 0), "lately")));
	seen_before[1] = seen[1];
	job = status_job();
	lately = json_object_get(worker_in(job, 1), "lately");
	assert_true(json_is_null(json_object_get(lately, "in_lost"))); /* nothing came */
}

/* Each drop is counted once. */
TEST_BETWEEN(drops, begin, end)
{
	const json_t *drops;

	channel_numbers[0].drops[WIRE_DROP_MAGIC] = 1000;
	channel_numbers[2].drops[WIRE_DROP_DUPLICATE] = 4000;
	(void)status_job();
	drops = json_object_get(root, "drops");
	assert_true(number(drops, drop_name(WIRE_DROP_MAGIC)) == 1105);
	assert_true(number(drops, drop_name(WIRE_DROP_DUPLICATE)) == 4007);
	assert_true(number(root, "memory_limit_bytes") == 1 << 20 &&
	            number(root, "rcvbuf_bytes") == 65536);
	assert_string_equal(word(root, "memory_limit_from"), "option");
	assert_true(number(json_object_get(root, "last_failure"), "age_s") == 2);
	expect_answer(get("/metrics"), OK, "winnow_joins_refused_total{reason=\"b\"} 17\n");
}

/* Series go on from one membership of a job to the next, whatever the order in which they are found. */
TEST_BETWEEN(memberships, begin, end)
{
	static const struct jobs_view here[] = {
		{.name = "train/d", .state = JOB_FORMING, .world = 6, .state_us = 1, .trouble = ""},
		{.name = "train/b",
	         .state = JOB_RUNNING,
	         .world = 4,
	         .state_us = 10,
	         .trouble = ""},
		{.name = "train/c", .state = JOB_RUNNING, .world = 5, .state_us = 5, .trouble = ""},
		{.name = "train/next.1a", .state = JOB_ENDING, .world = 3, .trouble = ""},
	};

	for (uint32_t first = 0; first < 4; first++) {
		const char *page, *line;
		uint32_t count = 0;

		for (uint32_t i = 0; i < 4; i++)
			others[i] = here[(first + i) % 4];
		totals.jobs = 5;
		page = get("/metrics");
		expect_answer(page, OK, "winnow_job_workers{job=\"made-up\"} 2\n");
		expect_answer(page, OK, "winnow_job_workers{job=\"train\"} 5\n");
		assert_null(strstr(page, "train/"));
		for (line = page; (line = strstr(line, "winnow_job_workers{")) != NULL; line++)
			count++;
		assert_int_equal(count, 2);
		expect_answer(get("/status"), OK, "train/next.1a");
	}
	totals.jobs = 1;
}

/* Nothing writes the log here: the queue is full some time, and the rest is lost. */
TEST_BETWEEN(lines_lost, begin, end)
{
	char line[64];

	for (uint32_t i = 0; log_lines_lost() < 10; i++)
		log_event("error", "nobody", LOG_FIELDS(LOG_NUMBER("number", i)), NULL);
	snprintf(line, sizeof(line), "winnow_log_lines_lost_total 10\n");
	expect_answer(get("/metrics"), OK, line);
	expect_answer(get("/status"), OK, "\"log_lines_lost\": 10");
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	return unit_run(NULL, NULL);
}
