// SPDX-License-Identifier: BSD-3-Clause
/*
 * test_channel_crowd.c - three workers whose right packets come in any order and number, among
 * wrong ones: every sum is right, and every operation ends
 */

#include "tests/unit/test_channel.h"

struct crowd {
	struct bench *b;
	uint64_t words[3][2], united[2];
	int32_t tensor[3][BLOCKS]; /* all elements of a block are alike */
	uint32_t frame_blocks[FRAMES][FRAME_BLOCKS];
	uint32_t frame_count, counts[FRAMES];
	uint32_t first;
	bool done[FRAMES];
};

static uint64_t crowd_mask(const struct crowd *c, uint16_t rank, uint32_t frame)
{
	uint64_t mask = 0;

	for (uint32_t i = 0; i < c->counts[frame]; i++) {
		uint32_t block = c->frame_blocks[frame][i];

		mask |= (c->words[rank][block / 64] >> (block % 64) & 1) << i;
	}
	return mask;
}

static void crowd_push(struct crowd *c, uint16_t rank, uint32_t frame, uint64_t mask)
{
	int32_t data[FRAME_BLOCKS * BLOCK_ELEMS];
	uint32_t used = 0;

	for (uint32_t i = 0; i < c->counts[frame]; i++)
		for (uint32_t e = 0; e < BLOCK_ELEMS && (mask >> i & 1); e++)
			data[used++] = c->tensor[rank][c->frame_blocks[frame][i]];
	send_push(c->b, rank, c->first + frame, data, used * 4);
}

static void crowd_result(struct crowd *c)
{
	uint32_t frame = c->b->got.frame - c->first;

	assert_true(frame < c->frame_count);
	assert_int_equal(c->b->got.body_bytes, c->counts[frame] * BLOCK_BYTES);
	for (uint32_t i = 0; i < c->counts[frame] * BLOCK_ELEMS; i++) {
		uint32_t block = c->frame_blocks[frame][i / BLOCK_ELEMS];
		uint32_t got, want = 0; /* integers wrap */

		for (uint16_t rank = 0; rank < 3; rank++)
			want += c->words[rank][block / 64] >> (block % 64) & 1
			                ? (uint32_t)c->tensor[rank][block]
			                : 0;
		memcpy(&got, c->b->got.body + (size_t)i * 4, 4);
		assert_int_equal(got, want);
	}
	c->done[frame] = true;
}

static void crowd_begin(struct crowd *c, uint32_t generation)
{
	struct announce a = announce_of(TAG, 0);
	uint32_t blocks = 0;

	*c = (struct crowd){.b = c->b, .first = c->b->planned};
	a.dtype = DTYPE_I32;
	a.generation = generation;
	for (uint16_t rank = 0; rank < 3; rank++) {
		for (unsigned i = 0; i < BLOCKS; i++) {
			c->tensor[rank][i] = (int32_t)random_bits();
			if (random_below(1 + generation % 4) == 0)
				c->words[rank][i / 64] |= UINT64_C(1) << (i % 64);
		}
		c->words[rank][0] |= 1;
		c->united[0] |= c->words[rank][0];
		c->united[1] |= c->words[rank][1];
		send_announce(c->b, rank, &a, c->words[rank], 16);
	}
	for (uint32_t i = 0; i < BLOCKS; i++) {
		if (!(c->united[i / 64] >> (i % 64) & 1))
			continue;
		c->frame_blocks[blocks / FRAME_BLOCKS][blocks % FRAME_BLOCKS] = i;
		c->counts[blocks++ / FRAME_BLOCKS]++;
	}
	c->frame_count = (blocks + FRAME_BLOCKS - 1) / FRAME_BLOCKS;
	assert_int_equal(expect_plan(c->b, WIRE_EVERYONE, c->first).frame_count, c->frame_count);
}

/* Right pushes in any order and number; between them wrong ones, acks and lists at random. */
static void crowd_step(struct crowd *c)
{
	uint16_t rank = (uint16_t)random_below(3);
	uint32_t frame = (uint32_t)random_below(c->frame_count);
	uint64_t mask = crowd_mask(c, rank, frame), wrong;
	uint32_t ack = c->b->acks[rank] - c->first;

	switch (random_below(6)) {
	case 0:
		wrong = random_below(16) & ((1u << c->counts[frame]) - 1);
		if (__builtin_popcountll(wrong) != __builtin_popcountll(mask))
			crowd_push(c, rank, frame, wrong);
		return;
	case 1:
		send_lacks(c->b, rank, c->first + frame - 20, random_bits(),
		           (uint16_t)random_bits());
		return;
	case 2:
		send_push(c->b, rank, (uint32_t)random_bits(), c->tensor, 128);
		return;
	case 3:
		if (ack < c->frame_count && c->done[ack])
			send_ack(c->b, rank, c->b->acks[rank] + 1);
		return;
	default:
		if (mask != 0)
			crowd_push(c, rank, frame, mask);
	}
}

static void test_crowd(void **state)
{
	struct crowd c = {.b = bench_open(3, 8, 0xfffff000)};

	(void)state;
	for (uint32_t generation = 1; generation < 300; generation++) {
		crowd_begin(&c, generation);
		while (!channel_idle(c.b->channel)) {
			crowd_step(&c);
			if (random_below(3) == 0)
				while (bench_pull(c.b))
					if (c.b->got.kind == WIRE_RESULT)
						crowd_result(&c);
		}
		for (uint32_t frame = 0; frame < c.frame_count; frame++)
			assert_true(c.done[frame]);
		pull_all(c.b);
	}
	assert_int_equal(channel_stats(c.b->channel)->operations, 299);
	bench_close(c.b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crowd),
	};

	random_seed();
	return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
