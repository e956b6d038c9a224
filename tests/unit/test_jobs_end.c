// SPDX-License-Identifier: BSD-3-Clause
/* test_jobs_end.c - how jobs end: deaths, wrong messages, leaving, and what is given back */

#include "tests/unit/test_jobs.h"

/* ---- what is no message, or comes at the wrong time ---- */

TEST(garbage)
{
	const struct {
		const char *line, *why;
	} cases[] = {
		{"", "one JSON object a line"},
		{"GET / HTTP/1.1", "one JSON object a line"},
		{"{}", "one JSON object a line"},
		{"{\"type\":\"hi\"}", "one JSON object a line"},
		{"null", "one JSON object a line"},
		{"[1]", "one JSON object a line"},
		{"{\"type\":\"join\"}", "join: 'version' is missing, or not a number from 0 to"},
		{"{\"type\":\"ready\",\"payload\":1}",
	         "ready: 'multicast' is missing, or not true or false"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct bench *b = usual_open();

		connect_worker(b, 0);
		jobs_line(b->jobs, b->workers[0].peer, cases[i].line, b->now_us);
		assert_non_null(strstr(expect_end(b, 0, "protocol", 0)->text, cases[i].why));
		bench_close(b);
		b = usual_open();
		job_running(b, 0, "job", 3);
		jobs_line(b->jobs, b->workers[1].peer, cases[i].line, b->now_us);
		expect_lost(b, "lost", "not a message: ");
	}
}

/* Its job is not whole yet: it is told why, and its place is free again. */
BENCH_TEST(before_welcome)
{
	for (uint32_t i = 0; i < 2; i++) {
		join(b, 0, "job", 0, 2);
		if (i == 0)
			say_kind(b, 0, CONTROL_READY);
		else
			jobs_line(b->jobs, b->workers[0].peer, "{\"type\":\"ping\",\"tag\":\"zz\"}",
			          b->now_us);
		assert_non_null(
			strstr(expect_end(b, 0, "protocol", 0)->text, "is not a message: "));
		assert_int_equal(totals_of(b).joins_refused, i + 1);
	}
}

/* Rank 1 says it when it is not the time for it, or with a payload that cannot be. */
TEST(wrong_time)
{
	static const struct {
		bool runs;
		enum control_kind kind;
		uint32_t payload;
		uint32_t times; /* The last one is too much. */
		const char *text;
	} cases[] = {
		{true, CONTROL_JOIN, PAYLOAD, 1, "not a message"},
		{true, CONTROL_READY, PAYLOAD, 1, "not a message"},
		{false, CONTROL_READY, PAYLOAD, 2, "not a message"},
		{false, CONTROL_READY, 0, 1, "not a message"},
		{false, CONTROL_READY, WIRE_PAYLOAD_MIN - 1, 1, "not a message"},
		{false, CONTROL_READY, PAYLOAD + 1, 1, "not a message"},
		{false, CONTROL_LEAVE, 0, 1, "before the job began"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct control_message m = join_of("job", 1, 3);
		struct bench *b = usual_open();

		m.kind = cases[i].kind;
		m.payload = cases[i].payload;
		if (cases[i].runs)
			job_running(b, 0, "job", 3);
		else
			job_probing(b, 0, "job", 3);
		for (uint32_t k = 0; k < cases[i].times; k++)
			say(b, 1, &m);
		expect_lost(b, "lost", cases[i].text);
	}
}

/* ---- leaving, aborting, stalling ---- */

/* What `winnow status` shows of a job and its workers, and of the last that failed. */
BENCH_TEST(looking)
{
	struct control_message ping = {.kind = CONTROL_PING};
	struct jobs_failure failure;
	struct jobs_worker worker;
	struct jobs_view view;

	assert_false(jobs_last_failure(b->jobs, &failure));
	join(b, 1, "job", 1, 2);
	jobs_worker(b->jobs, 0, 0, &worker);
	assert_string_equal(worker.state, "missing");
	jobs_worker(b->jobs, 0, 1, &worker);
	assert_string_equal(worker.state, "joined");
	assert_string_equal(worker.host, "host1");
	assert_string_equal(worker.address, "10.0.0.2:1001");
	join(b, 0, "job", 0, 2);
	for (uint32_t i = 0; i < 2; i++) {
		expect_line(b, i, CONTROL_WELCOME);
		say_kind(b, i, CONTROL_READY);
	}
	jobs_worker(b->jobs, 0, 1, &worker);
	assert_string_equal(worker.state, "ready");
	b->now_us += 3000000;
	say_kind(b, 0, CONTROL_PING);
	assert_true(jobs_view(b->jobs, 0, &view));
	assert_true(view.state_us == 3000000 && view.silence_us == 4000000 &&
	            view.stall_us == 60000000);
	jobs_worker(b->jobs, 0, 0, &worker);
	assert_true(worker.silent_us == 0);
	assert_string_equal(worker.says, "");
	jobs_worker(b->jobs, 0, 1, &worker);
	assert_true(worker.silent_us == 3000000);
	/* What a worker sees of its path, and since when; a ping that does not say changes nothing. */
	assert_true(worker.seen.frames == 0 && worker.seen_over_us == 0);
	ping.seen = (struct control_seen){.rtt_us = 240, .frames = 8, .out = 100, .out_lost = 3};
	strcpy(ping.says, "3 rows");
	say(b, 1, &ping);
	jobs_worker(b->jobs, 0, 1, &worker);
	assert_string_equal(worker.says, "3 rows");
	assert_true(worker.seen.out == 100 && worker.seen_over_us == 0);
	b->now_us += 700000;
	ping.seen.out = 400;
	say(b, 1, &ping);
	say_kind(b, 1, CONTROL_PING);
	jobs_worker(b->jobs, 0, 1, &worker);
	assert_true(worker.seen.out == 400 && worker.seen.out_lost == 3 &&
	            worker.seen.rtt_us == 240);
	assert_true(worker.seen_before.out == 100 && worker.seen_over_us == 700000);
	say_kind(b, 0, CONTROL_LEAVE);
	jobs_worker(b->jobs, 0, 0, &worker);
	assert_string_equal(worker.state, "left");
	assert_true(worker.seen.frames == 0);
	jobs_gone(b->jobs, b->workers[1].peer, "connection reset");
	b->now_us += 7000000;
	jobs_tick(b->jobs, b->now_us);
	assert_true(jobs_last_failure(b->jobs, &failure));
	assert_string_equal(failure.job, "job");
	assert_string_equal(failure.code, "lost");
	assert_string_equal(failure.text, "rank 1 (host1) is lost: connection reset");
	assert_true(failure.age_us == 7000000);
}

TEST(leave)
{
	struct bench *b = usual_open();
	struct jobs_view view;

	job_running(b, 0, "job", 3);
	say_kind(b, 1, CONTROL_LEAVE);
	assert_true(b->workers[1].closed);
	expect_silence(b, 1);
	for (uint32_t i = 0; i < 3; i += 2) {
		const struct control_message *m = expect_line(b, i, CONTROL_LEFT);

		assert_int_equal(m->rank, 1);
		assert_non_null(strstr(m->text, "host1"));
	}
	assert_true(jobs_view(b->jobs, 0, &view) && view.joined == 2);
	say_kind(b, 0, CONTROL_LEAVE);
	expect_line(b, 2, CONTROL_LEFT);
	assert_int_equal(b->attached_count, 2);
	say_kind(b, 2, CONTROL_LEAVE);
	expect_silence(b, 2);
	assert_int_equal(b->attached_count, 0);
	assert_int_equal(totals_of(b).jobs_finished, 1);
	assert_int_equal(totals_of(b).jobs_failed, 0);
	bench_close(b);
	/* One who dies after others have left still ends it for the rest. */
	b = usual_open();
	job_running(b, 0, "job", 3);
	say_kind(b, 0, CONTROL_LEAVE);
	expect_line(b, 2, CONTROL_LEFT);
	jobs_gone(b->jobs, b->workers[1].peer, "reset");
	expect_end(b, 2, "lost", 1);
	bench_close(b);
}

TEST(abort)
{
	const char *const codes[][2] = {{"aborted", "aborted"},
	                                {"lost", "lost"},
	                                {"stalled", "stalled"},
	                                {"mismatch", "mismatch"},
	                                {"nonsense", "aborted"}};

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		struct control_message m = {.kind = CONTROL_ABORT, .text = "the disk is full"};
		struct bench *b = usual_open();

		snprintf(m.code, sizeof(m.code), "%s", codes[i][0]);
		job_running(b, 0, "job", 3);
		say(b, 1, &m);
		expect_end(b, 1, codes[i][1], 1);
		expect_lost(b, codes[i][1], "the disk is full");
	}
}

/* The line says who is awaited, for what, and what it does meanwhile, by its heartbeats. */
TEST(stalled)
{
	const uint64_t untagged = UINT64_C(1) << 63;
	static const uint32_t slots = 2; /* of a worker */
	const struct {
		uint32_t open; /* what rank 1 says that it is in */
		uint64_t doing;
		struct channel_stall stall;
		const char *text;
	} cases[] = {
		{0,
	         0,
	         {.tag = 0xbeef, .missing = 2},
	         "rank 1 (host1) and 1 more have not called operation 0xbeef for 61.0 s: it is "
	         "alive, in no operation"},
		{2,
	         untagged + 16,
	         {.tag = untagged, .missing = 1},
	         "rank 1 (host1) has not called operation #1 for 61.0 s: it is alive, in operation "
	         "#17 (2 under way)"},
		{slots + 1,
	         untagged + 17,
	         {.tag = untagged, .missing = 1},
	         "rank 1 (host1) has not called operation #1 for 61.0 s: it is alive, in operation "
	         "#18 (3 under way, 2 at a time: do workers call them in different orders?)"},
		{0,
	         0,
	         {.tag = untagged, .missing = 1, .streaming = true},
	         "operation #1 has waited 61.0 s for data of rank 1 (host1): it is alive, in no "
	         "operation"},
		{UINT32_MAX,
	         0,
	         {.tag = untagged, .missing = 1},
	         "rank 1 has not called operation #1 for 61.0 s: it has left the job"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct control_message ping = {
			.kind = CONTROL_PING, .open = cases[i].open, .tag = cases[i].doing};
		struct channel_stall stall = cases[i].stall;
		struct bench *b = usual_open();

		assert_int_equal(b->config.op_slots, slots);
		stall.rank = 1;
		stall.waited_us = 61000000;
		job_running(b, 3, "other", 1);
		job_running(b, 0, "job", 3);
		if (cases[i].open == UINT32_MAX) {
			say_kind(b, 1, CONTROL_LEAVE);
			expect_line(b, 0, CONTROL_LEFT);
			expect_line(b, 2, CONTROL_LEFT);
		} else {
			say(b, 1, &ping);
		}
		jobs_stalled(b->jobs, 0xffff, &stall);
		assert_int_equal(totals_of(b).jobs, 2);
		jobs_stalled(b->jobs, b->attached[3].id, &stall);
		expect_silence(b, 3);
		for (uint32_t rank = 0; rank < 3; rank += 2)
			assert_string_equal(expect_end(b, rank, "stalled", 1)->text, cases[i].text);
		bench_close(b);
	}
}

/* Rank 1's datagrams are not answered: what it says, and what has been heard of it, give the cause. */
TEST(path)
{
	static const struct {
		uint64_t any_us, whole_us; /* since KNOCKs came; its silence time is 4 s */
		uint32_t passing;
		const char *text;
	} cases[] = {
		{UINT64_MAX, UINT64_MAX, 0,
	         "rank 1 (host1) sends datagrams that do not arrive (48 in 4.0 s): is UDP from it "
	         "blocked?"},
		{2000000, 2000000, 0,
	         "rank 1 (host1) sends datagrams that do not arrive (48 in 4.0 s)"},
		{1999999, UINT64_MAX, 0,
	         "the datagrams of rank 1 (host1) arrive, but ours do not reach it (48 in 4.0 s): "
	         "is UDP to it blocked?"},
		{1000, 2000000, 584,
	         "datagrams of 1472 bytes from rank 1 (host1) no longer pass, 584 do: the path's "
	         "MTU has shrunk"},
		{1000, 1000, 584,
	         "datagrams of 1472 bytes to rank 1 (host1) no longer pass, 584 do: the path's MTU "
	         "has shrunk"},
	};
	struct control_message m = {.kind = CONTROL_PATH, .payload = PAYLOAD, .sent = 48};
	struct bench *b;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		b = usual_open();
		job_running(b, 0, "job", 3);
		b->heard = (struct jobs_heard){cases[i].any_us, cases[i].whole_us};
		m.passing = cases[i].passing;
		m.channel = b->attached[1].id;
		say(b, 1, &m);
		for (uint32_t rank = 0; rank < 3; rank++) {
			const char *text = expect_end(b, rank, "path", 1)->text;

			if (strstr(text, cases[i].text) == NULL)
				fail_msg("'%s' does not say '%s'", text, cases[i].text);
		}
		bench_close(b);
	}
	b = usual_open();
	job_running(b, 0, "job", 3);
	m.channel = 0xffff; /* none of the job's */
	say(b, 1, &m);
	expect_lost(b, "lost", "not a message");
	b = usual_open();
	job_probing(b, 0, "job", 3);
	m.channel = b->attached[1].id;
	say(b, 1, &m);
	expect_lost(b, "lost", "not a message");
}

BENCH_TEST(shutdown)
{
	job_running(b, 0, "job", 2);
	join(b, 2, "forming", 0, 2);
	connect_worker(b, 3);
	jobs_end(b->jobs, "the power is off");
	for (uint32_t i = 0; i < 3; i++)
		assert_string_equal(expect_end(b, i, "shutdown", 2)->text, "the power is off");
	assert_true(b->workers[3].closed);
}
