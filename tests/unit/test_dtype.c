// SPDX-License-Identifier: BSD-3-Clause
/* test_dtype.c - sizes, names and parsing of element types and reductions */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "bitmap/dtype.h"

static const struct {
	enum dtype dtype;
	uint32_t bytes, acc_bytes;
	bool is_float;
	const char *names[4]; /* the first is printed */
} dtypes[] = {
	{DTYPE_F32, 4, 4, true, {"f32", "float32", "float"}},
	{DTYPE_F16, 2, 4, true, {"f16", "float16", "half"}},
	{DTYPE_BF16, 2, 4, true, {"bf16", "bfloat16"}},
	{DTYPE_F64, 8, 8, true, {"f64", "float64", "double"}},
	{DTYPE_I32, 4, 4, false, {"i32", "int32", "int"}},
	{DTYPE_I64, 8, 8, false, {"i64", "int64", "long"}},
};

static const struct {
	enum reduction reduction;
	const char *name;
} reductions[] = {
	{REDUCE_SUM, "sum"}, {REDUCE_AVG, "avg"},   {REDUCE_MIN, "min"},
	{REDUCE_MAX, "max"}, {REDUCE_PROD, "prod"},
};

static void test_dtypes(void **state)
{
	(void)state;
	assert_int_equal(sizeof(dtypes) / sizeof(dtypes[0]), DTYPE_COUNT);
	for (size_t i = 0; i < DTYPE_COUNT; i++) {
		enum dtype parsed = (enum dtype)0;

		assert_int_equal(dtype_bytes(dtypes[i].dtype), dtypes[i].bytes);
		assert_int_equal(dtype_acc_bytes(dtypes[i].dtype), dtypes[i].acc_bytes);
		assert_int_equal(dtype_is_float(dtypes[i].dtype), dtypes[i].is_float);
		assert_string_equal(dtype_name(dtypes[i].dtype), dtypes[i].names[0]);
		for (size_t n = 0; dtypes[i].names[n] != NULL; n++) {
			assert_int_equal(dtype_parse(dtypes[i].names[n], &parsed), 0);
			assert_int_equal(parsed, dtypes[i].dtype);
		}
	}
}

static void test_reductions(void **state)
{
	(void)state;
	assert_int_equal(sizeof(reductions) / sizeof(reductions[0]), REDUCE_COUNT);
	for (size_t i = 0; i < REDUCE_COUNT; i++) {
		enum reduction parsed = (enum reduction)0;

		assert_string_equal(reduction_name(reductions[i].reduction), reductions[i].name);
		assert_int_equal(reduction_parse(reductions[i].name, &parsed), 0);
		assert_int_equal(parsed, reductions[i].reduction);
	}
}

/* What is no name is refused and leaves the result alone. */
static void test_unknown(void **state)
{
	const char *const wrong[] = {"", "f", "F32", "f32 ", "f320", "int8", "?", "summ", NULL};

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		enum dtype dtype = DTYPE_I64;
		enum reduction reduction = REDUCE_PROD;

		assert_int_equal(dtype_parse(wrong[i], &dtype), -EINVAL);
		assert_int_equal(dtype, DTYPE_I64);
		assert_int_equal(reduction_parse(wrong[i], &reduction), -EINVAL);
		assert_int_equal(reduction, REDUCE_PROD);
	}
	assert_string_equal(dtype_name((enum dtype)0), "?");
	assert_string_equal(dtype_name((enum dtype)(DTYPE_COUNT + 1)), "?");
	assert_string_equal(reduction_name((enum reduction)0), "?");
	assert_string_equal(reduction_name((enum reduction)(REDUCE_COUNT + 1)), "?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dtypes),
		cmocka_unit_test(test_reductions),
		cmocka_unit_test(test_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
