// SPDX-License-Identifier: BSD-3-Clause
/* test_npy.c - .npy heads: what NumPy writes, and what nobody should */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/cli/tune/npy.h"

static uint8_t file[70000];
static size_t file_bytes;

/* As numpy.save() makes it: the dictionary, spaces up to a multiple of 64, a newline. */
static void make(uint8_t version, const char *dictionary)
{
	size_t before = version == 1 ? 10 : 12, length = strlen(dictionary);
	size_t text = (before + length + 1 + 63) / 64 * 64 - before;

	memset(file, ' ', before + text);
	memcpy(file, "\x93NUMPY", 6);
	file[6] = version;
	file[7] = 0;
	file[8] = (uint8_t)text;
	file[9] = (uint8_t)(text >> 8);
	if (version > 1)
		file[10] = file[11] = 0;
	memcpy(file + before, dictionary, length);
	file[before + text - 1] = '\n';
	file_bytes = before + text;
}

static int parse(uint64_t data_bytes, struct npy *out, struct why *why)
{
	uint8_t *exact = malloc(file_bytes);
	int err;

	assert_non_null(exact);
	memcpy(exact, file, file_bytes);
	err = npy_parse(exact, file_bytes, file_bytes + data_bytes, out, why);
	free(exact);
	return err;
}

static void accepts(uint8_t version, const char *dictionary, enum dtype dtype, uint64_t count,
                    uint32_t dimensions)
{
	struct why why = {""};
	struct npy npy;

	make(version, dictionary);
	assert_int_equal(parse(count * dtype_bytes(dtype), &npy, &why), 0);
	assert_int_equal(npy.dtype, dtype);
	assert_int_equal(npy.count, count);
	assert_int_equal(npy.dimensions, dimensions);
	assert_int_equal(npy.data_from, file_bytes);
	if (count == 0)
		return;
	assert_int_not_equal(parse(count * dtype_bytes(dtype) - 1, &npy, &why), 0);
	assert_non_null(strstr(why.text, "cut short: 1 bytes"));
}

static void refuses(const char *dictionary, const char *pattern)
{
	struct why why = {""};
	struct npy npy;

	make(1, dictionary);
	assert_int_not_equal(parse(1000000, &npy, &why), 0);
	if (strstr(why.text, pattern) == NULL)
		fail_msg("'%s' does not say '%s' of %s", why.text, pattern, dictionary);
	assert_null(strchr(why.text, '\n'));
}

static void test_good(void **state)
{
	(void)state;
	accepts(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }", DTYPE_F32, 12, 2);
	accepts(2, "{'descr': '<f2', 'fortran_order': False, 'shape': (7,), }", DTYPE_F16, 7, 1);
	accepts(3, "{'descr': '<f8', 'fortran_order': False, 'shape': (), }", DTYPE_F64, 1, 0);
	accepts(1, "{'descr': '<i4', 'fortran_order': False, 'shape': (0, 9), }", DTYPE_I32, 0, 2);
	accepts(1, "{'shape': (5,), 'fortran_order': True, 'descr': '<i8'}", DTYPE_I64, 5, 1);
	accepts(1, "{\"descr\":\"<V2\",\"fortran_order\":False,\"shape\":(2,3,4)}", DTYPE_BF16, 24,
	        3);
}

static void test_bad(void **state)
{
	(void)state;
	refuses("", "not a dictionary");
	refuses("{", "not a dictionary");
	refuses("{}", "lacks type, order or shape");
	refuses("{'descr': '<f4', 'shape': (3,), }", "lacks");
	refuses("{'descr': '>f4', 'fortran_order': False, 'shape': (3,), }", "its type is >f4");
	refuses("{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }", "its type is |u1");
	refuses("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }", "records");
	refuses("{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), }", "Fortran");
	refuses("{'descr': '<f4', 'fortran_order': 1, 'shape': (3,), }", "neither True nor");
	refuses("{'descr': '<f4', 'fortran_order': False, 'shape': (3, }", "not a dictionary");
	refuses("{'descr': '<f4', 'fortran_order': False, 'shape': 3, }", "not a tuple");
	refuses("{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }", "not a tuple");
	refuses("{'descr': '<f4', 'fortran_order': False, 'shape': (3 4), }", "not a dictionary");
	refuses("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
	        "below 2^48");
	refuses("{'descr': '<f4', 'fortran_order': False, 'shape': (281474976710656, 2), }",
	        "more than 2^48");
	refuses("{'descr': '<f4', 'fortran_order': False, 'shape': "
	        "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1), }",
	        "more than 16 dimensions");
	refuses("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'x': 1}", "unknown entry");
	refuses("{'descr': '<f4', 'fortran_order': False, 'shape': (9000000,), }", "cut short");
	refuses("{'descr': '<f\\4', 'fortran_order': False, 'shape': (3,), }", "not a dictionary");
	refuses("{'descr': '<f\"4', 'fortran_order': False, 'shape': (3,), }", "not a dictionary");
	refuses("{'descr': '<f4', 'fortran_order': False, 'shape': (3,,), }", "not a dictionary");
	refuses("{'descr': '<f4', 'fortran_order': False, 'shape': (3.5,), }", "not a tuple");
	refuses("{'descr': '<(F,)', 'fortran_order': False, 'shape': (3,), }", "its type is <(F,)");
}

static void test_cut(void **state)
{
	struct why why;
	struct npy npy;

	(void)state;
	make(2, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }");
	for (size_t whole = file_bytes; file_bytes > 0; file_bytes--)
		if (file_bytes < whole)
			assert_int_not_equal(parse(0, &npy, &why), 0);
	make(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }");
	file[6] = 4;
	assert_int_not_equal(parse(100, &npy, &why), 0);
	assert_non_null(strstr(why.text, "version 4"));
	make(2, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }");
	file[11] = 1; /* 16 MB of head */
	assert_int_not_equal(parse(100, &npy, &why), 0);
	assert_non_null(strstr(why.text, "its head has"));
}

static void test_read(void **state)
{
	char path[] = "/tmp/winnow-npy-XXXXXX";
	struct why why = {""};
	const float values[] = {1, 0, -2, 0, 0, 3};
	int fd = mkstemp(path);
	struct npy npy;
	void *data = NULL;

	(void)state;
	assert_true(fd >= 0);
	make(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }");
	assert_int_equal(write(fd, file, file_bytes), file_bytes);
	assert_int_equal(write(fd, values, sizeof(values)), sizeof(values));
	assert_int_equal(npy_read(path, &npy, &data, &why), 0);
	assert_memory_equal(data, values, sizeof(values));
	assert_int_equal(npy.shape[0], 2);
	assert_int_equal(npy.shape[1], 3);
	free(data);
	assert_int_equal(ftruncate(fd, (off_t)(file_bytes + 20)), 0);
	assert_int_equal(npy_read(path, &npy, &data, &why), -EINVAL);
	assert_non_null(strstr(why.text, "cut short: 4 bytes"));
	close(fd);
	unlink(path);
	assert_int_equal(npy_read(path, &npy, NULL, &why), -ENOENT);
	assert_non_null(strstr(why.text, "No such file"));
	assert_int_equal(npy_read("/tmp", &npy, NULL, &why), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
