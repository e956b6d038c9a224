// SPDX-License-Identifier: BSD-3-Clause
/* test_channel_fast.c - a channel whose slots the kernel adds to as well: what it has done is seen */

#include "tests/unit/test_channel.h"

#define WINDOW 16
#define FIRST 100
#define PUSHED_BYTES (FRAME_BLOCKS * BLOCK_BYTES)

static const uint8_t zeros[PUSHED_BYTES];
static struct fast_channel fast;
static struct fast_slot slots[WINDOW];

/* Three workers announce all blocks of an i32 sum: frames of four, open for the kernel. */
static struct bench *shared_open(void)
{
	struct announce a = announce_of(TAG, WIRE_ALL);
	struct bench *b = bench_open(3, WINDOW, FIRST);

	channel_close(b->channel);
	memset(&fast, 0, sizeof(fast));
	memset(slots, 0, sizeof(slots));
	fast.knocked = 7;
	b->config.fast = &fast;
	b->config.fast_slots = slots;
	b->config.to_group = true;
	assert_int_equal(channel_open(&b->config, &b->channel), 0);
	assert_int_equal(fast.active, 1);
	assert_int_equal(fast.multicast, 1);
	a.dtype = DTYPE_I32;
	announce_all(b, &a);
	expect_plan(b, WIRE_EVERYONE, FIRST);
	return b;
}

static struct fast_slot *slot_of(uint32_t frame)
{
	return &slots[frame & (WINDOW - 1)];
}

/* What the kernel leaves of a PUSH, as fastpath.h has it. */
static void kernel_adds(uint32_t frame, uint32_t rank)
{
	struct fast_slot *slot = slot_of(frame);

	assert_int_equal(slot->frame, frame);
	assert_int_equal(slot->state, FAST_OPEN);
	slot->came |= UINT64_C(1) << rank;
	slot->touched |= slot->owned[rank];
	fast.stats[FAST_STAT_PUSHES]++;
	if (++slot->arrived == slot->expected)
		slot->state = FAST_DONE;
}

static void kernel_sends(uint32_t frame)
{
	slot_of(frame)->sequence = ++fast.sequence & 0xffff;
	slot_of(frame)->sent = 1;
}

/* Who is missing is whom the kernel has not heard either. */
static void test_missing(void **state)
{
	struct bench *b = shared_open();
	struct channel_stall stall;
	struct channel_view view;

	(void)state;
	kernel_adds(FIRST, 0);
	kernel_adds(FIRST, 2);
	b->now_us += 2000000;
	assert_true(channel_stalled(b->channel, b->now_us, &stall));
	assert_true(stall.streaming);
	assert_int_equal(stall.rank, 1);
	assert_int_equal(stall.missing, 1);
	kernel_adds(FIRST,
	            1); /* complete: now it is acknowledgements that do not come, anybody's */
	channel_look(b->channel, b->now_us, &view);
	assert_int_equal(view.wait.stall.missing, 3);
	assert_int_equal(view.wait.stall.rank, 0);
	bench_close(b);
}

/* What the kernel has completed and sent is sent again as if we had; what it has not sent, when someone asks. */
static void test_completed(void **state)
{
	struct bench *b = shared_open();

	(void)state;
	for (uint32_t rank = 0; rank < 3; rank++) {
		kernel_adds(FIRST, rank);
		kernel_adds(FIRST + 1, rank);
	}
	kernel_sends(FIRST);
	b->sequence = 1;
	send_lacks(b, 1, FIRST, 1, 0); /* it has seen nothing later: still on its way */
	expect_nothing(b);
	send_lacks(b, 1, FIRST, 1, 1);
	expect_packet(b, WIRE_RESULT, 1, FIRST);
	assert_int_equal(b->got.body_bytes, PUSHED_BYTES);
	expect_nothing(b);
	send_ask(b, 2, 9, FIRST + 3);
	send_ask(b, 1, 9, FIRST + 3); /* it is sent once, whoever asks */
	expect_wants(b, 2, 9, FIRST + 2, 1);
	expect_wants(b, 1, 9, FIRST + 2, 1);
	expect_packet(b, WIRE_RESULT, WIRE_EVERYONE, FIRST + 1);
	assert_int_equal(slot_of(FIRST + 1)->sent, 1);
	assert_int_equal(slot_of(FIRST + 1)->sequence, 2);
	expect_nothing(b);
	/* It passes up the PUSH that has completed a frame, when it cannot send: added already. */
	for (uint32_t rank = 0; rank < 3; rank++)
		kernel_adds(FIRST + 2, rank);
	send_push(b, 1, FIRST + 2, zeros, PUSHED_BYTES);
	expect_packet(b, WIRE_RESULT, WIRE_EVERYONE, FIRST + 2);
	send_push(b, 1, FIRST + 2, zeros, PUSHED_BYTES);
	expect_nothing(b);
	bench_close(b);
}

/* Of a reduce-scatter the kernel adds, and we send: it knows of no one worker that gets the data. */
static void test_scatter(void **state)
{
	struct announce a = announce_of(TAG + 1, WIRE_ALL | WIRE_SCATTER);
	struct bench *b = shared_open();
	uint32_t frame = FIRST + FRAMES;

	(void)state;
	assert_int_equal(slot_of(FIRST)->private, 0);
	a.op_slot = 1;
	a.dtype = DTYPE_I32;
	a.count = UINT64_C(3) * (FRAME_BLOCKS + 1) * BLOCK_ELEMS;
	announce_all(b, &a);
	expect_plan(b, WIRE_EVERYONE, frame);
	for (uint32_t i = 0; i < FRAMES; i++)
		for (uint32_t rank = 0; i < WINDOW && rank < 3; rank++)
			kernel_adds(FIRST + i, rank);
	send_ack_all(b, FIRST + WINDOW);
	for (uint32_t i = WINDOW; i < FRAMES; i++)
		for (uint32_t rank = 0; rank < 3; rank++)
			kernel_adds(FIRST + i, rank);
	send_ack_all(b, frame);
	pull_all(b);
	assert_int_equal(slot_of(frame)->frame, frame);
	assert_int_equal(slot_of(frame)->private, 1);
	for (uint32_t rank = 0; rank < 3; rank++)
		kernel_adds(frame, rank);
	send_push(b, 2, frame, zeros, PUSHED_BYTES); /* it passes up the last one */
	expect_packet(b, WIRE_RESULT, WIRE_EVERYONE, frame);
	assert_int_equal(b->receiver, 0);
	bench_close(b);
}

/* A PUSH that comes to us is added in the kernel's slot, once, whoever was first; each is counted by who added it. */
static void test_either_road(void **state)
{
	static const int32_t data[PUSHED_BYTES / 4] = {1, 2, 3};
	struct bench *b = shared_open();
	const struct channel_stats *stats;
	const int32_t *sums = (const int32_t *)(const void *)slot_of(FIRST)->data;

	(void)state;
	send_push(b, 0, FIRST, data, PUSHED_BYTES);
	send_push(b, 0, FIRST, data, PUSHED_BYTES);
	assert_int_equal(slot_of(FIRST)->came, 1);
	assert_int_equal(slot_of(FIRST)->arrived, 1);
	kernel_adds(FIRST, 1);
	send_push(b, 1, FIRST, data, PUSHED_BYTES);
	expect_nothing(b);
	send_push(b, 2, FIRST, data, PUSHED_BYTES);
	assert_int_equal(slot_of(FIRST)->state, FAST_DONE);
	expect_packet(b, WIRE_RESULT, WIRE_EVERYONE, FIRST);
	assert_true(sums[0] == 2 && sums[1] == 4 && sums[2] == 6 && sums[3] == 0);
	assert_memory_equal(b->got.body, sums, PUSHED_BYTES);
	stats = channel_stats(b->channel);
	assert_int_equal(stats->fast_missed, 2);
	assert_int_equal(stats->fast_added, 1);
	assert_int_equal(stats->pushes, 3);
	bench_close(b);
}

/* The kernel's RESULTs tell credit as ours do; what it has kept of acknowledgements counts. */
static void test_acks(void **state)
{
	struct bench *b = shared_open();

	(void)state;
	for (uint32_t rank = 0; rank < 3; rank++) {
		for (uint32_t i = 0; i < WINDOW / 2; i++)
			kernel_adds(FIRST + i, rank);
		fast.ack[rank] = FIRST + WINDOW / 2;
	}
	for (uint32_t i = 0; i < WINDOW / 2; i++)
		kernel_sends(FIRST + i);
	b->sequence = WINDOW / 2;
	send_ack(b, 0, FIRST); /* any packet makes us look */
	assert_int_equal(fast.base, FIRST + WINDOW / 2);
	assert_int_equal(slot_of(FIRST + WINDOW)->state, FAST_OPEN);
	assert_int_equal(slot_of(FIRST + WINDOW)->frame, FIRST + WINDOW);
	for (uint32_t rank = 0; rank < 3; rank++)
		b->acks[rank] = FIRST + WINDOW / 2;
	fast.told_base = FIRST + WINDOW / 2; /* by the last RESULT */
	expect_nothing(b);
	fast.told_base = FIRST;
	/* What their paths take, likewise; with less of it we are woken more often. */
	assert_int_equal(fast.credit, FIRST + WINDOW);
	assert_int_equal(fast.call_mask, 1);
	for (uint32_t rank = 0; rank < 3; rank++)
		fast.room[rank] = FIRST + WINDOW + 4 + rank;
	b->window = 1;
	send_ack(b, 0, FIRST + WINDOW / 2);
	assert_int_equal(fast.credit, FIRST + WINDOW + 4);
	assert_int_equal(fast.call_mask, 1);
	fast.room[0] += 100; /* no PUSH can have said so */
	fast.told_credit = FIRST + WINDOW + 4;
	send_ack(b, 1, FIRST + WINDOW / 2);
	assert_int_equal(fast.credit, FIRST + WINDOW + 4);
	for (uint32_t rank = 0; rank < 3; rank++)
		b->rooms[rank] = FIRST + WINDOW + 4;
	fast.told_base = FIRST + WINDOW / 2;
	expect_nothing(b);
	fast.told_credit = FIRST + WINDOW;
	fast.told_base = FIRST - (UINT32_C(1) << 31); /* for long the kernel has told nothing */
	fast.told_credit = FIRST - (UINT32_C(1) << 31);
	expect_nothing(b);
	bench_close(b);
}

/* A worker is told of its marks that the kernel has counted and of those that we have seen, through 2^32 also. */
static void test_marked(void **state)
{
	struct bench *b = shared_open();
	struct packet packet = {
		.kind = WIRE_PUSH, .worker = 1, .token = b->tokens[1], .marked = true};

	(void)state;
	channel_receive(b->channel, &packet, b->now_us);
	channel_receive(b->channel, &packet, b->now_us);
	fast.marked[1] = 40;
	fast.marked[2] = UINT32_MAX;
	send_ask(b, 1, 5, 0);
	assert_int_equal(expect_status(b, 1, 5).marked, 42);
	send_ask(b, 2, 6, 0);
	assert_int_equal(expect_status(b, 2, 6).marked, UINT32_MAX);
	packet.worker = 2;
	packet.token = b->tokens[2];
	channel_receive(b->channel, &packet, b->now_us);
	send_ask(b, 2, 7, 0);
	assert_int_equal(expect_status(b, 2, 7).marked, 0);
	send_ask(b, 0, 8, 0);
	assert_int_equal(expect_status(b, 0, 8).marked, 0);
	bench_close(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_missing),     cmocka_unit_test(test_completed),
		cmocka_unit_test(test_either_road), cmocka_unit_test(test_acks),
		cmocka_unit_test(test_scatter),     cmocka_unit_test(test_marked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
