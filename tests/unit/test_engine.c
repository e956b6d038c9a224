// SPDX-License-Identifier: BSD-3-Clause
/* test_engine.c - a failed operation's tag, used again while some channel still withdraws it */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/worker/array.h"
#include "client/worker/engine.h"
#include "client/winnow.h"
#include "tests/check/check.h"
#include "tests/flatten.h"

#define CHANNELS 2
#define TAG 5
#define OTHER_TAG 6
#define COUNT 6400 /* elements: far from eager */
#define FIRST_FRAME 100
#define GROUP_TOKEN 99

/* What the engine has announced since it was last asked, by channel and tag. */
struct heard {
	uint32_t announced[CHANNELS][OTHER_TAG + 1];
	uint32_t withdrawn[CHANNELS][OTHER_TAG + 1];
};

struct bench {
	struct engine *engine;
	struct bitmap_pool *pool;
	uint64_t now_us;
	uint64_t token; /* of packets to it */
	uint32_t base[CHANNELS], planned[CHANNELS];
	uint32_t done;
	int32_t data[COUNT];
};

static int bench_open(void **state)
{
	struct bench *b = calloc(1, sizeof(*b));
	struct stream_config streams[CHANNELS];

	assert_non_null(b);
	for (uint16_t i = 0; i < CHANNELS; i++) {
		streams[i] = (struct stream_config){.channel = i,
		                                    .shard = i,
		                                    .shard_count = CHANNELS,
		                                    .world = 2,
		                                    .payload = WIRE_PAYLOAD_MIN,
		                                    .window = 64,
		                                    .window_start = 64,
		                                    .op_slots = 4,
		                                    .segments_ahead = 2,
		                                    .first_frame = FIRST_FRAME,
		                                    .token = i + 1,
		                                    .group_token = GROUP_TOKEN,
		                                    .engine = bitmap_best()};
		b->base[i] = b->planned[i] = FIRST_FRAME;
	}
	assert_int_equal(bitmap_pool_open(bitmap_best(), 1, &b->pool), 0);
	assert_int_equal(engine_open(streams, CHANNELS, b->pool, &b->engine), 0);
	b->now_us = 1000000;
	b->token = GROUP_TOKEN;
	for (uint32_t i = 0; i < COUNT; i++)
		b->data[i] = 1;
	*state = b;
	return 0;
}

static int bench_close(void **state)
{
	struct bench *b = *state;

	engine_close(b->engine);
	bitmap_pool_close(b->pool);
	free(b);
	return 0;
}

static void done(struct allreduce *task)
{
	struct bench *b = task->context;

	b->done++;
}

static void submit(struct bench *b, struct allreduce *task, uint64_t tag)
{
	*task = (struct allreduce){.send = b->data,
	                           .recv = b->data,
	                           .count = COUNT,
	                           .tag = tag,
	                           .block_elems = 32,
	                           .dtype = DTYPE_I32,
	                           .reduction = REDUCE_SUM,
	                           .access = &array_access,
	                           .done = done,
	                           .context = b};
	assert_int_equal(engine_submit(b->engine, task, b->now_us), WINNOW_OK);
	engine_check(b->engine);
}

/* All that the engine has to say, now and after the longest time-out. */
static struct heard listen_to(struct bench *b)
{
	uint8_t scratch[WIRE_PAYLOAD_MIN], bytes[WIRE_PAYLOAD_MIN];
	struct packet_out out = {.scratch = scratch};
	struct heard heard = {0};
	struct announce announce;
	struct packet packet;

	for (uint32_t turn = 0; turn < 2; turn++, b->now_us += 500000) {
		while (engine_work(b->engine, b->now_us))
			;
		while (engine_pull(b->engine, 0, CHANNELS, b->now_us, &out)) {
			packet_flatten(&out, bytes);
			assert_int_equal(packet_parse(bytes, out.bytes, false, &packet),
			                 WIRE_DROP_NONE);
			if (packet.kind != WIRE_ANNOUNCE)
				continue;
			assert_int_equal(announce_parse(&packet, &announce), WIRE_DROP_NONE);
			assert_in_range(announce.tag, TAG, OTHER_TAG);
			if (announce.flags & WIRE_NONE)
				heard.withdrawn[packet.channel][announce.tag]++;
			else
				heard.announced[packet.channel][announce.tag]++;
		}
	}
	return heard;
}

/* A PLAN that says that the workers disagree, or with no tag a STATUS. */
static void tell(struct bench *b, uint16_t channel, uint64_t tag)
{
	struct plan plan = {.tag = tag,
	                    .frame_count = 1,
	                    .status = WIRE_MISMATCH,
	                    .mismatch = {.value_a = 1, .rank_b = 1, .field = WIRE_FIELD_COUNT}};
	struct wire_header head = {.kind = tag != 0 ? WIRE_PLAN : WIRE_STATUS_BACK,
	                           .channel = channel,
	                           .worker = WIRE_EVERYONE,
	                           .seal = b->token,
	                           .frame = tag != 0 ? b->planned[channel]++ : 0,
	                           .edge = b->base[channel],
	                           .window = 64};
	uint8_t bytes[WIRE_PAYLOAD_MIN];
	struct packet_out out;
	struct packet packet;

	head.planned = b->planned[channel];
	packet_begin(&out, &head);
	if (tag != 0)
		packet_put_plan(&out, &plan);
	else
		packet_put_status(&out, &(struct status){0});
	packet_flatten(&out, bytes);
	assert_int_equal(packet_parse(bytes, out.bytes, true, &packet), WIRE_DROP_NONE);
	engine_receive(b->engine, channel, &packet, b->now_us);
	engine_check(b->engine);
}

static void test_tag_of_a_failed_operation(void **state)
{
	struct bench *b = *state;
	struct allreduce failed, again, other;
	struct heard heard;

	submit(b, &failed, TAG);
	heard = listen_to(b);
	assert_true(heard.announced[0][TAG] > 0 && heard.announced[1][TAG] > 0);
	tell(b, 0, TAG);
	assert_int_equal(b->done, 1);
	assert_int_equal(failed.status, WINNOW_ERR_MISMATCH);

	/* Channel 1 does not know yet, and would take the same tag for the old operation. */
	submit(b, &again, TAG);
	submit(b, &other, OTHER_TAG);
	heard = listen_to(b);
	assert_true(heard.withdrawn[1][TAG] > 0);
	assert_int_equal(heard.announced[0][TAG] + heard.announced[1][TAG], 0);
	assert_true(heard.announced[0][OTHER_TAG] > 0 && heard.announced[1][OTHER_TAG] > 0);

	tell(b, 1, TAG);
	for (uint16_t i = 0; i < CHANNELS; i++) {
		b->base[i] = b->planned[i]; /* all workers have heard of it */
		tell(b, i, 0);
	}
	heard = listen_to(b);
	assert_int_equal(heard.withdrawn[0][TAG] + heard.withdrawn[1][TAG], 0);
	assert_true(heard.announced[0][TAG] > 0 && heard.announced[1][TAG] > 0);
	assert_int_equal(b->done, 1);
}

/* The stall time is counted from what comes from the aggregator, not from what somebody else says in its name. */
static void test_progress(void **state)
{
	struct bench *b = *state;
	struct allreduce one, other;
	uint64_t begun_us;

	assert_int_equal(engine_progress_us(b->engine), UINT64_MAX);
	submit(b, &one, TAG);
	submit(b, &other, OTHER_TAG);
	begun_us = b->now_us;
	(void)listen_to(b);
	b->token = GROUP_TOKEN + 1;
	tell(b, 0, TAG);
	assert_int_equal(engine_progress_us(b->engine), begun_us);
	b->token = GROUP_TOKEN;
	tell(b, 0, 0);
	assert_int_equal(engine_progress_us(b->engine), begun_us);
	tell(b, 0, TAG);
	assert_int_equal(b->done, 1);
	assert_int_equal(engine_progress_us(b->engine), b->now_us);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_progress, bench_open, bench_close),
		cmocka_unit_test_setup_teardown(test_tag_of_a_failed_operation, bench_open,
	                                        bench_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
