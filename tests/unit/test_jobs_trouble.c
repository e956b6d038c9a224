// SPDX-License-Identifier: BSD-3-Clause
/* test_jobs_trouble.c - paths on which something is wrong: what ends a job, what is shown, what is said */

#include "tests/unit/test_jobs.h"

/* A path that is shut ends the job at once where it stays so, and else after the silence time. */
TEST(trouble)
{
	struct jobs_trouble trouble = {
		.rank = 1, .more = 1, .error = EMSGSIZE, .count = 41, .for_us = 800000};
	const int later[] = {ENETUNREACH, EHOSTUNREACH, ENETDOWN, EINVAL};
	struct jobs_config config = config_usual();
	const char *text;
	struct bench *b;

	config.group_nets[0] = net_ipv4(0xef4d0000);
	config.group_port = 4711;
	b = bench_open(&config);
	job_running(b, 3, "other", 1);
	job_running(b, 0, "job", 3);
	jobs_trouble(b->jobs, 0xffff, &trouble);
	assert_int_equal(totals_of(b).jobs, 2);
	jobs_trouble(b->jobs, b->attached[3].id, &trouble);
	expect_silence(b, 3);
	for (uint32_t i = 0; i < 3; i++) {
		text = expect_end(b, i, "path", 1)->text;
		assert_non_null(
			strstr(text, "cannot send to rank 1 (host1, 10.0.0.2:1001) and 1 more: "));
		assert_non_null(strstr(text, strerror(EMSGSIZE)));
		assert_non_null(strstr(text, "(41 datagrams in 0.8 s)"));
		assert_non_null(strstr(text, "MTU is now smaller than the 1500 "));
	}
	bench_close(b);
	b = bench_open(&config);
	job_running(b, 0, "job", 2);
	trouble = (struct jobs_trouble){
		.rank = WIRE_EVERYONE, .error = EPERM, .count = 7, .for_us = 700000};
	jobs_trouble(b->jobs, b->attached[1].id, &trouble);
	text = expect_end(b, 0, "path", 2)->text;
	assert_non_null(strstr(text, "cannot send to the multicast group 239.77."));
	assert_non_null(strstr(text, "drop outgoing UDP?"));
	bench_close(b);
	for (size_t i = 0; i < 4; i++) {
		b = bench_open(&config);
		job_running(b, 0, "job", 2);
		trouble = (struct jobs_trouble){.error = later[i], .count = 9, .for_us = 3999999};
		jobs_trouble(b->jobs, b->attached[0].id, &trouble);
		assert_int_equal(totals_of(b).jobs, 1);
		trouble.for_us++; /* the silence time is 4 s */
		jobs_trouble(b->jobs, b->attached[0].id, &trouble);
		text = expect_end(b, 1, "path", 0)->text;
		assert_non_null(strstr(text, "cannot send to rank 0 (host0, 10.0.0.1:1000): "));
		assert_non_null(strstr(text, "route, gone?"));
		bench_close(b);
	}
	/* A worker that has left has what it needs. */
	b = bench_open(&config);
	job_running(b, 0, "job", 2);
	say_kind(b, 1, CONTROL_LEAVE);
	expect_line(b, 0, CONTROL_LEFT);
	trouble = (struct jobs_trouble){.rank = 1, .error = EPERM, .count = 1, .for_us = 700000};
	jobs_trouble(b->jobs, b->attached[0].id, &trouble);
	expect_silence(b, 0);
	assert_int_equal(totals_of(b).jobs, 1);
	bench_close(b);
}

/* What does not end a job is shown, until it was not told of for 5 s. */
BENCH_TEST(trouble_shown)
{
	struct jobs_trouble trouble = {.kind = JOBS_MERGED,
	                               .rank = 1,
	                               .count = 100,
	                               .of = 801, /* more than eight times as many */
	                               .for_us = 9000000};
	struct jobs_view view;
	uint32_t logged;

	job_running(b, 0, "job", 2);
	logged = b->logged;
	for (int i = 0; i < 3; i++) {
		jobs_trouble(b->jobs, b->attached[0].id, &trouble);
		b->now_us += 1000000;
		jobs_tick(b->jobs, b->now_us);
		say_kind(b, 0, CONTROL_PING);
		say_kind(b, 1, CONTROL_PING);
	}
	assert_int_equal(b->logged, logged + 1);
	assert_true(jobs_view(b->jobs, 0, &view));
	assert_non_null(strstr(view.trouble,
	                       "datagrams of rank 1 (host1, 10.0.0.2:1001) arrive merged "
	                       "and are lost (100 in 9.0 s)"));
	assert_non_null(strstr(view.trouble, "tx-udp-segmentation off"));
	trouble = (struct jobs_trouble){
		.kind = JOBS_SLOW, .rank = WIRE_EVERYONE, .count = 7, .of = 15400};
	jobs_trouble(b->jobs, b->attached[0].id, &trouble);
	assert_true(jobs_view(b->jobs, 0, &view));
	assert_non_null(strstr(view.trouble, "the kernel has added 7 of 15400 PUSHes"));
	b->now_us += 3999999;
	jobs_tick(b->jobs, b->now_us);
	assert_true(jobs_view(b->jobs, 0, &view) && view.trouble[0] != '\0');
	say_kind(b, 0, CONTROL_PING);
	say_kind(b, 1, CONTROL_PING);
	b->now_us += 2000000;
	jobs_tick(b->jobs, b->now_us);
	assert_true(jobs_view(b->jobs, 0, &view));
	assert_string_equal(view.trouble, "");
}

/* Where much of it is lost, and for long, the job gets nowhere. */
TEST(trouble_merged)
{
	const struct {
		uint64_t count, of, for_us, stands_us;
		bool ends;
	} cases[] = {{100, 800, 2000000, 0, true},     {100, 801, 2000000, 0, false},
	             {100, 800, 1999999, 0, false},    {1, 0, 2000000, 0, true},
	             {1, 900, 2000000, 2000000, true}, {1, 900, 2000000, 1999999, false}};

	for (size_t i = 0; i < 6; i++) {
		struct jobs_trouble trouble = {.kind = JOBS_MERGED,
		                               .more = 2,
		                               .count = cases[i].count,
		                               .of = cases[i].of,
		                               .for_us = cases[i].for_us,
		                               .stands_us = cases[i].stands_us};
		struct bench *b = usual_open();

		job_running(b, 0, "job", 3);
		jobs_trouble(b->jobs, b->attached[0].id, &trouble);
		if (!cases[i].ends)
			expect_silence(b, 2);
		else
			assert_non_null(strstr(expect_end(b, 2, "path", 0)->text,
			                       "rank 0 (host0, 10.0.0.1:1000) and 2 more arrive"));
		bench_close(b);
	}
}
