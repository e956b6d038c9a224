// SPDX-License-Identifier: BSD-3-Clause
/* test_predict.c - bytes on the wire, worked out by hand from docs/PROTOCOL.md */

#include <stdlib.h>
#include <string.h>

#include "bitmap/bitmap.h"
#include "client/cli/tune/predict.h"
#include "tests/unit/test_random.h"
#include "tests/unit/unit.h"

#define EMPTY (42 + 32) /* Ethernet, IP, UDP; the header of section 2.2 */
#define ANNOUNCE (EMPTY + 48)
#define PLAN (EMPTY + 24)

static struct predict_net net = {
	.world = 2,
	.aggregators = 1,
	.channels = 1,
	.payload = 1472,
	.window = 1024,
	.multicast = true,
	.rate = 1e9,
	.aggregator_rate = 1e9,
};

static void add(struct predict *p, uint32_t block, uint64_t count, uint32_t fine, const uint64_t *a,
                const uint64_t *b)
{
	const uint64_t *const bits[] = {a, b};
	struct predict_op op = {
		.count = count, .tag = 1, .dtype = DTYPE_F32, .fine = fine, .bits = bits};

	*p = (struct predict){.block = block};
	assert_true(predict_add(p, &net, &op));
}

/* `acks` more packets than those that section 6 to 8 require. */
static void check(const struct predict_flow *flow, uint64_t packets, uint64_t head, uint64_t map,
                  uint64_t data)
{
	uint64_t acks = flow->packets - packets;

	assert_in_range(acks, 0, 4);
	assert_int_equal(flow->head_bytes, head + acks * EMPTY);
	assert_int_equal(flow->map_bytes, map);
	assert_int_equal(flow->data_bytes, data);
}

/* 10 blocks of 40 bytes fit an announcement. */
TEST(eager)
{
	const uint64_t a = 1 | 1 << 3, b = 1 << 3;
	struct predict_flow mean;
	struct predict p;

	add(&p, 10, 100, 10, &a, &b);
	check(&p.sent, 2, 2 * ANNOUNCE, 4 + 3, 80 + 40);
	check(&p.received, 1, PLAN, 2 + 2, 80);
	assert_int_equal(p.own, 3);
	assert_int_equal(p.united, 2);
	assert_int_equal(p.blocks, 10);
	mean = predict_mean(&p.sent, 2);
	check(&mean, 1, ANNOUNCE, 4, 60);
}

/* 64 blocks of 256 bytes, five in a frame: union 0..9 and 63, so {0..4}, {5..9}, {63}. */
TEST(frames)
{
	const uint64_t a = 0x3ff, b = UINT64_C(1) << 63 | 1 << 9;
	struct predict p;

	add(&p, 64, 4096, 64, &a, &b);
	check(&p.sent, 3 + 3, 2 * ANNOUNCE + 4 * EMPTY, 2 + 3, (10 + 2) * 256);
	check(&p.received, 4, PLAN + 3 * EMPTY, 7, 11 * 256);
	/* The same blocks told by finer bits, and seen as blocks of 128: 0..4 and 31, two a frame. */
	add(&p, 128, 4096, 64, &a, &b);
	check(&p.sent, 4 + 3, 2 * ANNOUNCE + (3 + 2) * EMPTY, 2 + 2, (5 + 2) * 512);
	check(&p.received, 4, PLAN + 3 * EMPTY, 4, 6 * 512);
}

/* Blocks of 4096 bytes take three frames each; all and none need no bitmap. */
TEST(parts)
{
	const uint64_t a = 15, b = 0;
	struct predict p;

	add(&p, 1024, 4096, 1024, &a, &b);
	check(&p.sent, 13 + 1, 2 * ANNOUNCE + 12 * EMPTY, 0, 4 * 4096);
	check(&p.received, 13, PLAN + 12 * EMPTY, 0, 4 * 4096);
}

/* The last block is filled up on the wire: 4000 elements are 63 blocks of 64. */
TEST(short_last)
{
	const uint64_t a = UINT64_C(1) << 62, b = UINT64_C(1) << 62;
	struct predict p;

	add(&p, 64, 4000, 64, &a, &b);
	assert_int_equal(p.blocks, 63);
	check(&p.sent, 2 * 2, 2 * (ANNOUNCE + EMPTY), 2 * 2, 2 * 256);
	check(&p.received, 2, PLAN + EMPTY, 2, 256);
}

/* 11201 blocks are two segments; over two channels a shard has one, of 5601 blocks. */
TEST(segments_and_shards)
{
	uint64_t a[176] = {0}, b[176] = {0};
	struct predict p;

	a[0] = 1;
	b[174] = 1;
	add(&p, 64, 11137 * 64, 64, a, b);
	/* The second has none of the first segment's, and of the second's the one block there is. */
	check(&p.sent, 2 * 3, 2 * (2 * ANNOUNCE + EMPTY), 1, 2 * 256);
	check(&p.received, 4, 2 * PLAN + 2 * EMPTY, 1, 2 * 256);
	net.channels = 2;
	add(&p, 64, 11137 * 64, 64, a, b);
	assert_int_equal(p.own, 2);
	assert_int_equal(p.sent.data_bytes, 2 * 256);
	assert_int_equal(p.received.data_bytes, 512);
	net.channels = 1;
}

/* Who decides: 2 workers' pushes at one port; copies one by one; aggregators that are faster. */
TEST(time)
{
	uint64_t a[16], b[16];
	struct predict p;
	double one, two;

	memset(a, 0xff, sizeof(a));
	memset(b, 0xff, sizeof(b));
	add(&p, 64, 65536, 64, a, b);
	one = p.time_s;
	assert_true(one > 2 * 65536 * 4 / 1e9 && one < 2.3 * 65536 * 4 / 1e9);
	net.aggregator_rate = 1e10;
	add(&p, 64, 65536, 64, a, b);
	two = p.time_s;
	assert_true(two > one / 2 * 0.99 && two < one / 2 * 1.01);
	net.aggregator_rate = 1e9;
	net.multicast = false;
	memset(b, 0, sizeof(b));
	add(&p, 64, 65536, 64, a, b);
	assert_true(p.time_s > two * 1.9);
	net.multicast = true;
}

TEST(refused)
{
	const uint64_t a = 1;
	const uint64_t *const bits[] = {&a, &a};
	struct predict_op op = {.count = UINT64_MAX, .dtype = DTYPE_F32, .fine = 64, .bits = bits};
	struct predict p = {.block = 64};

	assert_false(predict_add(&p, &net, &op));
	assert_int_equal(p.blocks, 0);
}

TEST(coarsen)
{
	uint64_t fine[32], bits[33];

	for (uint32_t turn = 0; turn < 2000; turn++) {
		uint64_t count = 1 + random_below(2048), ratio = 1 + random_below(300);
		uint64_t rare = 1 + random_below(500);

		for (uint32_t i = 0; i < 2048; i++) {
			fine[i / 64] &= ~(UINT64_C(1) << (i % 64));
			fine[i / 64] |= (uint64_t)(random_below(rare) == 0) << (i % 64);
		}
		predict_coarsen(fine, count, ratio, bits);
		for (uint64_t block = 0; block * ratio < count; block++) {
			bool any = false;

			for (uint64_t i = block * ratio; i < (block + 1) * ratio && i < count; i++)
				any = any || (fine[i / 64] >> (i % 64) & 1);
			assert_int_equal(bits[block / 64] >> (block % 64) & 1, any);
		}
	}
}
