// SPDX-License-Identifier: BSD-3-Clause
/* test_dtype.c - sizes and names of element types and reductions, and the way back from a name */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bitmap/control/options.h"
#include "bitmap/dtype.h"
#include "client/cli/cli.h"
#include "tests/unit/unit.h"

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

static int parsed;
static const struct option list[] = {
	{"dtype", CLI_DTYPES, OPTION_CHOICE, &parsed, "f32", NULL, DTYPE_F32, DTYPE_COUNT,
         "a type"},
	{0},
};

/* What a command makes of WINNOW_DTYPE. */
static int parse(const char *text)
{
	struct why why;

	setenv("WINNOW_DTYPE", text, 1);
	return option_env(&list[0], &why);
}

TEST(dtypes)
{
	assert_int_equal(sizeof(dtypes) / sizeof(dtypes[0]), DTYPE_COUNT);
	for (size_t i = 0; i < DTYPE_COUNT; i++) {
		assert_int_equal(dtype_bytes(dtypes[i].dtype), dtypes[i].bytes);
		assert_int_equal(dtype_acc_bytes(dtypes[i].dtype), dtypes[i].acc_bytes);
		assert_int_equal(dtype_is_float(dtypes[i].dtype), dtypes[i].is_float);
		assert_string_equal(dtype_name(dtypes[i].dtype), dtypes[i].names[0]);
		for (size_t n = 0; dtypes[i].names[n] != NULL; n++) {
			assert_int_equal(parse(dtypes[i].names[n]), 0);
			assert_int_equal(parsed, dtypes[i].dtype);
		}
	}
}

TEST(reductions)
{
	assert_int_equal(sizeof(reductions) / sizeof(reductions[0]), REDUCE_COUNT);
	for (size_t i = 0; i < REDUCE_COUNT; i++)
		assert_string_equal(reduction_name(reductions[i].reduction), reductions[i].name);
}

TEST(unknown)
{
	const char *const wrong[] = {"f", "F32", "f 32", "f320", "int8", "?", "f32|f16", NULL};

	for (size_t i = 0; wrong[i] != NULL; i++)
		assert_int_equal(parse(wrong[i]), -EINVAL);
	assert_string_equal(dtype_name((enum dtype)0), "?");
	assert_string_equal(dtype_name((enum dtype)(DTYPE_COUNT + 1)), "?");
	assert_string_equal(reduction_name((enum reduction)0), "?");
	assert_string_equal(reduction_name((enum reduction)(REDUCE_COUNT + 1)), "?");
}
