/* SPDX-License-Identifier: BSD-3-Clause */
/* test_stream_frame.h - frames of a worker whose numbers wrap */
#ifndef TESTS_UNIT_TEST_STREAM_FRAME_H
#define TESTS_UNIT_TEST_STREAM_FRAME_H

#include "client/worker/stream_state.h"
#include "tests/unit/test_stream.h"

/* Frame numbers wrap in every test, or become negative to those who compare them. */
static uint32_t first_frame = UINT32_MAX - 9;
#define FIRST first_frame

/* All tests, for each of these. */
int main(void)
{
	int failed = unit_run(NULL, NULL);

	first_frame = INT32_MAX - 9;
	return unit_run(NULL, NULL) | failed;
}

/* A result of whole blocks, all elements `value`. */
static inline struct allreduce *result_of(struct bench *b, uint32_t frame, float value)
{
	float data[FRAME_BYTES / 4];

	for (size_t i = 0; i < FRAME_BYTES / 4; i++)
		data[i] = value;
	return send_result(b, frame, data, FRAME_BYTES);
}

/* How far PUSHes come: the number of those that are sent now, in order. */
static inline uint32_t pushes(struct bench *b, uint32_t first)
{
	uint32_t count = 0;

	while (bench_pull(b))
		if (b->got.kind == WIRE_PUSH)
			assert_int_equal(b->got.frame, first + count++);
	return count;
}

#endif /* TESTS_UNIT_TEST_STREAM_FRAME_H */
