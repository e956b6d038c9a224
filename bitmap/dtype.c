// SPDX-License-Identifier: BSD-3-Clause
/* dtype.c - the names of element types and reductions, and the way back from a name */

#include "bitmap/dtype.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

struct name {
	const char *text;
	int value;
};

/* The first name of a value is the one we print. */
static const struct name dtype_names[] = {
	{"f32", DTYPE_F32},     {"f16", DTYPE_F16},       {"bf16", DTYPE_BF16},
	{"f64", DTYPE_F64},     {"i32", DTYPE_I32},       {"i64", DTYPE_I64},
	{"float32", DTYPE_F32}, {"float", DTYPE_F32},     {"float16", DTYPE_F16},
	{"half", DTYPE_F16},    {"bfloat16", DTYPE_BF16}, {"float64", DTYPE_F64},
	{"double", DTYPE_F64},  {"int32", DTYPE_I32},     {"int", DTYPE_I32},
	{"int64", DTYPE_I64},   {"long", DTYPE_I64},      {NULL, 0},
};

static const struct name reduction_names[] = {
	{"sum", REDUCE_SUM},
	{"avg", REDUCE_AVG},
	{"min", REDUCE_MIN},
	{"max", REDUCE_MAX},
	{"prod", REDUCE_PROD},
	{"average", REDUCE_AVG},
	{"mean", REDUCE_AVG},
	{"minimum", REDUCE_MIN},
	{"maximum", REDUCE_MAX},
	{"product", REDUCE_PROD},
	{NULL, 0},
};

static const char *name_of(const struct name names[], int value)
{
	for (size_t i = 0; names[i].text != NULL; i++)
		if (names[i].value == value)
			return names[i].text;
	return "?";
}

/* The value called `text`, or 0: no enum here uses 0. */
static int value_of(const struct name names[], const char *text)
{
	if (text == NULL)
		return 0;
	for (size_t i = 0; names[i].text != NULL; i++)
		if (strcmp(names[i].text, text) == 0)
			return names[i].value;
	return 0;
}

const char *dtype_name(enum dtype dtype)
{
	return name_of(dtype_names, (int)dtype);
}

int dtype_parse(const char *name, enum dtype *out)
{
	int value = value_of(dtype_names, name);

	if (value == 0)
		return -EINVAL;
	*out = (enum dtype)value;
	return 0;
}

const char *reduction_name(enum reduction reduction)
{
	return name_of(reduction_names, (int)reduction);
}

int reduction_parse(const char *name, enum reduction *out)
{
	int value = value_of(reduction_names, name);

	if (value == 0)
		return -EINVAL;
	*out = (enum reduction)value;
	return 0;
}
