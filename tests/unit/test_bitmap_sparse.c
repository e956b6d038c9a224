// SPDX-License-Identifier: BSD-3-Clause
/*
 * test_bitmap_sparse.c - within, neutral and reduce_at of every engine, bit by bit and block by block
 *
 * What reduce() makes of one block is what reduce_at() must; test_bitmap_arith.c tests reduce().
 */

#include "bitmap/bitmap.h"
#include "tests/unit/test_bitmap.h"

#define ROUNDS 3000
#define BLOCKS_MAX 3000
#define ELEMS_MAX 24000
#define WORDS_MAX (BLOCKS_MAX / 64 + 2)

static double random_density(void)
{
	const double likely[] = {0, 0.005, 0.02, 0.1, 0.3, 0.5, 0.9, 1};

	return likely[random_below(8)];
}

static void fill_bits(uint64_t words[], uint64_t word_count)
{
	const double density = random_density();

	for (uint64_t i = 0; i < word_count * 64; i++)
		if ((double)(random_bits() >> 11) * 0x1p-53 < density)
			bit_set(words, i);
}

/* ---- within ---- */

static uint64_t plain_within(const uint64_t mine[], const uint64_t united[], uint64_t first,
                             uint64_t block_count, uint64_t lanes[])
{
	uint64_t lane = 0, own = 0;

	memset(lanes, 0, bitmap_word_count(block_count) * 8);
	for (uint64_t i = first; lane < block_count; i++) {
		if (!bit_test(united, i))
			continue;
		if (bit_test(mine, i)) {
			bit_set(lanes, lane);
			own++;
		}
		lane++;
	}
	return own;
}

TEST(within)
{
	const struct arena mine_arena = arena_open(WORDS_MAX * 8);
	const struct arena united_arena = arena_open(WORDS_MAX * 8);
	const struct arena lanes_arena = arena_open(WORDS_MAX * 8);
	const struct bitmap_engine *engine;
	uint64_t want[WORDS_MAX];

	for (unsigned round = 0; round < ROUNDS; round++) {
		uint64_t words = random_below(WORDS_MAX), bytes = words * 8, first, count = 0;
		uint64_t *mine = arena_place(&mine_arena, bytes, 8);
		uint64_t *united = arena_place(&united_arena, bytes, 8);

		memset(mine, 0, bytes);
		memset(united, 0, bytes);
		fill_bits(mine, words);
		fill_bits(united, words);
		first = words > 0 ? random_below(words * 64) : 0;
		for (uint64_t i = first; i < words * 64; i++)
			count += bit_test(united, i);
		if (random_below(3) > 0)
			count = random_below(count + 1);
		for (size_t e = 0; (engine = usable_engine(e)) != NULL; e++) {
			const size_t size = bitmap_word_count(count) * 8;
			uint64_t *lanes = arena_place(&lanes_arena, size, 8);
			uint64_t own = plain_within(mine, united, first, count, want);

			assert_int_equal(engine->within(mine, united, first, count, lanes), own);
			arena_check(&lanes_arena, lanes, size, engine->name);
			assert_memory_equal(lanes, want, size);
		}
	}
	arena_close(&mine_arena);
	arena_close(&united_arena);
	arena_close(&lanes_arena);
}

/* ---- neutral ---- */

static bool same(const void *a, const void *b, enum dtype dtype)
{
	uint64_t x = fetch_element(a, dtype), y = fetch_element(b, dtype);

	if (!dtype_is_float(dtype))
		return x == y;
	return plain_value(x, dtype) == plain_value(y, dtype) ||
	       (isnan(plain_value(x, dtype)) && isnan(plain_value(y, dtype)));
}

TEST(neutral)
{
	const struct arena arena = arena_open(200 * 8);
	const struct bitmap_engine *engine;
	unsigned char src[200 * 8], want[200 * 8];

	for (unsigned i = 0; i < 300 * DTYPE_COUNT * REDUCE_COUNT; i++) {
		enum dtype dtype = (enum dtype)(1 + i % DTYPE_COUNT), wide = acc_dtype_of(dtype);
		enum reduction op = (enum reduction)(1 + i / DTYPE_COUNT % REDUCE_COUNT);
		uint64_t count = random_below(200), size = dtype_bytes(wide);

		for (uint64_t e = 0; e < count; e++)
			store_element(src + e * dtype_bytes(dtype), dtype, random_element(dtype));
		for (size_t e = 0; (engine = usable_engine(e)) != NULL; e++) {
			unsigned char *acc = arena_place(&arena, count * size, size);

			engine->neutral(acc, count, dtype, op);
			arena_check(&arena, acc, count * size, engine->name);
			engine->reduce(acc, src, count, dtype, op);
			engine->load(want, src, count, dtype);
			for (uint64_t n = 0; n < count; n++)
				if (!same(acc + n * size, want + n * size, wide))
					fail_msg("%s %s of %s", engine->name, reduction_name(op),
					         dtype_name(dtype));
		}
	}
	arena_close(&arena);
}

/* ---- reduce_at ---- */

struct buffers {
	struct arena acc;
	struct arena src;
	struct arena bits;
	unsigned char before[ELEMS_MAX * DTYPE_BYTES_MAX];
	unsigned char want[ELEMS_MAX * DTYPE_BYTES_MAX];
};

struct shape {
	enum dtype dtype;
	enum reduction op;
	struct bitmap_lanes lanes;
	uint64_t own;
};

static uint64_t acc_bytes(const struct shape *shape)
{
	return shape->lanes.block_count * shape->lanes.block_elems *
	       dtype_bytes(acc_dtype_of(shape->dtype));
}

static struct shape random_shape(struct buffers *buffers)
{
	const uint32_t likely[] = {1, 1, 1, 2, 3, 4, 8, 15, 16, 17, 32, 256};
	struct shape shape = {
		.dtype = (enum dtype)(1 + random_below(DTYPE_COUNT)),
		.op = (enum reduction)(1 + random_below(REDUCE_COUNT)),
		.lanes.block_elems = likely[random_below(12)],
	};
	uint64_t most = ELEMS_MAX / shape.lanes.block_elems, words;
	uint64_t *bits;

	most = most < BLOCKS_MAX ? most : BLOCKS_MAX;
	shape.lanes.block_count = random_below(random_below(2) ? most + 1 : 100 % most + 1);
	words = bitmap_word_count(shape.lanes.block_count);
	bits = arena_place(&buffers->bits, words * 8, 8);
	memset(bits, 0, words * 8);
	fill_bits(bits, words); /* past the last block, too */
	shape.lanes.bits = bits;
	for (uint64_t i = 0; i < shape.lanes.block_count; i++)
		shape.own += bit_test(bits, i);
	return shape;
}

static void plain_reduce_at(const struct shape *shape, unsigned char *acc, const unsigned char *src)
{
	uint64_t elems = shape->lanes.block_elems;

	for (uint64_t i = 0; i < shape->lanes.block_count; i++) {
		if (!bit_test(shape->lanes.bits, i))
			continue;
		bitmap_engines[0]->reduce(acc + i * elems * dtype_bytes(acc_dtype_of(shape->dtype)),
		                          src, elems, shape->dtype, shape->op);
		src += elems * dtype_bytes(shape->dtype);
	}
}

static void check_reduce_at(struct buffers *buffers, const struct shape *shape,
                            const unsigned char *src)
{
	const enum dtype wide = acc_dtype_of(shape->dtype);
	const uint64_t bytes = acc_bytes(shape), size = dtype_bytes(wide);
	const struct bitmap_engine *engine;

	memcpy(buffers->want, buffers->before, bytes);
	plain_reduce_at(shape, buffers->want, src);
	for (size_t e = 0; (engine = usable_engine(e)) != NULL; e++) {
		unsigned char *acc = arena_place(&buffers->acc, bytes, size);

		memcpy(acc, buffers->before, bytes);
		engine->reduce_at(acc, &shape->lanes, src, shape->dtype, shape->op);
		arena_check(&buffers->acc, acc, bytes, engine->name);
		for (uint64_t i = 0; i < bytes; i += size)
			if (!same(acc + i, buffers->want + i, wide))
				fail_msg("%s %s of %s, %u an element, differs at %llu of %llu",
				         engine->name, reduction_name(shape->op),
				         dtype_name(shape->dtype), shape->lanes.block_elems,
				         (unsigned long long)(i / size),
				         (unsigned long long)(bytes / size));
	}
}

static void fill_elements(unsigned char *at, uint64_t count, enum dtype dtype)
{
	for (uint64_t i = 0; i < count; i++)
		store_element(at + i * dtype_bytes(dtype), dtype, random_element(dtype));
}

TEST(reduce_at)
{
	struct buffers *buffers = test_malloc(sizeof(*buffers));

	buffers->acc = arena_open(ELEMS_MAX * DTYPE_BYTES_MAX);
	buffers->src = arena_open(ELEMS_MAX * DTYPE_BYTES_MAX);
	buffers->bits = arena_open(WORDS_MAX * 8);
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct shape shape = random_shape(buffers);
		uint64_t count = shape.own * shape.lanes.block_elems;
		unsigned char *src;

		arena_protect(&buffers->src, PROT_READ | PROT_WRITE);
		src = arena_place(&buffers->src, count * dtype_bytes(shape.dtype), 1);
		fill_elements(src, count, shape.dtype);
		arena_protect(&buffers->src, PROT_READ);
		fill_elements(buffers->before,
		              acc_bytes(&shape) / dtype_bytes(acc_dtype_of(shape.dtype)),
		              acc_dtype_of(shape.dtype));
		check_reduce_at(buffers, &shape, src);
	}
	arena_close(&buffers->acc);
	arena_close(&buffers->src);
	arena_close(&buffers->bits);
	test_free(buffers);
}
