// SPDX-License-Identifier: BSD-3-Clause
/* test_channel_times.c - how long operations took, by limits, and which worker the others waited for */

#include "tests/check/check.h"
#include "tests/unit/test_channel.h"

static uint16_t calls_before(const uint64_t call_us[3], uint16_t rank)
{
	uint16_t count = 0;

	for (uint16_t other = 0; other < 3; other++)
		if (call_us[other] < call_us[rank])
			count++;
	return count;
}

/* One operation of three workers, which call it at these times and have it after the last one's. */
static void operation(struct bench *b, uint32_t number, const uint64_t call_us[3], uint64_t done_us)
{
	struct announce a = announce_of(TAG + number, WIRE_NONE);
	uint64_t start_us = b->now_us;

	a.generation = number + 1;
	for (uint16_t turn = 0; turn < 3; turn++) {
		uint16_t rank = 0;

		for (uint16_t other = 0; other < 3; other++)
			if (calls_before(call_us, other) == turn)
				rank = other;
		b->now_us = start_us + call_us[rank];
		send_announce(b, rank, &a, NULL, 0);
		expect_drop(b, WIRE_DROP_NONE);
	}
	pull_all(b);
	b->now_us = start_us + done_us;
	send_ack_all(b, number + 1);
	pull_all(b);
	assert_true(channel_idle(b->channel));
	assert_int_equal(channel_stats(b->channel)->operations, number + 1);
}

TEST(times)
{
	static const uint64_t done_us[] = {100, 101, 199, 200, 201, 9999999, 10000000, 10000001};
	static const uint32_t bucket[] = {0, 1, 1, 1, 2, 15, 15, 16};
	static const uint64_t calls[3] = {0, 1, 2};
	struct bench *b = bench_open(3, 4, 0);
	uint64_t counts[CHANNEL_TIMES + 1] = {0}, sum_us = 0;

	for (uint32_t i = 1; i < CHANNEL_TIMES; i++)
		assert_true(channel_times_us[i] > channel_times_us[i - 1]);
	for (uint32_t i = 0; i < sizeof(done_us) / sizeof(done_us[0]); i++) {
		const struct channel_stats *stats;

		operation(b, i, calls, done_us[i]);
		counts[bucket[i]]++;
		sum_us += done_us[i];
		stats = channel_stats(b->channel);
		assert_memory_equal(stats->times, counts, sizeof(counts));
		assert_int_equal(stats->times_us, sum_us);
		assert_int_equal(stats->eager_times_us, 0);
	}
	bench_close(b);
}

static uint64_t late_us(const struct bench *b, uint32_t rank)
{
	struct channel_waits waits;

	channel_waits(b->channel, rank, &waits);
	return waits.late_us;
}

/* Only the last one is late, and only since the one before it. */
TEST(late)
{
	static const uint64_t calls[][3] = {{0, 10, 5000}, {7000, 0, 1}, {3, 900, 1}, {0, 1, 2}};
	struct bench *b = bench_open(3, 4, 0);

	for (uint32_t i = 0; i < 4; i++)
		operation(b, i, calls[i], 8000);
	assert_int_equal(late_us(b, 0), 6999);
	assert_int_equal(late_us(b, 1), 897);
	assert_int_equal(late_us(b, 2), 4990 + 1);
	bench_close(b);
}

static uint64_t last_us(const struct bench *b, uint32_t rank)
{
	struct channel_waits waits;

	channel_waits(b->channel, rank, &waits);
	return waits.last_us;
}

/* Frames wait for the last acknowledgement, and for that of one worker alone: since the one before it. */
BENCH_TEST(last, bench_open(3, 16, 0))
{
	struct announce a = announce_of(TAG, WIRE_ALL);
	uint64_t start_us = b->now_us;
	static const uint8_t data[FRAME_BLOCKS * BLOCK_BYTES];

	announce_all(b, &a);
	pull_all(b);
	for (uint16_t rank = 0; rank < 3; rank++)
		for (uint32_t frame = 0; frame < 16; frame++)
			send_push(b, rank, frame, data, sizeof(data));
	b->now_us = start_us + 1000;
	send_ack(b, 1, 8);
	send_ack(b, 1, 9);
	b->now_us = start_us + 1500;
	send_ack(b, 0, 4);
	b->now_us = start_us + 2100;
	send_ack(b, 2, 6); /* base: 4, of which rank 0 alone is the last */
	assert_true(last_us(b, 0) == 0 && last_us(b, 1) == 0 && last_us(b, 2) == 600);
	b->now_us = start_us + 2400;
	send_ack(b, 0, 6);
	assert_true(last_us(b, 0) == 300 && last_us(b, 2) == 600);
	b->now_us = start_us + 2500;
	send_ack(b, 2, 9); /* those two were at 6 */
	b->now_us = start_us + 2507;
	send_ack(b, 0, 9);
	assert_true(last_us(b, 0) == 307 && last_us(b, 1) == 0 && last_us(b, 2) == 600);
	channel_check(b->channel);
}
