// SPDX-License-Identifier: BSD-3-Clause
/* test_xdp_answers.c - duplicates, what is passed up, and when the program wakes user space */

#include "tests/unit/xdp_world.h"

#define QUARTER (WINDOW / 4)

static const uint32_t block[64] = {7, 8, 0x80000000, 0xffffffff};

static void push_block(struct frame *frame, uint32_t worker, uint32_t number, uint32_t ack)
{
	push_make(frame, worker, number, block, sizeof(block));
	frame->at.wire.edge = ack;
}

/* A frame of one block that `workers` have pushed and that has been sent. */
static struct fast_slot *slot_sent(const struct world *world, uint32_t number, uint32_t workers)
{
	struct fast_slot *slot = slot_open_dense(world, number, sizeof(block), 1, workers);
	struct frame frame;

	for (uint32_t i = 0; i < workers; i++) {
		push_block(&frame, i, number, FIRST_FRAME);
		expect(world, &frame, i + 1 == workers ? XDP_TX : XDP_DROP);
	}
	assert_int_equal(slot->sent, 1);
	return slot;
}

/* ---- the same PUSH again ---- */

WORLD_TEST(again_before_the_end)
{
	struct fast_slot *slot = slot_open_dense(world, FIRST_FRAME, sizeof(block), 1, 2);
	struct frame frame;

	push_block(&frame, 1, FIRST_FRAME, FIRST_FRAME);
	for (int i = 0; i < 3; i++)
		expect(world, &frame, XDP_DROP);
	assert_int_equal(slot->arrived, 1);
	assert_int_equal(slot->state, FAST_OPEN);
	assert_int_equal(slot->lock, 0);
	assert_memory_equal(slot->data, block, sizeof(block));
	assert_int_equal(counted(world, WIRE_DROP_DUPLICATE), 2);
	assert_int_equal(counted(world, FAST_COUNT_ADDED), 1);
	assert_int_equal(stat_of(world, FAST_STAT_DUPLICATES), 2);
	assert_int_equal(stat_of(world, FAST_STAT_PUSHES), 1);
}

/* User space has sent it, or the program has, or nobody yet: it draws no answer. */
WORLD_TEST(again_after_the_end)
{
	struct fast_slot *slot = slot_sent(world, FIRST_FRAME, 2);
	struct frame frame;

	push_block(&frame, 0, FIRST_FRAME, FIRST_FRAME + 1);
	expect(world, &frame, XDP_DROP);
	assert_int_equal(world->channel->ack[0], FIRST_FRAME + 1);
	slot->sent = 0;
	expect(world, &frame, XDP_DROP);
	assert_int_equal(stat_of(world, FAST_STAT_DUPLICATES), 2);
	assert_int_equal(counted(world, WIRE_DROP_DUPLICATE), 2);
	assert_int_equal(stat_of(world, FAST_STAT_SENT), 1);
}

/* Of what a worker says besides, user space sees everything, as it came. */
WORLD_TEST(status)
{
	uint64_t body[3] = {1, 0, 1};
	struct frame frame;

	slot_sent(world, FIRST_FRAME, 2);
	frame_make(&frame, WIRE_STATUS, 1, body, sizeof(body));
	frame.at.wire.frame = FIRST_FRAME;
	frame.at.wire.edge = FIRST_FRAME + 1;
	frame.at.wire.sequence = 1;
	expect_pass(world, &frame);
	assert_int_equal(stat_of(world, FAST_STAT_SENT), 1);
}

/* Before a job starts, the program notes who knocks at its device; strangers do not count. */
WORLD_TEST(knock)
{
	struct fast_channel *channel = world->channel;
	struct frame frame;

	channel->active = 0;
	frame_make(&frame, WIRE_KNOCK, 2, NULL, 0);
	frame.at.wire.seal ^= 1;
	expect_pass(world, &frame);
	frame_make(&frame, WIRE_KNOCK, channel->worker_count, NULL, 0);
	expect_pass(world, &frame);
	frame_make(&frame, WIRE_STATUS, 1, NULL, 0);
	expect_pass(world, &frame);
	assert_int_equal(channel->knocked, 0);
	frame_make(&frame, WIRE_KNOCK, 2, NULL, 0);
	expect_pass(world, &frame);
	assert_int_equal(channel->knocked, 4);
}

/* To another address, of either family, and back. */
static void elsewhere(const struct world *world)
{
	world->channel->home[0].four ^= 1;
	world->channel->home[0].six[1] ^= 1;
}

/* What comes from elsewhere than the worker knocked from is dropped, and counted, whatever it is; but a KNOCK. */
WORLD_TEST(away)
{
	static const uint8_t kinds[] = {WIRE_ANNOUNCE, WIRE_PUSH, WIRE_STATUS};
	uint64_t away = counted(world, WIRE_DROP_ADDRESS);
	struct frame frame;

	slot_open_dense(world, FIRST_FRAME + 1, sizeof(block), 1, 3);
	for (uint32_t i = 0; i < 2 * sizeof(kinds); i++) {
		frame_make(&frame, kinds[i / 2], 0, block, sizeof(block));
		frame.at.wire.frame = FIRST_FRAME + 1;
		if (i % 2 == 0)
			world->channel->home[0].port++;
		else
			elsewhere(world);
		expect(world, &frame, XDP_DROP);
		if (i % 2 == 0)
			world->channel->home[0].port--;
		else
			elsewhere(world);
		assert_int_equal(counted(world, WIRE_DROP_ADDRESS), away + i + 1);
	}
	assert_int_equal(world->slots[(FIRST_FRAME + 1) & (WINDOW - 1)].came, 0);
	assert_int_equal(world->channel->ack[0], FIRST_FRAME);
	world->channel->home[0].port++;
	frame_make(&frame, WIRE_KNOCK, 0, NULL, 0);
	expect(world, &frame, XDP_PASS);
	world->channel->home[0].port--;
	push_block(&frame, 0, FIRST_FRAME + 1, FIRST_FRAME);
	expect(world, &frame, XDP_DROP); /* added */
	assert_int_equal(world->slots[(FIRST_FRAME + 1) & (WINDOW - 1)].came, 1);
}

/* An ack only ever moves forward, through 2^32 too, and as far as there are plans. */
WORLD_TEST(ack_forward)
{
	struct fast_channel *channel = world->channel;
	struct frame frame;

	slot_open_dense(world, FIRST_FRAME, sizeof(block), 1, 3);
	channel->planned = 5;
	push_block(&frame, 1, FIRST_FRAME, 6);
	expect(world, &frame, XDP_DROP);
	assert_int_equal(channel->ack[1], FIRST_FRAME);
	assert_int_equal(channel->room[1], FIRST_FRAME);
	frame.at.wire.edge = FIRST_FRAME + 20; /* 4, in fact */
	expect(world, &frame, XDP_DROP);
	assert_int_equal(channel->ack[1], 4);
	push_block(&frame, 1, FIRST_FRAME, FIRST_FRAME + 3);
	expect(world, &frame, XDP_DROP);
	assert_int_equal(channel->ack[1], 4);
	assert_int_equal(channel->ack[0], FIRST_FRAME);
	assert_int_equal(channel->ack[2], FIRST_FRAME);
	/* How far all may push, as its path goes: as many frames as there are slots if it does not say. */
	assert_int_equal(channel->room[1], 4 + WINDOW);
	frame.at.wire.edge = 5;
	frame.at.wire.window = 7;
	expect(world, &frame, XDP_DROP);
	assert_int_equal(channel->ack[1], 5);
	assert_int_equal(channel->room[1], 4 + WINDOW);
	frame.at.wire.window = WINDOW + 1;
	expect(world, &frame, XDP_DROP);
	assert_int_equal(channel->room[1], 5 + WINDOW);
	assert_int_equal(channel->room[0], FIRST_FRAME);
	/* What is 2^31 frames old looks like what is to come. */
	channel->planned += UINT32_C(0x80000000) + 10;
	frame.at.wire.edge = channel->planned - 2;
	expect(world, &frame, XDP_DROP);
	assert_int_equal(channel->ack[1], channel->planned - 2);
	assert_int_equal(channel->room[1], channel->planned - 2 + WINDOW);
}

/*
 * A mark counts for its worker where user space does not see the PUSH: one that is added, one that comes
 * again, one that becomes the RESULT, which bears no mark itself. Not that of a stranger.
 */
WORLD_TEST(marks)
{
	const uint32_t *marked = world->channel->marked;
	struct fast_slot *slot;
	struct frame frame;

	for (uint32_t tos = 0; tos < 256; tos++) {
		uint32_t before = marked[1];

		slot_open_dense(world, FIRST_FRAME, sizeof(block), 1, 2);
		push_block(&frame, 1, FIRST_FRAME, FIRST_FRAME);
		frame.at.ip.tos = (uint8_t)tos;
		expect(world, &frame, XDP_DROP);
		expect(world, &frame, XDP_DROP);
		assert_int_equal(marked[1], before + (tos % 4 == 3 ? 2 : 0));
	}
	assert_int_equal(marked[0], 0);
	push_block(&frame, 0, FIRST_FRAME, FIRST_FRAME);
	frame.at.ip.tos = 3;
	expect(world, &frame, XDP_TX);
	assert_true(marked[0] == 1 && marked[1] == 128);

	push_block(&frame, 0, FIRST_FRAME + 1,
	           FIRST_FRAME); /* a frame that is not open: it goes up */
	frame.at.ip.tos = 3;
	expect_pass(world, &frame);
	slot = slot_open_dense(world, FIRST_FRAME + QUARTER - 1, sizeof(block), 1, 2); /* a call */
	push_block(&frame, 0, FIRST_FRAME + QUARTER - 1, FIRST_FRAME);
	frame.at.ip.tos = 3;
	expect(world, &frame, XDP_PASS);
	assert_int_equal(slot->arrived, 1);
	frame_make(&frame, WIRE_STATUS, 0, NULL, 0);
	frame.at.ip.tos = 3;
	expect_pass(world, &frame);
	push_block(&frame, 0, FIRST_FRAME, FIRST_FRAME);
	frame.at.ip.tos = 3;
	elsewhere(world);
	expect(world, &frame, XDP_DROP);
	elsewhere(world);
	assert_true(marked[0] == 1 && marked[1] == 128 && marked[2] == 0);
}

/* ---- waking user space ---- */

/* The last frame of each quarter of a window: its PUSHes go up, added already, and again if they come again. */
WORLD_TEST(push_wakes)
{
	struct frame frame;

	for (uint32_t i = 0; i < WINDOW; i++) {
		struct fast_slot *slot = slot_open_dense(world, i, sizeof(block), 1, 3);
		uint32_t verdict = i % QUARTER == QUARTER - 1 ? XDP_PASS : XDP_DROP;

		push_block(&frame, 0, i, FIRST_FRAME);
		expect(world, &frame, verdict);
		assert_int_equal(slot->came, 1);
		expect(world, &frame, verdict);
		assert_int_equal(slot->arrived, 1);
	}
	assert_int_equal(stat_of(world, FAST_STAT_PUSHES), WINDOW);
	assert_int_equal(stat_of(world, FAST_STAT_RECEIVED), 2 * (WINDOW - 4));
}

int main(void)
{
	return world_run(3);
}
