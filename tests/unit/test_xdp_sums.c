// SPDX-License-Identifier: BSD-3-Clause
/*
 * test_xdp_sums.c - frames of every shape, pushed in every order, sum up exactly
 *
 * The expected sums are added here, element by element, from what each worker sends.
 */

#include "tests/unit/xdp_world.h"

#define ROUNDS 400

/* A frame that workers push. */
struct shape {
	uint32_t frame;
	uint32_t unit_bytes;
	uint32_t block_count;
	uint64_t owned[FAST_WORKERS_MAX];
	uint32_t order[FAST_WORKERS_MAX]; /* of those who own something */
	uint32_t pushes;
	uint32_t want[SUM_BYTES_MAX / 4];
};

static void shape_sizes(struct shape *shape, uint32_t round)
{
	uint32_t units = SUM_BYTES_MAX / 4;

	switch (round % 4) {
	case 0: /* one block, any size */
		shape->block_count = 1;
		shape->unit_bytes = 4 * (1 + (uint32_t)random_below(units));
		break;
	case 1: /* as many as there may be */
		shape->block_count = 64;
		shape->unit_bytes = 4 * (1 + (uint32_t)random_below(units / 64));
		break;
	case 2: /* whole chunks of the loop */
		shape->block_count = 1 + (uint32_t)random_below(6);
		shape->unit_bytes = 64 * (1 + (uint32_t)random_below(8));
		break;
	default:
		shape->block_count = 1 + (uint32_t)random_below(64);
		shape->unit_bytes = 4 * (1 + (uint32_t)random_below(units / shape->block_count));
	}
	if (round == 0)
		shape->unit_bytes = 4;
	if (round == 4)
		shape->unit_bytes = SUM_BYTES_MAX;
}

/* Who owns what: dense, sparse or in between; every block has an owner. */
static void shape_masks(struct shape *shape, uint32_t worker_count, uint32_t round)
{
	uint32_t density = round % 3; /* all, half, an eighth */
	uint64_t every = UINT64_MAX >> (64 - shape->block_count);
	uint64_t any = 0;

	memset(shape->owned, 0, sizeof(shape->owned));
	for (uint32_t i = 0; i < worker_count; i++) {
		uint64_t mask = density == 0 ? UINT64_MAX : random_bits();

		if (density == 2)
			mask &= random_bits() & random_bits();
		shape->owned[i] = mask & every;
		any |= shape->owned[i];
	}
	shape->owned[(uint32_t)random_below(worker_count)] |= every & ~any;
	shape->pushes = 0;
	for (uint32_t i = 0; i < worker_count; i++)
		if (shape->owned[i] != 0)
			shape->order[shape->pushes++] = i;
	for (uint32_t i = shape->pushes; i > 1; i--) {
		uint32_t other = (uint32_t)random_below(i), was = shape->order[i - 1];

		shape->order[i - 1] = shape->order[other];
		shape->order[other] = was;
	}
}

/* One worker's PUSH of random data; adds it to what is wanted. */
static void shape_push(struct shape *shape, uint32_t worker, struct frame *frame)
{
	uint32_t elems = shape->unit_bytes / 4;
	static uint32_t data[SUM_BYTES_MAX / 4];
	uint32_t used = 0;

	for (uint32_t i = 0; i < shape->block_count; i++) {
		if (!(shape->owned[worker] >> i & 1))
			continue;
		for (uint32_t e = 0; e < elems; e++) {
			data[used] = (uint32_t)random_bits();
			shape->want[i * elems + e] += data[used++];
		}
	}
	push_make(frame, worker, shape->frame, data, used * 4);
}

static void check_result(const struct world *world, const struct shape *shape,
                         const struct frame *out, const struct fast_slot *slot)
{
	uint32_t bytes = shape->unit_bytes * shape->block_count;
	struct packet packet;

	check_answer(world, out, &packet);
	assert_int_equal(packet.kind, WIRE_RESULT);
	assert_int_equal(packet.frame, shape->frame);
	assert_int_equal(packet.body_bytes, bytes);
	assert_memory_equal(packet.body, shape->want, bytes);
	assert_int_equal(slot->sequence, packet.sequence);
	assert_int_equal(slot->sent, 1);
}

static void run_round(const struct world *world, uint32_t round, uint32_t number)
{
	uint32_t worker_count = 1 + (uint32_t)random_below(round % 5 == 0 ? 64 : 4);
	bool call = (number + 1) % (WINDOW / 4) == 0; /* user space gets it all */
	struct fast_slot *slot;
	struct shape shape = {.frame = number};
	struct frame in, out;

	world->channel->worker_count = (uint16_t)worker_count;
	world->channel->multicast = round % 7 != 6;
	shape_sizes(&shape, round);
	shape_masks(&shape, worker_count, round / 4);
	slot = slot_open(world, number, shape.unit_bytes, shape.block_count, shape.owned);
	for (uint32_t i = 0; i < shape.pushes; i++) {
		bool last = i + 1 == shape.pushes;

		shape_push(&shape, shape.order[i], &in);
		bool sends = last && world->channel->multicast && !call;
		uint32_t verdict = sends ? XDP_TX : last || call ? XDP_PASS : XDP_DROP;

		assert_int_equal(frame_run(world, &in, &out), verdict);
		if (sends)
			check_result(world, &shape, &out, slot);
		else
			assert_unchanged(&in, &out);
	}
	assert_int_equal(slot->state, FAST_DONE);
	assert_int_equal(slot->arrived, slot->expected);
	assert_memory_equal(slot->data, shape.want, shape.unit_bytes * shape.block_count);
	for (uint32_t i = shape.unit_bytes * shape.block_count; i < FAST_DATA_BYTES; i++)
		assert_int_equal(slot->data[i], 0xa5); /* and not a byte beyond */
}

WORLD_TEST(random_frames)
{
	for (uint32_t round = 0; round < ROUNDS; round++)
		run_round(world, round, FIRST_FRAME + round);
	assert_int_equal(stat_of(world, FAST_STAT_RESULTS), ROUNDS);
}

/* A UDP checksum that comes out as 0 goes out as 0xffff: 0 would mean that there is none. */
WORLD_TEST(checksum_never_zero)
{
	uint32_t zero_seen = 0;

	if (world_sealed)
		return;
	for (uint32_t i = 0; i < 0x10000; i += 0x101) {
		uint32_t data = 0, number = FIRST_FRAME + i / 0x101 * WINDOW;
		struct packet packet;
		struct frame in, out;

		/* First see the checksum with data 0; then choose the data that makes it 0. */
		slot_open_dense(world, number, 4, 1, 1);
		push_make(&in, 0, number, &data, 4);
		assert_int_equal(frame_run(world, &in, &out), XDP_TX);
		check_answer(world, &out, &packet);
		data = out.at.udp.check;
		world->channel->sequence--;
		slot_open_dense(world, number, 4, 1, 1);
		push_make(&in, 0, number, &data, 4);
		assert_int_equal(frame_run(world, &in, &out), XDP_TX);
		check_answer(world, &out, &packet);
		zero_seen += out.at.udp.check == 0xffff;
	}
	assert_int_equal(zero_seen, 256);
}

int main(void)
{
	return world_run(4);
}
