/* SPDX-License-Identifier: BSD-3-Clause */
/* test_channel_slot.h - whole frames in which every element has one value */
#ifndef TESTS_UNIT_TEST_CHANNEL_SLOT_H
#define TESTS_UNIT_TEST_CHANNEL_SLOT_H

#include "tests/unit/test_channel.h"

static const float zeros[WIRE_PAYLOAD_MAX / 4];

/* All workers announce all 100 blocks: 25 frames of four from `first` on. */
static inline struct bench *dense_open(uint16_t workers, uint32_t window, uint32_t first)
{
	struct bench *b = bench_open(workers, window, first);
	struct announce a = announce_of(TAG, WIRE_ALL);

	announce_all(b, &a);
	assert_int_equal(expect_plan(b, WIRE_EVERYONE, first).frame_count, FRAMES);
	return b;
}

/* A whole frame in which every element is `value`. */
static inline void push_value(struct bench *b, uint16_t rank, uint32_t frame, float value)
{
	float data[FRAME_BYTES / 4];

	for (size_t i = 0; i < FRAME_BYTES / 4; i++)
		data[i] = value;
	send_push(b, rank, frame, data, FRAME_BYTES);
}

/* The next packet is the RESULT of `frame`, and every element is `value`. */
static inline void expect_result(struct bench *b, uint16_t dest, uint32_t frame, float value)
{
	expect_packet(b, WIRE_RESULT, dest, frame);
	assert_int_equal(b->got.body_bytes, FRAME_BYTES);
	for (size_t i = 0; i < FRAME_BYTES / 4; i++) {
		float got;

		memcpy(&got, b->got.body + i * 4, 4);
		assert_true(got == value);
	}
}

#endif /* TESTS_UNIT_TEST_CHANNEL_SLOT_H */
