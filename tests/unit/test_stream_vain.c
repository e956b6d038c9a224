// SPDX-License-Identifier: BSD-3-Clause
/* test_stream_vain.c - what is asked for, or pushed, once more and again in vain: ever more rarely, until there are news */

#include "client/worker/stream_impl.h"
#include "tests/unit/test_stream.h"

#define FIRST (UINT32_MAX - 9) /* frame numbers wrap in every test */
#define WAY_US 50
#define SECOND_US 1000000

/* What a stream has sent. */
struct sent {
	uint32_t pushes, lists; /* lists: STATUSes that list something */
	uint64_t last_us;       /* when the last of these went out */
};

/* So long, an aggregator answers each STATUS that asks, and lists these frames from FIRST on. */
static struct sent answer_all(struct bench *b, uint64_t for_us, uint64_t lists)
{
	const uint64_t end_us = b->now_us + for_us;
	struct sent sent = {0};
	uint64_t due_us = UINT64_MAX;
	uint32_t stamp = 0;

	while (b->now_us < end_us) {
		while (bench_pull(b)) {
			struct status status = {0};

			if (b->got.kind == WIRE_STATUS)
				status = got_status(b);
			sent.pushes += b->got.kind == WIRE_PUSH;
			sent.lists += status.word_count > 0;
			if (b->got.kind == WIRE_PUSH || status.word_count > 0)
				sent.last_us = b->now_us;
			if (status.asks) {
				stamp = status.stamp;
				due_us = b->now_us + 2 * WAY_US;
			}
		}
		b->now_us =
			stream_deadline(b->stream) < due_us ? stream_deadline(b->stream) : due_us;
		if (b->now_us < due_us)
			continue;
		due_us = UINT64_MAX;
		send_status(b, RANK, stamp, FIRST, lists);
	}
	return sent;
}

static float one_frame[FRAME_BYTES / 4];

/* No PUSH arrives: 16 frames are pushed once and a few times more, then after 2 ms, 4, 8 .. 400. */
static void test_pushes(void **state)
{
	struct bench *b = bench_open(16, FIRST);
	struct allreduce *task = task_planned(b, all_bits);
	uint64_t begun_us = b->now_us;
	struct sent sent;

	(void)state;
	sent = answer_all(b, 3000, 0xffff);
	assert_in_range(sent.pushes, 3 * 16, (1 + VAIN_FREE + 2) * 16);
	sent = answer_all(b, SECOND_US, 0xffff);
	assert_in_range(sent.pushes, 7 * 16, 12 * 16);
	sent = answer_all(b, 2 * SECOND_US, 0xffff);
	assert_in_range(sent.pushes, 4 * 16, 6 * 16);
	/* News: it does not wait any longer. */
	b->sequence = 1;
	assert_null(send_result(b, FIRST + 3, one_frame, FRAME_BYTES));
	begun_us = b->now_us;
	sent = answer_all(b, 3000, 1);
	assert_in_range(sent.pushes, 2, VAIN_FREE + 2);
	assert_true(sent.last_us < begun_us + 3000);
	task_close(task);
	bench_close(b);
}

/* No RESULT arrives, though the aggregator says that it has sent 16. */
static void test_asks(void **state)
{
	struct bench *b = bench_open(16, FIRST);
	struct allreduce *task = task_planned(b, all_bits);
	struct sent sent;

	(void)state;
	b->sequence = 16;
	sent = answer_all(b, SECOND_US, 0);
	assert_in_range(sent.lists, 7, 1 + VAIN_FREE + 10);
	sent = answer_all(b, 2 * SECOND_US, 0);
	assert_in_range(sent.lists, 3, 6);
	b->sequence = 16;
	assert_null(send_result(b, FIRST + 3, one_frame, FRAME_BYTES));
	sent = answer_all(b, 5000, 0);
	assert_in_range(sent.lists, 2, 1 + VAIN_FREE + 3);
	task_close(task);
	bench_close(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pushes),
		cmocka_unit_test(test_asks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
