// SPDX-License-Identifier: BSD-3-Clause
/* test_xdp_answers.c - duplicates, NACKs, CREDITs, and when the program wakes user space */

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

/* The packet comes back as the RESULT, to its sender alone. */
static void expect_result(const struct world *world, const struct frame *frame, uint32_t number)
{
	const struct fast_slot *slot = &world->slots[number & (WINDOW - 1)];
	uint64_t resends = stat_of(world, FAST_STAT_RESENDS);
	uint64_t sent_bytes = stat_of(world, FAST_STAT_SENT_BYTES);
	uint32_t sequence = world->channel->sequence;
	struct packet packet;
	struct frame out;

	assert_int_equal(frame_run(world, frame, &out), XDP_TX);
	check_answer(world, &out, frame->at.wire.worker, &packet);
	assert_int_equal(packet.kind, WIRE_RESULT);
	assert_int_equal(packet.frame, number);
	assert_int_equal(packet.body_bytes, slot->unit_bytes * slot->block_count);
	assert_memory_equal(packet.body, slot->data, packet.body_bytes);
	assert_int_equal(world->channel->sequence, sequence);
	assert_int_equal(stat_of(world, FAST_STAT_RESENDS), resends + 1);
	assert_int_equal(stat_of(world, FAST_STAT_SENT_BYTES),
	                 sent_bytes + WIRE_HEADER_BYTES + packet.body_bytes);
}

/* ---- the same PUSH again ---- */

static void test_again_before_the_end(void **state)
{
	struct world *world = *state;
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

static void test_again_after_the_end(void **state)
{
	struct world *world = *state;
	struct fast_slot *slot = slot_sent(world, FIRST_FRAME, 2);
	struct frame frame;

	slot_sent(world, FIRST_FRAME + 1, 2);
	push_block(&frame, 0, FIRST_FRAME, FIRST_FRAME);
	expect_result(world, &frame, FIRST_FRAME);
	assert_int_equal(stat_of(world, FAST_STAT_DUPLICATES), 1);
	assert_int_equal(slot->sequence, 1);

	/* The worker has it: its ack says so. */
	push_block(&frame, 0, FIRST_FRAME, FIRST_FRAME + 1);
	expect(world, &frame, XDP_DROP);
	assert_int_equal(world->channel->ack[0], FIRST_FRAME + 1);

	/* User space is about to send it. */
	slot->sent = 0;
	push_block(&frame, 0, FIRST_FRAME, FIRST_FRAME);
	expect(world, &frame, XDP_PASS);
	assert_int_equal(counted(world, WIRE_DROP_DUPLICATE), 3);
}

/* A PUSH of few blocks must grow for its RESULT. */
static void test_again_and_grow(void **state)
{
	uint64_t owned[FAST_WORKERS_MAX] = {0x2, 0x35, 0x8};
	static uint8_t data[64];
	struct world *world = *state;
	struct fast_slot *slot;
	struct frame frame;

	slot = slot_open(world, FIRST_FRAME, 16, 6, owned);
	for (uint32_t i = 0; i < 3; i++) {
		memset(data, (int)i + 1, sizeof(data));
		push_make(&frame, i, FIRST_FRAME, data,
		          16 * (uint32_t)__builtin_popcountll(owned[i]));
		expect(world, &frame, i == 2 ? XDP_TX : XDP_DROP);
	}
	expect_result(world, &frame, FIRST_FRAME);
	slot->block_count = 240; /* does not fit: someone else may try */
	expect(world, &frame, XDP_PASS);
	assert_int_equal(counted(world, FAST_COUNT_NO_ROOM), 1);
}

/* ---- NACK ---- */

static void nack_make(struct frame *frame, uint32_t worker, uint32_t first, uint64_t bits,
                      uint64_t mask)
{
	frame_make(frame, WIRE_NACK, worker, &bits, sizeof(bits));
	frame->at.wire.frame = first;
	frame->at.wire.mask = mask;
}

static void test_nack(void **state)
{
	struct world *world = *state;
	struct frame frame;

	world->channel->sequence = 0xfffe;
	slot_sent(world, FIRST_FRAME + 20, 2); /* as 0xffff */
	slot_sent(world, FIRST_FRAME + 21, 2); /* as 0 */
	for (uint32_t bit = 0; bit < 64; bit++) {
		nack_make(&frame, 2, FIRST_FRAME + 20 - bit, UINT64_C(1) << bit, 0xffff);
		expect_result(world, &frame, FIRST_FRAME + 20);
	}
	nack_make(&frame, 0, FIRST_FRAME + 21, 1, 0);
	frame.at.wire.edge = FIRST_FRAME + 5;
	expect_result(world, &frame, FIRST_FRAME + 21);
	assert_int_equal(world->channel->ack[0], FIRST_FRAME + 5);

	/* Still on its way: it was sent after what the worker has seen. User space says nothing. */
	nack_make(&frame, 0, FIRST_FRAME + 21, 1, 0xffff);
	expect(world, &frame, XDP_PASS);
	frame.at.wire.mask |= WIRE_NACK_FORCE;
	expect_result(world, &frame, FIRST_FRAME + 21);
}

static void test_nack_passed_up(void **state)
{
	struct world *world = *state;
	struct fast_slot *slot = slot_sent(world, FIRST_FRAME, 2);
	uint64_t two_words[2] = {1, 0};
	struct frame frame;

	nack_make(&frame, 0, FIRST_FRAME, 0, 1);
	expect(world, &frame, XDP_PASS);
	nack_make(&frame, 0, FIRST_FRAME, 3, 1);
	expect(world, &frame, XDP_PASS);
	nack_make(&frame, 0, FIRST_FRAME, UINT64_C(1) << 63 | 1, 1);
	expect(world, &frame, XDP_PASS);
	nack_make(&frame, 0, FIRST_FRAME + 1, 1, 1); /* not open */
	expect(world, &frame, XDP_PASS);
	nack_make(&frame, 0, FIRST_FRAME + WINDOW, 1, 1); /* another in the same slot */
	expect(world, &frame, XDP_PASS);
	frame_make(&frame, WIRE_NACK, 0, NULL, 0);
	expect(world, &frame, XDP_PASS);
	frame_make(&frame, WIRE_NACK, 0, two_words, 16);
	frame.at.wire.frame = FIRST_FRAME;
	expect(world, &frame, XDP_PASS);
	frame_make(&frame, WIRE_NACK, 0, two_words, 7);
	expect(world, &frame, XDP_PASS);

	nack_make(&frame, 0, FIRST_FRAME, 1, 1);
	slot->sent = 0;
	expect(world, &frame, XDP_PASS);
	slot->sent = 1;
	slot->state = FAST_OPEN;
	expect(world, &frame, XDP_PASS);
	slot->state = FAST_DONE;
	expect_result(world, &frame, FIRST_FRAME);
	assert_int_equal(stat_of(world, FAST_STAT_RESENDS), 1);
}

/* ---- ACK ---- */

static void ack_make(struct frame *frame, uint32_t worker, uint32_t ack, uint64_t mask)
{
	frame_make(frame, WIRE_ACK, worker, NULL, 0);
	frame->at.wire.frame = 0xc00c1e;
	frame->at.wire.edge = ack;
	frame->at.wire.mask = mask;
}

static void expect_credit(const struct world *world, const struct frame *frame)
{
	struct packet packet;
	struct frame out;

	assert_int_equal(frame_run(world, frame, &out), XDP_TX);
	check_answer(world, &out, frame->at.wire.worker, &packet);
	assert_int_equal(packet.kind, WIRE_CREDIT);
	assert_int_equal(packet.frame, 0xc00c1e);
	assert_int_equal(packet.body_bytes, 0);
}

static void test_credit(void **state)
{
	struct world *world = *state;
	struct fast_channel *channel = world->channel;
	struct frame frame;

	channel->sequence = 0x54321;
	channel->base = FIRST_FRAME + 2;
	channel->planned = FIRST_FRAME + 40;
	channel->seen[2] = FIRST_FRAME;
	ack_make(&frame, 2, FIRST_FRAME, WIRE_ACK_ANSWER);
	expect_credit(world, &frame);
	assert_int_equal(stat_of(world, FAST_STAT_SENT), 1);
	assert_int_equal(stat_of(world, FAST_STAT_SENT_BYTES), 32);
	assert_int_equal(stat_of(world, FAST_STAT_RESENDS), 0);

	/* An ack that user space has not seen goes up, until it has: packets get lost there, too. */
	ack_make(&frame, 2, FIRST_FRAME + 1, WIRE_ACK_ANSWER);
	for (int i = 0; i < 3; i++) {
		expect(world, &frame, XDP_PASS);
		assert_int_equal(channel->ack[2], FIRST_FRAME + 1);
		assert_int_equal(channel->told[2], FIRST_FRAME + 1);
	}
	channel->seen[2] = FIRST_FRAME + 1;
	expect_credit(world, &frame);

	ack_make(&frame, 2, FIRST_FRAME + 1, 0); /* no question */
	expect(world, &frame, XDP_PASS);
	ack_make(&frame, 2, FIRST_FRAME + 1, WIRE_ACK_ANSWER);
	/* Two ACKs in one, for all we know. */
	frame_resize(&frame, 2 * WIRE_HEADER_BYTES);
	expect(world, &frame, XDP_PASS);
}

/* Before a job starts, the program notes who knocks at its device; strangers do not count. */
static void test_knock(void **state)
{
	struct world *world = *state;
	struct fast_channel *channel = world->channel;
	struct frame frame;

	channel->active = 0;
	frame_make(&frame, WIRE_KNOCK, 2, NULL, 0);
	frame.at.wire.seal ^= 1;
	expect_pass(world, &frame);
	frame_make(&frame, WIRE_KNOCK, channel->worker_count, NULL, 0);
	expect_pass(world, &frame);
	frame_make(&frame, WIRE_ACK, 1, NULL, 0);
	expect_pass(world, &frame);
	assert_int_equal(channel->knocked, 0);
	frame_make(&frame, WIRE_KNOCK, 2, NULL, 0);
	expect_pass(world, &frame);
	assert_int_equal(channel->knocked, 4);
}

/* So many answers to one worker as user space grants, then what asks for more goes up, whatever it is. */
static void test_answers_end(void **state)
{
	struct world *world = *state;
	struct frame nack, again, other;

	slot_sent(world, FIRST_FRAME, 3);
	nack_make(&nack, 1, FIRST_FRAME, 1, WIRE_NACK_FORCE);
	nack_make(&other, 2, FIRST_FRAME, 1, WIRE_NACK_FORCE);
	push_block(&again, 1, FIRST_FRAME, FIRST_FRAME);
	for (uint32_t i = 0; i < WINDOW; i++)
		expect_result(world, i % 2 == 0 ? &nack : &again, FIRST_FRAME);
	assert_int_equal(world->channel->answers[1], 0);
	expect(world, &nack, XDP_PASS);
	expect(world, &again, XDP_PASS);
	expect_result(world, &other, FIRST_FRAME);
	world->channel->answers[1] = 1;
	expect_result(world, &nack, FIRST_FRAME);
	expect(world, &nack, XDP_PASS);
}

/* To another address, of either family, and back. */
static void elsewhere(const struct world *world)
{
	world->channel->home[0].four ^= 1;
	world->channel->home[0].six[1] ^= 1;
}

/* What comes from elsewhere than the worker knocked from is dropped, and counted, whatever it is; but a KNOCK. */
static void test_away(void **state)
{
	static const uint8_t kinds[] = {WIRE_ANNOUNCE, WIRE_PUSH, WIRE_ACK, WIRE_NACK, WIRE_ASK};
	struct world *world = *state;
	uint64_t away = counted(world, WIRE_DROP_ADDRESS);
	struct frame frame;

	slot_open_dense(world, FIRST_FRAME + 1, sizeof(block), 1, 3);
	for (uint32_t i = 0; i < 2 * sizeof(kinds); i++) {
		frame_make(&frame, kinds[i / 2], 0, block, sizeof(block));
		frame.at.wire.frame = FIRST_FRAME + 1;
		frame.at.wire.mask = 1;
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

/* An ack only ever moves forward, through 2^32 too. */
static void test_ack_forward(void **state)
{
	struct world *world = *state;
	struct fast_channel *channel = world->channel;
	struct frame frame;

	ack_make(&frame, 1, FIRST_FRAME + 20, 0); /* 4, in fact */
	expect(world, &frame, XDP_PASS);
	assert_int_equal(channel->ack[1], 4);
	assert_int_equal(channel->told[1], 4);
	ack_make(&frame, 1, FIRST_FRAME + 3, 0);
	expect(world, &frame, XDP_PASS);
	assert_int_equal(channel->ack[1], 4);
	assert_int_equal(channel->told[1], 4);
	assert_int_equal(channel->ack[0], FIRST_FRAME);
	assert_int_equal(channel->ack[2], FIRST_FRAME);
}

/* ---- waking user space ---- */

static void test_push_wakes(void **state)
{
	struct world *world = *state;
	struct fast_channel *channel = world->channel;
	struct frame frame;

	for (uint32_t i = 0; i < 4; i++)
		slot_open_dense(world, FIRST_FRAME + 20 + i, sizeof(block), 1, 3);
	push_block(&frame, 0, FIRST_FRAME + 20, FIRST_FRAME + QUARTER - 1);
	expect(world, &frame, XDP_DROP);
	push_block(&frame, 0, FIRST_FRAME + 21, FIRST_FRAME + QUARTER);
	expect(world, &frame, XDP_PASS); /* unchanged, but added */
	assert_int_equal(world->slots[(FIRST_FRAME + 21) & (WINDOW - 1)].came, 1);
	assert_int_equal(channel->told[0], FIRST_FRAME + QUARTER);
	assert_int_equal(stat_of(world, FAST_STAT_PUSHES), 2);
	assert_int_equal(stat_of(world, FAST_STAT_RECEIVED), 1);
	push_block(&frame, 0, FIRST_FRAME + 22, FIRST_FRAME + QUARTER + 1);
	expect(world, &frame, XDP_DROP);
	push_block(&frame, 0, FIRST_FRAME + 23, FIRST_FRAME); /* overtaken by the others */
	expect(world, &frame, XDP_DROP);
	assert_int_equal(channel->ack[0], FIRST_FRAME + QUARTER + 1);
	push_block(&frame, 1, FIRST_FRAME + 23, FIRST_FRAME + QUARTER); /* each for itself */
	expect(world, &frame, XDP_PASS);
}

/* The last PUSH of a frame that must wake user space leaves the sending to it. */
static void test_last_push_wakes(void **state)
{
	struct world *world = *state;
	struct fast_slot *slot = slot_open_dense(world, FIRST_FRAME + 20, sizeof(block), 1, 1);
	struct frame frame;

	push_block(&frame, 0, FIRST_FRAME + 20, FIRST_FRAME + QUARTER);
	expect(world, &frame, XDP_PASS);
	assert_int_equal(slot->state, FAST_DONE);
	assert_int_equal(slot->sent, 0);
	assert_int_equal(slot->lock, 0);
	assert_memory_equal(slot->data, block, sizeof(block));
	assert_int_equal(stat_of(world, FAST_STAT_RESULTS), 1);
	assert_int_equal(world->channel->sequence, 0);
}

/* Data for one worker alone: the program adds, and all that sends is passed up, as it came. */
static void test_private(void **state)
{
	struct world *world = *state;
	struct fast_slot *slot = slot_open_dense(world, FIRST_FRAME, sizeof(block), 1, 2);
	struct frame frame;

	slot->private = 1;
	push_block(&frame, 0, FIRST_FRAME, FIRST_FRAME);
	expect(world, &frame, XDP_DROP);
	push_block(&frame, 1, FIRST_FRAME, FIRST_FRAME);
	expect(world, &frame, XDP_PASS);
	assert_int_equal(slot->state, FAST_DONE);
	assert_int_equal(slot->sent, 0);
	assert_int_equal(slot->arrived, 2);
	assert_int_equal(world->channel->sequence, 0);
	slot->sent = 1; /* user space has */
	slot->sequence = world->channel->sequence = 1;
	expect(world, &frame, XDP_PASS);
	nack_make(&frame, 0, FIRST_FRAME, 1, WIRE_NACK_FORCE | 1);
	expect(world, &frame, XDP_PASS);
	slot->private = 0;
	expect_result(world, &frame, FIRST_FRAME);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		in_world(test_again_before_the_end),
		in_world(test_again_after_the_end),
		in_world(test_again_and_grow),
		in_world(test_nack),
		in_world(test_nack_passed_up),
		in_world(test_credit),
		in_world(test_knock),
		in_world(test_away),
		in_world(test_answers_end),
		in_world(test_ack_forward),
		in_world(test_push_wakes),
		in_world(test_last_push_wakes),
		in_world(test_private),
	};

	int failed = cmocka_run_group_tests_name("with tokens", tests, NULL, NULL);

	world_sealed = true;
	failed += cmocka_run_group_tests_name("sealed", tests, NULL, NULL);
	world_six = true;
	failed += cmocka_run_group_tests_name("sealed, by IPv6", tests, NULL, NULL);
	return failed != 0;
}
