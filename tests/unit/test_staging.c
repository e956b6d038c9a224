// SPDX-License-Identifier: BSD-3-Clause
/* test_staging.c - operations on a GPU, here a script: results, bytes, slots and who gets them */

#include "tests/unit/test_staging_bench.h"

static const struct spec large = {.count = 40000,
                                  .block_elems = 1,
                                  .dtype = DTYPE_I32,
                                  .reduction = REDUCE_SUM,
                                  .density = 30};

static struct spec draw(void)
{
	static const uint64_t counts[] = {0, 1, 2, 63, 65, 1000, 4097, 30000, 70001};
	static const uint32_t blocks[] = {1, 7, 8, 32, 64, 256, 1000};
	static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F32, DTYPE_F32, DTYPE_F16,
	                                    DTYPE_F64, DTYPE_I32, DTYPE_BF16};
	static const uint32_t shares[] = {0, 2, 20, 100};
	struct spec spec = {
		.count = counts[random_below(9)],
		.block_elems = blocks[random_below(7)],
		.dtype = dtypes[random_below(7)],
		.reduction = random_below(2) ? REDUCE_SUM : REDUCE_AVG,
		.in_place = random_below(2),
		.density = shares[random_below(4)],
		.others = shares[random_below(4)],
	};

	spec.fixed = spec.dtype == DTYPE_F32 && random_below(2);
	spec.fine = random_below(3) == 0 ? 1 + (uint32_t)random_below(70) : 0;
	return spec;
}

/* What all operations say that they cost is what the GPU has moved. */
static void check_bytes(void)
{
	uint64_t out = 0, in = 0;

	for (uint32_t i = 0; i < bench.op_count; i++) {
		struct staging_bytes bytes = staging_bytes(bench.ops[i].staged);

		out += bytes.out;
		in += bytes.in;
	}
	assert_int_equal(out, fake.out_bytes);
	assert_int_equal(in, fake.in_bytes);
}

static void test_random(void **state)
{
	static const uint32_t shards[] = {1, 2, 3, 8}, op_slots[] = {1, 2, 5, 16};

	(void)state;
	for (uint32_t round = 0; round < 120; round++) {
		uint32_t first = 1 + (uint32_t)random_below(OPS_MAX);

		assert_int_equal(bench_open(shards[round % 4], op_slots[round / 4 % 4]), 0);
		for (uint32_t i = 0; i < OPS_MAX; i++) {
			struct spec spec = draw();

			if (i == first)
				run_dry();
			assert_int_equal(bench_post(&spec), 0);
		}
		run_all();
		check_bytes();
		assert_int_equal(fake.calls[CALL_FINISH], OPS_MAX);
		assert_true(fake.wakes > 0);
		assert_true(staging_check(bench.staging));
		bench_close();
	}
}

/* ---- slots ---- */

/* Operations end one after the other, in any order, each while all others stand still. */
static void end_in_any_order(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(bench_post(&large), 0);
		bench.ops[i].hold = true;
	}
	run_dry(); /* all have as many slots as they get */
	for (uint32_t left = count; left > 0; left--) {
		uint32_t pick = (uint32_t)random_below(left), i = 0;

		while (!bench.ops[i].hold || pick-- > 0)
			i++;
		bench.ops[i].hold = false;
		run_dry();
		assert_true(bench.ops[i].passed);
	}
	free_ops();
}

/* Whatever the order in which the network lets operations end, each can: nobody has another's slot. */
static void test_any_order(void **state)
{
	(void)state;
	for (uint32_t round = 0; round < 20; round++) {
		uint32_t op_slots = 2 + (uint32_t)random_below(14);

		assert_int_equal(bench_open(2, op_slots), 0);
		end_in_any_order(op_slots);
		end_in_any_order(op_slots); /* the same ones again */
		bench_close();
	}
}

static uint32_t slots_of(const struct op *op)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < op->scanned; i++)
		count += op->parts[part_of(&op->task.cut, i, 0)] != RECEIVED;
	return count;
}

/* The oldest gets all but one for each of the others that have begun, and all again when they end. */
static void test_shares(void **state)
{
	(void)state;
	assert_int_equal(bench_open(1, 4), 0);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(bench_post(&large), 0);
		bench.ops[i].hold = true;
	}
	assert_int_equal(fake.slots_open, 8);
	while (fake_run(GATE) || step_activate())
		;
	for (uint32_t i = 0; i < 3; i++)
		while (step_scan(&bench.ops[i]) || fake_run(OUT))
			;
	assert_int_equal(slots_of(&bench.ops[0]), 6);
	assert_int_equal(slots_of(&bench.ops[1]), 1);
	assert_int_equal(slots_of(&bench.ops[2]), 1);
	for (uint32_t i = 1; i < 3; i++)
		bench.ops[i].hold = false;
	run_dry();
	assert_true(bench.ops[1].passed && bench.ops[2].passed);
	assert_int_equal(slots_of(&bench.ops[0]), 8);
	bench.ops[0].hold = false;
	run_all();
	assert_int_equal(fake.slots_open, 8);
	bench_close();
}

/* Segments are given to the GPU in order, each once, whatever is asked; and only after the gate. */
static void test_order(void **state)
{
	const uint8_t *next;

	(void)state;
	assert_int_equal(bench_open(1, 4), 0);
	assert_int_equal(bench_post(&large), 0);
	assert_true(step_activate());
	for (uint32_t i = 0; i < 3; i++)
		assert_false(step_scan(&bench.ops[0]));
	assert_int_equal(fake.calls[CALL_SCAN], 0);
	assert_true(fake_run(GATE));
	next = bench.ops[0].send;
	for (uint32_t i = 0; i < 3; i++)
		assert_false(step_scan(&bench.ops[0]));
	assert_int_equal(fake.calls[CALL_SCAN], 8);
	for (uint32_t i = 0; i < 8; i++) {
		assert_ptr_equal(fake.items[OUT][i].tensor.data, next);
		assert_false(fake.items[OUT][i].magnitude);
		next += fake.items[OUT][i].tensor.count * 4;
	}
	assert_true(fake_run(OUT));
	assert_true(step_scan(&bench.ops[0]));
	assert_false(step_scan(&bench.ops[0]));
	run_all();
	assert_int_equal(fake.calls[CALL_SCAN], bench.ops[0].task.cut.segment_count);
	bench_close();
}

/* Eight to begin with, then one for each that wants its first, as far as the job can have any. */
static void test_growth(void **state)
{
	const struct spec small = {
		.count = 100, .block_elems = 4, .dtype = DTYPE_F32, .reduction = REDUCE_SUM};
	struct spec wide = large;

	(void)state;
	wide.count = 300000;
	wide.block_elems = 32; /* segments of 512 KB: slots of 1 MB */
	assert_int_equal(bench_open(2, 12), 0);
	for (uint32_t i = 1; i <= 14; i++) {
		assert_int_equal(bench_post(&small), 0);
		assert_int_equal(fake.slots_open, i <= 8 ? 8 : i <= 12 ? i : 12);
	}
	run_all();
	free_ops();
	assert_int_equal(bench_post(&wide), 0);
	assert_int_equal(fake.slots_open, 12 + 8); /* the small ones are kept: to free them waits */
	assert_int_equal(bench_post(&small), 0);
	assert_int_equal(fake.slots_open, 12 + 8);
	run_all();
	assert_int_equal(fake.gates_open, 14); /* operations are used again */
	for (uint32_t i = 1; i <= 10; i++)
		assert_int_equal(bench_post(&small), 0);
	assert_int_equal(fake.slots_open, 12 + 10); /* those that were put aside do not count */
	run_all();
	bench_close();
}

/* What is under way when slots get larger goes on in its own, and gives them to nobody. */
static void test_growth_meanwhile(void **state)
{
	struct spec wide = large;

	(void)state;
	wide.count = 300000;
	wide.block_elems = 64;
	for (uint32_t round = 0; round < 10; round++) {
		assert_int_equal(bench_open(1, 6), 0);
		for (uint32_t i = 0; i < 3; i++)
			assert_int_equal(bench_post(&large), 0);
		run_some(30 * round);
		for (uint32_t i = 0; i < 2; i++)
			assert_int_equal(bench_post(&wide), 0);
		run_all();
		check_bytes();
		bench_close();
	}
}

/* ---- edges ---- */

/* One operation alone, and what it costs. */
static struct staging_bytes cost(struct spec spec, uint32_t shards)
{
	struct staging_bytes bytes;

	assert_int_equal(bench_open(shards, 4), 0);
	assert_int_equal(bench_post(&spec), 0);
	run_all();
	bytes = staging_bytes(bench.ops[0].staged);
	check_bytes();
	bench_close();
	return bytes;
}

static void test_bytes(void **state)
{
	struct spec spec = {
		.count = 6400, .block_elems = 64, .dtype = DTYPE_F32, .reduction = REDUCE_SUM};
	struct staging_bytes bytes;

	(void)state;
	/* A hundred blocks that nobody has: magnitude and two words; two words and three ranks. */
	bytes = cost(spec, 1);
	assert_int_equal(bytes.out, 24);
	assert_int_equal(bytes.in, 2 * 8 + 3 * 4);
	spec.in_place = true;
	assert_int_equal(cost(spec, 1).in, 0); /* they are zero already */
	spec.density = 100;
	bytes = cost(spec, 1);
	assert_int_equal(bytes.out, 24 + 25600);
	assert_int_equal(bytes.in, 2 * 8 + 3 * 4 + 25600);
	bytes = cost(spec, 2); /* fifty blocks each */
	assert_int_equal(bytes.out, 24 + 25600);
	assert_int_equal(bytes.in, 2 * (8 + 2 * 4) + 25600);
	spec.count = 0;
	bytes = cost(spec, 2);
	assert_int_equal(bytes.out + bytes.in, 0);
}

/* A last block that is short, alone in its segment or not, in each form and at each length. */
static void test_short_blocks(void **state)
{
	(void)state;
	for (uint32_t shards = 1; shards <= 3; shards += 2)
		for (uint64_t rest = 0; rest < 5; rest++)
			for (uint32_t form = 0; form < 8; form++) {
				struct spec spec = {
					.count = UINT64_C(4096) * 5 * shards + rest,
					.block_elems = 5,
					.dtype = DTYPE_F32,
					.reduction = REDUCE_AVG,
					.fixed = form & 1,
					.in_place = form & 2,
					.density = form & 4 ? 100 : 5,
					.others = 5,
				};

				(void)cost(spec, shards);
				spec.count -= 5 * 4000;
				(void)cost(spec, shards);
			}
}

/* Bitmaps are before the first segment, in memory that is used again; without memory there are none. */
static void test_views(void **state)
{
	struct spec spec = large;

	(void)state;
	spec.fine = 4;
	spec.in_place = true;
	assert_int_equal(bench_open(1, 4), 0);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(bench_post(&spec), 0);
		spec.count -= 1000;
	}
	assert_int_equal(fake.views_open, 3);
	run_all();
	assert_int_equal(fake.items[OUT][0].work, WORK_VIEW);
	check_bytes();
	free_ops();
	fake.out_bytes = fake.in_bytes = 0;
	fake.fail = CALL_VIEW_OPEN;
	fake.fail_at = 4;
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(bench_post(&spec), 0);
		assert_int_equal(bench.ops[i].fine, i < 3 ? 4 : 0); /* there is none for the last */
	}
	assert_int_equal(fake.views_open, 3);
	run_all();
	check_bytes();
	bench_close();
}

static void test_too_many_blocks(void **state)
{
	const struct spec spec = {.count = (UINT64_C(1) << 48) + 1,
	                          .block_elems = 1,
	                          .dtype = DTYPE_F32,
	                          .reduction = REDUCE_SUM};

	(void)state;
	assert_int_equal(bench_open(1, 4), 0);
	assert_int_equal(bench_post(&spec), -EINVAL);
	assert_string_equal(why, "the tensor has too many blocks");
	assert_int_equal(fake.gates_open + fake.slots_open, 0);
	bench_close();
}

static void test_wait(void **state)
{
	(void)state;
	assert_int_equal(bench_open(1, 4), 0);
	assert_int_equal(bench_post(&large), 0);
	assert_int_equal(staging_wait(bench.ops[0].staged, &fake, why), 0);
	fake.no_wait = true;
	assert_int_equal(staging_wait(bench.ops[0].staged, &fake, why), -EAGAIN);
	fake.no_wait = false;
	fake.fail = CALL_WAIT;
	fake.fail_at = 2;
	assert_int_equal(staging_wait(bench.ops[0].staged, &fake, why), -EIO);
	assert_string_equal(why, "wait fails");
	run_all();
	bench_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_random, fake_begin),
		cmocka_unit_test_setup(test_any_order, fake_begin),
		cmocka_unit_test_setup(test_shares, fake_begin),
		cmocka_unit_test_setup(test_order, fake_begin),
		cmocka_unit_test_setup(test_growth, fake_begin),
		cmocka_unit_test_setup(test_growth_meanwhile, fake_begin),
		cmocka_unit_test_setup(test_bytes, fake_begin),
		cmocka_unit_test_setup(test_short_blocks, fake_begin),
		cmocka_unit_test_setup(test_views, fake_begin),
		cmocka_unit_test_setup(test_too_many_blocks, fake_begin),
		cmocka_unit_test_setup(test_wait, fake_begin),
	};

	random_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
