// SPDX-License-Identifier: BSD-3-Clause
/* test_jobs_time.c - silence, lateness and time-outs of workers */

#include "tests/unit/test_jobs.h"

/* The only job ends when nobody has said anything for so long, and not before. */
static void ends_after(struct bench *b, uint64_t us)
{
	tick(b, us / 2);
	tick(b, us - us / 2 - 1);
	assert_int_equal(totals_of(b).jobs, 1);
	tick(b, 1);
	assert_int_equal(totals_of(b).jobs, 0);
}

/* Silence is 4 s: a ping each second; the one that says nothing is lost. */
TEST(silence)
{
	struct bench *b = usual_open();
	const struct control_message *m;

	job_running(b, 0, "job", 3);
	for (unsigned second = 0; second < 3; second++) {
		tick(b, 999999);
		for (uint32_t i = 0; i < 3; i++)
			expect_silence(b, i);
		tick(b, 1);
		for (uint32_t i = 0; i < 3; i++)
			expect_line(b, i, CONTROL_PING);
		say_kind(b, 0, CONTROL_PING);
		say_kind(b, 2, CONTROL_PING);
	}
	tick(b, 999999);
	expect_silence(b, 0);
	tick(b, 1);
	for (uint32_t i = 0; i < 3; i++)
		read_pings(b, i);
	/* The worker itself is told, too: its connection stands. */
	m = expect_end(b, 1, "lost", 1);
	assert_non_null(strstr(m->text, "silent for 4.0 s"));
	expect_lost(b, "lost", "silent for 4.0 s");
}

/* A virtual machine that was paused, say: workers have the time that they always have. */
BENCH_TEST(stood_still)
{
	job_running(b, 0, "job", 3);
	tick(b, 60000000); /* of which it would have slept one second */
	ends_after(b, 3000000);
}

/* Of those that wait the first is told for whom, after some seconds, and until it is over. */
BENCH_TEST(late)
{
	struct control_message in = {.kind = CONTROL_PING, .open = 1, .tag = UINT64_C(1) << 63};
	struct control_message out = {.kind = CONTROL_PING};
	const char *said[4];

	job_running(b, 0, "job", 4);
	for (unsigned second = 1; second <= 12; second++) {
		tick(b, 1000000);
		for (uint32_t i = 0; i < 4; i++)
			said[i] = expect_line(b, i, CONTROL_PING)->text;
		assert_string_equal(said[0], "");
		assert_string_equal(said[2], "");
		assert_string_equal(said[3], "");
		/* In the operation since second 1, told as of second 6; another one from second 8 on, which all are in. */
		if (second < 6 || second > 8)
			assert_string_equal(said[1], "");
		else if (second == 6)
			assert_string_equal(
				said[1], "waiting in operation #1 for rank 0 (host0) and 1 more: "
					 "in no operation for 6 s");
		if (second == 8)
			in.tag++;
		say(b, 0, second < 8 ? &out : &in);
		say(b, 1, &in);
		say(b, 2, &in);
		say(b, 3, second < 8 ? &out : &in);
	}
}

/* Heartbeats are as rare as the silence time is long: between two of them nobody is late. */
BENCH_TEST(rare_heartbeats)
{
	struct control_message in = {.kind = CONTROL_PING, .open = 1, .tag = 1};
	struct control_message out = {.kind = CONTROL_PING};

	for (uint32_t rank = 0; rank < 2; rank++) {
		struct control_message m = join_of("job", rank, 2);

		m.silence_ms = 60000;
		join_by(b, rank, &m);
	}
	expect_running(b, 0, 2);
	/* Both are in one long operation; rank 0 says so in the middle between two of our pings. */
	for (uint32_t i = 0; i < 4; i++) {
		tick(b, 7000000);
		say(b, 0, &in);
		tick(b, 7000000);
		say(b, 1, &in);
		tick(b, 1000000);
		for (uint32_t rank = 0; rank < 2; rank++)
			assert_string_equal(expect_line(b, rank, CONTROL_PING)->text, "");
	}
	/* Now rank 0 is in none. */
	for (uint32_t i = 0; i < 3; i++) {
		say(b, 0, &out);
		say(b, 1, &in);
		tick(b, 15000000);
		expect_line(b, 0, CONTROL_PING);
		if (i < 2)
			expect_line(b, 1, CONTROL_PING);
	}
	assert_non_null(strstr(expect_line(b, 1, CONTROL_PING)->text, "for rank 0 (host0)"));
}

/* The shortest silence and stall that any worker asks for are the job's, whoever comes first. */
TEST(shortest)
{
	for (uint32_t first = 0; first < 2; first++) {
		struct bench *b = usual_open();

		for (uint32_t i = 0; i < 2; i++) {
			struct control_message m = join_of("job", i, 2);

			m.silence_ms = i == first ? 400 : 4000;
			m.stall_ms = i == first ? 60000 : 5000;
			join_by(b, i, &m);
		}
		for (uint32_t i = 0; i < 2; i++) {
			const struct control_message *welcome = expect_line(b, i, CONTROL_WELCOME);

			assert_int_equal(welcome->silence_ms, 400);
			assert_int_equal(welcome->stall_ms, 5000);
		}
		tick(b, 100000);
		expect_line(b, 0, CONTROL_PING);
		ends_after(b, 300000);
		bench_close(b);
	}
}

/*
 * Until all have joined nobody knows of the others' times: each is held to its own, and has all of the
 * job's from WELCOME on. What a worker that has gone again asked for does not count.
 */
BENCH_TEST(own_silence)
{
	struct control_message m = join_of("job", 1, 3);

	join(b, 0, "job", 0, 3);
	m.silence_ms = 100;
	join_by(b, 1, &m);
	tick(b, 50000);
	tick(b, 49999);
	expect_silence(b, 0);
	assert_int_equal(totals_of(b).peers, 2);
	tick(b, 1);
	assert_int_equal(totals_of(b).peers, 1);
	m.silence_ms = 400;
	join_by(b, 1, &m);
	tick(b, 300000);
	expect_silence(b, 0);
	expect_line(b, 1, CONTROL_PING);
	join(b, 2, "job", 2, 3);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(expect_line(b, i, CONTROL_WELCOME)->silence_ms, 400);
	ends_after(b, 400000);
}

BENCH_TEST(no_join)
{
	connect_worker(b, 0);
	tick(b, 1999999);
	expect_silence(b, 0);
	tick(b, 1);
	expect_end(b, 0, "timeout", 0);
}

/* Ten seconds for all to join, and as many for all to be ready; the missing are named. */
BENCH_TEST(join_timeouts)
{
	join(b, 0, "job", 2, 4);
	wait(b, 9, 1);
	tick(b, 999999);
	assert_int_equal(totals_of(b).jobs, 1);
	tick(b, 1);
	read_pings(b, 0);
	assert_non_null(strstr(expect_end(b, 0, "join_timeout", 4)->text, "rank 0, 1, 3 of 4"));

	join(b, 0, "job", 0, 3);
	join(b, 1, "job", 1, 3);
	tick(b, 3000000); /* which count no more once the last is here */
	read_pings(b, 0);
	read_pings(b, 1);
	join(b, 2, "job", 2, 3);
	for (uint32_t rank = 0; rank < 3; rank++)
		expect_line(b, rank, CONTROL_WELCOME);
	say_kind(b, 1, CONTROL_READY);
	wait(b, 9, 7);
	tick(b, 999999);
	assert_int_equal(totals_of(b).jobs, 1);
	tick(b, 1);
	for (uint32_t rank = 0; rank < 3; rank++) {
		read_pings(b, rank);
		assert_non_null(strstr(expect_end(b, rank, "udp_timeout", 3)->text, "rank 0, 2 "));
	}
	/* A job that runs has all the time. */
	job_running(b, 0, "job", 1);
	wait(b, 100, 1);
	assert_int_equal(totals_of(b).jobs, 1);
}
