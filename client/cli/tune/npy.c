// SPDX-License-Identifier: BSD-3-Clause
/*
 * npy.c - see npy.h
 *
 * The head is a Python dictionary in text: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 * With other quotes and brackets it is JSON.
 */

#include "client/cli/tune/npy.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/cli/cli.h"

#define COUNT_MAX 0x1p48

/* ---- the dictionary ---- */

/* Makes JSON of Python, in place; whatever else it is becomes nothing that JSON knows. */
static void json_make(char *text, size_t bytes)
{
	static const char python[] = "'()TF", same[] = "\"[]tf";
	size_t comma = SIZE_MAX; /* the last thing but spaces was one */
	char quote = '\0';

	for (size_t i = 0; i < bytes; i++) {
		const char *known = strchr(python, text[i]);

		if (text[i] == '\\' || (!isprint((unsigned char)text[i]) && text[i] != '\n'))
			text[i] = '\1'; /* error texts quote it, on terminals */
		if (quote != '\0' && text[i] != quote)
			continue;
		if (text[i] == '\'' || text[i] == '"')
			quote = quote != '\0' ? '\0' : text[i];
		if (known != NULL && *known != '\0')
			text[i] = same[known - python];
		if (comma != SIZE_MAX && (text[i] == ']' || text[i] == '}'))
			text[comma] = ' ';
		if (!isspace((unsigned char)text[i]))
			comma = text[i] == ',' ? i : SIZE_MAX;
	}
}

static int shape_take(const json_t *shape, struct npy *npy, struct why *why)
{
	double count = 1;

	if (!json_is_array(shape))
		return why_set(why, -EINVAL, "its shape is not a tuple");
	if (json_array_size(shape) > NPY_DIMENSIONS_MAX)
		return why_set(why, -EINVAL, "it has more than %d dimensions", NPY_DIMENSIONS_MAX);
	npy->dimensions = (uint32_t)json_array_size(shape);
	for (uint32_t i = 0; i < npy->dimensions; i++) {
		const json_t *value = json_array_get(shape, i);
		double size = json_is_real(value) ? json_real_value(value) : -1;

		if (!(size >= 0 && size <= COUNT_MAX && size == floor(size)))
			return why_set(why, -EINVAL,
			               "its shape is not a tuple of numbers below 2^48");
		npy->shape[i] = (uint64_t)size;
		count *= size;
		if (count > COUNT_MAX)
			return why_set(why, -EINVAL, "it has more than 2^48 elements");
	}
	npy->count = (uint64_t)count;
	return 0;
}

static int type_of(const char *descr, enum dtype *out, struct why *why)
{
	static const struct {
		const char *descr;
		enum dtype dtype;
	} known[] =
		{
			{"<f4", DTYPE_F32},  {"<f2", DTYPE_F16}, {"<f8", DTYPE_F64},
			{"<i4", DTYPE_I32},  {"<i8", DTYPE_I64}, {"<V2", DTYPE_BF16},
			{"|V2", DTYPE_BF16}, /* ml_dtypes' bfloat16 */
		};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strcmp(known[i].descr, descr) != 0)
			continue;
		*out = known[i].dtype;
		return 0;
	}
	return why_set(
		why, -EINVAL,
		"its type is %.31s: want little-endian float32, float16, float64, int32, int64 "
		"or bfloat16",
		descr);
}

static int dictionary_take(const json_t *root, struct npy *npy, struct why *why)
{
	const json_t *descr = json_object_get(root, "descr");
	const json_t *order = json_object_get(root, "fortran_order");
	const json_t *shape = json_object_get(root, "shape"), *value;
	const char *name;
	int err;

	if (!json_is_object(root))
		return why_set(why, -EINVAL, "its head is not a dictionary");
	json_object_foreach((json_t *)(uintptr_t)root, name, value)
	{
		if (value != descr && value != order && value != shape)
			return why_set(why, -EINVAL, "its head has an unknown entry '%.31s'", name);
	}
	if (descr == NULL || order == NULL || shape == NULL)
		return why_set(why, -EINVAL, "its head lacks type, order or shape");
	if (!json_is_string(descr))
		return why_set(why, -EINVAL, "its elements are records: want one of numbers");
	if (!json_is_boolean(order))
		return why_set(why, -EINVAL, "its fortran_order is neither True nor False");
	err = type_of(json_string_value(descr), &npy->dtype, why);
	if (err == 0)
		err = shape_take(shape, npy, why);
	if (err == 0 && json_is_true(order) && npy->dimensions > 1)
		err = why_set(why, -EINVAL,
		              "it is in Fortran's order: save numpy.ascontiguousarray() of it");
	return err;
}

static int text_take(const uint8_t *text, size_t bytes, struct npy *npy, struct why *why)
{
	char *copy = cli_memory(bytes + 1, 1, "a head");
	json_t *root;
	int err;

	memcpy(copy, text, bytes);
	json_make(copy, bytes);
	root = json_loadb(copy, bytes, JSON_DECODE_INT_AS_REAL, NULL);
	err = dictionary_take(root, npy, why);
	json_decref(root);
	free(copy);
	return err;
}

/* ---- the file ---- */

int npy_parse(const uint8_t *head, size_t bytes, uint64_t file_bytes, struct npy *out,
              struct why *why)
{
	struct npy npy = {0};
	uint64_t text_bytes = 0, data_bytes;
	uint32_t before;
	int err;

	if (bytes < 10 || memcmp(head, "\x93NUMPY", 6) != 0)
		return why_set(why, -EINVAL, "it is not a .npy file");
	if (head[6] < 1 || head[6] > 3)
		return why_set(why, -EINVAL, "it is of version %u of .npy: want 1 to 3", head[6]);
	before = head[6] > 1 ? 12 : 10;
	for (uint32_t i = 8; i < before && i < bytes; i++)
		text_bytes |= (uint64_t)head[i] << (i - 8) * 8;
	if (text_bytes > NPY_HEAD_BYTES_MAX - before)
		return why_set(why, -EINVAL,
		               "its head has %llu bytes, more than any of an array of numbers",
		               (unsigned long long)text_bytes);
	if (bytes < before + text_bytes)
		return why_set(why, -EINVAL, "it ends within its head");
	err = text_take(head + before, (size_t)text_bytes, &npy, why);
	if (err != 0)
		return err;
	npy.data_from = before + text_bytes;
	data_bytes = npy.count * dtype_bytes(npy.dtype);
	if (file_bytes < npy.data_from || file_bytes - npy.data_from < data_bytes)
		return why_set(why, -EINVAL, "it is cut short: %llu bytes of data are missing",
		               (unsigned long long)(npy.data_from + data_bytes - file_bytes));
	*out = npy;
	return 0;
}

int npy_read(const char *path, struct npy *out, void **data, struct why *why)
{
	uint8_t head[NPY_HEAD_BYTES_MAX], *memory;
	FILE *file = fopen(path, "re");
	struct stat status;
	uint64_t bytes;
	int err = 0;

	if (file == NULL || fstat(fileno(file), &status) != 0)
		err = why_set(why, -errno, "%s", strerror(errno));
	else if (!S_ISREG(status.st_mode))
		err = why_set(why, -EINVAL, "it is not a plain file");
	bytes = err == 0 ? fread(head, 1, NPY_HEAD_BYTES_MAX, file) : 0;
	if (err == 0)
		err = npy_parse(head, bytes, (uint64_t)status.st_size, out, why);
	if (err == 0 && data != NULL) {
		bytes = out->count * dtype_bytes(out->dtype);
		memory = cli_tensor(bytes);
		if (fseeko(file, (off_t)out->data_from, SEEK_SET) != 0 ||
		    fread(memory, 1, bytes, file) != bytes) {
			err = why_set(why, -EIO, "cannot read it: %s",
			              ferror(file) ? strerror(errno) : "it has become shorter");
			free(memory);
		} else {
			*data = memory;
		}
	}
	if (file != NULL)
		fclose(file);
	return err;
}
