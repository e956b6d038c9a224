// SPDX-License-Identifier: BSD-3-Clause
/* test_staging_fails.c - operations on a GPU, here a script, that fail or are given up at any point */

#include "tests/unit/test_staging_bench.h"

static const struct spec specs[] = {
	{.count = 40000, .block_elems = 2, .dtype = DTYPE_F32, .density = 20, .others = 10},
	{.count = 9000,
         .block_elems = 1,
         .dtype = DTYPE_I32,
         .density = 20,
         .in_place = true,
         .fine = 2},
	{.count = 30000, .block_elems = 3, .dtype = DTYPE_F32, .density = 5, .fixed = true},
	{.count = 10, .block_elems = 4, .dtype = DTYPE_F16, .density = 100, .fine = 64},
	{.count = 0, .block_elems = 4, .dtype = DTYPE_F32},
};

#define SPECS (sizeof(specs) / sizeof(specs[0]))

static int post(uint32_t i)
{
	struct spec spec = specs[i % SPECS];

	spec.reduction = REDUCE_SUM;
	return bench_post(&spec);
}

/* Where callers wait: their streams go on, whatever happened. */
static void check_released(void)
{
	for (uint32_t i = 0; i < fake.gates_open; i++)
		assert_true(*fake.gates[i]->word >= fake.turns[i]);
}

/* ---- giving up ---- */

static const struct spec many_segments = {.count = 160000,
                                          .block_elems = 2,
                                          .dtype = DTYPE_F32,
                                          .reduction = REDUCE_SUM,
                                          .density = 20};

/* One more gets all slots that there are: nobody wants any of them. */
static void take_all_slots(void)
{
	struct op *op = &bench.ops[bench.op_count];

	assert_int_equal(bench_post(&many_segments), 0);
	while (fake_run(GATE) || step_activate() || step_scan(op) || fake_run(OUT))
		;
	assert_int_equal(op->scanned, 8);
	run_all();
}

/* It is over when the GPU has nothing to do for it: not before the stream has come to it either. */
static void test_given_up(void **state)
{
	struct op *op = &bench.ops[0];

	(void)state;
	assert_int_equal(bench_open(2, 4), 0);
	assert_int_equal(bench_post(&many_segments), 0);
	assert_true(step_activate() && fake_run(GATE));
	assert_false(step_scan(op)); /* eight segments are with the GPU */
	assert_true(fake_run(OUT));
	finish_op(op, true);
	assert_false(staging_turn(bench.staging));
	assert_false(fake_run(IN)); /* after all scans */
	while (fake_run(OUT))
		assert_false(staging_turn(bench.staging));
	assert_true(fake_run(IN));
	assert_true(staging_turn(bench.staging));
	assert_true(op->passed && staging_idle(bench.staging));
	assert_int_equal(bench.failures, 0);
	take_all_slots(); /* though its caller still has it */
	bench_close();
}

/* Nor does one whose slots came back at once, since there was nothing to unpack. */
static void test_nothing_to_unpack(void **state)
{
	struct spec zeros = many_segments;

	(void)state;
	zeros.in_place = true;
	zeros.density = 0;
	assert_int_equal(bench_open(2, 4), 0);
	assert_int_equal(bench_post(&zeros), 0);
	run_all();
	assert_int_equal(fake.calls[CALL_UNPACK] + fake.calls[CALL_EMPTY], 0);
	take_all_slots();
	bench_close();
}

/* Nor one that could not be posted for want of memory. */
static void test_no_memory(void **state)
{
	(void)state;
	assert_int_equal(bench_open(2, 4), 0);
	fake.fail = CALL_SLOT_OPEN;
	fake.fail_at = 3;
	assert_int_equal(post(0), -EIO);
	assert_string_equal(why, "slot_open fails");
	take_all_slots();
	assert_int_equal(fake.slots_open, 8);
	bench_close();
}

static void test_given_up_early(void **state)
{
	(void)state;
	assert_int_equal(bench_open(2, 4), 0);
	assert_int_equal(post(0), 0);
	finish_op(&bench.ops[0], true);
	assert_true(fake_run(IN));
	assert_false(staging_turn(bench.staging)); /* its gate's signal is still to come */
	assert_false(staging_idle(bench.staging));
	assert_true(fake_run(GATE));
	assert_true(staging_turn(bench.staging));
	assert_true(bench.ops[0].passed);
	assert_int_equal(fake.calls[CALL_SCAN], 0);
	bench_close();
}

/* The engine would not take it: the caller's stream waits all the same, a failed GPU or not. */
static void test_never_begun(void **state)
{
	struct spec spec = specs[0];

	(void)state;
	spec.reduction = REDUCE_SUM;
	spec.refused = true;
	for (uint32_t broken = 0; broken < 2; broken++) {
		assert_int_equal(bench_open(2, 4), 0);
		assert_int_equal(post(0), 0);
		assert_int_equal(bench_post(&spec), 0);
		fake.broken = broken;
		assert_int_equal(staging_check(bench.staging), !broken);
		finish_op(&bench.ops[1], true);
		assert_int_equal(*fake.gates[1]->word, broken);
		run_all();
		check_released();
		bench_close();
	}
}

/* At any point, others go on: slots that it had, or wanted, are theirs. */
static void test_given_up_anywhere(void **state)
{
	(void)state;
	for (uint32_t round = 0; round < 300; round++) {
		uint32_t victim = (uint32_t)random_below(8);

		assert_int_equal(bench_open(2, 3), 0);
		for (uint32_t i = 0; i < 8; i++)
			assert_int_equal(post(i), 0);
		run_some(5 * round);
		if (!bench.ops[victim].done)
			finish_op(&bench.ops[victim], true);
		run_all();
		assert_int_equal(bench.failures, 0);
		bench_close();
	}
}

/* An operation that was free again is as good as new: bytes, turns, what it wants. */
static void test_used_again(void **state)
{
	struct staging_bytes bytes;

	(void)state;
	assert_int_equal(bench_open(1, 2), 0);
	for (uint32_t i = 0; i < 30; i++) {
		struct op *op = &bench.ops[0];

		assert_int_equal(post(i % 2), 0);
		assert_int_equal(fake.gates[0]->turn, i + 1);
		if (i % 3 == 2)
			finish_op(op, true);
		run_all();
		bytes = staging_bytes(op->staged);
		assert_int_equal(bytes.out, fake.out_bytes);
		assert_int_equal(bytes.in, fake.in_bytes);
		fake.out_bytes = fake.in_bytes = 0;
		free_ops();
	}
	assert_int_equal(fake.gates_open, 1);
	assert_int_equal(fake.slots_open, 8);
	/* Those that were given up before they had a slot do not want one any more. */
	take_all_slots();
	bench_close();
}

/* ---- failing ---- */

/* Seven operations in two batches, while one call fails. True: it was made. */
static bool meet(enum call call, uint32_t number)
{
	bool met;
	int err;

	fake.fail = call;
	fake.fail_at = number;
	err = bench_open(2, 3);
	if (err != 0) {
		assert_int_equal(call, CALL_OPEN);
		assert_string_equal(why, "open fails");
		assert_null(bench.staging);
	}
	for (uint32_t i = 0; i < 7 && err == 0; i++) {
		int result = post(i);

		assert_int_equal(result, fake.met && !bench.failures ? result : 0);
		if (result != 0)
			assert_int_equal(result, -EIO);
		if (i == 3)
			run_dry();
		if (bench.failures > 0)
			break; /* the job has ended */
	}
	if (err == 0)
		run_all();
	met = fake.met;
	assert_true(!met || err != 0 || call < CALL_WAIT || bench.failures == 1);
	assert_true(met || bench.failures == 0);
	check_released();
	bench_close();
	return met;
}

static void test_every_call(void **state)
{
	static const enum call calls[] = {
		CALL_OPEN, CALL_GATE_OPEN, CALL_SLOT_OPEN, CALL_POST,   CALL_SCAN,
		CALL_VIEW, CALL_UNPACK,    CALL_EMPTY,     CALL_FINISH, CALL_BUSY,
	};

	(void)state;
	for (uint32_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		uint32_t number = 1;

		/* Of looks there are as many as one likes. */
		while (meet(calls[i], number) && number < 100)
			number++;
		printf("%s: %u failures\n", call_names[calls[i]], number - 1);
		assert_true(number > 1);
	}
}

/* From some moment on nothing moves, and no call does anything: all operations still end. */
static void test_breaks(void **state)
{
	uint32_t broken = 0;

	(void)state;
	for (uint32_t round = 0; round < 300; round++) {
		assert_int_equal(bench_open(2, 3), 0);
		for (uint32_t i = 0; i < 7; i++)
			assert_int_equal(post(i), 0);
		run_some(5 * round);
		fake.broken = true;
		assert_int_equal(post(0), -EIO);
		run_all();
		check_released();
		broken += bench.failures;
		bench_close();
	}
	assert_true(broken > 100);
}

/* A GPU that nobody uses may be broken as long as it likes. */
static void test_check(void **state)
{
	(void)state;
	assert_int_equal(bench_open(2, 3), 0);
	fake.broken = true;
	assert_true(staging_check(bench.staging));
	assert_false(staging_turn(bench.staging));
	assert_int_equal(fake.calls[CALL_BUSY], 0);
	fake.broken = false;
	assert_int_equal(post(0), 0);
	assert_true(staging_check(bench.staging));
	fake.broken = true;
	assert_false(staging_check(bench.staging));
	assert_string_equal(staging_error(bench.staging), "busy fails");
	assert_false(staging_turn(bench.staging)); /* it has not been given up yet */
	assert_int_equal(*fake.gates[0]->word, 1);
	run_all();
	assert_true(bench.ops[0].failed);
	bench_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_given_up, fake_begin),
		cmocka_unit_test_setup(test_given_up_early, fake_begin),
		cmocka_unit_test_setup(test_nothing_to_unpack, fake_begin),
		cmocka_unit_test_setup(test_no_memory, fake_begin),
		cmocka_unit_test_setup(test_never_begun, fake_begin),
		cmocka_unit_test_setup(test_given_up_anywhere, fake_begin),
		cmocka_unit_test_setup(test_used_again, fake_begin),
		cmocka_unit_test_setup(test_every_call, fake_begin),
		cmocka_unit_test_setup(test_breaks, fake_begin),
		cmocka_unit_test_setup(test_check, fake_begin),
	};

	random_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
