// SPDX-License-Identifier: BSD-3-Clause
/* test_stream_status.c - what a worker asks for, answers, measures and acknowledges, and when */

#include "tests/unit/test_stream_frame.h"

/* Stamps have 32 bits of the clock: it, or its lower half, is about to wrap soon, or has just. */
static const uint64_t clocks[] = {
	5000000,
	UINT64_C(0x80001000),
	(UINT64_C(1) << 32) - 350,
	UINT64_C(0x1fffffff0),
	(UINT64_C(3) << 32) - 600,
	(UINT64_C(5) << 32) - 3000000,
};

/* A test at each of these, with 16 frames of 25 under way. */
#define CLOCK_TEST(name)                                                                           \
	static void name##_at(struct bench *b);                                                    \
	TEST(name)                                                                                 \
	{                                                                                          \
		for (size_t i = 0; i < sizeof(clocks) / sizeof(clocks[0]); i++) {                  \
			struct bench *b = bench_open(16, FIRST);                                   \
			struct allreduce *task;                                                    \
                                                                                                   \
			b->now_us = clocks[i];                                                     \
			task = task_planned(b, all_bits);                                          \
			assert_int_equal(pushes(b, FIRST), 16);                                    \
			name##_at(b);                                                              \
			task_close(task);                                                          \
			bench_close(b);                                                            \
		}                                                                                  \
	}                                                                                          \
	static void name##_at(struct bench *b)

/* A RESULT shows by its sequence that others were sent before it: they are asked for when they are late. */
CLOCK_TEST(lacks)
{
	uint32_t stamp;

	b->sequence = 3;
	assert_null(result_of(b, FIRST + 5, 1));
	b->now_us += 100;
	b->sequence = 1; /* a late packet: one more is missing */
	assert_null(result_of(b, FIRST + 3, 1));
	b->sequence = 4; /* sent after the wait began */
	send_status(b, RANK, 0, 0, 0);
	b->now_us += 199;
	expect_nothing(b);
	b->now_us++;
	expect_lacks(b, FIRST, 0x17,
	             3); /* 0, 1, 2, 4: nothing before the last that came is wanting */
	assert_int_equal(b->got.pushed, FIRST + 16);
	assert_int_equal(stream_stats(b->stream)->lost, 4);
	stamp = (uint32_t)b->now_us | 1;
	/* Nothing is listed twice, until an answer shows that what was listed has not been sent. */
	b->now_us += 5000;
	pull_all(b);
	assert_int_equal(stream_stats(b->stream)->nacks, 1);
	send_status(b, RANK, stamp, 0, 0);
	b->now_us += 700;
	pull_all(b); /* that was before the answer */
	assert_int_equal(stream_stats(b->stream)->nacks, 1);
	b->now_us += 700;
	pull_all(b);
	assert_int_equal(stream_stats(b->stream)->nacks, 2);
}

static struct control_seen seen(const struct bench *b)
{
	struct control_seen out = {0};

	stream_look(b->stream, &out);
	return out;
}

/* An answer measures the path when it comes, but not once more, nor after a later one; also after a long pause. */
CLOCK_TEST(answers)
{
	uint32_t first, second, window;

	first = (uint32_t)b->now_us | 1;
	b->now_us += 60000; /* a time-out */
	second = (uint32_t)b->now_us | 1;
	expect_status(b, true);
	b->now_us += 400;
	send_status(b, RANK, second, 0, 0);
	assert_in_range(seen(b).rtt_us, 399, 401);
	window = seen(b).frames;
	send_status(b, RANK, second + 800, 0, 0); /* of the future */
	for (uint32_t i = 0; i < 54; i++) {
		b->now_us += 200000000;
		send_status(b, RANK, i % 2 ? first : second, 0, 0);
	}
	assert_in_range(seen(b).rtt_us, 399, 401);
	assert_int_equal(seen(b).frames, window);
	/* The next one counts, as if there had been no pause of three hours. */
	first = (uint32_t)b->now_us | 1;
	expect_status(b, true);
	b->now_us += 1200;
	send_status(b, RANK, first, 0, 0);
	assert_in_range(seen(b).rtt_us, 495, 505);
}

/* A time-out that is not answered before the next one halves the window. */
CLOCK_TEST(unanswered)
{
	assert_int_equal(seen(b).frames, 16);
	b->now_us += 30000;
	pull_all(b);
	assert_int_equal(seen(b).frames, 16);
	b->now_us += 100000;
	pull_all(b);
	assert_int_equal(seen(b).frames, 8);
}
